//! Tools of threads: decisions on tool calls, the tools and roles that are available to a thread, and the approval of
//! calls to the supervisor's own tools.
//!
//! Tools and roles come from the registry and are reduced to the thread's permissions. A thread sees each role's
//! purpose, its permissions and, on request, its instructions. It never sees where a role is stored.

use std::sync::Arc;

use prost::Message;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tonic::{Code, Status};
use troupe_proto::{
    fault::Fault,
    reason::Reason,
    registry::v1::{self as registry, DescribeSpawnToolRequest},
    supervisor::v1 as pb,
};

use super::{call::Call, page::Page, parse, service::SupervisorService};
use crate::{
    convert::status::{draining, refused},
    domain::{
        decide::{result::wants_result, spawn::lists},
        ids::ThreadId,
        rules::{
            approval::DECIDED_WITHIN,
            authority,
            authorize::{self, MAX_PATHS},
            limits,
        },
        settings::EdgeManagement,
        state::{session::Session, thread::Thread},
    },
    engine::{Handle, Origin},
    registry_client::Unresolved,
    tool_decisions::{ARGUMENTS_BYTES, KnownBy, Outcome, ToolCallRequest},
    use_cases::spawn::role_name,
};

/// Tools that spawn threads or list roles for spawns. They are not offered at the maximum depth.
const SPAWN_TOOLS: &[&str] = &["spawn_agent", "spawn_node", "spawn_group", "list_agents"];
/// Maximum number of names of a spawn_list in one registry request. It exceeds the number of names in a hint.
const MAX_ROLES: usize = 1_000;

pub(super) async fn describe_tools(
    call: Call<'_>,
    request: pb::DescribeToolsRequest,
) -> Result<pb::DescribeToolsResponse, Status> {
    let (state, thread) = call
        .readable_thread(&request, &request.session_id, &request.thread_id)
        .await?;
    let question = DescribeSpawnToolRequest {
        cwd: state.workspace(&thread).to_owned(),
        workspace_digest: state.settings.workspace_digest.clone(),
        agent_types: thread.spawned.role.spawn_list.iter().take(MAX_ROLES).cloned().collect(),
    };
    let described = call
        .service
        .spawner
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

pub(super) async fn list_spawnable_agents(
    call: Call<'_>,
    mut request: pb::ListSpawnableAgentsRequest,
) -> Result<pb::ListSpawnableAgentsResponse, Status> {
    let page = Page::of(&mut request, &call.scope)?;
    if let Some(agent_type) = &request.agent_type {
        parse::text("agent_type", agent_type, parse::NAME_BYTES)?;
    }
    let (state, thread) = call
        .readable_thread(&request, &request.session_id, &request.thread_id)
        .await?;
    // If a thread requests the roles for a descendant, its own role restricts the result too.
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
            // A list omits broken roles. A request that names a broken role gets the error of that role.
            allow_partial: request.agent_type.is_none(),
            agent_type: request.agent_type,
            expanded: request.expanded,
            ..registry::ListAgentsRequest::default()
        };
        agents = call
            .service
            .spawner
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

impl Call<'_> {
    /// Returns the thread of a request, if the caller may read it and an operator has approved the call where
    /// required. The default is the caller's own thread, or the root for an operator.
    async fn readable_thread(
        &self,
        request: &impl Message,
        session_id: &str,
        thread_id: &str,
    ) -> Result<(Arc<Session>, Arc<Thread>), Status> {
        let (handle, target) = self.authorized_thread(session_id, thread_id).await?;
        let asked = self.approval_request(&handle, request, || json!({}));
        self.await_approval(&handle, asked).await?;
        let state = handle.state();
        let thread = Arc::clone(authority::authorize(&state, &self.caller, self.method, target).map_err(refused)?);
        Ok((state, thread))
    }
}

fn is_offered(session: &Session, thread: &Thread, tool: &str) -> bool {
    let too_deep = SPAWN_TOOLS.contains(&tool) && !limits::may_spawn(session, thread);
    let no_node = tool == "spawn_node" && !spawns_nodes(session, thread);
    // Each item is a spawn.
    let no_group = tool == "spawn_group" && !thread.effective.allows("spawn_agent");
    let no_result = tool == "report_result" && !expects_result(thread);
    !too_deep && !no_node && !no_group && !no_result && thread.effective.allows(tool)
}

