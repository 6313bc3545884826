//! Power failures at any moment, with many writers: the disk keeps all flushed data and any part of the rest.
//! Afterwards, every acknowledged write exists, and no request has its effect twice.
//!
//! The disk is simulated by `tests/faults/disk.c`: the service works on real files, and their state after a power
//! failure is computed from a journal of its writes and flushes. A control shows that the simulation can detect a loss:
//! the service with a write-ahead log that is flushed only as with `synchronous = NORMAL`.
//!
//! `TROUPE_POWER_SEED` repeats a run's random choices, but not the times of its power failures.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use tokio::sync::mpsc;
use troupe_proto::supervisor::v1::{CreateSessionRequest, Event, SpawnAgentRequest};
use troupe_tests::{
    events::{assert_whole, statuses},
    rng::Rng,
    tree::{Spawned, Tree},
    within,
};

use crate::{
    journal::{Files, Synchronous, after_power_cut},
    machine::{DATA, Machine},
    seed,
};

const WRITERS: usize = 16;
/// Maximum number of responses that the test has not yet processed. It is large, so that no writer waits for the test.
const NOTED: usize = 10_000;
/// Number of power failures.
const CUTS: usize = 10;
/// Maximum number of responses before a power failure.
const MAX_ANSWERS: u64 = 200;
/// Limits that no writer reaches.
const LIMITS: &[&str] = &["--max-threads", "10000", "--max-open-threads", "10000"];

const JOURNAL: &str = "journal";
const FAULT: &str = "fault";
/// The file that a database maps into memory. Its writes are not recorded.
const INDEX: &str = "troupe.db-shm";

/// The threads in the responses, by request id.
type Promises = BTreeMap<String, String>;

/// A machine whose power fails.
struct FaultyMachine {
    machine: Machine,
    /// The state of the disk when the machine started.
    before: Files,
}

impl FaultyMachine {
    async fn new() -> Self {
        let files = [("DISK_ROOT", DATA), ("DISK_JOURNAL", JOURNAL), ("DISK_FAULT", FAULT)];
        Self {
            machine: Machine::with("disk", &files).await,
            before: Files::new(),
        }
    }

    /// Returns the state of the disk after a power failure at this moment.
    fn after_power_cut(&self, synchronous: Synchronous, survives: impl FnMut() -> bool) -> Files {
        let journal = fs::read(self.machine.path(JOURNAL)).unwrap();
        after_power_cut(&self.before, &journal, synchronous, survives)
    }

    /// Simulates a power failure and a restart of the machine with the remaining data. No process may use the disk.
    fn cut_power(&mut self, synchronous: Synchronous, survives: impl FnMut() -> bool) {
        self.before = self.after_power_cut(synchronous, survives);
        let data = self.machine.path(DATA);
        fs::remove_dir_all(&data).unwrap();
        fs::create_dir(&data).unwrap();
        for (name, bytes) in &self.before {
            let mut options = OpenOptions::new();
            let mut file = options
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(data.join(name))
                .unwrap();
            file.write_all(bytes).unwrap();
        }
        fs::remove_file(self.machine.path(JOURNAL)).unwrap();
    }

    /// Shuts the machine down cleanly, so that all written data is on the disk.
    fn shut_down(&mut self) {
        self.cut_power(Synchronous::Full, || true);
    }
}

/// Returns the files of a directory.
fn files(directory: &Path) -> Files {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect()
}

/// Returns a spawn request with a task of 2,000 bytes.
fn spawn(tree: &Tree, request_id: &str) -> SpawnAgentRequest {
    SpawnAgentRequest {
        request_id: request_id.to_owned(),
        message: Some(format!("{request_id:->2000}")),
        ..tree.request("worker")
    }
}

/// Spawns until the service has ended, and sends the id of each acknowledged request with its thread.
async fn write(tree: Tree, name: String, answered: mpsc::Sender<(String, String)>) {
    for number in 0.. {
        let request_id = format!("{name}-{number}");
        let Ok(answer) = tree.try_spawn(spawn(&tree, &request_id)).await else {
            return;
        };
        answered.send((request_id, Spawned::of(answer).id)).await.unwrap();
    }
}

/// Runs many writers until there are `enough` responses, and then ends the service with `end`. Returns all acknowledged
/// spawns.
async fn write_until(tree: &Tree, name: &str, enough: u64, end: impl Future<Output = ()>) -> Promises {
    let (answered, mut answers) = mpsc::channel(NOTED);
    for number in 0..WRITERS {
        tokio::spawn(write(tree.clone(), format!("{name}-{number}"), answered.clone()));
    }
    drop(answered);
    let mut promises = Promises::new();
    for _ in 0..enough {
        let answer = within("an answer", answers.recv()).await;
        promises.extend([answer.expect("the service answers")]);
    }
    end.await;
    // Responses that arrive during the end are acknowledged as well.
    while let Some(answer) = within("the writers' end", answers.recv()).await {
        promises.extend([answer]);
    }
    promises
}

