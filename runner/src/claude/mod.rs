//! Agents of kind `claude`: Anthropic's Claude Code by its stream of JSON, one process a thread. Facts that this rests on
//! were seen with release 2.1.329.
//!
//! Its policy has three layers: what is not allowed is not offered ([`settings`]), a hook on the same pipe asks the runner
//! about every call, and bubblewrap keeps the whole process from writing where it may not.

mod driver;
mod events;
mod settings;

use std::{
    ffi::{OsStr, OsString},
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _},
    path::Path,
};

use troupe_proto::supervisor::v1::RunnerKind;

use self::{
    driver::Driver,
    settings::{QUIET, Session},
};
use crate::{
    agent::{Agent, AgentEvent, AgentKind, Boxed, Casting, StartFailure},
    child::{Child, Launch},
    confinement::{self, Hold},
    driven::{Driven, Program},
    env::Environment,
    home, policy,
    programs::{AgentProgram, ModelChoice},
};

/// The kind's name.
const KIND: &str = "claude";

/// Where it looks for a login, in its home.
const LOGIN: &str = ".credentials.json";
/// The variable with its key, and the one that names the open file that has it instead.
const KEY: &str = "ANTHROPIC_API_KEY";
const KEY_DESCRIPTOR: &str = "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR";

/// Starts Claude Code.
pub(crate) struct ClaudeKind {
    program: AgentProgram,
}

impl ClaudeKind {
    pub(crate) const fn new(program: AgentProgram) -> Self {
        Self { program }
    }

    async fn start_program(&self, casting: &Casting, model: ModelChoice) -> Result<Box<dyn Agent>, StartFailure> {
        casting.check_directory().await?;
        let policy =
            policy::compile(&casting.tool_policy).map_err(|error| StartFailure::not_enforceable(error.to_string()))?;
        let access = casting.resolved.sandbox();
        let hold = confinement::hold(access).await?;
        let home = casting.state.join(KIND);
        home::prepare(&home, self.program.login.as_deref(), LOGIN)
            .map_err(|error| StartFailure::no_program(format!("cannot prepare {}: {error}", home.display())))?;
        let id = casting.attempt.thread_id.as_str();
        let session = if has_session(&home, id) {
            Session::Resumed(id)
        } else {
            Session::New(id)
        };
        let tools = settings::tools(&policy, access);
        let effort = &casting.resolved.reasoning_effort;
        let mut environment = self.environment(casting, &home);
        let key = take(&mut environment, KEY);
        let launch = Launch {
            command: self.program.command.clone(),
            args: settings::args(&tools, model.name(), effort, &casting.instructions, session),
            directory: casting.directory().to_owned(),
            environment,
            starts: Vec::new(),
        };
        let (launch, gap) = match hold {
            Hold::Confined => {
                let own = [home.as_path(), &casting.scratch];
                (confinement::confined(launch, access, &own, &casting.hidden), None)
            }
            Hold::Gap(gap) => (launch, gap),
        };
        let launch = match key {
            Some(key) => with_key(launch, &key, &casting.scratch)
                .map_err(|error| StartFailure::no_program(format!("the key cannot be handed over: {error}")))?,
            None => launch,
        };
        let (child, output) = Child::start(launch)?;
        let mut driver = Driver::new(Program::new(&child, output), casting.offered.clone());
        driver.prepare().await.map_err(StartFailure::no_program)?;
        Ok(Box::new(Driven::new(child, async move |desk| {
            if let Some(gap) = gap {
                desk.tell(AgentEvent::PolicyGap(gap.to_owned())).await;
            }
            driver.drive(desk).await;
        })))
    }

    fn environment(&self, casting: &Casting, home: &Path) -> Environment {
        let AgentProgram {
            inherit, environment, ..
        } = &self.program;
        let mut environment = home::environment_in(home, casting, QUIET, inherit, environment);
        environment.push(("CLAUDE_CONFIG_DIR".to_owned(), home.into()));
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

    fn remembers(&self) -> bool {
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

/// Takes a variable out.
fn take(environment: &mut Environment, name: &str) -> Option<OsString> {
    let value = environment.iter().rfind(|(known, _)| known == name)?.1.clone();
    environment.retain(|(known, _)| known != name);
    Some(value)
}

/// The same program, which reads its key from an open file that has no name any more: a variable would be there for every
/// command that it runs.
fn with_key(launch: Launch, key: &OsStr, scratch: &Path) -> io::Result<Launch> {
    let path = scratch.join("key");
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    file.write_all(key.as_bytes())?;
    let mut environment = launch.environment;
    environment.push((KEY_DESCRIPTOR.to_owned(), "3".into()));
    let script = "exec 3<\"$1\"; rm -f \"$1\"; shift; exec \"$@\"";
    let mut args: Vec<OsString> = vec!["-c".into(), script.into(), "sh".into(), path.into()];
    args.push(launch.command.into());
    args.extend(launch.args);
    Ok(Launch {
        command: "/bin/sh".into(),
        args,
        directory: launch.directory,
        environment,
        starts: Vec::new(),
    })
}

/// Whether it has a session of that id, from before the runner or the program was killed.
fn has_session(home: &Path, id: &str) -> bool {
    let Ok(projects) = fs::read_dir(home.join("projects")) else {
        return false;
    };
    let file = format!("{id}.jsonl");
    projects.flatten().any(|project| project.path().join(&file).is_file())
}
