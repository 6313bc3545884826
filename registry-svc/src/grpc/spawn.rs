//! ResolveSpawn. Responses are encoded once and cached, so an equal request to the same templates costs one look-up.

use troupe_proto::registry::v1::{InheritedSettings, ResolveSpawnRequest};

use crate::{
    Parts,
    domain::{
        error::RegistryError,
        name::{AgentType, PersonaName, TemplateName},
        resolve::{self, Inherited, ResolveContext, SpawnRequest},
    },
    grpc::{agents::graph_name, bounds, call::Call, convert, response_cache::EncodedResponse},
};

/// Returns the cached response if nothing has changed since. Never blocks. The caller has removed `known_etag` from
/// `request`, as it does for [`resolve`], because the response does not depend on that field.
pub(super) fn known(parts: &Parts, request: &ResolveSpawnRequest) -> Option<EncodedResponse> {
    let workspace = bounds::workspace(request.cwd.clone(), request.workspace_digest.clone()).ok()?;
    let view = parts.cached_view(&workspace)?;
    parts.responses.get(request, &view)
}

pub(super) fn resolve(call: &Call, request: ResolveSpawnRequest) -> Result<EncodedResponse, RegistryError> {
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

    let view = call.view(&workspace)?;
    let resolved = resolve::resolve(
        &spawn,
        ResolveContext {
            catalog: &view.catalog,
            models: &call.models,
            texts: call.sources.texts(),
            footer: &view.footer,
        },
    )?;
    let response = EncodedResponse::new(convert::resolved(resolved));
    call.responses.insert(question, &view, response.clone());
    Ok(response)
}

fn wanted(agent_type: Option<String>, role_template: Option<String>) -> Result<Option<TemplateName>, RegistryError> {
    match (agent_type, role_template) {
        (Some(_), Some(_)) => Err(RegistryError::Argument {
            field: "role_template",
            message: "give agent_type or role_template, not both; they name different templates".to_owned(),
        }),
        (None, None) => Ok(None),
        (Some(name), None) => {
            let name = AgentType::parse(&bounds::text("agent_type", name, bounds::NAME_BYTES)?)?;
            Ok((!name.is_default()).then_some(TemplateName::AgentType(name)))
        }
        (None, Some(name)) => {
            let name = bounds::text("role_template", name, bounds::NAME_BYTES)?;
            graph_name("role_template", &name).map(|name| Some(TemplateName::RoleTemplate(name)))
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
