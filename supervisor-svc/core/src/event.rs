//! Session events. The same events are stored, folded, watched and replayed.

use std::{collections::BTreeMap, sync::Arc};

use tool_policy::Policy;

use crate::{
    content::ContentRef,
    group::{GroupLimits, GroupOutcome, GroupSpec, ItemOutcome, ItemRef},
    ids::{
        ApprovalId, ArtifactId, Digest, EdgeId, Generation, GroupId, HandoffId, InputNumber, ReportSequence, RunnerId,
        Sequence, ThreadId, Turn,
    },
    principal::Actor,
    settings::{
        Budget, ClosePolicy, EdgeManagement, Limits, Mode, Orchestration, Sandbox, Settings, Usage, WakePolicy, Webhook,
    },
    status::{Settled, StatusKind},
    time::UnixMillis,
};

/// An event with its sequence number and metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// The event's number in the session.
    pub sequence: Sequence,
    /// The time of the record. Never decreases within a session.
    pub time: UnixMillis,
    /// The metadata of the event.
    pub metadata: EventMetadata,
    /// The event.
    pub event: Event,
}

/// Metadata that is recorded with an event. It cannot be reconstructed later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventMetadata {
    /// The actor that caused the event.
    pub actor: Actor,
    /// The request that caused the event.
    pub request_id: Option<Arc<str>>,
    /// The W3C trace context of the call that caused the event.
    pub traceparent: Option<Arc<str>>,
    /// The event that this event follows from.
    pub cause: Option<Sequence>,
    /// Whether contents that the event refers to were not stored, because the session's content quota was exhausted.
    pub contents_left_out: bool,
}

/// One change of state.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A change of the session.
    Session(SessionEvent),
    /// A change of a thread.
    Thread(ThreadId, ThreadEvent),
}

impl Event {
    /// Returns the subject thread if this is a security event, or [`ThreadId::NIL`] for a security event
    /// of the whole session. `None` if it is not a security event. Security events are spawns and failed spawns,
    /// denials, approvals, closes and resumes, and operators' decisions about the session.
    #[must_use]
    pub const fn evidence_about(&self) -> Option<ThreadId> {
        match self {
            Self::Session(_) => Some(ThreadId::NIL),
            Self::Thread(
                id,
                ThreadEvent::Spawned(_)
                | ThreadEvent::SpawnFailed { .. }
                | ThreadEvent::ToolDenied { .. }
                | ThreadEvent::ApprovalRequested { .. }
                | ThreadEvent::ApprovalResolved { .. }
                | ThreadEvent::CloseRequested(_)
                | ThreadEvent::Closed { .. }
                | ThreadEvent::Resumed(_),
            ) => Some(*id),
            Self::Thread(..) => None,
        }
    }

    /// Returns the subject thread, if any.
    #[must_use]
    pub const fn thread(&self) -> Option<ThreadId> {
        match self {
            Self::Session(_) => None,
            Self::Thread(id, _) => Some(*id),
        }
    }
}

/// A change of a session.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionEvent {
    /// The session was opened. Its root follows in the same append.
    Opened(Box<Settings>),
    /// The settings changed.
    Updated(Box<SettingsChange>),
    /// The root was closed.
    Closed,
}

/// Changes by SessionUpdated. A field that is `None` keeps its value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SettingsChange {
    /// The mode.
    pub mode: Option<Mode>,
    /// The limits.
    pub limits: Option<Limits>,
    /// The budget.
    pub budget: Option<Budget>,
    /// Whether the session is paused: turns and spawns do not start.
    pub paused: Option<bool>,
    /// The orchestration mode.
    pub orchestration: Option<Orchestration>,
    /// The maximum edge management of graph threads.
    pub edge_management: Option<EdgeManagement>,
    /// The graph templates whose threads are orchestrators.
    pub orchestrators: Option<Vec<String>>,
    /// The receivers of notifications.
    pub webhooks: Option<Vec<Webhook>>,
}

