//! A log in memory, for tests: the statements of the SQLite engine on a database in memory, and the members of a shared
//! log. It starts no threads, and a call completes when it is first polled.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use futures::future::{BoxFuture, ready};
use rusqlite::Connection;
use supervisor_core::{
    ids::{Digest, Epoch, Sequence, SessionId, ThreadId},
    time::UnixMillis,
    transcript::TranscriptSource,
};
use uuid::Uuid;

use super::{apply, group::Failure, query, schema, transcript};
use crate::store::{
    EventStore, ReadFuture, WriteFuture,
    batch::{
        Batch, Created, Creation, CreationKey, CursorKey, Due, Evidence, Head, MarkKind, RequestKey, RequestRecord,
        SessionEntry, Snapshot, StoredRecord, check_cursor, check_snapshot, check_summary,
    },
    error::{Invalid, OpenError, ReadError, Refusal, WriteError},
    limits::MAX_PAGE,
    member::{Beat, Claim, DatabaseInfo, Member, MemberId, MemberState, NewMember},
    transcript::{LongText, NewEntry, PendingEntries, StoredEntry, TranscriptQuery, check_entries},
};

/// A log in memory. Every call is one critical section, so a write is visible completely or not at all.
#[derive(Debug)]
pub struct MemoryStore {
    log_id: Uuid,
    member: MemberId,
    closed: AtomicBool,
    state: Arc<Mutex<State>>,
}

/// The database of the log, and the data that only a shared log has.
#[derive(Debug)]
struct State {
    connection: Connection,
    /// Whether several stores share the log.
    is_shared: bool,
    /// Whether claims and appends of any member in any epoch succeed.
    is_unfenced: bool,
    members: BTreeMap<MemberId, Member>,
    agreed: BTreeMap<&'static str, String>,
    sessions: BTreeMap<SessionId, Ownership>,
}

/// The current owner and all epochs of a session.
#[derive(Debug)]
struct Ownership {
    owner: Option<MemberId>,
    /// The epoch of each record, also of compacted ones.
    epochs: BTreeMap<Sequence, Epoch>,
    /// The head at the beginning of each epoch.
    beginnings: BTreeMap<Epoch, Sequence>,
}

impl Ownership {
    fn epoch(&self) -> Epoch {
        self.beginnings
            .last_key_value()
            .map_or(Epoch::ZERO, |(epoch, _)| *epoch)
    }

    fn begin_epoch(&mut self, owner: MemberId, epoch: Epoch) {
        let head = self.epochs.last_key_value();
        let head = head.map_or(Sequence::ZERO, |(sequence, _)| *sequence);
        self.owner = Some(owner);
        self.beginnings.insert(epoch, head);
    }

    fn add_records(&mut self, batch: &Batch, epoch: Epoch) {
        self.epochs
            .extend(batch.records.iter().map(|record| (record.sequence, epoch)));
    }
}

impl MemoryStore {
    /// Creates an empty log with a new id.
    ///
    /// # Errors
    /// Errors of the database engine.
    pub fn new() -> Result<Self, OpenError> {
        let state = State {
            connection: schema::open_in_memory()?,
            is_shared: false,
            is_unfenced: false,
            members: BTreeMap::new(),
            agreed: BTreeMap::new(),
            sessions: BTreeMap::new(),
        };
        Ok(Self {
            log_id: Uuid::new_v4(),
            member: MemberId::from_uuid(Uuid::new_v4()),
            closed: AtomicBool::new(false),
            state: Arc::new(Mutex::new(state)),
        })
    }

    /// Returns the store of another process that shares the log. The stores must then [`join`](EventStore::join).
    #[must_use]
    pub fn another(&self) -> Self {
        self.another_as(MemberId::from_uuid(Uuid::new_v4()))
    }

    /// Does the same as [`another`](Self::another), with a given id of the other process.
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

    /// Ignores the owner and the epoch of a session in claims and appends from now on. A test that calls this function
    /// can show that it detects violations of the fence.
    pub fn remove_fence(&self) {
        self.state().is_unfenced = true;
    }

    /// Returns the epoch of each record of a session, in order. Empty if there is no such session.
    #[must_use]
    pub fn epochs(&self, session: SessionId) -> Vec<(Sequence, Epoch)> {
        let state = self.state();
        let epochs = state.sessions.get(&session).into_iter().flat_map(|of| &of.epochs);
        epochs.map(|(sequence, epoch)| (*sequence, *epoch)).collect()
    }

