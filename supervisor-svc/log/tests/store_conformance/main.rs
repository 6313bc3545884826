//! Requirements for every engine of the store, checked on each engine.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

mod copying;
mod durability;
mod file;
mod log;
mod members;
#[path = "../postgres_server/mod.rs"]
mod postgres_server;
mod sessions;
mod transcripts;
mod upkeep;

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use futures::future::join_all;
use supervisor_core::{
    ids::{Digest, Epoch, Generation, Sequence, SessionId, ThreadId},
    time::UnixMillis,
    transcript::{TranscriptKind, TranscriptKinds, TranscriptSource},
};
use supervisor_log::store::{
    Batch, Beat, Claim, Content, Created, CreationKey, CursorKey, Due, EventStore, Evidence, Head, Invalid, LongText,
    Mark, MarkKind, MemberState, MemoryStore, NewEntry, NewMember, NewRecord, PostgresStore, ReadError, Refusal,
    RequestKey, RequestRecord, SessionEntry, Side, Snapshot, SqliteStore, StoredRecord, TranscriptQuery, WriteError,
    limits,
};
use tempfile::TempDir;
use uuid::Uuid;

use self::{durability::*, log::*, members::*, postgres_server::Database, sessions::*, transcripts::*, upkeep::*};

type Store = Arc<dyn EventStore>;

fn session(number: u128) -> SessionId {
    SessionId::from_uuid(Uuid::from_u128(number))
}

fn thread(number: u128) -> ThreadId {
    ThreadId::from_uuid(Uuid::from_u128(number))
}

fn digest(byte: u8) -> Digest {
    Digest::from_bytes([byte; 32])
}

fn at(millis: u64) -> UnixMillis {
    UnixMillis::new(millis)
}

fn epoch() -> Epoch {
    Epoch::new(1)
}

fn granted(epoch: u64) -> Result<Claim, WriteError> {
    Ok(Claim::Granted(Epoch::new(epoch)))
}

/// Joins a store as a member with this name.
async fn joined(store: impl EventStore, name: &str) -> Store {
    let member = NewMember {
        name: name.to_owned(),
        address: format!("http://{name}"),
        release: String::from("1.2.3"),
    };
    store.join(member).await.unwrap();
    Arc::new(store)
}

/// Returns a batch of records "SESSION.1", "SESSION.2", ... after `expected`.
fn batch(session: SessionId, expected: u64, count: u64) -> Batch {
    let records = (expected + 1..=expected + count).map(|number| NewRecord {
        sequence: Sequence::new(number),
        bytes: Bytes::from(format!("{session}.{number}")),
    });
    Batch {
        session,
        expected: Sequence::new(expected),
        epoch: epoch(),
        records: records.collect(),
        contents: Vec::new(),
        marks: Vec::new(),
        entries: Vec::new(),
        new_threads: Vec::new(),
        requests: Vec::new(),
        due: None,
    }
}

/// Returns the stored records of a session that was written with [`batch`], up to `head`.
fn stored(session: SessionId, head: u64) -> Vec<StoredRecord> {
    let records = batch(session, 0, head).records.into_iter();
    records
        .map(|record| StoredRecord {
            sequence: record.sequence,
            bytes: record.bytes,
        })
        .collect()
}

fn mismatch(actual: u64) -> WriteError {
    WriteError::Mismatch {
        actual: Sequence::new(actual),
    }
}

fn content(byte: u8, bytes: &'static [u8]) -> Content {
    Content {
        digest: digest(byte),
        bytes: Bytes::from_static(bytes),
    }
}

fn snapshot(sequence: u64, bytes: &'static [u8]) -> Snapshot {
    Snapshot {
        sequence: Sequence::new(sequence),
        bytes: Bytes::from_static(bytes),
    }
}

/// Returns the key of a client's cursor, in a session or outside all sessions.
fn cursor(session: Option<SessionId>) -> CursorKey {
    CursorKey {
        session,
        name: "client".to_owned(),
    }
}

fn request(id: &str, outcome: &'static str, expires: u64) -> RequestRecord {
    RequestRecord {
        scope: "operator|SpawnAgent".to_owned(),
        request_id: id.to_owned(),
        hash: [7; 32],
        outcome: Bytes::from_static(outcome.as_bytes()),
        expires: at(expires),
    }
}