/// A change of a thread.
#[derive(Clone, Debug, PartialEq)]
pub enum ThreadEvent {
    /// The thread was spawned.
    Spawned(Arc<Spawned>),
    /// The registry rejected a child of the thread.
    SpawnFailed {
        /// The requested role.
        agent_type: String,
        /// The requested persona.
        agent_name: String,
        /// The reason code of the error.
        reason: String,
        /// The error message.
        message: String,
    },
    /// The thread took a slot.
    Admitted,
    /// The thread was placed on a runner.
    Placed {
        /// The runner.
        runner: RunnerId,
        /// The attempt.
        generation: Generation,
    },
    /// Input was queued.
    InputQueued {
        /// The input's number.
        number: InputNumber,
        /// The input.
        input: ContentRef,
        /// The sender.
        from: Actor,
        /// Whether the input is delivered to the running turn, if the program supports it.
        steers: bool,
        /// The number of repair turns if the input has a result schema, otherwise `None`.
        result_repairs: Option<u32>,
    },
    /// A turn was dispatched to the runner.
    TurnDispatched {
        /// The turn.
        turn: Turn,
        /// The attempt.
        generation: Generation,
        /// The inputs that the turn consumes.
        inputs: Vec<InputNumber>,
        /// The blocks of the effective prompt. Empty if prompts are not stored.
        blocks: Vec<BlockRef>,
        /// SHA-256 of the effective prompt. `None` if prompts are not stored.
        whole: Option<Digest>,
        /// The part of the prompt that was sent.
        extent: PromptExtent,
        /// The newest letter in the prompt. Zero if the prompt contained no mail.
        mail_up_to: Sequence,
    },
    /// The turn started.
    TurnStarted {
        /// The turn.
        turn: Turn,
        /// The attempt.
        generation: Generation,
        /// The runner report that caused this event.
        report: ReportSequence,
    },
    /// Input was delivered to the agent during a turn.
    InputDelivered {
        /// The input's number.
        number: InputNumber,
        /// The turn.
        turn: Turn,
        /// The attempt.
        generation: Generation,
        /// The runner report that caused this event.
        report: ReportSequence,
    },
    /// A stop of the running turn was requested.
    InterruptRequested {
        /// The turn.
        turn: Turn,
        /// The reason.
        reason: String,
    },
    /// The turn ended.
    TurnEnded {
        /// The turn. Zero if no turn ever started.
        turn: Turn,
        /// The attempt.
        generation: Generation,
        /// The outcome of the turn.
        outcome: Settled,
        /// The usage of this generation up to this event.
        usage: Usage,
        /// The digests of the turn's output. Boxed, because this event would otherwise be more than twice as large as
        /// any other event.
        digests: Box<OutputDigests>,
        /// Whether the turn ended without a valid result and a repair turn follows. The end of such a turn causes no
        /// letter and no notification.
        result_repair: bool,
        /// The runner report that caused this event. Zero if the supervisor ended the turn.
        report: ReportSequence,
    },
    /// The agent reported the result that the thread's input asks for.
    ResultReported {
        /// The turn.
        turn: Turn,
        /// The result, a JSON document that matches the schema of the input.
        result: ContentRef,
    },
    /// The note changed.
    NoteSet(String),
    /// A condition started or ended.
    ConditionChanged {
        /// The kind of the condition.
        kind: ConditionKind,
        /// Whether the condition is now active.
        active: bool,
        /// The reason.
        reason: String,
    },
    /// Usage was recorded during a turn.
    UsageRecorded {
        /// The attempt.
        generation: Generation,
        /// The usage of this generation up to this event.
        usage: Usage,
    },
    /// The budget of the thread and its descendants changed.
    BudgetUpdated(Budget),
    /// An artifact was stored.
    ArtifactRecorded {
        /// The artifact.
        artifact: Artifact,
        /// The attempt.
        generation: Generation,
        /// The report that contained the artifact.
        report: ReportSequence,
    },
    /// Tool calls were denied.
    ToolDenied {
        /// The tool.
        tool: String,
        /// The rule or decision that denied the calls.
        reason: String,
        /// The number of calls that the event covers.
        count: u32,
    },
    /// The subtree was fenced.
    CloseRequested(Fence),
    /// The thread was closed.
    Closed {
        /// Whether the thread is closed without a confirmation from its runner.
        forced: bool,
        /// The reason.
        reason: String,
    },
    /// The thread was resumed.
    Resumed(Box<Resumed>),
    /// An edge from the thread was created. It exists until it is deleted or either end closes.
    EdgeCreated(Edge),
    /// An edge from the thread was deleted.
    EdgeDeleted(EdgeId),
    /// The thread sent a handoff.
    HandoffSent(Box<Handoff>),
    /// The thread acknowledged its mail up to this number.
    MailAcknowledged(Sequence),
    /// A group was created whose items run below the thread.
    GroupCreated {
        /// The properties of the group.
        spec: Arc<GroupSpec>,
        /// The approval that the group waits for. `None`: items start at once.
        approval: Option<ApprovalId>,
    },
    /// Limits of a group changed.
    GroupUpdated {
        /// The group.
        group: GroupId,
        /// The new limits.
        limits: GroupLimits,
    },
    /// An attempt at an item ended.
    GroupItemEnded {
        /// The item.
        item: ItemRef,
        /// The outcome.
        outcome: ItemOutcome,
        /// The reason if the item did not succeed.
        reason: String,
    },
    /// The outcome of a group is certain. Its pending items are cancelled.
    GroupEnding {
        /// The group.
        group: GroupId,
        /// The outcome.
        outcome: GroupOutcome,
        /// The reason.
        reason: String,
    },
    /// All items of a group have ended.
    GroupEnded {
        /// The group.
        group: GroupId,
        /// The outcome.
        outcome: GroupOutcome,
        /// The reason.
        reason: String,
        /// The table of the results.
        table: Box<Artifact>,
    },
    /// The failed and cancelled items of a group are pending again.
    GroupRetried(GroupId),
    /// An approval was requested for the thread.
    ApprovalRequested {
        /// The approval.
        approval: ApprovalId,
        /// The kind of the request.
        kind: ApprovalKind,
        /// A human-readable description of the request.
        subject: String,
        /// The time at which the approval is denied automatically. `None`: never.
        deadline: Option<UnixMillis>,
        /// The edge to create when the approval is granted. `None` for other kinds.
        edge: Option<Edge>,
        /// The tool call that the approval covers. `None` for other kinds.
        call: Option<Box<CallDetails>>,
    },
    /// An approval was decided or became moot.
    ApprovalResolved {
        /// The approval.
        approval: ApprovalId,
        /// The decision.
        decision: ApprovalDecision,
        /// The deciding actor.
        by: Actor,
        /// The reason.
        reason: String,
    },
}

