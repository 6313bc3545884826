//! Sessions: create, read, list, watch, update, close and delete.

use std::{sync::Arc, time::Duration};

use supervisor_log::{
    codec::{WireEnum as _, content_of, settings::webhook_from_pb},
    store::{Content, CreationKey},
};
use svc_kit::outgoing::Target;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tool_policy::{Policy, Rights};
use troupe_proto::{
    registry::v1::{PutWorkspaceRequest, ResolveSpawnRequest, RouteAgentRequest},
    supervisor::v1 as pb,
};

use super::{call::Call, page::Page, parse, service::SupervisorService};
use crate::{
    convert::{self, status::refused},
    domain::{
        command::{Command, SettingsUpdate},
        content::ContentRef,
        event::{CloseCause, Event, Role, SessionEvent, SettingsChange, Spawned, ThreadEvent},
        ids::SessionId,
        rejection::Rejection,
        rules::cascade::CASCADE_DEADLINE,
        settings::{Budget, ClosePolicy, EdgeManagement, LimitsChange, Sandbox, Settings, WakePolicy, Webhook},
        status::StatusKind,
        time::REQUESTS_REMEMBERED,
    },
    engine::{Handle, NewSession},
    projections::{overview::Filter, watch::SessionsWatch},
    registry_client::{Unresolved, resolution::Resolution},
    runners::Need,
    use_cases::route,
};

pub(super) async fn create_session(
    call: Call<'_>,
    mut request: pb::CreateSessionRequest,
) -> Result<pb::CreateSessionResponse, Status> {
    let now = call.service.clock().now();
    let key = call.remember()?.map(|remember| CreationKey {
        creator: call.scope.clone(),
        request_id: call.request_id.clone(),
        hash: remember.hash,
        now,
        expires: now.plus(REQUESTS_REMEMBERED),
    });
    if let Some(key) = &key
        && let Some(handle) = call.service.directory.created_before(key).await?
    {
        return Ok(call.session_response(&handle));
    }
    check_new(&request)?;
    let mut settings = call.service.settings(&request)?;
    let ceiling = settings
        .tool_ceiling
        .clone()
        .map(|layer| Policy::compile(vec![layer]))
        .transpose()
        .map_err(Rejection::from)
        .map_err(refused)?
        .unwrap_or_else(Policy::unrestricted);
    let sandbox = parse::given("sandbox", request.sandbox)?.unwrap_or(Sandbox::WorkspaceWrite);
    let route = call.route_root(&mut request).await?;
    let (mut root, mut contents) = call.root(&mut request, &ceiling, sandbox).await?;
    root.budget = settings.budget;
    if !request.workspace_digest.is_empty() {
        let (reference, bundle) = call.bundle(request.workspace_digest).await?;
        settings.workspace = Some(reference);
        contents.push(bundle);
    }

    let (id, root_id) = (call.service.clock().new_id(), call.service.clock().new_id());
    if !root.client_owned {
        let need = Need::new(id, &settings, root.sandbox, &root.effective);
        call.service.runners.check_enforceable(&need)?;
    }
    let new = NewSession {
        id,
        events: vec![
            Event::Session(SessionEvent::Opened(Box::new(settings))),
            Event::Thread(root_id, ThreadEvent::Spawned(Arc::new(root))),
        ],
        contents,
        origin: call.origin(),
        key,
    };
    let handle = call.service.directory.create(new).await?;
    Ok(pb::CreateSessionResponse {
        route,
        ..call.session_response(&handle)
    })
}

pub(super) async fn get_session(
    call: Call<'_>,
    request: pb::GetSessionRequest,
) -> Result<pb::GetSessionResponse, Status> {
    let handle = call.own_or_named(&request.session_id).await?;
    Ok(pb::GetSessionResponse {
        session: Some(call.redaction.session(convert::thread::session(&handle.state()))),
    })
}

pub(super) async fn close_session(
    call: Call<'_>,
    request: pb::CloseSessionRequest,
) -> Result<pb::CloseSessionResponse, Status> {
    let handle = call.own_or_named(&request.session_id).await?;
    let Some(root) = handle.state().root_id() else {
        return Err(refused(Rejection::SessionClosed));
    };
    let within = cascade_time(request.deadline)?;
    let command = Command::Close {
        caller: call.caller.clone(),
        target: root,
        reason: String::from("the session was closed"),
        cause: CloseCause::Session,
        within,
        policy: parse::given("close_policy", request.close_policy)?,
    };
    call.execute(&handle, command, Vec::new()).await?;
    let state = if request.wait {
        call.service
            .until(&handle, call.deadline, |session| session.closed)
            .await?
    } else {
        handle.state()
    };
    Ok(pb::CloseSessionResponse {
        session: Some(convert::thread::session(&state)),
    })
}

