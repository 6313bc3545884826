//! What the operating system keeps a program from doing. Bubblewrap gives it a view of the file system in which only
//! what it may write can be written, and a process namespace with which everything that it started ends.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::sync::OnceCell;
use tracing::warn;
use troupe_proto::common::v1::Sandbox;

use crate::{
    agent::{Casting, StartFailure},
    child::Launch,
    env::plain,
    errand::{self, Limits},
};

/// The program that confines.
const BUBBLEWRAP: &str = "bwrap";
/// What a trial of it may take.
const TRIAL: Limits = Limits {
    time: Duration::from_secs(5),
    output: 4 * 1024,
};

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
    let view = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"];
    let rest = ["--unshare-pid", "--die-with-parent", "--", "true"];
    let trial = Launch {
        command: BUBBLEWRAP.into(),
        args: view.into_iter().chain(rest).map(OsString::from).collect(),
        directory: "/".into(),
        environment: plain(|name| std::env::var_os(name)),
        starts: Vec::new(),
    };
    let Err(why) = errand::output_of("a trial of it", trial, TRIAL).await else {
        return true;
    };
    warn!(
        why,
        "bubblewrap does not work here: read-only threads are refused to programs that it would confine"
    );
    false
}

/// What bubblewrap can do about a program that confines nothing itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It confines it.
    Confined,
    /// It does not work here, and this is open: nothing that must be closed.
    Gap(Option<&'static str>),
}

/// How a program can be held to a sandbox.
///
/// # Errors
///
/// It would have to be kept from writing, and cannot be.
pub(crate) async fn hold(sandbox: Sandbox) -> Result<Hold, StartFailure> {
    if is_possible().await {
        return Ok(Hold::Confined);
    }
    match sandbox {
        Sandbox::FullAccess => Ok(Hold::Gap(None)),
        Sandbox::WorkspaceWrite => {
            let gap = "without bubblewrap its commands can write outside of the workspace";
            Ok(Hold::Gap(Some(gap)))
        }
        Sandbox::ReadOnly | Sandbox::Unspecified => Err(StartFailure::not_enforceable(
            "without bubblewrap it cannot be kept from writing",
        )),
    }
}

/// The same program, confined to what its sandbox lets it write: nothing, its directory, or everything. `own` are
/// directories that it needs for itself in any case; of those in `hidden` it sees nothing but what is its own.
pub(crate) fn confined(launch: Launch, sandbox: Sandbox, own: &[&Path], hidden: &[PathBuf]) -> Launch {
    let mut view = View::default();
    match sandbox {
        Sandbox::FullAccess => {
            view.mount("--bind", Path::new("/"));
            view.mount("--dev-bind", Path::new("/dev"));
        }
        Sandbox::WorkspaceWrite | Sandbox::ReadOnly | Sandbox::Unspecified => {
            view.mount("--ro-bind", Path::new("/"));
            view.empty(Path::new("/tmp"));
            // A few harmless ones: a disk's would be a way around everything above.
            view.args.extend(["--dev", "/dev"].map(OsString::from));
        }
    }
    view.args.extend(["--proc", "/proc"].map(OsString::from));
    let access = match sandbox {
        Sandbox::FullAccess | Sandbox::WorkspaceWrite => "--bind",
        Sandbox::ReadOnly | Sandbox::Unspecified => "--ro-bind",
    };
    // A mount shows again what was hidden below it. So what lies in something hidden is put back afterwards, and the rest,
    // which may have something hidden in it, comes before.
    let mounts = std::iter::once((access, launch.directory.as_path())).chain(own.iter().map(|path| ("--bind", *path)));
    let (put_back, first): (Vec<_>, Vec<_>) =
        mounts.partition(|(_, mounted)| hidden.iter().any(|path| mounted.starts_with(path)));
    for (access, path) in first {
        view.mount(access, path);
    }
    for path in hidden.iter().filter(|path| path.is_dir()) {
        view.empty(path);
    }
    for (access, path) in put_back {
        view.mount(access, path);
    }
    // Last: a directory that is put back may have one. The mount goes once another file takes this one's place, so a file that
    // somebody replaces is safe in a hidden directory only.
    for path in hidden.iter().filter(|path| path.is_file()) {
        view.args.extend(["--ro-bind".into(), "/dev/null".into(), path.into()]);
    }
    for path in &launch.starts {
        view.mount("--ro-bind", path);
    }
    let mut args = view.args;
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

/// What keeps the secrets of a runner's owner from programs that are held to nothing else.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blinders {
    hidden: Vec<PathBuf>,
    own: Vec<PathBuf>,
}

