//! The first process of a container: whoever loses its parent becomes its child, and stays in the table of processes
//! until it is reaped; and signals that it has no handler for are lost. Programs leave processes behind. So as the first
//! one the command line runs itself as a child and does nothing but reap and pass signals on: how the child's own
//! children ended is then nobody's to take away.

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

/// Whether this process is the first one.
pub(crate) fn is_here() -> bool {
    process::id() == 1
}

/// Runs this command line as a child, to its end. Nothing that it left behind outlives this process.
///
/// # Errors
///
/// It cannot be started, or not be looked after.
pub(crate) fn run() -> io::Result<ExitCode> {
    runtime::Builder::new_current_thread()
        .enable_io()
        .build()?
        .block_on(look_after_child())
}

async fn look_after_child() -> io::Result<ExitCode> {
    // From before there is a child: none of its signals is missed.
    let mut ended = signal(SignalKind::child())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let child = Pid::from_child(
        &Command::new(env::current_exe()?)
            .args(env::args_os().skip(1))
            // In a group of its own it hears of Ctrl-C from here alone, and once.
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
        // Not reaped yet, so the id is still the child's.
        kill_process(child, passed_on)?;
    }
}

/// Reaps whoever has ended, up to the child: how that ended, if it has.
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

/// The code that says the same of this process; of a signal what shells say.
fn exit_code(status: WaitStatus) -> ExitCode {
    let of_signal = || status.terminating_signal().map(|signal| 128 + signal);
    let code = status.exit_status().or_else(of_signal);
    code.and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from)
}
