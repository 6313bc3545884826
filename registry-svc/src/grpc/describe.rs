//! DescribeSpawnTool.

use troupe_proto::registry::v1::{DescribeSpawnToolRequest, DescribeSpawnToolResponse, ToolDescription};

use crate::{
    domain::{
        describe,
        error::RegistryError,
        list::{self, Selection, Violations},
        name::{AgentType, TemplateName},
    },
    grpc::{bounds, call::Call},
};

/// Maximum number of roles to which a request may restrict the hint.
pub(super) const MAX_NAMES: usize = 1_000;

pub(super) fn describe(
    call: &Call,
    request: DescribeSpawnToolRequest,
) -> Result<DescribeSpawnToolResponse, RegistryError> {
    let only = names(request.agent_types)?;
    let view = call.view(&bounds::workspace(request.cwd, request.workspace_digest)?)?;
    let mut roles = list::list(&view.catalog, &Selection::AgentTypes, Violations::LeaveOut)?;
    if !only.is_empty() {
        roles.retain(|role| is_one_of(&role.entry.file.name, &only));
    }
    let tools = describe::tools(&roles).into_iter().map(|tool| ToolDescription {
        name: tool.name.to_owned(),
        description: tool.description,
        input_schema: tool.input_schema,
    });
    Ok(DescribeSpawnToolResponse {
        tools: tools.collect(),
        hint: describe::hint(&roles),
    })
}

/// Returns the agent types that a request is restricted to.
pub(super) fn names(given: Vec<String>) -> Result<Vec<AgentType>, RegistryError> {
    if given.len() > MAX_NAMES {
        return Err(RegistryError::Argument {
            field: "agent_types",
            message: format!("agent_types has {} names; at most {MAX_NAMES} are allowed", given.len()),
        });
    }
    given
        .into_iter()
        .map(|name| {
            Ok(AgentType::parse(&bounds::text(
                "agent_types",
                name,
                bounds::NAME_BYTES,
            )?)?)
        })
        .collect()
}

pub(super) fn is_one_of(name: &TemplateName, only: &[AgentType]) -> bool {
    match name {
        TemplateName::AgentType(name) => only.iter().any(|each| each.is_alias_of(name)),
        TemplateName::RoleTemplate(_) => false,
    }
}
