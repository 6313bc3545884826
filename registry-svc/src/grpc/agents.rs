//! ListAgents.

use troupe_proto::{
    common::v1::Namespace,
    registry::v1::{ListAgentsRequest, ListAgentsResponse},
};

use crate::{
    domain::{
        digest::DigestBuilder,
        error::RegistryError,
        list::{self, Selection, Violations},
        name::{AgentType, GraphName},
    },
    grpc::{
        bounds,
        call::Call,
        convert,
        page::{self, PAGE_BYTES, Page},
    },
};

/// Maximum size of the diagnostics on a first page, in bytes.
pub(super) const DIAGNOSTICS_BYTES: usize = 256 * 1024;
/// Maximum size of the agents on a page, in bytes. The margin is for the token and the revision.
pub(super) const AGENTS_BYTES: usize = PAGE_BYTES - DIAGNOSTICS_BYTES - 4 * 1024;

pub(super) fn list(call: &Call, request: ListAgentsRequest) -> Result<ListAgentsResponse, RegistryError> {
    let page = Page::of(
        DigestBuilder::new()
            .text("cwd", &request.cwd)
            .text("workspace", &request.workspace_digest)
            .text("namespace", &request.namespace.to_string())
            .list("agent_type", request.agent_type.as_deref())
            .text("expanded", &request.expanded.to_string())
            .text("allow_partial", &request.allow_partial.to_string())
            .finish(),
        request.page_size,
        request.page_token,
        AGENTS_BYTES,
    )?;
    let selection = selection(bounds::namespace(request.namespace)?, request.agent_type)?;
    let violations = if request.allow_partial {
        Violations::LeaveOut
    } else {
        Violations::Refuse
    };
    let view = call.view(&bounds::workspace(request.cwd, request.workspace_digest)?)?;
    let listed = list::list(&view.catalog, &selection, violations)?;
    let (agents, next_page_token) = page.take(
        listed,
        |item| item.entry.file.name.to_string(),
        |item| convert::agent(&item, request.expanded),
    );
    let diagnostics = match violations {
        Violations::LeaveOut if page.is_first() => list::diagnostics(&view.catalog, &selection)?,
        Violations::LeaveOut | Violations::Refuse => Vec::new(),
    };
    Ok(ListAgentsResponse {
        agents,
        next_page_token,
        diagnostics: page::within_bound(DIAGNOSTICS_BYTES, diagnostics.iter().map(convert::diagnostic)),
        revision: view.catalog.revision().to_string(),
    })
}

fn selection(namespace: Namespace, filter: Option<String>) -> Result<Selection, RegistryError> {
    let filter = filter
        .map(|name| bounds::text("agent_type", name, bounds::NAME_BYTES))
        .transpose()?;
    match (namespace, filter) {
        (Namespace::RoleTemplate, None) => Ok(Selection::RoleTemplates),
        (Namespace::RoleTemplate, Some(name)) => graph_name("agent_type", &name).map(Selection::RoleTemplate),
        (Namespace::AgentType | Namespace::Unspecified, None) => Ok(Selection::AgentTypes),
        (Namespace::AgentType | Namespace::Unspecified, Some(name)) => {
            Ok(Selection::AgentType(AgentType::parse(&name)?))
        }
    }
}

/// Parses the name of a graph template in a request field.
pub(super) fn graph_name(field: &'static str, name: &str) -> Result<GraphName, RegistryError> {
    GraphName::parse(name).ok_or_else(|| RegistryError::Argument {
        field,
        message: format!("{field} is blank; give the file stem of a graph template"),
    })
}
