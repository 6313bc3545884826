//! Checks whether the programs of a runner are usable on this machine: their location, version, login and sandbox.
//!
//! [`find`] only reads the file system. [`check`] runs each program once to get its version. Neither starts a turn.

use std::{
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use svc_kit::paths;
use tokio::task::JoinSet;

use crate::{
    confinement::{self, Means},
    env::plain,
    process_spec::ProcessSpec,
    programs::{AgentProgram, ProcessProgram, Profile, Program, ProgramKind, Programs, is_base_url},
    subprocess::{self, Limits},
};

/// Limits for getting a version: the program's time, and the size of its output.
const VERSION: Limits = Limits {
    time: Duration::from_secs(10),
    output: 4 * 1024,
};

/// An agent program with which this release is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownProgram {
    /// The program's name, as in `--programs`.
    pub name: &'static str,
    /// The tested releases: every version that begins with these numbers.
    pub tested: &'static str,
    /// The command that installs the program.
    pub install: &'static str,
    /// The command with which a person logs in.
    pub log_in: &'static str,
}

/// The agent programs with which this release is tested.
pub const KNOWN: &[KnownProgram] = &[
    KnownProgram {
        name: "codex",
        tested: "0.169",
        install: "npm install -g @openai/codex",
        log_in: "codex login",
    },
    KnownProgram {
        name: "claude",
        tested: "2.1",
        install: "npm install -g @anthropic-ai/claude-code",
        log_in: "claude /login",
    },
    KnownProgram {
        name: "opencode",
        tested: "1.18",
        install: "npm install -g opencode-ai",
        log_in: "opencode auth login",
    },
    KnownProgram {
        name: "gemini",
        tested: "0.61",
        install: "npm install -g @google/gemini-cli",
        log_in: "gemini",
    },
];

/// A program of a runner that is not on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingProgram {
    /// The program's name: `codex`, `claude`, `opencode`, `gemini`, or the file name of a process's command.
    pub name: String,
    /// The program's command.
    pub command: PathBuf,
    /// The `PATH` that was searched. `None`: the command is a path.
    pub searched: Option<OsString>,
    /// The command that installs the program, if it is known.
    pub install: Option<&'static str>,
}

impl MissingProgram {
    /// Returns the remedy.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self.install {
            Some(install) => format!("install it with \"{install}\", or set its \"command\" in a runner.yaml"),
            None => "install it, or set its \"command\" in the runner.yaml".to_owned(),
        }
    }
}

impl fmt::Display for MissingProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let command = self.command.display();
        match &self.searched {
            Some(path) => write!(
                f,
                "the program \"{command}\" is not in PATH \"{}\"",
                path.to_string_lossy()
            ),
            None => write!(f, "the program \"{command}\" does not exist or is not executable"),
        }
    }
}

/// A report on a program that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramReport {
    /// The program's name, as in [`MissingProgram::name`].
    pub name: String,
    /// The program's path. `None`: its command is relative to the directory of each thread.
    pub path: Option<PathBuf>,
    /// The program's version. `None`: the program did not print it, or the runner does not know how to request it.
    pub version: Option<String>,
    /// The tested releases. `None`: the program is not tested.
    pub tested: Option<&'static str>,
    /// The source of the program's credentials. `None`: none were found, or the program is of kind `process`.
    pub credentials: Option<String>,
    /// The program's sandbox.
    pub sandbox: SandboxReport,
    /// The problems, each with its remedy.
    pub warnings: Vec<Warning>,
}

/// The sandbox of a program on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxReport {
    /// Bubblewrap, which works here.
    Bubblewrap,
    /// Landlock, because bubblewrap does not work here.
    Landlock,
    /// The program's own sandbox.
    Own,
    /// The program is intentionally not confined.
    Nothing,
    /// The program runs on another machine.
    Remote,
    /// The program should be confined, but is not: bubblewrap does not work here.
    Unavailable,
}

impl SandboxReport {
    /// Returns the displayed name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bubblewrap => "bubblewrap",
            Self::Landlock => "Landlock",
            Self::Own => "its own",
            Self::Nothing => "none",
            Self::Remote => "another machine",
            Self::Unavailable => "unavailable",
        }
    }
}

