//! A full or read-only disk under a running service: a write that fails is rejected or ends the service, existing data
//! can be read, and no acknowledged write is lost.
//!
//! The disk is simulated by `tests/faults/disk.c`, which returns the errors of such a disk.
//! `supervisor-svc/log/tests/log/faults.rs` tests the store alone on real disks.

use std::{fs, process::Stdio, time::Duration};

use supervisor_log::store::DATABASE;
use supervisor_svc::SERVICES;
use svc_kit::thread_token::KEYS_FILE;
use tokio::{process::Child, task::yield_now};
use tonic::{Code, Request};
use troupe_proto::{
    fault::reason_of,
    reason::Reason,
    supervisor::v1::{
        CreateSessionRequest, ListSessionsRequest, ListTranscriptRequest, RunnerHello, SetThreadNoteRequest,
        SpawnAgentRequest, TranscriptEntry, TranscriptKind,
    },
};
use troupe_tests::{
    admin::Admin,
    events::{assert_whole, name},
    process::{Home, service, terminate},
    refusal::refused,
    runner::{Attempt, Runner, hello},
    tree::{Spawned, Tree},
    within,
};

use crate::machine::{DATA, Machine};

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

/// Starts the service on a slow disk, and returns while the service still opens its log. Such a start takes as long as
/// a start that has to check a large log.
async fn slow_start(machine: &Machine, home: &Home) -> (Child, Admin) {
    let (mut command, _) = service(home, "supervisor");
    let mut process = machine
        .equip(&mut command)
        .args(["--admin-listen", "127.0.0.1:0", "--log-format", "json", "--data-dir"])
        .arg(machine.path(DATA))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let admin = Admin::of(&mut process).await;
    within("a log that is being opened", async {
        while !machine.path(DATA).join(DATABASE).exists() {
            yield_now().await;
        }
    })
    .await;
    assert!(admin.is_serving("liveness").await);
    for name in SERVICES.iter().chain(&[""]) {
        assert!(!admin.is_serving(name).await, "{name}");
    }
    (process, admin)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_opening_its_log_is_live_not_ready_and_stoppable() {
    let machine = machine().await;
    // This start creates the tokens. Then the log and the keys are removed, so that the next start has to create a new
    // log and waits for the disk.
    assert!(machine.start(&[]).await.terminate().await.success());
    for file in fs::read_dir(machine.path(DATA)).unwrap() {
        let file = file.unwrap();
        let name = file.file_name();
        if name.to_string_lossy().starts_with(DATABASE) || name == KEYS_FILE {
            fs::remove_file(file.path()).unwrap();
        }
    }
    machine.put(FAULT, "stall");
    let home = Home::default();
    let (mut process, _) = Box::pin(slow_start(&machine, &home)).await;
    terminate(&process);
    let ended = within("its end", process.wait()).await.unwrap();
    assert!(ended.success(), "{ended}");

    let (mut process, admin) = Box::pin(slow_start(&machine, &home)).await;
    machine.put(FAULT, "");
    for name in SERVICES.iter().chain(&[""]) {
        admin.until(name, true).await;
    }
    process.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_rejects_writes_serves_reads_and_recovers() {
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
    assert_eq!(log.len() as u64, head, "no event was recorded");

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
    // A watch was open all the time, and the rejected event is not in it.
    let next = watch.event().await;
    assert_eq!((name(&next).as_str(), &next.thread_id), ("ThreadSpawned", &spawned.id));

    let log = tree.log().await;
    life.kill().await;
    let life = machine.start(&[]).await;
    assert_eq!(tree.by(life.client()).log().await, log);
    life.kill().await;
}

/// A turn that cannot be recorded releases the only capacity of its runner. It is dispatched as soon as recording works
/// again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unrecorded_turn_releases_capacity_of_its_runner() {
    let machine = machine().await;
    let life = machine.start(&[]).await;
    let tree = Tree::open(life.client(), CreateSessionRequest::default()).await;
    let mut waiting = vec![tree.spawn("worker").await.id, tree.spawn("worker").await.id];

    machine.put(FAULT, "full");
    let takes_nothing = async || {
        let request = SetThreadNoteRequest {
            thread_id: tree.root.clone(),
            thread_note: String::from("to be refused"),
            ..SetThreadNoteRequest::default()
        };
        refused(
            tree.client().set_thread_note(request).await,
            Code::Unavailable,
            Reason::StoreUnavailable,
            "nothing was done",
        );
    };
    takes_nothing().await;
    let one_place = RunnerHello {
        capacity: 1,
        ..hello("r")
    };
    let mut runner = Runner::greet_by(life.runners(), one_place).await;
    takes_nothing().await;

    machine.put(FAULT, "");
    while !waiting.is_empty() {
        let attempt = Attempt::of(&runner.start().await);
        runner.begin(&attempt).await;
        runner.complete(&attempt, "done").await;
        runner.stop(&attempt).await;
        waiting.retain(|thread| *thread != attempt.thread);
    }
    life.kill().await;
}

/// Transcript entries that cannot be stored are void. The runner's stream continues, and the transcript later contains
/// a notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transcript_on_full_disk_reports_lost_entries() {
    let machine = machine().await;
    let life = machine.start(&[]).await;
    let tree = Tree::open(life.client(), CreateSessionRequest::default()).await;
    let mut runner = Runner::greet_by(life.runners(), hello("r")).await;
    let worker = tree.spawn("worker").await.id;
    let attempt = runner.run(&worker).await;
    let message = |text: &str| TranscriptEntry {
        kind: TranscriptKind::Message.into(),
        text: text.to_owned(),
        ..TranscriptEntry::default()
    };
    runner.transcribe(&attempt, 1, vec![message("before")]).await;

    machine.put(FAULT, "full");
    runner
        .transcribe(&attempt, 2, vec![message("lost"), message("lost")])
        .await;
    machine.put(FAULT, "");
    let request = ListTranscriptRequest {
        thread_id: worker,
        page_size: 1_000,
        ..ListTranscriptRequest::default()
    };
    let texts = within("room on the disk", async {
        for batch in 3.. {
            runner.transcribe(&attempt, batch, vec![message("after"); 256]).await;
            let listed = tree
                .client()
                .list_transcript(request.clone())
                .await
                .unwrap()
                .into_inner();
            let texts: Vec<String> = listed.entries.into_iter().map(|entry| entry.text).collect();
            if texts.len() > 1 {
                return texts;
            }
        }
        Vec::new()
    })
    .await;
    assert_eq!(texts[0], "before");
    assert_eq!(texts[2..], vec!["after"; 256]);
    assert!(
        texts[1].ends_with("entries are missing: the supervisor could not store them"),
        "{texts:?}"
    );
    runner.complete(&attempt, "done").await;
    life.kill().await;
}

