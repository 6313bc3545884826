//! What the operating system keeps a program from doing. Bubblewrap gives it a view of the file system in which only
//! what it may write can be written, and a process namespace with which everything that it started ends.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{process::Command, sync::OnceCell, time::timeout};
use tracing::warn;
use troupe_proto::common::v1::Sandbox;

use crate::child::Launch;

/// The program that confines.
const BUBBLEWRAP: &str = "bwrap";
/// How long a trial of it may take.
const TRIAL_LIMIT: Duration = Duration::from_secs(5);

/// Whether bubblewrap works here; tried once.
static WORKS: OnceCell<bool> = OnceCell::const_new();

/// Whether programs can be confined on this machine.
pub(crate) async fn is_possible() -> bool {
    *WORKS.get_or_init(try_out).await
}

/// Whether it is known by now that programs can be confined.
pub(crate) fn is_known() -> bool {
    WORKS.get().copied().unwrap_or_default()
}

async fn try_out() -> bool {
    let mut trial = Command::new(BUBBLEWRAP);
    trial
        .args(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"])
        .args(["--unshare-pid", "--die-with-parent", "--", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let why = match timeout(TRIAL_LIMIT, trial.output()).await {
        Ok(Ok(output)) if output.status.success() => return true,
        Ok(Ok(output)) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("a trial took over {TRIAL_LIMIT:?}"),
    };
    warn!(
        why,
        "bubblewrap does not work here: read-only threads are refused to programs that it would confine"
    );
    false
}

/// The same program, confined to what its sandbox lets it write: nothing, or its directory. `own` are directories that
/// it needs for itself in any case. With FULL_ACCESS nothing is confined.
pub(crate) fn confined(launch: Launch, sandbox: Sandbox, own: &[&Path]) -> Launch {
    let mut writable: Vec<&Path> = own.to_vec();
    match sandbox {
        Sandbox::FullAccess => return launch,
        Sandbox::WorkspaceWrite => writable.push(&launch.directory),
        Sandbox::ReadOnly | Sandbox::Unspecified => {}
    }
    let mut args: Vec<OsString> = [
        "--ro-bind",
        "/",
        "/",
        "--tmpfs",
        "/tmp",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
    ]
    .map(OsString::from)
    .into();
    // Below the empty /tmp the directory has to be put back to be read.
    args.extend([
        "--ro-bind".into(),
        launch.directory.clone().into(),
        launch.directory.clone().into(),
    ]);
    for path in writable {
        args.extend(["--bind".into(), path.into(), path.into()]);
    }
    args.extend(["--unshare-pid", "--die-with-parent", "--chdir"].map(OsString::from));
    args.push(launch.directory.clone().into());
    args.push("--".into());
    args.push(launch.command.into());
    args.extend(launch.args);
    Launch {
        command: PathBuf::from(BUBBLEWRAP),
        args,
        ..launch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch() -> Launch {
        Launch {
            command: "agent".into(),
            args: vec!["--fast".into()],
            directory: "/w".into(),
            environment: Vec::new(),
        }
    }

    fn writable(sandbox: Sandbox) -> Vec<String> {
        let args = confined(launch(), sandbox, &[Path::new("/own")]).args;
        let args: Vec<_> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
        let bound = args.windows(2).filter(|pair| pair[0] == "--bind");
        bound.map(|pair| pair[1].clone()).collect()
    }

    #[test]
    fn only_what_the_sandbox_says_can_be_written() {
        assert_eq!(writable(Sandbox::ReadOnly), ["/own"]);
        assert_eq!(writable(Sandbox::WorkspaceWrite), ["/own", "/w"]);
        assert_eq!(confined(launch(), Sandbox::FullAccess, &[]).command, Path::new("agent"));
        let args = confined(launch(), Sandbox::ReadOnly, &[]).args;
        assert!(args.ends_with(&["--".into(), "agent".into(), "--fast".into()]));
    }
}
