//! Scheduled backups of a real supervisor: schedule, retention, interruption, an unusable directory, and restoration.

use std::{fs, path::PathBuf, time::UNIX_EPOCH};

use serde_json::{Value, json};
use supervisor_log::{
    maintenance::{BackupState, StoredBackup, backups},
    store::DATABASE,
};
use tokio::process::Command;
use troupe_proto::supervisor::v1::CreateSessionRequest;
use troupe_tests::{
    agents::{message, settled},
    client::supervisor,
    process::{Home, Up, service, stderr, terminate},
    tree::Tree,
    until, within,
};

use crate::{metrics::get, pair_process::supervisor_at};

/// The directory of backups in the home.
const BACKUPS: &str = "backups";

/// Size of data that makes a backup take long enough to be interrupted, in bytes.
const BALLAST: usize = 96 * 1024 * 1024;

fn data_dir(home: &Home) -> PathBuf {
    home.path().join(".local/share/troupe")
}

fn home_with_backups() -> Home {
    let home = Home::default();
    fs::create_dir(home.path().join(BACKUPS)).unwrap();
    home
}

/// Starts `up` with backups at this interval.
async fn up(home: &Home, every: &str, more: &[&str]) -> Up {
    let schedule = ["--backup-dir", BACKUPS, "--backup-every", every];
    Box::pin(Up::start_with(home, &[Up::ARGUMENTS, &schedule, more].concat())).await
}

fn in_state(home: &Home, state: BackupState) -> Vec<StoredBackup> {
    let mut found = backups(&home.path().join(BACKUPS)).unwrap();
    found.retain(|stored| stored.state == state);
    found
}

fn complete(home: &Home) -> Vec<StoredBackup> {
    in_state(home, BackupState::Complete)
}

/// Waits until `wanted` returns true for the complete backups.
async fn await_backups(home: &Home, wanted: impl Fn(&[StoredBackup]) -> bool) -> Vec<StoredBackup> {
    let mut found = Vec::new();
    until("the backups", || {
        found = complete(home);
        wanted(&found)
    })
    .await;
    found
}

/// Waits for the next second. A backup is named after its second, so the next backup has a new name and is newer than
/// every earlier change.
async fn next_second() {
    let second = || UNIX_EPOCH.elapsed().unwrap().as_secs();
    let present = second();
    until("the next second", || second() != present).await;
}

/// Returns a metric of the process with this admin port.
async fn metric(admin: &str, name: &str) -> Option<f64> {
    let answer = get(admin, "/metrics").await;
    let values = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
    answer.lines().find_map(values)
}

/// Makes the log large. No process may have it open.
fn add_ballast(home: &Home) {
    let database = rusqlite::Connection::open(data_dir(home).join(DATABASE)).unwrap();
    database.execute_batch("CREATE TABLE ballast (bytes BLOB)").unwrap();
    for _ in 0..BALLAST / (1024 * 1024) {
        database
            .execute("INSERT INTO ballast VALUES (randomblob(1024 * 1024))", [])
            .unwrap();
    }
}

/// Starts `up` over a large log and waits until a backup has begun. The backup may be complete by then.
async fn backing_up(home: &Home) -> Up {
    let up = up(home, "24h", &[]).await;
    until("a backup", || !backups(&home.path().join(BACKUPS)).unwrap().is_empty()).await;
    up
}

