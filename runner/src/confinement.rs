//! Confinement of programs by the operating system. Bubblewrap gives a program a view of the file system in which only
//! the permitted paths are writable, and a process namespace that ends together with everything that the program
//! started. Where bubblewrap does not work, Landlock can deny access to the other paths ([`crate::allowed_paths`]).

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::sync::OnceCell;
use tracing::{info, warn};
use troupe_proto::common::v1::Sandbox;

use crate::{
    agent::{LaunchSpec, StartFailure},
    allowed_paths::{self, AllowedPaths},
    env::{Environment, plain},
    placeholders::Placeholders,
    process_spec::ProcessSpec,
    project::{self, Layer, Protection},
    subprocess::{self, Limits},
};

/// The command of bubblewrap.
const BUBBLEWRAP: &str = "bwrap";
/// The kind of program that has its own sandbox.
const CODEX: &str = "codex";
/// Limits for a trial run of bubblewrap.
const TRIAL: Limits = Limits {
    time: Duration::from_secs(5),
    output: 4 * 1024,
};

/// The mechanism that confines programs on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    Bubblewrap,
    Landlock,
    Nothing,
}

/// The mechanism of this machine. Determined once.
static MEANS: OnceCell<Means> = OnceCell::const_new();

/// Returns the mechanism of this machine. It can be Landlock only if the first call allows that.
pub(crate) async fn find(may_use_landlock: bool) -> Means {
    *MEANS.get_or_init(|| try_means(may_use_landlock)).await
}

async fn means() -> Means {
    find(false).await
}

/// Returns whether programs can be confined on this machine.
pub(crate) async fn is_possible() -> bool {
    means().await != Means::Nothing
}

/// Returns whether programs can be confined, as far as that is already known.
pub(crate) fn is_known() -> bool {
    MEANS.get().is_some_and(|means| *means != Means::Nothing)
}

async fn try_means(may_use_landlock: bool) -> Means {
    let Err(why) = try_bubblewrap().await else {
        return Means::Bubblewrap;
    };
    let refused = "programs that need a sandbox receive no read-only threads";
    if !may_use_landlock {
        warn!(why, "bubblewrap does not work here: {refused}");
        return Means::Nothing;
    }
    match allowed_paths::why_unavailable() {
        None => {
            info!(why, "bubblewrap does not work here: Landlock confines programs");
            Means::Landlock
        }
        Some(why_not) => {
            warn!(
                why,
                why_not, "neither bubblewrap nor Landlock of Linux 6.2 works here: {refused}"
            );
            Means::Nothing
        }
    }
}

async fn try_bubblewrap() -> Result<(), String> {
    let view = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"];
    let rest = ["--unshare-pid", "--die-with-parent", "--", "true"];
    let args = view.into_iter().chain(rest);
    let trial = ProcessSpec::new(BUBBLEWRAP, args, "/", plain(|name| std::env::var_os(name)));
    subprocess::output_of("a trial of it", trial, TRIAL).await.map(drop)
}

/// The confinement of a thread's program. The rule is the same for every kind: the whole program runs in one view of
/// the file system.
#[derive(Debug)]
pub(crate) struct Confinement {
    means: Means,
    /// Whether the program confines its commands itself.
    has_own_sandbox: bool,
    /// The sandbox of the view. In PLANNING mode it is READ_ONLY, and a layer makes docs/ writable.
    sandbox: Sandbox,
    hidden: Vec<PathBuf>,
    layers: Vec<Layer>,
    /// The directories of git that a commit writes.
    pub(crate) git: Vec<PathBuf>,
    /// Restrictions that the confinement cannot enforce. They must be reported.
    pub(crate) gaps: Vec<String>,
    identity: Environment,
    /// Held as long as the program runs.
    pub(crate) placeholders: Placeholders,
}

