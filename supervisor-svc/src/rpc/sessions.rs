//! Opening, reading and closing sessions.

use std::{sync::Arc, time::Duration};

use supervisor_log::{
    codec::{WireEnum as _, content_of},
    store::{Content, CreationKey},
};
use tonic::{Request, Status};
use tool_policy::{Policy, Rights};
use troupe_proto::{
    registry::v1::{PutWorkspaceRequest, ResolveSpawnRequest, RouteAgentRequest},
    supervisor::v1 as pb,
};

use super::{SupervisorService, call::Call, parse, resolved::Resolved, route, spawn::{Unspawnable, resolve}, status::refused, webhooks};
use crate::{convert, domain::{command::Command, content::ContentRef, event::{CloseCause, Event, Role, SessionEvent, Spawned, ThreadEvent}, rejection::{GuardedVerb, Refusal}, rules::cascade::CASCADE_DEADLINE, settings::{Budget, ClosePolicy, EdgeManagement, LimitsChange, Sandbox, Settings, WakePolicy}, state::session::Session, status::StatusKind, time::REQUESTS_REMEMBERED}, engine::{Handle, NewSession}, registry_client::{RegistryClient, Unresolved, resolution::Resolution, workspace::KeptWorkspace}, runners::Need};

impl SupervisorService {
    pub(super) async fn create(
        &self,
        request: Request<pb::CreateSessionRequest>,
    ) -> Result<pb::CreateSessionResponse, Status> {
        let call = Call::of(&request)?;
        let mut request = request.into_inner();
        let request_id = std::mem::take(&mut request.request_id);
        let remember = call.remember("CreateSession", &request_id, &request)?;
        let now = self.clock().now();
        let key = remember.map(|remember| CreationKey {
            creator: call.scope.clone(),
            request_id: remember.key.request_id,
            hash: remember.hash,
            now,
            expires: now.plus(REQUESTS_REMEMBERED),
        });
        if let Some(key) = &key
            && let Some(handle) = self.directory.created_before(key).await?
        {
            return Ok(self.opened(&call, &handle));
        }
        check_new(&request)?;
        let mut settings = self.settings(&request)?;
        let ceiling = settings
            .tool_ceiling
            .clone()
            .map(|layer| Policy::compile(vec![layer]))
            .transpose()
            .map_err(Refusal::from)
            .map_err(refused)?
            .unwrap_or_else(Policy::unrestricted);
        let sandbox = check::given("sandbox", request.sandbox)?.unwrap_or(Sandbox::WorkspaceWrite);
        let route = self.route_root(&call, &mut request).await?;
        let (mut root, mut contents) = self.root(&call, &mut request, &ceiling, sandbox).await?;
        root.budget = settings.budget;
        if !request.workspace_digest.is_empty() {
            let (reference, bundle) = self.bundle(&call, request.workspace_digest).await?;
            settings.workspace = Some(reference);
            contents.push(bundle);
        }

        let (id, root_id) = (self.clock().new_session_id(), self.clock().new_thread_id());
        if !root.client_owned {
            let need = Need::new(id, &settings, root.sandbox, &root.effective);
            self.directory.context().runners.check_enforceable(&need)?;
        }
        let new = NewSession {
            id,
            events: vec![
                Event::Session(SessionEvent::Opened(Box::new(settings))),
                Event::Thread(root_id, ThreadEvent::Spawned(Arc::new(root))),
            ],
            contents,
            origin: call.origin(&request_id),
            key,
        };
        let handle = self.directory.create(new).await?;
        Ok(pb::CreateSessionResponse {
            route,
            ..self.opened(&call, &handle)
        })
    }

    /// Returns the bundle of a new session, which is stored with it because the registry may drop it at any time.
    async fn bundle(&self, call: &Call, workspace_digest: String) -> Result<(ContentRef, Content), Status> {
        let files = self
            .registry
            .workspace(workspace_digest, call.deadline, &call.trace)
            .await
            .map_err(Unresolved::into_status)?;
        Ok(content_of(&PutWorkspaceRequest {
            files,
            ..PutWorkspaceRequest::default()
        }))
    }

    /// Returns the registry client for a session's requests, which may need its bundle.
    pub(super) fn registry_for(&self, session: &Session) -> RegistryClient {
        let kept = KeptWorkspace::of(session, &self.directory.context().store);
        self.registry.with_workspace(kept)
    }

    /// The answer of CreateSession, the same for a retry.
    fn opened(&self, call: &Call, handle: &Handle) -> pb::CreateSessionResponse {
        let state = handle.state();
        let root = state.root_id().and_then(|root| state.thread(root));
        let thread_token = root.and_then(|root| self.token_for(call, root, handle));
        pb::CreateSessionResponse {
            session: Some(wire::thread::session(&state)),
            thread_token: thread_token.unwrap_or_default(),
            route: None,
        }
    }

