//! Confinement by Landlock: the kernel lets a process, and everything that it starts, access only the paths in a list.
//!
//! Landlock needs neither privileges nor namespaces, so it works where bubblewrap does not, such as in restricted pods.
//! It is weaker than a view of bubblewrap. Paths are denied instead of invisible, nothing within a permitted directory
//! can be denied, and processes share one process namespace. Linux before 7.1 lets a process connect to any socket in
//! the file system to which the process's user may write. Therefore Landlock is used only if an operator chooses it.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    thread,
};

use serde::{Deserialize, Serialize};
use tokio::{
    process::{Child, Command},
    runtime::Handle,
};

/// Directories that agents share with other programs. Programs without full access cannot read the content of these
/// directories, except for [`DEVICES`].
const SHARED: &[&str] = &["/dev", "/tmp", "/var/tmp"];
/// The devices of [`SHARED`] that every program needs.
const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
];

/// The paths that a program may access. Each path includes everything below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowedPaths {
    /// Paths to read.
    pub read: Vec<OsString>,
    /// Paths to read and to write.
    pub write: Vec<OsString>,
}

impl AllowedPaths {
    /// Returns the list of a program that may read everything that is not hidden. It includes the devices to which
    /// every program writes.
    pub(crate) fn reading(hidden: &[PathBuf]) -> Self {
        let shared = SHARED.iter().map(PathBuf::from);
        let hidden: Vec<PathBuf> = hidden.iter().cloned().chain(shared).collect();
        Self {
            read: all_below(Path::new("/"), &hidden),
            write: DEVICES.iter().map(OsString::from).collect(),
        }
    }

    /// Returns the list of a program that may write everything that is not hidden.
    pub(crate) fn writing(hidden: &[PathBuf]) -> Self {
        Self {
            read: Vec::new(),
            write: all_below(Path::new("/"), hidden),
        }
    }

    /// Adds a path to read, without the hidden paths below it. The path itself may be below a hidden path.
    pub(crate) fn read(&mut self, path: &Path, hidden: &[PathBuf]) {
        self.read.extend(all_below(path, hidden));
    }

    /// Adds a path to write, as [`Self::read`] does.
    pub(crate) fn write(&mut self, path: &Path, hidden: &[PathBuf]) {
        self.write.extend(all_below(path, hidden));
    }
}

#[cfg(target_os = "linux")]
mod kernel {
    use landlock::{
        ABI, Access as _, AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _,
        RulesetError, Scope, path_beneath_rules,
    };

    use super::AllowedPaths;

    /// The oldest Landlock version with which programs can be prevented from truncating files: that of Linux 6.2.
    const REQUIRED: ABI = ABI::V3;
    /// The newest known Landlock version. Its additions are used if the kernel supports them, such as the denial of
    /// signals to other processes (Linux 6.12).
    const WANTED: ABI = ABI::V10;

    /// Restricts this thread, and the processes that it starts from now on.
    pub(super) fn restrict_thread(allowed: &AllowedPaths) -> Result<(), RulesetError> {
        Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(REQUIRED))?
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(WANTED))?
            .scope(Scope::from_all(WANTED))?
            .create()?
            // A path that does not exist now is not accessible later.
            .add_rules(path_beneath_rules(&allowed.read, AccessFs::from_read(WANTED)))?
            .add_rules(path_beneath_rules(&allowed.write, AccessFs::from_all(WANTED)))?
            .restrict_self()?;
        Ok(())
    }
}

#[cfg(not(target_os = "linux"))]
mod kernel {
    use super::AllowedPaths;

    pub(super) fn restrict_thread(_: &AllowedPaths) -> Result<(), &'static str> {
        Err("Landlock is a part of Linux")
    }
}

/// Returns the reason why Landlock does not work here. `None`: it works.
pub(crate) fn why_unavailable() -> Option<String> {
    let trial = on_own_thread(|| kernel::restrict_thread(&AllowedPaths::default()).map_err(io::Error::other));
    trial.err().map(|error| error.to_string())
}

/// Starts a command, restricted to the list if there is one.
pub(crate) fn spawn(command: &mut Command, allowed: Option<&AllowedPaths>) -> io::Result<Child> {
    let Some(allowed) = allowed else {
        return command.spawn();
    };
    let runtime = Handle::current();
    on_own_thread(|| {
        let _runtime = runtime.enter();
        kernel::restrict_thread(allowed).map_err(io::Error::other)?;
        command.spawn()
    })
}

