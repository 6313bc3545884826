//! The in-memory engine, for tests: the same results as the SQLite engine, without persistence.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use futures::future::{BoxFuture, ready};
use supervisor_core::{
    ids::{Digest, Epoch, Sequence, SessionId, ThreadId},
    time::UnixMillis,
    transcript::TranscriptSource,
};
use uuid::Uuid;

use super::{
    EventStore,
    batch::{
        Batch, Created, Creation, CreationKey, CursorKey, Due, Evidence, Head, Mark, MarkKind, RequestKey,
        RequestRecord, SessionEntry, Snapshot, StoredRecord, check_cursor, check_snapshot, check_summary,
    },
    error::{Invalid, ReadError, Refusal, WriteError},
    limits::{MAX_COMPACTED, MAX_FORGOTTEN, MAX_PAGE},
    member::{Beat, Claim, DatabaseInfo, Member, MemberId, MemberState, NewMember},
    transcript::{LongText, NewEntry, PendingEntries, StoredEntry, TranscriptQuery, check_entries},
};

/// A log in memory. Every call is one critical section, so a write is visible whole or not at all.
#[derive(Debug)]
pub struct MemoryStore {
    log_id: Uuid,
    member: MemberId,
    closed: AtomicBool,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether several stores share the log.
    is_shared: bool,
    /// Whether claims and appends of any member in any epoch succeed.
    is_unfenced: bool,
    members: BTreeMap<MemberId, Member>,
    agreed: BTreeMap<&'static str, String>,
    sessions: BTreeMap<SessionId, Log>,
    threads: BTreeMap<ThreadId, SessionId>,
    creations: BTreeMap<(String, String), Creation>,
    cursors: BTreeMap<CursorKey, Bytes>,
}

#[derive(Debug)]
struct Log {
    owner: Option<MemberId>,
    epoch: Epoch,
    due: Option<UnixMillis>,
    head: Sequence,
    oldest: Sequence,
    records: BTreeMap<Sequence, Bytes>,
    /// The epoch of each record, also of compacted ones.
    epochs: BTreeMap<Sequence, Epoch>,
    /// The head at the beginning of each epoch.
    beginnings: BTreeMap<Epoch, Sequence>,
    marks: BTreeSet<Mark>,
    contents: BTreeMap<Digest, Bytes>,
    requests: BTreeMap<RequestKey, RequestRecord>,
    snapshot: Option<Snapshot>,
    summary: Option<(Sequence, Bytes)>,
    transcripts: BTreeMap<ThreadId, Transcript>,
}

/// A thread's transcript. It has no bounds, because the engine is for tests.
#[derive(Debug, Default)]
struct Transcript {
    generation: u64,
    batch: u64,
    entries: Vec<NewEntry>,
}

impl Transcript {
    fn append(&mut self, source: TranscriptSource, entries: Vec<NewEntry>) -> Option<u64> {
        let position = (u64::from(source.generation.get()), source.batch);
        if (self.generation, self.batch) >= position {
            return None;
        }
        (self.generation, self.batch) = position;
        self.entries.extend(entries);
        Some(self.entries.len() as u64)
    }

    fn entries(&self, query: TranscriptQuery) -> Vec<StoredEntry> {
        let numbered = (1_u64..).zip(&self.entries);
        let selected = numbered.filter(|(number, entry)| *number > query.after && query.kinds.contains(entry.kind));
        let stored = selected.map(|(number, entry)| StoredEntry {
            number,
            kind: entry.kind,
            header: entry.header.clone(),
            size: entry.text.len() as u64,
            text: Some(entry.text.clone()).filter(|text| !text.is_empty() && entry.digest().is_none()),
            digest: entry.digest(),
        });
        stored.collect()
    }
}

impl Log {
    fn head(&self) -> Head {
        Head {
            sequence: self.head,
            epoch: self.epoch,
            oldest: self.oldest,
            content_bytes: self.contents.values().map(|bytes| bytes.len() as u64).sum(),
        }
    }

