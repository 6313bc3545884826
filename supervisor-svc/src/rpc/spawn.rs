//! SpawnAgent: authority, retry, arguments, the checks before the registry, the registry, and the commit.

use std::{
    path::{Component, Path},
    sync::Arc,
};

use supervisor_log::{codec::WireEnum as _, store::Content};
use tonic::{Request, Status};
use tool_policy::Policy;
use troupe_proto::{
    fault,
    registry::v1::{InheritedSettings, ResolveSpawnRequest, RouteAgentRequest},
    supervisor::v1 as pb,
};

use super::{SupervisorService, call::Call, parse, resolved::Resolved, route, status::refused};
use crate::{clock::Clock, convert::View, domain::{command::{Command, Spawn}, content::{ContentRef, truncate}, decide::spawn::{Wanted, WantedRole, admit, admit_any, authorize}, event::Spawned, ids::ThreadId, principal::Caller, rejection::{GuardedVerb, Refusal}, settings::{ClosePolicy, EdgeManagement, OnLimit, WakePolicy}, state::{session::Session, thread::Thread}, status::StatusKind}, engine::{Begun, Done, Failure, Handle, InFlight}, registry_client::{RegistryClient, Unresolved}, runners::Need};

/// Maximum number of capabilities in a spawn request.
pub(super) const CAPABILITIES: usize = 64;

/// The reason why a spawn cannot be committed.
pub(super) enum Unspawnable {
    /// The registry's verdict on the spawn; it is recorded.
    Verdict(Status),
    /// The outcome of the spawn could not be determined, so nothing is recorded.
    Unknown(Status),
}

impl Unspawnable {
    pub fn into_status(self) -> Status {
        match self {
            Self::Verdict(status) | Self::Unknown(status) => status,
        }
    }
}

impl SupervisorService {
    pub(super) async fn spawn(
        &self,
        request: Request<pb::SpawnAgentRequest>,
    ) -> Result<pb::SpawnAgentResponse, Status> {
        let call = Call::of(&request)?;
        let mut request = request.into_inner();
        let request_id = std::mem::take(&mut request.request_id);
        let return_token = std::mem::take(&mut request.return_token);
        let named: Option<ThreadId> = check::optional_id("parent_thread_id", &request.parent_thread_id)?;
        let handle = self
            .session_for(&call, &request.session_id, named, GuardedVerb::Act)
            .await?;
        let parent = Self::thread_or_own(&call, &handle, named)?;
        let (agent_type, role_template) = (agent_type_of(&request), request.role_template.trim().to_owned());
        let alias = request.alias.trim().to_owned();
        let wanted = Wanted {
            caller: &call.caller,
            parent,
            role: if role_template.is_empty() {
                WantedRole::AgentType(&agent_type)
            } else {
                WantedRole::RoleTemplate(&role_template)
            },
            alias: &alias,
        };
        authorize(&handle.state(), &wanted).map_err(refused)?;

        let remember = call.remember("SpawnAgent", &request_id, &request)?;
        let in_flight = match handle.begin(remember).await? {
            Begun::Before(done) => return self.answer(&call, &handle, &done, return_token, Vec::new(), None),
            Begun::New(in_flight) => in_flight,
        };
        check_spawn(&call, &request)?;
        let text = request
            .auto_route
            .then(|| route::text(request.message.as_ref(), &request.items));
        let (input, input_content) = take_input(&mut request)?;
        let state = handle.state();
        let routed = match text {
            Some(text) => Some(self.route(&call, &state, &wanted, &request, text).await?),
            None => None,
        };
        if let Some(routed) = &routed {
            request.agent_type.clone_from(&routed.agent_type);
        }
        let agent_type = agent_type_of(&request);
        let wanted = Wanted {
            role: match wanted.role {
                WantedRole::AgentType(_) => WantedRole::AgentType(&agent_type),
                template @ WantedRole::RoleTemplate(_) => template,
            },
            ..wanted
        };
        let parent = admit(&state, &wanted).map_err(refused)?;
        keep_inside(&call, state.workspace(parent), &request.working_directory)?;
        // After that: to a thread, what goes up is outside.
        check::direct("working_directory", &request.working_directory)?;

        let question = question(&state, parent, &request);
        let mut resolved = match self.resolve_below(&call, &state, parent, question).await {
            Ok(resolved) => resolved,
            Err(Unspawnable::Unknown(status)) => return Err(status),
            Err(Unspawnable::Verdict(status)) => {
                let recorded = record_verdict(in_flight, &call, &request_id, &wanted, &request, &status).await;
                return Err(recorded.err().map_or(status, refused));
            }
        };
        if !request.custom_system_prompt.is_empty() {
            resolved.replace_role_block(&request.custom_system_prompt);
        }
        let mut contents = vec![input_content];
        contents.extend(resolved.content.clone());
        let warnings = resolved.warnings.clone();
        let spawn = commit(self.clock(), &call, &request, parent, &resolved, input)?;
        let need = Need::of_spawn(&state, parent, &spawn).map_err(refused)?;
        self.directory.context().runners.check_enforceable(&need)?;
        let command = Command::Spawn(Box::new(spawn));
        let done = in_flight.execute(command, call.origin(&request_id), contents).await?;
        self.answer(&call, &handle, &done, return_token, warnings, routed)
    }

