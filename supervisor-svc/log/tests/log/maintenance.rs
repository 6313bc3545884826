//! Offline work on a data directory: damage is found and named, and a backup is a complete, separate log.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use bytes::Bytes;
use supervisor_core::{
    content::ContentRef,
    event::{BlockKind, BlockRef, Event, PromptExtent, SessionEvent, ThreadEvent},
    evolve::{evolve, open},
    ids::{Digest, Epoch, Generation, InputNumber, Sequence, SessionId, Turn},
    principal::Actor,
    settings::{PromptLog, Settings},
    time::UnixMillis,
};
use supervisor_log::{
    codec::{decode_record, encode_record, encode_snapshot},
    maintenance::{self, Backup, BackupDir, BackupState, Fault, MaintenanceError, Problem, Progress, Report},
    store::{
        Batch, Content, Created, DATABASE, EventStore as _, Evidence, NewRecord, ReadError, Side, Snapshot,
        SqliteStore, StoredRecord,
    },
};
use svc_kit::{
    paths::{DataDir, PathsError},
    thread_token::{KEYS_FILE, TokenKeys},
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::samples::{self, some_settings, thread};

fn session() -> SessionId {
    samples::session(1)
}

fn opened(prompt_log: PromptLog) -> Event {
    let settings = Settings {
        prompt_log,
        ..some_settings()
    };
    Event::Session(SessionEvent::Opened(Box::new(settings)))
}

fn about_thread(event: ThreadEvent) -> Event {
    Event::Thread(thread(2), event)
}

fn reference(text: &'static str) -> ContentRef {
    ContentRef {
        digest: Digest::of(text.as_bytes()),
        size: text.len() as u64,
        preview: String::new(),
    }
}

fn content(text: &'static str) -> Content {
    Content {
        digest: Digest::of(text.as_bytes()),
        bytes: Bytes::from_static(text.as_bytes()),
    }
}

fn input(text: &'static str) -> Event {
    about_thread(ThreadEvent::InputQueued {
        number: InputNumber::new(1),
        input: reference(text),
        from: Actor::Service,
        steers: false,
        result_repairs: None,
    })
}

fn prompted(text: &'static str) -> Event {
    about_thread(ThreadEvent::TurnDispatched {
        turn: Turn::new(1),
        generation: Generation::new(1),
        inputs: Vec::new(),
        blocks: vec![BlockRef {
            kind: BlockKind::Task,
            content: reference(text),
        }],
        extent: PromptExtent::Full,
        mail_up_to: Sequence::ZERO,
        whole: None,
    })
}

fn noted() -> Event {
    about_thread(ThreadEvent::NoteSet("a note".to_owned()))
}

/// Returns the first record of a session that stores its prompts.
fn first() -> NewRecord {
    encoded(1, opened(PromptLog::Full))
}

fn encoded(sequence: u64, event: Event) -> NewRecord {
    recorded_in(sequence, event, false)
}

/// Returns a record whose event refers to contents that were omitted, because the session had no space for them.
fn encoded_when_full(sequence: u64, event: Event) -> NewRecord {
    recorded_in(sequence, event, true)
}

fn recorded_in(sequence: u64, event: Event, contents_left_out: bool) -> NewRecord {
    let mut recorded = samples::at(sequence, event);
    recorded.metadata.contents_left_out = contents_left_out;
    NewRecord {
        sequence: Sequence::new(sequence),
        bytes: encode_record(session(), &recorded).unwrap(),
    }
}

fn batch(records: Vec<NewRecord>, contents: Vec<Content>) -> Batch {
    Batch {
        session: session(),
        expected: Sequence::ZERO,
        epoch: Epoch::new(1),
        records,
        contents,
        marks: Vec::new(),
        entries: Vec::new(),
        new_threads: Vec::new(),
        requests: Vec::new(),
        due: None,
    }
}

/// Returns a data directory with one session of these records and contents, and its store.
async fn written(records: Vec<NewRecord>, contents: Vec<Content>) -> (TempDir, SqliteStore) {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join(DATABASE)).await.unwrap();
    assert_eq!(store.create(None, batch(records, contents)).await, Ok(Created::New));
    (directory, store)
}

