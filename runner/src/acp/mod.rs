//! Agents of kind `acp`: programs that speak the Agent Client Protocol, one process per thread. The protocol covers
//! prompts, calls and permission requests, but not instructions and policies, so each program has a profile that
//! defines its settings for instructions and policies. The behavior was verified with OpenCode 1.18 and Gemini CLI
//! 0.61.
//!
//! A policy is enforced in three ways. The program's configuration omits denied tools ([`settings`]). The program asks
//! about every other call, and the supervisor decides. Bubblewrap prevents the whole process from writing to protected
//! paths. The supervisor's tools are provided by an MCP server that the program starts with the thread's token.
//!
//! This module implements the protocol with a dozen JSON messages. A crate with types for the whole protocol exists,
//! but the important details are outside the types: which title is a tool's name, which id contains it, how a second
//! prompt behaves. That crate also starts the program's process, but [`crate::child`] already does this for every kind.

mod chats;
mod driver;
mod events;
mod settings;

use std::{
    ffi::OsString,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use troupe_proto::supervisor::v1::RunnerKind;
use uuid::Uuid;

use self::{
    chats::Chats,
    driver::{Driver, Opening},
    settings::Tuned,
};
use crate::{
    agent::{Agent, AgentKind, LaunchSpec, StartFailure},
    child::Child,
    confinement::{self, Confinement, Means},
    driven::{self, Driven, Program},
    env::is_plain_id,
    home::{self, remove, unlinked},
    own_tools::OwnTool,
    policy,
    process_spec::ProcessSpec,
    programs::{AcpProgram, Profile},
    project,
    provider_access::{self, GEMINI_ENDPOINT, ProviderAccess},
};

/// The file with the system prompt. This file and the files below are in the program's own directory.
const SYSTEM_PROMPT: &str = "system.md";
const POLICY: &str = "policy.toml";
const USAGE_PLUGIN: &str = "usage.js";
const OPENCODE_PACKAGES: &str = ".config/opencode/package-lock.json";
const OPENCODE_MODULES: &str = ".config/opencode/node_modules";
const GEMINI_SETTINGS: &str = ".gemini/settings.json";
const RECORD: &str = "session.json";
/// The variable with OpenCode's configuration.
const OPENCODE_CONFIG: &str = "OPENCODE_CONFIG_CONTENT";

/// Starts programs of one profile.
pub(crate) struct AcpKind {
    pub(crate) program: AcpProgram,
    /// The program that serves the supervisor's tools; see [`crate::mcp`].
    pub(crate) shim: Option<OsString>,
}

#[tonic::async_trait]
impl AgentKind for AcpKind {
    fn describe(&self) -> RunnerKind {
        RunnerKind {
            kind: self.program.profile.kind().to_owned(),
            enforces_tools: true,
            enforces_read_only: confinement::is_known(),
            enforces_workspace: confinement::is_known(),
        }
    }

    async fn start(&self, launch: &LaunchSpec, model: Option<&str>) -> Result<Box<dyn Agent>, StartFailure> {
        let profile = self.program.profile;
        launch.check_directory().await?;
        let policy = policy::compile(&launch.tool_policy)?;
        let access = launch.resolved.sandbox();
        let mut confinement = Confinement::of(launch, profile.kind()).await?;
        if let (false, Some(found)) = (
            confinement.means() == Means::Bubblewrap,
            project::existing_settings(profile.kind(), launch.directory()).first(),
        ) {
            return Err(StartFailure::not_enforceable(format!(
                "without bubblewrap the program would load {}; move it away, or run the role with another program",
                found.display()
            )));
        }
        let own = profile.own_tools();
        let tools = own.offered(&policy, access);
        let withheld = own.withheld(&policy, access);
        let mut gaps: Vec<String> = policy::gap_of_withheld(&withheld).into_iter().collect();
        let ours: Vec<String> = launch
            .offered
            .iter()
            .map(|tool| profile.name_of_supervisor_tool(&tool.name))
            .collect();
        let servers = self.servers(launch)?;

        let home = launch.state.join(profile.kind());
        prepare_home(profile, &home, self.program.program.login.as_deref())
            .map_err(|error| StartFailure::no_program(format!("cannot prepare {}: {error}", home.display())))?;
        let (process, providers, uses_endpoint, tuned) = self.process(launch, &home, model, &tools, &ours).await?;
        gaps.extend(launch.gap_of_endpoint(uses_endpoint));
        let applies = |name: &str| tuned.parameters.iter().any(|applied| applied == name);
        gaps.extend(policy::gap_of_parameters(
            &launch.resolved.parameters,
            profile.name(),
            applies,
        ));
        gaps.append(&mut confinement.gaps);
        gaps.extend(providers.gaps());
        let process = confinement.confine(
            process,
            &[home.as_path(), &launch.scratch],
            self.program.program.login.as_deref(),
        );
        let (mut child, output) = Child::start(process, driven::MAX_LINE_BYTES)?;
        child.keep(confinement.placeholders);
        let opening = Opening {
            profile,
            directory: launch.directory().to_owned(),
            servers,
            effort: launch.resolved.reasoning_effort.clone(),
            has_effort: tuned.effort,
            had_turns: launch.had_turns,
            tools: settings::names(&tools).map(str::to_owned).collect(),
            ours: ours.into_iter().collect(),
            record: Some(home.join(RECORD)),
            chats: (profile == Profile::Gemini).then(|| Chats::new(&home)),
            gaps,
        };
        let mut driver = Driver::new(Program::new(&child, output), opening);
        driver.prepare().await?;
        let driven = Driven::new(child, async move |channels| {
            driver.drive(channels).await;
        });
        Ok(Box::new(driven.with_access(providers)))
    }
}

impl AcpKind {
    /// Returns the MCP servers of the session: the supervisor's tools, if the thread is offered any.
    fn servers(&self, launch: &LaunchSpec) -> Result<Value, StartFailure> {
        if launch.offered.is_empty() {
            return Ok(json!([]));
        }
        let Some(shim) = self.shim.as_ref().and_then(|shim| shim.to_str()) else {
            return Err(StartFailure::no_program(
                "no command is configured to serve the thread's tools".to_owned(),
            ));
        };
        let Some(token) = &launch.token else {
            return Err(StartFailure::no_program(
                "the thread has no token, so its tools cannot be served".to_owned(),
            ));
        };
        let authorities = match &launch.supervisor_authorities {
            None => None,
            Some(path) => Some(path.to_str().ok_or_else(|| {
                StartFailure::no_program(format!(
                    "the path {} is not UTF-8 and cannot be passed to a program",
                    path.display()
                ))
            })?),
        };
        Ok(settings::servers(
            shim,
            token.expose(),
            &launch.supervisor_url,
            authorities,
        ))
    }

    /// Returns the start parameters of the program, its local proxies for providers, whether the program uses the
    /// role's endpoint, and the role settings that its configuration applies.
    async fn process(
        &self,
        launch: &LaunchSpec,
        home: &Path,
        model: Option<&str>,
        tools: &[OwnTool],
        ours: &[String],
    ) -> Result<(ProcessSpec, ProviderAccess, bool, Tuned), StartFailure> {
        let endpoint = launch.endpoint(model);
        let program = &self.program.program;
        let mut args: Vec<OsString> = self.program.args.iter().map(OsString::from).collect();
        let mut environment = home::environment_in(home, launch, self.program.profile.quiet(), program);
        let resolved = &launch.resolved;
        let (providers, uses_endpoint, tuned) = match self.program.profile {
            Profile::OpenCode => {
                let model = model.map(|name| settings::opencode_model(name, program.provider.as_deref()));
                let mut config =
                    settings::opencode(&program.settings, tools, ours, &launch.instructions, model.as_deref());
                let effort = &resolved.reasoning_effort;
                let tuned = settings::tune(&mut config, model.as_deref(), effort, &resolved.parameters);
                let provider = settings::opencode_provider(model.as_deref(), program.provider.as_deref());
                let redirected = provider.zip(endpoint);
                if let Some((provider, endpoint)) = redirected {
                    provider_access::redirect(&mut config, provider, endpoint);
                }
                let plugin = write(home, USAGE_PLUGIN, settings::USAGE_PLUGIN).map_err(|error| {
                    StartFailure::no_program(format!("the plugin that reports its usage cannot be written: {error}"))
                })?;
                settings::add_plugin(&mut config, &plugin);
                write_packages(home).map_err(|error| {
                    StartFailure::no_program(format!("the list of its packages cannot be written: {error}"))
                })?;
                let is_redirected = redirected.is_some();
                let providers = ProviderAccess::of_opencode(program, provider, &mut config, &mut environment).await;
                environment.insert(OPENCODE_CONFIG.to_owned(), config.to_string().into());
                // The program listens on a local port. Without a password every local process could use the program's
                // sessions.
                let password = Uuid::new_v4().simple().to_string();
                environment.insert("OPENCODE_SERVER_PASSWORD".to_owned(), password.into());
                (providers, is_redirected, tuned)
            }
            Profile::Gemini => {
                let unwritten =
                    |error: io::Error| StartFailure::not_enforceable(format!("its policy cannot be written: {error}"));
                let text = settings::policy(tools, ours).ok_or_else(|| {
                    StartFailure::not_enforceable("the policy cannot contain the name of a tool".to_owned())
                })?;
                // If the policy file is missing, the program silently starts without any of the denials.
                let policy = write(home, POLICY, &text).map_err(unwritten)?;
                let mut quiet = settings::gemini(&program.settings, program.login.is_some());
                let effort = &resolved.reasoning_effort;
                let tuned = settings::tune_gemini(&mut quiet, model, effort, &resolved.parameters);
                write(home, GEMINI_SETTINGS, &quiet.to_string()).map_err(unwritten)?;
                args.extend(["--policy".into(), policy.into()]);
                if let Some(model) = model {
                    args.extend(["-m".into(), model.into()]);
                }
                if !launch.instructions.trim().is_empty() {
                    let path = write(home, SYSTEM_PROMPT, &launch.instructions).map_err(|error| {
                        StartFailure::no_program(format!("its instructions cannot be written: {error}"))
                    })?;
                    environment.insert("GEMINI_SYSTEM_MD".to_owned(), path.into());
                }
                let has_key = settings::has_gemini_key(&quiet);
                // With a login or Vertex AI, the program uses other addresses.
                let endpoint = endpoint.filter(|_| has_key);
                if let Some(endpoint) = endpoint {
                    environment.insert(GEMINI_ENDPOINT.to_owned(), endpoint.into());
                }
                let providers = ProviderAccess::of_gemini(program, has_key, &mut environment).await;
                (providers, endpoint.is_some(), tuned)
            }
        };
        let mut process = ProcessSpec::new(&program.command, args, launch.directory(), environment);
        let shim = self.shim.iter().map(PathBuf::from);
        process.starts.extend(shim.filter(|shim| shim.is_absolute()));
        Ok((process, providers, uses_endpoint, tuned))
    }
}

/// Runs the conversation with a program that was already started, until the conversation ends. The program is offered
/// one tool of its own and one of the supervisor's tools.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) async fn converse(
    program: Program,
    profile: Profile,
    ours: &str,
    directory: PathBuf,
    channels: driven::DriverChannels,
) -> Result<(), StartFailure> {
    let shell = match profile {
        Profile::OpenCode => "bash",
        Profile::Gemini => "run_shell_command",
    };
    let opening = Opening {
        directory,
        ours: [profile.name_of_supervisor_tool(ours)].into(),
        ..Opening::with_tool(profile, shell)
    };
    let mut driver = Driver::new(program, opening);
    driver.prepare().await?;
    driver.drive(channels).await;
    Ok(())
}