/// Returns whether a result of the thread is requested, by waiting or by earlier input.
fn expects_result(thread: &Thread) -> bool {
    wants_result(thread) || thread.pending_inputs.iter().any(|input| input.result_repairs.is_some())
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

pub(super) async fn authorize_tool(
    call: Call<'_>,
    request: pb::AuthorizeToolRequest,
) -> Result<pb::AuthorizeToolResponse, Status> {
    check_call(&request)?;
    let (handle, target) = call.authorized_thread(&request.session_id, &request.thread_id).await?;
    let state = handle.state();
    let asked_for = match parse::span("wait", request.wait)?.unwrap_or_default() {
        // A caller that wants to wait for the full approval timeout waits until the approval is decided or expires.
        long if long >= state.settings.approval_timeout => DECIDED_WITHIN,
        short => short,
    };
    // A thread must not choose the runner kind of its own call.
    let runner_kind = match &call.token {
        Some(_) => String::new(),
        None => request.runner_kind,
    };
    let asked = ToolCallRequest {
        confined: call.service.confines(&state, target, &runner_kind),
        docs_only: false,
        tool: request.tool,
        arguments: request.arguments_json,
        request: None,
        unredacted: None,
        omitted_bytes: 0,
        known_by: KnownBy::Content,
        runner_kind,
        paths: request.resolved_paths,
    };
    let decided = call
        .service
        .decisions
        .decide(
            &handle,
            target,
            &asked,
            call.origin(),
            call.service.wait_for_operator(call.deadline, asked_for),
        )
        .await?;
    let refused = decided.outcome.refusal();
    Ok(pb::AuthorizeToolResponse {
        allowed: refused.is_none(),
        reason: refused.unwrap_or_default(),
        approval_id: decided.approval.map(|id| id.to_string()).unwrap_or_default(),
    })
}

impl SupervisorService {
    /// Returns whether the thread's runner confines the programs of a kind. If the kind is empty, returns whether the
    /// runner confines the programs of all its kinds.
    fn confines(&self, state: &Session, id: ThreadId, kind: &str) -> bool {
        let runner = state.thread(id).and_then(|thread| thread.runner.as_ref());
        let Some((runner, thread)) = runner.zip(state.thread(id)) else {
            return false;
        };
        let kind = Some(kind).filter(|kind| !kind.is_empty());
        self.runners.confines(runner, kind, thread.sandbox)
    }
}

fn check_call(request: &pb::AuthorizeToolRequest) -> Result<(), Status> {
    if request.tool.is_empty() {
        return Err(parse::bad("tool", "tool is required"));
    }
    parse::text("tool", &request.tool, parse::REASON_BYTES)?;
    parse::text("runner_kind", &request.runner_kind, parse::NAME_BYTES)?;
    let arguments = &request.arguments_json;
    parse::size("arguments_json", "arguments_json", arguments.len(), ARGUMENTS_BYTES)?;
    // A call without arguments may leave the field empty.
    if !arguments.is_empty()
        && let Err(error) = serde_json::from_str::<IgnoredAny>(arguments)
    {
        let text = format!("arguments_json is not valid JSON: {error}; send the arguments as one JSON value");
        return Err(parse::bad("arguments_json", text));
    }
    let paths = &request.resolved_paths;
    parse::count("resolved_paths", "resolved_paths", paths.len(), MAX_PATHS)?;
    paths
        .iter()
        .try_for_each(|path| parse::directory("resolved_paths", path))
}

impl Call<'_> {
    /// Waits until an operator has approved an authorized and valid call. Returns at once if the call needs no
    /// approval.
    pub(super) async fn await_approval(&self, handle: &Handle, asked: Option<ToolCallRequest>) -> Result<(), Status> {
        let (Some(thread), Some(asked)) = (self.caller.thread(), asked) else {
            return Ok(());
        };
        let origin = Origin {
            request_id: None,
            ..self.origin()
        };
        let decided = self
            .service
            .decisions
            .decide(
                handle,
                thread,
                &asked,
                origin,
                self.service.wait_for_operator(self.deadline, DECIDED_WITHIN),
            )
            .await?;
        let fault = match decided.outcome {
            Outcome::Allowed => return Ok(()),
            Outcome::Refused(reason) => Fault::new(Code::PermissionDenied, Reason::ToolDenied, reason),
            Outcome::Waits if self.service.draining.is_cancelled() => return Err(draining("call again")),
            Outcome::Waits => Fault::new(
                Code::DeadlineExceeded,
                Reason::DeadlineExceeded,
                "the call waits for an operator's approval; nothing was done, call again to continue waiting",
            ),
        };
        let fault = match decided.approval {
            Some(approval) => fault.with("approval_id", approval),
            None => fault,
        };
        Err(fault.with("tool", asked.tool).into())
    }

    /// Builds the approval request for the call. Returns `None` if the call needs no approval. `shown` are the
    /// arguments displayed to the operator.
    ///
    /// A repeated call within the same turn, matched by its request id if it has one, counts as the same call and uses
    /// the same approval. In a thread without turns, a decision applies to the call that receives it; see
    /// [`RepeatedCall`](crate::domain::state::approval::RepeatedCall).
    pub(super) fn approval_request(
        &self,
        handle: &Handle,
        request: &impl Message,
        shown: impl FnOnce() -> Value,
    ) -> Option<ToolCallRequest> {
        self.caller.thread()?;
        let tool = authorize::gated_tool(&handle.state(), self.method)?.to_owned();
        let mut identity = request.encode_length_delimited_to_vec();
        identity.extend_from_slice(self.request_id.as_bytes());
        Some(ToolCallRequest {
            tool,
            arguments: shown().to_string(),
            request: Some(identity),
            unredacted: None,
            omitted_bytes: 0,
            known_by: if self.request_id.is_empty() {
                KnownBy::Content
            } else {
                KnownBy::Id
            },
            runner_kind: String::new(),
            paths: Vec::new(),
            confined: false,
            docs_only: false,
        })
    }
}