/// Returns the snapshot of a session with these records.
fn snapshot_of(records: &[NewRecord]) -> Snapshot {
    let mut recorded = records
        .iter()
        .map(|record| decode_record(session(), &record.bytes).unwrap());
    let mut state = open(session(), &recorded.next().unwrap()).unwrap();
    recorded.for_each(|recorded| evolve(&mut state, &recorded));
    Snapshot {
        sequence: state.sequence,
        bytes: encode_snapshot(&state),
    }
}

/// Returns an undamaged log with one session: three records, one content, a snapshot.
async fn sound() -> (TempDir, SqliteStore) {
    let records = vec![first(), encoded(2, input("find it")), encoded(3, noted())];
    let snapshot = snapshot_of(&records);
    let (directory, store) = written(records, vec![content("find it")]).await;
    store.put_snapshot(session(), snapshot).await.unwrap();
    (directory, store)
}

async fn close(store: SqliteStore) {
    store.close().await;
    drop(store);
}

fn change(directory: &Path, sql: &str) {
    let connection = rusqlite::Connection::open(directory.join(DATABASE)).unwrap();
    connection.execute_batch(sql).unwrap();
}

fn verified(directory: &Path) -> Report {
    maintenance::verify(directory, &mut |_| {}).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn sound_log_is_verified_next_to_its_writer() {
    let (directory, store) = sound().await;
    let mut reported = Vec::new();
    let report = maintenance::verify(directory.path(), &mut |progress| reported.push(progress)).unwrap();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!((report.sessions, report.events, report.contents), (1, 3, 1));
    let records = store.read(session(), Sequence::ZERO, 10).await.unwrap();
    let bytes: usize = records.iter().map(|record| record.bytes.len()).sum();
    assert_eq!(report.bytes, (bytes + "find it".len()) as u64);
    assert_eq!(reported, [Progress::Pages, Progress::Sessions { checked: 1, of: 1 }]);
}

#[tokio::test]
async fn verify_names_damaged_records() {
    let named = Digest::of(b"find it");
    let at = Sequence::new;
    let damages = [
        (
            "UPDATE records SET bytes = x'00' WHERE sequence = 2",
            Problem::Changed(at(2)),
            1,
        ),
        ("DELETE FROM records WHERE sequence = 1", Problem::Missing(at(1)), 1),
        ("DELETE FROM records WHERE sequence > 1", Problem::Missing(at(2)), 2),
        (
            "UPDATE sessions SET head = 2",
            Problem::Beyond {
                found: at(3),
                head: at(2),
            },
            1,
        ),
        (
            "DELETE FROM contents",
            Problem::NoContent {
                digest: named,
                sequence: at(2),
            },
            1,
        ),
        (
            "UPDATE contents SET bytes = x'00'",
            Problem::SideChanged(Side::Content(named)),
            1,
        ),
        (
            "UPDATE snapshots SET bytes = x'00'",
            Problem::SideChanged(Side::Snapshot),
            1,
        ),
        (
            "UPDATE sessions SET oldest = 1; DELETE FROM snapshots; DELETE FROM records WHERE sequence = 1",
            Problem::NoSnapshot { oldest: at(1) },
            1,
        ),
    ];
    for (sql, first, problems) in damages {
        let (directory, store) = sound().await;
        close(store).await;
        change(directory.path(), sql);
        let report = verified(directory.path());
        let fault = Fault {
            session: session(),
            first,
            problems,
        };
        assert_eq!(report.faults, [fault], "{sql}");
        assert!(!report.is_sound() && report.damage.is_empty(), "{sql}");
    }
}

#[tokio::test]
async fn compacted_session_is_sound_with_retained_records() {
    let (directory, store) = sound().await;
    assert_eq!(
        store.compact(session(), Sequence::new(2), Evidence::default()).await,
        Ok(2)
    );
    let report = verified(directory.path());
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(report.events, 1);

    let records = vec![first(), encoded(2, noted()), encoded(3, noted())];
    let snapshot = snapshot_of(&records);
    let (directory, store) = written(records, Vec::new()).await;
    store.put_snapshot(session(), snapshot).await.unwrap();
    close(store).await;
    // Removes only record 1, as a compaction does if record 2 is marked.
    change(
        directory.path(),
        "UPDATE sessions SET oldest = 2; DELETE FROM records WHERE sequence = 1",
    );
    let report = verified(directory.path());
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(report.events, 2);
}

#[tokio::test]
async fn compacted_session_requires_readable_snapshot() {
    let (directory, store) = sound().await;
    let unreadable = Snapshot {
        sequence: Sequence::new(3),
        bytes: Bytes::from_static(b"state"),
    };
    store.put_snapshot(session(), unreadable).await.unwrap();
    // Without compaction, an unreadable snapshot is not a problem, because the log has all records.
    assert!(verified(directory.path()).is_sound());
    assert_eq!(
        store.compact(session(), Sequence::new(2), Evidence::default()).await,
        Ok(2)
    );
    let report = verified(directory.path());
    let [fault] = &report.faults[..] else {
        panic!("{report:?}")
    };
    assert!(matches!(fault.first, Problem::UnreadableSnapshot { .. }), "{fault:?}");
}

#[tokio::test]
async fn verify_finds_damage_with_valid_checksums() {
    let false_digest = Digest::from_bytes([7; 32]);
    let false_content = Content {
        digest: false_digest,
        bytes: Bytes::from_static(b"other"),
    };
    let newer = NewRecord {
        sequence: Sequence::new(2),
        // Field 1, the version, is 9.
        bytes: Bytes::from_static(&[0x08, 0x09]),
    };
    let misplaced = NewRecord {
        sequence: Sequence::new(2),
        ..encoded(5, noted())
    };
    let longer = about_thread(ThreadEvent::InputQueued {
        number: InputNumber::new(1),
        input: ContentRef {
            size: 99,
            ..reference("find it")
        },
        from: Actor::Service,
        steers: false,
        result_repairs: None,
    });
    let of_content = format!("content {false_digest} does not match its digest");
    let of_size = format!(
        "content {} has 7 bytes; record 2 contains the size 99",
        Digest::of(b"find it")
    );
    for (records, contents, expected) in [
        (
            vec![encoded(1, noted())],
            vec![],
            "its first record does not open the session",
        ),
        (vec![first(), newer], vec![], "record 2: UPGRADE_REQUIRED"),
        (
            vec![first(), misplaced],
            vec![],
            "record 2 contains the number of record 5",
        ),
        (vec![first()], vec![false_content], &of_content),
        (vec![first(), encoded(2, longer)], vec![content("find it")], &of_size),
    ] {
        let (directory, _store) = written(records, contents).await;
        let report = verified(directory.path());
        let said = report.faults.first().unwrap().first.to_string();
        assert!(said.starts_with(expected), "{said} instead of {expected}");
    }
}

#[tokio::test]
async fn prompt_blocks_are_required_only_if_stored() {
    for (prompt_log, is_sound, not_kept) in [
        (PromptLog::Full, false, 0),
        (PromptLog::Hashes, true, 1),
        (PromptLog::Off, true, 1),
    ] {
        let records = vec![encoded(1, opened(prompt_log)), encoded(2, prompted("a prompt"))];
        let (directory, _store) = written(records, Vec::new()).await;
        let report = verified(directory.path());
        assert_eq!((report.is_sound(), report.not_kept), (is_sound, not_kept), "{report:?}");
    }
}

#[tokio::test]
async fn verify_accepts_omitted_contents() {
    let full = || encoded_when_full(2, prompted("a prompt"));
    for (records, contents, is_sound, left_out) in [
        (vec![first(), full()], vec![], true, 1),
        // The content may be stored anyway, because the session already had the content, or stored the content later
        // when it had space again.
        (vec![first(), full()], vec![content("a prompt")], true, 0),
        (
            vec![first(), full(), encoded(3, prompted("a prompt"))],
            vec![],
            false,
            0,
        ),
        (vec![first(), full(), encoded(3, input("find it"))], vec![], false, 1),
    ] {
        let (directory, _store) = written(records, contents).await;
        let report = verified(directory.path());
        assert_eq!((report.is_sound(), report.left_out), (is_sound, left_out), "{report:?}");
        assert_eq!(report.not_kept, 0);
    }
}

#[tokio::test]
async fn damaged_pages_are_found() {
    let (directory, store) = sound().await;
    close(store).await;
    let path = directory.path().join(DATABASE);
    let connection = rusqlite::Connection::open(&path).unwrap();
    let page = "SELECT rootpage FROM sqlite_schema WHERE name = 'records'";
    let page: u32 = connection.query_row(page, [], |row| row.get(0)).unwrap();
    let page = usize::try_from(page).unwrap();
    drop(connection);
    let mut bytes = fs::read(&path).unwrap();
    bytes[(page - 1) * 4096..page * 4096].fill(0xff);
    fs::write(&path, bytes).unwrap();
    let report = verified(directory.path());
    assert!(!report.is_sound() && !report.damage.is_empty(), "{report:?}");
}

#[tokio::test]
async fn events_before_corrupt_record_are_read() {
    let (directory, store) = sound().await;
    let numbers = |after: u64| -> Vec<u64> {
        maintenance::events(directory.path(), session(), Sequence::new(after))
            .unwrap()
            .map(|event| event.unwrap().sequence)
            .collect()
    };
    assert_eq!(numbers(0), [1, 2, 3]);
    assert_eq!(numbers(2), [3]);
    assert!(numbers(3).is_empty());

    close(store).await;
    change(directory.path(), "UPDATE records SET bytes = x'00' WHERE sequence = 3");
    let events: Vec<_> = maintenance::events(directory.path(), session(), Sequence::ZERO)
        .unwrap()
        .collect();
    assert_eq!(events.len(), 3, "two events and the error");
    assert!(events[..2].iter().all(Result::is_ok));
    assert!(matches!(
        &events[2],
        Err(MaintenanceError::Read(ReadError::Corrupt { sequence, .. })) if *sequence == Sequence::new(3)
    ));
}

#[tokio::test]
async fn absent_log_or_session_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let absent = maintenance::verify(directory.path(), &mut |_| {}).unwrap_err();
    assert!(matches!(&absent, MaintenanceError::NoLog { .. }), "{absent}");
    assert!(maintenance::compact(directory.path()).is_err());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is created");

    let (directory, _store) = sound().await;
    let other = samples::session(9);
    assert!(matches!(
        maintenance::events(directory.path(), other, Sequence::ZERO),
        Err(MaintenanceError::SessionNotFound(session)) if session == other
    ));
}