/// The directory of Gemini CLI's conversations in its home.
const CHATS: &str = ".gemini/tmp";
/// The prefix of a conversation's file name.
const CHAT: &str = "session-";
/// The prefix of the file name of a conversation that is continued.
const CONTINUED: &str = "session-continued-";

/// Renames Gemini CLI's file of a session before the program's next start. Gemini CLI names files by the minute, and a
/// start in the same minute would overwrite the conversation before the program reads it.
fn keep_chat(home: &Path, session: &str) -> io::Result<()> {
    let Some(short) = session.get(..8).filter(|_| is_plain_id(session)) else {
        return Ok(());
    };
    for project in fs::read_dir(unlinked(home, CHATS)?)?.flatten() {
        let name = Path::new(CHATS).join(project.file_name()).join("chats");
        let Some(name) = name.to_str() else { continue };
        let chats = unlinked(home, name)?;
        let kept = chats.join(format!("{CONTINUED}{short}.jsonl"));
        if kept.exists() {
            continue;
        }
        let Ok(files) = fs::read_dir(&chats) else { continue };
        let is_session = |name: &str| name.starts_with(CHAT) && name.ends_with(&format!("-{short}.jsonl"));
        let named = files
            .flatten()
            .filter(|file| file.file_name().to_str().is_some_and(is_session));
        // Later starts that did not continue the session left short files.
        let longest = named.max_by_key(|file| file.metadata().map_or(0, |metadata| metadata.len()));
        if let Some(longest) = longest {
            fs::rename(longest.path(), kept)?;
        }
    }
    Ok(())
}

