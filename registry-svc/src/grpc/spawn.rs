//! ResolveSpawn.

use troupe_proto::registry::v1::{InheritedSettings, ResolveSpawnRequest, ResolveSpawnResponse};

use crate::{
    Parts,
    domain::{
        error::RegistryError,
        name::{AgentType, PersonaName},
        resolve::{self, Inherited, SpawnRequest, Surroundings, Wanted},
    },
    grpc::{agents::graph_name, bounds, convert},
};

/// The answer, if it was given before and nothing changed since. Never blocks.
pub(super) fn known(parts: &Parts, request: &ResolveSpawnRequest) -> Option<ResolveSpawnResponse> {
    let workspace = bounds::workspace(request.cwd.clone(), request.workspace_digest.clone()).ok()?;
    let view = parts.vouched_view(&workspace)?;
    parts.answers.get(request, &view)
}

pub(super) fn resolve(parts: &Parts, request: ResolveSpawnRequest) -> Result<ResolveSpawnResponse, RegistryError> {
    let question = request.clone();
    let agent_name = bounds::non_blank("agent_name", &request.agent_name, bounds::NAME_BYTES)?;
    let effort = request
        .reasoning_effort
        .map(|effort| bounds::text("reasoning_effort", effort, bounds::NAME_BYTES))
        .transpose()?;
    let spawn = SpawnRequest {
        wanted: wanted(request.agent_type, request.role_template)?,
        agent_name: agent_name.map(|name| PersonaName::normalise(&name)),
        model: bounds::non_blank("model", &request.model, bounds::MODEL_BYTES)?,
        effort,
        provider: bounds::non_blank("provider", &request.provider, bounds::NAME_BYTES)?,
        inherited: inherited(request.inherited.unwrap_or_default())?,
        mode: bounds::mode(request.mode)?,
        expected_digest: request
            .expected_digest
            .map(|digest| bounds::digest("expected_digest", &digest))
            .transpose()?,
    };
    let workspace = bounds::workspace(request.cwd, request.workspace_digest)?;

    let view = parts.view(&workspace)?;
    let resolved = resolve::resolve(
        &spawn,
        Surroundings {
            catalog: &view.catalog,
            models: &parts.models,
            texts: parts.sources.texts(),
            footer: &view.footer,
        },
    )?;
    let response = ResolveSpawnResponse {
        resolved: Some(convert::resolved(resolved)),
    };
    parts.answers.keep(question, &view, &response);
    Ok(response)
}

fn wanted(agent_type: Option<String>, role_template: Option<String>) -> Result<Wanted, RegistryError> {
    match (agent_type, role_template) {
        (Some(_), Some(_)) => Err(RegistryError::Argument {
            field: "role_template",
            message: "give agent_type or role_template, not both; they name different templates".to_owned(),
        }),
        (None, None) => Ok(Wanted::Default),
        (Some(name), None) => {
            let name = AgentType::parse(&bounds::text("agent_type", name, bounds::NAME_BYTES)?)?;
            Ok(if name.is_default() {
                Wanted::Default
            } else {
                Wanted::AgentType(name)
            })
        }
        (None, Some(name)) => {
            let name = bounds::text("role_template", name, bounds::NAME_BYTES)?;
            graph_name("role_template", &name).map(Wanted::RoleTemplate)
        }
    }
}

fn inherited(settings: InheritedSettings) -> Result<Inherited, RegistryError> {
    Ok(Inherited {
        model: bounds::non_blank("inherited.model", &settings.model, bounds::MODEL_BYTES)?,
        effort: bounds::non_blank(
            "inherited.reasoning_effort",
            &settings.reasoning_effort,
            bounds::NAME_BYTES,
        )?,
        provider: bounds::non_blank("inherited.provider", &settings.provider, bounds::NAME_BYTES)?,
        sandbox: bounds::sandbox(settings.sandbox)?,
        instructions: bounds::text(
            "inherited.instructions",
            settings.instructions,
            bounds::INSTRUCTIONS_BYTES,
        )?,
    })
}
