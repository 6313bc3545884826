//! Messages that both services share.

use serde_json::{Value, json};
use troupe_proto::common::v1::{PromptBlock, ResolvedSpawn, TemplateSource, ToolPolicy, ToolPolicyLayer, ValueOrigin};

use super::{list, name, optional};
use crate::names;

/// A tool policy.
pub(super) fn policy(policy: &ToolPolicy) -> Value {
    json!({ "layers": list(&policy.layers, layer) })
}

/// One layer of a tool policy.
pub(super) fn layer(layer: &ToolPolicyLayer) -> Value {
    json!({
        "origin": layer.origin,
        "match": name(names::match_mode(layer.r#match())),
        "allow_list": layer.allow_list,
        "deny_list": layer.deny_list,
    })
}

/// Which template was used.
pub(super) fn source(source: &TemplateSource) -> Value {
    json!({
        "scope": name(names::scope(source.scope())),
        "dialect": name(names::dialect(source.dialect())),
        "path": source.path,
        "digest": source.digest,
        "shadowed": source.shadowed,
    })
}

/// Converts the origins of values, keyed by field name.
pub(super) fn origins<'a>(origins: impl IntoIterator<Item = (&'a String, &'a i32)>) -> Value {
    origins
        .into_iter()
        .map(|(field, origin)| {
            let origin = ValueOrigin::try_from(*origin).unwrap_or_default();
            (field.clone(), name(names::value_origin(origin)))
        })
        .collect()
}

fn block(block: &PromptBlock) -> Value {
    json!({
        "kind": name(names::block_kind(block.kind())),
        "text": block.text,
        "sha256": block.sha256,
    })
}

/// Converts a resolved spawn.
pub(crate) fn resolved(resolved: &ResolvedSpawn) -> Value {
    json!({
        "agent_type": resolved.agent_type,
        "agent_name": resolved.agent_name,
        "agent_description": resolved.agent_description,
        "instructions": resolved.instructions,
        "instructions_mode": name(names::instructions_mode(resolved.instructions_mode())),
        "blocks": list(&resolved.blocks, block),
        "model": resolved.model,
        "reasoning_effort": resolved.reasoning_effort,
        "provider": resolved.provider,
        "endpoint": resolved.endpoint,
        "parameters": resolved.parameters,
        "origins": origins(&resolved.origins),
        "sandbox": name(names::sandbox(resolved.sandbox())),
        "tool_policy": optional(resolved.tool_policy.as_ref(), policy),
        "grant_list": resolved.grant_list,
        "spawn_list": resolved.spawn_list,
        "edge_management": name(names::edge_management(resolved.edge_management())),
        "capabilities": resolved.capabilities,
        "source": optional(resolved.source.as_ref(), source),
        "warnings": resolved.warnings,
        "resolved_digest": resolved.resolved_digest,
    })
}
