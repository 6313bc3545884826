//! Session commands. A command carries everything that is needed to decide it: ids, resolved templates and the caller.

use std::{sync::Arc, time::Duration};

use crate::{
    content::ContentRef,
    event::{
        Artifact, BlockRef, CallDetails, CloseCause, ConditionKind, Edge, Handoff, OutputDigests, PromptExtent,
        SettingsChange, Spawned,
    },
    group::{GroupLimitsChange, GroupSpec, ItemRef},
    ids::{
        ApprovalId, Digest, EdgeId, Generation, GroupId, InputNumber, ReportSequence, RunnerId, Sequence, ThreadId,
        Turn,
    },
    principal::{Actor, Caller},
    settings::{Budget, ClosePolicy, LimitsChange, OnLimit, Price, Urgency, Usage},
    status::Settled,
};

/// A command for a session.
#[derive(Clone, Debug)]
pub enum Command {
    /// A spawn whose template the registry resolved.
    Spawn(Box<Spawn>),
    /// A spawn that the registry rejected. It is recorded so that the rejection can be explained later.
    FailSpawn {
        /// The thread that requested the spawn.
        parent: ThreadId,
        /// The requested role.
        agent_type: String,
        /// The requested persona.
        agent_name: String,
        /// The reason code of the error.
        reason: String,
        /// The error message.
        message: String,
    },
    /// Input for a thread.
    SendInput {
        /// The sender.
        caller: Caller,
        /// The thread.
        target: ThreadId,
        /// The input.
        input: ContentRef,
        /// When the input is delivered if the thread is active.
        urgency: Urgency,
        /// The behavior when no slot is free.
        on_limit: OnLimit,
        /// The number of repair turns if the input has a result schema, otherwise `None`.
        result_repairs: Option<u32>,
    },
    /// Stops the running turns of a subtree.
    Interrupt {
        /// The caller.
        caller: Caller,
        /// The top of the subtree.
        target: ThreadId,
        /// If set, the command applies only if this is the latest turn of the top thread.
        turn: Option<Turn>,
        /// Whether the descendants continue to run.
        only_this: bool,
        /// The reason.
        reason: String,
    },
    /// Closes a subtree.
    Close {
        /// The caller.
        caller: Caller,
        /// The top of the subtree.
        target: ThreadId,
        /// The reason.
        reason: String,
        /// The cause of the close.
        cause: CloseCause,
        /// The time limit of the cascade.
        within: Duration,
        /// How running turns end. `None` uses each thread's own policy.
        policy: Option<ClosePolicy>,
    },
    /// Opens a closed thread again.
    Resume {
        /// The caller.
        caller: Caller,
        /// The thread.
        target: ThreadId,
    },
    /// Reports a result that matches the schema of the thread's input.
    ReportResult {
        /// The caller.
        caller: Caller,
        /// The thread.
        target: ThreadId,
        /// The JSON document.
        result: ContentRef,
    },
    /// Asks a thread's parent a question.
    AskParent {
        /// The caller.
        caller: Caller,
        /// The thread.
        target: ThreadId,
        /// The question.
        question: String,
    },
    /// Sets a thread's note.
    SetNote {
        /// The caller.
        caller: Caller,
        /// The thread.
        target: ThreadId,
        /// The note. A blank note clears it.
        note: String,
    },
    /// Dispatches a turn to a runner.
    Dispatch(Box<Dispatch>),
    /// Applies a runner's report.
    Report {
        /// The thread.
        thread: ThreadId,
        /// The attempt.
        generation: Generation,
        /// The report's number.
        sequence: ReportSequence,
        /// The reported observation.
        report: Report,
    },
    /// Records that a thread's runner is lost, or never received the thread.
    LoseRunner {
        /// The thread.
        thread: ThreadId,
        /// The generation of the lost attempt.
        generation: Generation,
        /// The reason.
        reason: String,
    },
    /// Records that no runner can start the thread as its role requires.
    RefuseStart {
        /// The thread.
        thread: ThreadId,
        /// The attempt.
        generation: Generation,
        /// A human-readable reason.
        message: String,
    },
    /// Records that the pending turn cannot be dispatched to any runner.
    RefuseTurn {
        /// The thread.
        thread: ThreadId,
        /// The attempt.
        generation: Generation,
        /// A human-readable reason.
        message: String,
    },
    /// Closes a fenced thread that is no longer executed.
    FinishClose {
        /// The thread.
        thread: ThreadId,
        /// Whether the thread is closed without a confirmation from its runner.
        forced: bool,
    },
    /// Updates the session's settings. For operators only.
    UpdateSession(Box<SettingsUpdate>),
    /// Changes the budget of a thread and its descendants.
    UpdateBudget {
        /// The caller.
        caller: Caller,
        /// The thread.
        target: ThreadId,
        /// The new budget.
        budget: Budget,
    },
    /// Creates an edge between two threads.
    CreateEdge {
        /// The caller.
        caller: Caller,
        /// The edge.
        edge: Edge,
        /// The id of the approval, if one is required.
        approval: ApprovalId,
    },
    /// Deletes an edge.
    DeleteEdge {
        /// The caller.
        caller: Caller,
        /// The edge.
        edge: EdgeId,
    },
    /// Sends a handoff from one thread to another.
    SendHandoff {
        /// The caller.
        caller: Caller,
        /// The handoff.
        handoff: Box<Handoff>,
    },
    /// Acknowledges a thread's mail.
    AcknowledgeMail {
        /// The caller.
        caller: Caller,
        /// The thread.
        target: ThreadId,
        /// The newest letter to acknowledge.
        up_to: Sequence,
    },
    /// Creates a group.
    CreateGroup(Box<NewGroup>),
    /// Changes the limits of a group.
    UpdateGroup {
        /// The caller.
        caller: Caller,
        /// The group.
        group: GroupId,
        /// The change.
        change: GroupLimitsChange,
    },
    /// Cancels the items of a group that have not ended.
    CancelGroup {
        /// The caller.
        caller: Caller,
        /// The group.
        group: GroupId,
        /// The reason.
        reason: String,
    },
    /// Makes the failed and cancelled items of an ended group pending again.
    RetryGroup {
        /// The caller.
        caller: Caller,
        /// The group.
        group: GroupId,
    },
    /// Records that an item cannot be spawned.
    FailItem {
        /// The item.
        item: ItemRef,
        /// A human-readable reason.
        reason: String,
    },
    /// Ends a group whose items have all ended.
    EndGroup {
        /// The group.
        group: GroupId,
        /// The table of the results.
        table: Box<Artifact>,
    },
    /// Applies an operator's decision to a pending approval.
    ResolveApproval {
        /// The approval.
        approval: ApprovalId,
        /// Whether the approval is granted.
        grant: bool,
        /// The deciding actor.
        by: Actor,
        /// The reason.
        reason: String,
    },
    /// Requests an approval for a tool call.
    RequestToolApproval {
        /// The thread.
        thread: ThreadId,
        /// The approval's id.
        approval: ApprovalId,
        /// A human-readable description of the call.
        subject: String,
        /// The complete call.
        call: CallDetails,
    },
    /// Records denied tool calls of a thread.
    DenyTool {
        /// The thread.
        thread: ThreadId,
        /// The tool.
        tool: String,
        /// The rule or decision that denied the calls.
        reason: String,
        /// The number of calls.
        count: u32,
    },
    /// Sets or clears a condition of an attempt.
    SetCondition {
        /// The thread.
        thread: ThreadId,
        /// The attempt.
        generation: Generation,
        /// The kind of the condition.
        kind: ConditionKind,
        /// Whether the condition is now active.
        active: bool,
        /// The reason.
        reason: String,
    },
    /// Records the usage of an attempt during a turn.
    RecordUsage {
        /// The thread.
        thread: ThreadId,
        /// The attempt.
        generation: Generation,
        /// Usage of this attempt so far.
        usage: Usage,
        /// The price of the attempt's model; `None` if unknown.
        price: Option<Price>,
    },
    /// Starts an automatic turn of an orchestrator.
    AutoTurn {
        /// The thread.
        thread: ThreadId,
        /// The input of the turn.
        input: ContentRef,
    },
    /// Processes all deadlines that have passed.
    Tick,
}

