//! Tool policies.

use tool_policy::{Layer, MatchMode, Policy};
use troupe_proto::common::v1 as common;

use super::{
    enums::WireEnum as _,
    error::{DecodeError, malformed, required},
};

/// A layer as the API has it.
#[must_use]
pub fn layer_to_proto(layer: &Layer) -> common::ToolPolicyLayer {
    common::ToolPolicyLayer {
        origin: layer.origin.clone(),
        r#match: layer.mode.number(),
        allow_list: layer.allow.clone(),
        deny_list: layer.deny.clone(),
    }
}

/// A layer from its message. Its patterns are checked where they are compiled.
///
/// # Errors
/// A way of matching that is not known: it might restrict.
pub fn layer_from_proto(layer: common::ToolPolicyLayer) -> Result<Layer, DecodeError> {
    Ok(Layer {
        origin: layer.origin,
        mode: MatchMode::from_number(layer.r#match)?,
        allow: layer.allow_list,
        deny: layer.deny_list,
    })
}

/// A policy as the API has it.
#[must_use]
pub fn to_proto(policy: &Policy) -> common::ToolPolicy {
    common::ToolPolicy {
        layers: policy.layers().map(layer_to_proto).collect(),
    }
}

/// The layers of a policy's message.
///
/// # Errors
/// As for [`layer_from_proto`].
pub fn layers_from_proto(policy: common::ToolPolicy) -> Result<Vec<Layer>, DecodeError> {
    policy.layers.into_iter().map(layer_from_proto).collect()
}

/// Parses the permissions of a thread and of its children from a record. The children's default to the thread's own.
///
/// # Errors
/// The errors of [`from_proto`], and an error if the thread's own policy is missing. A missing policy would permit
/// everything, so it is never used as a default.
pub(super) fn stored_rights(
    effective: Option<common::ToolPolicy>,
    grant: Option<common::ToolPolicy>,
) -> Result<(Policy, Policy), DecodeError> {
    let effective = from_proto(required(effective, "the tool policy")?)?;
    let grant = match grant {
        Some(grant) => from_proto(grant)?,
        None => effective.clone(),
    };
    Ok((effective, grant))
}

/// A policy from its message.
///
/// # Errors
/// As for [`layer_from_proto`], and if a list has bad patterns or too many.
pub fn from_proto(policy: common::ToolPolicy) -> Result<Policy, DecodeError> {
    Policy::compile(layers_from_proto(policy)?).map_err(|error| malformed(error.to_string()))
}