    /// Lets the registry select an agent type that the caller may spawn.
    async fn route(
        &self,
        call: &Call,
        session: &Session,
        wanted: &Wanted<'_>,
        request: &pb::SpawnAgentRequest,
        text: String,
    ) -> Result<pb::AgentRoute, Status> {
        let parent = admit_any(session, wanted).map_err(refused)?;
        keep_inside(call, session.workspace(parent), &request.working_directory)?;
        check::direct("working_directory", &request.working_directory)?;
        let permitted = route::permitted(session, call, parent);
        if permitted.as_ref().is_some_and(Vec::is_empty) {
            // No role remains to choose from. The spawn gate reports which roles are permitted.
            return Ok(pb::AgentRoute {
                agent_type: agent_type_of(request),
                ..pb::AgentRoute::default()
            });
        }
        let question = RouteAgentRequest {
            cwd: directory(session, parent, request),
            workspace_digest: session.settings.workspace_digest.clone(),
            text,
            explicit_agent: request.agent_type.clone(),
            auto_route: true,
            agent_types: permitted.unwrap_or_default(),
        };
        route::route(&self.registry_for(session), call, question).await
    }

    fn answer(
        &self,
        call: &Call,
        handle: &Handle,
        done: &Done,
        return_token: bool,
        mut warnings: Vec<String>,
        route: Option<pb::AgentRoute>,
    ) -> Result<pb::SpawnAgentResponse, Status> {
        let thread = done
            .outcome
            .thread
            .and_then(|id| done.session.thread(id))
            .ok_or_else(|| Status::internal("the spawned thread is not in its session"))?;
        warnings.extend(
            thread
                .effective
                .no_tools_warning(tool_policy::CANONICAL_TOOLS, &thread.spawned.role.agent_type),
        );
        let shown = self.directory.context().show(&done.session, thread, View::default());
        let thread_token = return_token.then(|| self.token_for(call, thread, handle)).flatten();
        Ok(pb::SpawnAgentResponse {
            queue_position: shown.queue_position,
            thread: Some(shown),
            thread_token: thread_token.unwrap_or_default(),
            warnings,
            route,
        })
    }
}

/// Asks the registry, and keeps its whole answer as content.
pub(super) async fn resolve(
    registry: &RegistryClient,
    call: &Call,
    question: ResolveSpawnRequest,
) -> Result<Resolved, Unspawnable> {
    let answer = registry.resolve(&question, call.deadline, &call.trace).await;
    answer.map(Resolved::new).map_err(|unresolved| match unresolved {
        Unresolved::Verdict(status) => Unspawnable::Verdict(status),
        Unresolved::Away(status) => Unspawnable::Unknown(status),
    })
}

/// A role's name as the registry reads it: neither case nor surrounding space counts.
pub(super) fn role_name(text: &str) -> String {
    text.trim().to_lowercase()
}

/// The agent type as the gate compares it: trimmed and lower-cased, `default` where none is named.
fn agent_type_of(request: &pb::SpawnAgentRequest) -> String {
    let name = role_name(&request.agent_type);
    if name.is_empty() { String::from("default") } else { name }
}

