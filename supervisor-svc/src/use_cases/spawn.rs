//! A spawn: the checks before the registry, the registry's resolution, the check of the runners, and the commit.

use std::{
    path::{Component, Path},
    sync::Arc,
};

use supervisor_log::{codec::WireEnum as _, store::Content};
use svc_kit::{deadline::Deadline, trace_context::TraceParent};
use tonic::Status;
use tool_policy::{Layer, Policy};
use troupe_proto::{
    fault,
    registry::v1::{InheritedSettings, ResolveSpawnRequest, RouteAgentRequest},
    supervisor::v1 as pb,
};

use super::{instructions::Instructions, route};
use crate::{
    convert::status::refused,
    domain::{
        command::{Command, Spawn},
        content::{ContentRef, truncate},
        decide::spawn::{Wanted, WantedRole, admit, admit_any},
        event::{Role, Spawned},
        group::ItemRef,
        ids::ThreadId,
        principal::Caller,
        rejection::Rejection,
        settings::{Budget, ClosePolicy, EdgeManagement, OnLimit, WakePolicy},
        state::{session::Session, thread::Thread},
        status::StatusKind,
    },
    engine::{Directory, Done, Failure, Handle, InFlight, Origin},
    registry_client::{RegistryClient, Unresolved, resolution::Resolution, workspace::StoredWorkspace},
    runners::{Need, RunnerHub},
};

/// The reason why a spawn cannot be committed.
pub enum Unspawnable {
    /// The registry rejected the spawn. Its verdict is recorded.
    Verdict(Status),
    /// The outcome of the spawn could not be determined, so nothing is recorded.
    Unknown(Status),
}

impl From<Unresolved> for Unspawnable {
    fn from(unresolved: Unresolved) -> Self {
        match unresolved {
            Unresolved::Verdict(status) => Self::Verdict(status),
            Unresolved::Unavailable(status) => Self::Unknown(status),
        }
    }
}

impl Unspawnable {
    /// Returns the status for a client.
    pub fn into_status(self) -> Status {
        match self {
            Self::Verdict(status) | Self::Unknown(status) => status,
        }
    }
}

/// The caller of a spawn.
pub struct SpawnCaller<'a> {
    /// The caller.
    pub caller: &'a Caller,
    /// The deadline of the call.
    pub deadline: Option<Deadline>,
    /// The trace of the call.
    pub trace: &'a TraceParent,
    /// The origin of the recorded events.
    pub origin: Origin,
}

/// The role that a spawn names.
pub enum NamedRole {
    /// An agent type, as the spawn gate compares it and as the request spells it.
    AgentType { name: String, given: String },
    /// A role template, as the spawn gate compares it and as the request spells it.
    Template { name: String, given: String },
}

impl NamedRole {
    /// Returns the role as the rules compare it.
    pub fn wanted(&self) -> WantedRole<'_> {
        match self {
            Self::AgentType { name, .. } => WantedRole::AgentType(name),
            Self::Template { name, .. } => WantedRole::RoleTemplate(name),
        }
    }
}

/// The arguments of a spawn. Every value is within its limits.
pub struct SpawnArguments {
    /// The parent of the new thread.
    pub parent: ThreadId,
    /// The role.
    pub role: NamedRole,
    /// The text by which the registry selects an agent type, if the request asks for automatic routing.
    pub route_text: Option<String>,
    /// The persona.
    pub agent_name: String,
    /// The model; empty for the role's model.
    pub model: String,
    /// The reasoning effort; empty for the role's effort.
    pub reasoning_effort: String,
    /// The provider; empty for the role's provider.
    pub provider: String,
    /// The digest that the role must have; empty for any.
    pub expected_digest: String,
    /// The text that replaces the role's text; empty for none.
    pub custom_system_prompt: String,
    /// The capabilities that the thread keeps; empty for all.
    pub capabilities: Vec<String>,
    /// The layer that narrows the thread's tools.
    pub narrowing: Option<Layer>,
    /// The edges that the thread may manage; `None` for all that its role declares.
    pub edge_management: Option<EdgeManagement>,
    /// The alias; empty for none.
    pub alias: String,
    /// The label; empty for none.
    pub label: String,
    /// The note; `None` for the role's note.
    pub note: Option<String>,
    /// The working directory; empty for the parent's directory.
    pub working_directory: String,
    /// The budget.
    pub budget: Budget,
    /// How the thread is closed.
    pub close_policy: ClosePolicy,
    /// The events that wake the parent.
    pub wake_policy: WakePolicy,
    /// Whether the spawn waits or fails without a free slot.
    pub on_limit: OnLimit,
    /// The input, and its content.
    pub input: (ContentRef, Content),
    /// The number of repair turns if the input has a result schema, otherwise `None`.
    pub result_repairs: Option<u32>,
    /// The item of a group that the thread works on.
    pub item: Option<ItemRef>,
}