impl Confinement {
    /// Returns the confinement of a thread's program of that kind.
    ///
    /// # Errors
    ///
    /// The program must be prevented from writing, but this is not possible.
    pub(crate) async fn of(launch: &LaunchSpec, kind: &str) -> Result<Self, StartFailure> {
        let sandbox = launch.resolved.sandbox();
        let directory = launch.directory();
        let mut confinement = Self {
            means: means().await,
            has_own_sandbox: kind == CODEX,
            sandbox,
            hidden: launch.hidden.clone(),
            layers: Vec::new(),
            git: Vec::new(),
            gaps: Vec::new(),
            identity: project::identity(directory).await,
            placeholders: Placeholders::default(),
        };
        match confinement.means {
            Means::Bubblewrap => confinement.build_view(launch, kind).await?,
            Means::Landlock => confinement.list_paths(launch),
            Means::Nothing => match sandbox {
                Sandbox::FullAccess => {}
                // The program's own sandbox confines its commands and patches.
                _ if confinement.has_own_sandbox => {}
                Sandbox::WorkspaceWrite => confinement
                    .gaps
                    .push("without bubblewrap its commands can write outside of the workspace".to_owned()),
                Sandbox::ReadOnly | Sandbox::Unspecified => {
                    return Err(StartFailure::not_enforceable(
                        "without bubblewrap it cannot be kept from writing",
                    ));
                }
            },
        }
        Ok(confinement)
    }

    /// Adds the layers over the workspace for bubblewrap.
    async fn build_view(&mut self, launch: &LaunchSpec, kind: &str) -> Result<(), StartFailure> {
        let directory = launch.directory();
        let protection = match &launch.docs_directory {
            Some(docs) => {
                self.sandbox = Sandbox::ReadOnly;
                Some(Protection::of_docs(docs))
            }
            None if self.sandbox == Sandbox::WorkspaceWrite => Some(Protection::of(directory).await),
            None => None,
        };
        if let Some(protection) = protection {
            self.layers.extend(protection.layers);
            self.git = protection.git;
            self.gaps = protection.gaps;
            self.placeholders = protection.placeholders;
        }
        let obeyed = project::existing_settings(kind, directory);
        if !obeyed.is_empty() {
            let masks = Masks::for_scratch(&launch.scratch)
                .map_err(|error| StartFailure::no_program(format!("its view cannot be prepared: {error}")))?;
            self.layers.extend(obeyed.into_iter().map(|path| masks.mask(path)));
        }
        Ok(())
    }

    /// Adds the paths outside of the program's own directories that the program may write with Landlock, and the gaps
    /// that Landlock leaves.
    fn list_paths(&mut self, launch: &LaunchSpec) {
        if let Some(docs) = &launch.docs_directory {
            self.sandbox = Sandbox::ReadOnly;
            // `Protection::of_docs` creates the directory. With Landlock the templates in it are writable like
            // everything else in it.
            let protection = Protection::of_docs(docs);
            self.placeholders = protection.placeholders;
            self.layers.push(Layer::Bind(docs.clone()));
            self.gaps
                .push("without bubblewrap its agent can change the roles in the docs directory".to_owned());
        } else if self.sandbox == Sandbox::WorkspaceWrite {
            self.git = project::written_by_commits(launch.directory());
            self.layers.extend(self.git.iter().cloned().map(Layer::Bind));
            self.gaps.push(
                "without bubblewrap its agent can change the roles, hooks and program settings of its directory"
                    .to_owned(),
            );
        }
    }

    /// Returns the mechanism that confines the program. Only bubblewrap hides project settings that start programs, and
    /// gives the program a private `/tmp`.
    pub(crate) const fn means(&self) -> Means {
        self.means
    }

    /// Returns the program in its view. `own` are directories and files that stay writable in any case. `login` is the
    /// file of a person's login, which is hidden from every other program.
    pub(crate) fn confine(&self, mut process: ProcessSpec, own: &[&Path], login: Option<&Path>) -> ProcessSpec {
        process.environment.extend(self.identity.clone());
        if self.means == Means::Nothing {
            return process;
        }
        let login = login.and_then(|login| fs::canonicalize(login).ok()).map(|login| {
            // Codex must be able to write the file, because it renews its login. Codex's own sandbox prevents its
            // commands from writing the file.
            if self.has_own_sandbox {
                Layer::Bind(login)
            } else {
                Layer::ReadOnly(login)
            }
        });
        let own: Vec<Layer> = own
            .iter()
            .map(|path| Layer::Bind(path.to_path_buf()))
            .chain(login)
            .collect();
        with_view(process, self.sandbox, &own, &self.hidden, &self.layers)
    }
}