    fn compact(&mut self, until: Sequence, evidence: Evidence) -> Result<u64, Invalid> {
        let snapshot = self.snapshot.as_ref().map_or(Sequence::ZERO, |kept| kept.sequence);
        if until > snapshot {
            return Err(Invalid::CompactedTooFar { until, snapshot });
        }
        self.oldest = self.oldest.max(until);
        let is_expired = |mark: &Mark| mark.kind == MarkKind::Evidence && mark.sequence <= evidence.expired;
        let expired = self.marks.iter().copied().filter(is_expired);
        let expired: Vec<Sequence> = expired.map(|mark| mark.sequence).collect();
        self.marks.retain(|mark| !is_expired(mark));
        self.marks.extend(evidence.keep);
        let marked: BTreeSet<Sequence> = self.marks.iter().map(|mark| mark.sequence).collect();
        let first = evidence.after.next().min(until.next());
        let is_unmarked = |sequence: &Sequence| !marked.contains(sequence);
        let present = self.records.range(first..until.next()).map(|(sequence, _)| *sequence);
        let gone: Vec<Sequence> = expired
            .into_iter()
            .filter(is_unmarked)
            .chain(present.filter(is_unmarked).take(MAX_COMPACTED))
            .collect();
        for sequence in &gone {
            self.records.remove(sequence);
        }
        Ok(gone.len() as u64)
    }

    fn begin_epoch(&mut self, owner: MemberId, epoch: Epoch) {
        (self.owner, self.epoch) = (Some(owner), epoch);
        self.beginnings.insert(epoch, self.head);
    }

    fn stored(&self, sequence: Sequence) -> Option<StoredRecord> {
        let bytes = self.records.get(&sequence)?.clone();
        Some(StoredRecord { sequence, bytes })
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// Creates an empty log with a new id.
    #[must_use]
    pub fn new() -> Self {
        Self {
            log_id: Uuid::new_v4(),
            member: MemberId::new_random(),
            closed: AtomicBool::new(false),
            state: Arc::default(),
        }
    }

    /// Returns the log of this store as another process has it. The stores must then [`join`](EventStore::join).
    #[must_use]
    pub fn another(&self) -> Self {
        self.another_as(MemberId::new_random())
    }

    /// Like [`another`](Self::another), with the id of the other process.
    #[must_use]
    pub fn another_as(&self, member: MemberId) -> Self {
        self.state().is_shared = true;
        Self {
            log_id: self.log_id,
            member,
            closed: AtomicBool::new(false),
            state: Arc::clone(&self.state),
        }
    }

    /// Ignores the owner and the epoch of a session in claims and appends from now on. A test that must find a violation then shows
    /// that it would find one.
    pub fn remove_fence(&self) {
        self.state().is_unfenced = true;
    }

    /// Returns the epoch of each record of a session, in order. Empty if there is no such session.
    #[must_use]
    pub fn epochs(&self, session: SessionId) -> Vec<(Sequence, Epoch)> {
        let state = self.state();
        let log = state.sessions.get(&session);
        let epochs = log.into_iter().flat_map(|log| &log.epochs);
        epochs.map(|(sequence, epoch)| (*sequence, *epoch)).collect()
    }

    /// Returns the head of a session at the beginning of each epoch, in order. Empty if there is no such session.
    #[must_use]
    pub fn beginnings(&self, session: SessionId) -> Vec<(Epoch, Sequence)> {
        let state = self.state();
        let log = state.sessions.get(&session);
        let beginnings = log.into_iter().flat_map(|log| &log.beginnings);
        beginnings.map(|(epoch, head)| (*epoch, *head)).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_state(&self) -> Result<MutexGuard<'_, State>, WriteError> {
        if self.closed.load(Ordering::Acquire) {
            Err(WriteError::Refused(Refusal::Closed))
        } else {
            Ok(self.state())
        }
    }
}

impl State {
    fn create(&mut self, member: MemberId, key: Option<CreationKey>, batch: Batch) -> Result<Created, WriteError> {
        let id = key.as_ref().map(|key| (key.creator.clone(), key.request_id.clone()));
        if let (Some(key), Some(id)) = (&key, &id)
            && let Some(found) = self.creations.get(id)
            && found.expires > key.now
        {
            return Ok(Created::Existing {
                session: found.session,
                hash: found.hash,
            });
        }
        let session = batch.session;
        if let Some(log) = self.sessions.get(&session) {
            return Err(WriteError::Mismatch {
                actual: log.head().sequence,
            });
        }
        self.check_threads(&batch)?;
        let log = Log {
            owner: Some(member),
            epoch: batch.epoch,
            due: None,
            head: Sequence::ZERO,
            oldest: Sequence::ZERO,
            records: BTreeMap::new(),
            epochs: BTreeMap::new(),
            beginnings: BTreeMap::from([(batch.epoch, Sequence::ZERO)]),
            marks: BTreeSet::new(),
            contents: BTreeMap::new(),
            requests: BTreeMap::new(),
            snapshot: None,
            summary: None,
            transcripts: BTreeMap::new(),
        };
        write(self.sessions.entry(session).or_insert(log), &mut self.threads, batch);
        if let (Some(key), Some(id)) = (key, id) {
            self.creations.insert(
                id,
                Creation {
                    session,
                    hash: key.hash,
                    expires: key.expires,
                },
            );
        }
        Ok(Created::New)
    }

