//! The state of one thread, folded from its events.

use std::sync::Arc;

use imbl::{OrdMap, Vector};
use tool_policy::Policy;

use crate::{
    content::ContentRef,
    event::{ConditionKind, Fence, Spawned},
    ids::{Digest, Generation, InputNumber, ReportSequence, RunnerId, Sequence, ThreadId, Turn},
    resource::Resource,
    settings::{Budget, Sandbox, Usage, WakePolicy},
    state::mailbox::Mailbox,
    status::{Status, StatusKind},
    time::UnixMillis,
};

/// One agent, active or passive.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// Its id.
    pub id: ThreadId,
    /// The properties that its spawn fixed.
    pub spawned: Arc<Spawned>,
    /// The sequence of its spawn event, which defines the spawn order.
    pub spawn_sequence: Sequence,
    /// When it was spawned.
    pub created: UnixMillis,
    /// The current status.
    pub status: Status,
    /// The time of the last status change.
    pub since: UnixMillis,
    /// The event that set the status. Defines the position in the queue while the thread is QUEUED.
    pub status_sequence: Sequence,
    /// The current attempt.
    pub generation: Generation,
    /// The newest generation in which a turn was dispatched. Older than the current generation until a turn of the
    /// current generation is dispatched.
    pub dispatched_generation: Generation,
    /// The note. Empty means no note.
    pub note: Arc<str>,
    /// The effective tool policy.
    pub effective: Policy,
    /// The maximum permissions of its children.
    pub grant: Policy,
    /// The sandbox in which the agent runs.
    pub sandbox: Sandbox,
    /// The budget of the thread and its descendants.
    pub budget: Budget,
    /// Its children in spawn order.
    pub children: Vector<ThreadId>,
    /// The number of open children. A fenced thread can close when this number is zero.
    pub open_children: u32,
    /// The thread's own fence. An ancestor's fence applies too, see
    /// [`Session::is_closing`](super::session::Session::is_closing).
    pub fence: Option<Arc<Fence>>,
    /// The runner of the last placement. See [`Self::holder`].
    pub runner: Option<RunnerId>,
    /// Its latest turn.
    pub turn: LatestTurn,
    /// Input that no turn has consumed yet, oldest first.
    pub pending_inputs: Vector<Arc<PendingInput>>,
    /// The number of the newest input.
    pub last_input: InputNumber,
    /// The result that a dispatched input asked for and that was not reported yet.
    pub result_request: Option<Arc<ResultRequest>>,
    /// The result that was reported last. The dispatch of an input with a result schema removes it.
    pub result: Option<Arc<ThreadResult>>,
    /// Whether the end of the thread's group item was recorded.
    pub item_has_ended: bool,
    /// Whether the last turn ended with queued input. The next turn then starts as soon as nothing prevents it. Only
    /// set while the thread is settled.
    pub continues: bool,
    /// Whether the pending turn has the inputs of an earlier turn whose attempt ended before the turn did.
    pub repeats_turn: bool,
    /// The pending stop request of a turn.
    pub interrupt: Option<Interrupt>,
    /// The newest recorded report of this attempt.
    pub last_report: ReportSequence,
    /// The active conditions, with start time and reason.
    pub conditions: OrdMap<ConditionKind, (UnixMillis, String)>,
    /// The usage of this attempt. Time includes ended turns, and the running turn up to [`Self::metered`].
    pub usage: Usage,
    /// The time up to which `usage` includes the running turn. Meaningless while no turn runs.
    pub metered: UnixMillis,
    /// The usage of earlier attempts.
    pub earlier_usage: Usage,
    /// The usage of the thread and all its descendants, in all attempts.
    pub subtree_usage: Usage,
    /// The unacknowledged mail.
    pub mail: Mailbox,
    /// The newest letter in the prompt of the turn in flight. Zero means none.
    pub mail_shown: Sequence,
    /// The newest acknowledged letter. Zero means none.
    pub mail_acknowledged: Sequence,
    /// The newest letter that was part of any turn's prompt, or that was present when an undispatched turn was stopped.
    /// Zero means none. Only a later letter wakes the thread, so a failed turn is not retried forever.
    pub woken_up_to: Sequence,
    /// The latest periods in which the thread had its own fence, oldest first.
    pub fenced: Vec<FenceSpan>,
    /// The digests that the latest turns have in common.
    pub repeated: Repeated,
    /// The times of the latest restarts in the middle of a turn.
    pub restarts: Vec<UnixMillis>,
    /// The W3C trace context of the current call: the spawn, or the newest input since.
    pub traceparent: Option<Arc<str>>,
    /// When its last event was recorded.
    pub updated: UnixMillis,
    /// The sequence of its last event.
    pub sequence: Sequence,
}

