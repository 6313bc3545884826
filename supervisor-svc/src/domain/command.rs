//! What may be asked of a session. A command carries everything that deciding it needs: ids, resolutions, the caller.

use std::{sync::Arc, time::Duration};

use super::{
    actor::{Actor, Caller},
    content::ContentRef,
    event::{
        Artifact, BlockRef, CallDetails, CloseCause, ConditionKind, Edge, Handoff, PromptExtent, SettingsChange,
        Spawned,
    },
    ids::{ApprovalId, Digest, EdgeId, Generation, InputNumber, ReportSequence, RunnerId, Sequence, ThreadId, Turn},
    settings::{Budget, ClosePolicy, LimitsChange, OnLimit, Urgency, Usage},
    status::Settled,
    thread::Product,
};

/// A request to a session.
#[derive(Clone, Debug)]
pub enum Command {
    /// A spawn whose template the registry resolved.
    Spawn(Box<Spawn>),
    /// A spawn that the registry refused; recorded so that the refusal can be explained later.
    FailSpawn {
        /// Who wanted to spawn.
        parent: ThreadId,
        /// The role that was asked for.
        agent_type: String,
        /// The persona that was asked for.
        agent_name: String,
        /// The reason of the error.
        reason: String,
        /// Its text.
        message: String,
    },
    /// Input for a thread.
    SendInput {
        /// Who sends it.
        caller: Caller,
        /// The thread.
        target: ThreadId,
        /// The input.
        input: ContentRef,
        /// How soon, if the thread is at work.
        urgency: Urgency,
        /// What to do when no slot is free.
        on_limit: OnLimit,
    },
    /// The running turns of a subtree shall stop.
    Interrupt {
        /// Who asks.
        caller: Caller,
        /// The top of the subtree.
        target: ThreadId,
        /// Only if the top's latest turn is this one.
        turn: Option<Turn>,
        /// Whether the descendants go on.
        only_this: bool,
        /// Why.
        reason: String,
    },
    /// A subtree shall be closed.
    Close {
        /// Who asks.
        caller: Caller,
        /// The top of the subtree.
        target: ThreadId,
        /// Why.
        reason: String,
        /// What caused it.
        cause: CloseCause,
        /// How long the cascade may take.
        within: Duration,
        /// How running turns end; `None`: each thread's own policy.
        policy: Option<ClosePolicy>,
    },
    /// A closed thread shall be open again.
    Resume {
        /// Who asks.
        caller: Caller,
        /// The thread.
        target: ThreadId,
    },
    /// A thread's note changes.
    SetNote {
        /// Who asks.
        caller: Caller,
        /// The thread.
        target: ThreadId,
        /// The note; blank: none.
        note: String,
    },
    /// A turn is handed to a runner.
    Dispatch(Box<Dispatch>),
    /// A runner said what it saw.
    Report {
        /// The thread.
        thread: ThreadId,
        /// The attempt.
        generation: Generation,
        /// The report's number.
        sequence: ReportSequence,
        /// What it saw.
        report: Report,
    },
    /// A thread's runner is gone, or never had it.
    LoseRunner {
        /// The thread.
        thread: ThreadId,
        /// The attempt that is lost.
        generation: Generation,
        /// Why.
        reason: String,
    },
    /// No runner can start the thread as its role demands.
    RefuseStart {
        /// The thread.
        thread: ThreadId,
        /// The attempt.
        generation: Generation,
        /// Why, for people.
        message: String,
    },
    /// The turn that waits for a runner can be handed to none.
    RefuseTurn {
        /// The thread.
        thread: ThreadId,
        /// The attempt.
        generation: Generation,
        /// Why, for people.
        message: String,
    },
    /// A fenced thread that nobody executes any more is closed.
    FinishClose {
        /// The thread.
        thread: ThreadId,
        /// Whether without its runner's word.
        forced: bool,
    },
    /// The session's settings change; only operators may ask for it.
    UpdateSession(Box<SettingsUpdate>),
    /// What a thread and its descendants may spend changes.
    UpdateBudget {
        /// Who asks.
        caller: Caller,
        /// The thread.
        target: ThreadId,
        /// The new budget.
        budget: Budget,
    },
    /// Two threads shall be able to talk.
    CreateEdge {
        /// Who asks.
        caller: Caller,
        /// The edge.
        edge: Edge,
        /// The id of the approval, should it need one.
        approval: ApprovalId,
    },
    /// An edge shall be gone.
    DeleteEdge {
        /// Who asks.
        caller: Caller,
        /// The edge.
        edge: EdgeId,
    },
    /// A thread sends another one a handoff.
    SendHandoff {
        /// Who asks.
        caller: Caller,
        /// The handoff.
        handoff: Box<Handoff>,
    },
    /// A thread has read its mail.
    AcknowledgeMail {
        /// Who asks.
        caller: Caller,
        /// The thread.
        target: ThreadId,
        /// Up to which letter.
        up_to: Sequence,
    },
    /// An operator decides what waits for one.
    ResolveApproval {
        /// The approval.
        approval: ApprovalId,
        /// Yes or no.
        grant: bool,
        /// Who decides.
        by: Actor,
        /// Why.
        reason: String,
    },
    /// A tool call waits for an operator.
    RequestToolApproval {
        /// The thread.
        thread: ThreadId,
        /// The approval's id.
        approval: ApprovalId,
        /// The call, for people.
        subject: String,
        /// The whole call.
        call: CallDetails,
    },
    /// Tool calls of a thread were refused.
    DenyTool {
        /// The thread.
        thread: ThreadId,
        /// The tool.
        tool: String,
        /// What denied it.
        reason: String,
        /// How many calls.
        count: u32,
    },
    /// Something begins or ceases to hold for an attempt at a thread.
    SetCondition {
        /// The thread.
        thread: ThreadId,
        /// The attempt.
        generation: Generation,
        /// What.
        kind: ConditionKind,
        /// Whether it holds now.
        active: bool,
        /// Why.
        reason: String,
    },
    /// Usage of an attempt is written down in the middle of a turn.
    RecordUsage {
        /// The thread.
        thread: ThreadId,
        /// The attempt.
        generation: Generation,
        /// Usage of this attempt so far.
        usage: Usage,
    },
    /// An orchestrator that is due one gets its next turn by itself.
    AutoTurn {
        /// The thread.
        thread: ThreadId,
        /// What it is told.
        input: ContentRef,
    },
    /// Time has passed: whatever has a deadline is looked at.
    Tick,
}