    fn append(&mut self, member: MemberId, batch: Batch) -> Result<(), WriteError> {
        let session = batch.session;
        let Some((head, owner)) = self.sessions.get(&session).map(|log| (log.head(), log.owner)) else {
            return Err(WriteError::NotFound { session });
        };
        if !self.is_unfenced && (head.epoch != batch.epoch || owner != Some(member)) {
            return Err(WriteError::Fenced { current: head.epoch });
        }
        if head.sequence != batch.expected {
            return Err(WriteError::Mismatch { actual: head.sequence });
        }
        self.check_threads(&batch)?;
        if let Some(log) = self.sessions.get_mut(&session) {
            write(log, &mut self.threads, batch);
        }
        Ok(())
    }

    fn check_threads(&self, batch: &Batch) -> Result<(), Invalid> {
        let taken = |thread: &&ThreadId| self.threads.get(*thread).is_some_and(|owner| *owner != batch.session);
        match batch.new_threads.iter().find(taken) {
            Some(&thread) => Err(Invalid::ThreadTaken { thread }),
            None => Ok(()),
        }
    }

    fn log(&mut self, member: MemberId, session: SessionId) -> Result<&mut Log, WriteError> {
        let log = self.sessions.get_mut(&session);
        let log = log.ok_or(WriteError::NotFound { session })?;
        if log.owner == Some(member) {
            Ok(log)
        } else {
            Err(WriteError::Fenced { current: log.epoch })
        }
    }

    /// Returns the other member that owns a session.
    fn other_owner(&self, member: MemberId, log: &Log) -> Option<MemberId> {
        log.owner
            .filter(|owner| *owner != member && self.members.contains_key(owner))
    }

    fn claim(&mut self, member: MemberId, session: SessionId) -> Result<Claim, WriteError> {
        let log = self.sessions.get(&session).ok_or(WriteError::NotFound { session })?;
        if let Some(owner) = self.other_owner(member, log)
            && !self.is_unfenced
        {
            return Ok(Claim::OwnedBy(owner));
        }
        let is_active = |own: &Member| own.last.state == MemberState::Active;
        if self.is_shared && !self.members.get(&member).is_some_and(is_active) {
            return Err(Refusal::NotMember.into());
        }
        let log = self
            .sessions
            .get_mut(&session)
            .ok_or(WriteError::NotFound { session })?;
        log.begin_epoch(member, log.epoch.next());
        Ok(Claim::Granted(log.epoch))
    }

    fn join(&mut self, id: MemberId, info: NewMember) {
        self.members
            .retain(|other, member| *other == id || member.info.name != info.name);
        let last = Beat {
            state: MemberState::Active,
            sessions: 0,
            runners: 0,
        };
        let beats = self.members.get(&id).map_or(0, |member| member.beats);
        self.members.insert(id, Member { id, info, last, beats });
    }

