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
/// How many kinds of refusals are counted at once; beyond that only those that are counted already are.
const MAX_KINDS: usize = 4_096;
/// The most bytes of a tool's name, and of a reason, that are written down.
const MAX_TEXT_BYTES: usize = 512;

/// What makes two refusals one kind.
type Kind = (ThreadId, String, String);

/// The refusals that are being counted. Cheap to clone; every clone is the same.
#[derive(Clone, Debug, Default)]
pub struct Denials {
    // Held for one look-up or one change, never across an await.
    counting: Arc<Mutex<HashMap<Kind, u32>>>,
}

impl Denials {
    /// Notes that a call of `tool` was refused.
    pub fn note(&self, session: &Handle, thread: ThreadId, tool: &str, reason: &str) {
        let kind = (
            thread,
            truncate(tool, MAX_TEXT_BYTES).to_owned(),
            truncate(reason, MAX_TEXT_BYTES).to_owned(),
        );
        {
            let mut counting = self.lock();
            if let Some(count) = counting.get_mut(&kind) {
                *count = count.saturating_add(1);
                return;
            }
            if counting.len() >= MAX_KINDS {
                return;
            }
            counting.insert(kind.clone(), 0);
        }
        let (denials, session) = (self.clone(), session.clone());
        tokio::spawn(async move {
            write(&session, &kind, 1).await;
            tokio::time::sleep(WINDOW).await;
            let repeated = denials.lock().remove(&kind).unwrap_or_default();
            if repeated > 0 {
                write(&session, &kind, repeated).await;
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Kind, u32>> {
        // Every change to the map is one call, so a panic elsewhere leaves it whole.
        self.counting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn write(session: &Handle, (thread, tool, reason): &Kind, count: u32) {
    let command = Command::DenyTool {
        thread: *thread,
        tool: tool.clone(),
        reason: reason.clone(),
        count,
    };
    if let Err(failure) = session.execute(command, Origin::service(), None, Vec::new()).await {
        tracing::debug!(%thread, tool, %failure, "a refused tool call was not recorded");
    }
}