/// Number of restarts that a thread stores. No configured intensity is higher.
pub const MAX_RESTARTS: usize = 16;

/// Number of own fences that a thread stores. Each close and resume adds one.
pub const MAX_FENCE_SPANS: usize = 16;

/// The period in which a thread had its own fence. Outcomes below a fence are never delivered, no matter when the log
/// is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceSpan {
    /// The event that set the fence.
    pub from: Sequence,
    /// The time of that event.
    pub since: UnixMillis,
    /// The event that closed the thread; `None` while it is not closed.
    pub until: Option<Sequence>,
}

/// A request to stop a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// The turn.
    pub turn: Turn,
    /// A human-readable reason. It becomes the reason of the turn's outcome.
    pub reason: String,
}

/// The runs of equal turns at the end of the thread's history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repeated {
    /// The output.
    pub output: Option<Repetition>,
    /// The changes.
    pub diff: Option<Repetition>,
}

/// A run of turns with the same digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repetition {
    /// The common SHA-256 digest.
    pub digest: Digest,
    /// The number of turns.
    pub times: u32,
}

/// The state of a thread's latest turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LatestTurn {
    /// No turn was dispatched yet.
    None,
    /// Dispatched to the runner of this attempt, but not started.
    Dispatched {
        /// The turn.
        turn: Turn,
        /// The inputs that the turn consumes. They are pending again if the attempt is lost.
        inputs: Vector<Arc<PendingInput>>,
    },
    /// Running.
    Running {
        /// The turn.
        turn: Turn,
        /// The inputs that the turn received. They are pending again if the turn is restarted.
        inputs: Vector<Arc<PendingInput>>,
    },
    /// Ended.
    Ended {
        /// The turn.
        turn: Turn,
    },
}

impl LatestTurn {
    /// Returns whether the thread's pending turn was not dispatched yet.
    #[must_use]
    pub const fn awaits_dispatch(&self) -> bool {
        matches!(self, Self::None | Self::Ended { .. })
    }

    /// Returns the inputs of the turn in flight.
    #[must_use]
    pub fn inputs(&self) -> Vector<Arc<PendingInput>> {
        match self {
            Self::Dispatched { inputs, .. } | Self::Running { inputs, .. } => inputs.clone(),
            Self::None | Self::Ended { .. } => Vector::new(),
        }
    }

    /// Returns the number of the turn. Zero if no turn exists.
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
    /// The encoded `Input`.
    pub content: ContentRef,
    /// Whether the input is delivered to the running turn, if the program supports it.
    pub steers: bool,
    /// The number of repair turns if the input has a result schema, otherwise `None`.
    pub result_repairs: Option<u32>,
}

/// The result that a thread still has to report. It stays requested over turns that fail, that are interrupted or that
/// end with a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultRequest {
    /// The encoded `Input` that contains the schema.
    pub input: ContentRef,
    /// The number of repair turns that remain.
    pub repairs_left: u32,
}

/// The result that a thread reported last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadResult {
    /// The turn.
    pub turn: Turn,
    /// The JSON document.
    pub content: ContentRef,
}

