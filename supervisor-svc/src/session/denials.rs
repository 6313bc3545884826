//! Refused tool calls on their way to the log. The first of a kind is written at once, its repetitions are counted and
//! written together, so that an agent that insists fills neither the log nor its session's mailbox.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{handle::Handle, message::Origin};
use crate::domain::{command::Command, content::truncate, ids::ThreadId};

/// How long repetitions are counted before they are written.
const WINDOW: Duration = Duration::from_secs(30);
/// How many kinds of refusals of one thread are counted at once. An agent names its tools as it likes, so what comes beyond
/// that is one kind more.
const MAX_KINDS: usize = 32;
/// What that one is called.
const OTHERS: (&str, &str) = ("other tools", "too many different refusals to name each");
/// The most bytes of a tool's name, and of a reason, that are written down.
const MAX_TEXT_BYTES: usize = 512;

/// What makes two refusals of a thread one kind: the tool and the reason.
type Kind = (String, String);

/// The refusals that are being counted. Cheap to clone; every clone is the same.
#[derive(Clone, Debug, Default)]
pub struct Denials {
    // Held for one look-up or one change, never across an await.
    counting: Arc<Mutex<HashMap<ThreadId, HashMap<Kind, u32>>>>,
}

impl Denials {
    /// Notes that a call of `tool` was refused.
    pub fn note(&self, session: &Handle, thread: ThreadId, tool: &str, reason: &str) {
        let Some(kind) = self.count(thread, tool, reason) else {
            return;
        };
        let (denials, session) = (self.clone(), session.clone());
        tokio::spawn(async move {
            write(&session, thread, &kind, 1).await;
            tokio::time::sleep(WINDOW).await;
            let repeated = denials.end(thread, &kind);
            if repeated > 0 {
                write(&session, thread, &kind, repeated).await;
            }
        });
    }

    /// Answers the kind of refusal if it is new; otherwise it is counted.
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

    /// Counts a kind no longer; answers how often it was repeated.
    fn end(&self, thread: ThreadId, kind: &Kind) -> u32 {
        let mut counting = self.lock();
        let Some(kinds) = counting.get_mut(&thread) else {
            return 0;
        };
        let repeated = kinds.remove(kind).unwrap_or_default();
        if kinds.is_empty() {
            counting.remove(&thread);
        }
        repeated
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadId, HashMap<Kind, u32>>> {
        // A panic in between leaves nothing worse than a count that is missing.
        self.counting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn write(session: &Handle, thread: ThreadId, (tool, reason): &Kind, count: u32) {
    let command = Command::DenyTool {
        thread,
        tool: tool.clone(),
        reason: reason.clone(),
        count,
    };
    if let Err(failure) = session.execute(command, Origin::service(), None, Vec::new()).await {
        tracing::debug!(%thread, tool, %failure, "a refused tool call was not recorded");
    }
}
