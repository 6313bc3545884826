//! Detection of silent threads. A running thread without activity for the time of the session's rule is stalled. Its
//! next message ends the stall; the receiver of the message records that.

use tokio::time::Instant;

use crate::{domain::{command::Command, event::ConditionKind, ids::ThreadId, rules::stall, state::thread::Thread, status::Status}, engine::actor::Actor};

impl Actor {
    /// Schedules a silence check when a turn runs. Threads that start later cannot be due before it.
    pub(super) fn listen_later(&mut self) {
        let silence = self.session.settings.stall.silence;
        if self.listen_at.is_none() && !silence.is_zero() {
            self.listen_at = Instant::now().checked_add(silence);
        }
    }

    /// Checks all running threads if the check is due. Schedules the next check at the earliest time when a thread
    /// could have been silent for too long.
    pub(super) fn listen(&mut self) {
        let now = Instant::now();
        if self.listen_at.is_none_or(|at| now < at) {
            return;
        }
        self.listen_at = None;
        let silence = self.session.settings.stall.silence;
        let candidates: Vec<ThreadId> = self
            .session
            .holding()
            .iter()
            .copied()
            .chain(self.session.root_id())
            .collect();
        for id in candidates {
            let Some(thread) = self
                .session
                .thread(id)
                .filter(|thread| thread.status == Status::Running)
            else {
                continue;
            };
            let again = match self.silent_since(thread) {
                Some(since) if now.saturating_duration_since(since) >= silence => {
                    self.own.push_back(Command::SetCondition {
                        thread: id,
                        generation: thread.generation,
                        kind: ConditionKind::Stalled,
                        active: true,
                        reason: format!("nothing was heard of it for {silence:?}"),
                    });
                    now
                }
                Some(since) => since,
                None => now,
            };
            let again = again.checked_add(silence);
            self.listen_at = self.listen_at.into_iter().chain(again).min();
        }
    }

    /// Returns since when a thread is silent, if it can stall and is not known to be stalled.
    fn silent_since(&self, thread: &Thread) -> Option<Instant> {
        let runner = thread.holder()?;
        let is_known = thread.conditions.contains_key(&ConditionKind::Stalled);
        if is_known || !stall::is_report_expected(&self.session, thread) {
            return None;
        }
        self.context.runners.last_word(runner, thread.id, thread.generation)
    }
}