impl Thread {
    /// Returns the turn in flight, or the turn that the thread waits for. For a settled thread, returns the last turn.
    #[must_use]
    pub fn present_turn(&self) -> Turn {
        let waits = matches!(self.status, Status::Queued | Status::PendingInit) && self.turn.awaits_dispatch();
        if waits {
            self.turn.number().next()
        } else {
            self.turn.number()
        }
    }

    /// Returns whether the thread's item has ended, but that end is not recorded yet. An item ends when its thread is
    /// closed, or settled without further input.
    #[must_use]
    pub fn has_ended_item(&self) -> bool {
        let kind = self.status.kind();
        let is_over = kind == StatusKind::Shutdown || (kind.is_settled() && !self.continues);
        self.spawned.item.is_some() && !self.item_has_ended && is_over
    }

    /// Returns whether an agent is working on a turn. A root that the session's client executes has no turns.
    #[must_use]
    pub const fn runs_turn(&self) -> bool {
        matches!(self.turn, LatestTurn::Running { .. })
    }

    /// Returns whether this turn was dispatched and has not ended.
    #[must_use]
    pub fn has_under_way(&self, turn: Turn) -> bool {
        !self.turn.awaits_dispatch() && self.turn.number() == turn
    }

    /// Returns the oldest letter that was not part of any turn's prompt, if the wake policy lets it start a turn in the
    /// current status.
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

    /// Returns the newest letter in the mailbox, or the newest acknowledged letter if that letter is newer. Zero means
    /// none.
    #[must_use]
    pub fn newest_letter(&self) -> Sequence {
        self.mail
            .newest()
            .map_or(self.mail_acknowledged, |newest| newest.max(self.mail_acknowledged))
    }

    /// Returns whether the thread had its own fence after the event with that number.
    #[must_use]
    pub fn was_fenced(&self, at: Sequence) -> bool {
        self.fenced
            .iter()
            .any(|span| span.from <= at && span.until.is_none_or(|until| at < until))
    }

    /// Returns the start time of the thread's own fence.
    #[must_use]
    pub fn fenced_since(&self) -> Option<UnixMillis> {
        self.fence.as_ref()?;
        self.fenced.last().map(|span| span.since)
    }

    /// Returns the runner of the current attempt. `None` until a turn of the attempt is dispatched.
    #[must_use]
    pub fn holder(&self) -> Option<&RunnerId> {
        self.runner
            .as_ref()
            .filter(|_| self.dispatched_generation == self.generation)
    }

    /// Returns whether the generation is current, the runner holds it, and the thread is open. Only then may a program
    /// execute the thread.
    #[must_use]
    pub fn is_held_by(&self, runner: &RunnerId, generation: Generation) -> bool {
        self.holder() == Some(runner) && self.generation == generation && self.status.kind().is_open()
    }

    /// Returns the generation for a placement on a runner that does not hold the thread. It is the next generation, or
    /// the current one if no runner received it yet.
    #[must_use]
    pub fn next_attempt(&self) -> Generation {
        if self.holder().is_some() {
            self.generation.next()
        } else {
            self.generation
        }
    }

    /// Returns whether the thread was closed before its spawn was approved. Such a thread cannot be resumed.
    #[must_use]
    pub const fn was_never_approved(&self) -> bool {
        matches!(self.status, Status::Shutdown { before: None, .. })
    }

    /// Returns the usage of all attempts. Only the cost and the unpriced tokens may decrease.
    #[must_use]
    pub const fn total_usage(&self) -> Usage {
        self.usage.plus(self.earlier_usage)
    }

    /// Returns the first resource of the thread's own budget that is exhausted.
    #[must_use]
    pub fn exhausted_resource(&self) -> Option<Resource> {
        Resource::reached(&self.budget, &self.subtree_usage)
    }

    /// Returns a display name: the alias, otherwise the label, otherwise the role with its persona.
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
