//! Automatic routing: selects the agent type of a request based on its text.

use svc_kit::{deadline::Deadline, trace_context::TraceParent};
use tonic::Status;
use troupe_proto::{
    registry::v1::{RouteAgentRequest, RouteScore},
    supervisor::v1 as pb,
};

use crate::{
    domain::{
        content::truncate,
        decide::spawn::lists,
        principal::Caller,
        state::{session::Session, thread::Thread},
    },
    registry_client::{RegistryClient, Unresolved},
};

/// Maximum size of the text that the registry scores, in bytes.
const TEXT_BYTES: usize = 64 * 1024;

/// The agent type of a request without a template.
const DEFAULT: &str = "default";

/// Asks the registry for an agent type. If it selects no agent, the result is the agent type that the request names, so
/// that an unknown name fails as it does without routing. A request without a name gets `default`.
pub async fn route(
    registry: &RegistryClient,
    deadline: Option<Deadline>,
    trace: &TraceParent,
    question: RouteAgentRequest,
) -> Result<pb::AgentRoute, Status> {
    let named = question.explicit_agent.trim().to_owned();
    let routed = registry
        .route(question, deadline, trace)
        .await
        .map_err(Unresolved::into_status)?;
    let agent_type = [routed.agent_type, named, DEFAULT.to_owned()]
        .into_iter()
        .find(|name| !name.is_empty())
        .unwrap_or_default();
    Ok(pb::AgentRoute {
        agent_type,
        reason: routed.reason,
        scores: routed.scores.into_iter().map(score).collect(),
    })
}

fn score(score: RouteScore) -> pb::AgentRouteScore {
    pb::AgentRouteScore {
        agent_type: score.agent_type,
        score: score.score,
        keywords: score.keywords,
    }
}

/// Returns the part of an input's text that is scored.
pub fn text(message: Option<&String>, items: &[pb::InputItem]) -> String {
    let of_items = items.iter().filter_map(|item| match &item.item {
        Some(pb::input_item::Item::Text(text)) => Some(text),
        Some(_) | None => None,
    });
    let texts: Vec<&str> = message.into_iter().chain(of_items).map(String::as_str).collect();
    truncate(&texts.join("\n"), TEXT_BYTES).to_owned()
}

/// Returns the agent types that a thread may spawn below a parent. `None` means all.
pub(super) fn permitted(session: &Session, caller: &Caller, parent: &Thread) -> Option<Vec<String>> {
    let caller = caller.thread().and_then(|id| session.thread(id))?;
    let list = [&**caller, parent]
        .into_iter()
        .map(|spawner| &spawner.spawned.role.spawn_list)
        .find(|list| !list.is_empty())?;
    let is_listed = |name: &&String| lists(caller, name) && lists(parent, name);
    Some(list.iter().filter(is_listed).cloned().collect())
}
