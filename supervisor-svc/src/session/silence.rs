//! Listening to running threads: one of which nothing was heard for as long as the session's rule has it counts as stalled.
//! Its next word ends that; whoever takes the word says so.

use tokio::time::Instant;

use super::actor::Actor;
use crate::domain::{command::Command, event::ConditionKind, ids::ThreadId, stall, status::Status, thread::Thread};

impl Actor {
    /// A turn runs: sooner or later somebody must listen. Whoever begins after this is silent for less time when it is due.
    pub(super) fn listen_later(&mut self) {
        let silence = self.session.settings.stall.silence;
        if self.listen_at.is_none() && !silence.is_zero() {
            self.listen_at = Instant::now().checked_add(silence);
        }
    }

    /// Listens to every running thread if it is time to, and says when to listen again: when the first of them could have
    /// been silent for too long.
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

    /// Since when nothing was heard of a thread, if that could be a sign and is not known yet.
    fn silent_since(&self, thread: &Thread) -> Option<Instant> {
        let runner = thread.holder()?;
        let is_known = thread.conditions.contains_key(&ConditionKind::Stalled);
        if is_known || !stall::ought_to_be_heard(&self.session, thread) {
            return None;
        }
        self.context.runners.last_word(runner, thread.id, thread.generation)
    }
}
