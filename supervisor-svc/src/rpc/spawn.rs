//! SpawnAgent: authority, retry, arguments, and the response. The spawn itself is [`use_cases::spawn`].
//!
//! [`use_cases::spawn`]: crate::use_cases::spawn

use tonic::Status;
use troupe_proto::supervisor::v1 as pb;

use super::{call::Call, parse};
use crate::{
    convert::{View, status::refused},
    domain::{
        decide::spawn::{Wanted, authorize},
        ids::ThreadId,
    },
    engine::{Begun, Done, Handle},
    use_cases::{
        route,
        spawn::{NamedRole, SpawnArguments, agent_type_name},
    },
};

/// Maximum number of capabilities in a spawn request.
pub(crate) const CAPABILITIES: usize = 64;

pub(super) async fn spawn_agent(
    call: &Call<'_>,
    request: Box<pb::SpawnAgentRequest>,
    return_token: bool,
) -> Result<pb::SpawnAgentResponse, Status> {
    let named: Option<ThreadId> = parse::optional_id("parent_thread_id", &request.parent_thread_id)?;
    let handle = call.session_for(&request.session_id, named).await?;
    let parent = call.thread_or_own(&handle, named)?;
    let role = role(&request);
    let wanted = Wanted {
        caller: &call.caller,
        parent,
        role: role.wanted(),
        alias: request.alias.trim(),
    };
    authorize(&handle.state(), &wanted).map_err(refused)?;

    let in_flight = match handle.begin(call.remember()?).await? {
        Begun::Before(done) => return response(call, &handle, &done, return_token),
        Begun::New(in_flight) => in_flight,
    };
    operators_only(call, &request)?;
    let arguments = Box::new(arguments(parent, *request)?);
    let spawned = call
        .service
        .spawner
        .run(&handle, in_flight, call.spawn_caller(), arguments)
        .await?;
    let response = response(call, &handle, &spawned.done, return_token)?;
    Ok(pb::SpawnAgentResponse {
        warnings: spawned.warnings.into_iter().chain(response.warnings).collect(),
        route: spawned.route,
        ..response
    })
}

fn role(request: &pb::SpawnAgentRequest) -> NamedRole {
    let template = request.role_template.trim();
    if template.is_empty() {
        NamedRole::AgentType {
            name: agent_type_name(&request.agent_type),
            given: request.agent_type.clone(),
        }
    } else {
        NamedRole::Template {
            name: template.to_owned(),
            given: request.role_template.clone(),
        }
    }
}

fn response(
    call: &Call<'_>,
    handle: &Handle,
    done: &Done,
    return_token: bool,
) -> Result<pb::SpawnAgentResponse, Status> {
    let thread = done
        .outcome
        .thread
        .and_then(|id| done.session.thread(id))
        .ok_or_else(|| Status::internal("the spawned thread is not in its session"))?;
    let no_tools = thread
        .effective
        .no_tools_warning(tool_policy::CANONICAL_TOOLS, &thread.spawned.role.agent_type);
    let shown = call.service.watches.view.show(&done.session, thread, View::default());
    let thread_token = return_token.then(|| call.token_for(thread, handle)).flatten();
    Ok(pb::SpawnAgentResponse {
        queue_position: shown.queue_position,
        thread: Some(shown),
        thread_token: thread_token.unwrap_or_default(),
        warnings: no_tools.into_iter().collect(),
        route: None,
    })
}

/// Rejects the fields that only operators may set.
pub(super) fn operators_only(call: &Call<'_>, request: &pb::SpawnAgentRequest) -> Result<(), Status> {
    call.operators_only("override", !request.r#override.is_empty())?;
    call.operators_only("custom_system_prompt", !request.custom_system_prompt.is_empty())
}

/// Parses the arguments of a spawn.
pub(crate) fn arguments(parent: ThreadId, mut request: pb::SpawnAgentRequest) -> Result<SpawnArguments, Status> {
    let role = role(&request);
    parse::role(&request.agent_type, &request.role_template, request.auto_route)?;
    check_capabilities(&request.capabilities)?;
    parse::text("agent_name", &request.agent_name, parse::NAME_BYTES)?;
    parse::text("model", &request.model, parse::REASON_BYTES)?;
    parse::text("reasoning_effort", &request.reasoning_effort, parse::NAME_BYTES)?;
    parse::text("provider", &request.provider, parse::NAME_BYTES)?;
    parse::text("expected_digest", &request.expected_digest, 64)?;
    check_texts(&request)?;
    let alias = request.alias.trim().to_owned();
    parse::alias(&alias)?;
    parse::text("override", &request.r#override, parse::PROSE_BYTES)?;
    parse::text(
        "custom_system_prompt",
        &request.custom_system_prompt,
        parse::PROSE_BYTES,
    )?;
    let narrower = request.permissions.as_ref();
    let narrowing = narrower
        .map(|narrower| parse::ceiling("permissions", "spawn", narrower))
        .transpose()?;
    let edge_management = parse::given("edge_management", request.edge_management)?;
    let close_policy = parse::choice("close_policy", request.close_policy)?;
    let on_limit = parse::choice("on_limit", request.on_limit)?;
    let budget = parse::budget(request.budget)?;
    let wake_policy = parse::choice("wake_policy", request.wake_policy)?;
    let route_text = request
        .auto_route
        .then(|| route::text(request.message.as_ref(), &request.items));
    let result_repairs = parse::result_request(&request.result_schema, request.result_repairs)?;
    let result_schema = request.result_schema;
    let (objective, definition_of_done, last) = (request.objective, request.definition_of_done, request.r#override);
    let input = parse::input(request.message.take(), request.items, |items| pb::Input {
        items,
        objective,
        definition_of_done,
        r#override: last,
        result_schema,
    })?;
    Ok(SpawnArguments {
        parent,
        role,
        route_text,
        agent_name: request.agent_name,
        model: request.model,
        reasoning_effort: request.reasoning_effort,
        provider: request.provider,
        expected_digest: request.expected_digest,
        custom_system_prompt: request.custom_system_prompt,
        capabilities: request.capabilities,
        narrowing,
        edge_management,
        alias,
        label: request.label.trim().to_owned(),
        note: request.thread_note.map(|note| note.trim().to_owned()),
        working_directory: request.working_directory,
        budget,
        close_policy,
        wake_policy,
        on_limit,
        input,
        result_repairs,
        item: None,
    })
}

/// Checks the texts that may differ between the items of a group, except the input.
pub(super) fn check_texts(request: &pb::SpawnAgentRequest) -> Result<(), Status> {
    parse::line("label", request.label.trim(), parse::NAME_BYTES)?;
    parse::text("objective", &request.objective, parse::PROSE_BYTES)?;
    parse::text("definition_of_done", &request.definition_of_done, parse::PROSE_BYTES)?;
    parse::directory("working_directory", &request.working_directory)?;
    let note = request.thread_note.as_deref().unwrap_or_default();
    parse::text("thread_note", note, parse::NOTE_BYTES)
}

fn check_capabilities(capabilities: &[String]) -> Result<(), Status> {
    parse::count("capabilities", "capabilities", capabilities.len(), CAPABILITIES)?;
    capabilities
        .iter()
        .try_for_each(|name| parse::text("capabilities", name, parse::NAME_BYTES))
}
