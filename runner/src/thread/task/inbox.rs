//! The commands of the runner state to a thread. The start of a program may take minutes, but an order to end the
//! thread takes effect immediately.

use std::{collections::VecDeque, future::pending};

use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;
use troupe_proto::supervisor::v1::ClosePolicy;

use super::EndReason;
use crate::{
    thread::{COMMANDS, Command, Shutdown},
    timer::at,
};

/// Commands, and orders to end the thread.
pub(super) struct Inbox {
    commands: mpsc::Receiver<Command>,
    /// Fires when the thread is abandoned.
    abandoned: CancellationToken,
    /// Commands that arrived during the start of a program. They are handled after the start.
    waiting: VecDeque<Command>,
    /// The order to stop when the turn has ended, or at a deadline.
    finishing: Option<Finishing>,
}

struct Finishing {
    order: Shutdown,
    deadline: Instant,
}

impl Finishing {
    fn end_reason(self) -> EndReason {
        EndReason::Shutdown(Shutdown {
            grace: self.deadline.saturating_duration_since(Instant::now()),
            ..self.order
        })
    }
}

impl Inbox {
    pub(super) fn new(commands: mpsc::Receiver<Command>, abandoned: CancellationToken) -> Self {
        Self {
            commands,
            abandoned,
            waiting: VecDeque::new(),
            finishing: None,
        }
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.is_cancelled()
    }

    /// Returns the next command. `None`: the thread is abandoned. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Command> {
        if let Some(command) = self.waiting.pop_front() {
            return Some(command);
        }
        tokio::select! {
            command = self.commands.recv() => command,
            () = self.abandoned.cancelled() => None,
        }
    }

    /// Waits for an order to kill the program. Other commands are dropped, because the thread is ending. Cancel safe.
    pub(super) async fn killed(&mut self) {
        while let Some(command) = self.commands.recv().await {
            if matches!(command, Command::Shutdown(order) if order.policy == ClosePolicy::Kill) {
                return;
            }
        }
        pending::<()>().await;
    }

    /// Waits for a step of a program's start. If the thread must end first, the step is dropped. This kills everything
    /// that the step has started.
    pub(super) async fn unless_over<F: Future + Unpin>(&mut self, mut start: F) -> Result<F::Output, EndReason> {
        loop {
            let overdue_at = self.overdue_at();
            tokio::select! {
                started = &mut start => return Ok(started),
                () = self.abandoned.cancelled() => return Err(EndReason::Abandoned),
                command = self.commands.recv(), if self.waiting.len() < COMMANDS => match command {
                    // The turn for which the program is started may still run.
                    Some(Command::Shutdown(order)) if order.policy == ClosePolicy::FinishTurn => self.finish(order),
                    Some(Command::Shutdown(order)) => return Err(EndReason::Shutdown(order)),
                    Some(command) => self.waiting.push_back(command),
                    None => return Err(EndReason::Abandoned),
                },
                () = at(overdue_at) => {
                    if let Some(end_reason) = self.overdue() {
                        return Err(end_reason);
                    }
                }
            }
        }
    }

    /// Lets the thread finish its turn within its grace period.
    pub(super) fn finish(&mut self, order: Shutdown) {
        self.finishing = Some(Finishing {
            deadline: Instant::now() + order.grace,
            order,
        });
    }

    pub(super) const fn is_finishing(&self) -> bool {
        self.finishing.is_some()
    }

    /// Returns the deadline of a thread that finishes its turn.
    pub(super) fn overdue_at(&self) -> Option<Instant> {
        self.finishing.as_ref().map(|finishing| finishing.deadline)
    }

    /// Returns the end of a thread that did not finish its turn before the deadline.
    pub(super) fn overdue(&mut self) -> Option<EndReason> {
        let finishing = self.finishing.take_if(|finishing| finishing.deadline <= Instant::now());
        finishing.map(Finishing::end_reason)
    }

    /// Returns the end of a thread that finished its turn. The program receives the rest of the grace period.
    pub(super) fn finished(&mut self) -> Option<EndReason> {
        self.finishing.take().map(Finishing::end_reason)
    }
}