/// The engine would delete the write-ahead log of an empty database, and with it the newest records.
#[tokio::test]
async fn empty_database_with_write_ahead_log_is_rejected() {
    let (directory, store) = sound().await;
    let (database, log) = (
        directory.path().join(DATABASE),
        directory.path().join(format!("{DATABASE}-wal")),
    );
    let kept = tempfile::tempdir().unwrap();
    let copy = kept.path().join(DATABASE);
    fs::copy(&log, kept.path().join(format!("{DATABASE}-wal"))).unwrap();
    drop(store);
    let bytes = fs::metadata(kept.path().join(format!("{DATABASE}-wal"))).unwrap().len();
    assert!(bytes > 0 && fs::metadata(&database).unwrap().len() > 0);
    fs::write(&copy, "").unwrap();
    let refused = SqliteStore::open(&copy).await.err().unwrap().to_string();
    assert!(
        refused.contains("\"troupe.db-wal\" shows that the data directory has been used"),
        "{refused}"
    );
    let unread = maintenance::verify(kept.path(), &mut |_| {}).unwrap_err().to_string();
    assert!(
        unread.contains("the database is damaged (the file is empty); restore a backup"),
        "{unread}"
    );
    let left = fs::metadata(kept.path().join(format!("{DATABASE}-wal"))).unwrap().len();
    assert_eq!(left, bytes, "nothing is deleted");
}