    fn beat(&mut self, member: MemberId, beat: Beat) -> Option<Vec<Member>> {
        let own = self.members.get_mut(&member)?;
        own.beats += 1;
        own.last = beat;
        Some(self.members.values().cloned().collect())
    }

    fn remove_member(&mut self, member: MemberId, beats: u64) -> bool {
        let is_same = self.members.get(&member).is_some_and(|found| found.beats == beats);
        if is_same {
            self.members.remove(&member);
        }
        is_same
    }

    fn transcript(&self, query: TranscriptQuery) -> Vec<StoredEntry> {
        let log = self.sessions.get(&query.session);
        let transcript = log.and_then(|log| log.transcripts.get(&query.thread));
        transcript
            .map(|transcript| transcript.entries(query))
            .unwrap_or_default()
    }

    fn put_cursor(&mut self, member: MemberId, key: CursorKey, value: Option<Bytes>) -> Result<(), WriteError> {
        if let Some(session) = key.session {
            self.log(member, session)?;
        }
        match value {
            Some(value) => self.cursors.insert(key, value),
            None => self.cursors.remove(&key),
        };
        Ok(())
    }

    fn delete_session(&mut self, session: SessionId, threads: &[ThreadId]) -> bool {
        for thread in threads {
            if self.threads.get(thread) == Some(&session) {
                self.threads.remove(thread);
            }
        }
        self.creations.retain(|_, creation| creation.session != session);
        self.cursors.retain(|key, _| key.session != Some(session));
        self.sessions.remove(&session).is_some()
    }

    fn forget_requests(&mut self, now: UnixMillis) -> u64 {
        let mut left = MAX_FORGOTTEN;
        let mut forgotten = 0;
        let mut forget = |left: &mut usize, expires: UnixMillis| {
            let goes = expires <= now && *left > 0;
            if goes {
                *left -= 1;
                forgotten += 1;
            }
            goes
        };
        for log in self.sessions.values_mut() {
            log.requests.retain(|_, request| !forget(&mut left, request.expires));
        }
        left = MAX_FORGOTTEN;
        self.creations
            .retain(|_, creation| !forget(&mut left, creation.expires));
        forgotten
    }

    fn due_before(&self, member: MemberId, time: UnixMillis, after: Option<Due>, limit: usize) -> Vec<Due> {
        let mut due: Vec<Due> = self
            .sessions
            .iter()
            .filter(|(_, log)| self.other_owner(member, log).is_none())
            .filter_map(|(&session, log)| log.due.map(|at| Due { at, session }))
            .filter(|due| due.at <= time && after.is_none_or(|after| *due > after))
            .collect();
        due.sort_unstable();
        due.truncate(limit.min(MAX_PAGE));
        due
    }
}

fn write(log: &mut Log, threads: &mut BTreeMap<ThreadId, SessionId>, batch: Batch) {
    threads.extend(batch.new_threads.iter().map(|&thread| (thread, batch.session)));
    log.head = batch.head_after();
    log.epochs
        .extend(batch.records.iter().map(|record| (record.sequence, batch.epoch)));
    let records = batch.records.into_iter();
    log.records
        .extend(records.map(|record| (record.sequence, record.bytes)));
    log.marks.extend(batch.marks);
    for content in batch.contents {
        log.contents.entry(content.digest).or_insert(content.bytes);
    }
    for (thread, entry) in batch.entries {
        log.transcripts.entry(thread).or_default().entries.push(entry);
    }
    log.requests
        .extend(batch.requests.into_iter().map(|request| (request.key(), request)));
    log.due = batch.due;
}

fn put_snapshot(log: &mut Log, snapshot: Snapshot) -> Result<(), WriteError> {
    let head = log.head().sequence;
    if snapshot.sequence > head {
        return Err(WriteError::Invalid(Invalid::SnapshotAhead {
            sequence: snapshot.sequence,
            head,
        }));
    }
    if log
        .snapshot
        .as_ref()
        .is_none_or(|kept| kept.sequence <= snapshot.sequence)
    {
        log.snapshot = Some(snapshot);
    }
    Ok(())
}

/// The keys after one, or all.
fn after_key<K>(after: Option<K>) -> (Bound<K>, Bound<K>) {
    (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}

impl EventStore for MemoryStore {
    fn log_id(&self) -> Uuid {
        self.log_id
    }

    fn create(&self, key: Option<CreationKey>, batch: Batch) -> BoxFuture<'_, Result<Created, WriteError>> {
        Box::pin(async move {
            batch.check_first(key.as_ref())?;
            self.open_state()?.create(self.member, key, batch)
        })
    }

    fn append(&self, batch: Batch) -> BoxFuture<'_, Result<(), WriteError>> {
        Box::pin(async move {
            batch.check()?;
            self.open_state()?.append(self.member, batch)
        })
    }

