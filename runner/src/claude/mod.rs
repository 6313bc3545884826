//! Agents of kind `claude`: Anthropic's Claude Code through its JSON stream, one process per thread. The behavior was
//! verified with release 2.1.329.
//!
//! A policy is enforced in three layers. Denied tools are not offered ([`settings`]). A hook on the same pipe asks the
//! runner about every call. Bubblewrap prevents the whole process from writing to protected paths.

mod driver;
mod events;
mod settings;

use std::{
    ffi::OsString,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _},
    path::Path,
};

use troupe_proto::supervisor::v1::RunnerKind;

use self::{driver::Driver, settings::QUIET};
use crate::{
    agent::{Agent, AgentKind, LaunchSpec, StartFailure},
    child::Child,
    confinement::{self, Confinement},
    driven::{self, Driven, Program},
    env::Environment,
    home, launcher, policy,
    process_spec::ProcessSpec,
    programs::AgentProgram,
    provider_access::ProviderAccess,
};

/// The kind's name.
const KIND: &str = "claude";
/// The program's display name.
const NAME: &str = "Claude Code";

/// The file in Claude Code's home in which Claude Code looks for a login.
const LOGIN: &str = ".credentials.json";
/// The variables with a credential, each with the variable that instead contains the descriptor of an open file with
/// the credential. Claude Code has no such variable for `ANTHROPIC_AUTH_TOKEN`.
const CREDENTIALS: [(&str, &str); 2] = [
    ("ANTHROPIC_API_KEY", "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR"),
    ("CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN_FILE_DESCRIPTOR"),
];
/// The variable with the base URL of the provider.
const ENDPOINT: &str = "ANTHROPIC_BASE_URL";
/// The first descriptor after the standard streams.
const FIRST_DESCRIPTOR: usize = 3;

/// Starts Claude Code.
pub(crate) struct ClaudeKind {
    pub(crate) program: AgentProgram,
}

#[tonic::async_trait]
impl AgentKind for ClaudeKind {
    fn describe(&self) -> RunnerKind {
        RunnerKind {
            kind: KIND.to_owned(),
            enforces_tools: true,
            enforces_read_only: confinement::is_known(),
            enforces_workspace: confinement::is_known(),
        }
    }

    async fn start(&self, launch: &LaunchSpec, model: Option<&str>) -> Result<Box<dyn Agent>, StartFailure> {
        launch.check_directory().await?;
        let policy = policy::compile(&launch.tool_policy)?;
        let access = launch.resolved.sandbox();
        let mut confinement = Confinement::of(launch, KIND).await?;
        let home = launch.state.join(KIND);
        home::prepare(&home, self.program.login.as_deref(), LOGIN)
            .map_err(|error| StartFailure::no_program(format!("cannot prepare {}: {error}", home.display())))?;
        let id = launch.attempt.thread_id.as_str();
        let is_new = !has_session(&home, id);
        let session = [if is_new { "--session-id" } else { "--resume" }, id];
        let is_lost = launch.had_turns && is_new;
        let tools = settings::tools(&policy, access);
        let effort = &launch.resolved.reasoning_effort;
        let mut environment = home::environment_in(&home, launch, QUIET, &self.program);
        environment.insert("CLAUDE_CONFIG_DIR".to_owned(), home.clone().into());
        let endpoint = launch.endpoint(model);
        // Replaces the operator's base URL, which would apply to every role.
        environment.extend(endpoint.map(|endpoint| (ENDPOINT.to_owned(), OsString::from(endpoint))));
        let variable = settings::effort_variable(effort);
        environment.extend(variable.map(|(name, value)| (name.to_owned(), OsString::from(value))));
        let providers = ProviderAccess::of_claude(&self.program, &mut environment).await;
        // Each value is a placeholder, or a credential that no proxy holds.
        let credentials = take_credentials(&mut environment);
        let args = settings::args(&tools, model, effort, &launch.instructions, session);
        let process = ProcessSpec::new(&self.program.command, args, launch.directory(), environment);
        let mut gaps: Vec<String> = policy::gap_of_withheld(&settings::TOOLS.withheld(&policy, access))
            .into_iter()
            .chain(launch.gap_of_endpoint(endpoint.is_some()))
            .chain((!settings::applies_effort(effort)).then(|| policy::gap_of_effort(effort, NAME)))
            .chain(policy::gap_of_parameters(&launch.resolved.parameters, NAME, |_| false))
            .chain(providers.gaps())
            .collect();
        gaps.append(&mut confinement.gaps);
        let process = confinement.confine(
            process,
            &[home.as_path(), &launch.scratch],
            self.program.login.as_deref(),
        );
        let process = with_credentials(process, &credentials, &launch.scratch)
            .map_err(|error| StartFailure::no_program(format!("cannot pass its credentials: {error}")))?;
        let (mut child, output) = Child::start(process, driven::MAX_LINE_BYTES)?;
        child.keep(confinement.placeholders);
        let mut driver = Driver::new(Program::new(&child, output), launch.offered.clone(), tools);
        if is_new {
            driver.mark_new_session();
        }
        driver.prepare().await.map_err(StartFailure::no_program)?;
        let driven = Driven::new(child, async move |channels| {
            channels.report_gaps(&gaps).await;
            if is_lost {
                channels.report_context_lost("it has no session of the thread").await;
            }
            driver.drive(channels).await;
        });
        Ok(Box::new(driven.with_access(providers)))
    }
}