#[tokio::test]
async fn backup_is_complete_private_and_separate() {
    let (directory, store) = sound().await;
    let keys = TokenKeys::load_or_create(directory.path()).unwrap();
    let parent = tempfile::tempdir().unwrap();
    let destination = parent.path().join("monday");
    let made = backup(directory.path(), &destination).unwrap();
    assert!(made.has_keys);

    assert_eq!(fs::read_dir(&destination).unwrap().count(), 2);
    assert_eq!(mode(&destination), 0o700);
    for name in [DATABASE, KEYS_FILE] {
        assert_eq!(mode(&destination.join(name)), 0o600, "{name}");
    }
    assert_eq!(fs::metadata(destination.join(DATABASE)).unwrap().len(), made.bytes);
    assert_eq!(verified(&destination), verified(directory.path()));

    // The writer continues, and the backup stays unchanged.
    let mut later = batch(vec![encoded(4, noted())], Vec::new());
    later.expected = Sequence::new(3);
    store.append(later).await.unwrap();
    let all = store.read(session(), Sequence::ZERO, 10).await.unwrap();
    let one = restored(&destination, &parent.path().join("one")).await;
    let two = restored(&destination, &parent.path().join("two")).await;
    for restored in [&one, &two] {
        let read: Vec<StoredRecord> = restored.read(session(), Sequence::ZERO, 10).await.unwrap();
        assert_eq!(read, all[..3]);
        assert_ne!(restored.log_id(), store.log_id());
    }
    assert_ne!(one.log_id(), two.log_id(), "each restored log has a new id");

    let copied = TokenKeys::load_or_create(&destination).unwrap();
    let thread = svc_kit::identity::ThreadPrincipal {
        session: Uuid::from_u128(1),
        thread: Uuid::from_u128(2),
        generation: 1,
    };
    assert_eq!(copied.verify(&keys.mint(&thread)), Some(thread));
}

