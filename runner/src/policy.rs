//! A thread's policy, ready to be asked.

use std::collections::BTreeMap;

use tool_policy::{Layer, MatchMode, Policy, PolicyError};
use troupe_proto::common::v1::{self as common, ToolPolicy};

use crate::text::one_line;

/// How much of a parameter's value is shown, in characters.
const MAX_VALUE_CHARS: usize = 80;

/// Compiles the policy that the supervisor sent. A layer that matches in a way of a newer release allows nothing.
///
/// # Errors
///
/// A pattern that cannot be used: the thread must not start then.
pub(crate) fn compile(policy: &ToolPolicy) -> Result<Policy, PolicyError> {
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
    Policy::compile(layers.collect())
}

/// What to say of a reasoning effort that a program does not apply.
pub(crate) fn gap_of_effort(effort: &str, program: &str) -> String {
    format!("reasoning_effort \"{effort}\" is not applied: {program} has no such effort for the model")
}

/// What to say of parameters of a role that a program does not apply; `None`: it applies all of them.
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

/// What to say of tools that a policy allows and that a read-only thread is not offered; `None`: there are none.
pub(crate) fn gap_of_withheld(tools: &[&str]) -> Option<String> {
    (!tools.is_empty()).then(|| {
        format!(
            "read-only it is not offered {}, which its policy allows: they would have the network that its model is on",
            tools.join(", ")
        )
    })
}