/// Empty files that replace settings in a view. Agents cannot write to the directory that contains them.
struct Masks {
    text: PathBuf,
    json: PathBuf,
}

impl Masks {
    fn for_scratch(scratch: &Path) -> io::Result<Self> {
        let root = scratch.parent().unwrap_or(scratch);
        let masks = Self {
            text: root.join("empty"),
            json: root.join("empty.json"),
        };
        for (path, text) in [(&masks.text, ""), (&masks.json, "{}")] {
            if !path.exists() {
                fs::write(path, text)?;
            }
        }
        Ok(masks)
    }

    fn mask(&self, path: PathBuf) -> Layer {
        if path.is_dir() {
            return Layer::Nothing(path);
        }
        let is_json = path.extension().is_some_and(|end| end == "json" || end == "jsonc");
        let shown = if is_json { &self.json } else { &self.text };
        Layer::Instead {
            path,
            shown: shown.clone(),
        }
    }
}

/// Returns the program, confined to the writes that its sandbox permits: none, its directory, or everything. `own` are
/// directories that it can always write. Of the paths in `hidden`, only those in `own` are visible.
pub(crate) fn confined(process: ProcessSpec, sandbox: Sandbox, own: &[&Path], hidden: &[PathBuf]) -> ProcessSpec {
    let own: Vec<Layer> = own.iter().map(|path| Layer::Bind(path.to_path_buf())).collect();
    with_view(process, sandbox, &own, hidden, &[])
}

fn with_view(
    process: ProcessSpec,
    sandbox: Sandbox,
    own: &[Layer],
    hidden: &[PathBuf],
    layers: &[Layer],
) -> ProcessSpec {
    let directory = match sandbox {
        Sandbox::FullAccess | Sandbox::WorkspaceWrite => Layer::Bind(process.directory.clone()),
        Sandbox::ReadOnly | Sandbox::Unspecified => Layer::ReadOnly(process.directory.clone()),
    };
    // A layer must not reveal hidden paths.
    let is_seen = |layer: &&Layer| {
        let mut around = hidden.iter().filter(|path| layer.path().starts_with(path));
        around.all(|path| process.directory.starts_with(path))
    };
    let layers: Vec<Layer> = std::iter::once(directory)
        .chain(layers.iter().filter(is_seen).cloned())
        .chain(own.iter().cloned())
        .collect();
    match MEANS.get() {
        Some(Means::Landlock) => with_allowed_paths(process, sandbox, layers, hidden),
        Some(Means::Bubblewrap | Means::Nothing) | None => in_view(process, sandbox, layers, own, hidden),
    }
}

/// Returns the program with the list of the paths that it may access. A read-only layer only makes a path readable: it
/// cannot protect a path in a writable directory.
fn with_allowed_paths(
    mut process: ProcessSpec,
    sandbox: Sandbox,
    layers: Vec<Layer>,
    hidden: &[PathBuf],
) -> ProcessSpec {
    let mut allowed = match sandbox {
        Sandbox::FullAccess => AllowedPaths::writing(hidden),
        Sandbox::WorkspaceWrite | Sandbox::ReadOnly | Sandbox::Unspecified => AllowedPaths::reading(hidden),
    };
    let variable = |name: &str| process.environment.get(name).map(PathBuf::from);
    // Bubblewrap replaces a hidden directory by an empty one. Landlock denies access to it, so the program needs
    // another home.
    if let (Some(home), Some(own)) = (variable("HOME"), variable("TMPDIR"))
        && hidden.iter().any(|path| home.starts_with(path))
        && !layers.iter().any(|layer| home.starts_with(layer.path()))
    {
        process.environment.insert("HOME".to_owned(), own.into());
    }
    for layer in layers {
        match layer {
            Layer::Bind(path) => allowed.write(&path, hidden),
            Layer::ReadOnly(path) => allowed.read(&path, hidden),
            // Landlock cannot hide a path in a readable directory.
            Layer::Nothing(_) | Layer::Instead { .. } => {}
        }
    }
    for path in &process.starts {
        allowed.read(path, hidden);
    }
    process.allowed = Some(allowed);
    process
}

