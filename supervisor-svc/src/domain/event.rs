//! The vocabulary: everything that can happen in a session. The same events are stored, folded, watched and replayed.

use std::{collections::BTreeMap, sync::Arc};

use tool_policy::Policy;

use super::{
    actor::Actor,
    content::ContentRef,
    ids::{
        ApprovalId, ArtifactId, Digest, EdgeId, Generation, HandoffId, InputNumber, ReportSequence, RunnerId, Sequence,
        ThreadId, Turn,
    },
    settings::{
        Budget, ClosePolicy, EdgeManagement, Limits, Mode, Orchestration, Sandbox, Settings, Usage, WakePolicy, Webhook,
    },
    status::{Settled, StatusKind},
    thread::Product,
    time::UnixMillis,
};

/// An event with its number and circumstances.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// Its number in the session.
    pub sequence: Sequence,
    /// When it was recorded; never goes back within a session.
    pub time: UnixMillis,
    /// Why and for whom.
    pub circumstances: Circumstances,
    /// What happened.
    pub event: Event,
}

/// What a record says beside its event; it cannot be had later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circumstances {
    /// Who caused it.
    pub actor: Actor,
    /// The request that caused it.
    pub request_id: Option<Arc<str>>,
    /// The W3C trace context of the call that caused it.
    pub traceparent: Option<Arc<str>>,
    /// The event that it follows from.
    pub cause: Option<Sequence>,
    /// Whether contents that it names were not kept, because the session had no room for them.
    pub contents_left_out: bool,
}

/// One change of state.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// About the session.
    Session(SessionEvent),
    /// About one of its threads.
    Thread(ThreadId, ThreadEvent),
}

impl Event {
    /// The thread that a security event is about, [`NOBODY`](super::graph::NOBODY) for one of the whole session; `None`:
    /// the event is no security event. These are what an investigation needs: spawns and their failures, denials,
    /// approvals, closings and resumes, and what operators decided about the session.
    #[must_use]
    pub const fn evidence_about(&self) -> Option<ThreadId> {
        match self {
            Self::Session(_) => Some(super::graph::NOBODY),
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

    /// The thread that it is about, if it is about one.
    #[must_use]
    pub const fn thread(&self) -> Option<ThreadId> {
        match self {
            Self::Session(_) => None,
            Self::Thread(id, _) => Some(*id),
        }
    }
}

/// What can happen to a session.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionEvent {
    /// It exists; its root follows in the same append.
    Opened(Box<Settings>),
    /// Settings changed.
    Updated(Box<SettingsChange>),
    /// Its root is closed.
    Closed,
}

/// What SessionUpdated may change; `None` stays as it was.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SettingsChange {
    /// The mode.
    pub mode: Option<Mode>,
    /// The limits.
    pub limits: Option<Limits>,
    /// The budget.
    pub budget: Option<Budget>,
    /// Whether turns and spawns are held back.
    pub paused: Option<bool>,
    /// Who keeps the agents going.
    pub orchestration: Option<Orchestration>,
    /// Which edges graph threads may manage at most.
    pub edge_management: Option<EdgeManagement>,
    /// The graph templates whose threads are orchestrators.
    pub orchestrators: Option<Vec<String>>,
    /// The receivers of notifications.
    pub webhooks: Option<Vec<Webhook>>,
}

