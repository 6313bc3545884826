//! Files of other releases: a log of schema version 1 is served whole, and one of a newer version is refused and left as
//! it was.

use std::{fs, path::Path};

use rusqlite::Connection;
use supervisor_log::store::{DATABASE, EventStore as _, OpenError, SqliteStore};
use troupe_proto::supervisor::v1::{
    Artifact, ArtifactReport, ListArtifactsRequest, ListPromptsRequest, ListSessionsRequest, Prompt, SpawnAgentRequest,
    StatusKind, event::Kind, runner_report::Kind as Report,
};
use troupe_tests::{
    content::read,
    pair::Pair,
    runner::{Attempt, Runner},
    tree::{Spawned, Tree},
    within,
};

/// The first migration as it was written: version 1. It never changes.
const VERSION_1: &str = "
    CREATE TABLE meta (
        key TEXT NOT NULL PRIMARY KEY,
        value BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE sessions (
        session BLOB NOT NULL PRIMARY KEY,
        head INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        due INTEGER
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX sessions_due ON sessions (due, session) WHERE due IS NOT NULL;

    CREATE TABLE creations (
        creator TEXT NOT NULL,
        request_id TEXT NOT NULL,
        hash BLOB NOT NULL,
        session BLOB NOT NULL,
        expires INTEGER NOT NULL,
        PRIMARY KEY (creator, request_id)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX creations_session ON creations (session);
    CREATE INDEX creations_expires ON creations (expires);

    CREATE TABLE records (
        session BLOB NOT NULL,
        sequence INTEGER NOT NULL,
        crc INTEGER NOT NULL,
        bytes BLOB NOT NULL,
        PRIMARY KEY (session, sequence)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE contents (
        session BLOB NOT NULL,
        digest BLOB NOT NULL,
        crc INTEGER NOT NULL,
        bytes BLOB NOT NULL,
        PRIMARY KEY (session, digest)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE threads (
        thread BLOB NOT NULL PRIMARY KEY,
        session BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX threads_session ON threads (session);

    CREATE TABLE requests (
        session BLOB NOT NULL,
        scope TEXT NOT NULL,
        request_id TEXT NOT NULL,
        hash BLOB NOT NULL,
        outcome BLOB NOT NULL,
        expires INTEGER NOT NULL,
        crc INTEGER NOT NULL,
        PRIMARY KEY (session, scope, request_id)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX requests_expires ON requests (expires);

    CREATE TABLE snapshots (
        session BLOB NOT NULL PRIMARY KEY,
        sequence INTEGER NOT NULL,
        crc INTEGER NOT NULL,
        bytes BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE cursors (
        session BLOB NOT NULL,
        name TEXT NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (session, name)
    ) STRICT, WITHOUT ROWID;
";

/// The columns of version 1, by table. Snapshots are left out: that release may have written none.
const COLUMNS: [(&str, &str); 8] = [
    ("meta", "key, value"),
    ("sessions", "session, head, epoch, due"),
    ("creations", "creator, request_id, hash, session, expires"),
    ("records", "session, sequence, crc, bytes"),
    ("contents", "session, digest, crc, bytes"),
    ("threads", "thread, session"),
    ("requests", "session, scope, request_id, hash, outcome, expires, crc"),
    ("cursors", "session, name, value"),
];

/// Puts a file of version 1 with the same rows in the log's place.
fn into_version_1(data: &Path) {
    let (file, older) = (data.join(DATABASE), data.join("older.db"));
    let connection = Connection::open(&older).unwrap();
    connection.execute_batch(VERSION_1).unwrap();
    connection
        .execute("ATTACH ?1 AS present", [file.to_str().unwrap()])
        .unwrap();
    for (table, columns) in COLUMNS {
        connection
            .execute_batch(&format!(
                "INSERT INTO main.{table} ({columns}) SELECT {columns} FROM present.{table}"
            ))
            .unwrap();
    }
    connection
        .execute_batch("DETACH present; PRAGMA user_version = 1;")
        .unwrap();
    connection.close().unwrap();
    fs::set_permissions(&older, fs::metadata(&file).unwrap().permissions()).unwrap();
    // The write-ahead log next to it belongs to the present file, so it is removed as well.
    for beside in ["-wal", "-shm"] {
        let _ = fs::remove_file(data.join(format!("{DATABASE}{beside}")));
    }
    fs::rename(&older, &file).unwrap();
}

/// Moves all committed data into the file itself, so that no write-ahead log remains.
fn fold(file: &Path) {
    let connection = Connection::open(file).unwrap();
    let mode: String = connection
        .query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0))
        .unwrap();
    assert_eq!(mode, "delete", "nobody else has it open");
    connection.close().unwrap();
}

async fn prompts(tree: &Tree, thread: &str) -> Vec<Prompt> {
    let request = ListPromptsRequest {
        thread_id: thread.to_owned(),
        ..ListPromptsRequest::default()
    };
    let answer = within("prompts", tree.client().list_prompts(request)).await;
    answer.unwrap().into_inner().prompts
}

async fn artifacts(tree: &Tree, thread: &str) -> Vec<Artifact> {
    let request = ListArtifactsRequest {
        thread_id: thread.to_owned(),
        ..ListArtifactsRequest::default()
    };
    let answer = within("artifacts", tree.client().list_artifacts(request)).await;
    answer.unwrap().into_inner().artifacts
}

/// A session with a running thread, an idle thread that produced an artifact, and a closed one.
struct Stage {
    pair: Pair,
    tree: Tree,
    runner: Runner,
    /// The retry of this spawn is answered with the thread at work.
    remembered: SpawnAgentRequest,
    working: Attempt,
    resting: Attempt,
}

impl Stage {
    async fn set() -> Self {
        let pair = Pair::start().await;
        let tree = pair.tree().await;
        let mut runner = Runner::attach(&pair, "r").await;
        let remembered = SpawnAgentRequest {
            request_id: String::from("once"),
            ..tree.request("worker")
        };
        let working = Spawned::of(tree.try_spawn(remembered.clone()).await.unwrap()).id;
        let working = runner.run(&working).await;
        let resting = tree.spawn("worker").await.id;
        let resting = runner.run(&resting).await;
        let made = ArtifactReport {
            turn: 1,
            name: String::from("change.diff"),
            kind: String::from("diff"),
            media_type: String::from("text/x-diff"),
            data: "+ more\n".into(),
            ..ArtifactReport::default()
        };
        runner.report(&resting, Report::Artifact(made)).await;
        runner.complete(&resting, "done").await;
        let closed = tree.spawn("worker").await.id;
        let attempt = runner.run(&closed).await;
        let closing = tokio::spawn({
            let (tree, closed) = (tree.clone(), closed.clone());
            async move { tree.close(&closed).await }
        });
        runner.shutdown().await;
        runner.stop(&attempt).await;
        within("the end of a thread", closing).await.unwrap();
        Self {
            pair,
            tree,
            runner,
            remembered,
            working,
            resting,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_of_version_1_is_served() {
    let Stage {
        mut pair,
        tree,
        runner,
        remembered,
        working,
        resting,
    } = Stage::set().await;
    let (session, threads, log) = (tree.now().await, tree.threads().await, tree.log().await);
    let input = log.iter().find_map(|event| match &event.kind {
        Some(Kind::ThreadSpawned(spawned)) => spawned.input.clone(),
        _ => None,
    });
    let input = input.unwrap().digest;
    let text = read(&tree.client(), &tree.session, &input).await.unwrap();

    pair.restart_after(into_version_1).await;
    let tree = tree.by(pair.operator());
    let listed = tree.client().list_sessions(ListSessionsRequest::default()).await;
    assert_eq!(listed.unwrap().into_inner().sessions, std::slice::from_ref(&session));
    assert_eq!(tree.now().await, session);
    assert_eq!(tree.threads().await, threads);
    assert_eq!(tree.log().await, log);
    assert_eq!(read(&tree.client(), &tree.session, &input).await.unwrap(), text);
    let again = Spawned::of(tree.try_spawn(remembered).await.unwrap());
    assert_eq!(again.id, working.thread, "what was answered before counts");

    // The session continues.
    let mut runner = runner.come_back(&pair, &[working.clone(), resting.clone()]).await;
    runner.complete(&working, "found it").await;
    assert_eq!(tree.status(&working.thread).await, StatusKind::Completed);
    tree.send(&resting.thread, "and the tests").await;
    let turn = runner.turn_of(&resting).await;
    assert_eq!(turn.turn, 2);
    let known = log.len() as u64;
    assert!(tree.head().await > known);
    pair.restart().await;
    assert_eq!(tree.by(pair.operator()).log().await[..log.len()], log[..]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompts_and_artifacts_of_version_1_are_listed() {
    let Stage {
        mut pair,
        tree,
        resting,
        ..
    } = Stage::set().await;
    let sent = prompts(&tree, &resting.thread).await;
    let made = artifacts(&tree, &resting.thread).await;
    assert_eq!((sent.len(), made.len()), (1, 1));
    pair.restart_after(into_version_1).await;
    let tree = tree.by(pair.operator());
    assert_eq!(prompts(&tree, &resting.thread).await, sent);
    assert_eq!(artifacts(&tree, &resting.thread).await, made);
}

#[tokio::test]
async fn newer_file_version_is_rejected_and_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(DATABASE);
    let store = SqliteStore::open(&file).await.unwrap();
    store.close().await;
    drop(store);
    fold(&file);
    let connection = Connection::open(&file).unwrap();
    let present: i64 = connection
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .unwrap();
    let next = present + 1;
    connection
        .execute_batch(&format!("PRAGMA user_version = {next}"))
        .unwrap();
    connection.close().unwrap();
    let before = fs::read(&file).unwrap();
    for _ in 0..2 {
        match SqliteStore::open(&file).await {
            Err(error @ OpenError::UpgradeRequired { .. }) => assert_eq!(
                error.to_string(),
                format!(
                    "UPGRADE_REQUIRED: the database has schema version {next}, this program knows up to {present}; start \
                     a newer version"
                )
            ),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("a newer file was opened"),
        }
        assert!(fs::read(&file).unwrap() == before, "the file was changed");
    }
}