fn key(creator: &str, hash: u8) -> CreationKey {
    CreationKey {
        creator: creator.to_owned(),
        request_id: "same".to_owned(),
        hash: [hash; 32],
        now: at(100),
        expires: at(200),
    }
}

/// Creates a session of one record with this key.
async fn create_with(store: &Store, key: CreationKey, number: u128) -> Result<Created, WriteError> {
    store.create(Some(key), batch(session(number), 0, 1)).await
}

fn existing(number: u128, hash: u8) -> Result<Created, WriteError> {
    Ok(Created::Existing {
        session: session(number),
        hash: [hash; 32],
    })
}

fn not_found<T>(session: SessionId) -> Result<T, WriteError> {
    Err(WriteError::NotFound { session })
}

async fn created(store: &Store, session: SessionId, count: u64) {
    assert_eq!(store.create(None, batch(session, 0, count)).await, Ok(Created::New));
}

async fn read_all(store: &Store, session: SessionId) -> Vec<StoredRecord> {
    store.read(session, Sequence::ZERO, limits::MAX_PAGE).await.unwrap()
}

async fn head_of(store: &Store, session: SessionId) -> Option<u64> {
    store.head(session).await.unwrap().map(|head| head.sequence.get())
}

async fn on_memory<F: Future<Output = ()>>(check: impl FnOnce(Store) -> F) {
    check(Arc::new(MemoryStore::new().unwrap())).await;
}

async fn on_sqlite<F: Future<Output = ()>>(check: impl FnOnce(Store) -> F) {
    let directory = tempfile::tempdir().unwrap();
    check(opened(directory.path()).await).await;
}

async fn on_postgres<F: Future<Output = ()>>(check: impl FnOnce(Store) -> F) {
    let database = Database::create();
    check(opened_postgres(&database).await).await;
}

/// Runs a check through a connection pooler, which can use a different server connection for each transaction.
async fn on_pooled_postgres<F: Future<Output = ()>>(check: impl FnOnce(Store) -> F) {
    let database = Database::create();
    let url = database.pooled_url();
    check(joined(PostgresStore::open(url.parse().unwrap()).await.unwrap(), "one").await).await;
}

/// Runs a check with the isolation level of distributed databases. Transactions that would wait for each other at the
/// default level fail. Each third COMMIT also fails, as it can in a distributed database.
async fn on_serializable_postgres<F: Future<Output = ()>>(check: impl FnOnce(Store) -> F) {
    let database = Database::create();
    database.run(&format!(
        "ALTER DATABASE {} SET default_transaction_isolation = serializable",
        database.name
    ));
    // Creates the tables.
    opened_postgres(&database).await.close().await;
    database.run(
        "CREATE SEQUENCE commits; \
         CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF nextval('commits') % 3 = 0 THEN RAISE 'injected' USING ERRCODE = '40001'; END IF; RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER conflict AFTER UPDATE ON lanes DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION conflict()",
    );
    check(opened_postgres(&database).await).await;
}

async fn opened_postgres(database: &Database) -> Store {
    member_of(database, "one").await
}

async fn member_of(database: &Database, name: &str) -> Store {
    let store = PostgresStore::open(database.url().parse().unwrap()).await.unwrap();
    joined(store, name).await
}

async fn two_on_memory<F: Future<Output = ()>>(check: impl FnOnce([Store; 2]) -> F) {
    let store = MemoryStore::new().unwrap();
    let other = joined(store.another(), "two").await;
    check([joined(store, "one").await, other]).await;
}

async fn two_on_postgres<F: Future<Output = ()>>(check: impl FnOnce([Store; 2]) -> F) {
    let database = Database::create();
    check([member_of(&database, "one").await, member_of(&database, "two").await]).await;
}

async fn opened(directory: &Path) -> Store {
    Arc::new(SqliteStore::open(directory.join("log.db")).await.unwrap())
}

/// The location of an engine's log.
enum Location {
    Directory(TempDir),
    Database(Database),
}

impl Location {
    async fn open(&self) -> Store {
        match self {
            Self::Directory(directory) => opened(directory.path()).await,
            Self::Database(database) => opened_postgres(database).await,
        }
    }

