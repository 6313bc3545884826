//! Snapshots and summaries of a session, which make it fast to find, list and load. Both are derived data. They are
//! made concurrently with the actor, which never waits for them.

use std::sync::Arc;

use supervisor_log::{
    codec::{encode_snapshot, record},
    store::{
        EventStore, Evidence, Mark, MarkKind, Snapshot, WriteError,
        limits::{MAX_COMPACTED, MAX_PAGE},
    },
};
use tokio::task::{JoinHandle, spawn_blocking};

use super::{
    error::Failure,
    shared::{EngineConfig, Shared},
};
use crate::domain::{
    event::Recorded,
    ids::{Sequence, SessionId},
    state::session::Session,
};

/// The maintenance of one session. It runs one task at a time.
pub(super) struct Upkeep {
    shared: Arc<Shared>,
    /// The sequence of the last snapshot. A failed snapshot is made again when the next one is due.
    snapshot: Sequence,
    /// The sequence of the last summary.
    summary: Option<Sequence>,
    under_way: Option<JoinHandle<()>>,
}

impl Upkeep {
    /// Creates the maintenance of a session whose log has a snapshot at `snapshot`.
    pub const fn new(shared: Arc<Shared>, snapshot: Sequence) -> Self {
        Self {
            shared,
            snapshot,
            summary: None,
            under_way: None,
        }
    }

    /// Makes a snapshot after an append if the last one is too old.
    pub fn after_append(&mut self, session: &Arc<Session>) {
        let since = session.sequence.get().saturating_sub(self.snapshot.get());
        if since < self.shared.config.upkeep.snapshot_every || self.under_way.is_some() {
            return;
        }
        self.snapshot = session.sequence;
        let (shared, session) = (Arc::clone(&self.shared), Arc::clone(session));
        self.under_way = Some(tokio::spawn(async move {
            store_snapshot(&shared.config, &session).await;
        }));
    }

    /// Makes the snapshot and summary that passivation needs. Returns whether both are done and no task is running.
    pub fn prepare_passivation(&mut self, session: &Arc<Session>) -> bool {
        if self.under_way.is_some() {
            return false;
        }
        if self.is_prepared(session) {
            return true;
        }
        let needs_snapshot = self.snapshot != session.sequence;
        self.snapshot = session.sequence;
        self.summary = Some(session.sequence);
        let (shared, session) = (Arc::clone(&self.shared), Arc::clone(session));
        self.under_way = Some(tokio::spawn(async move {
            if needs_snapshot {
                store_snapshot(&shared.config, &session).await;
            }
            store_summary(&shared.config, &session).await;
        }));
        false
    }

    /// Returns whether the snapshot and summary are current.
    pub fn is_prepared(&self, session: &Session) -> bool {
        self.under_way.is_none() && self.snapshot == session.sequence && self.summary == Some(session.sequence)
    }

    /// Clears the running task if it has ended.
    pub fn clear_ended_task(&mut self) {
        self.under_way.take_if(|task| task.is_finished());
    }

    /// Waits until the running task has ended; forever without a task.
    pub async fn ended(&mut self) {
        match &mut self.under_way {
            Some(task) => {
                if let Err(error) = task.await {
                    tracing::error!(%error, "maintenance of a session panicked");
                }
                self.under_way = None;
            }
            None => std::future::pending().await,
        }
    }
}

async fn store_snapshot(config: &EngineConfig, session: &Arc<Session>) {
    let (id, sequence) = (session.id, session.sequence);
    let state = Arc::clone(session);
    let Ok(bytes) = spawn_blocking(move || encode_snapshot(&state)).await else {
        tracing::error!(session = %id, "the snapshot of a session could not be encoded");
        return;
    };
    match config.store.put_snapshot(id, Snapshot { sequence, bytes }).await {
        Ok(()) => compact(config, session).await,
        Err(error) => report(id, "snapshot not stored", &error),
    }
}

/// Removes the oldest records of a long log, which the snapshot includes, except for recent security events.
async fn compact(config: &EngineConfig, session: &Session) {
    let (store, limits) = (config.store.as_ref(), config.upkeep);
    let (id, snapshot) = (session.id, session.sequence);
    let Ok(Some(head)) = store.head(id).await else { return };
    let held = head.sequence.get().saturating_sub(head.oldest.get());
    let until = Sequence::new(snapshot.get().saturating_sub(limits.keep_before_snapshot));
    if held <= limits.compact_above || until <= head.oldest {
        return;
    }
    let is_old = |recorded: &Recorded| session.updated.since(recorded.time) >= limits.keep_security_events;
    if let Err(failure) = compact_up_to(store, id, head.oldest, until, &is_old).await {
        tracing::warn!(session = %id, %failure, "the log of a session was not compacted");
    }
}

/// Compacts page by page, so that other sessions can write in between.
async fn compact_up_to(
    store: &dyn EventStore,
    id: SessionId,
    mut done: Sequence,
    until: Sequence,
    is_old: &(dyn Fn(&Recorded) -> bool + Sync),
) -> Result<(), Failure> {
    // One call can remove a whole page.
    const { assert!(MAX_PAGE <= MAX_COMPACTED) };
    while done < until {
        let mut keep = Vec::new();
        let page = store.read(id, done, MAX_PAGE).await?;
        let Some(last) = page.last() else { return Ok(()) };
        let end = last.sequence.min(until);
        for stored in page.iter().filter(|stored| stored.sequence <= end) {
            let recorded = record::decode_record(id, &stored.bytes)?;
            if let Some(thread) = recorded.event.evidence_about()
                && !is_old(&recorded)
            {
                keep.push(Mark {
                    kind: MarkKind::Evidence,
                    sequence: stored.sequence,
                    thread,
                });
            }
        }
        let evidence = Evidence {
            after: done,
            keep,
            expired: expired_evidence(store, id, is_old).await?,
        };
        let removed = match store.compact(id, end, evidence).await {
            // The session was deleted.
            Err(WriteError::NotFound { .. }) => return Ok(()),
            removed => removed?,
        };
        tracing::debug!(session = %id, until = %end, removed, "a log is being compacted");
        done = end;
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Returns the sequence up to which the retained security events have expired. Checks only the oldest page of them.
async fn expired_evidence(
    store: &dyn EventStore,
    id: SessionId,
    is_old: &(dyn Fn(&Recorded) -> bool + Sync),
) -> Result<Sequence, Failure> {
    let mut expired = Sequence::ZERO;
    let page = store.marked(id, MarkKind::Evidence, None, Sequence::ZERO, MAX_PAGE);
    for stored in page.await? {
        if !is_old(&record::decode_record(id, &stored.bytes)?) {
            break;
        }
        expired = stored.sequence;
    }
    Ok(expired)
}

/// Writes the summary of a session, so that a listing need not load the session.
pub(super) async fn store_summary(config: &EngineConfig, session: &Session) {
    let bytes = (config.summarize)(session);
    if let Err(error) = config.store.put_summary(session.id, session.sequence, bytes).await {
        report(session.id, "summary not stored", &error);
    }
}

fn report(id: SessionId, what: &'static str, error: &WriteError) {
    match error {
        // The session was deleted in the meantime, or another supervisor has it.
        WriteError::NotFound { .. } | WriteError::Fenced { .. } => {}
        WriteError::Mismatch { .. }
        | WriteError::Invalid(_)
        | WriteError::Refused(_)
        | WriteError::Stopped
        | WriteError::Unknown(_) => {
            tracing::warn!(session = %id, %error, "{what}");
        }
    }
}
