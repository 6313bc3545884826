//! Tests of `troupe store` on the data of real services: running, stopped, damaged and restored.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Output};

use serde_json::Value;
use tokio::time::timeout;
use tonic::{Code, Request};
use troupe_proto::supervisor::v1::{
    CreateSessionRequest, Event, GetSessionRequest, ListActiveAgentsRequest, WatchThreadsRequest,
    watch_threads_response::Message,
};
use troupe_tests::postgres_server::Database;

use crate::support::{
    Client, TIME_LIMIT,
    up::{self, NO_RUNNER, Up, fails, stderr, stdout, succeeded},
};

/// A part of the thread's message, by which a test finds the message in the log file.
const MARK: &str = "quite-unmistakable";

fn run(home: &Path, arguments: &[&str]) -> Output {
    up::run(home, &[&["store"], arguments].concat())
}

/// Runs a command that has to succeed and returns its JSON output.
fn json(home: &Path, arguments: &[&str]) -> Value {
    let output = succeeded(&run(home, &[arguments, &["--output", "json"]].concat()));
    serde_json::from_str(&output).unwrap()
}

/// Checks that a command fails with this text.
#[track_caller]
fn refused(home: &Path, arguments: &[&str], text: &str) {
    fails(&run(home, arguments), 1, text);
}

/// A pair with one session and one thread, and without a runner.
struct Pair {
    up: Up,
    client: Client,
    session: String,
    thread: String,
}

impl Pair {
    async fn start() -> Self {
        let up = Up::start_with(&[NO_RUNNER]);
        let (session, thread) = up.spawn(&["worker", &format!("look for {MARK}"), "--no-cwd"]);
        Self {
            client: up.client().await,
            up,
            session,
            thread,
        }
    }

    fn home(&self) -> &Path {
        self.up.home.path()
    }

    /// Stops the service like Ctrl-C.
    fn stop(&mut self) {
        assert_eq!(self.up.interrupt(), Some(0));
    }

    /// Opens another session. Returns its id and the token of its root.
    async fn open(&mut self) -> (String, String) {
        let created = self.client.create_session(CreateSessionRequest::default()).await;
        let created = created.unwrap().into_inner();
        (created.session.unwrap().session_id, created.thread_token)
    }

    /// Starts the service again on the same data, and connects to it.
    async fn start_again(&mut self, flags: &[&str]) {
        self.up.start_again(&[&[NO_RUNNER], flags].concat());
        self.client = self.up.client().await;
    }
}

