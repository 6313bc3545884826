//! Roles and findings about templates.

use serde_json::{Value, json};
use troupe_proto::registry::v1::{Agent, Diagnostic, Persona};

use super::{common, list, name, optional};
use crate::names;

/// Converts a role.
pub(crate) fn agent(agent: &Agent) -> Value {
    json!({
        "agent_type": agent.agent_type,
        "description": agent.description,
        "allow_list": agent.allow_list,
        "deny_list": agent.deny_list,
        "agent_names": list(&agent.agent_names, persona),
        "model": agent.model,
        "reasoning_effort": agent.reasoning_effort,
        "default_prompt": agent.default_prompt,
        "read_only": agent.read_only,
        "keywords": agent.keywords,
        "capabilities": agent.capabilities,
        "constraints": agent.constraints,
        "version": agent.version,
        "match": name(names::match_mode(agent.r#match())),
        "source": optional(agent.source.as_ref(), common::source),
        "spawn_list": agent.spawn_list,
        "grant_list": agent.grant_list,
    })
}

/// A finding about a template file.
pub(crate) fn diagnostic(diagnostic: &Diagnostic) -> Value {
    json!({
        "path": diagnostic.path,
        "line": diagnostic.line,
        "dialect": name(names::dialect(diagnostic.dialect())),
        "severity": name(names::severity(diagnostic.severity())),
        "message": diagnostic.message,
        "suggestion": diagnostic.suggestion,
    })
}

fn persona(persona: &Persona) -> Value {
    json!({
        "name": persona.name,
        "description": persona.description,
        "model": persona.model,
        "reasoning_effort": persona.reasoning_effort,
        "prompt": persona.prompt,
    })
}
