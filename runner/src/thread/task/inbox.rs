//! What the stage tells a thread. A program may take minutes to start, and the thread is to end before that if it is
//! told to.

use std::{collections::VecDeque, future::pending};

use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;
use troupe_proto::supervisor::v1::ClosePolicy;

use super::Farewell;
use crate::{
    thread::{COMMANDS, Command, Shutdown},
    timer::at,
};

/// Commands, and the end of the thread.
pub(super) struct Inbox {
    commands: mpsc::Receiver<Command>,
    /// Fires when nobody wants the thread any more.
    abandoned: CancellationToken,
    /// Commands that came while a program was started. They are obeyed when that is done.
    waiting: VecDeque<Command>,
    /// The thread is to stop when its turn has ended, or at that time.
    finishing: Option<Finishing>,
}

struct Finishing {
    order: Shutdown,
    deadline: Instant,
}

impl Finishing {
    fn farewell(self) -> Farewell {
        Farewell::Shutdown(Shutdown {
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

    /// The next command; `None`: nobody wants the thread any more. Nothing is lost when the future is dropped.
    pub(super) async fn next(&mut self) -> Option<Command> {
        if let Some(command) = self.waiting.pop_front() {
            return Some(command);
        }
        tokio::select! {
            command = self.commands.recv() => command,
            () = self.abandoned.cancelled() => None,
        }
    }

    /// Fires with the order to kill; all else is passed over, since the thread is ending. Nothing is lost when the
    /// future is dropped.
    pub(super) async fn killed(&mut self) {
        while let Some(command) = self.commands.recv().await {
            if matches!(command, Command::Shutdown(order) if order.policy == ClosePolicy::Kill) {
                return;
            }
        }
        pending::<()>().await;
    }

    /// Waits for what belongs to the start of a program, unless the thread is to end first. Then it is dropped, and
    /// what it has started is killed with it.
    pub(super) async fn unless_over<F: Future + Unpin>(&mut self, mut start: F) -> Result<F::Output, Farewell> {
        loop {
            let overdue_at = self.overdue_at();
            tokio::select! {
                started = &mut start => return Ok(started),
                () = self.abandoned.cancelled() => return Err(Farewell::Abandoned),
                command = self.commands.recv(), if self.waiting.len() < COMMANDS => match command {
                    // The turn for which it is started may still run.
                    Some(Command::Shutdown(order)) if order.policy == ClosePolicy::FinishTurn => self.finish(order),
                    Some(Command::Shutdown(order)) => return Err(Farewell::Shutdown(order)),
                    Some(command) => self.waiting.push_back(command),
                    None => return Err(Farewell::Abandoned),
                },
                () = at(overdue_at) => {
                    if let Some(farewell) = self.overdue() {
                        return Err(farewell);
                    }
                }
            }
        }
    }

    /// Lets the thread finish its turn within its grace.
    pub(super) fn finish(&mut self, order: Shutdown) {
        self.finishing = Some(Finishing {
            deadline: Instant::now() + order.grace,
            order,
        });
    }

    pub(super) const fn is_finishing(&self) -> bool {
        self.finishing.is_some()
    }

    /// When a thread that was let finish its turn leaves in any case.
    pub(super) fn overdue_at(&self) -> Option<Instant> {
        self.finishing.as_ref().map(|finishing| finishing.deadline)
    }

    /// The end of a thread that was let finish its turn and has not done so in time.
    pub(super) fn overdue(&mut self) -> Option<Farewell> {
        let finishing = self.finishing.take_if(|finishing| finishing.deadline <= Instant::now());
        finishing.map(Finishing::farewell)
    }

    /// The end of a thread that was let finish its turn and has done so; what is left of its grace is for the program.
    pub(super) fn finished(&mut self) -> Option<Farewell> {
        self.finishing.take().map(Finishing::farewell)
    }
}
