//! Tests of a runner as the init process of a container.

use std::{
    fs,
    path::Path,
    process::{self, Stdio},
    time::Duration,
};

use tokio::{
    process::{Child, Command},
    time::{sleep, timeout},
};

use crate::support::{
    TIME_LIMIT,
    up::{NO_RUNNER, Up, interrupt},
};

/// The command that starts a process as process 1 of a new PID namespace.
const UNSHARE: [&str; 6] = [
    "unshare",
    "--user",
    "--map-root-user",
    "--pid",
    "--fork",
    "--kill-child",
];

/// Returns whether this user may create namespaces.
fn is_possible() -> bool {
    let [unshare, flags @ ..] = UNSHARE;
    let trial = process::Command::new(unshare).args(flags).arg("true").output();
    trial.is_ok_and(|output| output.status.success())
}

/// Starts a runner whose program leaves a process behind. The last argument of that process is `mark`.
fn runner(up: &Up, mark: &str) -> Child {
    let home = up.home.path();
    let [unshare, flags @ ..] = UNSHARE;
    let script = format!(
        "read -r turn\n\
         /bin/sh -c '/bin/sleep 1000; exit' {mark} &\n\
         echo '{{\"type\":\"turn_end\",\"outcome\":\"completed\"}}'\n\
         read -r shutdown\n"
    );
    Command::new(unshare)
        .args(flags)
        // bubblewrap would run each program in its own namespace and leave no process behind. `PATH` therefore
        // does not contain bubblewrap.
        .args(["env", "-i", "PATH=/nowhere"])
        .arg(format!("HOME={}", home.display()))
        .arg(env!("CARGO_BIN_EXE_troupe"))
        .args(["run", "--supervisor", up.supervisor(), "--scratch"])
        .arg(home.join("scratch"))
        .args(["--holds-read-only", "--program", "/bin/sh", "-c", &script])
        .current_dir(home)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// Returns the id of the first process for which `is_meant` returns true.
fn process(is_meant: impl Fn(u32) -> bool) -> Option<u32> {
    let mut ids = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.find(|id| is_meant(*id))
}

fn has_last_argument(id: u32, argument: &str) -> bool {
    let arguments = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    arguments.ends_with(format!("\0{argument}\0").as_bytes())
}

fn is_child_of(id: u32, parent: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.is_some_and(|id| id.trim() == parent.to_string())
}

async fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    timeout(TIME_LIMIT, async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_process_reaps_orphans_and_forwards_signals() {
    if !is_possible() {
        return;
    }
    let up = Up::start_with(&[NO_RUNNER]);
    let mark = up.home.path().join("left-behind").to_str().unwrap().to_owned();
    let mut runner = runner(&up, &mark);
    let outer = runner.id().unwrap();

    let (_, thread) = up.complete(&["worker", "leave something behind", "--no-cwd", "--timeout", "60s"]);
    let left = eventually(|| process(|id| has_last_argument(id, &mark))).await;
    up.succeeds(&["close", &thread, "--wait"]);
    // Exited processes stay in the process table until they are reaped.
    let table = format!("/proc/{left}");
    eventually(|| (!Path::new(&table).exists()).then_some(())).await;

    let first = eventually(|| process(|id| is_child_of(id, outer))).await;
    interrupt(first);
    let ended = timeout(TIME_LIMIT, runner.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(0));
}
