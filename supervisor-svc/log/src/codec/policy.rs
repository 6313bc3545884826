//! Conversion of tool policies.

use tool_policy::{Layer, MatchMode, Policy};
use troupe_proto::common::v1 as common;

use super::{
    enums::WireEnum as _,
    error::{DecodeError, malformed, required},
};

/// Converts a layer to its message.
#[must_use]
pub fn layer_to_proto(layer: &Layer) -> common::ToolPolicyLayer {
    common::ToolPolicyLayer {
        origin: layer.origin.clone(),
        r#match: layer.mode.number(),
        allow_list: layer.allow.clone(),
        deny_list: layer.deny.clone(),
    }
}

/// Converts a layer from its message. Does not check the patterns. They are checked when they are compiled.
///
/// # Errors
/// If the match mode is unknown. An unknown mode must not be ignored, because it can be more restrictive.
pub fn layer_from_proto(layer: common::ToolPolicyLayer) -> Result<Layer, DecodeError> {
    Ok(Layer {
        origin: layer.origin,
        mode: MatchMode::from_number(layer.r#match)?,
        allow: layer.allow_list,
        deny: layer.deny_list,
    })
}

/// Converts a policy to its message.
#[must_use]
pub fn to_proto(policy: &Policy) -> common::ToolPolicy {
    common::ToolPolicy {
        layers: policy.layers().map(layer_to_proto).collect(),
    }
}

/// Converts the layers of a policy's message.
///
/// # Errors
/// As for [`layer_from_proto`].
pub fn layers_from_proto(policy: common::ToolPolicy) -> Result<Vec<Layer>, DecodeError> {
    policy.layers.into_iter().map(layer_from_proto).collect()
}

/// Parses the permissions of a thread and of its children from a record. If the permissions of the children are
/// missing, they equal the thread's own.
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

/// Converts a policy from its message.
///
/// # Errors
/// As for [`layer_from_proto`], and if a list has malformed patterns or too many patterns.
pub fn from_proto(policy: common::ToolPolicy) -> Result<Policy, DecodeError> {
    Policy::compile(layers_from_proto(policy)?).map_err(|error| malformed(error.to_string()))
}
