//! What a thread is offered: its tools with their schemas, and the roles that it may spawn. Both come from the registry
//! and are cut down to what the thread may do. A thread learns names, descriptions and personas of roles, never their
//! texts and never where they lie.

use std::sync::Arc;

use prost::Message;
use serde_json::json;
use tonic::{Request, Status};
use troupe_proto::{
    registry::v1::{self as registry, DescribeSpawnToolRequest},
    supervisor::v1 as pb,
};

use super::{SupervisorService, call::Call, check, page::Page, spawn::directory_of};
use crate::{
    domain::{authority, decide::spawn::lists, limits, refusal::GuardedVerb, session::Session, thread::Thread},
    registry::Unresolved,
};

/// Tools that need a child: not offered at the limit of the depth.
const SPAWN_TOOLS: &[&str] = &["spawn_agent", "spawn_node", "list_agents"];
/// How many names of a spawn_list the registry is asked about; more than a hint has.
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
            cwd: directory_of(&state, &thread),
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
        let (state, thread) = self
            .beheld(
                &call,
                &request,
                &request.session_id,
                &request.thread_id,
                "ListSpawnableAgents",
            )
            .await?;
        let mut agents = Vec::new();
        if limits::may_spawn(&state, &thread) {
            let (cwd, workspace) = (directory_of(&state, &thread), state.settings.workspace_digest.clone());
            agents = self
                .registry_for(&state)
                .agents(cwd, workspace, call.deadline, &call.trace)
                .await
                .map_err(Unresolved::into_status)?;
            // A thread that spawns in its subtree is bound by its own role too.
            let caller = call.caller.thread().and_then(|id| state.thread(id));
            agents.retain(|agent| {
                lists(&thread, &agent.agent_type) && caller.is_none_or(|caller| lists(caller, &agent.agent_type))
            });
        }
        let entries = agents.iter().map(|agent| (agent.agent_type.clone(), agent));
        let (agents, next_page_token) = page.cut(entries, shown, None);
        Ok(pb::ListSpawnableAgentsResponse {
            agents,
            next_page_token,
        })
    }

    /// The thread that a request is about (the caller's own unless it names another; an operator's the root), if the
    /// caller may, and an operator has agreed where one must.
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
        authority::authorize(&handle.state(), &call.caller, method, target)?;
        self.agreed(call, &handle, method, request, || json!({})).await?;
        let state = handle.state();
        let thread = Arc::clone(authority::authorize(&state, &call.caller, method, target)?);
        Ok((state, thread))
    }
}

fn is_offered(session: &Session, thread: &Thread, tool: &str) -> bool {
    let too_deep = SPAWN_TOOLS.contains(&tool) && !limits::may_spawn(session, thread);
    !too_deep && thread.effective.allows(tool)
}

fn shown(agent: &registry::Agent) -> pb::SpawnableAgent {
    let personas = agent.agent_names.iter().map(|persona| pb::SpawnablePersona {
        name: persona.name.clone(),
        description: persona.description.clone(),
    });
    pb::SpawnableAgent {
        agent_type: agent.agent_type.clone(),
        description: agent.description.clone(),
        agent_names: personas.collect(),
    }
}