    /// Returns the head of a session at the beginning of each epoch, in order. Empty if there is no such session.
    #[must_use]
    pub fn beginnings(&self, session: SessionId) -> Vec<(Epoch, Sequence)> {
        let state = self.state();
        let beginnings = state.sessions.get(&session).into_iter().flat_map(|of| &of.beginnings);
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

    fn query<'a, T>(
        &'a self,
        query: impl FnOnce(&Connection) -> Result<T, ReadError> + Send + 'a,
    ) -> ReadFuture<'a, T> {
        Box::pin(async move { query(&self.state().connection) })
    }

    /// Performs a write. `check` is the result of its validation. If `session` is given, this member must own the
    /// session.
    fn write<'a, T>(
        &'a self,
        session: Option<SessionId>,
        check: Result<usize, Invalid>,
        work: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'a,
    ) -> WriteFuture<'a, T> {
        Box::pin(async move {
            check?;
            let mut state = self.open_state()?;
            if let Some(session) = session {
                state.owned(self.member, session)?;
            }
            state.write(work)
        })
    }
}

impl State {
    /// Runs the work in a separate transaction.
    fn write<T>(&self, work: impl FnOnce(&Connection) -> Result<T, Failure>) -> Result<T, WriteError> {
        let transaction = self.connection.unchecked_transaction().map_err(Failure::Engine)?;
        let result = work(&transaction)?;
        transaction.commit().map_err(Failure::Engine)?;
        Ok(result)
    }

    fn create(&mut self, member: MemberId, key: Option<&CreationKey>, batch: &Batch) -> Result<Created, WriteError> {
        let created = self.write(|connection| apply::create(connection, key, batch))?;
        if created == Created::New {
            let mut ownership = Ownership {
                owner: None,
                epochs: BTreeMap::new(),
                beginnings: BTreeMap::new(),
            };
            ownership.begin_epoch(member, batch.epoch);
            ownership.add_records(batch, batch.epoch);
            self.sessions.insert(batch.session, ownership);
        }
        Ok(created)
    }

    fn append(&mut self, member: MemberId, mut batch: Batch) -> Result<(), WriteError> {
        let epoch = batch.epoch;
        if !self.is_unfenced {
            self.owned(member, batch.session)?;
        } else if let Some(ownership) = self.sessions.get(&batch.session) {
            batch.epoch = ownership.epoch();
        }
        self.write(|connection| apply::append(connection, &batch))?;
        if let Some(ownership) = self.sessions.get_mut(&batch.session) {
            ownership.add_records(&batch, epoch);
        }
        Ok(())
    }

    /// Returns a session that the member owns.
    fn owned(&mut self, member: MemberId, session: SessionId) -> Result<&mut Ownership, WriteError> {
        let ownership = self.sessions.get_mut(&session);
        let ownership = ownership.ok_or(WriteError::NotFound { session })?;
        if ownership.owner == Some(member) {
            Ok(ownership)
        } else {
            Err(WriteError::Fenced {
                current: ownership.epoch(),
            })
        }
    }

    /// Returns the other member that owns a session.
    fn other_owner(&self, member: MemberId, session: SessionId) -> Option<MemberId> {
        let owner = self.sessions.get(&session)?.owner?;
        (owner != member && self.members.contains_key(&owner)).then_some(owner)
    }

    fn is_active(&self, member: MemberId) -> bool {
        let member = self.members.get(&member);
        member.is_some_and(|member| member.last.state == MemberState::Active)
    }

    fn claim(&mut self, member: MemberId, session: SessionId) -> Result<Claim, WriteError> {
        if !self.sessions.contains_key(&session) {
            return Err(WriteError::NotFound { session });
        }
        if let Some(owner) = self.other_owner(member, session)
            && !self.is_unfenced
        {
            return Ok(Claim::OwnedBy(owner));
        }
        if self.is_shared && !self.is_active(member) {
            return Err(Refusal::NotMember.into());
        }
        self.begin_epoch(member, session)
    }