/// A problem that does not prevent a program from starting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The problem.
    pub problem: String,
    /// The remedy.
    pub remedy: String,
}

impl fmt::Display for ProgramReport {
    /// Writes one line: `claude 2.1.329 at /usr/bin/claude, credentials: ANTHROPIC_API_KEY, sandbox: bubblewrap`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(version) = &self.version {
            write!(f, " {version}")?;
        }
        if let Some(path) = &self.path {
            write!(f, " at {}", path.display())?;
        }
        if let Some(credentials) = &self.credentials {
            write!(f, ", credentials: {credentials}")?;
        }
        write!(f, ", sandbox: {}", self.sandbox.as_str())
    }
}

/// Returns the name of a program in reports.
#[must_use]
pub fn name(program: &Program) -> String {
    match &program.kind {
        ProgramKind::Codex(_) => "codex".to_owned(),
        ProgramKind::Claude(_) => "claude".to_owned(),
        ProgramKind::Acp(acp) => match acp.profile {
            Profile::OpenCode => "opencode".to_owned(),
            Profile::Gemini => "gemini".to_owned(),
        },
        ProgramKind::Process(process) => {
            let file = process.command.file_name().unwrap_or(process.command.as_os_str());
            file.to_string_lossy().into_owned()
        }
        ProgramKind::A2a(remote) => format!("a2a {}", remote.url),
    }
}

/// Checks that every program exists, without running any.
///
/// # Errors
///
/// Returns the first missing program.
pub fn find(programs: &Programs) -> Result<(), MissingProgram> {
    programs.all().iter().try_for_each(|program| path_of(program).map(drop))
}

/// Checks all programs concurrently, in at most 10 s. `home` is a directory that the programs use as their user's home
/// while they print their version.
pub async fn check(programs: &Programs, home: &Path) -> Vec<Result<ProgramReport, MissingProgram>> {
    let mut checks = JoinSet::new();
    for (place, program) in programs.all().iter().enumerate() {
        let (program, landlock, home) = (program.clone(), programs.landlock, home.to_owned());
        checks.spawn(async move { (place, check_one(&program, landlock, &home).await) });
    }
    let mut reports = checks.join_all().await;
    reports.sort_by_key(|(place, _)| *place);
    reports.into_iter().map(|(_, report)| report).collect()
}

async fn check_one(program: &Program, may_use_landlock: bool, home: &Path) -> Result<ProgramReport, MissingProgram> {
    let path = path_of(program)?;
    let name = name(program);
    let mut warnings = Vec::new();
    let sandbox = sandbox_of(program, may_use_landlock, &mut warnings).await;
    let mut report = ProgramReport {
        name,
        path,
        version: None,
        tested: None,
        credentials: None,
        sandbox,
        warnings,
    };
    if let (Some(agent), Some(known)) = (agent_of(program), known(&report.name)) {
        report.tested = Some(known.tested);
        match version_of(agent, home).await {
            Ok(version) => {
                report.warnings.extend(untested(&version, known));
                report.version = Some(version);
            }
            Err(why) => report.warnings.push(Warning {
                problem: format!("{} does not print its version: {why}", known.name),
                remedy: format!(
                    "run \"{} --version\"; reinstall it if that fails",
                    agent.command.display()
                ),
            }),
        }
        report.credentials = credentials_of(agent, |name| std::env::var_os(name));
        if report.credentials.is_none() {
            report.warnings.push(Warning {
                problem: format!("{} has no login and no credentials in its environment", known.name),
                remedy: format!("run \"{}\", or set {}", known.log_in, keys_of(agent).join(" or ")),
            });
        }
    }
    Ok(report)
}

fn known(name: &str) -> Option<&'static KnownProgram> {
    KNOWN.iter().find(|known| known.name == name)
}

fn agent_of(program: &Program) -> Option<&AgentProgram> {
    match &program.kind {
        ProgramKind::Codex(agent) | ProgramKind::Claude(agent) => Some(agent),
        ProgramKind::Acp(acp) => Some(&acp.program),
        ProgramKind::Process(_) | ProgramKind::A2a(_) => None,
    }
}