/// Prepares the program's home, and removes files by which an agent could disable restrictions.
fn prepare_home(profile: Profile, home: &Path, login: Option<&Path>) -> io::Result<()> {
    fs::create_dir_all(home)?;
    for name in profile.removed_files() {
        remove(&unlinked(home, name)?)?;
    }
    home::prepare(home, login, profile.login())
}

/// Makes OpenCode treat its package for plugin authors as installed. Otherwise it would install the package from npm at
/// each start, and delay the first turn until npm answers. The runner's plugin does not use the package.
fn write_packages(home: &Path) -> io::Result<()> {
    write(home, OPENCODE_PACKAGES, settings::OPENCODE_PACKAGES)?;
    fs::create_dir_all(home.join(OPENCODE_MODULES))
}

/// Writes a file in the program's home and verifies its content.
fn write(home: &Path, name: &str, text: &str) -> io::Result<PathBuf> {
    let path = unlinked(home, name)?;
    remove(&path)?;
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    file.write_all(text.as_bytes())?;
    drop(file);
    if fs::read_to_string(&path)? != text {
        return Err(io::Error::other(format!(
            "{} does not contain what was written",
            path.display()
        )));
    }
    Ok(path)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn leftovers_are_removed_and_files_outside_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let (home, outside) = (directory.path().join("home"), directory.path().join("outside"));
        fs::create_dir_all(home.join(".config/opencode/plugin")).unwrap();
        fs::create_dir_all(outside.join("opencode")).unwrap();
        fs::write(outside.join("opencode/kept"), "").unwrap();
        prepare_home(Profile::OpenCode, &home, None).unwrap();
        assert!(!home.join(".config/opencode").exists());

        fs::remove_dir_all(home.join(".config")).unwrap();
        symlink(&outside, home.join(".config")).unwrap();
        prepare_home(Profile::OpenCode, &home, None).unwrap();
        assert!(outside.join("opencode/kept").exists() && !home.join(".config").exists());

        fs::write(outside.join("target"), "theirs").unwrap();
        symlink(outside.join("target"), home.join(POLICY)).unwrap();
        let path = write(&home, POLICY, "ours").unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), "ours");
        assert_eq!(fs::read_to_string(outside.join("target")).unwrap(), "theirs");
    }

    #[test]
    fn chat_survives_start_in_same_minute() {
        let home = tempfile::tempdir().unwrap();
        let session = "84c643ba-3fa4-4868-9d2c-b89c62f80422";
        let chats = home.path().join(".gemini/tmp/w/chats");
        fs::create_dir_all(&chats).unwrap();
        fs::write(
            chats.join("session-2026-11-23T21-46-84c643ba.jsonl"),
            "the conversation",
        )
        .unwrap();
        fs::write(chats.join("session-2026-11-23T21-47-84c643ba.jsonl"), "short").unwrap();
        fs::write(
            chats.join("session-2026-11-23T21-46-00000000.jsonl"),
            "of another, which is longer",
        )
        .unwrap();
        for _ in 0..2 {
            keep_chat(home.path(), session).unwrap();
            let kept = fs::read_to_string(chats.join("session-continued-84c643ba.jsonl")).unwrap();
            assert_eq!(kept, "the conversation");
        }
        assert!(chats.join("session-2026-11-23T21-46-00000000.jsonl").exists());

        let outside = tempfile::tempdir().unwrap();
        fs::create_dir_all(outside.path().join("chats")).unwrap();
        fs::write(outside.path().join("chats/session-x-84c643ba.jsonl"), "theirs").unwrap();
        symlink(outside.path(), home.path().join(".gemini/tmp/link")).unwrap();
        let _ = keep_chat(home.path(), session);
        assert!(
            outside.path().join("chats/session-x-84c643ba.jsonl").exists(),
            "links are not followed"
        );
    }

    #[test]
    fn login_is_linked_into_home() {
        let directory = tempfile::tempdir().unwrap();
        let login = directory.path().join("auth.json");
        fs::write(&login, "{}").unwrap();
        let home = directory.path().join("home");
        for _ in 0..2 {
            prepare_home(Profile::OpenCode, &home, Some(&login)).unwrap();
            assert_eq!(fs::read_link(home.join(Profile::OpenCode.login())).unwrap(), login);
        }
    }
}
