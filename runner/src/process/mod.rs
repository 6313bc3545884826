//! Agents of kind `process`: any program that speaks the line protocol of `docs/process-protocol.md`.

mod protocol;

use troupe_proto::{common::v1::Sandbox, supervisor::v1::RunnerKind};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::protocol::parse;
use crate::{
    agent::{Agent, AgentEvent, AgentKind, InputError, LaunchSpec, Order, StartFailure, StopOrder, Stopped},
    child::{Child, ChildEvent, ChildOutput, Line},
    confinement::{self, SecretMasks},
    env::{add, environment},
    process_spec::ProcessSpec,
    programs::ProcessProgram,
};

/// The kind's name.
const KIND: &str = "process";
/// Maximum length of a line that is read, in bytes.
const MAX_LINE_BYTES: usize = 1024 * 1024;

/// Starts the one configured program.
pub(crate) struct ProcessKind {
    pub(crate) program: ProcessProgram,
}

impl ProcessKind {
    fn holds_read_only(&self) -> bool {
        self.program.holds_read_only || (self.program.confine && confinement::is_known())
    }
}

#[tonic::async_trait]
impl AgentKind for ProcessKind {
    fn describe(&self) -> RunnerKind {
        RunnerKind {
            kind: KIND.to_owned(),
            // Every tool of the program is executed by the runner. Nothing prevents the program from directly doing
            // what a tool would do.
            enforces_tools: true,
            enforces_read_only: self.holds_read_only(),
            enforces_workspace: false,
        }
    }

    fn offers_tools(&self) -> bool {
        false
    }

    fn writes_lines(&self) -> bool {
        true
    }

    async fn start(&self, launch: &LaunchSpec, _: Option<&str>) -> Result<Box<dyn Agent>, StartFailure> {
        // Checked again here, although the supervisor does not place threads where their policy cannot be enforced.
        if launch.resolved.sandbox() == Sandbox::ReadOnly && !self.holds_read_only() {
            return Err(StartFailure::not_enforceable(
                "the program of this runner does not keep a read-only thread from writing",
            ));
        }
        launch.check_directory().await?;
        let mut environment = environment(launch, |name| std::env::var_os(name));
        add(&mut environment, &self.program.inherit, &self.program.environment);
        let process = ProcessSpec::new(
            &self.program.command,
            &self.program.args,
            launch.directory(),
            environment,
        );
        let process = match launch.resolved.sandbox() {
            Sandbox::ReadOnly if !self.program.holds_read_only => {
                confinement::confined(process, Sandbox::ReadOnly, &[&launch.scratch], &launch.hidden)
            }
            _ => SecretMasks::of(launch).apply(process),
        };
        let (child, output) = Child::start(process, MAX_LINE_BYTES)?;
        Ok(Box::new(ProcessAgent { child, output }))
    }
}

/// One running program.
struct ProcessAgent {
    child: Child,
    output: ChildOutput,
}

#[tonic::async_trait]
impl Agent for ProcessAgent {
    fn give(&mut self, order: Order) -> Result<(), InputError> {
        match protocol::line(&order) {
            Some(line) => self.child.input().write(line),
            // The program never sends permission requests: the runner executes its tools.
            None => Ok(()),
        }
    }

    fn signal(&mut self) {
        self.child.interrupt();
    }

    async fn next_event(&mut self) -> AgentEvent {
        match self.output.next_event().await {
            ChildEvent::Line(Line::Text(line)) => protocol::parse(&line),
            ChildEvent::Line(Line::TooLong { bytes, .. }) => {
                AgentEvent::Output(format!("[a line of {bytes} bytes was dropped]"))
            }
            ChildEvent::Exited(exit) => AgentEvent::Exited(exit.complaint()),
        }
    }

    async fn stop(self: Box<Self>, order: StopOrder) -> Stopped {
        // Possibly the program does not read this line. Then its closed input and the signals must end it.
        let _ = self.child.input().write(protocol::shutdown());
        drop(self.output);
        self.child.stop(order).await
    }
}
