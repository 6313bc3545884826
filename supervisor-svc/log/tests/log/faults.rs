//! Disks that are full, read-only or broken: errors are clear, no acknowledged write is lost, no rejected write
//! appears, and the store recovers as soon as it can.
//!
//! The faults are real. A test that needs a small disk runs again in a process with its own mount namespace, in which a
//! small tmpfs is the disk. If the system does not allow a mount namespace (neither root nor user namespaces), the test
//! prints a message, and fails if `TROUPE_CI_STRICT=1`. Partial writes are caused by a limit on the size of files,
//! which needs no privileges.
#![allow(clippy::print_stderr, reason = "a test says what it could not check")]

use std::{
    env,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use bytes::Bytes;
use supervisor_core::ids::{Epoch, Sequence, SessionId, ThreadId};
use supervisor_log::store::{
    Batch, Content, Created, EventStore, NewRecord, OpenError, Refusal, SqliteStore, StoredRecord, WriteError, limits,
};
use uuid::Uuid;

use crate::samples::session;

/// Environment variable with the disk or directory of a test that runs in a subprocess.
const PLACE: &str = "TROUPE_TEST_FAULTS";

/// A number of appends that exceeds the space of all disks and limits in these tests.
const MANY: u64 = 10_000;

/// Returns a batch of one record after `expected`, with its own content.
fn batch(session: SessionId, expected: u64, content_bytes: usize) -> Batch {
    let number = expected + 1;
    let bytes = Bytes::from(format!("{number:08}").repeat(content_bytes / 8));
    Batch {
        session,
        expected: Sequence::new(expected),
        epoch: Epoch::new(1),
        records: vec![NewRecord {
            sequence: Sequence::new(number),
            bytes: Bytes::from(format!("record {number}")),
        }],
        contents: vec![Content::new(bytes)],
        marks: Vec::new(),
        entries: Vec::new(),
        new_threads: Vec::new(),
        requests: Vec::new(),
        due: None,
    }
}

/// Returns the batch of a spawn, which starts a thread.
fn spawning(expected: u64) -> Batch {
    Batch {
        new_threads: vec![ThreadId::from_uuid(Uuid::from_u128(77))],
        ..batch(session(1), expected, 8)
    }
}

async fn open(directory: &Path) -> SqliteStore {
    SqliteStore::open(directory.join("log.db")).await.unwrap()
}

async fn close(store: SqliteStore) {
    store.close().await;
    drop(store);
}

/// Appends until an append fails. Returns the acknowledged head and the error.
async fn fill(store: &SqliteStore, mut head: u64, content_bytes: usize) -> (u64, WriteError) {
    while head < MANY {
        match store.append(batch(session(1), head, content_bytes)).await {
            Ok(()) => head += 1,
            Err(error) => return (head, error),
        }
    }
    panic!("{MANY} appends did not fail");
}

/// Checks that the first session has exactly the records up to `head`, with their contents.
async fn assert_has_exactly(store: &SqliteStore, head: u64, content_bytes: usize) {
    assert_eq!(
        store.head(session(1)).await.unwrap().unwrap().sequence,
        Sequence::new(head)
    );
    let mut read: Vec<StoredRecord> = Vec::new();
    loop {
        let after = Sequence::new(read.len() as u64);
        let page = store.read(session(1), after, limits::MAX_PAGE).await.unwrap();
        if page.is_empty() {
            break;
        }
        read.extend(page);
    }
    assert_eq!(read.len() as u64, head);
    for expected in 0..head {
        let written = batch(session(1), expected, content_bytes);
        let content = &written.contents[0];
        let found = store.content(session(1), content.digest).await.unwrap();
        assert_eq!(
            found.as_ref(),
            Some(&content.bytes),
            "content of record {}",
            expected + 1
        );
    }
}

fn block_on(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(test);
}

/// Returns the disk or directory of the test if this process is a subprocess of [`run_in_subprocess`].
fn test_directory() -> Option<PathBuf> {
    env::var_os(PLACE).map(PathBuf::from)
}

/// Runs one test of this program in a subprocess. Runs the line `shell` first.
fn run_in_subprocess(prefix: &[&str], shell: &str, test: &str, directory: &Path) -> Output {
    let mut words = prefix.iter().copied().chain(["env"]);
    let mut command = Command::new(words.next().unwrap());
    command
        .args(words)
        .arg(format!("{PLACE}={}", directory.display()))
        .args(["sh", "-c", &format!("{shell} && exec \"$@\""), "sh"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", &format!("faults::{test}"), "--nocapture"]);
    command.output().unwrap()
}

fn assert_passed(output: &Output) {
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// Commands that start a process with its own mount namespace: as root, in a user namespace, or with sudo. The command
/// with sudo is used only if `TROUPE_CI_STRICT=1`.
const NAMESPACES: [&[&str]; 3] = [
    &["unshare", "--mount"],
    &["unshare", "--user", "--map-root-user", "--mount"],
    &["sudo", "-n", "unshare", "--mount"],
];

/// Runs one test in a subprocess with a separate disk of this size.
fn run_on_small_disk(test: &str, mebibytes: u32) {
    let is_strict = env::var_os("TROUPE_CI_STRICT").is_some_and(|strict| strict == "1");
    let directory = tempfile::tempdir().unwrap();
    let mount = format!("mount -t tmpfs -o size={mebibytes}m,mode=700 none \"${PLACE}\"");
    let ways = if is_strict { &NAMESPACES[..] } else { &NAMESPACES[..2] };
    let works = |way: &&&[&str]| {
        let probe = Command::new(way[0])
            .args(&way[1..])
            .arg("env")
            .arg(format!("{PLACE}={}", directory.path().display()))
            .args(["sh", "-c", &mount])
            .output();
        probe.is_ok_and(|probe| probe.status.success())
    };
    match ways.iter().find(works) {
        Some(way) => assert_passed(&run_in_subprocess(way, &mount, test, directory.path())),
        None if is_strict => panic!("{test} needs a mount namespace, and this system allows none"),
        None => eprintln!("not checked: {test} needs a mount namespace, and this system allows none"),
    }
}

/// Creates a file that takes all free space.
fn fill_disk(path: &Path) {
    let mut ballast = File::create(path).unwrap();
    for size in [1024 * 1024, 4096, 1] {
        let block = vec![0; size];
        let full = loop {
            if let Err(error) = ballast.write_all(&block) {
                break error;
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::StorageFull, "{full}");
    }
}

const FULL: WriteError = WriteError::Refused(Refusal::DiskFull);

#[test]
fn write_ahead_log_stays_short_under_load() {
    /// Each append writes ten pages. Together the appends write several times the maximum size of the write-ahead log.
    const APPENDS: u64 = 1_600;
    /// Maximum size of the write-ahead log: the size of the reserve.
    const LONGEST: u64 = 16 * 1024 * 1024;
    block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let length = || fs::metadata(directory.path().join("log.db-wal")).map_or(0, |file| file.len());
        let store = open(directory.path()).await;
        store.create(None, batch(session(1), 0, 8)).await.unwrap();
        for head in 1..APPENDS {
            store.append(batch(session(1), head, 40_000)).await.unwrap();
            assert!(length() <= LONGEST, "{} bytes after {head} appends", length());
        }
        close(store).await;
        assert_eq!(length(), 0, "length at the next start");
    });
}

#[test]
fn full_disk_rejects_writes_and_has_space_for_closing() {
    const CONTENT: usize = 16 * 1024;
    let Some(disk) = test_directory() else {
        return run_on_small_disk("full_disk_rejects_writes_and_has_space_for_closing", 96);
    };
    block_on(async {
        let store = open(&disk).await;
        let reserve = disk.join("reserve");
        assert_eq!(
            store.create(None, batch(session(1), 0, CONTENT)).await,
            Ok(Created::New)
        );
        assert!(reserve.exists());
        let ballast = disk.join("ballast");
        fill_disk(&ballast);

        let (head, error) = fill(&store, 1, CONTENT).await;
        assert_eq!(error, FULL);
        assert!(!reserve.exists(), "the reserve is released");

        // The reserve is for events that end something, not for events that start something.
        assert_eq!(store.append(spawning(head)).await, Err(FULL));
        assert_eq!(store.create(None, batch(session(2), 0, 8)).await, Err(FULL));
        assert_eq!(store.head(session(2)).await, Ok(None));
        for closing in 0..50 {
            assert_eq!(store.append(batch(session(1), head + closing, CONTENT)).await, Ok(()));
        }
        let head = head + 50;
        assert_has_exactly(&store, head, CONTENT).await;

        // The store recovers and creates the reserve again as soon as there is space.
        fs::remove_file(&ballast).unwrap();
        assert_eq!(store.create(None, batch(session(2), 0, 8)).await, Ok(Created::New));
        assert!(reserve.exists());
        assert_eq!(store.append(batch(session(1), head, CONTENT)).await, Ok(()));

        // A replay returns exactly the acknowledged records.
        close(store).await;
        assert_has_exactly(&open(&disk).await, head + 1, CONTENT).await;
    });
}

#[test]
fn store_opens_on_full_disk_and_has_space_for_closing() {
    let Some(disk) = test_directory() else {
        return run_on_small_disk("store_opens_on_full_disk_and_has_space_for_closing", 64);
    };
    block_on(async {
        let store = open(&disk).await;
        assert_eq!(store.create(None, batch(session(1), 0, 8)).await, Ok(Created::New));
        close(store).await;
        fill_disk(&disk.join("ballast"));

        let store = open(&disk).await;
        let (head, error) = fill(&store, 1, 8).await;
        assert_eq!(error, FULL);
        assert_eq!(store.append(batch(session(1), head, 8)).await, Ok(()));
        assert_has_exactly(&store, head + 1, 8).await;
    });
}

#[test]
fn reserve_of_other_size_is_removed_on_full_disk() {
    let Some(disk) = test_directory() else {
        let test = "reserve_of_other_size_is_removed_on_full_disk";
        return run_on_small_disk(test, 24);
    };
    block_on(async {
        let reserve = disk.join("reserve");
        fs::write(&reserve, vec![1; 8 * 1024 * 1024]).unwrap();
        let store = open(&disk).await;
        assert!(!reserve.exists());
        // Events that start something are rejected, as on a disk that is nearly full.
        assert_eq!(store.create(None, batch(session(1), 0, 8)).await, Err(FULL));
    });
}

#[test]
fn open_on_read_only_disk_fails_and_changes_nothing() {
    let Some(disk) = test_directory() else {
        return run_on_small_disk("open_on_read_only_disk_fails_and_changes_nothing", 64);
    };
    let remount = |how: &str| {
        let remounted = Command::new("mount").args(["-o", how]).arg(&disk).status();
        assert!(remounted.unwrap().success(), "{how}");
    };
    block_on(async {
        let store = open(&disk).await;
        assert_eq!(store.create(None, batch(session(1), 0, 8)).await, Ok(Created::New));
        close(store).await;

        remount("remount,ro");
        match SqliteStore::open(disk.join("log.db")).await {
            Err(error @ OpenError::ReadOnly) => assert!(error.to_string().contains("read-only"), "{error}"),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("a read-only disk was accepted"),
        }
        remount("remount,rw");
        let store = open(&disk).await;
        assert_has_exactly(&store, 1, 8).await;
        assert_eq!(store.append(batch(session(1), 1, 8)).await, Ok(()));
    });
}

#[test]
fn interrupted_write_stops_store_and_replay_is_complete() {
    const TEST: &str = "interrupted_write_stops_store_and_replay_is_complete";
    const CONTENT: usize = 64 * 1024;
    // Limits the size of files and ignores the signal about an exceeded limit, so that a write fails after a part of
    // its data.
    const LIMITED: &str = "trap '' XFSZ && ulimit -f 16384";
    if let Some(directory) = test_directory() {
        block_on(async {
            let store = open(&directory).await;
            let (head, error) = fill(&store, 1, CONTENT).await;
            assert!(
                matches!(error, WriteError::Unknown(_) | WriteError::Stopped),
                "{error:?}"
            );
            let later = store.append(batch(session(1), head, 8)).await;
            assert_eq!(later, Err(WriteError::Stopped), "the store does not write any more");
            fs::write(directory.join("acknowledged"), head.to_string()).unwrap();
        });
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    block_on(async {
        let store = open(directory.path()).await;
        assert_eq!(
            store.create(None, batch(session(1), 0, CONTENT)).await,
            Ok(Created::New)
        );
        close(store).await;
    });
    assert_passed(&run_in_subprocess(&[], LIMITED, TEST, directory.path()));
    let acknowledged: u64 = fs::read_to_string(directory.path().join("acknowledged"))
        .unwrap()
        .parse()
        .unwrap();
    assert!(acknowledged > 1, "appends before the fault were acknowledged");
    block_on(async {
        let store = open(directory.path()).await;
        let found = store.head(session(1)).await.unwrap().unwrap().sequence.get();
        // The last append failed with an unknown outcome, so it may be present or absent.
        assert!(
            (acknowledged..=acknowledged + 1).contains(&found),
            "{found} of {acknowledged}"
        );
        assert_has_exactly(&store, found, CONTENT).await;
        assert_eq!(store.append(batch(session(1), found, CONTENT)).await, Ok(()));
    });
}