/// Runs a function on a new thread that ends with the function. A restricted thread stays restricted.
fn on_own_thread<T: Send>(function: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let running = thread::Builder::new().spawn_scoped(scope, function)?;
        running
            .join()
            .map_err(|_| io::Error::other("the thread that starts the program failed"))?
    })
}

/// Returns paths that together contain the path and everything below it, without the hidden paths below it. If there
/// are hidden paths, new files cannot be created next to them.
fn all_below(path: &Path, hidden: &[PathBuf]) -> Vec<OsString> {
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let root = real(path);
    let hidden: Vec<PathBuf> = hidden
        .iter()
        .flat_map(|path| [path.clone(), real(path)])
        .filter(|path| *path != root && path.starts_with(&root))
        .collect();
    let mut found = Vec::new();
    collect_around(&root, &hidden, &mut found);
    found
}

fn collect_around(path: &Path, hidden: &[PathBuf], found: &mut Vec<OsString>) {
    if hidden.iter().any(|hidden| path.starts_with(hidden)) {
        return;
    }
    if !hidden.iter().any(|hidden| hidden.starts_with(path)) {
        found.push(path.into());
        return;
    }
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        // The target of a link decides whether access is permitted.
        if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
            collect_around(&entry.path(), hidden, found);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{os::unix::fs::symlink, process::Stdio};

    use super::*;

    /// Runs a shell, restricted to the list. Returns whether it succeeded, and its output.
    async fn shell(script: &str, allowed: &AllowedPaths) -> (bool, String) {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", script])
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let output = spawn(&mut command, Some(allowed))
            .unwrap()
            .wait_with_output()
            .await
            .unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    }

    #[tokio::test]
    async fn program_accesses_listed_paths_only() {
        if let Some(why) = why_unavailable() {
            println!("not checked: {why}");
            assert!(std::env::var_os("TROUPE_CI_STRICT").is_none(), "{why}");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        for name in ["seen", "secrets", "own"] {
            fs::create_dir(root.join(name)).unwrap();
            fs::write(root.join(name).join("file"), name).unwrap();
        }
        symlink(root.join("secrets"), root.join("link")).unwrap();
        let mut allowed = AllowedPaths::reading(&[root.join("link"), root.join("own")]);
        allowed.read(&root.join("seen"), &[]);
        allowed.write(&root.join("own"), &[]);
        let root = root.display();
        for (script, succeeds) in [
            (format!("cat {root}/seen/file"), true),
            (format!("cat {root}/secrets/file"), false),
            (format!("cat {root}/link/file"), false),
            (format!("ls {root}/secrets"), false),
            (format!("echo changed > {root}/seen/file"), false),
            (format!(": > {root}/seen/file"), false),
            (format!("rm {root}/seen/file"), false),
            (format!("mv {root}/seen/file {root}/own/moved"), false),
            (format!("touch {root}/seen/new"), false),
            (format!("echo changed > {root}/own/file && mkdir {root}/own/new"), true),
            // A process that the program starts is restricted as well.
            (format!("sh -c 'cat {root}/secrets/file'"), false),
            // The memory and the files of the runner. Its environment is denied except to users with CAP_PERFMON.
            (format!("cat /proc/{}/mem", std::process::id()), false),
            (
                format!("cat /proc/{}/root{root}/secrets/file", std::process::id()),
                false,
            ),
            (
                "echo > /dev/null && head -c 1 /dev/urandom > /dev/null".to_owned(),
                true,
            ),
        ] {
            assert_eq!(shell(&script, &allowed).await.0, succeeds, "{script}");
        }
        assert_eq!(shell(&format!("cat {root}/seen/file"), &allowed).await.1, "seen");

        // The restricted threads have ended, and no other thread is restricted.
        assert_eq!(fs::read(format!("{root}/secrets/file")).unwrap(), b"secrets");
        let mut writing = AllowedPaths::writing(&[format!("{root}/secrets").into()]);
        assert!(shell(&format!("echo x > {root}/seen/file"), &writing).await.0);
        assert!(!shell(&format!("cat {root}/secrets/file"), &writing).await.0);
        writing.read(format!("{root}/secrets/file").as_ref(), &[]);
        assert!(shell(&format!("cat {root}/secrets/file"), &writing).await.0);

        // A directory that contains a hidden directory.
        let hidden = [format!("{root}/secrets").into()];
        let mut around = AllowedPaths::reading(&hidden);
        around.write(directory.path(), &hidden);
        assert!(shell(&format!("echo x > {root}/seen/new"), &around).await.0);
        for script in [
            format!("cat {root}/secrets/file"),
            format!("touch {root}/new"),
            format!("ls {root}"),
        ] {
            assert!(!shell(&script, &around).await.0, "{script}");
        }
    }
}