fn check_spawn(call: &Call, request: &pb::SpawnAgentRequest) -> Result<(), Status> {
    check::role(&request.agent_type, &request.role_template, request.auto_route)?;
    check_capabilities(&request.capabilities)?;
    check::text("agent_name", &request.agent_name, check::NAME_BYTES)?;
    check::text("model", &request.model, check::REASON_BYTES)?;
    check::text("reasoning_effort", &request.reasoning_effort, check::NAME_BYTES)?;
    check::text("provider", &request.provider, check::NAME_BYTES)?;
    check::text("expected_digest", &request.expected_digest, 64)?;
    check::line("label", request.label.trim(), check::NAME_BYTES)?;
    check::alias(request.alias.trim())?;
    check::directory("working_directory", &request.working_directory)?;
    check::text("objective", &request.objective, check::PROSE_BYTES)?;
    check::text("definition_of_done", &request.definition_of_done, check::PROSE_BYTES)?;
    check::text("override", &request.r#override, check::PROSE_BYTES)?;
    check::text(
        "custom_system_prompt",
        &request.custom_system_prompt,
        check::PROSE_BYTES,
    )?;
    if let Some(note) = &request.thread_note {
        check::text("thread_note", note, check::NOTE_BYTES)?;
    }
    if let Some(narrower) = &request.permissions {
        check::ceiling("permissions", "spawn", narrower)?;
    }
    check::given::<EdgeManagement>("edge_management", request.edge_management)?;
    check::choice::<ClosePolicy>("close_policy", request.close_policy)?;
    check::choice::<OnLimit>("on_limit", request.on_limit)?;
    check::budget(request.budget)?;
    call.operators_only("override", !request.r#override.is_empty())?;
    call.operators_only("custom_system_prompt", !request.custom_system_prompt.is_empty())?;
    check::choice::<WakePolicy>("wake_policy", request.wake_policy).map(drop)
}

fn check_capabilities(capabilities: &[String]) -> Result<(), Status> {
    if capabilities.len() > CAPABILITIES {
        return Err(check::bad(
            "capabilities",
            format!(
                "{} capabilities; at most {CAPABILITIES} are allowed",
                capabilities.len()
            ),
        ));
    }
    capabilities
        .iter()
        .try_for_each(|name| check::text("capabilities", name, check::NAME_BYTES))
}

fn take_input(request: &mut pb::SpawnAgentRequest) -> Result<(ContentRef, Content), Status> {
    let objective = request.objective.clone();
    let definition_of_done = request.definition_of_done.clone();
    let last_word = request.r#override.clone();
    check::input(request.message.take(), std::mem::take(&mut request.items), |items| {
        pb::Input {
            items,
            objective,
            definition_of_done,
            r#override: last_word,
        }
    })
}

/// A thread's child works where its parent does or below: elsewhere lie the files of others, and what a sandbox lets it
/// write is the directory that it works in. Operators know what they do.
fn keep_inside(call: &Call, parent: &str, wanted: &str) -> Result<(), Status> {
    let is_up = Path::new(wanted).components().any(|part| part == Component::ParentDir);
    let is_inside = wanted.is_empty() || (!parent.is_empty() && !is_up && Path::new(wanted).starts_with(parent));
    match call.caller {
        Caller::Thread { .. } if !is_inside => {
            let text = format!(
                "working_directory \"{wanted}\" is not in \"{parent}\", where the parent works; name a directory below that, or \
                 leave it out"
            );
            Err(refused(Refusal::NotPermitted(text)))
        }
        Caller::Thread { .. } | Caller::Operator { .. } => Ok(()),
    }
}

/// Returns the spawn's working directory, which is also where its role is looked up.
fn directory(session: &Session, parent: &Thread, request: &pb::SpawnAgentRequest) -> String {
    if request.working_directory.is_empty() {
        session.workspace(parent).to_owned()
    } else {
        request.working_directory.clone()
    }
}

fn question(session: &Session, parent: &Thread, request: &pb::SpawnAgentRequest) -> ResolveSpawnRequest {
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.trim().is_empty());
    ResolveSpawnRequest {
        cwd: directory(session, parent, request),
        workspace_digest: session.settings.workspace_digest.clone(),
        agent_type: given(&request.agent_type),
        role_template: given(&request.role_template),
        agent_name: request.agent_name.clone(),
        model: request.model.clone(),
        reasoning_effort: given(&request.reasoning_effort),
        provider: request.provider.clone(),
        inherited: Some(InheritedSettings {
            model: parent.spawned.role.model.clone(),
            reasoning_effort: parent.spawned.role.reasoning_effort.clone(),
            provider: parent.spawned.role.provider.clone(),
            sandbox: parent.sandbox.number(),
            ..InheritedSettings::default()
        }),
        mode: session.settings.mode.number(),
        expected_digest: given(&request.expected_digest),
        known_etag: String::new(),
    }
}

/// Everything that the commit decides upon.
fn commit(
    clock: &Clock,
    call: &Call,
    request: &pb::SpawnAgentRequest,
    parent: &Thread,
    resolved: &Resolved,
    input: ContentRef,
) -> Result<Spawn, Status> {
    let note = match &request.thread_note {
        Some(note) => note.trim().into(),
        None => Arc::clone(&resolved.default_note),
    };
    let declared = resolved.edge_management(&request.capabilities)?;
    let edge_management = check::given("edge_management", request.edge_management)?
        .map_or(declared, |asked: EdgeManagement| asked.min(declared));
    let narrowing = match &request.permissions {
        Some(narrower) => Some(check::ceiling("permissions", "spawn", narrower)?),
        None => None,
    };
    let working_directory = if request.working_directory.is_empty() {
        Arc::clone(&parent.spawned.working_directory)
    } else {
        request.working_directory.as_str().into()
    };
    let spawned = Spawned {
        parent: Some(parent.id),
        client_owned: false,
        role: Arc::clone(&resolved.role),
        // The engine computes the child's permissions from these and the parent's grant.
        sandbox: resolved.sandbox,
        effective: Policy::unrestricted(),
        grant: Policy::unrestricted(),
        depth: 0,
        first_status: StatusKind::PendingInit,
        alias: request.alias.trim().to_owned(),
        label: request.label.trim().to_owned(),
        note,
        working_directory,
        edge_management,
        budget: check::budget(request.budget)?,
        close_policy: check::choice("close_policy", request.close_policy)?,
        wake_policy: check::choice("wake_policy", request.wake_policy)?,
        input: Some(input),
    };
    Ok(Spawn {
        caller: call.caller.clone(),
        id: clock.new_thread_id(),
        spawned,
        narrowing,
        role_layers: resolved.layers(&request.capabilities),
        grant_list: resolved.grant_list.clone(),
        on_limit: check::choice("on_limit", request.on_limit)?,
        approval: clock.new_approval_id(),
    })
}

/// Records a spawn that the registry rejected.
///
/// # Errors
/// [`Refusal::RateLimited`]: the caller has caused too many events, and this one is not recorded.
async fn record_verdict(
    in_flight: InFlight,
    call: &Call,
    request_id: &str,
    wanted: &Wanted<'_>,
    request: &pb::SpawnAgentRequest,
    verdict: &Status,
) -> Result<(), Refusal> {
    let command = Command::FailSpawn {
        parent: wanted.parent,
        agent_type: wanted.role.name().to_owned(),
        agent_name: request.agent_name.clone(),
        reason: fault::reason_of(verdict)
            .map(|reason| reason.as_str().to_owned())
            .unwrap_or_default(),
        message: truncate(verdict.message(), 4 * 1_024).to_owned(),
    };
    // Only successes are stored: a retry of a rejected spawn asks the registry again.
    let recording = in_flight.execute_unremembered(command, call.origin(request_id));
    // Runs in a separate task, so that a client that disconnects does not cancel the record.
    match tokio::spawn(recording).await {
        Ok(Ok(_)) => {}
        Ok(Err(Failure::Refused(limited @ Refusal::RateLimited { .. }))) => return Err(limited),
        Ok(Err(failure)) => tracing::warn!(%failure, "a refused spawn was not recorded"),
        Err(error) => tracing::error!(%error, "the record of a refused spawn broke"),
    }
    Ok(())
}
