//! Detection of silent threads. A running thread without activity for the time of the session's rule is stalled. Its
//! next message ends the stall; the receiver of the message records that.

use tokio::time::Instant;

use super::hub::RunnerHub;
use crate::{
    domain::{
        command::Command,
        event::ConditionKind,
        ids::ThreadId,
        rules::stall,
        state::{session::Session, thread::Thread},
        status::Status,
    },
    engine::feed::Commands,
};

/// When to check the running threads of a session for silence. Not scheduled while no thread runs.
#[derive(Debug, Default)]
pub(super) struct SilenceCheck {
    at: Option<Instant>,
}

impl SilenceCheck {
    /// Returns the time of the next check.
    pub const fn at(&self) -> Option<Instant> {
        self.at
    }

    /// Schedules a check when a turn runs. Threads that start later cannot be due before it.
    pub fn schedule(&mut self, session: &Session) {
        let silence = session.settings.stall.silence;
        if self.at.is_none() && !silence.is_zero() {
            self.at = Instant::now().checked_add(silence);
        }
    }

    /// Checks all running threads if the check is due. Schedules the next check at the earliest time when a thread
    /// could have been silent for too long.
    pub fn check(&mut self, session: &Session, hub: &RunnerHub, commands: &mut Commands) {
        let now = Instant::now();
        if self.at.is_none_or(|at| now < at) {
            return;
        }
        self.at = None;
        let silence = session.settings.stall.silence;
        let candidates: Vec<ThreadId> = session.holding().iter().copied().chain(session.root_id()).collect();
        for id in candidates {
            let Some(thread) = session.thread(id).filter(|thread| thread.status == Status::Running) else {
                continue;
            };
            let again = match silent_since(session, thread, hub) {
                Some(since) if now.saturating_duration_since(since) >= silence => {
                    commands.push(Command::SetCondition {
                        thread: id,
                        generation: thread.generation,
                        kind: ConditionKind::Stalled,
                        active: true,
                        reason: format!("no activity for {silence:?}"),
                    });
                    now
                }
                Some(since) => since,
                None => now,
            };
            self.at = self.at.into_iter().chain(again.checked_add(silence)).min();
        }
    }
}

/// Returns since when a thread is silent, if it can stall and is not marked as stalled.
fn silent_since(session: &Session, thread: &Thread, hub: &RunnerHub) -> Option<Instant> {
    let runner = thread.holder()?;
    let is_known = thread.conditions.contains_key(&ConditionKind::Stalled);
    if is_known || !stall::is_report_expected(session, thread) {
        return None;
    }
    hub.last_activity(runner, thread.id, thread.generation)
}