fn remove_backups(home: &Home) {
    fs::remove_dir_all(home.path().join(BACKUPS)).unwrap();
    fs::create_dir(home.path().join(BACKUPS)).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newest_backups_are_kept_and_restorable() {
    let home = home_with_backups();
    let up = up(&home, "1s", &["--backup-keep", "2"]).await;
    let tree = Tree::open(up.client(), CreateSessionRequest::default()).await;
    let log = tree.log().await;
    let first = await_backups(&home, |found| !found.is_empty()).await.remove(0);
    let kept = await_backups(&home, |found| found.len() == 2 && found[0].time > first.time).await;
    // The second backup was started after the session was created.
    assert!(kept[1].time > kept[0].time);
    up.kill().await;

    let restored = Home::default();
    let source = home.path().join(BACKUPS);
    let listed = restored
        .run(&["store", "backups", source.to_str().unwrap(), "--output", "json"])
        .await;
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert!(
        listed["backups"]
            .as_array()
            .unwrap()
            .iter()
            .any(|backup| backup["state"] == "complete")
    );
    let done = restored.run(&["store", "restore", source.to_str().unwrap()]).await;
    assert!(done.status.success(), "{}", stderr(&done));
    let up = Up::start(&restored).await;
    assert_eq!(tree.by(up.client()).log().await, log);
    up.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_keeps_the_schedule() {
    let home = home_with_backups();
    let first = up(&home, "24h", &[]).await;
    let made = await_backups(&home, |found| found.len() == 1).await;
    assert!(first.terminate().await.success());

    let second = up(&home, "24h", &["--admin-listen", "127.0.0.1:0"]).await;
    let admin = second.ready["admin"].as_str().unwrap();
    let seconds = made[0].time.get() / 1_000;
    within("the time of the backup", async {
        while metric(admin, "troupe_backup_last_success_seconds").await != Some(seconds as f64) {}
    })
    .await;
    assert_eq!(
        metric(admin, "troupe_backup_size_bytes").await,
        None,
        "no backup was made"
    );
    assert!(second.terminate().await.success());

    // The service starts after the interval has passed.
    let earlier = made[0].time.get() - 25 * 60 * 60 * 1_000;
    let name = prost_types::Timestamp {
        seconds: (earlier / 1_000) as i64,
        nanos: 0,
    };
    let name = name.to_string().replace(['-', ':'], "");
    fs::rename(&made[0].path, made[0].path.with_file_name(name)).unwrap();
    let third = up(&home, "24h", &[]).await;
    await_backups(&home, |found| found.len() == 2).await;
    third.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_process_leaves_no_incomplete_backup() {
    let home = home_with_backups();
    assert!(Up::start(&home).await.terminate().await.success());
    add_ballast(&home);
    loop {
        let up = backing_up(&home).await;
        // Writes do not wait for the backup.
        Tree::open(up.client(), CreateSessionRequest::default()).await;
        up.kill().await;
        if complete(&home).is_empty() {
            break;
        }
        remove_backups(&home);
    }
    assert_eq!(in_state(&home, BackupState::Unfinished).len(), 1);
    let restored = Home::default();
    let source = home.path().join(BACKUPS);
    let refused = restored.run(&["store", "restore", source.to_str().unwrap()]).await;
    let error = stderr(&refused);
    assert!(error.contains("there is no complete backup"), "{error}");

    let up = up(&home, "24h", &[]).await;
    await_backups(&home, |found| found.len() == 1).await;
    assert!(in_state(&home, BackupState::Unfinished).is_empty());
    up.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_cancels_a_backup_and_removes_it() {
    let home = home_with_backups();
    assert!(Up::start(&home).await.terminate().await.success());
    add_ballast(&home);
    loop {
        assert!(backing_up(&home).await.terminate().await.success());
        if complete(&home).is_empty() {
            break;
        }
        remove_backups(&home);
    }
    assert_eq!(fs::read_dir(home.path().join(BACKUPS)).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_directory_does_not_stop_the_service() {
    let home = Home::default();
    let up = up(&home, "1s", &["--admin-listen", "127.0.0.1:0"]).await;
    let admin = up.ready["admin"].as_str().unwrap();
    within("a failure", async {
        while metric(admin, "troupe_backup_failures_total").await < Some(1.0) {}
    })
    .await;
    assert_eq!(metric(admin, "troupe_backup_last_success_seconds").await, Some(0.0));
    let log = fs::read_to_string(home.path().join("log")).unwrap();
    assert!(
        log.contains("backup failed") && log.contains("cannot use the backup directory"),
        "{log}"
    );
    Tree::open(up.client(), CreateSessionRequest::default()).await;

    fs::create_dir(home.path().join(BACKUPS)).unwrap();
    await_backups(&home, |found| !found.is_empty()).await;
    up.kill().await;
}

/// A limit on the size of files simulates a full disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_backup_directory_does_not_stop_the_service() {
    let home = home_with_backups();
    assert!(Up::start(&home).await.terminate().await.success());
    add_ballast(&home);
    let (command, ready) = service(&home, "supervisor");
    let program = command.as_std();
    // The unit of `ulimit -f` is 512 or 1024 bytes.
    let mut process = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 65536; exec \"$@\"", "sh"])
        .arg(program.get_program())
        .args(program.get_args())
        .args(["--backup-dir", BACKUPS, "--admin-listen", "127.0.0.1:0"])
        .env_clear()
        .env("HOME", home.path())
        .current_dir(home.path())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let address = within("a service that serves", ready.address()).await;
    let admin = &within("its admin port", ready.admin()).await;
    within("a failure", async {
        while metric(admin, "troupe_backup_failures_total").await < Some(1.0) {}
    })
    .await;
    assert_eq!(fs::read_dir(home.path().join(BACKUPS)).unwrap().count(), 0);
    let client = supervisor(address.parse().unwrap(), None);
    Tree::open(client, CreateSessionRequest::default()).await;
    terminate(&process);
    assert!(within("its end", process.wait()).await.unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_of_another_release_is_backed_up_first() {
    let home = home_with_backups();
    let first = up(&home, "24h", &[]).await;
    await_backups(&home, |found| found.len() == 1).await;
    assert!(first.terminate().await.success());
    let database = rusqlite::Connection::open(data_dir(&home).join(DATABASE)).unwrap();
    let changed = database.execute("UPDATE meta SET value = x'302E30' WHERE key = 'release'", []);
    assert_eq!(changed, Ok(1));
    drop(database);
    next_second().await;

    let second = up(&home, "24h", &[]).await;
    assert_eq!(
        complete(&home).len(),
        2,
        "the backup is complete before the service serves"
    );
    assert!(second.terminate().await.success());

    // No migration exists, so the start fails. The log is backed up as before a migration, and only once.
    let database = rusqlite::Connection::open(data_dir(&home).join(DATABASE)).unwrap();
    database.pragma_update(None, "user_version", 1).unwrap();
    drop(database);
    next_second().await;
    for _ in 0..2 {
        let refused = home.run(&[Up::ARGUMENTS, &["--backup-dir", BACKUPS]].concat()).await;
        let error = stderr(&refused);
        assert!(error.contains("the database has schema version 1"), "{error}");
        assert_eq!(complete(&home).len(), 3, "{error}");
    }
}

/// Replies with the number of entries in a directory.
const COUNT: &str = r#"
while read -r line; do
  case "$line" in
    *'"type":"turn"'*)
      printf '{"type":"turn_end","outcome":"completed","message":"%d"}\n' "$(ls "$1" | wc -l)"
  esac
done
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_of_up_do_not_see_backups() {
    let home = home_with_backups();
    let directory = home.path().join(BACKUPS);
    let program = json!({ "kind": "process", "command": "sh", "args": ["-c", COUNT, "sh", directory] });
    let programs = json!({ "programs": [program] });
    fs::write(home.path().join("runner.yaml"), programs.to_string()).unwrap();
    let more = ["--trust-loopback", "--programs", "runner.yaml", "--backup-dir", BACKUPS];
    let ready = home.path().join("ready.json");
    let mut process = home
        .troupe(&[Up::WITH_RUNNER, &more].concat())
        .env("PATH", "/usr/bin:/bin")
        .arg("--ready-file")
        .arg(&ready)
        .spawn()
        .unwrap();
    await_backups(&home, |found| !found.is_empty()).await;
    let address = supervisor_at(&ready).await;
    let tree = Tree::open(supervisor(address, None), CreateSessionRequest::default()).await;
    let thread = settled(&tree, &tree.spawn("worker").await.id).await;
    // Without bubblewrap, nothing is hidden, and the runner logs that.
    let mut confined = Command::new("bwrap");
    let confined = confined
        .args(["--unshare-all", "--ro-bind", "/", "/", "true"])
        .status()
        .await;
    let seen = if confined.is_ok_and(|status| status.success()) {
        "0"
    } else {
        "1"
    };
    assert_eq!(message(&thread), seen);
    process.kill().await.unwrap();
}

#[tokio::test]
async fn invalid_backup_settings_are_usage_errors() {
    let home = Home::default();
    let inside = data_dir(&home).join("backups");
    fs::create_dir_all(&inside).unwrap();
    for (arguments, expected) in [
        (&["--backup-dir", inside.to_str().unwrap()][..], "would be lost with it"),
        (&["--backup-dir", "x", "--backup-every", "0s"], "expected at least 1s"),
        (&["--backup-every", "1h"], "--backup-dir <DIR>"),
    ] {
        let refused = home.run(&[Up::ARGUMENTS, arguments].concat()).await;
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        let error = stderr(&refused);
        assert!(error.contains(expected), "{error}");
    }
    // The same settings in a file.
    let file = home.path().join("troupe.yaml");
    fs::write(&file, "backup_dir: /mnt/backups\nbackup_every: 6h\nbackup_keep: 3\n").unwrap();
    let file = file.to_str().unwrap();
    let printed = home
        .run(&["up", "--config", file, "--print-config", "--output", "json"])
        .await;
    let printed = String::from_utf8_lossy(&printed.stdout);
    assert!(printed.contains("/mnt/backups") && printed.contains("6h"), "{printed}");
}
