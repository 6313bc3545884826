//! Changes of the clock while agents work: a timeout of a second lasts a second, a deadline in an hour does not change,
//! and the time in a log never decreases.
//!
//! The service and its runner are processes. `tests/faults/clock.c` offsets the service's time of day by the value that
//! a test sets. The tests use time budgets as an example of everything that a timer ends.

use std::{process::Stdio, time::SystemTime};

use tokio::process::Child;
use troupe_proto::supervisor::v1::{Budget, CreateSessionRequest, SpawnAgentRequest, StatusKind};
use troupe_tests::{
    events::{assert_whole, name},
    process::Home,
    tree::{Spawned, Tree, kind},
    within,
};

use crate::machine::{DATA, Life, Machine};

/// The file with the offset of the clock in seconds.
const OFFSET: &str = "offset";
/// A day, in seconds.
const TOMORROW: &str = "86400";
const YESTERDAY: &str = "-86400";
const NOW: &str = "0";

const SECOND: i64 = 1;
const HOUR: i64 = 3_600;

async fn machine() -> Machine {
    Machine::with("clock", &[("CLOCK_OFFSET", OFFSET)]).await
}

/// A runner with the correct clock. Dropping this value stops the runner. An agent of the runner keeps running until it
/// is stopped if its task is `hold`.
struct Runner {
    _process: Child,
    _home: Home,
}

impl Runner {
    fn start(machine: &Machine, life: &Life) -> Self {
        let home = Home::default();
        let process = home
            .troupe(&["run", "--supervisor", &life.url(), "--token-file"])
            .arg(machine.path(DATA).join("runner.token"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            _process: process,
            _home: home,
        }
    }
}

/// Spawns an agent that keeps running, with a time budget in seconds, and waits until its turn runs.
async fn hold(tree: &Tree, seconds: i64) -> String {
    let budget = Budget {
        wall_time: Some(prost_types::Duration { seconds, nanos: 0 }),
        ..Budget::default()
    };
    let request = SpawnAgentRequest {
        message: Some(String::from("hold")),
        budget: Some(budget),
        ..tree.request("worker")
    };
    let thread = Spawned::of(tree.try_spawn(request).await.unwrap()).id;
    until(tree, &thread, "TurnStarted").await;
    thread
}

/// Waits until a thread has an event of this kind.
async fn until(tree: &Tree, thread: &str, kind: &str) {
    within(kind, async {
        let mut watch = tree.watch_after(0).await;
        watch
            .until(|event| event.thread_id == thread && name(event) == kind)
            .await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_set_back_delays_no_deadline() {
    let machine = machine().await;
    let life = machine.start(&[]).await;
    let _runner = Runner::start(&machine, &life);
    let tree = Tree::open(life.client(), CreateSessionRequest::default()).await;
    let brief = hold(&tree, SECOND).await;

    machine.put(OFFSET, YESTERDAY);
    until(&tree, &brief, "TurnEnded").await;
    tree.note(&brief, "set back").await;
    assert_whole(&tree.log().await);
    life.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_set_forward_ends_nothing_early() {
    let machine = machine().await;
    let life = machine.start(&[]).await;
    let _runner = Runner::start(&machine, &life);
    let tree = Tree::open(life.client(), CreateSessionRequest::default()).await;
    let long = hold(&tree, HOUR).await;

    machine.put(OFFSET, TOMORROW);
    // The agent that was spawned later ends first. By then, the service has checked the other deadlines.
    let brief = hold(&tree, SECOND).await;
    until(&tree, &brief, "TurnEnded").await;
    let thread = tree.thread(&long).await;
    assert_eq!(kind(&thread), StatusKind::Running);
    assert!(thread.conditions.is_empty(), "{:?}", thread.conditions);

    machine.put(OFFSET, NOW);
    tree.note(&long, "right again").await;
    assert_whole(&tree.log().await);
    life.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_from_the_future_delays_no_deadline() {
    let machine = machine().await;
    machine.put(OFFSET, TOMORROW);
    let life = machine.start(&[]).await;
    let tree = Tree::open(life.client(), CreateSessionRequest::default()).await;
    tree.note(&tree.root, "tomorrow").await;
    let written = tree.log().await.pop().unwrap().time.unwrap().seconds;
    let today = i64::try_from(SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap();
    assert!(written > today + 23 * HOUR, "the service's clock is off");
    life.kill().await;

    machine.put(OFFSET, NOW);
    let life = machine.start(&[]).await;
    let _runner = Runner::start(&machine, &life);
    let tree = tree.by(life.client());
    let brief = hold(&tree, SECOND).await;
    until(&tree, &brief, "TurnEnded").await;
    assert_whole(&tree.log().await);
    life.kill().await;
}
