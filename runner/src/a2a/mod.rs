//! Agents of kind `a2a`: remote agents with the Agent2Agent protocol v1.0. A thread corresponds to a context of the
//! remote agent. A turn corresponds to a task, or to the rest of a task that asked a question.
//!
//! [`client`] sends requests, [`task`] computes the state of a task, and [`driver`] connects both to a thread. No part
//! of the agent runs on this machine, and it receives no tools of Troupe. Therefore it cannot access the workspace, but
//! its own actions are not restricted either.

mod client;
mod driver;
mod task;

use std::{sync::Arc, time::Duration};

use svc_kit::limits::{Area, Limit};
use troupe_proto::{common::v1::Sandbox, supervisor::v1::RunnerKind};

use self::{
    client::Client,
    driver::{Driver, Record},
    task::RemoteTask,
};
use crate::{
    agent::{Agent, AgentKind, LaunchSpec, StartFailure},
    driven::Driven,
    policy,
    programs::A2aProgram,
    workspace::Workspace,
};

/// The kind's name.
const KIND: &str = "a2a";
/// The file with the ids of the context and the last task, in the state directory of the thread.
const RECORD: &str = "a2a.json";

/// Returns the events of a turn in which a remote agent sends these bytes over JSON-RPC.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn replay(bytes: &[u8]) -> Vec<crate::agent::AgentEvent> {
    let mut task = RemoteTask::default();
    let applied = client::updates(bytes)
        .into_iter()
        .map_while(|update| task.apply(update).ok());
    let mut events: Vec<_> = applied.flatten().collect();
    events.extend(task.settle());
    events
}

/// Returns the limits of remote agents.
pub(crate) fn limits() -> Area {
    Area::new(
        "Remote agents",
        vec![
            Limit::bytes("a card of a remote agent", client::MAX_CARD_BYTES),
            Limit::bytes("a response or an event of a remote agent", client::MAX_RESPONSE_BYTES),
            Limit::bytes("the texts of a turn; the rest is left out", task::MAX_TEXT_BYTES),
            Limit::bytes("the files of a task; larger ones are left out", task::MAX_FILE_BYTES),
            Limit::count("artifacts of a task", task::MAX_ARTIFACTS),
            Limit::time(
                "a response of a remote agent, except to a message",
                client::ANSWER_WITHIN,
            ),
            Limit::time(
                "a remote agent that accepts no task, until the turn fails",
                driver::REACH_WITHIN,
            ),
            Limit::time(
                "a remote agent that is not reachable, until its task is abandoned",
                driver::LOST_AFTER,
            ),
        ],
    )
}

/// Starts conversations with one remote agent.
pub(crate) struct A2aKind {
    pub(crate) program: A2aProgram,
}

#[tonic::async_trait]
impl AgentKind for A2aKind {
    fn describe(&self) -> RunnerKind {
        RunnerKind {
            kind: KIND.to_owned(),
            // The agent receives no tools, and no part of it runs here. The condition POLICY_GAP reports that the
            // agent's own actions are not restricted.
            enforces_tools: true,
            enforces_read_only: true,
            enforces_workspace: false,
        }
    }

    fn offers_tools(&self) -> bool {
        false
    }

    async fn start(&self, launch: &LaunchSpec, _: Option<&str>) -> Result<Box<dyn Agent>, StartFailure> {
        let client = Client::new(&self.program);
        let state = &launch.state;
        tokio::fs::create_dir_all(state)
            .await
            .map_err(|error| StartFailure::no_program(format!("cannot create {}: {error}", state.display())))?;
        let path = state.join(RECORD);
        let record = Record::read(&path, &self.program.url.to_string()).await;
        let secrets = client.secrets().await;
        Ok(Box::new(Driven::remote(|channels| {
            let driver = Driver {
                gaps: gaps(launch, client.authority()),
                blocks: launch.resolved.blocks.clone(),
                has_lost_context: launch.had_turns && !record.has_context(),
                task: RemoteTask::new(secrets),
                client,
                binding: self.program.binding,
                record,
                path,
                workspace: Arc::new(Workspace::of(launch, Duration::ZERO)),
                thread_id: launch.attempt.thread_id.clone(),
                generation: launch.attempt.generation,
                interface: None,
                events: channels.events.clone(),
            };
            driver.drive(channels)
        })))
    }
}

/// Returns the restrictions that do not apply to the remote agent, and the settings that it does not receive.
fn gaps(launch: &LaunchSpec, agent: &str) -> Vec<String> {
    let resolved = &launch.resolved;
    let lists = launch.tool_policy.layers.iter();
    let is_restricted = resolved.sandbox() != Sandbox::FullAccess
        || lists
            .into_iter()
            .any(|layer| !layer.allow_list.is_empty() || !layer.deny_list.is_empty());
    let mut gaps = Vec::new();
    if is_restricted {
        gaps.push(format!(
            "the remote agent {agent} has no access to this machine, but its own tools and actions are not restricted"
        ));
    }
    if !resolved.reasoning_effort.is_empty() {
        gaps.push(policy::gap_of_effort(&resolved.reasoning_effort, "the remote agent"));
    }
    gaps.extend(policy::gap_of_parameters(
        &resolved.parameters,
        "the remote agent",
        |_| false,
    ));
    gaps.extend(launch.gap_of_endpoint(false));
    gaps
}