fn in_view(
    process: ProcessSpec,
    sandbox: Sandbox,
    layers: Vec<Layer>,
    own: &[Layer],
    hidden: &[PathBuf],
) -> ProcessSpec {
    let mut view = View::default();
    match sandbox {
        Sandbox::FullAccess => {
            view.mount("--bind", Path::new("/"));
            view.mount("--dev-bind", Path::new("/dev"));
        }
        Sandbox::WorkspaceWrite | Sandbox::ReadOnly | Sandbox::Unspecified => {
            view.mount("--ro-bind", Path::new("/"));
            view.empty(Path::new("/tmp"));
            let var_tmp = Path::new("/var/tmp");
            if var_tmp.symlink_metadata().is_ok_and(|found| found.is_dir()) {
                view.empty(var_tmp);
            }
            // Mounts only a few harmless devices: access to a disk would bypass the mounts above.
            view.args.extend(["--dev", "/dev"].map(OsString::from));
        }
    }
    view.args.extend(["--proc", "/proc"].map(OsString::from));
    // A mount reveals hidden paths below it. Therefore a path within a hidden path is mounted after the hidden path.
    // All other paths may contain a hidden path, so they are mounted before the hidden paths.
    let (put_back, first): (Vec<_>, Vec<_>) = layers
        .into_iter()
        .partition(|layer| hidden.iter().any(|path| layer.path().starts_with(path)));
    for layer in first {
        view.add(layer);
    }
    for path in hidden.iter().filter(|path| path.is_dir()) {
        view.empty(path);
    }
    for layer in put_back {
        view.add(layer);
    }
    // Masks of single files come last, because a directory that is mounted again may contain such a file. If the file
    // is replaced on disk, its mask disappears. Therefore a file that programs can replace is hidden reliably only
    // within a hidden directory.
    let is_own = |path: &PathBuf| own.iter().any(|own| own.path() == path);
    for path in hidden
        .iter()
        .filter(|path| path.exists() && !path.is_dir() && !is_own(path))
    {
        view.args.extend(["--ro-bind".into(), "/dev/null".into(), path.into()]);
    }
    for path in &process.starts {
        view.mount("--ro-bind", path);
    }
    let mut args = view.args;
    args.extend(["--unshare-pid", "--die-with-parent", "--chdir"].map(OsString::from));
    args.push(process.directory.clone().into());
    args.push("--".into());
    args.push(process.command.into());
    args.extend(process.args);
    ProcessSpec {
        command: PathBuf::from(BUBBLEWRAP),
        args,
        ..process
    }
}

/// Hides the secrets of the runner's user from programs that have no other restriction.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecretMasks {
    hidden: Vec<PathBuf>,
    own: Vec<PathBuf>,
}

impl SecretMasks {
    /// Returns the masks for a thread's programs. The masks have no effect if the runner has no secrets.
    pub(crate) fn of(launch: &LaunchSpec) -> Self {
        if !launch.has_secrets {
            return Self::default();
        }
        Self {
            hidden: launch.hidden.clone(),
            own: vec![launch.directory().to_owned(), launch.scratch.clone()],
        }
    }

    /// Returns the program in a view without the hidden paths, if bubblewrap works.
    pub(crate) fn apply(&self, process: ProcessSpec) -> ProcessSpec {
        if self.hidden.is_empty() || !is_known() {
            return process;
        }
        let own: Vec<&Path> = self.own.iter().map(PathBuf::as_path).collect();
        confined(process, Sandbox::FullAccess, &own, &self.hidden)
    }
}