/// What can happen to a thread.
#[derive(Clone, Debug, PartialEq)]
pub enum ThreadEvent {
    /// It exists.
    Spawned(Arc<Spawned>),
    /// The registry refused a child of it.
    SpawnFailed {
        /// The role that was asked for.
        agent_type: String,
        /// The persona that was asked for.
        agent_name: String,
        /// The reason of the error.
        reason: String,
        /// Its text.
        message: String,
    },
    /// It took a slot.
    Admitted,
    /// It was given to a runner.
    Placed {
        /// The runner.
        runner: RunnerId,
        /// The attempt.
        generation: Generation,
    },
    /// Input waits for it.
    InputQueued {
        /// The input's number.
        number: InputNumber,
        /// The input.
        input: ContentRef,
        /// Who sent it.
        from: Actor,
        /// Whether the running turn is to get it, if it can.
        steers: bool,
    },
    /// A turn was handed to the runner.
    TurnDispatched {
        /// The turn.
        turn: Turn,
        /// The attempt.
        generation: Generation,
        /// The inputs that it consumes.
        inputs: Vec<InputNumber>,
        /// The blocks of the effective prompt; none where none are kept.
        blocks: Vec<BlockRef>,
        /// SHA-256 of the effective prompt; `None` where none is kept.
        whole: Option<Digest>,
        /// How much of it was sent.
        extent: PromptExtent,
        /// The newest letter that it showed; zero if it showed none.
        mail_up_to: Sequence,
    },
    /// The turn runs.
    TurnStarted {
        /// The turn.
        turn: Turn,
        /// The attempt.
        generation: Generation,
        /// The report that said so.
        report: ReportSequence,
    },
    /// Input reached the agent within a running turn.
    InputDelivered {
        /// The input's number.
        number: InputNumber,
        /// The turn.
        turn: Turn,
        /// The attempt.
        generation: Generation,
        /// The report that said so.
        report: ReportSequence,
    },
    /// The running turn shall stop.
    InterruptRequested {
        /// The turn.
        turn: Turn,
        /// Why.
        reason: String,
    },
    /// The turn is over.
    TurnEnded {
        /// The turn; zero if none ever began.
        turn: Turn,
        /// The attempt.
        generation: Generation,
        /// How it ended.
        outcome: Settled,
        /// Usage of this generation up to here.
        usage: Usage,
        /// What it brought forth. Boxed, as no other event is half as large.
        product: Box<Product>,
        /// The report that said so; zero if the supervisor decided.
        report: ReportSequence,
    },
    /// Its note changed.
    NoteSet(String),
    /// A condition began or ended.
    ConditionChanged {
        /// Which.
        kind: ConditionKind,
        /// Whether it holds now.
        active: bool,
        /// Why.
        reason: String,
    },
    /// A checkpoint of usage.
    UsageRecorded {
        /// The attempt.
        generation: Generation,
        /// Usage of this generation so far.
        usage: Usage,
    },
    /// What it and its descendants may spend changed.
    BudgetUpdated(Budget),
    /// An artifact was stored.
    ArtifactRecorded {
        /// The artifact.
        artifact: Artifact,
        /// The attempt.
        generation: Generation,
        /// The report that brought it.
        report: ReportSequence,
    },
    /// Tool calls were refused.
    ToolDenied {
        /// The tool.
        tool: String,
        /// What denied it.
        reason: String,
        /// How many calls this stands for.
        count: u32,
    },
    /// Its subtree is fenced.
    CloseRequested(Fence),
    /// It is closed.
    Closed {
        /// Whether without its runner's word.
        forced: bool,
        /// Why.
        reason: String,
    },
    /// It is open again.
    Resumed(Box<Resumed>),
    /// An edge from it exists, until it is deleted or either end is closed.
    EdgeCreated(Edge),
    /// An edge from it is gone.
    EdgeDeleted(EdgeId),
    /// It sent a handoff.
    HandoffSent(Box<Handoff>),
    /// It acknowledged its mail up to this number.
    MailAcknowledged(Sequence),
    /// Something about it waits for an operator.
    ApprovalRequested {
        /// The approval.
        approval: ApprovalId,
        /// What it is about.
        kind: ApprovalKind,
        /// What would happen.
        subject: String,
        /// When it is denied by itself.
        deadline: UnixMillis,
        /// The edge that is created when it is granted, where it is about one.
        edge: Option<Edge>,
        /// The tool call that it covers, where it is about one.
        call: Option<Box<CallDetails>>,
    },
    /// It was decided.
    ApprovalResolved {
        /// The approval.
        approval: ApprovalId,
        /// How.
        decision: ApprovalDecision,
        /// By whom.
        by: Actor,
        /// Why.
        reason: String,
    },
}