fn backup(data_dir: &Path, destination: &Path) -> Result<Backup, MaintenanceError> {
    maintenance::backup(data_dir, destination, &CancellationToken::new())
}

/// Restores a backup and opens its store.
async fn restored(backup: &Path, into: &Path) -> SqliteStore {
    maintenance::restore(backup, into, false, at(1)).unwrap();
    SqliteStore::open(into.join(DATABASE)).await.unwrap()
}

/// Returns the time of a backup with the name `19700101T00000NZ`.
fn at(seconds: u64) -> UnixMillis {
    UnixMillis::new(seconds * 1_000)
}

fn create(backups: &BackupDir, data_dir: &TempDir, seconds: u64) -> Result<Backup, MaintenanceError> {
    backups.create(data_dir.path(), at(seconds), &CancellationToken::new())
}

/// Returns the names and states of the backups in a directory.
fn listed(directory: &Path) -> Vec<(String, BackupState)> {
    let stored = maintenance::backups(directory).unwrap().into_iter();
    let named = stored.map(|stored| {
        let name = stored.path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, stored.state)
    });
    named.collect()
}

#[tokio::test]
async fn prune_keeps_newest_complete_backups() {
    let (directory, _store) = sound().await;
    let parent = tempfile::tempdir().unwrap();
    let backups = BackupDir::open(parent.path(), directory.path()).unwrap();
    for time in [1, 2, 3, 8] {
        assert!(!create(&backups, &directory, time).unwrap().has_keys);
    }
    assert_eq!(backups.newest(at(9)).unwrap(), Some(at(8)));
    // Backups from the future are ignored.
    assert_eq!(backups.newest(at(3)).unwrap(), Some(at(3)));
    // Directories with other names or files are never removed.
    fs::create_dir(parent.path().join("monday")).unwrap();
    let other = parent.path().join("19700101T000000Z");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("mine"), "").unwrap();
    backups.prune(2, at(3)).unwrap();
    let complete = |name: &str| (name.to_owned(), BackupState::Complete);
    let expected = ["19700101T000002Z", "19700101T000003Z", "19700101T000008Z"].map(complete);
    assert_eq!(listed(parent.path()), expected);
    assert!(parent.path().join("monday").exists() && other.join("mine").exists());
}

