//! The init process of a container.
//!
//! An init process inherits orphaned processes, which stay in the process table until the init process reaps them. It
//! receives only the signals for which it has a handler. Agent programs leave orphans behind. As process 1, the command
//! line therefore runs itself as a child, and process 1 only reaps processes and forwards signals. Process 1 cannot
//! reap the children of that child, so the child still receives the exit statuses of its own children.

use std::{
    env, io,
    os::unix::process::CommandExt as _,
    process::{self, Command, ExitCode},
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait},
};
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
};

/// Returns whether this is process 1.
pub(crate) fn is_here() -> bool {
    process::id() == 1
}

/// Runs this command line as a child until the child exits. When this process then exits as process 1, the kernel kills
/// all remaining processes of the container.
///
/// # Errors
///
/// Fails if the child cannot be started or awaited.
pub(crate) fn run() -> io::Result<ExitCode> {
    runtime::Builder::new_current_thread()
        .enable_io()
        .build()?
        .block_on(look_after_child())
}

async fn look_after_child() -> io::Result<ExitCode> {
    // Installed before the child starts, so that no signal is missed.
    let mut ended = signal(SignalKind::child())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let child = Pid::from_child(
        &Command::new(env::current_exe()?)
            .args(env::args_os().skip(1))
            // In a separate process group, the child receives Ctrl-C only once, from this process.
            .process_group(0)
            .spawn()?,
    );
    loop {
        if let Some(status) = reap_until(child)? {
            return Ok(exit_code(status));
        }
        let passed_on = tokio::select! {
            _ = ended.recv() => continue,
            _ = terminate.recv() => Signal::TERM,
            _ = interrupt.recv() => Signal::INT,
        };
        // The child is not reaped yet, so the id has not been reused.
        kill_process(child, passed_on)?;
    }
}

/// Reaps exited processes until the child is reaped. Returns the child's status if it has exited.
fn reap_until(child: Pid) -> io::Result<Option<WaitStatus>> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((ended, status))) if ended == child => return Ok(Some(status)),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the exit code for a status. For a signal, the code is 128 plus the signal number, as in shells.
fn exit_code(status: WaitStatus) -> ExitCode {
    let of_signal = || status.terminating_signal().map(|signal| 128 + signal);
    let code = status.exit_status().or_else(of_signal);
    code.and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from)
}