/// The tool call that an approval covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallDetails {
    /// Identifies the call: its tool, unredacted arguments and resolved paths.
    pub digest: Digest,
    /// What the operator is shown of it.
    pub content: ContentRef,
}

/// Everything that a spawn fixed about a thread. What may change later stands in [`Thread`](super::thread::Thread).
#[derive(Clone, Debug, PartialEq)]
pub struct Spawned {
    /// The parent; `None` for the root.
    pub parent: Option<ThreadId>,
    /// 0 for the root, the parent's + 1 otherwise.
    pub depth: u32,
    /// QUEUED, AWAITING_APPROVAL, PENDING_INIT or RUNNING.
    pub first_status: StatusKind,
    /// Whether its client executes it: never placed, holds no slot.
    pub client_owned: bool,
    /// What its role says.
    pub role: Arc<Role>,
    /// Unique in the session, case-insensitive; empty: none.
    pub alias: String,
    /// A short label.
    pub label: String,
    /// The note at spawn.
    pub note: Arc<str>,
    /// Where its agent works; empty: the session's directory.
    pub working_directory: Arc<str>,
    /// What it may change.
    pub sandbox: Sandbox,
    /// Which tools it may use.
    pub effective: Policy,
    /// What its children may hold.
    pub grant: Policy,
    /// Which edges it may manage.
    pub edge_management: EdgeManagement,
    /// What it and its descendants may spend.
    pub budget: Budget,
    /// How it is stopped.
    pub close_policy: ClosePolicy,
    /// Whether mail wakes it.
    pub wake_policy: WakePolicy,
    /// Its first input.
    pub input: Option<ContentRef>,
}

/// How much of a role's description the record of a spawn says; all of it stands in the resolution.
pub const MAX_DESCRIPTION_BYTES: usize = 1_024;

/// The longest note, in bytes.
pub const MAX_NOTE_BYTES: usize = 1_024;

/// What the registry resolved a role to, as far as recording a spawn changes nothing of it. Threads with the same share it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Role {
    /// Its name.
    pub agent_type: String,
    /// The persona; empty: the default prompt.
    pub agent_name: String,
    /// Its one-line description, at most [`MAX_DESCRIPTION_BYTES`] of it.
    pub agent_description: String,
    /// The model; empty: the runner's default.
    pub model: String,
    /// The effort; empty: the program's default.
    pub reasoning_effort: String,
    /// The provider; empty: the runner's default.
    pub provider: String,
    /// What decided model, effort, provider and sandbox.
    pub origins: BTreeMap<String, ValueOrigin>,
    /// The agent types that it may spawn; empty: any.
    pub spawn_list: Vec<String>,
    /// The template; `None` for `default`.
    pub source: Option<TemplateSource>,
    /// The whole resolution; `None` for a root that its client executes.
    pub resolved: Option<ContentRef>,
}

impl Role {
    /// Whether its template is a graph template: then edge management and approval bind its threads.
    #[must_use]
    pub fn is_graph(&self) -> bool {
        self.source
            .as_ref()
            .is_some_and(|source| source.dialect == Dialect::Graph)
    }
}

/// What decided a resolved value.
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
    /// An alias of the model catalogue.
    Alias,
    /// The service's default.
    Default,
}

/// The template that was used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TemplateSource {
    /// Where it was found.
    pub scope: Scope,
    /// The format it is written in.
    pub dialect: Dialect,
    /// Its path.
    pub path: String,
    /// SHA-256 of its bytes, in hexadecimal digits.
    pub digest: String,
    /// The paths of the templates that it hides.
    pub shadowed: Vec<String>,
}

/// Where a template was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// In the project.
    Project,
    /// In the user's home.
    User,
    /// In the binary.
    System,
}

/// The format of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dialect {
    /// Seeds 1 and 2.
    Role,
    /// Seed 3.
    Profile,
    /// Seed 4.
    Subagent,
    /// Seed 5.
    Graph,
    /// Another program's.
    Foreign,
}

