//! What a thread's state owes the world outside. Owed work is a level, not a command: it is a function of the state, and the
//! event that shows it done discharges it. So after a restart the same function says what is still owed.

use super::{
    ids::{Generation, InputNumber, RunnerId, ThreadId, Turn},
    session::Session,
    settings::ClosePolicy,
    status::StatusKind,
    thread::{LatestTurn, Thread},
};

/// Work that is owed for one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owed {
    /// A turn is to be handed to a runner: the thread is PENDING_INIT and its next turn was not dispatched yet.
    Turn {
        /// The runner that was handed the present attempt before, and may still hold its program.
        last_runner: Option<RunnerId>,
    },
    /// The dispatched turn has not started: the runner may not have heard of it.
    Start {
        /// The runner that it was given to.
        runner: RunnerId,
        /// The turn.
        turn: Turn,
    },
    /// The running turn is to be stopped.
    Interrupt {
        /// The runner.
        runner: RunnerId,
        /// The turn.
        turn: Turn,
    },
    /// The running turn is to get what waits for the thread, up to an input that was sent to steer it.
    Steer {
        /// The runner.
        runner: RunnerId,
        /// The turn.
        turn: Turn,
        /// The last input that it is to get.
        up_to: InputNumber,
    },
    /// The runner is to stop the program, so that the thread can be closed.
    Stop {
        /// The runner.
        runner: RunnerId,
        /// The attempt.
        generation: Generation,
        /// How.
        policy: ClosePolicy,
    },
    /// Nobody executes the thread: it is to be closed at once.
    Close,
}

/// What is owed for a thread now, if anything.
#[must_use]
pub fn owed(session: &Session, id: ThreadId) -> Option<Owed> {
    let thread = session.thread(id)?;
    if session.is_closing(id) {
        let asked_for = session.fences_over(id).filter_map(|fence| fence.close_policy).max();
        return owed_under_fence(thread, asked_for.unwrap_or(thread.spawned.close_policy));
    }
    match thread.status.kind() {
        StatusKind::PendingInit => match (&thread.turn, thread.holder()) {
            (LatestTurn::Dispatched { turn, .. }, Some(runner)) => Some(Owed::Start {
                runner: runner.clone(),
                turn: *turn,
            }),
            (_, last_runner) if !session.paused => Some(Owed::Turn {
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

fn interrupt(thread: &Thread) -> Option<Owed> {
    Some(Owed::Interrupt {
        turn: thread.interrupt.as_ref()?.turn,
        runner: thread.runner.clone()?,
    })
}

/// What came before it goes along: a thread reads its inputs in the order in which they were sent.
fn steer(thread: &Thread) -> Option<Owed> {
    Some(Owed::Steer {
        up_to: thread.pending_inputs.iter().rfind(|input| input.steers)?.number,
        turn: thread.turn.number(),
        runner: thread.runner.clone()?,
    })
}

fn owed_under_fence(thread: &Thread, policy: ClosePolicy) -> Option<Owed> {
    if thread.open_children > 0 || !thread.status.kind().is_open() {
        return None;
    }
    Some(match thread.holder() {
        Some(runner) => Owed::Stop {
            runner: runner.clone(),
            generation: thread.generation,
            policy,
        },
        None => Owed::Close,
    })
}
