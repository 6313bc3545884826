//! One thread as its events made it.

use std::sync::Arc;

use imbl::{OrdMap, Vector};
use tool_policy::Policy;

use super::{
    content::ContentRef,
    event::{ConditionKind, Fence, Spawned},
    ids::{Digest, Generation, InputNumber, ReportSequence, RunnerId, Sequence, ThreadId, Turn},
    mailbox::Mailbox,
    settings::{Budget, Sandbox, Usage, WakePolicy},
    status::{Status, StatusKind},
    time::UnixMillis,
};

/// One agent at work or at rest.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// Its id.
    pub id: ThreadId,
    /// What its spawn fixed.
    pub spawned: Arc<Spawned>,
    /// The sequence of its spawn: the order of spawning.
    pub spawn_sequence: Sequence,
    /// When it was spawned.
    pub created: UnixMillis,
    /// Where it stands.
    pub status: Status,
    /// Since when.
    pub since: UnixMillis,
    /// The event that brought it there; its place in the queue while it is QUEUED.
    pub status_sequence: Sequence,
    /// The attempt at executing it.
    pub generation: Generation,
    /// The newest attempt in which a runner was handed a turn; older than the present one while nobody was.
    pub handed_out: Generation,
    /// Its note; empty: none.
    pub note: Arc<str>,
    /// Which tools it may use.
    pub effective: Policy,
    /// What its children may hold.
    pub grant: Policy,
    /// What it may change.
    pub sandbox: Sandbox,
    /// What it and its descendants may spend.
    pub budget: Budget,
    /// Its children in spawn order.
    pub children: Vector<ThreadId>,
    /// How many of them are open: none means that a fenced thread may close.
    pub open_children: u32,
    /// Its own fence; an ancestor's counts too, see [`Session::is_closing`](super::session::Session::is_closing).
    pub fence: Option<Arc<Fence>>,
    /// The runner that it was given to last; see [`Self::holder`].
    pub runner: Option<RunnerId>,
    /// Its latest turn.
    pub turn: LatestTurn,
    /// Input that no turn consumed yet, oldest first.
    pub pending_inputs: Vector<Arc<PendingInput>>,
    /// The number of the newest input.
    pub last_input: InputNumber,
    /// Whether its last turn ended with input waiting: it goes on as soon as nothing holds it back. Never while it is not
    /// settled.
    pub goes_on: bool,
    /// The stop of a turn that is owed.
    pub interrupt: Option<Interrupt>,
    /// The newest report of this attempt that is in the log.
    pub last_report: ReportSequence,
    /// What holds beside its status, with since and reason.
    pub conditions: OrdMap<ConditionKind, (UnixMillis, String)>,
    /// What this attempt spent. Time is that of ended turns, and of the running one up to [`Self::metered`].
    pub usage: Usage,
    /// Up to when the time of the turn that runs is in `usage`; means nothing while none runs.
    pub metered: UnixMillis,
    /// What earlier attempts spent.
    pub earlier_usage: Usage,
    /// What it and all its descendants spent, in all attempts.
    pub subtree_usage: Usage,
    /// Its mail that is not acknowledged yet.
    pub mail: Mailbox,
    /// The newest letter that the turn under way was shown; zero: none.
    pub mail_shown: Sequence,
    /// The newest letter that it acknowledged; zero: none.
    pub mail_acknowledged: Sequence,
    /// The newest letter that any turn was shown, or that was there when a turn was stopped before it was handed out; zero:
    /// none. Only a later letter wakes the thread, so a turn that failed is not tried again for ever.
    pub woken_up_to: Sequence,
    /// When it carried a fence of its own, oldest first, the latest few.
    pub fenced: Vec<FenceSpan>,
    /// What its latest turns brought forth, as long as it is the same.
    pub repeated: Repeated,
    /// When it was placed anew in the middle of a turn, the latest few.
    pub restarts: Vec<UnixMillis>,
    /// The W3C trace context of the call that it works on: of its spawn, or of the newest input since.
    pub traceparent: Option<Arc<str>>,
    /// When its last event was recorded.
    pub updated: UnixMillis,
    /// The sequence of its last event.
    pub sequence: Sequence,
}

/// How many restarts of a thread are remembered: no intensity allows more.
pub const MAX_RESTARTS: usize = 16;

/// How many of its own fences a thread remembers; each closing and resuming makes one.
pub const MAX_FENCE_SPANS: usize = 16;

/// From when to when a thread carried a fence: what came under it is told to nobody, however much later the log is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceSpan {
    /// The event that set it.
    pub from: Sequence,
    /// When that was; `None`: an earlier release did not keep it.
    pub since: Option<UnixMillis>,
    /// The event that closed the thread; `None` while it is not closed.
    pub until: Option<Sequence>,
}

/// A turn that is to be stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// The turn.
    pub turn: Turn,
    /// Why, for people; it becomes the reason of the turn's end.
    pub reason: String,
}

/// What a turn brought forth, to compare turns by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Product {
    /// SHA-256 of its output; `None`: unknown.
    pub output: Option<Digest>,
    /// SHA-256 of what it changed in its files; `None`: nothing, or unknown.
    pub diff: Option<Digest>,
}

/// What the latest turns have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repeated {
    /// The output.
    pub output: Option<Repetition>,
    /// The changes.
    pub diff: Option<Repetition>,
}

/// Turns in a row that ended with the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repetition {
    /// SHA-256 of what is the same.
    pub digest: Digest,
    /// How many turns.
    pub times: u32,
}