/// Returns the path of a program. `None`: its command is a relative path with a slash, which depends on the thread's
/// directory.
fn path_of(program: &Program) -> Result<Option<PathBuf>, MissingProgram> {
    let (command, environment) = match &program.kind {
        ProgramKind::Codex(agent) | ProgramKind::Claude(agent) => (&agent.command, &agent.environment),
        ProgramKind::Acp(acp) => (&acp.program.command, &acp.program.environment),
        ProgramKind::A2a(_) => return Ok(None),
        ProgramKind::Process(ProcessProgram {
            command, environment, ..
        }) => (command, environment),
    };
    let is_name = command.components().count() == 1 && !command.is_absolute() && !command.starts_with(".");
    if !is_name && command.is_relative() {
        return Ok(None);
    }
    let path = match environment.get("PATH") {
        Some(path) => OsString::from(path),
        None => std::env::var_os("PATH").unwrap_or_default(),
    };
    let found = paths::program_in(&path, command);
    found.map(Some).ok_or_else(|| MissingProgram {
        name: name(program),
        command: command.clone(),
        searched: is_name.then_some(path),
        install: known(&name(program)).map(|known| known.install),
    })
}

async fn sandbox_of(program: &Program, may_use_landlock: bool, warnings: &mut Vec<Warning>) -> SandboxReport {
    match &program.kind {
        ProgramKind::Codex(_) => return SandboxReport::Own,
        ProgramKind::Process(process) if !process.confine => return SandboxReport::Nothing,
        ProgramKind::A2a(_) => return SandboxReport::Remote,
        ProgramKind::Process(_) | ProgramKind::Claude(_) | ProgramKind::Acp(_) => {}
    }
    match confinement::find(may_use_landlock).await {
        Means::Bubblewrap => return SandboxReport::Bubblewrap,
        Means::Landlock => return SandboxReport::Landlock,
        Means::Nothing => {}
    }
    warnings.push(Warning {
        problem: format!("bubblewrap does not work here, so nothing confines {}", name(program)),
        remedy: "install bubblewrap (bwrap) and allow unprivileged user namespaces, or set `landlock` in a runner.yaml; read-only \
                 threads are refused without both"
            .to_owned(),
    });
    SandboxReport::Unavailable
}

async fn version_of(agent: &AgentProgram, home: &Path) -> Result<String, String> {
    let mut environment = plain(|name| std::env::var_os(name));
    environment.insert("HOME".to_owned(), home.into());
    let path = agent.environment.get("PATH");
    environment.extend(path.map(|path| ("PATH".to_owned(), path.into())));
    let process = ProcessSpec::new(&agent.command, ["--version"], home, environment);
    let output = subprocess::output_of("it", process, VERSION).await?;
    version_in(&String::from_utf8_lossy(&output)).ok_or_else(|| "it printed no version".to_owned())
}

/// Returns the first word that looks like a version, as in `codex-cli 0.169.0` and `2.1.329 (Claude Code)`.
fn version_in(text: &str) -> Option<String> {
    let words = text
        .split_whitespace()
        .map(|word| word.strip_prefix('v').unwrap_or(word));
    let is_version = |word: &&str| {
        let is_plain = |character: char| character.is_ascii_alphanumeric() || ".-+".contains(character);
        word.len() <= 64
            && word.starts_with(|first: char| first.is_ascii_digit())
            && word.contains('.')
            && word.chars().all(is_plain)
    };
    words.into_iter().find(is_version).map(str::to_owned)
}

fn untested(version: &str, known: &KnownProgram) -> Option<Warning> {
    let rest = version.strip_prefix(known.tested);
    let is_tested = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    (!is_tested).then(|| Warning {
        problem: format!(
            "{} {version} is not tested with this release, which is tested with {}.x",
            known.name, known.tested
        ),
        remedy: format!(
            "install a tested version, \"{}@{}\", or try it with \"troupe doctor --dry-turn {}\"",
            known.install, known.tested, known.name
        ),
    })
}

