//! The process that represents a program at the runner: it has the program's streams, receives its signals, and ends
//! with its exit status.

use std::{
    env,
    ffi::OsString,
    fs::File,
    future::pending,
    io::{self, stderr, stdin, stdout},
    os::fd::AsFd as _,
    path::Path,
    thread,
    time::Duration,
};

use rustix::stdio::{dup2_stdin, dup2_stdout};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    signal::unix::{SignalKind, signal},
};

use super::{
    connect,
    order::{self, End, Order},
};
use crate::allowed_paths::AllowedPaths;

/// Maximum time that a launcher may be unreachable, for example because its container restarts.
const RETURNS_WITHIN: Duration = Duration::from_secs(10);
/// The signals that are forwarded. SIGKILL cannot be forwarded, but it closes the connection.
const PASSED_ON: [SignalKind; 3] = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];

/// Lets the launcher at the socket start a program with the environment, directory and standard streams of this
/// process. Returns the exit status of the program.
///
/// # Errors
///
/// The launcher is not reachable, or cannot start the program.
pub async fn run(
    socket: &Path,
    command: OsString,
    args: Vec<OsString>,
    allowed: Option<AllowedPaths>,
) -> io::Result<u8> {
    let order = Order {
        command,
        args,
        directory: env::current_dir()?.into(),
        environment: env::vars_os().collect(),
        allowed,
    };
    // Installed before the order is sent, so that no signal is missed.
    let [interrupt, terminate, hang_up] = PASSED_ON.map(signal);
    let (mut interrupt, mut terminate, mut hang_up) = (interrupt?, terminate?, hang_up?);
    let stream = connect(socket, RETURNS_WITHIN).await?.into_std()?;
    stream.set_nonblocking(false)?;
    order::send(&stream, &order, &[stdin().as_fd(), stdout().as_fd(), stderr().as_fd()])?;
    // Releases the standard streams, so that they close when the program closes them.
    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    stream.set_nonblocking(true)?;
    let (mut answers, mut signals) = UnixStream::from_std(stream)?.into_split();
    let mut answer = Vec::new();
    let reading = answers.read_to_end(&mut answer);
    let orphaned = wait_for_parent_end();
    tokio::pin!(reading, orphaned);
    loop {
        let kind = tokio::select! {
            read = &mut reading => {
                read?;
                break;
            }
            // When this process ends, the connection closes and the launcher kills the program.
            ended = &mut orphaned => {
                ended?;
                return Err(io::Error::other("the runner ended"));
            }
            _ = interrupt.recv() => SignalKind::interrupt(),
            _ = terminate.recv() => SignalKind::terminate(),
            _ = hang_up.recv() => SignalKind::hangup(),
        };
        signals.write_i32(kind.as_raw_value()).await?;
    }
    match serde_json::from_slice(&answer) {
        Ok(End::Exited(status)) => Ok(status),
        Ok(End::OutOfMemory) => Err(io::Error::other(
            "out of memory: it was killed at the limit of its container",
        )),
        Ok(End::NotStarted(why)) => Err(io::Error::other(why)),
        Err(_) => Err(io::Error::other(
            "the launcher ended, and its programs with it; its container may have run out of memory",
        )),
    }
}

/// Waits until the process that started this one has ended.
#[cfg(target_os = "linux")]
async fn wait_for_parent_end() -> io::Result<()> {
    use rustix::{
        event::{PollFd, PollFlags, poll},
        process::{PidfdFlags, getppid, pidfd_open},
    };
    use tokio::sync::oneshot;

    // The parent is in another container, and cannot be observed.
    let Some(parent) = getppid() else {
        return pending().await;
    };
    let descriptor = pidfd_open(parent, PidfdFlags::empty())?;
    let (ended, end) = oneshot::channel();
    thread::spawn(move || {
        let waited = poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None);
        ended.send(waited)
    });
    end.await.map_err(io::Error::other)??;
    Ok(())
}

/// Never completes. Launchers are for containers, which run Linux.
#[cfg(not(target_os = "linux"))]
async fn wait_for_parent_end() -> io::Result<()> {
    pending().await
}
