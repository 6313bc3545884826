//! What is kept of a session beside its log, so that it is found, listed and opened fast: its snapshot and its summary. Both
//! are derived, and made beside the actor, which never waits for them.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use bytes::Bytes;
use prost::Message as _;
use tokio::task::{JoinHandle, spawn_blocking};

use super::failure::Failure;
use crate::{
    domain::{
        event::Recorded,
        ids::{Sequence, SessionId},
        session::Session,
    },
    store::{
        AppendError, EventStore, Evidence, Mark, MarkKind, Snapshot, WriteError,
        limits::{MAX_COMPACTED, MAX_PAGE},
    },
    wire::{self, record},
};

/// When sessions are put away, and what is kept of them.
#[derive(Clone, Copy, Debug)]
pub struct UpkeepLimits {
    /// How long a session that has nothing to do by itself stays in memory after it was last used.
    pub idle: Duration,
    /// How many events a session that stays in memory records between two snapshots: what a start after a crash folds at
    /// most, beyond the snapshot.
    pub snapshot_every: u64,
    /// How many events a log holds before it is compacted.
    pub compact_above: u64,
    /// How many events before its snapshot a compacted log keeps, for watchers that resume.
    pub keep_before_snapshot: u64,
    /// For how long a compacted log keeps security events.
    pub keep_security_events: Duration,
}

impl Default for UpkeepLimits {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(60),
            snapshot_every: 10_000,
            compact_above: 100_000,
            keep_before_snapshot: 50_000,
            keep_security_events: days(Self::SECURITY_EVENT_DAYS),
        }
    }
}

impl UpkeepLimits {
    /// For how many days a compacted log keeps security events, unless it is configured otherwise.
    pub const SECURITY_EVENT_DAYS: u32 = 90;
    /// How many days can be configured: long enough to notice an attack, and at most about a hundred years.
    const DAYS: RangeInclusive<u32> = 7..=36_500;

    /// These limits with another age for security events.
    ///
    /// # Errors
    /// A sentence that names the number and its bounds.
    pub fn keep_security_events_for(self, number: u32) -> Result<Self, String> {
        if Self::DAYS.contains(&number) {
            Ok(Self {
                keep_security_events: days(number),
                ..self
            })
        } else {
            let (least, most) = (Self::DAYS.start(), Self::DAYS.end());
            Err(format!(
                "keep_security_events is {number}; it must be {least} to {most} days"
            ))
        }
    }
}

fn days(number: u32) -> Duration {
    Duration::from_secs(24 * 60 * 60) * number
}

/// The upkeep of one session: one task at a time.
pub(super) struct Upkeep {
    store: Arc<dyn EventStore>,
    limits: UpkeepLimits,
    /// As of when a snapshot was last made. One that could not be written is made anew with the next one that is due.
    snapshot: Sequence,
    /// As of when the summary was last made.
    summary: Option<Sequence>,
    under_way: Option<JoinHandle<()>>,
}

impl Upkeep {
    /// The upkeep of a session whose log has a snapshot as of `snapshot`.
    pub fn new(store: Arc<dyn EventStore>, limits: UpkeepLimits, snapshot: Sequence) -> Self {
        Self {
            store,
            limits,
            snapshot,
            summary: None,
            under_way: None,
        }
    }

    /// After an append: makes a snapshot if the last one is too old.
    pub fn after_append(&mut self, session: &Arc<Session>) {
        let since = session.sequence.get().saturating_sub(self.snapshot.get());
        if since < self.limits.snapshot_every || self.under_way.is_some() {
            return;
        }
        self.snapshot = session.sequence;
        let (store, limits, session) = (Arc::clone(&self.store), self.limits, Arc::clone(session));
        self.under_way = Some(tokio::spawn(async move {
            keep_snapshot(store.as_ref(), limits, &session).await;
        }));
    }

    /// Makes what lets the session be put away as it is now. Answers whether that is done: nothing is under way.
    pub fn prepare_rest(&mut self, session: &Arc<Session>) -> bool {
        if self.under_way.is_some() {
            return false;
        }
        if self.is_prepared(session) {
            return true;
        }
        let needs_snapshot = self.snapshot != session.sequence;
        self.snapshot = session.sequence;
        self.summary = Some(session.sequence);
        let (store, limits, session) = (Arc::clone(&self.store), self.limits, Arc::clone(session));
        self.under_way = Some(tokio::spawn(async move {
            if needs_snapshot {
                keep_snapshot(store.as_ref(), limits, &session).await;
            }
            keep_summary(store.as_ref(), &session).await;
        }));
        false
    }

    /// Whether everything was made as of now.
    pub fn is_prepared(&self, session: &Session) -> bool {
        self.under_way.is_none() && self.snapshot == session.sequence && self.summary == Some(session.sequence)
    }

    /// Takes notice of the end of what was under way, if it has ended.
    pub fn see_end(&mut self) {
        self.under_way.take_if(|task| task.is_finished());
    }

    /// Waits until what is under way has ended; for ever if nothing is.
    pub async fn ended(&mut self) {
        match &mut self.under_way {
            Some(task) => {
                if let Err(error) = task.await {
                    tracing::error!(%error, "the upkeep of a session broke");
                }
                self.under_way = None;
            }
            None => std::future::pending().await,
        }
    }
}

async fn keep_snapshot(store: &dyn EventStore, limits: UpkeepLimits, session: &Arc<Session>) {
    let (id, sequence) = (session.id, session.sequence);
    let state = Arc::clone(session);
    let Ok(bytes) = spawn_blocking(move || wire::encode_snapshot(&state)).await else {
        tracing::error!(session = %id, "the snapshot of a session could not be encoded");
        return;
    };
    match store.put_snapshot(id, Snapshot { sequence, bytes }).await {
        Ok(()) => compact(store, limits, session).await,
        Err(error) => report(id, "the snapshot of a session was not kept", &error),
    }
}

/// Removes the oldest part of a long log that its snapshot stands for, but for the security events that are not old.
async fn compact(store: &dyn EventStore, limits: UpkeepLimits, session: &Session) {
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

/// Page by page, so that other sessions' writes come between.
async fn compact_up_to(
    store: &dyn EventStore,
    id: SessionId,
    mut done: Sequence,
    until: Sequence,
    is_old: &(dyn Fn(&Recorded) -> bool + Sync),
) -> Result<(), Failure> {
    // One call removes all that a page has.
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
            removed => removed.map_err(AppendError::from)?,
        };
        tracing::debug!(session = %id, until = %end, removed, "a log is being compacted");
        done = end;
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Up to which record the oldest page of the evidence of earlier compactions is old.
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

/// Keeps what a listing shows of a session, so that it need not be loaded for that.
pub(super) async fn keep_summary(store: &dyn EventStore, session: &Session) {
    let bytes = Bytes::from(wire::thread::session(session).encode_to_vec());
    if let Err(error) = store.put_summary(session.id, session.sequence, bytes).await {
        report(session.id, "the summary of a session was not kept", &error);
    }
}

fn report(id: SessionId, what: &'static str, error: &WriteError) {
    match error {
        // It was deleted meanwhile.
        WriteError::NotFound { .. } => {}
        WriteError::Invalid(_) | WriteError::Refused(_) | WriteError::Stopped | WriteError::Unknown(_) => {
            tracing::warn!(session = %id, %error, "{what}");
        }
    }
}
