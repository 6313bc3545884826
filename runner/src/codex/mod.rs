//! Agents of kind `codex`: OpenAI's Codex through its app-server, one process per thread. The behavior was verified
//! with release 0.169.
//!
//! A policy is enforced in three layers. Denied tools are not offered ([`settings`]). A hook asks the runner about
//! every call of Codex's own tools. Codex's sandbox prevents commands and patches from writing to protected paths.
//! Codex silently ignores a hook that it does not trust, so a thread begins only after Codex has confirmed its trust.

mod driver;
mod events;
mod settings;

use std::{
    ffi::OsString,
    io, iter,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use tokio::sync::OnceCell;
use troupe_proto::{common::v1::Sandbox, supervisor::v1::RunnerKind};

use self::driver::{Driver, Opening};
use crate::{
    agent::{Agent, AgentKind, LaunchSpec, StartFailure},
    child::Child,
    confinement::{Confinement, Means},
    driven::{self, Driven, Program},
    env::Environment,
    home,
    hook::{self, HookServer},
    policy,
    process_spec::ProcessSpec,
    programs::AgentProgram,
    provider_access::{self, ProviderAccess},
    subprocess::{self, Limits},
};

/// The kind's name.
const KIND: &str = "codex";
/// The program's display name.
const NAME: &str = "Codex";
/// The file in Codex's home in which Codex looks for a login.
const LOGIN: &str = "auth.json";
/// Settings in Codex's home that start programs. Only an agent can have written them there.
const SWEPT: &[&str] = &["config.toml", "hooks.json", "hooks", "rules", "plugins"];
/// Limits for listing Codex's models.
const CATALOG: Limits = Limits {
    time: Duration::from_secs(20),
    output: 8 * 1024 * 1024,
};

/// Starts Codex.
pub(crate) struct CodexKind {
    program: AgentProgram,
    /// The command of the hook; see [`hook::command`].
    hook: Vec<OsString>,
    /// Codex's catalog of models, read once.
    catalog: OnceCell<Value>,
}

impl CodexKind {
    pub(crate) fn new(program: AgentProgram, hook: Vec<OsString>) -> Self {
        Self {
            program,
            hook,
            catalog: OnceCell::new(),
        }
    }
}

#[tonic::async_trait]
impl AgentKind for CodexKind {
    fn describe(&self) -> RunnerKind {
        RunnerKind {
            kind: KIND.to_owned(),
            enforces_tools: true,
            enforces_read_only: true,
            enforces_workspace: true,
        }
    }

    async fn start(&self, launch: &LaunchSpec, model: Option<&str>) -> Result<Box<dyn Agent>, StartFailure> {
        launch.check_directory().await?;
        let policy = policy::compile(&launch.tool_policy)?;
        let home = launch.state.join(KIND);
        sweep(&home)
            .and_then(|()| home::prepare(&home, self.program.login.as_deref(), LOGIN))
            .map_err(|error| StartFailure::no_program(format!("cannot prepare {}: {error}", home.display())))?;
        let (hooks, hook) = self
            .prepare_hook(&launch.state)
            .map_err(|error| StartFailure::not_enforceable(format!("the hook cannot be prepared: {error}")))?;

        let mut environment = home::environment_in(&home, launch, &[], &self.program);
        environment.insert("CODEX_HOME".to_owned(), home.clone().into());
        let access = launch.resolved.sandbox();
        let mut config = settings::config(&self.program, &policy, access, &hook);
        let base_url = environment.get(settings::BASE_URL).and_then(|value| value.to_str());
        settings::use_base_url(&mut config, &self.program, base_url);
        let is_used = launch
            .endpoint(model)
            .is_some_and(|endpoint| settings::redirect(&mut config, self.program.provider.as_deref(), endpoint));
        let providers = ProviderAccess::of_codex(&self.program, &mut config, &mut environment).await;
        let api_key = provider_access::login_key_of_codex(&self.program, &config, &environment);
        let mut confinement = Confinement::of(launch, KIND).await?;
        settings::widen(&mut config, &confinement);
        // Codex's sandbox for WORKSPACE_WRITE does not start in a read-only project.
        let docs = launch.docs_directory.as_deref();
        let is_by_landlock = confinement.means() == Means::Landlock;
        let external_sandbox = if is_by_landlock {
            settings::external_sandbox(&config, access)
        } else {
            None
        };
        let docs = docs.filter(|_| access == Sandbox::WorkspaceWrite && !is_by_landlock);
        let has_permissions = docs.is_some();
        if let Some(docs) = docs {
            settings::permit_docs(&mut config, docs);
        }
        let wanted = launch.resolved.reasoning_effort.as_str();
        let effort = settings::effort(wanted);
        let has_gap = effort.is_none() && !wanted.is_empty();
        let mut gaps: Vec<String> = launch
            .gap_of_endpoint(is_used)
            .into_iter()
            .chain(has_gap.then(|| policy::gap_of_effort(wanted, NAME)))
            .chain(policy::gap_of_parameters(&launch.resolved.parameters, NAME, |_| false))
            .chain(providers.gaps())
            .collect();
        gaps.append(&mut confinement.gaps);
        let mut tools = launch.offered.clone();
        tools.extend(settings::reading_tools(&policy));
        if settings::hides_patches(&policy, access) {
            let path = self.catalog_without_patches(&launch.scratch, &environment).await?;
            config.insert("model_catalog_json".to_owned(), path.to_string_lossy().into());
        }
        // Plugins are fetched when the program starts, so the settings of a thread are too late to disable them.
        let mut args: Vec<OsString> = vec!["-c".into(), "features.plugins=false".into()];
        args.extend(["-c".into(), settings::distrust(launch.directory()).into()]);
        if api_key.is_some() {
            args.extend(["-c".into(), settings::UNSTORED_LOGIN.into()]);
        }
        let args = iter::once("app-server".into()).chain(args);
        let mut process = ProcessSpec::new(&self.program.command, args, launch.directory(), environment);
        let hook = self.hook.first().map(PathBuf::from);
        process.starts.extend(hook.filter(|command| command.is_absolute()));
        let process = confinement.confine(
            process,
            &[&launch.state, &launch.scratch],
            self.program.login.as_deref(),
        );
        let (mut child, output) = Child::start(process, driven::MAX_LINE_BYTES)?;
        child.keep(confinement.placeholders);
        let opening = Opening {
            config,
            model: model.map(str::to_owned),
            provider: self.program.provider.clone(),
            api_key,
            effort: effort.map(str::to_owned),
            directory: launch.directory().to_owned(),
            sandbox: (!has_permissions).then(|| settings::sandbox(access)),
            external_sandbox,
            instructions: launch.instructions.clone(),
            tools,
            had_turns: launch.had_turns,
            record: home.join("thread.json"),
        };
        let mut driver = Driver::new(Program::new(&child, output), hooks, opening);
        driver.prepare().await?;
        let driven = Driven::new(child, async move |channels| {
            channels.report_gaps(&gaps).await;
            driver.drive(channels).await;
        });
        Ok(Box::new(driven.with_access(providers)))
    }
}

impl CodexKind {
    /// Listens for requests of the hook, at a path where no sandbox lets an agent write.
    fn prepare_hook(&self, state: &Path) -> io::Result<(HookServer, String)> {
        let socket = state.join("hook");
        let command = hook::command(&self.hook, &socket)
            .filter(|_| !self.hook.is_empty())
            .ok_or_else(|| io::Error::other("no hook command is configured"))?;
        // Removes the socket of an earlier attempt.
        home::remove_file(&socket)?;
        let server = HookServer::bind(&socket).map_err(|error| {
            io::Error::other(format!("{error} at {}; a shorter --state may help", socket.display()))
        })?;
        Ok((server, command))
    }

    /// Writes the model catalog with patches disabled for every model.
    async fn catalog_without_patches(
        &self,
        scratch: &Path,
        environment: &Environment,
    ) -> Result<PathBuf, StartFailure> {
        let not_enforceable =
            |why: String| StartFailure::not_enforceable(format!("cannot disable its patch tool: {why}"));
        let catalog = self.catalog.get_or_try_init(|| self.read_catalog(scratch, environment));
        let catalog = catalog.await.map_err(not_enforceable)?;
        let path = scratch.join("models.json");
        let text = settings::without_patches(catalog.clone()).to_string();
        home::replace(&path, &text)
            .map_err(|error| not_enforceable(format!("cannot write {}: {error}", path.display())))?;
        Ok(path)
    }

    async fn read_catalog(&self, scratch: &Path, environment: &Environment) -> Result<Value, String> {
        let command = &self.program.command;
        let name = format!("`{} debug models`", command.display());
        let process = ProcessSpec::new(command, ["debug", "models"], scratch, environment.clone());
        let catalog = subprocess::output_of(&name, process, CATALOG).await?;
        serde_json::from_slice(&catalog).map_err(|error| format!("its catalogue of models: {error}"))
    }
}

/// Removes settings that an agent may have written into Codex's own directory for the next start.
fn sweep(home: &Path) -> io::Result<()> {
    for name in SWEPT {
        home::remove(&home::unlinked(home, name)?)?;
    }
    Ok(())
}

/// Runs the conversation with a program that was already started, until the conversation ends. Nothing is stored.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) async fn converse(
    program: Program,
    hooks: HookServer,
    offered: Vec<troupe_proto::supervisor::v1::ToolDescription>,
    directory: PathBuf,
    channels: driven::DriverChannels,
) -> Result<(), StartFailure> {
    let opening = Opening {
        directory,
        sandbox: Some(settings::sandbox(Sandbox::ReadOnly)),
        tools: offered,
        // The directory does not exist, so nothing is stored.
        record: "/dev/null/thread.json".into(),
        ..Opening::default()
    };
    let mut driver = Driver::new(program, hooks, opening);
    driver.prepare().await?;
    driver.drive(channels).await;
    Ok(())
}
