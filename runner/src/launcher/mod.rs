//! A launcher starts the programs of a runner in another container, under another user id. Programs then share neither
//! files nor processes with the runner and its credential.
//!
//! The runner starts [`run`] instead of a program. That process sends an order to the launcher's socket, with its own
//! standard input, output and error. The launcher starts the program with these streams. After that, the connection
//! transfers signals in one direction and the program's exit in the other. When the connection closes, the launcher
//! kills the program. The runner keeps another connection open, on which it sends no order. The launcher does not end
//! before that connection closes.
//!
//! A launcher rejects callers with its own user id. Such callers are agents, which could otherwise start a program
//! without their own restrictions. The runner and its programs share the directories of threads through a group.

mod order;
mod server;
mod stand_in;

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

use rustix::fs::Mode;
use tokio::{
    io::AsyncReadExt as _,
    net::UnixStream,
    time::{Instant, sleep},
};
use tracing::warn;

pub use self::{server::serve, stand_in::run};
pub use crate::allowed_paths::AllowedPaths;

/// The umask of the runner and its programs, which have different users in one group. Only this group can access new
/// files.
const SHARED_WITH_GROUP: Mode = Mode::from_raw_mode(0o007);
/// Maximum time that a runner waits for its launcher, which starts at the same time.
const STARTS_WITHIN: Duration = Duration::from_mins(1);
/// Time between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(50);

/// The launcher that starts the programs of this process.
#[derive(Debug)]
struct Launcher {
    /// The path of the command line program. For each program, the runner starts a process of this command that
    /// represents the program.
    troupe: OsString,
    socket: PathBuf,
}

static LAUNCHER: OnceLock<Launcher> = OnceLock::new();

/// Lets the launcher at that socket start all further programs of this process. `troupe` is the path of the command
/// line program. Waits until the launcher accepts a connection.
///
/// # Errors
///
/// Nothing listens at the socket within a minute.
pub async fn start_programs_at(socket: &Path, troupe: OsString) -> io::Result<()> {
    let connection = connect(socket, STARTS_WITHIN).await?;
    share_files();
    // The launcher cannot be replaced.
    let _ = LAUNCHER.set(Launcher {
        troupe,
        socket: socket.to_owned(),
    });
    tokio::spawn(stay_connected(connection, socket.to_owned()));
    Ok(())
}

/// Keeps a connection open so that the launcher does not end before this process. If a launcher has ended, its
/// container starts another one.
async fn stay_connected(mut connection: UnixStream, socket: PathBuf) {
    loop {
        // The launcher sends nothing. The read ends with the connection.
        let _ = connection.read_u8().await;
        warn!(socket = %socket.display(), "the launcher ended, and its programs with it");
        match connect(&socket, STARTS_WITHIN).await {
            Ok(next) => connection = next,
            Err(error) => warn!(%error, "programs cannot start"),
        }
    }
}

/// Returns whether a launcher starts the programs of this process.
pub(crate) fn is_used() -> bool {
    LAUNCHER.get().is_some()
}

/// Makes new files accessible to the group, and to no other user.
fn share_files() {
    rustix::process::umask(SHARED_WITH_GROUP);
}

/// Returns the mode of a file with a secret that a program reads.
pub(crate) fn secret_file_mode() -> u32 {
    if is_used() { 0o660 } else { 0o600 }
}

/// Returns the command that the runner starts in place of a program, with the command's arguments and the paths that
/// Landlock permits to the command. Without a launcher, returns the program itself.
pub(crate) fn stand_in(
    program: PathBuf,
    args: Vec<OsString>,
    allowed: Option<AllowedPaths>,
) -> (PathBuf, Vec<OsString>, Option<AllowedPaths>) {
    let Some(launcher) = LAUNCHER.get() else {
        return (program, args, allowed);
    };
    let mut line: Vec<OsString> = vec!["launch".into(), "--socket".into(), launcher.socket.clone().into()];
    if let Some(AllowedPaths { read, write }) = allowed {
        line.push("--restricted".into());
        line.extend(read.into_iter().flat_map(|path| ["--read".into(), path]));
        line.extend(write.into_iter().flat_map(|path| ["--write".into(), path]));
    }
    line.extend(["--".into(), program.into()]);
    line.extend(args);
    (launcher.troupe.clone().into(), line, None)
}

/// Connects to a launcher, which may not listen yet.
async fn connect(socket: &Path, within: Duration) -> io::Result<UnixStream> {
    let give_up = Instant::now() + within;
    loop {
        match UnixStream::connect(socket).await {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() >= give_up => {
                return Err(io::Error::other(format!(
                    "no launcher listens at {}: {error}; `troupe launcher SOCKET` starts one",
                    socket.display()
                )));
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}
