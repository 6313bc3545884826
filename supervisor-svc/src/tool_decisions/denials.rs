//! Records refused tool calls. The first call of a kind is written at once. Its repetitions are counted and written
//! together, so that an agent that repeats a call fills neither the log nor its session's mailbox. Calls that cannot be
//! written yet, because the session's agents cause too many events, stay counted.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    domain::{command::Command, content::truncate, ids::ThreadId, rejection::Rejection},
    engine::{Failure, Handle, Origin},
};

/// The time for which repetitions are counted before they are written.
const WINDOW: Duration = Duration::from_secs(30);
/// Maximum number of kinds of refusals that are counted per thread. Agents can invent tool names, so further kinds are
/// counted together.
const MAX_KINDS: usize = 32;
/// The name and reason under which further kinds are counted.
const OTHERS: (&str, &str) = ("other tools", "too many different refusals to name each");
/// Maximum length of a tool's name and of a reason, in bytes. Longer texts are cut.
const MAX_TEXT_BYTES: usize = 512;

/// The kind of a refusal: its tool and its reason.
type Kind = (String, String);

/// The refusals that are being counted. Cheap to clone; all clones share the same state.
#[derive(Clone, Debug, Default)]
pub struct Denials {
    // Held for one look-up or one change, never across an await.
    counting: Arc<Mutex<HashMap<ThreadId, HashMap<Kind, u32>>>>,
}

impl Denials {
    /// Records that a call of `tool` was refused.
    pub fn note(&self, session: &Handle, thread: ThreadId, tool: &str, reason: &str) {
        let Some(kind) = self.count(thread, tool, reason) else {
            return;
        };
        let (denials, session) = (self.clone(), session.clone());
        tokio::spawn(async move {
            let mut count = 1;
            while count > 0 {
                let is_written = write(&session, thread, &kind, count).await;
                tokio::time::sleep(WINDOW).await;
                count = denials.next(thread, &kind, if is_written { 0 } else { count });
            }
        });
    }

    /// Returns the kind of refusal if it is new; otherwise counts it and returns `None`.
    fn count(&self, thread: ThreadId, tool: &str, reason: &str) -> Option<Kind> {
        let mut counting = self.lock();
        let kinds = counting.entry(thread).or_default();
        let mut kind = (
            truncate(tool, MAX_TEXT_BYTES).to_owned(),
            truncate(reason, MAX_TEXT_BYTES).to_owned(),
        );
        if kinds.len() >= MAX_KINDS && !kinds.contains_key(&kind) {
            kind = (OTHERS.0.to_owned(), OTHERS.1.to_owned());
        }
        if let Some(count) = kinds.get_mut(&kind) {
            *count = count.saturating_add(1);
            return None;
        }
        kinds.insert(kind.clone(), 0);
        Some(kind)
    }

    /// Returns the number of calls to write: the unwritten ones and those repeated since. Without such
    /// calls, the kind is no longer counted.
    fn next(&self, thread: ThreadId, kind: &Kind, unwritten: u32) -> u32 {
        let mut counting = self.lock();
        let Some(kinds) = counting.get_mut(&thread) else {
            return unwritten;
        };
        let repeated = kinds.get_mut(kind).map(std::mem::take).unwrap_or_default();
        let count = unwritten.saturating_add(repeated);
        if count == 0 {
            kinds.remove(kind);
            if kinds.is_empty() {
                counting.remove(&thread);
            }
        }
        count
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadId, HashMap<Kind, u32>>> {
        // A panic while the lock is held loses at most one count.
        self.counting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes refused calls. Returns false if they must be written again.
async fn write(session: &Handle, thread: ThreadId, (tool, reason): &Kind, count: u32) -> bool {
    let command = Command::DenyTool {
        thread,
        tool: tool.clone(),
        reason: reason.clone(),
        count,
    };
    match session.execute(command, Origin::service(), None, Vec::new()).await {
        Ok(_) => true,
        Err(Failure::Refused(Rejection::RateLimited { .. })) => false,
        Err(failure) => {
            tracing::debug!(%thread, tool, %failure, "a refused tool call was not recorded");
            true
        }
    }
}
