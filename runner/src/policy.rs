//! A thread's policy, ready to be asked.

use tool_policy::{Layer, MatchMode, Policy, PolicyError};
use troupe_proto::common::v1::{self as common, ToolPolicy};

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

/// What to say of tools that a policy allows and that a read-only thread is not offered; `None`: there are none.
pub(crate) fn gap_of_withheld(tools: &[&str]) -> Option<String> {
    (!tools.is_empty()).then(|| {
        format!(
            "read-only it is not offered {}, which its policy allows: they would have the network that its model is on",
            tools.join(", ")
        )
    })
}