/// A block of a prompt by its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRef {
    /// What it is for.
    pub kind: BlockKind,
    /// Its text.
    pub content: ContentRef,
}

/// What a block of a prompt is for, in the order in which they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockKind {
    /// The contract with every agent.
    System,
    /// Who the agent is.
    Role,
    /// What the mode allows.
    Mode,
    /// What is to be done now.
    Task,
    /// An operator's last word.
    Override,
}

/// How much of a prompt was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptExtent {
    /// Every block.
    Full,
    /// Mode and task; the program still has the rest.
    Delta,
}

/// What holds beside a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionKind {
    /// It or an ancestor is fenced. Derived, never recorded.
    Closing,
    /// It repeats itself or is silent.
    Stalled,
    /// Its runner's lease runs out.
    Unreachable,
    /// No runner fits. Derived, never recorded.
    NoRunner,
    /// A tool call waits for an operator.
    AwaitingToolApproval,
    /// Its budget is spent.
    BudgetExhausted,
    /// Its runner cannot enforce a part of its policy.
    PolicyGap,
    /// Its program does not remember the earlier conversation.
    ContextLost,
}

/// The kind of an artifact that is a prompt as the program was given it; whoever may not read prompts may not read it.
pub const PROMPT_ARTIFACT: &str = "prompt";

/// Something that a thread made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// Its id.
    pub id: ArtifactId,
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: String,
    /// Its media type.
    pub media_type: String,
    /// Its bytes.
    pub content: ContentRef,
    /// The turn that made it.
    pub turn: Turn,
}

/// A subtree is fenced: nothing can start in it, and it will be closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// Why, for people.
    pub reason: String,
    /// What caused it.
    pub cause: CloseCause,
    /// The status before.
    pub status_before: StatusKind,
    /// When the rest is forced.
    pub deadline: UnixMillis,
    /// How running turns end; `None`: each thread's own policy.
    pub close_policy: Option<ClosePolicy>,
}

/// What causes a subtree to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseCause {
    /// CloseAgent.
    Close,
    /// CloseSession.
    Session,
    /// Too many threads are open.
    Eviction,
    /// It was restarted too often.
    Intensity,
}

/// A thread is open again.
#[derive(Clone, Debug, PartialEq)]
pub struct Resumed {
    /// The new attempt.
    pub generation: Generation,
    /// How it stands settled now.
    pub settled: Settled,
    /// Which tools it may use now.
    pub effective: Policy,
    /// What its children may hold.
    pub grant: Policy,
    /// What it may change.
    pub sandbox: Sandbox,
}

/// A way on which two threads may talk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Its id.
    pub id: EdgeId,
    /// The sender.
    pub from: ThreadId,
    /// The receiver.
    pub to: ThreadId,
    /// Whether it carries both ways.
    pub bidirectional: bool,
    /// What it is for.
    pub kind: EdgeKind,
    /// A label for people.
    pub label: String,
}

/// What an edge is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EdgeKind {
    /// Work is handed over.
    #[default]
    Handoff,
    /// Results are reported.
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
    /// What it carries along: type and reference.
    pub artifacts: Vec<(String, String)>,
    /// Whether the work went well, and why.
    pub verdict: Option<(bool, String)>,
    /// Whether an answer is expected.
    pub expectation: Expectation,
    /// Who shall be answered.
    pub reply_to: Option<ThreadId>,
    /// What this is about.
    pub context_ref: String,
}

/// Whether the sender of a handoff expects an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expectation {
    /// No.
    #[default]
    None,
    /// It is welcome.
    Optional,
    /// It is required.
    Required,
}

/// What an approval is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalKind {
    /// A spawn.
    Spawn,
    /// A tool call.
    Tool,
    /// An edge.
    Edge,
}

/// How an approval was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalDecision {
    /// Yes.
    Granted,
    /// No.
    Denied,
    /// Nobody decided in time, which means no.
    Expired,
    /// Its subject is gone.
    Moot,
}

impl ApprovalDecision {
    /// The decision as sentences about it name it.
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