/// The deadline has ended the call, so the client does not know the result. The session is created once, and a retry
/// returns it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_created_after_missed_deadline_exists_once() {
    let machine = machine().await;
    let life = machine.start(&[]).await;
    let request = || CreateSessionRequest {
        request_id: String::from("once"),
        ..CreateSessionRequest::default()
    };
    machine.put(FAULT, "stall");
    let mut hurried = Request::new(request());
    hurried.set_timeout(Duration::from_millis(500));
    let cut_off = within("the end of the time", life.client().create_session(hurried)).await;
    let code = cut_off.unwrap_err().code();
    assert!(
        matches!(code, Code::DeadlineExceeded | Code::Cancelled),
        "expected an error of the deadline, not {code}"
    );

    machine.put(FAULT, "");
    let tree = Tree::open(life.client(), request()).await;
    let spawned = tree.spawn("worker").await.id;
    let listed = life.client().list_sessions(ListSessionsRequest::default()).await;
    let listed = listed.unwrap().into_inner().sessions;
    let ids: Vec<&str> = listed.iter().map(|session| session.session_id.as_str()).collect();
    assert_eq!(ids, [tree.session.as_str()]);
    let log = tree.log().await;
    assert_whole(&log);
    assert_eq!(log.last().unwrap().thread_id, spawned);
    life.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_only_disk_ends_service_without_loss() {
    let machine = machine().await;
    let life = machine.start(&[]).await;
    let tree = Tree::open(life.client(), CreateSessionRequest::default()).await;
    let log = tree.log().await;

    machine.put(FAULT, "read-only");
    let answer = tree.try_spawn(spawn(&tree)).await;
    assert!(
        answer.is_err(),
        "a write to a read-only disk cannot succeed: {answer:?}"
    );
    let status = life.ended().await;
    assert!(!status.success(), "the exit status reports the failure: {status}");

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
    // The spawn received no response, so it is retried. Both calls together have one effect.
    let spawned = Spawned::of(tree.try_spawn(spawn(&tree)).await.unwrap());
    let later = tree.log().await;
    assert_whole(&later);
    assert!(later.starts_with(&log), "acknowledged writes are in the log");
    let threads = tree.threads().await;
    let ids: Vec<&str> = threads.iter().map(|thread| thread.thread_id.as_str()).collect();
    assert_eq!(ids, [tree.root.as_str(), spawned.id.as_str()]);
    life.kill().await;
}