/// What an operator wants to be otherwise about a session; what is not given stays as it is.
#[derive(Clone, Debug, Default)]
pub struct SettingsUpdate {
    /// Everything but the limits; those in it do not count.
    pub change: SettingsChange,
    /// The limits.
    pub limits: LimitsChange,
}

/// A spawn with everything that was decided about it outside.
#[derive(Clone, Debug)]
pub struct Spawn {
    /// Who spawns.
    pub caller: Caller,
    /// The new thread's id.
    pub id: ThreadId,
    /// What the spawn fixes. Depth and first status are decided anew at the commit; the values here do not count.
    pub spawned: Spawned,
    /// What the caller takes from the child's tools, and from those of everyone below it.
    pub narrowing: Option<tool_policy::Layer>,
    /// The role's own layers, from which the child's rights are computed.
    pub role_layers: Arc<[tool_policy::Layer]>,
    /// What the role lets its children hold.
    pub grant_list: Vec<String>,
    /// What to do when no slot is free.
    pub on_limit: OnLimit,
    /// The id of the approval, should it need one.
    pub approval: ApprovalId,
}

/// A turn with its prompt, ready to be sent.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// The thread.
    pub thread: ThreadId,
    /// The runner that gets it.
    pub runner: RunnerId,
    /// The attempt.
    pub generation: Generation,
    /// The inputs that the turn consumes.
    pub inputs: Vec<InputNumber>,
    /// The blocks of the effective prompt; none where none are kept.
    pub blocks: Vec<BlockRef>,
    /// SHA-256 of the effective prompt; `None` where none is kept.
    pub whole: Option<Digest>,
    /// How much of it is sent.
    pub extent: PromptExtent,
    /// The newest letter that the prompt shows; zero if it shows none.
    pub mail_up_to: Sequence,
}

/// What a runner saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// A turn began.
    TurnStarted {
        /// The turn.
        turn: Turn,
    },
    /// A turn is over.
    TurnEnded {
        /// The turn.
        turn: Turn,
        /// How.
        outcome: Settled,
        /// Usage of this attempt up to here.
        usage: Usage,
        /// What it brought forth.
        product: Product,
        /// Whether the runner interrupted it because the runner itself was stopped.
        runner_stopped: bool,
    },
    /// Input reached the agent within a running turn.
    InputDelivered {
        /// The input.
        number: InputNumber,
        /// The turn.
        turn: Turn,
    },
    /// The program has ended.
    Stopped {
        /// How, for people.
        detail: String,
    },
    /// Something that the thread made.
    Artifact(Artifact),
    /// The program cannot close a gap of the policy.
    PolicyGap(String),
    /// The program does not remember the earlier conversation.
    ContextLost(String),
}