impl Blinders {
    /// Those of a thread; without effect where its runner has no secrets.
    pub(crate) fn of(casting: &Casting) -> Self {
        if !casting.has_secrets {
            return Self::default();
        }
        Self {
            hidden: casting.hidden.clone(),
            own: vec![casting.directory().to_owned(), casting.scratch.clone()],
        }
    }

    /// The same program without a view of what is hidden, where bubblewrap works.
    pub(crate) fn put_on(&self, launch: Launch) -> Launch {
        if self.hidden.is_empty() || !is_known() {
            return launch;
        }
        let own: Vec<&Path> = self.own.iter().map(PathBuf::as_path).collect();
        confined(launch, Sandbox::FullAccess, &own, &self.hidden)
    }
}

/// A view of the file system in the making.
#[derive(Default)]
struct View {
    args: Vec<OsString>,
}

impl View {
    fn mount(&mut self, how: &str, path: &Path) {
        self.args.extend([how.into(), path.into(), path.into()]);
    }

    fn empty(&mut self, path: &Path) {
        self.args.extend(["--tmpfs".into(), path.into()]);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn launch() -> Launch {
        Launch {
            command: "agent".into(),
            args: vec!["--fast".into()],
            directory: "/w".into(),
            environment: Vec::new(),
            starts: vec!["/tmp/shim".into()],
        }
    }

    fn args(sandbox: Sandbox, hidden: &[PathBuf]) -> Vec<String> {
        let args = confined(launch(), sandbox, &[Path::new("/own")], hidden).args;
        args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect()
    }

    fn writable(sandbox: Sandbox) -> Vec<String> {
        let args = args(sandbox, &[]);
        let bound = args.windows(2).filter(|pair| pair[0] == "--bind");
        bound.map(|pair| pair[1].clone()).collect()
    }

    #[test]
    fn only_what_the_sandbox_says_can_be_written() {
        assert_eq!(writable(Sandbox::ReadOnly), ["/own"]);
        assert_eq!(writable(Sandbox::WorkspaceWrite), ["/w", "/own"]);
        assert_eq!(writable(Sandbox::FullAccess), ["/", "/w", "/own"]);
        let has_devices = |sandbox| args(sandbox, &[]).iter().any(|arg| arg == "--dev-bind");
        assert!(!has_devices(Sandbox::ReadOnly) && !has_devices(Sandbox::WorkspaceWrite));
        assert!(has_devices(Sandbox::FullAccess));
        let read_only = args(Sandbox::ReadOnly, &[]);
        let of = |text: &str| read_only.iter().position(|arg| arg == text);
        assert!(
            of("/tmp") < of("/tmp/shim"),
            "what it starts is there again in the empty /tmp"
        );
        assert!(read_only.ends_with(&["--", "agent", "--fast"].map(str::to_owned)));
    }

    #[test]
    fn what_is_hidden_is_emptied_before_its_own_is_put_back() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "secret").unwrap();
        let hidden = [directory.path().to_owned(), file.clone(), "/nowhere".into()];
        let (own, around) = (directory.path().join("own"), directory.path().parent().unwrap());
        let launch = Launch {
            directory: around.to_owned(),
            ..launch()
        };
        let args = confined(launch, Sandbox::FullAccess, &[&own], &hidden).args;
        let args: Vec<_> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
        let place = |text: &str| args.iter().position(|arg| arg == text);
        let emptied = place(directory.path().to_str().unwrap());
        assert!(emptied < place(own.to_str().unwrap()), "its own is put back: {args:?}");
        assert!(
            place(around.to_str().unwrap()) < emptied,
            "and what is around does not show it again: {args:?}"
        );
        assert_eq!(place("/nowhere"), None);
        let covered = place(file.to_str().unwrap()).unwrap();
        assert_eq!(args[covered - 1], "/dev/null");
    }
}
