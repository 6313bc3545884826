//! `troupe launcher`: programs with another user than their runner.

use std::{
    env,
    ffi::OsStr,
    fs,
    io::{self, Write as _},
    os::unix::{fs::PermissionsExt as _, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

use rustix::process::{Pid, Signal, getuid, kill_process};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    net::UnixStream,
    process::{Child, Command},
    time::sleep,
};
use troupe_proto::supervisor::v1::{CreateSessionRequest, StatusKind};
use troupe_tests::{
    agents::{LAUNCHER_USER, LOOK_EVERY, settled},
    process::{Home, Up, signal, troupe},
    tree::{Tree, kind},
    until, within,
};

struct Launcher {
    process: Child,
    directory: TempDir,
}

impl Launcher {
    /// Starts a launcher with another user. Returns `None` if the tests do not run as root.
    async fn start() -> Option<Self> {
        if !getuid().is_root() {
            let _ = writeln!(io::stderr(), "NOT RUN: programs of another user need root");
            assert!(env::var_os("TROUPE_CI_STRICT").is_none(), "this test needs root");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o770)).unwrap();
        // The other user may have no access to the directory of the binary. A separate process copies it: if this
        // process had the file open for writing, a program that another test starts could inherit the descriptor, and
        // the copy could not be executed.
        let copied = Command::new("cp").arg(troupe()).arg(directory.path()).status().await;
        assert!(copied.unwrap().success());
        let process = Self::spawn(directory.path()).await;
        Some(Self { process, directory })
    }

    async fn spawn(directory: &Path) -> Child {
        let socket = directory.join("socket");
        let mut command = as_agent(directory.join("troupe"));
        command.arg("launcher").arg(&socket).stderr(Stdio::null());
        let process = command.spawn().unwrap();
        within("the socket", async {
            while UnixStream::connect(&socket).await.is_err() {
                sleep(LOOK_EVERY).await;
            }
        })
        .await;
        process
    }

    fn troupe(&self) -> PathBuf {
        self.directory.path().join("troupe")
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// Returns the command that runs a shell script through the launcher.
    fn shell(&self, script: &str) -> Command {
        launch(&self.socket(), script)
    }

    async fn run(&self, script: &str) -> Output {
        self.shell(script).output().await.unwrap()
    }
}

/// Returns the command of a program with the user of the launcher.
fn as_agent(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", &LAUNCHER_USER.to_string(), "--regid", "0", "--clear-groups"])
        .arg(program)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    command
}

fn launch(socket: &Path, script: &str) -> Command {
    let mut command = Command::new(troupe());
    command
        .args(["launch", "--socket"])
        .arg(socket)
        .args(["--", "/bin/sh", "-c", script])
        .current_dir(socket.parent().unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

fn text(output: &[u8]) -> &str {
    std::str::from_utf8(output).unwrap().trim()
}

#[tokio::test]
async fn launched_program_has_own_streams_environment_and_user() {
    let Some(launcher) = Launcher::start().await else {
        return;
    };
    let token = launcher.directory.path().join("token");
    fs::write(&token, "secret").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();

    let mut running = launcher
        .shell("read line; echo \"$line $GIVEN $(id -u)\"; echo complaint >&2; touch made; cat token; exit 7")
        .env("GIVEN", "variable")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = running.stdin.take().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut input, b"line\n")
        .await
        .unwrap();
    let output = within("the end", running.wait_with_output()).await.unwrap();
    assert_eq!(text(&output.stdout), format!("line variable {LAUNCHER_USER}"));
    assert!(text(&output.stderr).starts_with("complaint"), "{output:?}");
    assert_eq!(output.status.code(), Some(7));
    let made = fs::metadata(launcher.directory.path().join("made")).unwrap();
    assert_eq!(
        made.permissions().mode() & 0o777,
        0o660,
        "the group may read and write the file"
    );

    let output = launcher.run("kill -9 $$").await;
    assert_eq!(output.status.code(), Some(128 + 9));
    let missing = Command::new(troupe())
        .args(["launch", "--socket"])
        .arg(launcher.socket())
        .args(["--", "/no/such/program"])
        .output()
        .await
        .unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        text(&missing.stderr).contains("cannot start /no/such/program"),
        "{missing:?}"
    );
}

#[tokio::test]
async fn launcher_forwards_signals_and_exit_statuses() {
    let Some(mut launcher) = Launcher::start().await else {
        return;
    };
    // Prints its process id, and then ends only by a signal.
    let lasting = "echo $$; while :; do sleep 0.01; done";
    let started = async |script: &str| {
        let mut running = launcher.shell(script).spawn().unwrap();
        let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
        let id = within("its id", lines.next_line()).await.unwrap().unwrap();
        (running, PathBuf::from("/proc").join(id))
    };

    let (mut running, _) = started(&format!("trap 'exit 5' TERM; {lasting}")).await;
    signal(&running, Signal::TERM);
    assert_eq!(within("the end", running.wait()).await.unwrap().code(), Some(5));

    let (mut running, place) = started(&format!("trap '' TERM; {lasting}")).await;
    signal(&running, Signal::KILL);
    assert_eq!(within("the end", running.wait()).await.unwrap().signal(), Some(9));
    until("the end of the program", || !place.exists()).await;

    // The runner also receives the signal and decides when its programs end, so the launcher continues.
    let (mut running, place) = started(lasting).await;
    signal(&launcher.process, Signal::TERM);
    assert_eq!(
        text(&launcher.run("echo started during the end").await.stdout),
        "started during the end"
    );
    launcher.process.start_kill().unwrap();
    assert_eq!(within("the end", running.wait()).await.unwrap().code(), Some(1));
    // A container would end with its first process. Here, the program survives the launcher.
    let id = place.file_name().unwrap().to_str().unwrap().parse().unwrap();
    kill_process(Pid::from_raw(id).unwrap(), Signal::KILL).unwrap();
    let mut complaint = String::new();
    running
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut complaint)
        .await
        .unwrap();
    assert!(complaint.contains("the launcher ended"), "{complaint}");
}

