//! Starts the processes of a runner.

use std::{ffi::OsString, io, path::PathBuf, process::Stdio};

use tokio::process::{Child, Command};

use crate::{
    allowed_paths::{self, AllowedPaths},
    env::Environment,
    launcher,
};

/// A process to start.
#[derive(Clone, Debug)]
pub(crate) struct ProcessSpec {
    /// The program: a path, or a name that is looked up in PATH.
    pub(crate) command: PathBuf,
    pub(crate) args: Vec<OsString>,
    /// The working directory.
    pub(crate) directory: PathBuf,
    /// The complete environment.
    pub(crate) environment: Environment,
    /// Programs that the process starts. They must stay visible even if other paths are hidden.
    pub(crate) starts: Vec<PathBuf>,
    /// The paths that the process may access. `None`: Landlock does not restrict it.
    pub(crate) allowed: Option<AllowedPaths>,
}

impl ProcessSpec {
    /// Returns a process that starts no other programs and is not restricted.
    pub(crate) fn new<A: Into<OsString>>(
        command: impl Into<PathBuf>,
        args: impl IntoIterator<Item = A>,
        directory: impl Into<PathBuf>,
        environment: Environment,
    ) -> Self {
        Self {
            command: command.into(),
            args: args.into_iter().map(Into::into).collect(),
            directory: directory.into(),
            environment,
            starts: Vec::new(),
            allowed: None,
        }
    }

    /// Returns a shell that runs a test's script.
    #[cfg(test)]
    pub(crate) fn shell(script: &str) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Self::new("/bin/sh", ["-c", script], "/", [("PATH".to_owned(), path)].into())
    }
}

/// Starts a process in its own process group, with pipes for its output. Dropping the child kills the process.
pub(crate) fn start(process: ProcessSpec, input: Stdio) -> io::Result<Child> {
    let (program, args, allowed) = launcher::stand_in(process.command, process.args, process.allowed);
    let mut command = Command::new(program);
    command
        .args(args)
        .current_dir(process.directory)
        .env_clear()
        .envs(process.environment)
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    allowed_paths::spawn(&mut command, allowed.as_ref())
}