/// Returns the ids of acknowledged requests whose threads are not in the log.
fn lost<'p>(promises: &'p Promises, log: &[Event]) -> Vec<&'p str> {
    let threads = statuses(log);
    promises
        .iter()
        .filter(|(_, thread)| !threads.contains_key(*thread))
        .map(|(request_id, _)| request_id.as_str())
        .collect()
}

/// Returns the random numbers of a run.
fn rng() -> Rng {
    Rng::new(seed("TROUPE_POWER_SEED"), "power")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_power_cuts() {
    let mut rng = rng();
    let mut faulty = FaultyMachine::new().await;
    let mut life = faulty.machine.start(LIMITS).await;
    let mut tree = Tree::open(life.client(), CreateSessionRequest::default()).await;
    let eldest = tree.spawn("worker").await;
    let mut promises = Promises::new();
    for cut in 0..CUTS {
        let enough = 1 + rng.below(MAX_ANSWERS);
        promises.extend(write_until(&tree, &cut.to_string(), enough, life.kill()).await);
        // Alternately none and about half of the unflushed data survives.
        faulty.cut_power(Synchronous::Full, || cut % 2 == 1 && rng.one_in(2));

        life = faulty.machine.start(LIMITS).await;
        tree = tree.by(life.client());
        let log = tree.log().await;
        assert_whole(&log);
        let lost = lost(&promises, &log);
        assert!(lost.is_empty(), "cut {cut}: lost {lost:?} of {}", promises.len());
    }

    // A retry gets the same response, and no effect happens twice.
    let head = tree.head().await;
    for (request_id, thread) in &promises {
        let answer = tree.try_spawn(spawn(&tree, request_id)).await.unwrap();
        assert_eq!(Spawned::of(answer).id, *thread, "{request_id}");
    }
    assert_eq!(tree.head().await, head);
    // The keys were flushed before a token was signed with them.
    let own = tree.by(life.with_token(&eldest.token)).thread(&eldest.id).await;
    assert_eq!(own.thread_id, eldest.id);
    life.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_flush_ends_service_without_loss() {
    assert_fault_ends_service_without_loss("flush").await;
}

/// Commits succeed until a checkpoint cannot flush the database file. The data that the checkpoint copied into that
/// file may then be lost, so the write-ahead log must not be overwritten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_checkpoint_ends_service_without_loss() {
    assert_fault_ends_service_without_loss("checkpoint").await;
}

/// Runs many writers with this fault until the service has ended, then simulates a power failure. Checks that the
/// service failed and that no acknowledged write is lost.
async fn assert_fault_ends_service_without_loss(fault: &str) {
    let mut rng = rng();
    let mut faulty = FaultyMachine::new().await;
    let life = faulty.machine.start(LIMITS).await;
    let tree = Tree::open(life.client(), CreateSessionRequest::default()).await;
    let end = async {
        faulty.machine.put(FAULT, fault);
        let status = life.ended().await;
        assert!(!status.success(), "the exit status reports the failure: {status}");
    };
    let promises = write_until(&tree, fault, 50, end).await;
    faulty.machine.put(FAULT, "");
    faulty.cut_power(Synchronous::Full, || rng.one_in(2));

    let life = faulty.machine.start(LIMITS).await;
    let log = tree.by(life.client()).log().await;
    assert_whole(&log);
    assert_eq!(lost(&promises, &log), Vec::<&str>::new());
    life.kill().await;
}

// ---- the simulation detects losses ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_with_synchronous_normal_loses_acknowledged_writes() {
    let mut faulty = FaultyMachine::new().await;
    let life = faulty.machine.start(LIMITS).await;
    let tree = Tree::open(life.client(), CreateSessionRequest::default()).await;
    assert!(life.terminate().await.success());
    faulty.shut_down();

    let life = faulty.machine.start(LIMITS).await;
    let tree = tree.by(life.client());
    // Too few writes for a checkpoint, which would flush the log.
    let promises = write_until(&tree, "normal", 5, life.kill()).await;
    faulty.cut_power(Synchronous::Normal, || false);

    let life = faulty.machine.start(LIMITS).await;
    let log = tree.by(life.client()).log().await;
    assert_whole(&log);
    assert!(!lost(&promises, &log).is_empty(), "the checks do not detect the loss");
    life.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn journal_contains_all_writes_of_the_service() {
    let faulty = FaultyMachine::new().await;
    let life = faulty.machine.start(LIMITS).await;
    let tree = Tree::open(life.client(), CreateSessionRequest::default()).await;
    let end = async {
        assert!(life.terminate().await.success());
    };
    write_until(&tree, "all", MAX_ANSWERS, end).await;

    let mut told = faulty.after_power_cut(Synchronous::Full, || true);
    let mut found = files(&faulty.machine.path(DATA));
    told.remove(INDEX);
    found.remove(INDEX);
    assert!(told.keys().eq(found.keys()), "{:?}, {:?}", told.keys(), found.keys());
    for (name, bytes) in &found {
        assert!(told[name] == *bytes, "{name} differs from the journal");
    }
}