/// Returns the source of a program's credentials. Values that an operator sets in `environment` or `settings` count as
/// a source.
fn credentials_of(agent: &AgentProgram, inherited: impl Fn(&str) -> Option<OsString>) -> Option<String> {
    if let Some(login) = agent.login.as_ref().filter(|login| login.is_file()) {
        return Some(login.display().to_string());
    }
    let is_set = |name: &&str| inherited(name).is_some_and(|value| !value.is_empty());
    if let Some(name) = keys_of(agent).into_iter().find(is_set) {
        return Some(name.to_owned());
    }
    let is_given = !agent.environment.is_empty() || !agent.settings.is_empty();
    is_given.then(|| "from its settings".to_owned())
}

/// Returns the credentials among the variables that a program inherits.
fn keys_of(agent: &AgentProgram) -> Vec<&str> {
    let names = agent.inherit.iter().map(String::as_str);
    names.filter(|name| !is_base_url(name)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn printed_versions_are_parsed() {
        for (text, version) in [
            ("codex-cli 0.169.0\n", Some("0.169.0")),
            ("2.1.329 (Claude Code)", Some("2.1.329")),
            ("v1.18.33\n", Some("1.18.33")),
            ("no version", None),
            ("1.0\u{1b}[2J", None),
        ] {
            assert_eq!(version_in(text).as_deref(), version, "{text:?}");
        }
    }

    #[test]
    fn untested_version_produces_warning() {
        let claude = known("claude").unwrap();
        for tested in ["2.1", "2.1.329", "2.1.0"] {
            assert_eq!(untested(tested, claude), None, "{tested}");
        }
        for other in ["2.10.0", "2.2.0", "3.0.0", "2"] {
            let warning = untested(other, claude).unwrap();
            assert!(
                warning.problem.contains(other) && warning.problem.contains("2.1.x"),
                "{warning:?}"
            );
        }
    }

    #[test]
    fn tested_range_covers_installed_versions() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/agents/versions");
        let text = fs::read_to_string(file).unwrap();
        let (_, versions) = text.split_once("AGENT_VERSIONS=(").unwrap();
        for known in KNOWN {
            let key = format!("[{}]=", known.name);
            let version = versions
                .lines()
                .find_map(|line| line.trim().strip_prefix(&key))
                .unwrap();
            assert_eq!(untested(version, known), None);
        }
    }

    #[test]
    fn credentials_are_login_key_or_settings() {
        let nothing = |_: &str| None;
        let mut claude = AgentProgram::claude();
        assert_eq!(credentials_of(&claude, nothing), None);
        let base_url = |name: &str| (name == "ANTHROPIC_BASE_URL").then(|| OsString::from("http://proxy"));
        assert_eq!(
            credentials_of(&claude, base_url),
            None,
            "a base URL is not a credential"
        );
        let key = |name: &str| (name == "ANTHROPIC_API_KEY").then(|| OsString::from("sk"));
        assert_eq!(credentials_of(&claude, key).as_deref(), Some("ANTHROPIC_API_KEY"));
        claude.environment.insert("MY_KEY".to_owned(), "sk".to_owned());
        assert!(credentials_of(&claude, nothing).is_some());
    }

    #[test]
    fn missing_program_error_has_path_and_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().display().to_string();
        let yaml = format!("programs: [{{kind: claude, environment: {{PATH: '{path}'}}}}]");
        let programs = Programs::parse(&yaml, "runner.yaml").unwrap();
        let missing = find(&programs).unwrap_err();
        assert_eq!(
            missing.to_string(),
            format!("the program \"claude\" is not in PATH \"{path}\"")
        );
        assert!(missing.remedy().contains("npm install -g @anthropic-ai/claude-code"));

        let file = directory.path().join("claude");
        fs::write(&file, "#!/bin/sh\n").unwrap();
        assert!(find(&programs).is_err(), "it is not executable");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find(&programs), Ok(()));

        let of = |command: &str| {
            let yaml = format!("programs: [{{kind: process, command: '{command}'}}]");
            find(&Programs::parse(&yaml, "runner.yaml").unwrap())
        };
        assert!(
            of("/no/such/program")
                .unwrap_err()
                .to_string()
                .contains("/no/such/program")
        );
        assert_eq!(of("./relative/to/the/thread"), Ok(()));
    }
}