#[tokio::test]
async fn launcher_ends_after_its_last_program() {
    let Some(mut launcher) = Launcher::start().await else {
        return;
    };
    let mut running = launcher
        .shell("echo started; read line")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    within("the start", lines.next_line()).await.unwrap().unwrap();
    // A process that an agent has left behind does not delay the end.
    let hold = r#"socket(S, PF_UNIX, SOCK_STREAM, 0); connect(S, sockaddr_un($ARGV[0])) or die; print "\n"; close STDOUT; sleep 60"#;
    let mut held = as_agent("perl")
        .args(["-MSocket", "-e", hold])
        .arg(launcher.socket())
        .spawn()
        .unwrap();
    let mut connected = BufReader::new(held.stdout.take().unwrap()).lines();
    within("the connection", connected.next_line()).await.unwrap().unwrap();
    signal(&launcher.process, Signal::TERM);
    drop(running.stdin.take());
    assert_eq!(within("the end", running.wait()).await.unwrap().code(), Some(1));
    assert!(within("the end", launcher.process.wait()).await.unwrap().success());
}

#[tokio::test]
async fn launcher_refuses_its_own_user() {
    let Some(launcher) = Launcher::start().await else {
        return;
    };
    let escape = format!(
        "{} launch --socket {} -- /bin/sh -c 'echo escaped'",
        launcher.troupe().display(),
        launcher.socket().display()
    );
    let output = launcher.run(&escape).await;
    assert_eq!(text(&output.stdout), "");
    let refusal = format!("the launcher and its programs have the user id {LAUNCHER_USER}; a runner needs another one");
    assert!(text(&output.stderr).contains(&refusal), "{output:?}");
}

#[tokio::test]
async fn malformed_order_starts_no_program() {
    let Some(launcher) = Launcher::start().await else {
        return;
    };
    for bytes in [&b""[..], b"\0\0", &[0xff; 64], b"\0\0\0\x02{}"] {
        let mut stream = std::os::unix::net::UnixStream::connect(launcher.socket()).unwrap();
        stream.write_all(bytes).unwrap();
        drop(stream);
    }
    let output = launcher.run("echo it still works").await;
    assert_eq!(text(&output.stdout), "it still works");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runner_continues_with_another_launcher() {
    let Some(mut launcher) = Launcher::start().await else {
        return;
    };
    let home = Home::default();
    let up = Up::start(&home).await;
    let mut runner = Command::new(launcher.troupe());
    runner
        .args(["run", "--launcher"])
        .arg(launcher.socket())
        .args(["--supervisor", &format!("http://{}", up.supervisor)])
        .args(["--scratch", "scratch", "--state", "state"])
        .env_clear()
        .env("HOME", home.path())
        .current_dir(launcher.directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let runner = runner.spawn().unwrap();
    let tree = Tree::open(up.client(), CreateSessionRequest::default()).await;
    let work = async || {
        let thread = tree.spawn_for("worker", "Hello.").await.id;
        let ended = settled(&tree, &thread).await;
        assert_eq!(kind(&ended), StatusKind::Completed, "{ended:?}");
    };
    work().await;

    launcher.process.kill().await.unwrap();
    launcher.process = Launcher::spawn(launcher.directory.path()).await;
    work().await;

    // The runner uses the new launcher. After SIGTERM, the launcher continues until the runner has ended.
    signal(&launcher.process, Signal::TERM);
    work().await;
    signal(&runner, Signal::TERM);
    assert!(within("the end", launcher.process.wait()).await.unwrap().success());
}

#[tokio::test]
async fn runner_can_be_stopped_while_it_waits_for_its_launcher() {
    let home = Home::default();
    let mut runner = home.troupe(&["run", "--launcher", "nowhere"]);
    let mut runner = runner.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", runner.id().unwrap());
    let handled = || {
        let status = fs::read_to_string(&status).unwrap();
        let handled = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap();
        u64::from_str_radix(handled, 16).unwrap()
    };
    let term = 1 << (Signal::TERM.as_raw() - 1);
    until("the handler", || handled() & term != 0).await;
    signal(&runner, Signal::TERM);
    assert!(within("the end", runner.wait()).await.unwrap().success());
}