/// A file system view under construction.
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

    fn add(&mut self, layer: Layer) {
        match layer {
            Layer::Bind(path) => self.mount("--bind", &path),
            Layer::ReadOnly(path) => self.mount("--ro-bind", &path),
            Layer::Nothing(path) => {
                self.empty(&path);
                self.args.extend(["--remount-ro".into(), path.into()]);
            }
            Layer::Instead { path, shown } => self.args.extend(["--ro-bind".into(), shown.into(), path.into()]),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn process() -> ProcessSpec {
        ProcessSpec {
            starts: vec!["/tmp/shim".into()],
            ..ProcessSpec::new("agent", ["--fast"], "/w", Environment::new())
        }
    }

    fn args(sandbox: Sandbox, hidden: &[PathBuf]) -> Vec<String> {
        let args = confined(process(), sandbox, &[Path::new("/own")], hidden).args;
        args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect()
    }

    fn writable(sandbox: Sandbox) -> Vec<String> {
        let args = args(sandbox, &[]);
        let bound = args.windows(2).filter(|pair| pair[0] == "--bind");
        bound.map(|pair| pair[1].clone()).collect()
    }

    #[test]
    fn only_sandbox_paths_are_writable() {
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
            "a program that it starts is mounted in the empty /tmp"
        );
        assert!(read_only.ends_with(&["--", "agent", "--fast"].map(str::to_owned)));
    }

    #[test]
    fn hidden_home_is_replaced_with_landlock() {
        let home_of = |layers: &[Layer]| {
            let mut process = process();
            for (name, value) in [("HOME", "/scratch"), ("TMPDIR", "/scratch/t1")] {
                process.environment.insert(name.to_owned(), value.into());
            }
            let listed = with_allowed_paths(process, Sandbox::ReadOnly, layers.to_vec(), &["/scratch".into()]);
            assert!(listed.allowed.is_some());
            listed.environment["HOME"].clone()
        };
        assert_eq!(home_of(&[]), "/scratch/t1");
        assert_eq!(home_of(&[Layer::Bind("/scratch".into())]), "/scratch");
    }

    #[test]
    fn login_in_hidden_directory_is_mounted() {
        let directory = tempfile::tempdir().unwrap();
        let home = fs::canonicalize(directory.path()).unwrap();
        let login = home.join("login");
        fs::write(&login, "").unwrap();
        for (has_own_sandbox, how) in [(false, "--ro-bind"), (true, "--bind")] {
            for hidden in [home.clone(), login.clone()] {
                let confinement = Confinement {
                    means: Means::Bubblewrap,
                    has_own_sandbox,
                    sandbox: Sandbox::WorkspaceWrite,
                    hidden: vec![hidden],
                    layers: Vec::new(),
                    git: Vec::new(),
                    gaps: Vec::new(),
                    identity: Environment::new(),
                    placeholders: Placeholders::default(),
                };
                let args = confinement.confine(process(), &[], Some(&login)).args;
                let mounts: Vec<_> = args
                    .windows(3)
                    .filter(|mount| mount[1..].iter().all(|arg| *arg == *login))
                    .collect();
                let expected = [OsString::from(how), login.clone().into(), login.clone().into()];
                assert_eq!(mounts, [&expected[..]], "{args:?}");
            }
        }
    }

    #[test]
    fn hidden_path_is_masked_before_own_path_is_bound() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "secret").unwrap();
        let hidden = [directory.path().to_owned(), file.clone(), "/nowhere".into()];
        let (own, around) = (directory.path().join("own"), directory.path().parent().unwrap());
        let process = ProcessSpec {
            directory: around.to_owned(),
            ..process()
        };
        let args = confined(process, Sandbox::FullAccess, &[&own], &hidden).args;
        let args: Vec<_> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
        let place = |text: &str| args.iter().position(|arg| arg == text);
        let emptied = place(directory.path().to_str().unwrap());
        assert!(
            emptied < place(own.to_str().unwrap()),
            "its own path is mounted in the hidden directory: {args:?}"
        );
        assert!(
            place(around.to_str().unwrap()) < emptied,
            "its directory is mounted first: {args:?}"
        );
        assert_eq!(place("/nowhere"), None);
        let covered = place(file.to_str().unwrap()).unwrap();
        assert_eq!(args[covered - 1], "/dev/null");
    }
}
