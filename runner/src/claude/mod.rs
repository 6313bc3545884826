//! Agents of kind `claude`: Anthropic's Claude Code by its stream of JSON, one process a thread. Facts that this rests on
//! were seen with release 2.1.329.
//!
//! Its policy has three layers: what is not allowed is not offered ([`settings`]), a hook on the same pipe asks the runner
//! about every call, and bubblewrap keeps the whole process from writing where it may not.

mod driver;
mod events;
mod settings;

use std::{fs, io, os::unix::fs::symlink, path::Path};

use troupe_proto::{
    common::v1::Sandbox,
    supervisor::v1::{RunnerKind, StartRefusal},
};

use self::{
    driver::Driver,
    settings::{QUIET, Session},
};
use crate::{
    agent::{Agent, AgentEvent, AgentKind, Boxed, Casting, StartFailure},
    child::Launch,
    confinement,
    driven::{Driven, Program},
    env::{Environment, add, environment},
    policy,
    process::{check_directory, no_program, start},
    programs::{AgentProgram, ModelChoice},
};

/// The kind's name.
const KIND: &str = "claude";

/// Starts Claude Code.
pub(crate) struct ClaudeKind {
    program: AgentProgram,
}

impl ClaudeKind {
    pub(crate) const fn new(program: AgentProgram) -> Self {
        Self { program }
    }

    async fn start_program(&self, casting: &Casting, model: ModelChoice) -> Result<Box<dyn Agent>, StartFailure> {
        check_directory(casting.directory()).await?;
        let not_enforceable = |message| StartFailure {
            refusal: StartRefusal::PolicyNotEnforceable,
            message,
        };
        let policy = policy::compile(&casting.tool_policy).map_err(|error| not_enforceable(error.to_string()))?;
        let access = casting.resolved.sandbox();
        let is_confined = confinement::is_possible().await;
        let mut gap = None;
        match access {
            Sandbox::FullAccess => {}
            Sandbox::WorkspaceWrite if is_confined => {}
            Sandbox::WorkspaceWrite => {
                gap = Some("without bubblewrap its commands can write outside of the workspace".to_owned());
            }
            Sandbox::ReadOnly | Sandbox::Unspecified if is_confined => {}
            Sandbox::ReadOnly | Sandbox::Unspecified => {
                return Err(not_enforceable(
                    "without bubblewrap it cannot be kept from writing".to_owned(),
                ));
            }
        }

        let home = casting.state.join(KIND);
        prepare_home(&home, self.program.login.as_deref())
            .map_err(|error| no_program(format!("cannot prepare {}: {error}", home.display())))?;
        let id = casting.attempt.thread_id.as_str();
        let session = if has_session(&home, id) {
            Session::Resumed(id)
        } else {
            Session::New(id)
        };
        let model = match &model {
            ModelChoice::Default => None,
            ModelChoice::Named(name) => Some(name.as_str()),
        };
        let tools = settings::tools(&policy, access);
        let effort = &casting.resolved.reasoning_effort;
        let launch = Launch {
            command: self.program.command.clone(),
            args: settings::args(&tools, model, effort, &casting.instructions, session),
            directory: casting.directory().to_owned(),
            environment: self.environment(casting, &home),
        };
        let launch = if is_confined {
            confinement::confined(launch, access, &[&home, &casting.scratch])
        } else {
            launch
        };
        let (child, output) = start(launch)?;
        let mut driver = Driver::new(Program::new(&child, output), casting.offered.clone());
        driver.prepare().await.map_err(no_program)?;
        Ok(Box::new(Driven::new(child, async move |desk| {
            if let Some(gap) = gap {
                desk.tell(AgentEvent::PolicyGap(gap)).await;
            }
            driver.drive(desk).await;
        })))
    }

    fn environment(&self, casting: &Casting, home: &Path) -> Environment {
        let mut environment = environment(casting, |name| std::env::var_os(name));
        environment.retain(|(name, _)| name != "HOME");
        environment.push(("HOME".to_owned(), home.into()));
        environment.push(("CLAUDE_CONFIG_DIR".to_owned(), home.into()));
        environment.extend(QUIET.iter().map(|&(name, value)| (name.to_owned(), value.into())));
        add(&mut environment, &self.program.inherit, &self.program.environment);
        environment
    }
}

impl AgentKind for ClaudeKind {
    fn describe(&self) -> RunnerKind {
        RunnerKind {
            kind: KIND.to_owned(),
            enforces_tools: true,
            enforces_read_only: confinement::is_known(),
        }
    }

    fn offers_tools(&self) -> bool {
        true
    }

    fn start<'a>(
        &'a self,
        casting: &'a Casting,
        model: ModelChoice,
    ) -> Boxed<'a, Result<Box<dyn Agent>, StartFailure>> {
        Box::pin(self.start_program(casting, model))
    }
}

/// Makes the directory that it keeps its sessions in, with the login that it is lent.
fn prepare_home(home: &Path, login: Option<&Path>) -> io::Result<()> {
    fs::create_dir_all(home)?;
    let Some(login) = login else { return Ok(()) };
    match symlink(login, home.join(".credentials.json")) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Whether it has a session of that id, from before the runner or the program was killed.
fn has_session(home: &Path, id: &str) -> bool {
    let Ok(projects) = fs::read_dir(home.join("projects")) else {
        return false;
    };
    let file = format!("{id}.jsonl");
    projects.flatten().any(|project| project.path().join(&file).is_file())
}
