//! A thread's compiled policy.

use std::collections::BTreeMap;

use tool_policy::{Layer, MatchMode, Policy};
use troupe_proto::common::v1::{self as common, ToolPolicy};

use crate::{agent::StartFailure, text::one_line};

/// Maximum length of a displayed parameter value, in characters.
const MAX_VALUE_CHARS: usize = 80;

/// Compiles the policy that the supervisor sent. A layer with an unknown kind of pattern, from a newer release, permits
/// nothing.
///
/// # Errors
///
/// A pattern is invalid. The thread must not start.
pub(crate) fn compile(policy: &ToolPolicy) -> Result<Policy, StartFailure> {
    let layers = policy.layers.iter().map(|layer| {
        let mode = match common::MatchMode::try_from(layer.r#match) {
            Ok(common::MatchMode::Glob | common::MatchMode::Unspecified) => MatchMode::Glob,
            Ok(common::MatchMode::GlobIgnoreCase) => MatchMode::GlobIgnoreCase,
            Ok(common::MatchMode::Literal) => MatchMode::Literal,
            Err(_) => return Layer::nothing(layer.origin.clone()),
        };
        Layer {
            origin: layer.origin.clone(),
            mode,
            allow: layer.allow_list.clone(),
            deny: layer.deny_list.clone(),
        }
    });
    Policy::compile(layers.collect()).map_err(|error| StartFailure::not_enforceable(error.to_string()))
}

/// Returns a policy with one layer of glob patterns.
#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) fn of_lists(allow: &[&str], deny: &[&str]) -> Policy {
    let owned = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
    Policy::compile(vec![Layer {
        origin: "role".to_owned(),
        mode: MatchMode::Glob,
        allow: owned(allow),
        deny: owned(deny),
    }])
    .unwrap()
}

/// Returns the gap to report for a reasoning effort that a program does not apply.
pub(crate) fn gap_of_effort(effort: &str, program: &str) -> String {
    format!("reasoning_effort \"{effort}\" is not applied: {program} has no such effort for the model")
}

/// Returns the gap to report for role parameters that a program does not apply. `None`: it applies all parameters.
pub(crate) fn gap_of_parameters(
    parameters: &BTreeMap<String, String>,
    program: &str,
    applies: impl Fn(&str) -> bool,
) -> Option<String> {
    let left: Vec<String> = parameters
        .iter()
        .filter(|(name, _)| !applies(name))
        .map(|(name, value)| format!("{name}={}", one_line(value, MAX_VALUE_CHARS)))
        .collect();
    (!left.is_empty()).then(|| {
        format!(
            "parameters not applied: {}; {program} has no such settings",
            left.join(", ")
        )
    })
}

/// Returns the gap to report for tools that a policy allows but that a read-only thread is not offered. `None`: there
/// are no such tools.
pub(crate) fn gap_of_withheld(tools: &[&str]) -> Option<String> {
    (!tools.is_empty()).then(|| {
        format!(
            "read-only, it is not offered {}, which its policy allows: these tools would have the network of its model",
            tools.join(", ")
        )
    })
}