/// Returns the log of a session from its beginning.
async fn log(client: &mut Client, session: &str) -> Vec<Event> {
    let head = client
        .get_session(GetSessionRequest {
            session_id: session.to_owned(),
        })
        .await
        .unwrap()
        .into_inner()
        .session
        .unwrap()
        .sequence;
    let request = WatchThreadsRequest {
        session_id: session.to_owned(),
        after_sequence: Some(0),
        ..WatchThreadsRequest::default()
    };
    let mut stream = client.watch_threads(request).await.unwrap().into_inner();
    let mut events = Vec::new();
    timeout(TIME_LIMIT, async {
        while events.last().is_none_or(|event: &Event| event.sequence < head) {
            if let Some(Message::Event(event)) = stream.message().await.unwrap().unwrap().message {
                events.push(event);
            }
        }
    })
    .await
    .unwrap();
    events
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_commands_read_a_running_service() {
    let mut pair = Pair::start().await;
    let events = log(&mut pair.client, &pair.session).await;

    let output = succeeded(&run(pair.home(), &["verify"]));
    let expected = format!("✓ 1 session, {} events, ", events.len());
    assert!(output.starts_with(&expected), "{output}");
    let report = json(pair.home(), &["verify"]);
    assert_eq!(
        (&report["sound"], &report["sessions"]),
        (&Value::from(true), &Value::from(1))
    );
    assert_eq!(report["events"], Value::from(events.len()));

    let dumped = run(pair.home(), &["dump", &pair.session, "--after", "1"]);
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
    let owner = format!("(process {})", pair.up.process.id());
    refused(pair.home(), &["compact"], &owner);
    pair.stop();
    let packed = json(pair.home(), &["compact"]);
    assert!(packed["bytes_after"].as_u64().unwrap() > 0, "{packed}");
    assert_eq!(json(pair.home(), &["verify"])["events"], Value::from(events.len()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_of_running_service_is_restorable() {
    let mut pair = Pair::start().await;
    let backups = tempfile::tempdir().unwrap();
    let destination = backups.path().join("monday");
    let named = destination.to_str().unwrap();
    let made = succeeded(&run(pair.home(), &["backup", named]));
    let how = format!("troupe store restore {named} --data-dir DIR");
    assert!(made.contains(&how), "{made}");
    refused(pair.home(), &["backup", named], "is not empty; nothing is overwritten");
    assert_eq!(
        json(pair.home(), &["verify", "--data-dir", named])["sound"],
        Value::from(true)
    );
    pair.stop();

    for file in fs::read_dir(&destination).unwrap() {
        let file = file.unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
    }
    let home = tempfile::tempdir().unwrap();
    let restored = succeeded(&run(home.path(), &["restore", named]));
    assert!(restored.starts_with("✓ 1 session, "), "{restored}");
    refused(home.path(), &["restore", named], "pass --replace");
    let replaced = json(home.path(), &["restore", named, "--replace"]);
    assert!(
        Path::new(replaced["replaced"].as_str().unwrap())
            .join("troupe.db")
            .exists()
    );
    let up = Up::start_in(home, &[NO_RUNNER]);
    let mut client = up.client().await;
    assert!(has_thread(&mut client, &pair).await);
    refused(
        up.home.path(),
        &["restore", named, "--replace"],
        "is in use by another troupe",
    );
}

/// Returns whether a supervisor has the open thread of a pair.
async fn has_thread(client: &mut Client, pair: &Pair) -> bool {
    let request = ListActiveAgentsRequest {
        session_id: pair.session.clone(),
        ..ListActiveAgentsRequest::default()
    };
    let threads = client.list_active_agents(request).await.unwrap().into_inner().threads;
    threads.iter().any(|listed| listed.thread_id == pair.thread)
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
    let copy = [&["copy"], &to[..]].concat();
    refused(pair.home(), &copy, "is in use by another troupe");
    pair.stop();

    for arguments in [
        &["copy"][..],
        &["migrate", "--store", "sqlite"],
        &["copy", "--store", "postgres://host"],
    ] {
        fails(&run(pair.home(), arguments), 2, "--store");
    }
    succeeded(&run(pair.home(), &[&["migrate"], &to[..]].concat()));
    assert_eq!(json(pair.home(), &copy)["sessions"], Value::from(1));
    refused(pair.home(), &copy, "choose an empty database");

    pair.start_again(&to).await;
    assert_eq!(log(&mut pair.client, &pair.session).await[..events.len()], events);
    assert!(has_thread(&mut pair.client.clone(), &pair).await);

    let (session, token) = pair.open().await;
    let rotate = [&["rotate-keys"], &to[..]].concat();
    refused(pair.home(), &rotate, "stop all supervisors of it first");
    pair.up.kill();
    assert_eq!(json(pair.home(), &rotate)["keys"], Value::from(2));
    pair.start_again(&to).await;
    assert!(listed(&mut pair.client, &session, &token).await.is_ok());
    pair.up.kill();
    let rotated = json(pair.home(), &[&rotate[..], &["--keep", "0"]].concat());
    assert_eq!(rotated["keys"], Value::from(1));
    pair.start_again(&to).await;
    let rejected = listed(&mut pair.client, &session, &token).await;
    assert_eq!(rejected, Err(Code::Unauthenticated));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_kept_keys_stay_valid_after_rotation() {
    let mut pair = Pair::start().await;
    let (session, token) = pair.open().await;
    assert!(listed(&mut pair.client, &session, &token).await.is_ok());
    let owner = format!("(process {})", pair.up.process.id());
    refused(pair.home(), &["rotate-keys"], &owner);
    pair.stop();

    let keys = pair.up.data_dir().join("token.keys");
    let before = fs::read_to_string(&keys).unwrap();
    assert_eq!(json(pair.home(), &["rotate-keys"])["keys"], Value::from(2));
    assert_ne!(fs::read_to_string(&keys).unwrap(), before);
    assert_eq!(fs::metadata(&keys).unwrap().permissions().mode() & 0o777, 0o600);
    pair.start_again(&[]).await;
    assert!(listed(&mut pair.client, &session, &token).await.is_ok());
    let newer = pair.open().await;
    pair.up.kill();

    // Of the two earlier keys, the newer one stays valid.
    let rotated = json(pair.home(), &["rotate-keys", "--keep", "1"]);
    assert_eq!(rotated["keys"], Value::from(2));
    pair.start_again(&[]).await;
    let rejected = listed(&mut pair.client, &session, &token).await;
    assert_eq!(rejected, Err(Code::Unauthenticated));
    assert!(listed(&mut pair.client, &newer.0, &newer.1).await.is_ok());
    assert_eq!(run(pair.home(), &["rotate-keys", "--keep", "8"]).status.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_store_fails_verification() {
    let mut pair = Pair::start().await;
    let sound = pair.client.create_session(CreateSessionRequest::default()).await;
    let sound = sound.unwrap().into_inner().session.unwrap();
    pair.stop();
    let database = pair.up.data_dir().join("troupe.db");
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

    let output = run(pair.home(), &["verify"]);
    assert_eq!(output.status.code(), Some(1));
    let shown = stdout(&output);
    let first = shown.lines().next().unwrap();
    assert!(
        first.starts_with(&pair.session) && first.contains("does not match its checksum"),
        "{shown}"
    );
    assert!(shown.contains("1 session with problems"), "{shown}");
    let output = run(pair.home(), &["verify", "--output", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["sound"], Value::from(false));
    assert_eq!(report["faults"][0]["session_id"], Value::from(pair.session.as_str()));

    // The other sessions are still available to an operator.
    pair.up.start_again(&[NO_RUNNER]);
    let listed = pair.up.run(&["ps", "--output", "json"]);
    assert_eq!(listed.status.code(), Some(1), "{}", stderr(&listed));
    let shown: Value = serde_json::from_str(&stdout(&listed)).unwrap();
    assert_eq!(shown["sessions"][0]["session_id"], Value::from(sound.session_id));
    assert_eq!(shown["sessions"].as_array().map(Vec::len), Some(1));
    let error: Value = serde_json::from_slice(&listed.stderr).unwrap();
    assert_eq!(error["error"]["reason"], "CORRUPT_RECORD", "{error}");
    assert!(
        error["error"]["message"].as_str().unwrap().contains(&pair.session),
        "{error}"
    );
    let root = &sound.root_thread_id[sound.root_thread_id.len() - 8..];
    pair.up.text(&["mail", root]);
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

        refused(home.path(), arguments, "there is no log at");
    }
    for action in ["restore", "backups"] {
        let help = run(home.path(), &[action, "--help"]);
        let example = format!("\n  troupe store {action} ");
        assert!(stdout(&help).contains(&example), "{}", stdout(&help));
        refused(
            home.path(),
            &[action, backup.to_str().unwrap()],
            "cannot use the backup directory",
        );
        let empty = tempfile::tempdir().unwrap();
        let listed = run(home.path(), &[action, empty.path().to_str().unwrap()]);
        assert_eq!(listed.status.success(), action == "backups", "{}", stderr(&listed));
    }
    assert!(
        !home.path().join(".local/share/troupe").exists() && !backup.exists(),
        "nothing is made"
    );
    assert_eq!(run(home.path(), &["dump", "aa01"]).status.code(), Some(2), "half an id");
}