    /// Lets the registry select the root's agent type, if the request asks for it.
    async fn route_root(
        &self,
        call: &Call,
        request: &mut pb::CreateSessionRequest,
    ) -> Result<Option<pb::AgentRoute>, Status> {
        if !request.auto_route {
            return Ok(None);
        }
        if !check::has_input(request.message.as_ref(), &request.items) {
            let text = "auto_route needs a message or items, by whose text the role is chosen";
            return Err(check::bad("auto_route", text));
        }
        let question = RouteAgentRequest {
            cwd: request.cwd.clone(),
            workspace_digest: request.workspace_digest.clone(),
            text: route::text(request.message.as_ref(), &request.items),
            explicit_agent: request.agent_type.clone(),
            auto_route: true,
            agent_types: Vec::new(),
        };
        let routed = route::route(&self.registry, call, question).await?;
        request.agent_type.clone_from(&routed.agent_type);
        Ok(Some(routed))
    }

    /// The root: its client's own where there is no input, otherwise a thread like any other, but without a slot.
    async fn root(
        &self,
        call: &Call,
        request: &mut pb::CreateSessionRequest,
        ceiling: &Policy,
        sandbox: Sandbox,
    ) -> Result<(Spawned, Vec<Content>), Status> {
        let mut contents = Vec::new();
        let input = if check::has_input(request.message.as_ref(), &request.items) {
            let items = std::mem::take(&mut request.items);
            let (reference, content) = check::input(request.message.take(), items, |items| pb::Input {
                items,
                ..pb::Input::default()
            })?;
            contents.push(content);
            Some(reference)
        } else {
            None
        };
        let names_something = [
            &request.agent_type,
            &request.role_template,
            &request.agent_name,
            &request.model,
            &request.reasoning_effort,
            &request.provider,
        ]
        .into_iter()
        .any(|text| !text.trim().is_empty());
        // Only the registry can check whether the named items exist.
        let resolved = if input.is_some() || names_something {
            let question = ResolveSpawnRequest {
                cwd: request.cwd.clone(),
                workspace_digest: request.workspace_digest.clone(),
                agent_type: Some(request.agent_type.clone()).filter(|name| !name.trim().is_empty()),
                role_template: Some(request.role_template.clone()).filter(|name| !name.trim().is_empty()),
                agent_name: request.agent_name.clone(),
                model: request.model.clone(),
                reasoning_effort: Some(request.reasoning_effort.clone()).filter(|effort| !effort.trim().is_empty()),
                provider: request.provider.clone(),
                mode: request.mode,
                inherited: Some(troupe_proto::registry::v1::InheritedSettings {
                    sandbox: sandbox.number(),
                    ..Default::default()
                }),
                ..ResolveSpawnRequest::default()
            };
            resolve(&self.registry, call, question)
                .await
                .map_err(Unspawnable::into_status)?
        } else {
            let role = Role {
                agent_type: String::from("default"),
                ..Role::default()
            };
            Resolved::new(Arc::new(Resolution::unasked(role, sandbox)))
        };
        contents.extend(resolved.content.clone());
        let rights = Rights::child(
            ceiling,
            None,
            &resolved.role_layers,
            &[],
            &resolved.role.agent_type,
            tool_policy::Inheritance::Attenuate,
        )
        .map_err(Refusal::from)
        .map_err(refused)?;
        let client_owned = input.is_none();
        let spawned = Spawned {
            parent: None,
            depth: 0,
            first_status: if client_owned {
                StatusKind::Running
            } else {
                StatusKind::PendingInit
            },
            client_owned,
            note: Arc::clone(&resolved.default_note),
            sandbox: resolved.sandbox.min(sandbox),
            effective: rights.effective,
            // A root may grant its children all of the session's permissions, regardless of the subset that it uses
            // itself.
            grant: ceiling.clone(),
            working_directory: request.cwd.as_str().into(),
            input,
            wake_policy: WakePolicy::None,
            role: Arc::clone(&resolved.role),
            edge_management: resolved.edge_management,
            alias: String::new(),
            label: String::new(),
            budget: Budget::default(),
            close_policy: ClosePolicy::default(),
        };
        Ok((spawned, contents))
    }

    fn settings(&self, request: &pb::CreateSessionRequest) -> Result<Settings, Status> {
        let tool_ceiling = request
            .tool_ceiling
            .as_ref()
            .map(|given| check::ceiling("tool_ceiling", "ceiling", given))
            .transpose()?;
        Ok(Settings {
            cwd: request.cwd.clone(),
            workspace_digest: request.workspace_digest.clone(),
            workspace: None,
            limits: self
                .limits(request.limits.unwrap_or_default())?
                .over(self.config.limits),
            slot_release: check::choice("slot_release", request.slot_release)?,
            budget: check::budget(request.budget)?,
            mode: check::given("mode", request.mode)?.unwrap_or_default(),
            orchestration: check::choice("orchestration", request.orchestration)?,
            edge_management: check::given("edge_management", request.edge_management)?.unwrap_or(EdgeManagement::All),
            orchestrators: request.orchestrators.clone(),
            approve_orchestrators: request.approve_orchestrators,
            prompt_log: check::choice("prompt_log", request.prompt_log)?,
            restart_policy: check::choice("restart_policy", request.restart_policy)?,
            policy_inheritance: check::choice("policy_inheritance", request.policy_inheritance)?,
            tool_ceiling,
            webhooks: webhooks::checked(&request.webhooks, self.directory.context().webhooks.allow_private())?,
            labels: request.labels.clone(),
            approve_tools: request.approve_tools.clone(),
            runner_labels: request.runner_labels.clone(),
            stall: self.config.stall,
            retention: check::span("retention", request.retention)?,
        })
    }