impl SpawnArguments {
    fn wanted<'a>(&'a self, caller: &'a Caller) -> Wanted<'a> {
        Wanted {
            caller,
            parent: self.parent,
            role: self.role.wanted(),
            alias: &self.alias,
        }
    }
}

/// The result of a spawn.
pub struct SpawnResult {
    /// The result of the command.
    pub done: Done,
    /// Warnings of the registry.
    pub warnings: Vec<String>,
    /// The agent type that the registry selected, if the request asked for automatic routing.
    pub route: Option<pb::AgentRoute>,
}

/// A spawn that was resolved and checked.
pub struct Prepared {
    /// The command.
    pub spawn: Box<Spawn>,
    /// The contents that the events of the spawn refer to.
    pub contents: Vec<Content>,
    /// Warnings of the registry.
    pub warnings: Vec<String>,
}

/// Spawns threads. Cheap to clone.
#[derive(Clone)]
pub struct Spawner {
    directory: Directory,
    registry: RegistryClient,
    runners: RunnerHub,
    /// Cache of the instructions that parents pass to their children.
    instructions: Arc<Instructions>,
}

impl Spawner {
    /// Creates a spawner for the sessions of a directory.
    #[must_use]
    pub fn new(directory: Directory, registry: RegistryClient, runners: RunnerHub) -> Self {
        Self {
            directory,
            registry,
            runners,
            instructions: Arc::default(),
        }
    }

    /// Spawns a thread and returns when it is durable.
    ///
    /// # Errors
    /// The rejection by a rule, by the registry or for lack of a runner that could enforce the role.
    pub async fn run(
        &self,
        handle: &Handle,
        in_flight: InFlight,
        caller: SpawnCaller<'_>,
        mut arguments: Box<SpawnArguments>,
    ) -> Result<SpawnResult, Status> {
        let state = handle.state();
        let route = match arguments.route_text.take() {
            // Boxed because routing is rare: otherwise the future of every spawn would reserve memory for it.
            Some(text) => Some(Box::pin(self.route(&caller, &state, &arguments, text)).await?),
            None => None,
        };
        if let (Some(route), NamedRole::AgentType { name, given }) = (&route, &mut arguments.role) {
            *name = agent_type_name(&route.agent_type);
            given.clone_from(&route.agent_type);
        }
        let wanted = arguments.wanted(caller.caller);
        let prepared = match self.prepare(&caller, &state, &arguments).await {
            Ok(prepared) => prepared,
            Err(Unspawnable::Unknown(status)) => return Err(status),
            Err(Unspawnable::Verdict(status)) => {
                let recorded = record_verdict(in_flight, caller.origin, &wanted, &arguments.agent_name, &status).await;
                return Err(recorded.err().map_or(status, refused));
            }
        };
        let Prepared {
            spawn,
            contents,
            warnings,
        } = prepared;
        let done = in_flight
            .execute(Command::Spawn(spawn), caller.origin, contents)
            .await?;
        Ok(SpawnResult { done, warnings, route })
    }

    /// Resolves a spawn and checks it, without executing it.
    ///
    /// # Errors
    /// The rejection by a rule, by the registry or for lack of a runner that could enforce the role.
    pub async fn prepare(
        &self,
        caller: &SpawnCaller<'_>,
        state: &Session,
        arguments: &SpawnArguments,
    ) -> Result<Prepared, Unspawnable> {
        let rejected = |rejection| Unspawnable::Unknown(refused(rejection));
        let parent = admit(state, &arguments.wanted(caller.caller)).map_err(rejected)?;
        check_directory(caller.caller, state.workspace(parent), &arguments.working_directory).map_err(rejected)?;
        let question = resolve_request(state, parent, arguments);
        let mut resolved = self.resolve_below(caller, state, parent, question).await?;
        if !arguments.custom_system_prompt.is_empty() {
            Arc::make_mut(&mut resolved).replace_role_block(&arguments.custom_system_prompt);
        }
        let mut warnings = resolved.warnings.clone();
        warnings.extend(self.unpriced(state, parent.id, &arguments.budget, &resolved.role));
        let mut contents = vec![arguments.input.1.clone()];
        contents.extend(resolved.content.clone());
        let spawn = self.command(caller, arguments, parent, &resolved).map_err(rejected)?;
        let need = Need::of_spawn(state, parent, &spawn).map_err(rejected)?;
        self.runners
            .check_enforceable(&need)
            .map_err(|fault| Unspawnable::Unknown(fault.into()))?;
        Ok(Prepared {
            spawn: Box::new(spawn),
            contents,
            warnings,
        })
    }

