//! Selection and checks of the agent programs that execute threads.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    str::FromStr,
};

use serde_json::{Value, json};
use svc_kit::paths;
use troupe_runner::{
    AcpProgram, AgentProgram, ProcessProgram, Profile, Program, ProgramKind, Programs, WorktreeCleanup,
    program_check::{self, MissingProgram, ProgramReport},
};

use crate::{
    error::{Error, Result},
    sanitize,
    ui::style,
};

/// The agent programs that the command line selects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The sample agent, which calls no model.
    #[default]
    Sample,
    /// Codex, with its default model for every role.
    Codex,
    /// Claude Code, with its default model for every role.
    Claude,
    /// OpenCode or Gemini CLI, with its default model for every role.
    Acp(Profile),
    /// The programs of a `runner.yaml`.
    File(PathBuf),
}

/// The worktrees of threads.
#[derive(Debug, clap::Args)]
pub(crate) struct WorktreeArgs {
    /// Run each thread that may write in its own git worktree; WHEN to remove it with its thread: unchanged (if it has
    /// no changes), always, never
    #[arg(
        long,
        env = "TROUPE_WORKTREES",
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "unchanged"
    )]
    pub(crate) worktrees: Option<WorktreeCleanup>,
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        Ok(match text {
            "" => return Err("expected sample, codex, claude, opencode, gemini, or a runner.yaml".to_owned()),
            "sample" => Self::Sample,
            "codex" => Self::Codex,
            "claude" => Self::Claude,
            "opencode" => Self::Acp(Profile::OpenCode),
            "gemini" => Self::Acp(Profile::Gemini),
            path => Self::File(path.into()),
        })
    }
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sample => f.write_str("sample"),
            Self::Codex => f.write_str("codex"),
            Self::Claude => f.write_str("claude"),
            Self::Acp(Profile::OpenCode) => f.write_str("opencode"),
            Self::Acp(Profile::Gemini) => f.write_str("gemini"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl Choice {
    /// Returns the programs.
    ///
    /// # Errors
    ///
    /// Fails if the file is invalid.
    pub(crate) fn programs(&self) -> Result<Programs> {
        match self {
            Self::Sample => Ok(sample()?.into()),
            Self::Codex => for_every_role(ProgramKind::Codex(AgentProgram {
                login: login(".codex/auth.json"),
                ..AgentProgram::codex()
            })),
            Self::Claude => for_every_role(ProgramKind::Claude(AgentProgram {
                login: login(".claude/.credentials.json"),
                ..AgentProgram::claude()
            })),
            Self::Acp(profile) => {
                let mut acp = AcpProgram::of(*profile);
                acp.program.login = login(match profile {
                    Profile::OpenCode => ".local/share/opencode/auth.json",
                    Profile::Gemini => ".gemini/oauth_creds.json",
                });
                for_every_role(ProgramKind::Acp(acp))
            }
            Self::File(path) => Programs::read(path).map_err(|error| {
                Error::usage(error.to_string()).hint("docs/runner.md has every key of a runner.yaml, with examples")
            }),
        }
    }
}

/// Returns the programs if all of them are installed on this machine.
///
/// # Errors
///
/// Fails if a program is missing. The error contains the searched PATH and the install command.
pub(crate) fn all_found(programs: Programs) -> Result<Programs> {
    program_check::find(&programs).map_err(|missing| missing_error(&missing))?;
    Ok(programs)
}

fn missing_error(missing: &MissingProgram) -> Error {
    Error::failure(missing.to_string()).hint(missing.remedy())
}

/// Checks each program. Takes at most 10 s.
///
/// # Errors
///
/// Fails if the temporary directory cannot be created.
pub(crate) async fn check(programs: &Programs) -> Result<Vec<std::result::Result<ProgramReport, MissingProgram>>> {
    let home = tempfile::tempdir()?;
    Ok(program_check::check(programs, home.path()).await)
}

/// Returns the installed programs that this release is tested with.
///
/// # Errors
///
/// Never fails, because the programs are selected by name.
pub(crate) fn installed() -> Result<Programs> {
    let mut installed = Vec::new();
    for choice in [
        Choice::Codex,
        Choice::Claude,
        Choice::Acp(Profile::OpenCode),
        Choice::Acp(Profile::Gemini),
    ] {
        let programs = choice.programs()?;
        if program_check::find(&programs).is_ok() {
            installed.extend(programs.programs);
        }
    }
    Ok(installed.into())
}

/// Returns only the program with this name, for every role. Its model is the first complete model name in its list of
/// models, or its default model if the list has no complete name.
///
/// # Errors
///
/// Fails if no program has that name.
pub(crate) fn only(programs: Programs, name: &str) -> Result<Programs> {
    let names: Vec<String> = programs.all().iter().map(program_check::name).collect();
    let found = programs
        .programs
        .into_iter()
        .find(|program| program_check::name(program) == name);
    let Some(mut program) = found else {
        return Err(Error::usage(format!("unknown program {name:?}")).hint(format!(
            "the programs are {}; --programs selects others",
            names.join(", ")
        )));
    };
    program.providers.clear();
    let models = std::mem::take(&mut program.models);
    let named = models
        .iter()
        .map(|pattern| pattern.glob().glob())
        .find(|pattern| !pattern.contains(['*', '?', '[', '{']));
    match named {
        Some(model) => program.with_model(model).map_err(Error::of).map(Programs::from),
        None => program.with_default_model().map_err(Error::of).map(Programs::from),
    }
}

/// Converts the report of a program to JSON.
pub(crate) fn report_json(report: &ProgramReport) -> Value {
    json!({
        "name": report.name,
        "path": report.path,
        "version": report.version,
        "tested": report.tested,
        "credentials": report.credentials,
        "sandbox": report.sandbox.as_str(),
        "warnings": report.warnings.iter().map(|warning| json!({
            "problem": warning.problem,
            "remedy": warning.remedy,
        })).collect::<Vec<_>>(),
    })
}

/// Formats the report of a program: one line, then one line for each warning.
pub(crate) fn report_lines(report: &ProgramReport) -> Vec<String> {
    let first = format!(
        "{} {}",
        style::paint(style::DIM, "program   "),
        sanitize::line(&report.to_string())
    );
    let warnings = report.warnings.iter().map(|warning| {
        format!(
            "{} {}; {}",
            style::paint(style::WARN, "warning:"),
            sanitize::line(&warning.problem),
            sanitize::line(&warning.remedy)
        )
    });
    std::iter::once(first).chain(warnings).collect()
}

/// Returns one program that runs every built-in role with its default model, because a new user has not configured
/// other models.
fn for_every_role(kind: ProgramKind) -> Result<Programs> {
    let program = Program::any(kind).with_default_model();
    Ok(program.map_err(Error::of)?.into())
}

/// Returns the file with the user's login at this path below the home directory, if the file exists.
fn login(below_home: &str) -> Option<PathBuf> {
    let path = paths::default_home().ok()?.join(below_home);
    path.is_file().then_some(path)
}

/// Returns the sample agent. It only executes the lines of its prompt, so it is trusted to respect its restrictions.
fn sample() -> Result<ProcessProgram> {
    Ok(ProcessProgram {
        holds_read_only: true,
        ..ProcessProgram::new(own()?, ["sample-agent"])
    })
}

/// Returns the command with which a program's hook asks the runner.
pub(crate) fn hook() -> Result<Vec<OsString>> {
    Ok(vec![own()?.into(), "hook".into()])
}

/// Returns the directory in which programs keep their persistent state.
pub(crate) fn state_in(data_dir: &Path) -> PathBuf {
    data_dir.join("runner")
}

/// Returns the path of this program.
pub(crate) fn own() -> Result<PathBuf> {
    env::current_exe().map_err(|error| Error::failure(format!("cannot determine the path of this program: {error}")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn choice_is_program_name_or_file() {
        for text in ["sample", "codex", "claude", "opencode", "gemini", "./runner.yaml"] {
            let choice: Choice = text.parse().unwrap();
            assert_eq!(choice.to_string(), text);
            assert_eq!(matches!(choice, Choice::File(_)), text.contains('/'));
        }
        assert!("".parse::<Choice>().is_err());
        let error = Choice::File("/nowhere/runner.yaml".into()).programs().unwrap_err();
        assert!(error.to_string().contains("/nowhere/runner.yaml"));
    }
}
