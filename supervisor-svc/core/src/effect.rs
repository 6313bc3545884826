//! Pending effects of a thread's state. A pending effect is a function of the state, and the event that records its
//! completion clears the effect. After a restart, the same function returns the effects that are still pending.

use crate::{
    ids::{Generation, InputNumber, RunnerId, ThreadId, Turn},
    settings::ClosePolicy,
    state::{
        session::Session,
        thread::{LatestTurn, Thread},
    },
    status::StatusKind,
};

/// A pending effect of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PendingEffect {
    /// Dispatch a turn to a runner: the thread is PENDING_INIT and its next turn was not dispatched yet.
    Turn {
        /// The runner that received this attempt before, and may still hold its program.
        last_runner: Option<RunnerId>,
    },
    /// Start the dispatched turn, because the runner may not have received it.
    Start {
        /// The runner of the attempt.
        runner: RunnerId,
        /// The turn.
        turn: Turn,
    },
    /// Stop the running turn.
    Interrupt {
        /// The runner.
        runner: RunnerId,
        /// The turn.
        turn: Turn,
    },
    /// Deliver pending input to the running turn, up to the last input that was sent to steer the turn.
    Steer {
        /// The runner.
        runner: RunnerId,
        /// The turn.
        turn: Turn,
        /// The last input to deliver.
        up_to: InputNumber,
    },
    /// Stop the program on its runner, so that the thread can be closed.
    Stop {
        /// The runner.
        runner: RunnerId,
        /// The attempt.
        generation: Generation,
        /// How the turn is stopped.
        policy: ClosePolicy,
    },
    /// Close the thread immediately, because no runner executes it.
    Close,
}

/// Returns the pending effect of a thread, if any.
#[must_use]
pub fn pending_effect(session: &Session, id: ThreadId) -> Option<PendingEffect> {
    let thread = session.thread(id)?;
    if session.is_closing(id) {
        let asked_for = session.fences_over(id).filter_map(|fence| fence.close_policy).max();
        return pending_effect_under_fence(thread, asked_for.unwrap_or(thread.spawned.close_policy));
    }
    match thread.status.kind() {
        StatusKind::PendingInit => match (&thread.turn, thread.holder()) {
            (LatestTurn::Dispatched { turn, .. }, Some(runner)) => Some(PendingEffect::Start {
                runner: runner.clone(),
                turn: *turn,
            }),
            (_, last_runner) if !session.paused => Some(PendingEffect::Turn {
                last_runner: last_runner.cloned(),
            }),
            _ => None,
        },
        StatusKind::Running => interrupt(thread).or_else(|| steer(thread)),
        StatusKind::Queued
        | StatusKind::AwaitingApproval
        | StatusKind::Completed
        | StatusKind::Errored
        | StatusKind::Interrupted
        | StatusKind::Shutdown => None,
    }
}

fn interrupt(thread: &Thread) -> Option<PendingEffect> {
    Some(PendingEffect::Interrupt {
        turn: thread.interrupt.as_ref()?.turn,
        runner: thread.runner.clone()?,
    })
}

/// Returns the steering input to deliver. Earlier input is included, because a thread receives its inputs in the order
/// in which they were sent.
fn steer(thread: &Thread) -> Option<PendingEffect> {
    Some(PendingEffect::Steer {
        up_to: thread.pending_inputs.iter().rfind(|input| input.steers)?.number,
        turn: thread.turn.number(),
        runner: thread.runner.clone()?,
    })
}

fn pending_effect_under_fence(thread: &Thread, policy: ClosePolicy) -> Option<PendingEffect> {
    if thread.open_children > 0 || !thread.status.kind().is_open() {
        return None;
    }
    Some(match thread.holder() {
        Some(runner) => PendingEffect::Stop {
            runner: runner.clone(),
            generation: thread.generation,
            policy,
        },
        None => PendingEffect::Close,
    })
}