    fn database(&self) -> BoxFuture<'_, Result<DatabaseInfo, ReadError>> {
        Box::pin(ready(Ok(DatabaseInfo {
            engine: String::from("memory"),
            synchronous_standbys: String::new(),
        })))
    }

    fn claim(&self, session: SessionId) -> BoxFuture<'_, Result<Claim, WriteError>> {
        Box::pin(async move { self.open_state()?.claim(self.member, session) })
    }

    fn release(&self, session: SessionId, epoch: Epoch) -> BoxFuture<'_, Result<(), WriteError>> {
        Box::pin(async move {
            match self.open_state()?.log(self.member, session) {
                Ok(log) if log.epoch == epoch => log.owner = None,
                Ok(_) | Err(_) => {}
            }
            Ok(())
        })
    }

    fn hand_over(&self, session: SessionId, epoch: Epoch, to: MemberId) -> BoxFuture<'_, Result<bool, WriteError>> {
        Box::pin(async move {
            let mut state = self.open_state()?;
            let is_active = |member: &Member| member.last.state == MemberState::Active;
            if !state.members.get(&to).is_some_and(is_active) {
                return Ok(false);
            }
            match state.log(self.member, session) {
                Ok(log) if log.epoch == epoch => {
                    log.begin_epoch(to, epoch.next());
                    Ok(true)
                }
                Ok(_) | Err(_) => Ok(false),
            }
        })
    }

    fn member(&self) -> MemberId {
        self.member
    }

    fn is_shared(&self) -> bool {
        self.state().is_shared
    }

    fn agree(&self, key: &'static str, proposal: String) -> BoxFuture<'_, Result<String, ReadError>> {
        Box::pin(async move { Ok(self.state().agreed.entry(key).or_insert(proposal).clone()) })
    }

    fn join(&self, member: NewMember) -> BoxFuture<'_, Result<(), ReadError>> {
        Box::pin(async move {
            self.state().join(self.member, member);
            Ok(())
        })
    }

    fn beat(&self, beat: Beat) -> BoxFuture<'_, Result<Option<Vec<Member>>, ReadError>> {
        Box::pin(async move { Ok(self.state().beat(self.member, beat)) })
    }

    fn remove_member(&self, member: MemberId, beats: u64) -> BoxFuture<'_, Result<bool, ReadError>> {
        Box::pin(async move { Ok(self.state().remove_member(member, beats)) })
    }

    fn put_snapshot(&self, session: SessionId, snapshot: Snapshot) -> BoxFuture<'_, Result<(), WriteError>> {
        Box::pin(async move {
            check_snapshot(&snapshot)?;
            put_snapshot(self.open_state()?.log(self.member, session)?, snapshot)
        })
    }

    fn compact(
        &self,
        session: SessionId,
        until: Sequence,
        evidence: Evidence,
    ) -> BoxFuture<'_, Result<u64, WriteError>> {
        Box::pin(async move { Ok(self.open_state()?.log(self.member, session)?.compact(until, evidence)?) })
    }

    fn put_summary(
        &self,
        session: SessionId,
        sequence: Sequence,
        bytes: Bytes,
    ) -> BoxFuture<'_, Result<(), WriteError>> {
        Box::pin(async move {
            check_summary(&bytes)?;
            self.open_state()?.log(self.member, session)?.summary = Some((sequence, bytes));
            Ok(())
        })
    }

    fn put_cursor(&self, key: CursorKey, value: Option<Bytes>) -> BoxFuture<'_, Result<(), WriteError>> {
        Box::pin(async move {
            check_cursor(&key, value.as_ref())?;
            self.open_state()?.put_cursor(self.member, key, value)
        })
    }

    fn delete_session(&self, session: SessionId, threads: Vec<ThreadId>) -> BoxFuture<'_, Result<bool, WriteError>> {
        Box::pin(async move {
            let mut state = self.open_state()?;
            match state.log(self.member, session) {
                Err(fenced @ WriteError::Fenced { .. }) => Err(fenced),
                Ok(_) | Err(_) => Ok(state.delete_session(session, &threads)),
            }
        })
    }

    fn forget_requests(&self, now: UnixMillis) -> BoxFuture<'_, Result<u64, WriteError>> {
        Box::pin(async move { Ok(self.open_state()?.forget_requests(now)) })
    }

    fn append_transcript(
        &self,
        source: TranscriptSource,
        entries: Vec<NewEntry>,
        _: u64,
    ) -> BoxFuture<'_, PendingEntries> {
        let append = || {
            check_entries(&entries)?;
            let mut state = self.open_state()?;
            let log = state.log(self.member, source.session)?;
            let transcript = log.transcripts.entry(source.thread).or_default();
            Ok(transcript.append(source, entries))
        };
        let appended = append();
        Box::pin(ready(PendingEntries::new(ready(appended))))
    }

    fn transcript(&self, query: TranscriptQuery) -> BoxFuture<'_, Result<Vec<StoredEntry>, ReadError>> {
        Box::pin(async move {
            let mut entries = self.state().transcript(query);
            entries.truncate(query.limit.min(MAX_PAGE));
            Ok(entries)
        })
    }

    fn transcript_tail(&self, query: TranscriptQuery, count: usize) -> BoxFuture<'_, Result<u64, ReadError>> {
        Box::pin(async move {
            let entries = self.state().transcript(query);
            let before = entries.iter().nth_back(count);
            Ok(before.map_or(query.after, |entry| entry.number))
        })
    }

    fn transcript_text(
        &self,
        session: SessionId,
        digest: Digest,
    ) -> BoxFuture<'_, Result<Option<LongText>, ReadError>> {
        Box::pin(async move {
            let state = self.state();
            let mut threads = Vec::new();
            let mut text = None;
            for (thread, transcript) in state
                .sessions
                .get(&session)
                .into_iter()
                .flat_map(|log| &log.transcripts)
            {
                let found = transcript.entries.iter().find(|entry| entry.digest() == Some(digest));
                if let Some(entry) = found {
                    threads.push(*thread);
                    text = Some(entry.text.clone());
                }
            }
            Ok(text.map(|text| LongText { threads, text }))
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.closed.store(true, Ordering::Release) })
    }

    fn head(&self, session: SessionId) -> BoxFuture<'_, Result<Option<Head>, ReadError>> {
        Box::pin(async move { Ok(self.state().sessions.get(&session).map(Log::head)) })
    }

    fn read(
        &self,
        session: SessionId,
        after: Sequence,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredRecord>, ReadError>> {
        Box::pin(async move {
            let state = self.state();
            let Some(log) = state.sessions.get(&session) else {
                return Ok(Vec::new());
            };
            if after < log.oldest {
                return Err(ReadError::Compacted {
                    session,
                    oldest: log.oldest,
                    head: log.head,
                });
            }
            let page = log.records.range(after_key(Some(after))).take(limit.min(MAX_PAGE));
            Ok(page
                .map(|(&sequence, bytes)| StoredRecord {
                    sequence,
                    bytes: bytes.clone(),
                })
                .collect())
        })
    }

    fn marked(
        &self,
        session: SessionId,
        kind: MarkKind,
        thread: Option<ThreadId>,
        after: Sequence,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredRecord>, ReadError>> {
        Box::pin(async move {
            let state = self.state();
            let Some(log) = state.sessions.get(&session) else {
                return Ok(Vec::new());
            };
            let wanted = |mark: &&Mark| {
                mark.kind == kind && mark.sequence > after && thread.is_none_or(|thread| mark.thread == thread)
            };
            let marks = log.marks.iter().filter(wanted).take(limit.min(MAX_PAGE));
            Ok(marks.filter_map(|mark| log.stored(mark.sequence)).collect())
        })
    }

    fn content(&self, session: SessionId, digest: Digest) -> BoxFuture<'_, Result<Option<Bytes>, ReadError>> {
        Box::pin(async move {
            let state = self.state();
            Ok(state
                .sessions
                .get(&session)
                .and_then(|log| log.contents.get(&digest).cloned()))
        })
    }

    fn snapshot(&self, session: SessionId) -> BoxFuture<'_, Result<Option<Snapshot>, ReadError>> {
        Box::pin(async move { Ok(self.state().sessions.get(&session).and_then(|log| log.snapshot.clone())) })
    }

    fn request(&self, session: SessionId, key: RequestKey) -> BoxFuture<'_, Result<Option<RequestRecord>, ReadError>> {
        Box::pin(async move {
            let state = self.state();
            Ok(state
                .sessions
                .get(&session)
                .and_then(|log| log.requests.get(&key).cloned()))
        })
    }

    fn requests(
        &self,
        session: SessionId,
        after: Option<RequestKey>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<RequestRecord>, ReadError>> {
        Box::pin(async move {
            let state = self.state();
            let Some(log) = state.sessions.get(&session) else {
                return Ok(Vec::new());
            };
            let page = log.requests.range(after_key(after)).take(limit.min(MAX_PAGE));
            Ok(page.map(|(_, request)| request.clone()).collect())
        })
    }

    fn creation(&self, creator: String, request_id: String) -> BoxFuture<'_, Result<Option<Creation>, ReadError>> {
        Box::pin(async move { Ok(self.state().creations.get(&(creator, request_id)).copied()) })
    }

    fn session_of(&self, thread: ThreadId) -> BoxFuture<'_, Result<Option<SessionId>, ReadError>> {
        Box::pin(async move { Ok(self.state().threads.get(&thread).copied()) })
    }

    fn sessions(&self, after: Option<SessionId>, limit: usize) -> BoxFuture<'_, Result<Vec<SessionId>, ReadError>> {
        Box::pin(async move {
            let state = self.state();
            let page = state.sessions.range(after_key(after)).take(limit.min(MAX_PAGE));
            Ok(page.map(|(&session, _)| session).collect())
        })
    }

    fn summaries(
        &self,
        before: Option<SessionId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<SessionEntry>, ReadError>> {
        Box::pin(async move {
            let state = self.state();
            let upper = before.map_or(Bound::Unbounded, Bound::Excluded);
            let page = state.sessions.range((Bound::Unbounded, upper)).rev();
            Ok(page
                .take(limit.min(MAX_PAGE))
                .map(|(&session, log)| SessionEntry {
                    session,
                    head: log.head,
                    summary: log
                        .summary
                        .as_ref()
                        .filter(|(sequence, _)| *sequence == log.head)
                        .map(|(_, bytes)| bytes.clone()),
                    owner: state.other_owner(self.member, log),
                })
                .collect())
        })
    }

    fn due_before(
        &self,
        time: UnixMillis,
        after: Option<Due>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Due>, ReadError>> {
        Box::pin(async move { Ok(self.state().due_before(self.member, time, after, limit)) })
    }

    fn cursor(&self, key: CursorKey) -> BoxFuture<'_, Result<Option<Bytes>, ReadError>> {
        Box::pin(async move { Ok(self.state().cursors.get(&key).cloned()) })
    }
}
