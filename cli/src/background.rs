//! Services in the background: the state file of `up`, its detached start, and its stop.

use std::{
    env, fs,
    fs::OpenOptions,
    io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use svc_kit::paths;
use tokio::time::sleep;
use troupe_client::data_dir::{RUNNING, Running, is_locked};

use crate::error::{Error, Result};

/// The output of detached services in the data directory.
const LOG: &str = "up.log";
/// The environment variable that marks the detached process. The detached process has the same arguments as the
/// command that starts it.
const DETACHED: &str = "TROUPE_DETACHED";
/// Interval between two reads of the state.
const POLL: Duration = Duration::from_millis(50);
/// Maximum duration of a start.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum duration of a stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// Stores the addresses of this process in its data directory.
///
/// # Errors
///
/// Fails if the file cannot be written.
pub(crate) fn store(running: &Running, data_dir: &Path) -> Result<()> {
    let value = serde_json::to_value(running).map_err(Error::of)?;
    paths::write_ready_file(&data_dir.join(RUNNING), &value).map_err(Error::of)
}

/// Removes the stored addresses. A failure is ignored: the stored addresses are valid only while the directory is
/// locked.
pub(crate) fn remove(data_dir: &Path) {
    let _ = fs::remove_file(data_dir.join(RUNNING));
}

/// Returns whether this process is the detached one.
pub(crate) fn is_detached() -> bool {
    env::var_os(DETACHED).is_some()
}

/// Returns the log file of detached services.
pub(crate) fn log(data_dir: &Path) -> PathBuf {
    data_dir.join(LOG)
}

/// Starts this command line again as a detached process and waits until its services are ready.
///
/// # Errors
///
/// Fails if services already run on the data directory, if the process ends before it is ready, or if it is not ready
/// in time.
pub(crate) async fn start(data_dir: &Path) -> Result<Running> {
    if let Some(running) = Running::find(data_dir) {
        return Err(
            Error::failure(format!("the services already run as process {}", running.pid))
                .hint("`troupe status` shows them, `troupe down` stops them"),
        );
    }
    let cannot = |doing: &str, error: io::Error| Error::failure(format!("cannot {doing}: {error}"));
    fs::create_dir_all(data_dir).map_err(|error| cannot("create the data directory", error))?;
    let path = log(data_dir);
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .map_err(|error| cannot("open the log", error))?;
    let errors = file.try_clone().map_err(|error| cannot("open the log", error))?;
    let program = env::current_exe().map_err(|error| cannot("find the program", error))?;
    let mut process = Command::new(program)
        .args(env::args_os().skip(1))
        .env(DETACHED, "1")
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(errors)
        // Ctrl-C in the terminal does not reach the process.
        .process_group(0)
        .spawn()
        .map_err(|error| cannot("start the services", error))?;
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        // The lock of the directory is not checked: the check takes the lock for a moment, and the new process could
        // fail to take the lock at that moment.
        if let Some(running) = Running::read(data_dir).filter(|running| running.pid == process.id()) {
            return Ok(running);
        }
        let ended = process
            .try_wait()
            .map_err(|error| cannot("start the services", error))?;
        if ended.is_some() || Instant::now() > deadline {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let last = text.lines().rfind(|line| line.starts_with("error:"));
            let last = last
                .unwrap_or("the services are not ready")
                .trim_start_matches("error: ");
            return Err(Error::failure(crate::sanitize::line(last)).hint(format!("the log is {}", path.display())));
        }
        sleep(POLL).await;
    }
}

/// Stops the services and waits for the end of their process.
///
/// # Errors
///
/// Fails if the process cannot be signalled, or does not end in time.
pub(crate) async fn stop(running: &Running, data_dir: &Path) -> Result<()> {
    let pid = i32::try_from(running.pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Error::failure(format!("invalid process id {}", running.pid)))?;
    kill_process(pid, Signal::TERM)
        .map_err(|error| Error::failure(format!("cannot stop process {}: {error}", running.pid)))?;
    let deadline = Instant::now() + STOP_TIMEOUT;
    while is_locked(data_dir) {
        if Instant::now() > deadline {
            return Err(Error::timeout(format!("process {} is still running", running.pid))
                .hint(format!("the log is {}", log(data_dir).display())));
        }
        sleep(POLL).await;
    }
    Ok(())
}