/// Runs the conversation with a program that was already started, until the conversation ends.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) async fn converse(
    program: Program,
    offered: Vec<troupe_proto::supervisor::v1::ToolDescription>,
    channels: driven::DriverChannels,
) -> Result<(), StartFailure> {
    let mut driver = Driver::new(program, offered, Vec::new());
    driver.prepare().await.map_err(StartFailure::no_program)?;
    driver.drive(channels).await;
    Ok(())
}

/// A credential, and the variable with the descriptor of its open file.
type Credential = (&'static str, OsString);

/// Removes and returns the credentials that can be passed in another way.
fn take_credentials(environment: &mut Environment) -> Vec<Credential> {
    let taken = CREDENTIALS
        .into_iter()
        .filter_map(|(variable, descriptor)| Some((descriptor, environment.remove(variable)?)));
    // An empty value counts as missing.
    taken.filter(|(_, value)| !value.is_empty()).collect()
}

/// Returns the program with its credentials in open, unlinked files. Every command that the program runs could read
/// credentials in the program's variables.
fn with_credentials(process: ProcessSpec, credentials: &[Credential], scratch: &Path) -> io::Result<ProcessSpec> {
    if credentials.is_empty() {
        return Ok(process);
    }
    let mut environment = process.environment;
    let mut script = String::new();
    let mut files: Vec<OsString> = Vec::new();
    for (descriptor, (variable, credential)) in (FIRST_DESCRIPTOR..).zip(credentials) {
        let path = scratch.join(format!("credential-{descriptor}"));
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(launcher::secret_file_mode())
            .open(&path)?;
        file.write_all(credential.as_bytes())?;
        environment.insert((*variable).to_owned(), descriptor.to_string().into());
        script += &format!("exec {descriptor}<\"$1\"; rm -f \"$1\"; shift; ");
        files.push(path.into());
    }
    script += "exec \"$@\"";
    let mut args: Vec<OsString> = vec!["-c".into(), script.into(), "sh".into()];
    args.extend(files);
    args.push(process.command.into());
    args.extend(process.args);
    Ok(ProcessSpec {
        allowed: process.allowed,
        ..ProcessSpec::new("/bin/sh", args, process.directory, environment)
    })
}

/// Returns whether the program has a session with that id from an earlier process.
fn has_session(home: &Path, id: &str) -> bool {
    let Ok(projects) = fs::read_dir(home.join("projects")) else {
        return false;
    };
    let file = format!("{id}.jsonl");
    projects.flatten().any(|project| project.path().join(&file).is_file())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::subprocess::{self, Limits};

    #[tokio::test]
    async fn credentials_are_in_open_files_and_not_in_the_environment() {
        let scratch = tempfile::tempdir().unwrap();
        let mut environment: Environment = [
            ("ANTHROPIC_API_KEY", "key"),
            ("CLAUDE_CODE_OAUTH_TOKEN", "token"),
            ("ANTHROPIC_AUTH_TOKEN", "as it is"),
        ]
        .map(|(name, value)| (name.to_owned(), OsString::from(value)))
        .into();
        environment.extend(std::env::var_os("PATH").map(|path| ("PATH".to_owned(), path)));
        let credentials = take_credentials(&mut environment);
        let script = "cat <&3; echo; cat <&4; echo; env";
        let process = ProcessSpec::new("/bin/sh", ["-c", script], "/", environment);
        let process = with_credentials(process, &credentials, scratch.path()).unwrap();
        let limits = Limits {
            time: Duration::from_secs(20),
            output: 64 * 1024,
        };
        let output = subprocess::output_of("it", process, limits).await.unwrap();
        let output = String::from_utf8(output).unwrap();
        let mut lines = output.lines();
        assert_eq!((lines.next(), lines.next()), (Some("key"), Some("token")));
        let variables: Vec<&str> = lines.collect();
        for variable in [
            "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR=3",
            "CLAUDE_CODE_OAUTH_TOKEN_FILE_DESCRIPTOR=4",
            "ANTHROPIC_AUTH_TOKEN=as it is",
        ] {
            assert!(variables.contains(&variable), "{output}");
        }
        for (variable, _) in CREDENTIALS {
            assert!(
                !variables.iter().any(|line| line.starts_with(&format!("{variable}="))),
                "{output}"
            );
        }
        assert!(
            fs::read_dir(scratch.path()).unwrap().next().is_none(),
            "the files are unlinked"
        );
    }

    #[test]
    fn empty_credential_is_ignored() {
        let mut environment: Environment = [("ANTHROPIC_API_KEY".to_owned(), OsString::new())].into();
        assert!(take_credentials(&mut environment).is_empty() && environment.is_empty());
    }
}
