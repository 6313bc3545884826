//! A disk that is full or can only be read, under a service that runs: what cannot be written is refused or ends the
//! service, what is there can be read, and nothing that was answered is lost.
//!
//! The disk is a stand-in, `tests/faults/disk.c`, which says what such a disk says. What the store alone does on real
//! ones is shown by `supervisor-svc/tests/faults.rs`.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[allow(dead_code, reason = "each fault of a machine takes a part of it")]
#[path = "../faults/machine.rs"]
mod machine;

use tonic::Code;
use troupe_proto::{
    fault::reason_of,
    reason::Reason,
    supervisor::v1::{CreateSessionRequest, SpawnAgentRequest},
};
use troupe_tests::{
    events::{assert_whole, name},
    process::Home,
    refusal::refused,
    tree::{Spawned, Tree},
    within,
};

use self::machine::{DATA, Machine};

/// The file that names the fault.
const FAULT: &str = "fault";

async fn machine() -> Machine {
    let files = [("DISK_ROOT", DATA), ("DISK_JOURNAL", "journal"), ("DISK_FAULT", FAULT)];
    Machine::with("disk", &files).await
}

fn spawn(tree: &Tree) -> SpawnAgentRequest {
    SpawnAgentRequest {
        request_id: String::from("once"),
        ..tree.request("worker")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_full_disk_writes_are_refused_reads_are_answered_and_it_goes_on_by_itself() {
    let machine = machine().await;
    let life = machine.start(&[]).await;
    let tree = Tree::open(life.client(), CreateSessionRequest::default()).await;
    let head = tree.head().await;
    let mut watch = tree.watch_after(head).await;

    machine.put(FAULT, "full");
    refused(
        tree.try_spawn(spawn(&tree)).await,
        Code::Unavailable,
        Reason::StoreUnavailable,
        "nothing was done: the disk is full",
    );
    let log = tree.log().await;
    assert_eq!(log.len() as u64, head, "nothing happened");

    machine.put(FAULT, "");
    let spawned = Box::pin(within("room on the disk", async {
        loop {
            match tree.try_spawn(spawn(&tree)).await {
                Ok(answer) => return Spawned::of(answer),
                Err(status) => assert_eq!(reason_of(&status), Some(Reason::StoreUnavailable), "{status:?}"),
            }
        }
    }))
    .await;
    // A watch was there all the time, and what was refused is not in it.
    let next = watch.event().await;
    assert_eq!((name(&next).as_str(), &next.thread_id), ("ThreadSpawned", &spawned.id));

    let log = tree.log().await;
    life.kill().await;
    let life = machine.start(&[]).await;
    assert_eq!(tree.by(life.client()).log().await, log);
    life.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_can_only_be_read_ends_the_service_and_takes_nothing() {
    let machine = machine().await;
    let life = machine.start(&[]).await;
    let tree = Tree::open(life.client(), CreateSessionRequest::default()).await;
    let log = tree.log().await;

    machine.put(FAULT, "read-only");
    let answer = tree.try_spawn(spawn(&tree)).await;
    assert!(answer.is_err(), "it cannot have been written: {answer:?}");
    let status = life.ended().await;
    assert!(!status.success(), "it says that it did not end in order: {status}");

    let home = Home::default();
    let (mut command, _) = machine.supervisor(&home);
    let output = within("a refusal to start", command.output()).await.unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    for text in ["cannot use the data directory", "Read-only file system", "--data-dir"] {
        assert!(said.contains(text), "{said}");
    }

    machine.put(FAULT, "");
    let life = machine.start(&[]).await;
    let tree = tree.by(life.client());
    // Nobody was told what came of the spawn, so it is asked for again. It happens once.
    let spawned = Spawned::of(tree.try_spawn(spawn(&tree)).await.unwrap());
    let later = tree.log().await;
    assert_whole(&later);
    assert!(later.starts_with(&log), "what was answered is there");
    let threads = tree.threads().await;
    let ids: Vec<&str> = threads.iter().map(|thread| thread.thread_id.as_str()).collect();
    assert_eq!(ids, [tree.root.as_str(), spawned.id.as_str()]);
    life.kill().await;
}