#[tokio::test]
async fn cancelled_backup_leaves_nothing() {
    let (directory, _store) = sound().await;
    let parent = tempfile::tempdir().unwrap();
    let backups = BackupDir::open(parent.path(), directory.path()).unwrap();
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let error = backups.create(directory.path(), at(1), &cancelled).unwrap_err();
    assert!(matches!(error, MaintenanceError::Cancelled), "{error}");
    assert_eq!(listed(parent.path()), []);
}

#[tokio::test]
async fn interrupted_backup_does_not_count() {
    let (directory, _store) = sound().await;
    let parent = tempfile::tempdir().unwrap();
    let backups = BackupDir::open(parent.path(), directory.path()).unwrap();
    let interrupted = parent.path().join("19700101T000002Z.unfinished");
    fs::create_dir(&interrupted).unwrap();
    fs::write(interrupted.join("troupe.db.unfinished"), "half").unwrap();
    assert_eq!(backups.newest(at(9)).unwrap(), None);
    let error = maintenance::restore(parent.path(), &directory.path().join("new"), false, at(9)).unwrap_err();
    assert!(matches!(error, MaintenanceError::NoBackup { .. }), "{error}");
    create(&backups, &directory, 3).unwrap();
    assert_eq!(
        listed(parent.path()),
        [("19700101T000003Z".to_owned(), BackupState::Complete)]
    );
}

#[tokio::test]
async fn backup_of_damaged_session_does_not_replace_complete_ones() {
    let (directory, store) = sound().await;
    close(store).await;
    let parent = tempfile::tempdir().unwrap();
    let backups = BackupDir::open(parent.path(), directory.path()).unwrap();
    create(&backups, &directory, 1).unwrap();
    change(directory.path(), "UPDATE records SET bytes = x'00' WHERE sequence = 2");
    for time in 2..=3 {
        let error = create(&backups, &directory, time).unwrap_err().to_string();
        assert!(error.contains("record 2 does not match its checksum"), "{error}");
    }
    let expected = [
        ("19700101T000001Z".to_owned(), BackupState::Complete),
        ("19700101T000003Z.faulty".to_owned(), BackupState::Faulty),
    ];
    assert_eq!(listed(parent.path()), expected);
    assert_eq!(backups.newest(at(9)).unwrap(), Some(at(1)));
}

#[tokio::test]
async fn unusable_backup_directory_is_rejected() {
    let (directory, _store) = sound().await;
    let parent = tempfile::tempdir().unwrap();
    let open = |path: &Path| BackupDir::open(path, directory.path());
    let missing = open(&parent.path().join("missing")).unwrap_err();
    assert!(matches!(missing, MaintenanceError::BackupDir { .. }), "{missing}");
    let inside = open(directory.path()).unwrap_err();
    assert!(matches!(inside, MaintenanceError::BackupDirInside { .. }), "{inside}");
    let first = open(parent.path()).unwrap();
    let second = open(parent.path()).unwrap_err();
    assert!(matches!(second, MaintenanceError::BackupDirInUse { .. }), "{second}");
    drop(first);
    open(parent.path()).unwrap();
}

#[tokio::test]
async fn restore_replaces_log_only_on_request() {
    let (directory, store) = sound().await;
    TokenKeys::load_or_create(directory.path()).unwrap();
    close(store).await;
    let parent = tempfile::tempdir().unwrap();
    let backups = BackupDir::open(parent.path(), directory.path()).unwrap();
    create(&backups, &directory, 1).unwrap();
    let keys = fs::read_to_string(directory.path().join(KEYS_FILE)).unwrap();
    change(directory.path(), "DELETE FROM records WHERE sequence = 3");
    assert!(!verified(directory.path()).is_sound());

    let restore = |replace| maintenance::restore(parent.path(), directory.path(), replace, at(9));
    let refused = restore(false).unwrap_err();
    assert!(matches!(refused, MaintenanceError::DataDirUsed { .. }), "{refused}");
    let service = DataDir::open(directory.path()).unwrap();
    let refused = restore(true).unwrap_err();
    assert!(matches!(refused, MaintenanceError::Locked(_)), "{refused}");
    drop(service);
    let done = restore(true).unwrap();
    let aside = directory.path().join("replaced-19700101T000009Z");
    assert_eq!((done.sessions, done.replaced), (1, Some(aside.clone())));
    assert!(verified(directory.path()).is_sound() && !verified(&aside).is_sound());
    for kept in [directory.path(), &aside] {
        assert_eq!(fs::read_to_string(kept.join(KEYS_FILE)).unwrap(), keys);
    }
    assert!(!directory.path().join("restoring").exists());
}