/// A group to create.
#[derive(Clone, Debug)]
pub struct NewGroup {
    /// The caller.
    pub caller: Caller,
    /// The parent of the items' threads.
    pub parent: ThreadId,
    /// The properties.
    pub spec: Arc<GroupSpec>,
    /// The budget of each item.
    pub item_budget: Budget,
    /// The name of the items' role, for the text that the approver reads.
    pub role: String,
    /// The number of items above which an operator must approve the group, regardless of the rules. If a thread creates
    /// the group, the items of the other open groups that threads created count too.
    pub approval_above: Option<u32>,
    /// The id of the approval, if one is required.
    pub approval: ApprovalId,
}

/// An operator's changes to a session. Fields that are not set keep their value.
#[derive(Clone, Debug, Default)]
pub struct SettingsUpdate {
    /// Changes of all settings except the limits. Limits in this field are ignored.
    pub change: SettingsChange,
    /// The limits.
    pub limits: LimitsChange,
}

/// A spawn with all data that was resolved outside the session.
#[derive(Clone, Debug)]
pub struct Spawn {
    /// The caller that spawns the thread.
    pub caller: Caller,
    /// The new thread's id.
    pub id: ThreadId,
    /// The fixed properties of the new thread. The commit recomputes the depth and the first status and ignores the
    /// values here.
    pub spawned: Spawned,
    /// The tools that the caller removes from the child and all of its descendants.
    pub narrowing: Option<tool_policy::Layer>,
    /// The role's own policy layers, from which the child's permissions are computed.
    pub role_layers: Arc<[tool_policy::Layer]>,
    /// The tools that the role allows for children of its threads.
    pub grant_list: Vec<String>,
    /// The behavior when no slot is free.
    pub on_limit: OnLimit,
    /// The id of the approval, if one is required.
    pub approval: ApprovalId,
}