    /// Returns a warning if a cost budget applies and the model's price is unknown.
    fn unpriced(&self, session: &Session, parent: ThreadId, own: &Budget, role: &Role) -> Option<String> {
        let is_bounded = own.cost.is_some() || session.lineage(parent).any(|thread| thread.budget.cost.is_some());
        let now = self.directory.clock().now();
        let prices = self.directory.prices();
        let price = prices.of_model(session.settings.currency, &role.model, &role.provider, now);
        (is_bounded && price.is_none()).then(|| {
            let model = if role.model.is_empty() {
                "the runner's default"
            } else {
                &role.model
            };
            format!("the model \"{model}\" has no price, so the cost budget counts only what its program reports")
        })
    }

    /// Lets the registry select an agent type that the caller may spawn.
    async fn route(
        &self,
        caller: &SpawnCaller<'_>,
        session: &Session,
        arguments: &SpawnArguments,
        text: String,
    ) -> Result<pb::AgentRoute, Status> {
        let parent = admit_any(session, &arguments.wanted(caller.caller)).map_err(refused)?;
        check_directory(caller.caller, session.workspace(parent), &arguments.working_directory).map_err(refused)?;
        let (name, given) = match &arguments.role {
            NamedRole::AgentType { name, given } => (name.as_str(), given.as_str()),
            NamedRole::Template { .. } => ("", ""),
        };
        let permitted = route::permitted(session, caller.caller, parent);
        if permitted.as_ref().is_some_and(Vec::is_empty) {
            // No role remains to choose from. The spawn gate reports which roles are permitted.
            return Ok(pb::AgentRoute {
                agent_type: name.to_owned(),
                ..pb::AgentRoute::default()
            });
        }
        let question = RouteAgentRequest {
            cwd: directory(session, parent, arguments),
            workspace_digest: session.settings.workspace_digest.clone(),
            text,
            explicit_agent: given.to_owned(),
            auto_route: true,
            agent_types: permitted.unwrap_or_default(),
        };
        route::route(&self.registry_for(session), caller.deadline, caller.trace, question).await
    }

    /// Resolves a spawn below the given parent. The first request omits the parent's instructions. A second request
    /// includes them only if the result depends on them. A role with its own instructions therefore costs neither a
    /// read of the parent's instructions nor a large request.
    async fn resolve_below(
        &self,
        caller: &SpawnCaller<'_>,
        session: &Session,
        parent: &Thread,
        mut question: ResolveSpawnRequest,
    ) -> Result<Arc<Resolution>, Unspawnable> {
        let registry = self.registry_for(session);
        let resolved = registry.resolve(&question, caller.deadline, caller.trace).await?;
        if !resolved.inherits_instructions {
            return Ok(resolved);
        }
        let instructions = self
            .instructions
            .of(self.directory.store().as_ref(), session.id, &parent.spawned.role)
            .await
            .map_err(|failure| Unspawnable::Unknown(failure.into()))?;
        if instructions.trim().is_empty() {
            return Ok(resolved);
        }
        question.inherited.get_or_insert_default().instructions = String::from(&*instructions);
        Ok(registry.resolve(&question, caller.deadline, caller.trace).await?)
    }

    /// Builds the command, which is decided when it is committed.
    fn command(
        &self,
        caller: &SpawnCaller<'_>,
        arguments: &SpawnArguments,
        parent: &Thread,
        resolved: &Resolution,
    ) -> Result<Spawn, Rejection> {
        let clock = self.directory.clock();
        let declared = resolved.edges_for(&arguments.capabilities)?;
        let spawned = Spawned {
            parent: Some(parent.id),
            client_owned: false,
            role: Arc::clone(&resolved.role),
            // The engine computes the child's permissions later, from the resolution and the parent's grant.
            sandbox: resolved.sandbox,
            effective: Policy::unrestricted(),
            grant: Policy::unrestricted(),
            depth: 0,
            first_status: StatusKind::PendingInit,
            alias: arguments.alias.clone(),
            label: arguments.label.clone(),
            note: match &arguments.note {
                Some(note) => note.as_str().into(),
                None => Arc::clone(&resolved.default_note),
            },
            working_directory: if arguments.working_directory.is_empty() {
                Arc::clone(&parent.spawned.working_directory)
            } else {
                arguments.working_directory.as_str().into()
            },
            edge_management: arguments
                .edge_management
                .map_or(declared, |wanted| wanted.min(declared)),
            budget: arguments.budget,
            close_policy: arguments.close_policy,
            wake_policy: arguments.wake_policy,
            input: Some(arguments.input.0.clone()),
            result_repairs: arguments.result_repairs,
            item: arguments.item,
        };
        Ok(Spawn {
            caller: caller.caller.clone(),
            id: clock.new_id(),
            spawned,
            narrowing: arguments.narrowing.clone(),
            role_layers: resolved.layers_for(&arguments.capabilities),
            grant_list: resolved.grant_list.clone(),
            on_limit: arguments.on_limit,
            approval: clock.new_id(),
        })
    }