/// Where a thread's latest turn stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LatestTurn {
    /// No turn was handed to a runner yet.
    None,
    /// Handed to the runner of this attempt; not started.
    Dispatched {
        /// The turn.
        turn: Turn,
        /// The inputs that it consumes; they are pending again if the attempt is lost.
        inputs: Vector<Arc<PendingInput>>,
    },
    /// Running.
    Running {
        /// The turn.
        turn: Turn,
        /// The inputs that it was given; they are pending again if it is begun anew.
        inputs: Vector<Arc<PendingInput>>,
    },
    /// Over.
    Ended {
        /// The turn.
        turn: Turn,
    },
}

impl LatestTurn {
    /// Whether no runner was handed the turn that the thread waits for.
    #[must_use]
    pub const fn is_undispatched(&self) -> bool {
        matches!(self, Self::None | Self::Ended { .. })
    }

    /// What it was given, while it is under way.
    #[must_use]
    pub fn inputs(&self) -> Vector<Arc<PendingInput>> {
        match self {
            Self::Dispatched { inputs, .. } | Self::Running { inputs, .. } => inputs.clone(),
            Self::None | Self::Ended { .. } => Vector::new(),
        }
    }

    /// Its number; zero if there is none.
    #[must_use]
    pub const fn number(&self) -> Turn {
        match self {
            Self::None => Turn::ZERO,
            Self::Dispatched { turn, .. } | Self::Running { turn, .. } | Self::Ended { turn } => *turn,
        }
    }
}

/// Input that waits for a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingInput {
    /// Its number.
    pub number: InputNumber,
    /// The input itself, an encoded `Input`.
    pub content: ContentRef,
    /// Whether the running turn is to get it, if it can.
    pub steers: bool,
}

impl Thread {
    /// The turn that is under way, or that the thread waits for; the last one where it is settled.
    #[must_use]
    pub fn present_turn(&self) -> Turn {
        let waits = matches!(self.status, Status::Queued | Status::PendingInit) && self.turn.is_undispatched();
        if waits {
            self.turn.number().next()
        } else {
            self.turn.number()
        }
    }

    /// Whether an agent works on a turn now. A root that its client executes has no turns.
    #[must_use]
    pub const fn runs_turn(&self) -> bool {
        matches!(self.turn, LatestTurn::Running { .. })
    }

    /// Whether a runner was handed this turn and has not ended it.
    #[must_use]
    pub fn has_under_way(&self, turn: Turn) -> bool {
        !self.turn.is_undispatched() && self.turn.number() == turn
    }

    /// The oldest letter that no turn has shown yet, if the thread's wake policy lets it begin a turn from where it stands.
    #[must_use]
    pub fn woken_by(&self) -> Option<Sequence> {
        let kind = self.status.kind();
        let rests = match self.spawned.wake_policy {
            WakePolicy::None => false,
            WakePolicy::OnIdle => kind == StatusKind::Completed,
            WakePolicy::Always => kind.is_settled() && kind.is_open(),
        };
        if !rests || self.spawned.client_owned {
            return None;
        }
        self.mail.after(self.woken_up_to).next().map(|letter| letter.sequence)
    }

    /// The newest letter that it ever got and that still counts; zero: none.
    #[must_use]
    pub fn newest_letter(&self) -> Sequence {
        self.mail
            .newest()
            .map_or(self.mail_acknowledged, |newest| newest.max(self.mail_acknowledged))
    }

    /// Whether it carried a fence of its own when the event of that number had happened.
    #[must_use]
    pub fn was_fenced(&self, at: Sequence) -> bool {
        self.fenced
            .iter()
            .any(|span| span.from <= at && span.until.is_none_or(|until| at < until))
    }

    /// Since when it carries its own fence, where that is known.
    #[must_use]
    pub fn fenced_since(&self) -> Option<UnixMillis> {
        self.fence.as_ref()?;
        self.fenced.last()?.since
    }

    /// The runner that was handed the present attempt; `None` while nobody was.
    #[must_use]
    pub fn holder(&self) -> Option<&RunnerId> {
        self.runner.as_ref().filter(|_| self.handed_out == self.generation)
    }

    /// Whether that attempt is the present one, of that runner, and the thread open: only then may a program execute it.
    #[must_use]
    pub fn is_held_by(&self, runner: &RunnerId, generation: Generation) -> bool {
        self.holder() == Some(runner) && self.generation == generation && self.status.kind().is_open()
    }

    /// The attempt that begins when the thread is given to a runner that does not have it: a new one, unless nobody was
    /// handed the present one.
    #[must_use]
    pub fn next_attempt(&self) -> Generation {
        if self.holder().is_some() {
            self.generation.next()
        } else {
            self.generation
        }
    }

    /// Whether it was closed before its spawn was approved: nothing opens it again.
    #[must_use]
    pub const fn never_came_to_be(&self) -> bool {
        matches!(self.status, Status::Shutdown { before: None, .. })
    }

    /// Its usage in its lifetime: in all attempts. It never decreases.
    #[must_use]
    pub const fn total_usage(&self) -> Usage {
        self.usage.plus(self.earlier_usage)
    }

    /// A name for people: the alias, else the label, else the role with its persona.
    #[must_use]
    pub fn display_name(&self) -> String {
        let spawned = &self.spawned;
        if !spawned.alias.is_empty() {
            spawned.alias.clone()
        } else if !spawned.label.is_empty() {
            spawned.label.clone()
        } else if spawned.role.agent_name.is_empty() {
            spawned.role.agent_type.clone()
        } else {
            format!("{}: {}", spawned.role.agent_type, spawned.role.agent_name)
        }
    }
}