impl Call<'_> {
    /// Returns the workspace bundle for a new session. The session stores the bundle, because the registry may drop it
    /// at any time.
    async fn bundle(&self, workspace_digest: String) -> Result<(ContentRef, Content), Status> {
        let files = self
            .service
            .registry
            .workspace(workspace_digest, self.deadline, &self.trace)
            .await
            .map_err(Unresolved::into_status)?;
        Ok(content_of(&PutWorkspaceRequest {
            files,
            ..PutWorkspaceRequest::default()
        }))
    }

    /// Returns the response of CreateSession without the route. A retry gets the same response.
    fn session_response(&self, handle: &Handle) -> pb::CreateSessionResponse {
        let state = handle.state();
        let root = state.root_id().and_then(|root| state.thread(root));
        let thread_token = root.and_then(|root| self.token_for(root, handle));
        pb::CreateSessionResponse {
            session: Some(convert::thread::session(&state)),
            thread_token: thread_token.unwrap_or_default(),
            route: None,
        }
    }

    /// Lets the registry select the root's agent type, if the request asks for automatic routing.
    async fn route_root(&self, request: &mut pb::CreateSessionRequest) -> Result<Option<pb::AgentRoute>, Status> {
        if !request.auto_route {
            return Ok(None);
        }
        if !parse::has_input(request.message.as_ref(), &request.items) {
            let text = "auto_route needs a message or items; the role is chosen by their text";
            return Err(parse::bad("auto_route", text));
        }
        let question = RouteAgentRequest {
            cwd: request.cwd.clone(),
            workspace_digest: request.workspace_digest.clone(),
            text: route::text(request.message.as_ref(), &request.items),
            explicit_agent: request.agent_type.clone(),
            auto_route: true,
            agent_types: Vec::new(),
        };
        let routed = route::route(&self.service.registry, self.deadline, &self.trace, question).await?;
        request.agent_type.clone_from(&routed.agent_type);
        Ok(Some(routed))
    }

    /// Builds the root. If the request has no input, its client executes the root. Otherwise the root runs like any
    /// other thread, but without a slot.
    async fn root(
        &self,
        request: &mut pb::CreateSessionRequest,
        ceiling: &Policy,
        sandbox: Sandbox,
    ) -> Result<(Spawned, Vec<Content>), Status> {
        let mut contents = Vec::new();
        let input = if parse::has_input(request.message.as_ref(), &request.items) {
            let items = std::mem::take(&mut request.items);
            let (reference, content) = parse::input(request.message.take(), items, |items| pb::Input {
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
            self.service
                .registry
                .resolve(&question, self.deadline, &self.trace)
                .await
                .map_err(Unresolved::into_status)?
        } else {
            let role = Role {
                agent_type: String::from("default"),
                ..Role::default()
            };
            Arc::new(Resolution::unasked(role, sandbox))
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
        .map_err(Rejection::from)
        .map_err(refused)?;
        let client_owned = input.is_none();
        let spawned = Spawned {
            parent: None,
            depth: 0,
            result_repairs: None,
            item: None,
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
}

impl SupervisorService {
    fn settings(&self, request: &pb::CreateSessionRequest) -> Result<Settings, Status> {
        let tool_ceiling = request
            .tool_ceiling
            .as_ref()
            .map(|given| parse::ceiling("tool_ceiling", "ceiling", given))
            .transpose()?;
        Ok(Settings {
            cwd: request.cwd.clone(),
            workspace_digest: request.workspace_digest.clone(),
            workspace: None,
            limits: self
                .limits(request.limits.unwrap_or_default())?
                .over(self.config.limits),
            slot_release: parse::choice("slot_release", request.slot_release)?,
            budget: parse::budget(request.budget)?,
            mode: parse::given("mode", request.mode)?.unwrap_or_default(),
            orchestration: parse::choice("orchestration", request.orchestration)?,
            edge_management: parse::given("edge_management", request.edge_management)?.unwrap_or(EdgeManagement::All),
            orchestrators: request.orchestrators.clone(),
            approve_orchestrators: request.approve_orchestrators,
            prompt_log: parse::choice("prompt_log", request.prompt_log)?,
            transcript: parse::choice("transcript", request.transcript)?,
            approval_timeout: parse::approval_timeout(request.approval_timeout)?,
            on_approval_timeout: parse::choice("on_approval_timeout", request.on_approval_timeout)?,
            restart_policy: parse::choice("restart_policy", request.restart_policy)?,
            policy_inheritance: parse::choice("policy_inheritance", request.policy_inheritance)?,
            tool_ceiling,
            webhooks: parse_webhooks(&request.webhooks, self.config.webhooks.allow_private)?,
            labels: request.labels.clone(),
            approve_tools: request.approve_tools.clone(),
            runner_labels: request.runner_labels.clone(),
            stall: self.config.stall,
            retention: parse::span("retention", request.retention)?,
            currency: self.directory.prices().currency(),
        })
    }

    /// Parses the limits of a session. The configured limits are maxima.
    pub(super) fn limits(&self, given: pb::Limits) -> Result<LimitsChange, Status> {
        let most = &self.config.limits;
        let bounded = |field: &'static str, given: Option<u32>, most: u32, least: u32| match given {
            Some(value) if value > most => Err(parse::bad(
                field,
                format!("{field} {value} is more than this service allows ({most})"),
            )),
            Some(value) if value < least => Err(parse::bad(field, format!("{field} must be at least {least}"))),
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
}

/// Returns the deadline of a cascade: the requested value, at most the service's own maximum.
pub(super) fn cascade_time(given: Option<prost_types::Duration>) -> Result<Duration, Status> {
    match parse::span("deadline", given)? {
        None => Ok(CASCADE_DEADLINE),
        Some(span) if span > CASCADE_DEADLINE => Err(parse::bad(
            "deadline",
            format!("deadline is more than {} s", CASCADE_DEADLINE.as_secs()),
        )),
        Some(span) => Ok(span),
    }
}

fn check_new(request: &pb::CreateSessionRequest) -> Result<(), Status> {
    parse::direct("cwd", &request.cwd)?;
    parse::text("workspace_digest", &request.workspace_digest, 64)?;
    parse::role(&request.agent_type, &request.role_template, request.auto_route)?;
    parse::text("agent_name", &request.agent_name, parse::NAME_BYTES)?;
    parse::text("model", &request.model, parse::REASON_BYTES)?;
    parse::text("reasoning_effort", &request.reasoning_effort, parse::NAME_BYTES)?;
    parse::text("provider", &request.provider, parse::NAME_BYTES)?;
    parse::labels("labels", &request.labels)?;
    parse::labels("runner_labels", &request.runner_labels)?;
    parse::orchestrators(&request.orchestrators)?;
    parse::approve_tools(&request.approve_tools)
}

pub(super) async fn update_session(
    call: Call<'_>,
    request: pb::UpdateSessionRequest,
) -> Result<pb::UpdateSessionResponse, Status> {
    let handle = call.own_or_named(&request.session_id).await?;
    let command = Command::UpdateSession(Box::new(call.service.wanted_settings(request)?));
    let done = call.execute(&handle, command, Vec::new()).await?;
    Ok(pb::UpdateSessionResponse {
        session: Some(convert::thread::session(&done.session)),
    })
}

impl SupervisorService {
    fn wanted_settings(&self, request: pb::UpdateSessionRequest) -> Result<SettingsUpdate, Status> {
        if !(request.replace_webhooks || request.webhooks.is_empty()) {
            return Err(parse::bad(
                "webhooks",
                "webhooks are given without replace_webhooks; set it, since they replace the present ones",
            ));
        }
        if !(request.replace_orchestrators || request.orchestrators.is_empty()) {
            return Err(parse::bad(
                "orchestrators",
                "orchestrators are given without replace_orchestrators; set it, since they replace the present ones",
            ));
        }
        parse::orchestrators(&request.orchestrators)?;
        let webhooks = parse_webhooks(&request.webhooks, self.config.webhooks.allow_private)?;
        Ok(SettingsUpdate {
            change: SettingsChange {
                mode: parse::change("mode", request.mode)?,
                limits: None,
                budget: request.budget.map(|budget| parse::budget(Some(budget))).transpose()?,
                paused: request.paused,
                orchestration: parse::change("orchestration", request.orchestration)?,
                edge_management: parse::change("edge_management", request.edge_management)?,
                orchestrators: request.replace_orchestrators.then_some(request.orchestrators),
                webhooks: request.replace_webhooks.then_some(webhooks),
            },
            limits: self.limits(request.limits.unwrap_or_default())?,
        })
    }
}

pub(super) async fn delete_session(
    call: Call<'_>,
    request: pb::DeleteSessionRequest,
) -> Result<pb::DeleteSessionResponse, Status> {
    let id = parse::session_id(&request.session_id)?;
    call.service.directory.delete(id, call.remember()?.as_ref()).await?;
    Ok(pb::DeleteSessionResponse {})
}

/// Maximum number of scans per call, regardless of how many sessions match. Together, the scans examine slightly more
/// sessions than the largest page has.
const MAX_SCANS: usize = 8;

pub(super) async fn list_sessions(
    call: Call<'_>,
    mut request: pb::ListSessionsRequest,
) -> Result<pb::ListSessionsResponse, Status> {
    parse::wanted_labels("labels", &request.labels)?;
    let page = Page::of(&mut request, &call.scope)?;
    let filter = Filter {
        labels: request.labels,
        include_closed: request.include_closed,
    };
    let (sessions, next_page_token) = call.service.fill(&page, &filter).await?;
    let sessions = sessions.into_iter().map(|session| call.redaction.session(session));
    Ok(pb::ListSessionsResponse {
        sessions: sessions.collect(),
        next_page_token,
    })
}

impl SupervisorService {
    /// Returns the sessions of a page, newest first, and the token of the next page. The page may be shorter than the
    /// maximum or empty, because sessions that a filter hides count towards the scan limit too.
    async fn fill(&self, page: &Page<SessionId>, filter: &Filter) -> Result<(Vec<pb::Session>, String), Status> {
        let mut builder = page.builder();
        let mut before = page.after().copied();
        for _ in 0..MAX_SCANS {
            let (sessions, next) = self.overview.sessions_before(before).await?;
            for (id, session) in sessions {
                if filter.matches(&session) && !builder.take(id, session) {
                    return Ok(builder.finish(true));
                }
            }
            let Some(next) = next else {
                return Ok(builder.finish(false));
            };
            builder.skip_to(next);
            before = Some(next);
        }
        Ok(builder.finish(true))
    }
}

/// Maximum number of unread messages per watcher. Changes that occur while the outbox is full are sent later, with
/// the values that are current then.
const OUTBOX: usize = 64;

pub(super) async fn watch_sessions(
    call: Call<'_>,
    request: pb::WatchSessionsRequest,
) -> Result<ReceiverStream<Result<pb::WatchSessionsResponse, Status>>, Status> {
    parse::wanted_labels("labels", &request.labels)?;
    let watch = SessionsWatch {
        overview: call.service.overview.clone(),
        filter: Filter {
            labels: request.labels,
            include_closed: request.include_closed,
        },
        redaction: call.redaction,
        lifetime: call.service.clock().jittered(call.service.config.watch.lifetime),
        flush_timeout: call.service.config.watch.flush_timeout,
        draining: call.service.draining.clone(),
        is_forwarded: call.is_forwarded,
    };
    let (outbox, messages) = mpsc::channel(OUTBOX);
    tokio::spawn(watch.run(outbox));
    Ok(ReceiverStream::new(messages))
}

/// Maximum number of webhooks of a session.
pub(crate) const WEBHOOKS: usize = 8;
/// Maximum length of a webhook's URL, in bytes.
pub(crate) const URL_BYTES: usize = 1_024;
/// Permitted length of a webhook's secret, in bytes. A shorter secret could be guessed.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 16..=256;

/// Validates the webhooks of a request. Names are resolved at delivery, so only the URL itself is checked here.
fn parse_webhooks(given: &[pb::Webhook], allow_private: bool) -> Result<Vec<Webhook>, Status> {
    parse::count("webhooks", "webhooks", given.len(), WEBHOOKS)?;
    let mut webhooks: Vec<Webhook> = Vec::with_capacity(given.len());
    for webhook in given {
        url(&webhook.url, allow_private)?;
        secret(&webhook.secret)?;
        if webhooks.iter().any(|other| other.url == webhook.url) {
            let message = format!("webhooks.url \"{}\" is given twice; give each once", webhook.url);
            return Err(parse::bad("webhooks.url", message));
        }
        let mut webhook = webhook_from_pb(webhook.clone())
            .map_err(|error| parse::bad("webhooks.kinds", format!("webhooks.kinds: {error}")))?;
        webhook.kinds.sort_unstable();
        webhook.kinds.dedup();
        webhooks.push(webhook);
    }
    Ok(webhooks)
}

fn url(url: &str, allow_private: bool) -> Result<(), Status> {
    parse::text("webhooks.url", url, URL_BYTES)?;
    let bad = |why: &str| parse::bad("webhooks.url", format!("webhooks.url \"{url}\": {why}"));
    let target = Target::parse(url).map_err(|error| bad(&error.to_string()))?;
    if target.is_plainly_private() && !allow_private {
        return Err(bad(
            "it leads to a private, loopback or link-local address; start the service with --webhook-allow-private to allow it",
        ));
    }
    Ok(())
}

fn secret(secret: &str) -> Result<(), Status> {
    if SECRET_BYTES.contains(&secret.len()) {
        return Ok(());
    }
    let message = format!(
        "webhooks.secret has {} bytes; give {} to {}",
        secret.len(),
        SECRET_BYTES.start(),
        SECRET_BYTES.end()
    );
    Err(parse::bad("webhooks.secret", message))
}
