//! The launcher: starts the programs that runners order.

use std::{convert::Infallible, fs, io, os::fd::OwnedFd, path::Path, process::ExitStatus, time::Duration};

use rustix::{
    net::{RecvFlags, recv},
    process::Signal,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, Interest},
    net::{UnixListener, UnixStream},
    process::{Child, Command},
    task::spawn_blocking,
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

use super::{
    order::{self, End, Order},
    share_files,
};
use crate::{allowed_paths, group::Group};

/// Time limit for a caller to send its order.
const ORDERED_WITHIN: Duration = Duration::from_secs(10);
/// The exit status of a program that received SIGKILL.
const KILLED: u8 = 128 + 9;
/// The files with the memory counters of a container's control group, of cgroup versions 2 and 1.
const OUT_OF_MEMORY_COUNTERS: [&str; 2] = [
    "/sys/fs/cgroup/memory.events",
    "/sys/fs/cgroup/memory/memory.oom_control",
];
/// Delay after a failed accept: the process may have no free descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Starts the programs that runners order at a socket. Replaces the socket of an earlier launcher. After `shutdown`,
/// the launcher continues until its runner has ended, because the containers of the launcher and of the runner receive
/// the signal to end at the same time.
///
/// # Errors
///
/// The socket cannot be created.
pub async fn serve(socket: &Path, shutdown: CancellationToken) -> io::Result<()> {
    share_files();
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(socket)?;
    info!(socket = %socket.display(), "starting programs for runners");
    let orders = TaskTracker::new();
    orders.close();
    let none_left = async {
        shutdown.cancelled().await;
        orders.wait().await;
    };
    tokio::select! {
        never = accept(&listener, &orders) => match never {},
        () = none_left => Ok(()),
    }
}

async fn accept(listener: &UnixListener, orders: &TaskTracker) -> Infallible {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match stream.peer_cred() {
                // These connections are not tracked, so agents cannot prevent the launcher from ending.
                Ok(caller) if caller.uid() == own_user() => drop(tokio::spawn(report(refuse(stream)))),
                Ok(_) => drop(orders.spawn(report(serve_order(stream)))),
                Err(error) => warn!(%error, "the user of a caller is not known"),
            },
            Err(error) => {
                warn!(%error, "a connection was not accepted");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn report(served: impl Future<Output = io::Result<()>>) {
    if let Err(error) = served.await {
        warn!(%error, "an order failed");
    }
}

fn own_user() -> u32 {
    rustix::process::getuid().as_raw()
}

async fn refuse(stream: UnixStream) -> io::Result<()> {
    let Some((mut stream, order, _)) = receive(stream).await? else {
        return Ok(());
    };
    let user = own_user();
    warn!(user, program = %order.command.display(), "rejected a caller with the user id of the programs");
    let why = format!("the launcher and its programs have the user id {user}; a runner needs another one");
    answer(&mut stream, &End::NotStarted(why)).await
}

async fn serve_order(stream: UnixStream) -> io::Result<()> {
    let Some((mut stream, order, streams)) = receive(stream).await? else {
        return Ok(());
    };
    let name = order.command.clone();
    let kills_before = out_of_memory_kills();
    let end = match start(order, streams) {
        Ok((child, group)) => match supervise(child, &group, &mut stream).await? {
            KILLED if out_of_memory_kills() > kills_before => End::OutOfMemory,
            status => End::Exited(status),
        },
        Err(error) => End::NotStarted(format!("cannot start {}: {error}", name.display())),
    };
    answer(&mut stream, &end).await
}

/// Receives an order. `None`: the caller has closed the connection without an order.
async fn receive(stream: UnixStream) -> io::Result<Option<(UnixStream, Order, [OwnedFd; 3])>> {
    await_first_byte(&stream).await?;
    let stream = stream.into_std()?;
    let receiving = spawn_blocking(move || {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(ORDERED_WITHIN))?;
        let received = order::receive(&stream);
        stream.set_nonblocking(true)?;
        received.map(|(order, streams)| (stream, order, streams))
    });
    match receiving.await.map_err(io::Error::other)? {
        Ok((stream, order, streams)) => Ok(Some((UnixStream::from_std(stream)?, order, streams))),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Waits for the first byte, or for the end of the connection. A runner keeps one connection without an order open as
/// long as it runs.
async fn await_first_byte(stream: &UnixStream) -> io::Result<()> {
    loop {
        stream.readable().await?;
        // Readiness may be spurious.
        let looked = stream.try_io(Interest::READABLE, || Ok(recv(stream, &mut [0; 1], RecvFlags::PEEK)?));
        match looked {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            looked => return looked.map(drop),
        }
    }
}

async fn answer(stream: &mut UnixStream, end: &End) -> io::Result<()> {
    stream.write_all(&serde_json::to_vec(end)?).await
}

fn start(order: Order, [stdin, stdout, stderr]: [OwnedFd; 3]) -> io::Result<(Child, Group)> {
    let mut command = Command::new(order.command);
    command
        .args(order.args)
        .current_dir(order.directory)
        .env_clear()
        .envs(order.environment)
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr)
        .process_group(0)
        .kill_on_drop(true);
    let child = allowed_paths::spawn(&mut command, order.allowed.as_ref())?;
    let group = Group::of(&child).ok_or_else(|| io::Error::other("the process has no id"))?;
    Ok((child, group))
}

/// Returns the number of processes of this container that were killed because the container had used all of its memory.
fn out_of_memory_kills() -> u64 {
    let counters = OUT_OF_MEMORY_COUNTERS
        .iter()
        .find_map(|path| fs::read_to_string(path).ok());
    let counted = counters.as_deref().unwrap_or_default().lines();
    let kills = counted
        .filter_map(|line| line.strip_prefix("oom_kill "))
        .find_map(|kills| kills.parse().ok());
    kills.unwrap_or_default()
}

/// Forwards signals until the program has ended, and then kills its whole group. Returns its exit status.
async fn supervise(mut child: Child, group: &Group, stream: &mut UnixStream) -> io::Result<u8> {
    let status = loop {
        tokio::select! {
            status = child.wait() => break status,
            number = stream.read_i32() => match number {
                Ok(number) => {
                    if let Some(signal) = Signal::from_named_raw(number) {
                        group.signal(signal);
                    }
                }
                // The process that represents the program at the runner was killed.
                Err(_) => {
                    group.signal(Signal::KILL);
                    break child.wait().await;
                }
            }
        }
    };
    group.leader_reaped();
    status.map(exit_status)
}

fn exit_status(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;

    let of_signal = || status.signal().map(|signal| 128 + signal);
    let code = status.code().or_else(of_signal);
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn silent_connection_has_no_order() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let mut runner = UnixStream::connect(&socket).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let waiting = tokio::spawn(async move { await_first_byte(&stream).await });
        for _ in 0..1000 {
            yield_now().await;
        }
        assert!(!waiting.is_finished());
        runner.write_all(b"0").await.unwrap();
        waiting.await.unwrap().unwrap();
    }
}
