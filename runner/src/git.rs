//! Runs git. Its environment never contains secrets.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
    time::Duration,
};

use crate::{
    env::plain,
    process_spec::ProcessSpec,
    subprocess::{self, Limits},
};

/// Limits of one command: its time, and the size of its output, which may contain every file name of a repository.
const LIMITS: Limits = Limits {
    time: Duration::from_secs(60),
    output: 32 * 1024 * 1024,
};
/// Arguments that disable programs of the repository that are never needed.
const UNNEEDED: [&str; 4] = ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"];
/// The variable with the directory of a user's settings.
const SETTINGS: &str = "XDG_CONFIG_HOME";

/// Runs a command that only reads. Must be used only for commands that never start programs, whatever the settings,
/// because they are not confined.
pub(crate) async fn run_unconfined<A: AsRef<OsStr>>(
    directory: &Path,
    args: impl IntoIterator<Item = A>,
) -> Result<String, String> {
    run(process(directory, args)).await
}

pub(crate) fn process<A: AsRef<OsStr>>(directory: &Path, args: impl IntoIterator<Item = A>) -> ProcessSpec {
    let mut environment = plain(|name| std::env::var_os(name));
    environment.insert("GIT_TERMINAL_PROMPT".to_owned(), "0".into());
    environment.extend(std::env::var_os(SETTINGS).map(|place| (SETTINGS.to_owned(), place)));
    let mut all: Vec<OsString> = UNNEEDED.map(OsString::from).into();
    all.extend([OsString::from("-C"), directory.into()]);
    all.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
    ProcessSpec::new("git", all, directory, environment)
}

pub(crate) async fn run(process: ProcessSpec) -> Result<String, String> {
    let output = subprocess::output_of("git", process, LIMITS).await?;
    Ok(String::from_utf8_lossy(&output).trim_end_matches('\n').to_owned())
}