/// A turn with its prompt, ready to be dispatched.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// The thread.
    pub thread: ThreadId,
    /// The runner that receives the turn.
    pub runner: RunnerId,
    /// The attempt.
    pub generation: Generation,
    /// The inputs that the turn consumes.
    pub inputs: Vec<InputNumber>,
    /// The blocks of the effective prompt. Empty if prompts are not stored.
    pub blocks: Vec<BlockRef>,
    /// SHA-256 of the effective prompt. `None` if prompts are not stored.
    pub whole: Option<Digest>,
    /// The part of the prompt that is sent.
    pub extent: PromptExtent,
    /// The newest letter in the prompt. Zero if the prompt contains no mail.
    pub mail_up_to: Sequence,
}

/// The check of a turn's last message against the schema of the requested result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResultCheck {
    /// The message is a document that matches the schema.
    Valid(ContentRef),
    /// The message does not match the schema.
    Invalid {
        /// The errors, for people.
        errors: String,
        /// The encoded `Input` of a repair turn, which lists the errors and contains the schema.
        repair: ContentRef,
    },
}

/// An observation reported by a runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// A turn started.
    TurnStarted {
        /// The turn.
        turn: Turn,
    },
    /// A turn ended.
    TurnEnded {
        /// The turn.
        turn: Turn,
        /// The outcome of the turn.
        outcome: Settled,
        /// Usage of this attempt so far. A cost other than zero was reported by the program, in US dollars.
        usage: Usage,
        /// The price of the attempt's model; `None` if unknown.
        price: Option<Price>,
        /// The digests of the turn's output.
        digests: OutputDigests,
        /// Whether the runner interrupted the turn because the runner itself was stopped.
        runner_stopped: bool,
        /// The check of the last message, if a requested result was not reported.
        result: Option<Box<ResultCheck>>,
    },
    /// Input reached the agent within a running turn.
    InputDelivered {
        /// The input.
        number: InputNumber,
        /// The turn.
        turn: Turn,
    },
    /// The program ended.
    Stopped {
        /// A human-readable description of how the program ended.
        detail: String,
    },
    /// An artifact of the thread.
    Artifact(Artifact),
    /// The program cannot enforce a part of the policy.
    PolicyGap(String),
    /// The program lost the earlier conversation.
    ContextLost(String),
}