/// The tool call that an approval covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallDetails {
    /// Identifies the call by its tool, unredacted arguments and resolved paths.
    pub digest: Digest,
    /// The description of the call for the operator.
    pub content: ContentRef,
}

/// The properties of a thread that its spawn fixes. Mutable properties are in [`Thread`](crate::state::thread::Thread).
#[derive(Clone, Debug, PartialEq)]
pub struct Spawned {
    /// The parent; `None` for the root.
    pub parent: Option<ThreadId>,
    /// The depth: 0 for the root, otherwise the parent's depth + 1.
    pub depth: u32,
    /// QUEUED, AWAITING_APPROVAL, PENDING_INIT or RUNNING.
    pub first_status: StatusKind,
    /// Whether the session's client executes the thread itself. Such a thread is never placed and holds no slot.
    pub client_owned: bool,
    /// The resolved role.
    pub role: Arc<Role>,
    /// The alias, unique in the session and case-insensitive. Empty means no alias.
    pub alias: String,
    /// A short label.
    pub label: String,
    /// The note at spawn.
    pub note: Arc<str>,
    /// The agent's working directory. Empty selects the session's directory.
    pub working_directory: Arc<str>,
    /// The sandbox in which the agent runs.
    pub sandbox: Sandbox,
    /// The effective tool policy.
    pub effective: Policy,
    /// The maximum permissions of its children.
    pub grant: Policy,
    /// The edges that the thread may manage.
    pub edge_management: EdgeManagement,
    /// The budget of the thread and its descendants.
    pub budget: Budget,
    /// How a running turn ends when the thread closes.
    pub close_policy: ClosePolicy,
    /// Whether mail wakes the thread.
    pub wake_policy: WakePolicy,
    /// Its first input.
    pub input: Option<ContentRef>,
    /// The number of repair turns if the first input has a result schema, otherwise `None`.
    pub result_repairs: Option<u32>,
    /// The group item that the thread works on.
    pub item: Option<ItemRef>,
}

