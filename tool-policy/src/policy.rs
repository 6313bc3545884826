//! Combinations of layers: a tool is allowed if every layer allows it.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::canonical::{ANSWER_TOOLS, MCP_PREFIX, NativeTools};
use crate::compiled::CompiledLayer;
use crate::decision::Decision;
use crate::layer::{Layer, PolicyError};

/// A compiled policy that decides which tools may be used. Cheap to clone.
///
/// A policy is equivalent to its list of layers: it is compared, logged and stored as that list. Duplicate layers, and
/// layers that restrict nothing, are omitted, so policies do not grow without bound in a deep tree.
#[derive(Clone, Default)]
pub struct Policy {
    layers: Arc<Vec<Arc<CompiledLayer>>>,
}

/// Returns whether a layer must be added to these layers. A layer that restricts nothing, or that is already one of
/// them, is omitted.
fn adds(layers: &[Arc<CompiledLayer>], layer: &Layer) -> bool {
    layer.restricts() && !layers.iter().any(|known| known.layer() == layer)
}

impl Policy {
    /// Returns the policy that allows every tool.
    #[must_use]
    pub fn unrestricted() -> Self {
        Self::default()
    }

    /// Returns the policy that allows the tools that every layer allows.
    ///
    /// # Errors
    ///
    /// If a list has an invalid pattern or too many patterns.
    pub fn compile(layers: Vec<Layer>) -> Result<Self, PolicyError> {
        let mut joined = Vec::new();
        for layer in layers {
            if adds(&joined, &layer) {
                joined.push(CompiledLayer::of(&layer)?);
            }
        }
        Ok(Self {
            layers: Arc::new(joined),
        })
    }

    /// Returns the layers in the order of evaluation.
    #[must_use]
    pub fn layers(&self) -> impl ExactSizeIterator<Item = &Layer> {
        self.layers.iter().map(|layer| layer.layer())
    }

    /// Returns whether every tool is allowed.
    #[must_use]
    pub fn is_unrestricted(&self) -> bool {
        self.layers.is_empty()
    }

    /// Returns whether the tool of that canonical name may be used.
    #[must_use]
    pub fn allows(&self, tool: &str) -> bool {
        ANSWER_TOOLS.contains(&tool) || self.layers.iter().all(|layer| layer.allows(tool))
    }

    /// Returns whether the tool of that canonical name may be used and, if not, why.
    #[must_use]
    pub fn decide(&self, tool: &str) -> Decision {
        self.decide_names(&[tool], false)
    }

    /// Returns this policy with an additional layer.
    ///
    /// # Errors
    ///
    /// If a list of the layer has an invalid pattern or too many patterns.
    pub fn and(&self, layer: &Layer) -> Result<Self, PolicyError> {
        let mut joined = self.clone();
        if adds(&self.layers, layer) {
            Arc::make_mut(&mut joined.layers).push(CompiledLayer::of(layer)?);
        }
        Ok(joined)
    }

    /// Returns the policy that allows the tools that both policies allow.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let mut joined = self.clone();
        for layer in other.layers.iter() {
            if adds(&joined.layers, layer.layer()) {
                Arc::make_mut(&mut joined.layers).push(Arc::clone(layer));
            }
        }
        joined
    }

    /// Returns whether the policy denies every one of the tools.
    #[must_use]
    pub fn allows_none_of(&self, tools: &[&str]) -> bool {
        !tools.iter().any(|tool| self.allows(tool))
    }

    /// Returns whether the policy allows a tool of an MCP server that one of its layers names. The tools of a server
    /// are not known here, so a pattern is tested with the shortest name that it matches. A pattern without the MCP
    /// prefix does not count, because an unknown name may be a misspelling.
    fn allows_mcp_tool(&self) -> bool {
        let named = self.layers().flat_map(|layer| &layer.allow);
        let mut of_servers = named.filter(|text| text.starts_with(MCP_PREFIX));
        of_servers.any(|text| self.allows(&text.replace('*', "").replace('?', "_")))
    }

    /// Returns a warning if this policy of a child allows none of `tools` and no tool of an MCP server.
    #[must_use]
    pub fn no_tools_warning(&self, tools: &[&str], agent_type: &str) -> Option<String> {
        if tools.is_empty() || !self.allows_none_of(tools) || self.allows_mcp_tool() {
            return None;
        }
        Some(format!(
            "agent_type \"{agent_type}\" has no tools: its own lists allow none of the tools that its parent may pass on; \
             add a grant_list with the needed tools to the parent's template, or widen the allow_list"
        ))
    }

    /// Returns whether a program's own tool may be used, by its native and its canonical name.
    #[must_use]
    pub fn decide_native(&self, tools: &NativeTools, native: &str) -> Decision {
        match tools.canonical(native) {
            Some(canonical) if canonical != native => self.decide_names(&[native, canonical], false),
            Some(_) => self.decide_names(&[native], false),
            None => self.decide_names(&[native], true),
        }
    }

    /// Decides whether a tool that has all of these names may be used; see [`CompiledLayer::refusal`].
    fn decide_names(&self, names: &[&str], only_explicit: bool) -> Decision {
        if names.iter().any(|name| ANSWER_TOOLS.contains(name)) {
            return Decision::Allowed;
        }
        for layer in self.layers.iter() {
            if let Some(cause) = layer.refusal(names, only_explicit) {
                return Decision::Denied {
                    origin: layer.layer().origin.clone(),
                    cause,
                };
            }
        }
        Decision::Allowed
    }
}

impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.layers, &other.layers) || self.layers().eq(other.layers())
    }
}

impl Eq for Policy {}

impl Hash for Policy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for layer in self.layers() {
            layer.hash(state);
        }
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.layers()).finish()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;
    use crate::decision::DeniedBy;
    use crate::layer::{ListKind, MAX_PATTERNS};
    use crate::pattern::{MatchMode, PatternError};

    fn layer(mode: MatchMode, allow: &[&str], deny: &[&str]) -> Layer {
        Layer {
            mode,
            ..glob(allow, deny)
        }
    }

    fn glob(allow: &[&str], deny: &[&str]) -> Layer {
        Layer::of_role("r", allow, deny)
    }

    fn policy(layers: &[Layer]) -> Policy {
        Policy::compile(layers.to_vec()).unwrap()
    }

    #[test]
    fn deny_takes_precedence_over_allow_in_layer() {
        for (allow, deny, tool, expected) in [
            (&[] as &[&str], &[] as &[&str], "wait", true),
            (&["wait"], &[], "wait", true),
            (&["wait"], &[], "spawn_agent", false),
            (&[], &["wait"], "wait", false),
            (&[], &["wait"], "spawn_agent", true),
            (&["*"], &["wait"], "wait", false),
            (&["wait"], &["wait"], "wait", false),
            (&["wait"], &["*"], "wait", false),
            (&[], &["*"], "anything", false),
            (&["mcp*"], &["mcp__x__*"], "mcp__x__y", false),
            (&["mcp*"], &["mcp__x__*"], "mcp__y__y", true),
        ] {
            let policy = policy(&[glob(allow, deny)]);
            assert_eq!(policy.allows(tool), expected, "{allow:?} {deny:?} {tool}");
            assert_eq!(policy.decide(tool).is_allowed(), expected, "{allow:?} {deny:?} {tool}");
        }
    }

    #[test]
    fn policies_intersect_by_tool_name() {
        let parent = policy(&[glob(&["mcp__a"], &[])]);
        for child in [
            parent.and(&glob(&["mcp*"], &[])).unwrap(),
            policy(&[glob(&["mcp*"], &[])]).intersect(&parent),
        ] {
            assert!(child.allows("mcp__a"));
            for other in ["mcp", "mcp*", "mcp__b", "mcp__ab", "wait"] {
                assert!(!child.allows(other), "{other}");
            }
        }
    }

    #[test]
    fn each_layer_matches_in_its_own_mode() {
        let mixed = policy(&[
            layer(MatchMode::GlobIgnoreCase, &["EXEC*", "Wait"], &[]),
            layer(MatchMode::Literal, &["exec", "wait"], &[]),
        ]);
        assert!(mixed.allows("exec_command"));
        assert!(mixed.allows("wait"));
        assert!(!mixed.allows("WAIT"), "the literal layer does not contain the tool");
    }

    #[test]
    fn denied_star_denies_all_tools_in_every_mode() {
        for mode in [MatchMode::Glob, MatchMode::GlobIgnoreCase, MatchMode::Literal] {
            let nothing = policy(&[layer(mode, &["wait"], &["x", "*"])]);
            assert!(!nothing.allows("wait"));
            assert!(!nothing.allows(""));
        }
        assert!(!policy(&[Layer::nothing("the session")]).allows("wait"));
    }

    #[test]
    fn refusal_names_first_layer_and_reason() {
        let mut ceiling = glob(&["a*", "wait"], &[]);
        ceiling.origin = "the session's tool_ceiling".to_owned();
        let joined = policy(&[ceiling, glob(&[], &["x", "ab*", "a*"])]);
        assert_eq!(joined.decide("wait"), Decision::Allowed);
        let denied = joined.decide("abc");
        let cause = DeniedBy::DenyList("ab*".to_owned());
        assert_eq!(
            denied,
            Decision::Denied {
                origin: "role \"r\"".to_owned(),
                cause
            }
        );
        assert_eq!(
            denied.to_string(),
            "denied by role \"r\": its deny_list has \"ab*\"; remove or narrow that pattern to allow the tool"
        );
        assert_eq!(
            joined.decide("x").to_string(),
            "denied by the session's tool_ceiling: its allowed tools do not include the tool; add the tool to them to allow it"
        );
    }

    #[test]
    fn redundant_layer_is_omitted() {
        let base = policy(&[glob(&["a"], &[]), glob(&[], &[]), glob(&["a"], &[])]);
        assert_eq!(base, policy(&[glob(&["a"], &[])]));
        assert_eq!(base.and(&glob(&["a"], &[])).unwrap(), base);
        let other = policy(&[glob(&["b"], &[]), glob(&["a"], &[])]);
        assert_eq!(base.intersect(&other), policy(&[glob(&["a"], &[]), glob(&["b"], &[])]));
        assert_eq!(base.intersect(&base), base);
        assert_eq!(base.intersect(&Policy::unrestricted()), base);
        assert_eq!(Policy::unrestricted().intersect(&base), base);
        assert!(Policy::unrestricted().is_unrestricted());
    }

    #[test]
    fn errors_name_origin_list_and_value() {
        let error = Policy::compile(vec![glob(&[], &["ok", ""])]).unwrap_err();
        assert_eq!(
            error,
            PolicyError::Pattern {
                origin: "role \"r\"".to_owned(),
                list: ListKind::Deny,
                error: PatternError::Empty
            }
        );
        assert_eq!(
            error.to_string(),
            "deny_list of role \"r\": a tool pattern is empty (\"\"); remove it or name a tool"
        );
        let many = ["a"; MAX_PATTERNS + 1];
        let error = Policy::unrestricted().and(&glob(&many, &[])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "allow_list of role \"r\" has 1001 patterns; at most 1000 are allowed, use wildcards"
        );
    }

    #[test]
    fn warning_for_child_without_tools_names_grant_list() {
        let nothing = policy(&[Layer::nothing("the session")]);
        assert!(nothing.allows_none_of(&["wait", "exec_command"]));
        let warning = nothing.no_tools_warning(&["wait"], "worker").unwrap();
        assert!(
            warning.contains("grant_list") && warning.contains("\"worker\""),
            "{warning}"
        );
        let some = policy(&[glob(&["wait"], &[])]);
        assert!(!some.allows_none_of(&["exec_command", "wait"]));
        assert_eq!(some.no_tools_warning(&["exec_command", "wait"], "worker"), None);
        assert_eq!(
            nothing.no_tools_warning(&[], "worker"),
            None,
            "there are no tools to offer"
        );
    }

    #[test]
    fn no_tools_warning_considers_mcp_tools() {
        for (layers, is_warned) in [
            (vec![glob(&["mcp__db__query"], &[])], false),
            (vec![glob(&["mcp__*"], &[]), glob(&["mcp__db_?"], &[])], false),
            (vec![glob(&["wait"], &[]), glob(&["mcp__*"], &[])], true),
            (vec![glob(&["mcp__*"], &["*"])], true),
            (vec![glob(&["wai*"], &["wait"])], true),
            (vec![glob(&["wiat"], &[])], true),
        ] {
            let warning = policy(&layers).no_tools_warning(&["wait"], "worker");
            assert_eq!(warning.is_some(), is_warned, "{layers:?}");
        }
    }
}
