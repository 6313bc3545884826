//! Tests of `troupe store` on the data of real services: running, stopped, damaged and restored.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use support::{
    Client, TIME_LIMIT, log, start, start_with,
    up::{self, interrupt},
};
use tempfile::TempDir;
use tokio::{process::Child, time::timeout};
use tonic::{Code, Request};
use troupe_proto::supervisor::v1::{
    CreateSessionRequest, ListActiveAgentsRequest, SpawnAgentRequest, WatchThreadsRequest,
    watch_threads_response::Message,
};
use troupe_tests::postgres_server::Database;

/// Part of the thread's message, and thus of the log.
const MARK: &str = "quite-unmistakable";

fn run(home: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_troupe"))
        .env_clear()
        .env("HOME", home)
        .current_dir(home)
        .arg("store")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Runs a command that has to succeed and returns its JSON output.
fn json(home: &Path, arguments: &[&str]) -> Value {
    let output = run(home, &[arguments, &["--output", "json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

fn data_dir(home: &Path) -> PathBuf {
    home.join(".local/share/troupe")
}

/// A pair with one session and one thread.
struct Pair {
    home: TempDir,
    process: Child,
    client: Client,
    session: String,
    thread: String,
}

impl Pair {
    async fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let (process, mut client) = start(home.path()).await;
        let created = client.create_session(CreateSessionRequest::default()).await.unwrap();
        let session = created.into_inner().session.unwrap().session_id;
        let request = SpawnAgentRequest {
            session_id: session.clone(),
            agent_type: String::from("worker"),
            message: Some(format!("look for {MARK}")),
            ..SpawnAgentRequest::default()
        };
        let spawned = client.spawn_agent(request).await.unwrap().into_inner();
        Self {
            home,
            process,
            client,
            session,
            thread: spawned.thread.unwrap().thread_id,
        }
    }

    /// Stops the pair like Ctrl-C and waits for its exit.
    async fn stop(mut self) -> TempDir {
        interrupt(self.process.id().unwrap());
        let status = timeout(TIME_LIMIT, self.process.wait()).await.unwrap().unwrap();
        assert!(status.success(), "{status}");
        self.home
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_commands_read_a_running_service() {
    let mut pair = Pair::start().await;
    let home = pair.home.path();
    let events = log(&mut pair.client, &pair.session).await;

    let output = run(home, &["verify"]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    let expected = format!("✓ 1 session, {} events, ", events.len());
    assert!(stdout(&output).starts_with(&expected), "{}", stdout(&output));
    let report = json(home, &["verify"]);
    assert_eq!(
        (&report["sound"], &report["sessions"]),
        (&Value::from(true), &Value::from(1))
    );
    assert_eq!(report["events"], Value::from(events.len()));

    let dumped = run(home, &["dump", &pair.session, "--after", "1"]);
    assert_eq!(dumped.status.code(), Some(0), "{}", stderr(&dumped));
    let dumped: Vec<Value> = stdout(&dumped)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let numbers: Vec<u64> = dumped.iter().map(|event| event["sequence"].as_u64().unwrap()).collect();
    let after_first: Vec<u64> = events[1..].iter().map(|event| event.sequence).collect();
    assert_eq!(numbers, after_first);
    assert!(
        dumped
            .iter()
            .any(|event| event.get("thread_spawned").is_some() && event["thread_id"] == pair.thread.as_str())
    );

    // Compaction requires that no service uses the directory.
    let refused = run(home, &["compact"]);
    assert_eq!(refused.status.code(), Some(1));
    let owner = format!("(process {})", pair.process.id().unwrap());
    assert!(stderr(&refused).contains(&owner), "{}", stderr(&refused));
    let home = pair.stop().await;
    let packed = json(home.path(), &["compact"]);
    assert!(packed["bytes_after"].as_u64().unwrap() > 0, "{packed}");
    assert_eq!(json(home.path(), &["verify"])["events"], Value::from(events.len()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_of_running_service_is_restorable() {
    let mut pair = Pair::start().await;
    let log_id = snapshot_of(&mut pair.client, &pair.session, None).await.unwrap();
    let backups = tempfile::tempdir().unwrap();
    let destination = backups.path().join("monday");
    let named = destination.to_str().unwrap();
    let made = run(pair.home.path(), &["backup", named]);
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    let how = format!("troupe store restore {named} --data-dir DIR");
    assert!(stdout(&made).contains(&how), "{}", stdout(&made));
    let again = run(pair.home.path(), &["backup", named]);
    assert_eq!(again.status.code(), Some(1));
    assert!(
        stderr(&again).contains("is not empty; nothing is overwritten"),
        "{}",
        stderr(&again)
    );
    assert_eq!(
        json(pair.home.path(), &["verify", "--data-dir", named])["sound"],
        Value::from(true)
    );
    let (session, thread) = (pair.session.clone(), pair.thread.clone());
    pair.stop().await;

    for file in fs::read_dir(&destination).unwrap() {
        let file = file.unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
    }
    let home = tempfile::tempdir().unwrap();
    let restored = run(home.path(), &["restore", named]);
    assert_eq!(restored.status.code(), Some(0), "{}", stderr(&restored));
    assert!(stdout(&restored).starts_with("✓ 1 session, "), "{}", stdout(&restored));
    let refused = run(home.path(), &["restore", named]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("pass --replace"), "{}", stderr(&refused));
    let replaced = json(home.path(), &["restore", named, "--replace"]);
    assert!(
        Path::new(replaced["replaced"].as_str().unwrap())
            .join("troupe.db")
            .exists()
    );
    let (mut process, mut client) = start(home.path()).await;
    let request = ListActiveAgentsRequest {
        session_id: session.clone(),
        ..ListActiveAgentsRequest::default()
    };
    let listed = client.list_active_agents(request).await.unwrap().into_inner().threads;
    assert!(listed.iter().any(|listed| listed.thread_id == thread), "{listed:?}");
    // A position in the old log is invalid in this log.
    assert_eq!(snapshot_of(&mut client, &session, Some(log_id)).await, None);
    let in_use = run(home.path(), &["restore", named, "--replace"]);
    assert_eq!(in_use.status.code(), Some(1));
    assert!(
        stderr(&in_use).contains("is in use by another troupe"),
        "{}",
        stderr(&in_use)
    );
    process.kill().await.unwrap();
}

/// Returns the log id from a snapshot, or `None` if the service rejects a position of that log.
async fn snapshot_of(client: &mut Client, session: &str, resumed: Option<String>) -> Option<String> {
    let request = WatchThreadsRequest {
        session_id: session.to_owned(),
        after_sequence: resumed.is_some().then_some(1),
        log_id: resumed.unwrap_or_default(),
        ..WatchThreadsRequest::default()
    };
    let mut stream = client.watch_threads(request).await.unwrap().into_inner();
    loop {
        let message = timeout(TIME_LIMIT, stream.message()).await.unwrap().unwrap().unwrap();
        match message.message {
            Some(Message::Snapshot(snapshot)) => return Some(snapshot.log_id),
            Some(Message::Reset(_)) => return None,
            Some(Message::Event(event)) => panic!("the log continues with {event:?}"),
            Some(Message::Telemetry(_) | Message::Bookmark(_) | Message::Output(_)) | None => {}
        }
    }
}

/// Lists threads with the token. Returns their number or the error code.
async fn listed(client: &mut Client, session: &str, token: &str) -> Result<usize, Code> {
    let mut request = Request::new(ListActiveAgentsRequest {
        session_id: session.to_owned(),
        ..ListActiveAgentsRequest::default()
    });
    let bearer = format!("Bearer {token}").parse().unwrap();
    request.metadata_mut().insert("authorization", bearer);
    let answer = timeout(TIME_LIMIT, client.list_active_agents(request)).await.unwrap();
    answer
        .map(|listed| listed.into_inner().threads.len())
        .map_err(|status| status.code())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copied_log_continues_in_postgres() {
    let database = Database::create();
    let url = database.url();
    let to = ["--store", url.as_str()];
    let mut pair = Pair::start().await;
    let events = log(&mut pair.client, &pair.session).await;
    let refused = run(pair.home.path(), &[&["copy"], &to[..]].concat());
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stderr(&refused).contains("is in use by another troupe"),
        "{}",
        stderr(&refused)
    );
    let (session, thread) = (pair.session.clone(), pair.thread.clone());
    let home = pair.stop().await;
    let home = home.path();

    for arguments in [
        &["copy"][..],
        &["migrate", "--store", "sqlite"],
        &["copy", "--store", "postgres://host"],
    ] {
        let refused = run(home, arguments);
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
        assert!(stderr(&refused).contains("--store"), "{}", stderr(&refused));
    }
    let migrated = run(home, &[&["migrate"], &to[..]].concat());
    assert_eq!(migrated.status.code(), Some(0), "{}", stderr(&migrated));
    let copied = json(home, &[&["copy"], &to[..]].concat());
    assert_eq!(copied["sessions"], Value::from(1));
    let again = run(home, &[&["copy"], &to[..]].concat());
    assert_eq!(again.status.code(), Some(1));
    assert!(
        stderr(&again).contains("choose an empty database"),
        "{}",
        stderr(&again)
    );

    let (mut process, mut client) = start_with(home, &to).await;
    assert_eq!(log(&mut client, &session).await[..events.len()], events);
    let request = ListActiveAgentsRequest {
        session_id: session,
        ..ListActiveAgentsRequest::default()
    };
    let threads = client.list_active_agents(request).await.unwrap().into_inner().threads;
    assert!(threads.iter().any(|listed| listed.thread_id == thread), "{threads:?}");

    let created = client.create_session(CreateSessionRequest::default()).await.unwrap();
    let created = created.into_inner();
    let (session, token) = (created.session.unwrap().session_id, created.thread_token);
    let refused = run(home, &[&["rotate-keys"], &to[..]].concat());
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stderr(&refused).contains("stop all supervisors of it first"),
        "{}",
        stderr(&refused)
    );
    process.kill().await.unwrap();
    assert_eq!(
        json(home, &[&["rotate-keys"], &to[..]].concat())["keys"],
        Value::from(2)
    );
    let (mut process, mut client) = start_with(home, &to).await;
    assert!(listed(&mut client, &session, &token).await.is_ok());
    process.kill().await.unwrap();
    assert_eq!(
        json(home, &[&["rotate-keys", "--keep", "0"], &to[..]].concat())["keys"],
        Value::from(1)
    );
    let (mut process, mut client) = start_with(home, &to).await;
    assert_eq!(listed(&mut client, &session, &token).await, Err(Code::Unauthenticated));
    process.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_kept_keys_stay_valid_after_rotation() {
    let mut pair = Pair::start().await;
    let created = pair.client.create_session(CreateSessionRequest::default()).await;
    let created = created.unwrap().into_inner();
    let (session, token) = (created.session.unwrap().session_id, created.thread_token);
    assert!(listed(&mut pair.client, &session, &token).await.is_ok());
    let refused = run(pair.home.path(), &["rotate-keys"]);
    assert_eq!(refused.status.code(), Some(1));
    let owner = format!("(process {})", pair.process.id().unwrap());
    assert!(stderr(&refused).contains(&owner), "{}", stderr(&refused));
    let home = pair.stop().await;

    let keys = data_dir(home.path()).join("token.keys");
    let before = fs::read_to_string(&keys).unwrap();
    assert_eq!(json(home.path(), &["rotate-keys"])["keys"], Value::from(2));
    assert_ne!(fs::read_to_string(&keys).unwrap(), before);
    assert_eq!(fs::metadata(&keys).unwrap().permissions().mode() & 0o777, 0o600);
    let (mut process, mut client) = start(home.path()).await;
    assert!(listed(&mut client, &session, &token).await.is_ok());
    let newer = client.create_session(CreateSessionRequest::default()).await.unwrap();
    let newer = newer.into_inner();
    let newer = (newer.session.unwrap().session_id, newer.thread_token);
    process.kill().await.unwrap();

    // The newer of two keys is kept.
    assert_eq!(
        json(home.path(), &["rotate-keys", "--keep", "1"])["keys"],
        Value::from(2)
    );
    let (mut process, mut client) = start(home.path()).await;
    assert_eq!(listed(&mut client, &session, &token).await, Err(Code::Unauthenticated));
    assert!(listed(&mut client, &newer.0, &newer.1).await.is_ok());
    process.kill().await.unwrap();
    assert_eq!(run(home.path(), &["rotate-keys", "--keep", "8"]).status.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_store_fails_verification() {
    let mut pair = Pair::start().await;
    let session = pair.session.clone();
    let sound = pair.client.create_session(CreateSessionRequest::default()).await;
    let sound = sound.unwrap().into_inner().session.unwrap();
    let home = pair.stop().await;
    let database = data_dir(home.path()).join("troupe.db");
    let mut bytes = fs::read(&database).unwrap();
    let places: Vec<usize> = bytes
        .windows(MARK.len())
        .enumerate()
        .filter_map(|(at, window)| (window == MARK.as_bytes()).then_some(at))
        .collect();
    assert!(!places.is_empty(), "the log does not hold the message");
    for at in places {
        bytes[at] = b'Q';
    }
    fs::write(&database, bytes).unwrap();

    let output = run(home.path(), &["verify"]);
    assert_eq!(output.status.code(), Some(1));
    let shown = stdout(&output);
    let first = shown.lines().next().unwrap();
    assert!(
        first.starts_with(&session) && first.contains("does not match its checksum"),
        "{shown}"
    );
    assert!(shown.contains("1 session with problems"), "{shown}");
    let output = run(home.path(), &["verify", "--output", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["sound"], Value::from(false));
    assert_eq!(report["faults"][0]["session_id"], Value::from(session.as_str()));

    // The other sessions are still available to an operator.
    let (mut process, _client) = start(home.path()).await;
    let ready: Value = serde_json::from_slice(&fs::read(home.path().join("ready.json")).unwrap()).unwrap();
    let address = ready["supervisor"].as_str().unwrap();
    let listed = up::run(home.path(), &["ps", "--supervisor", address, "--output", "json"]);
    assert_eq!(listed.status.code(), Some(1), "{}", stderr(&listed));
    let shown: Value = serde_json::from_str(&stdout(&listed)).unwrap();
    assert_eq!(shown["sessions"][0]["session_id"], Value::from(sound.session_id));
    assert_eq!(shown["sessions"].as_array().map(Vec::len), Some(1));
    let error: Value = serde_json::from_slice(&listed.stderr).unwrap();
    assert_eq!(error["error"]["reason"], "CORRUPT_RECORD", "{error}");
    assert!(
        error["error"]["message"].as_str().unwrap().contains(&session),
        "{error}"
    );
    let root = &sound.root_thread_id[sound.root_thread_id.len() - 8..];
    let mail = up::run(home.path(), &["mail", root, "--supervisor", address]);
    assert_eq!(mail.status.code(), Some(0), "{}", stderr(&mail));
    process.kill().await.unwrap();
}

#[test]
fn store_commands_reject_missing_data() {
    let home = tempfile::tempdir().unwrap();
    let id = "01939c5a-0000-7000-8000-00000000aa01";
    let backup = home.path().join("backup");
    for arguments in [
        &["verify"][..],
        &["dump", id],
        &["compact"],
        &["rotate-keys"],
        &["backup", backup.to_str().unwrap()],
    ] {
        let help = run(home.path(), &[arguments[0], "--help"]);
        assert_eq!(help.status.code(), Some(0));
        let example = format!("troupe store {}", arguments[0]);
        assert!(stdout(&help).contains(&format!("\n  {example}")), "{}", stdout(&help));

        let refused = run(home.path(), arguments);
        assert_eq!(refused.status.code(), Some(1), "{arguments:?}");
        assert!(stderr(&refused).contains("there is no log at"), "{}", stderr(&refused));
    }
    for action in ["restore", "backups"] {
        let help = run(home.path(), &[action, "--help"]);
        let example = format!("\n  troupe store {action} ");
        assert!(stdout(&help).contains(&example), "{}", stdout(&help));
        let refused = run(home.path(), &[action, backup.to_str().unwrap()]);
        assert_eq!(refused.status.code(), Some(1), "{action}");
        assert!(
            stderr(&refused).contains("cannot use the backup directory"),
            "{}",
            stderr(&refused)
        );
        let empty = tempfile::tempdir().unwrap();
        let listed = run(home.path(), &[action, empty.path().to_str().unwrap()]);
        assert_eq!(listed.status.success(), action == "backups", "{}", stderr(&listed));
    }
    assert!(!data_dir(home.path()).exists() && !backup.exists(), "nothing is made");
    assert_eq!(run(home.path(), &["dump", "aa01"]).status.code(), Some(2), "half an id");
}