/// Maximum size of a role description in a spawn event, in bytes. The resolution contains the complete description.
pub const MAX_DESCRIPTION_BYTES: usize = 1_024;

/// Maximum length of a note, in bytes.
pub const MAX_NOTE_BYTES: usize = 1_024;

/// The resolved role, without the properties that a spawn can change. Threads with equal roles share it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Role {
    /// The name of the agent type.
    pub agent_type: String,
    /// The persona. Empty selects the default prompt.
    pub agent_name: String,
    /// The one-line description, truncated to [`MAX_DESCRIPTION_BYTES`].
    pub agent_description: String,
    /// The model. Empty selects the runner's default.
    pub model: String,
    /// The reasoning effort. Empty selects the program's default.
    pub reasoning_effort: String,
    /// The provider. Empty selects the runner's default.
    pub provider: String,
    /// The origins of the values of model, effort, provider and sandbox.
    pub origins: BTreeMap<String, ValueOrigin>,
    /// The agent types that the thread may spawn. Empty allows any type.
    pub spawn_list: Vec<String>,
    /// The template. `None` for the agent type `default`.
    pub source: Option<TemplateSource>,
    /// The complete resolution. `None` for a root that the session's client executes.
    pub resolved: Option<ContentRef>,
}

impl Role {
    /// Returns whether the template is a graph template. Edge management and approvals apply to threads of graph
    /// templates.
    #[must_use]
    pub fn is_graph(&self) -> bool {
        self.source
            .as_ref()
            .is_some_and(|source| source.dialect == Dialect::Graph)
    }
}

/// The origin of a resolved value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ValueOrigin {
    /// The request.
    Explicit,
    /// The persona.
    Persona,
    /// The role.
    Role,
    /// The parent.
    Inherited,
    /// An alias in the model catalogue.
    Alias,
    /// The default of the service.
    Default,
}

/// The source of a template.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TemplateSource {
    /// The scope in which the template was found.
    pub scope: Scope,
    /// The format of the template.
    pub dialect: Dialect,
    /// Its path.
    pub path: String,
    /// SHA-256 of the template's bytes, in hexadecimal.
    pub digest: String,
    /// The paths of the templates that this template shadows.
    pub shadowed: Vec<String>,
}

/// The scope of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The project.
    Project,
    /// The user's home directory.
    User,
    /// Built into the binary.
    System,
}

/// The format of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dialect {
    /// Role files in `.codex/.agents`.
    Role,
    /// Profile files in `.codex/agents`.
    Profile,
    /// Subagent files in `.codex/agents`.
    Subagent,
    /// Graph templates in `docs/templates`.
    Graph,
    /// The agent file of another program.
    Foreign,
}

/// A block of a prompt, identified by its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRef {
    /// The purpose of the block.
    pub kind: BlockKind,
    /// The text of the block.
    pub content: ContentRef,
}

/// The purpose of a prompt block, in the order in which the blocks are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockKind {
    /// The contract that applies to all agents.
    System,
    /// The role of the agent.
    Role,
    /// The permissions of the mode.
    Mode,
    /// The current task.
    Task,
    /// The operator's override, which takes precedence over the other blocks.
    Override,
}

/// The part of a prompt that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptExtent {
    /// Every block.
    Full,
    /// The mode and task blocks. The program still has the other blocks.
    Delta,
}

/// A condition of a thread, in addition to its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionKind {
    /// The thread or an ancestor is fenced. Derived, never recorded.
    Closing,
    /// The thread repeats itself or is silent.
    Stalled,
    /// The lease of the runner is running out.
    Unreachable,
    /// No runner matches. Derived, never recorded.
    NoRunner,
    /// A tool call waits for an approval.
    AwaitingToolApproval,
    /// The budget is exhausted.
    BudgetExhausted,
    /// The runner cannot enforce a part of the policy.
    PolicyGap,
    /// The program lost the earlier conversation.
    ContextLost,
    /// The agent asked its parent a question. New input ends the condition.
    AwaitingInput,
}

