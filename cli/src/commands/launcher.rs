//! `troupe launcher` and `troupe launch`: the programs of a runner in another container.

use std::{
    ffi::OsString,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use svc_kit::shutdown::Signals;
use tokio::runtime;
use tokio_util::sync::CancellationToken;
use troupe_runner::launcher::{self, AllowedPaths};

use crate::{
    error::{Error, Result},
    pair,
};

const AFTER_HELP: &str = "\
It runs in a container of its own with the agent programs, under another user id than the runner and in the same group.
The runner starts its programs there:
  troupe launcher /run/launcher/socket
  troupe run --launcher /run/launcher/socket --programs claude";

/// The arguments of `launcher`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Socket on which runners request programs
    socket: PathBuf,
}

/// Starts programs for runners until SIGINT or SIGTERM, and then waits until the connected runner has ended.
pub(crate) async fn run(args: Args) -> Result<()> {
    pair::init_logging("info")?;
    let mut signals = Signals::listen()?;
    let stop = CancellationToken::new();
    let served = launcher::serve(&args.socket, stop.clone());
    tokio::pin!(served);
    let served = tokio::select! {
        served = &mut served => served,
        () = signals.next() => {
            stop.cancel();
            tokio::select! {
                served = served => served,
                // A second signal ends the launcher at once.
                () = signals.next() => Ok(()),
            }
        }
    };
    served.map_err(|error| Error::of(error).context(format!("cannot serve the socket {}", args.socket.display())))
}

/// The arguments of `launch`.
#[derive(Debug, clap::Args)]
pub(crate) struct LaunchArgs {
    /// The socket of the launcher
    #[arg(long)]
    socket: PathBuf,
    /// Permit the paths of --read and --write only
    #[arg(long)]
    restricted: bool,
    /// Path to read (repeatable)
    #[arg(long)]
    read: Vec<OsString>,
    /// Path to write (repeatable)
    #[arg(long)]
    write: Vec<OsString>,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

/// Starts a program through a launcher, and exits with the exit code of the program.
pub(crate) fn launch(args: LaunchArgs) -> ExitCode {
    match launched(args) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn launched(args: LaunchArgs) -> io::Result<u8> {
    let mut program = args.program.into_iter();
    let command = program.next().unwrap_or_default();
    let allowed = args.restricted.then_some(AllowedPaths {
        read: args.read,
        write: args.write,
    });
    // This process waits for as long as the program runs, so its runtime has to be small.
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(launcher::run(&args.socket, command, program.collect(), allowed))
}