    /// Returns the registry client for a session's requests, which may need the session's workspace bundle.
    #[must_use]
    pub fn registry_for(&self, session: &Session) -> RegistryClient {
        let stored = StoredWorkspace::of(session, self.directory.store());
        self.registry.with_workspace(stored)
    }
}

/// Returns a role's name as the registry reads it: trimmed and in lower case.
#[must_use]
pub fn role_name(text: &str) -> String {
    text.trim().to_lowercase()
}

/// Returns an agent type as the spawn gate compares it; `default` if none is named.
#[must_use]
pub fn agent_type_name(text: &str) -> String {
    let name = role_name(text);
    if name.is_empty() { String::from("default") } else { name }
}

/// Checks that a thread's child works in the parent's directory or below. Files elsewhere belong to others, and the
/// working directory is what a sandbox permits the child to write. Operators may name any directory.
fn check_directory(caller: &Caller, parent: &str, wanted: &str) -> Result<(), Rejection> {
    let goes_up = Path::new(wanted).components().any(|part| part == Component::ParentDir);
    let is_inside = wanted.is_empty() || (!parent.is_empty() && !goes_up && Path::new(wanted).starts_with(parent));
    match caller {
        Caller::Thread { .. } if !is_inside => Err(Rejection::NotPermitted(format!(
            "working_directory \"{wanted}\" is not in \"{parent}\", where the parent works; name a directory below that, or \
             leave it out"
        ))),
        // Checked after the previous case: for a thread, such a path is outside the parent's directory.
        Caller::Thread { .. } | Caller::Operator { .. } if goes_up => Err(Rejection::InvalidArgument {
            field: "working_directory",
            message: format!("working_directory \"{wanted}\" goes up by \"..\"; give the path that it leads to"),
        }),
        Caller::Thread { .. } | Caller::Operator { .. } => Ok(()),
    }
}

/// Returns the spawn's working directory, where the registry also looks the role up.
fn directory(session: &Session, parent: &Thread, arguments: &SpawnArguments) -> String {
    if arguments.working_directory.is_empty() {
        session.workspace(parent).to_owned()
    } else {
        arguments.working_directory.clone()
    }
}

fn resolve_request(session: &Session, parent: &Thread, arguments: &SpawnArguments) -> ResolveSpawnRequest {
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.trim().is_empty());
    let (agent_type, role_template) = match &arguments.role {
        NamedRole::AgentType { given: name, .. } => (given(name), None),
        NamedRole::Template { given: name, .. } => (None, given(name)),
    };
    ResolveSpawnRequest {
        cwd: directory(session, parent, arguments),
        workspace_digest: session.settings.workspace_digest.clone(),
        agent_type,
        role_template,
        agent_name: arguments.agent_name.clone(),
        model: arguments.model.clone(),
        reasoning_effort: given(&arguments.reasoning_effort),
        provider: arguments.provider.clone(),
        inherited: Some(InheritedSettings {
            model: parent.spawned.role.model.clone(),
            reasoning_effort: parent.spawned.role.reasoning_effort.clone(),
            provider: parent.spawned.role.provider.clone(),
            sandbox: parent.sandbox.number(),
            ..InheritedSettings::default()
        }),
        mode: session.settings.mode.number(),
        expected_digest: given(&arguments.expected_digest),
        known_etag: String::new(),
    }
}

/// Records a spawn that the registry rejected.
///
/// # Errors
/// [`Rejection::RateLimited`]: the caller has caused too many events, and this one is not recorded.
async fn record_verdict(
    in_flight: InFlight,
    origin: Origin,
    wanted: &Wanted<'_>,
    agent_name: &str,
    verdict: &Status,
) -> Result<(), Rejection> {
    let command = Command::FailSpawn {
        parent: wanted.parent,
        agent_type: wanted.role.name().to_owned(),
        agent_name: agent_name.to_owned(),
        reason: fault::reason_of(verdict)
            .map(|reason| reason.as_str().to_owned())
            .unwrap_or_default(),
        message: truncate(verdict.message(), 4 * 1_024).to_owned(),
    };
    // Only successes are stored: a retry of a rejected spawn asks the registry again.
    let recording = in_flight.execute_unremembered(command, origin);
    // Runs in a separate task, so that a client that disconnects does not cancel the record.
    match tokio::spawn(recording).await {
        Ok(Ok(_)) => {}
        Ok(Err(Failure::Refused(limited @ Rejection::RateLimited { .. }))) => return Err(limited),
        Ok(Err(failure)) => tracing::warn!(%failure, "rejected spawn not recorded"),
        Err(error) => tracing::error!(%error, "recording of a rejected spawn panicked"),
    }
    Ok(())
}