    /// Returns a session's limits from a request. The configured limits are maxima.
    pub(super) fn limits(&self, given: pb::Limits) -> Result<LimitsChange, Status> {
        let most = &self.config.limits;
        let bounded = |field: &'static str, given: Option<u32>, most: u32, least: u32| match given {
            Some(value) if value > most => Err(check::bad(
                field,
                format!("{field} {value} is more than this service allows ({most})"),
            )),
            Some(value) if value < least => Err(check::bad(field, format!("{field} must be at least {least}"))),
            Some(_) | None => Ok(given),
        };
        Ok(LimitsChange {
            max_depth: bounded("limits.max_depth", given.max_depth, most.max_depth, 0)?,
            max_threads: bounded("limits.max_threads", given.max_threads, most.max_threads, 1)?,
            max_open_threads: bounded(
                "limits.max_open_threads",
                given.max_open_threads,
                most.max_open_threads,
                1,
            )?,
            max_total_threads: bounded(
                "limits.max_total_threads",
                given.max_total_threads,
                most.max_total_threads,
                1,
            )?,
        })
    }

    pub(super) async fn read_session(
        &self,
        request: Request<pb::GetSessionRequest>,
    ) -> Result<pb::GetSessionResponse, Status> {
        let call = Call::of(&request)?;
        let handle = self.own_or_named(&call, &request.into_inner().session_id).await?;
        Ok(pb::GetSessionResponse {
            session: Some(call.sight.session(wire::thread::session(&handle.state()))),
        })
    }

    pub(super) async fn end_session(
        &self,
        request: Request<pb::CloseSessionRequest>,
    ) -> Result<pb::CloseSessionResponse, Status> {
        let call = Call::of(&request)?;
        let mut request = request.into_inner();
        let request_id = std::mem::take(&mut request.request_id);
        let remember = call.remember("CloseSession", &request_id, &request)?;
        let handle = self.own_or_named(&call, &request.session_id).await?;
        let Some(root) = handle.state().root_id() else {
            return Err(refused(Refusal::SessionClosed));
        };
        let within = cascade_time(request.deadline)?;
        let command = Command::Close {
            caller: call.caller.clone(),
            target: root,
            reason: String::from("the session was closed"),
            cause: CloseCause::Session,
            within,
            policy: check::given("close_policy", request.close_policy)?,
        };
        handle
            .execute(command, call.origin(&request_id), remember, Vec::new())
            .await?;
        let state = if request.wait {
            self.until(&handle, call.deadline, |session| session.closed).await?
        } else {
            handle.state()
        };
        Ok(pb::CloseSessionResponse {
            session: Some(wire::thread::session(&state)),
        })
    }

    pub(super) async fn own_or_named(&self, call: &Call, session_id: &str) -> Result<Handle, Status> {
        if call.token.is_none() {
            check::session_id(session_id)?;
        }
        self.session_for(call, session_id, None, GuardedVerb::Act).await
    }
}

/// Returns the deadline of a cascade: the requested value, at most the service's own maximum.
pub(super) fn cascade_time(given: Option<prost_types::Duration>) -> Result<Duration, Status> {
    match check::span("deadline", given)? {
        None => Ok(CASCADE_DEADLINE),
        Some(span) if span > CASCADE_DEADLINE => Err(check::bad(
            "deadline",
            format!("deadline is more than {} s", CASCADE_DEADLINE.as_secs()),
        )),
        Some(span) => Ok(span),
    }
}

fn check_new(request: &pb::CreateSessionRequest) -> Result<(), Status> {
    check::direct("cwd", &request.cwd)?;
    check::text("workspace_digest", &request.workspace_digest, 64)?;
    check::role(&request.agent_type, &request.role_template, request.auto_route)?;
    check::text("agent_name", &request.agent_name, check::NAME_BYTES)?;
    check::text("model", &request.model, check::REASON_BYTES)?;
    check::text("reasoning_effort", &request.reasoning_effort, check::NAME_BYTES)?;
    check::text("provider", &request.provider, check::NAME_BYTES)?;
    check::labels("labels", &request.labels)?;
    check::labels("runner_labels", &request.runner_labels)?;
    check::orchestrators(&request.orchestrators)?;
    check::approve_tools(&request.approve_tools)
}