    fn begin_epoch(&mut self, owner: MemberId, session: SessionId) -> Result<Claim, WriteError> {
        let claim = self.write(|connection| apply::claim(connection, session))?;
        if let (Claim::Granted(epoch), Some(ownership)) = (claim, self.sessions.get_mut(&session)) {
            ownership.begin_epoch(owner, epoch);
        }
        Ok(claim)
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
}

impl EventStore for MemoryStore {
    fn log_id(&self) -> Uuid {
        self.log_id
    }

    fn create(&self, key: Option<CreationKey>, batch: Batch) -> WriteFuture<'_, Created> {
        Box::pin(async move {
            batch.check_first(key.as_ref())?;
            self.open_state()?.create(self.member, key.as_ref(), &batch)
        })
    }

    fn append(&self, batch: Batch) -> WriteFuture<'_, ()> {
        Box::pin(async move {
            batch.check()?;
            self.open_state()?.append(self.member, batch)
        })
    }

    fn database(&self) -> ReadFuture<'_, DatabaseInfo> {
        Box::pin(ready(Ok(DatabaseInfo {
            engine: String::from("memory"),
            synchronous_standbys: String::new(),
        })))
    }

    fn claim(&self, session: SessionId) -> WriteFuture<'_, Claim> {
        Box::pin(async move { self.open_state()?.claim(self.member, session) })
    }

    fn release(&self, session: SessionId, epoch: Epoch) -> WriteFuture<'_, ()> {
        Box::pin(async move {
            if let Ok(owned) = self.open_state()?.owned(self.member, session)
                && owned.epoch() == epoch
            {
                owned.owner = None;
            }
            Ok(())
        })
    }

    fn hand_over(&self, session: SessionId, epoch: Epoch, to: MemberId) -> WriteFuture<'_, bool> {
        Box::pin(async move {
            let mut state = self.open_state()?;
            let owned = state.owned(self.member, session);
            let is_given = owned.is_ok_and(|owned| owned.epoch() == epoch) && state.is_active(to);
            if is_given {
                state.begin_epoch(to, session)?;
            }
            Ok(is_given)
        })
    }

    fn member(&self) -> MemberId {
        self.member
    }

    fn is_shared(&self) -> bool {
        self.state().is_shared
    }

    fn agree(&self, key: &'static str, proposal: String) -> ReadFuture<'_, String> {
        Box::pin(async move { Ok(self.state().agreed.entry(key).or_insert(proposal).clone()) })
    }

    fn join(&self, member: NewMember) -> ReadFuture<'_, ()> {
        Box::pin(async move {
            self.state().join(self.member, member);
            Ok(())
        })
    }

    fn beat(&self, beat: Beat) -> ReadFuture<'_, Option<Vec<Member>>> {
        Box::pin(async move { Ok(self.state().beat(self.member, beat)) })
    }

    fn remove_member(&self, member: MemberId, beats: u64) -> ReadFuture<'_, bool> {
        Box::pin(async move { Ok(self.state().remove_member(member, beats)) })
    }

    fn put_snapshot(&self, session: SessionId, snapshot: Snapshot) -> WriteFuture<'_, ()> {
        self.write(Some(session), check_snapshot(&snapshot), move |connection| {
            apply::put_snapshot(connection, session, &snapshot)
        })
    }

    fn compact(&self, session: SessionId, until: Sequence, evidence: Evidence) -> WriteFuture<'_, u64> {
        self.write(Some(session), Ok(0), move |connection| {
            apply::compact(connection, session, until, &evidence)
        })
    }

    fn put_summary(&self, session: SessionId, sequence: Sequence, bytes: Bytes) -> WriteFuture<'_, ()> {
        self.write(Some(session), check_summary(&bytes), move |connection| {
            apply::put_summary(connection, session, sequence, &bytes)
        })
    }

    fn put_cursor(&self, key: CursorKey, value: Option<Bytes>) -> WriteFuture<'_, ()> {
        self.write(key.session, check_cursor(&key, value.as_ref()), move |connection| {
            apply::put_cursor(connection, &key, value.as_ref())
        })
    }

    fn delete_session(&self, session: SessionId, threads: Vec<ThreadId>) -> WriteFuture<'_, bool> {
        Box::pin(async move {
            let mut state = self.open_state()?;
            if let Err(fenced @ WriteError::Fenced { .. }) = state.owned(self.member, session) {
                return Err(fenced);
            }
            state.sessions.remove(&session);
            state.write(|connection| apply::delete_session(connection, session, &threads))
        })
    }

    fn forget_requests(&self, now: UnixMillis) -> WriteFuture<'_, u64> {
        self.write(None, Ok(0), move |connection| apply::forget_requests(connection, now))
    }

    fn append_transcript(
        &self,
        source: TranscriptSource,
        entries: Vec<NewEntry>,
        session_bytes: u64,
    ) -> BoxFuture<'_, PendingEntries> {
        let write = self.write(Some(source.session), check_entries(&entries), move |connection| {
            transcript::append(connection, source, &entries, session_bytes)
        });
        Box::pin(async { PendingEntries::new(ready(write.await)) })
    }

    fn transcript(&self, query: TranscriptQuery) -> ReadFuture<'_, Vec<StoredEntry>> {
        self.query(move |connection| transcript::entries(connection, query))
    }

    fn transcript_tail(&self, query: TranscriptQuery, count: usize) -> ReadFuture<'_, u64> {
        self.query(move |connection| Ok(transcript::tail(connection, query, count)?))
    }

    fn transcript_text(&self, session: SessionId, digest: Digest) -> ReadFuture<'_, Option<LongText>> {
        self.query(move |connection| transcript::text(connection, session, digest))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.closed.store(true, Ordering::Release) })
    }

    fn head(&self, session: SessionId) -> ReadFuture<'_, Option<Head>> {
        self.query(move |connection| Ok(query::head(connection, session)?))
    }

    fn read(&self, session: SessionId, after: Sequence, limit: usize) -> ReadFuture<'_, Vec<StoredRecord>> {
        self.query(move |connection| query::records(connection, session, after, limit))
    }

    fn marked(
        &self,
        session: SessionId,
        kind: MarkKind,
        thread: Option<ThreadId>,
        after: Sequence,
        limit: usize,
    ) -> ReadFuture<'_, Vec<StoredRecord>> {
        self.query(move |connection| query::marked(connection, session, kind, thread, after, limit))
    }

    fn content(&self, session: SessionId, digest: Digest) -> ReadFuture<'_, Option<Bytes>> {
        self.query(move |connection| query::content(connection, session, digest))
    }

    fn snapshot(&self, session: SessionId) -> ReadFuture<'_, Option<Snapshot>> {
        self.query(move |connection| query::snapshot(connection, session))
    }

    fn request(&self, session: SessionId, key: RequestKey) -> ReadFuture<'_, Option<RequestRecord>> {
        self.query(move |connection| query::request(connection, session, &key))
    }

    fn requests(
        &self,
        session: SessionId,
        after: Option<RequestKey>,
        limit: usize,
    ) -> ReadFuture<'_, Vec<RequestRecord>> {
        self.query(move |connection| query::requests(connection, session, after.as_ref(), limit))
    }

    fn creation(&self, creator: String, request_id: String) -> ReadFuture<'_, Option<Creation>> {
        self.query(move |connection| Ok(query::creation(connection, &creator, &request_id)?))
    }

    fn session_of(&self, thread: ThreadId) -> ReadFuture<'_, Option<SessionId>> {
        self.query(move |connection| Ok(query::session_of(connection, thread)?))
    }

    fn sessions(&self, after: Option<SessionId>, limit: usize) -> ReadFuture<'_, Vec<SessionId>> {
        self.query(move |connection| query::sessions(connection, after, limit))
    }

    fn summaries(&self, before: Option<SessionId>, limit: usize) -> ReadFuture<'_, Vec<SessionEntry>> {
        Box::pin(async move {
            let state = self.state();
            let mut entries = query::summaries(&state.connection, before, limit)?;
            for entry in &mut entries {
                entry.owner = state.other_owner(self.member, entry.session);
            }
            Ok(entries)
        })
    }

    fn due_before(&self, time: UnixMillis, after: Option<Due>, limit: usize) -> ReadFuture<'_, Vec<Due>> {
        Box::pin(async move {
            let state = self.state();
            // Tests have fewer sessions than a page.
            let mut due = query::due_before(&state.connection, time, after, MAX_PAGE)?;
            due.retain(|due| state.other_owner(self.member, due.session).is_none());
            due.truncate(limit);
            Ok(due)
        })
    }

    fn cursor(&self, key: CursorKey) -> ReadFuture<'_, Option<Bytes>> {
        self.query(move |connection| query::cursor(connection, &key))
    }
}