/// The artifact kind of a prompt as the program received it. Readers without access to prompts cannot read it.
pub const PROMPT_ARTIFACT: &str = "prompt";

/// A file or other output that a thread produced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// Its id.
    pub id: ArtifactId,
    /// The name of the artifact.
    pub name: String,
    /// The kind of the artifact.
    pub kind: String,
    /// Its media type.
    pub media_type: String,
    /// The bytes of the artifact.
    pub content: ContentRef,
    /// The turn that produced the artifact.
    pub turn: Turn,
}

/// The fence of a subtree: no new work starts in it, and it will be closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// A human-readable reason.
    pub reason: String,
    /// The cause of the close.
    pub cause: CloseCause,
    /// The status before the fence.
    pub status_before: StatusKind,
    /// The time at which the remaining threads are closed by force.
    pub deadline: UnixMillis,
    /// How running turns end. `None` uses each thread's own policy.
    pub close_policy: Option<ClosePolicy>,
}

/// The cause of a close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseCause {
    /// CloseAgent.
    Close,
    /// CloseSession.
    Session,
    /// Eviction, because too many threads are open.
    Eviction,
    /// The restart intensity was exceeded.
    Intensity,
    /// The end of the thread's item, or of the group of the item.
    Group,
}

/// The state of a resumed thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Resumed {
    /// The new generation.
    pub generation: Generation,
    /// The outcome with which the thread is settled.
    pub settled: Settled,
    /// The effective tool policy.
    pub effective: Policy,
    /// The maximum permissions of its children.
    pub grant: Policy,
    /// The sandbox in which the agent runs.
    pub sandbox: Sandbox,
}

/// A connection that lets two threads exchange handoffs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Its id.
    pub id: EdgeId,
    /// The sender.
    pub from: ThreadId,
    /// The receiver.
    pub to: ThreadId,
    /// Whether both ends may send handoffs.
    pub bidirectional: bool,
    /// The purpose of the edge.
    pub kind: EdgeKind,
    /// A human-readable label.
    pub label: String,
}

/// The purpose of an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EdgeKind {
    /// For handing over work.
    #[default]
    Handoff,
    /// For reporting results.
    Report,
}

/// A message along an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handoff {
    /// Its id.
    pub id: HandoffId,
    /// The sender.
    pub from: ThreadId,
    /// The receiver.
    pub to: ThreadId,
    /// The text.
    pub message: ContentRef,
    /// A JSON value.
    pub structured: Option<ContentRef>,
    /// The attached artifacts, as type and reference.
    pub artifacts: Vec<(String, String)>,
    /// Whether the work succeeded, and the reason.
    pub verdict: Option<(bool, String)>,
    /// Whether the sender expects an answer.
    pub expectation: Expectation,
    /// The thread that receives the answer.
    pub reply_to: Option<ThreadId>,
    /// The context that the handoff refers to.
    pub context_ref: String,
}

/// Whether the sender of a handoff expects an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expectation {
    /// No answer is expected.
    #[default]
    None,
    /// An answer is optional.
    Optional,
    /// An answer is required.
    Required,
}

/// The kind of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalKind {
    /// A spawn.
    Spawn,
    /// A tool call.
    Tool,
    /// An edge.
    Edge,
    /// A group.
    Group,
}

/// The decision on an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalDecision {
    /// Approved.
    Granted,
    /// Denied.
    Denied,
    /// Not decided before the deadline. Counts as denied.
    Expired,
    /// The subject no longer exists.
    Moot,
}

impl ApprovalDecision {
    /// Returns the decision as used in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Moot => "moot",
        }
    }
}

/// The digests of a turn's output, used to compare turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputDigests {
    /// SHA-256 of the output. `None` if unknown.
    pub output: Option<Digest>,
    /// SHA-256 of the file changes. `None` if nothing changed or the changes are unknown.
    pub diff: Option<Digest>,
}
