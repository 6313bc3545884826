//! Agents of kind `process`: any program that speaks the line protocol of `docs/process-protocol.md`.

mod protocol;

use troupe_proto::{
    common::v1::{Sandbox, ToolPolicy},
    supervisor::v1::RunnerKind,
};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::protocol::parse;
use crate::{
    agent::{Agent, AgentEvent, AgentKind, InputError, LaunchSpec, Order, StartFailure, StopOrder, Stopped},
    child::{Child, ChildEvent, ChildOutput, Line},
    confinement::{self, SecretMasks},
    env::{add, environment},
    process_spec::ProcessSpec,
    programs::{Enforcement, ModelChoice, ProcessProgram},
};

/// The kind's name.
const KIND: &str = "process";
/// The longest line that is read, in bytes.
const MAX_LINE_BYTES: usize = 1024 * 1024;

/// Starts the one configured program.
pub(crate) struct ProcessKind {
    pub(crate) program: ProcessProgram,
}

impl ProcessKind {
    fn holds_read_only(&self) -> bool {
        self.program.enforces.read_only || (self.program.confine && confinement::is_known())
    }
}

#[tonic::async_trait]
impl AgentKind for ProcessKind {
    fn describe(&self) -> RunnerKind {
        RunnerKind {
            kind: KIND.to_owned(),
            enforces_tools: self.program.enforces.tools,
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

    async fn start(&self, launch: &LaunchSpec, _: ModelChoice) -> Result<Box<dyn Agent>, StartFailure> {
        let enforces = Enforcement {
            read_only: self.holds_read_only(),
            ..self.program.enforces
        };
        check_policy(enforces, launch.resolved.sandbox(), &launch.tool_policy)?;
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
            Sandbox::ReadOnly if !self.program.enforces.read_only => {
                confinement::confined(process, Sandbox::ReadOnly, &[&launch.scratch], &launch.hidden)
            }
            _ => SecretMasks::of(launch).apply(process),
        };
        let (child, output) = Child::start(process, MAX_LINE_BYTES)?;
        Ok(Box::new(ProcessAgent { child, output }))
    }
}

/// Checks the policy again on the runner's side, although the supervisor places no thread where its policy cannot be
/// enforced.
fn check_policy(enforces: Enforcement, sandbox: Sandbox, policy: &ToolPolicy) -> Result<(), StartFailure> {
    let restricted = policy
        .layers
        .iter()
        .any(|layer| !layer.allow_list.is_empty() || !layer.deny_list.is_empty());
    let gap = if sandbox == Sandbox::ReadOnly && !enforces.read_only {
        "does not keep a read-only thread from writing"
    } else if restricted && !enforces.tools {
        "cannot be held to a list of tools"
    } else {
        return Ok(());
    };
    Err(StartFailure::not_enforceable(format!(
        "the program of this runner {gap}"
    )))
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
            // The program never asks: its tools are the runner's.
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
        // The program may not read its input. Then closing the input and the signals must suffice.
        let _ = self.child.input().write(protocol::shutdown());
        drop(self.output);
        self.child.stop(order).await
    }
}

#[cfg(test)]
mod tests {
    use troupe_proto::{common::v1::ToolPolicyLayer, supervisor::v1::StartRefusal};

    use super::*;

    fn policy(allow: &[&str]) -> ToolPolicy {
        ToolPolicy {
            layers: vec![ToolPolicyLayer {
                allow_list: allow.iter().map(|&name| name.to_owned()).collect(),
                ..Default::default()
            }],
        }
    }

    #[test]
    fn unenforceable_policy_is_refused() {
        let nothing = Enforcement {
            tools: false,
            read_only: false,
        };
        let tools = Enforcement::default();
        assert!(check_policy(nothing, Sandbox::WorkspaceWrite, &policy(&[])).is_ok());
        assert!(check_policy(nothing, Sandbox::WorkspaceWrite, &policy(&["wait"])).is_err());
        assert!(check_policy(tools, Sandbox::WorkspaceWrite, &policy(&["wait"])).is_ok());
        let refused = check_policy(tools, Sandbox::ReadOnly, &policy(&[])).map_err(|failure| failure.refusal);
        assert_eq!(refused, Err(StartRefusal::PolicyNotEnforceable));
    }
}
