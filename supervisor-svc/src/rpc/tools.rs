//! Tools and roles available to a thread: its tools with their schemas, and the roles that it may spawn. Both come
//! from the registry and are reduced to the thread's permissions. A thread sees each role's purpose, its permissions
//! and, on request, its instructions. It never sees where a role is stored.

use std::sync::Arc;

use prost::Message;
use serde_json::json;
use tonic::{Request, Status};
use troupe_proto::{
    registry::v1::{self as registry, DescribeSpawnToolRequest},
    supervisor::v1 as pb,
};

use super::{SupervisorService, agreement::asked, call::Call, page::Page, parse, spawn::role_name, status::refused};
use crate::{domain::{decide::spawn::lists, rejection::GuardedVerb, rules::{authority, limits}, settings::EdgeManagement, state::{session::Session, thread::Thread}}, registry_client::Unresolved};

/// Tools that need a child: not offered at the limit of the depth.
const SPAWN_TOOLS: &[&str] = &["spawn_agent", "spawn_node", "list_agents"];
/// Maximum number of names of a spawn_list in one registry request. It exceeds the number of names in a hint.
const MAX_ROLES: usize = 1_000;

impl SupervisorService {
    pub(super) async fn tools(
        &self,
        request: Request<pb::DescribeToolsRequest>,
    ) -> Result<pb::DescribeToolsResponse, Status> {
        let call = Call::of(&request)?;
        let request = request.into_inner();
        let (state, thread) = self
            .beheld(
                &call,
                &request,
                &request.session_id,
                &request.thread_id,
                "DescribeTools",
            )
            .await?;
        let question = DescribeSpawnToolRequest {
            cwd: state.workspace(&thread).to_owned(),
            workspace_digest: state.settings.workspace_digest.clone(),
            agent_types: thread.spawned.role.spawn_list.iter().take(MAX_ROLES).cloned().collect(),
        };
        let described = self
            .registry_for(&state)
            .tools(question, call.deadline, &call.trace)
            .await
            .map_err(Unresolved::into_status)?;
        let tools = described
            .into_iter()
            .filter(|tool| is_offered(&state, &thread, &tool.name))
            .map(|tool| pb::ToolDescription {
                name: tool.name,
                description: tool.description,
                input_schema_json: tool.input_schema,
            });
        Ok(pb::DescribeToolsResponse { tools: tools.collect() })
    }

    pub(super) async fn spawnable(
        &self,
        request: Request<pb::ListSpawnableAgentsRequest>,
    ) -> Result<pb::ListSpawnableAgentsResponse, Status> {
        let call = Call::of(&request)?;
        let mut request = request.into_inner();
        let page = Page::of(&mut request, &call.scope)?;
        if let Some(agent_type) = &request.agent_type {
            check::text("agent_type", agent_type, check::NAME_BYTES)?;
        }
        let (state, thread) = self
            .beheld(
                &call,
                &request,
                &request.session_id,
                &request.thread_id,
                "ListSpawnableAgents",
            )
            .await?;
        // A thread that spawns within its subtree is also bound by its own role.
        let caller = call.caller.thread().and_then(|id| state.thread(id));
        let is_listed = |name: &str| lists(&thread, name) && caller.is_none_or(|caller| lists(caller, name));
        // For a role that the thread may not spawn, the response reveals neither whether the role exists nor what is
        // wrong with it. The registry rejects malformed names, which reveals nothing about any role.
        let is_hidden = request.agent_type.as_deref().is_some_and(|name| {
            let name = role_name(name);
            let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            !name.is_empty() && name.bytes().all(is_legal) && !is_listed(&name)
        });
        let mut agents = Vec::new();
        if limits::may_spawn(&state, &thread) && !is_hidden {
            let question = registry::ListAgentsRequest {
                cwd: state.workspace(&thread).to_owned(),
                workspace_digest: state.settings.workspace_digest.clone(),
                // A list omits broken roles. A request that names a broken role gets its error.
                allow_partial: request.agent_type.is_none(),
                agent_type: request.agent_type,
                expanded: request.expanded,
                ..registry::ListAgentsRequest::default()
            };
            agents = self
                .registry_for(&state)
                .agents(question, call.deadline, &call.trace)
                .await
                .map_err(Unresolved::into_status)?;
            agents.retain(|agent| is_listed(&agent.agent_type));
        }
        let entries = agents.iter().map(|agent| (agent.agent_type.clone(), agent));
        let (agents, next_page_token) = page.cut(entries, shown, None);
        Ok(pb::ListSpawnableAgentsResponse {
            agents,
            next_page_token,
        })
    }

    /// Returns the thread of a request, if the caller may read it and an operator has approved the call where
    /// required. The default is the caller's own thread, or the root for an operator.
    async fn beheld(
        &self,
        call: &Call,
        request: &impl Message,
        session_id: &str,
        thread_id: &str,
        method: &str,
    ) -> Result<(Arc<Session>, Arc<Thread>), Status> {
        let named = check::optional_id("thread_id", thread_id)?;
        let handle = self.session_for(call, session_id, named, GuardedVerb::Act).await?;
        let target = Self::thread_or_own(call, &handle, named)?;
        authority::authorize(&handle.state(), &call.caller, method, target).map_err(refused)?;
        let asked = asked(call, &handle, method, "", request, || json!({}));
        self.agreed(call, &handle, asked).await?;
        let state = handle.state();
        let thread = Arc::clone(authority::authorize(&state, &call.caller, method, target).map_err(refused)?);
        Ok((state, thread))
    }
}

fn is_offered(session: &Session, thread: &Thread, tool: &str) -> bool {
    let too_deep = SPAWN_TOOLS.contains(&tool) && !limits::may_spawn(session, thread);
    let no_node = tool == "spawn_node" && !spawns_nodes(session, thread);
    !too_deep && !no_node && thread.effective.allows(tool)
}

/// Returns whether the thread works with graph nodes and the spawn gate would permit it to spawn one.
fn spawns_nodes(session: &Session, thread: &Thread) -> bool {
    let role = &thread.spawned.role;
    role.is_graph() && role.spawn_list.is_empty() && session.edge_management(thread) != EdgeManagement::None
}

fn shown(agent: &registry::Agent) -> pb::SpawnableAgent {
    let personas = agent.agent_names.iter().map(|persona| pb::SpawnablePersona {
        name: persona.name.clone(),
        description: persona.description.clone(),
        model: persona.model.clone(),
        reasoning_effort: persona.reasoning_effort.clone(),
        prompt: persona.prompt.clone(),
    });
    pb::SpawnableAgent {
        agent_type: agent.agent_type.clone(),
        description: agent.description.clone(),
        agent_names: personas.collect(),
        allow_list: agent.allow_list.clone(),
        deny_list: agent.deny_list.clone(),
        model: agent.model.clone(),
        reasoning_effort: agent.reasoning_effort.clone(),
        default_prompt: agent.default_prompt.clone(),
    }
}