#[tokio::test]
async fn damaged_backup_is_not_restored() {
    let (directory, _store) = sound().await;
    let parent = tempfile::tempdir().unwrap();
    let monday = parent.path().join("monday");
    backup(directory.path(), &monday).unwrap();
    change(&monday, "UPDATE records SET bytes = x'00' WHERE sequence = 2");
    let data = parent.path().join("data");
    let refused = maintenance::restore(&monday, &data, false, at(9)).unwrap_err();
    assert!(
        matches!(refused, MaintenanceError::Unsound { sessions: 1, .. }),
        "{refused}"
    );
    assert!(!data.join(DATABASE).exists() && !data.join("restoring").exists());
}

#[tokio::test]
async fn log_records_the_release_that_wrote_it() {
    let (directory, store) = sound().await;
    let is_other = || maintenance::is_of_other_release(directory.path()).unwrap();
    assert!(!is_other());
    close(store).await;
    change(directory.path(), "UPDATE meta SET value = x'30' WHERE key = 'release'");
    assert!(is_other());
    close(SqliteStore::open(directory.path().join(DATABASE)).await.unwrap()).await;
    assert!(!is_other());
}

#[tokio::test]
async fn backup_does_not_overwrite_files() {
    let (directory, _store) = sound().await;
    let destination = tempfile::tempdir().unwrap();
    let other = destination.path().join("other");
    fs::write(&other, "mine").unwrap();
    let refused = backup(directory.path(), destination.path()).unwrap_err();
    assert!(matches!(&refused, MaintenanceError::Occupied { .. }), "{refused}");
    assert_eq!(fs::read_dir(destination.path()).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(other).unwrap(), "mine");

    // Without keys to copy, `has_keys` is false.
    let empty = tempfile::tempdir().unwrap();
    assert!(!backup(directory.path(), empty.path()).unwrap().has_keys);
}

#[tokio::test]
async fn failed_backup_leaves_nothing() {
    let (directory, _store) = sound().await;
    fs::write(directory.path().join(KEYS_FILE), "no keys").unwrap();
    let destination = tempfile::tempdir().unwrap();
    let failed = backup(directory.path(), destination.path()).unwrap_err();
    assert!(matches!(&failed, MaintenanceError::Keys(_)), "{failed}");
    assert_eq!(fs::read_dir(destination.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn compaction_frees_space_and_needs_exclusive_access() {
    let large: &'static str = "x".repeat(4 * 1024 * 1024).leak();
    let records = vec![first(), encoded(2, input(large))];
    let (directory, store) = written(records, vec![content(large)]).await;
    assert_eq!(store.delete_session(session(), Vec::new()).await, Ok(true));
    close(store).await;

    let service = DataDir::open(directory.path()).unwrap();
    let refused = maintenance::compact(directory.path()).unwrap_err();
    let own = std::process::id();
    assert!(
        matches!(&refused, MaintenanceError::Locked(PathsError::InUse { pid: Some(pid), .. }) if *pid == own),
        "{refused}"
    );
    assert!(refused.to_string().contains(&format!("(process {own})")), "{refused}");
    drop(service);

    let done = maintenance::compact(directory.path()).unwrap();
    assert!(done.before > 4 * 1024 * 1024 && done.after < 1024 * 1024, "{done:?}");
    assert!(verified(directory.path()).is_sound());
}