    async fn reopen(&self, store: Store) -> Store {
        store.close().await;
        drop(store);
        self.open().await
    }

    /// Changes the stored data with SQL, bypassing the engine.
    fn change(&self, sql: &str) {
        match self {
            Self::Directory(directory) => change(directory.path(), sql),
            Self::Database(database) => drop(database.run(sql)),
        }
    }
}

fn change(directory: &Path, sql: &str) {
    let connection = rusqlite::Connection::open(directory.join("log.db")).unwrap();
    connection.execute_batch(sql).unwrap();
}

async fn in_directory<F: Future<Output = ()>>(check: impl FnOnce(Location) -> F) {
    check(Location::Directory(tempfile::tempdir().unwrap())).await;
}

async fn in_database<F: Future<Output = ()>>(check: impl FnOnce(Location) -> F) {
    check(Location::Database(Database::create())).await;
}

/// Defines a test of each check in a module.
macro_rules! checks {
    ($engine:ident, $run:ident: $($check:ident),*) => {
        mod $engine {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $check() {
                    super::$run(super::$check).await;
                }
            )*
        }
    };
}

macro_rules! conformance {
    ($($check:ident),* $(,)?) => {
        checks!(memory, on_memory: $($check),*);
        checks!(sqlite, on_sqlite: $($check),*);
        checks!(postgres, on_postgres: $($check),*);
        checks!(postgres_pooled, on_pooled_postgres: $($check),*);
        checks!(postgres_serializable, on_serializable_postgres: $($check),*);
    };
}

macro_rules! membership {
    ($($check:ident),* $(,)?) => {
        checks!(two_memory, two_on_memory: $($check),*);
        checks!(two_postgres, two_on_postgres: $($check),*);
    };
}

macro_rules! durability {
    ($($check:ident),* $(,)?) => {
        checks!(durable_sqlite, in_directory: $($check),*);
        checks!(durable_postgres, in_database: $($check),*);
    };
}

conformance!(
    read_returns_page_after_position,
    page_size_is_limited,
    absent_session_has_no_data,
    batch_with_gap_is_rejected,
    batch_with_wrong_head_writes_nothing,
    rejected_append_does_not_affect_other_sessions,
    keys_may_have_any_character,
    claim_fences_previous_owner,
    creation_key_creates_one_session_per_creator,
    concurrent_creations_with_one_key_create_one_session,
    expired_creation_key_can_be_reused,
    existing_session_is_not_created_again,
    contents_are_stored_once_per_session,
    sessions_are_listed_in_pages,
    due_sessions_are_listed_by_time,
    requests_are_stored_with_their_batch,
    expired_requests_are_deleted_on_demand,
    oversized_batch_is_rejected_as_a_whole,
    newest_snapshot_is_kept,
    cursors_are_set_and_removed,
    deleted_session_leaves_no_data,
    marked_records_are_found_by_kind_and_thread,
    log_is_compacted_only_up_to_its_snapshot,
    evidence_is_retained_until_it_expires,
    summary_is_valid_for_its_record_only,
    transcript_entries_are_numbered_and_stored_once,
    records_add_entries_to_transcripts,
    transcripts_are_read_by_kind_and_position,
    long_texts_of_transcripts_are_read_by_digest,
    concurrent_writers_keep_order_of_each_session,
    closed_store_rejects_writes,
);

membership!(
    session_of_living_member_is_not_claimed,
    session_of_removed_member_is_claimed,
    released_session_is_claimed,
    handed_over_session_belongs_to_its_new_owner,
    writes_of_former_owner_are_rejected,
    leaving_member_claims_nothing,
    beat_shows_all_members,
    texts_of_members_may_have_any_character,
    members_agree_on_the_first_proposal,
    database_is_described,
    member_that_beats_is_not_removed,
    older_member_with_same_name_is_removed,
    due_sessions_of_other_members_are_omitted,
);

durability!(
    data_survives_reopening,
    dropped_store_flushes_accepted_writes,
    changed_record_is_reported_as_corrupt,
    missing_record_is_reported_as_corrupt,
    full_transcript_drops_oldest_results_first,
    texts_beyond_session_limit_are_omitted,
    damage_outside_records_is_reported,
);
