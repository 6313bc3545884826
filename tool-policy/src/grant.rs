//! Derivation of permissions: the tools that a thread may use, and the tools that it may pass on. Permissions only
//! shrink.
//!
//! ```text
//! grant(root)  = ceiling
//! base(t)      = grant(parent) AND narrowing of the spawn
//! effective(t) = base(t) AND role layers
//! grant(t)     = base(t) AND (grant_list if present, else effective(t))
//! ```

use crate::layer::{Layer, PolicyError};
use crate::pattern::MatchMode;
use crate::policy::Policy;

/// The permissions of a thread, and the limit for its children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// The tools that the thread itself may use.
    pub effective: Policy,
    /// The limit for the permissions of its children. May be wider than `effective`, for example for a coordinator that
    /// only delegates, but never wider than the parent's grant.
    pub grant: Policy,
}

/// A session's `policy_inheritance`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Inheritance {
    /// A thread passes on its own permissions or, with a `grant_list`, the listed tools that its parent and its spawn
    /// allow.
    #[default]
    Attenuate,
    /// Every thread passes on the session's ceiling, and `grant_list` has no effect. A restricted
    /// thread that may spawn can then have children with more tools than itself.
    Ceiling,
}

impl Rights {
    /// Returns the permissions of a session's root.
    #[must_use]
    pub fn root(ceiling: Policy) -> Self {
        Self {
            effective: ceiling.clone(),
            grant: ceiling,
        }
    }

    /// Returns the permissions of a child.
    ///
    /// `parent_grant` is the parent's [`Rights::grant`]. Under [`Inheritance::Ceiling`], it is the session's ceiling
    /// for every thread, because the root has the ceiling and this function passes it on unchanged.
    ///
    /// The role's `grant_list` cannot restore tools that a spawn removed.
    ///
    /// An empty `grant_list` is equivalent to an absent one. The patterns of the list are case-sensitive globs in every
    /// dialect, because `grant_list` is a Troupe key and names canonical tools.
    ///
    /// # Errors
    ///
    /// If a list has an invalid pattern or too many patterns.
    pub fn child(
        parent_grant: &Policy,
        narrowing: Option<&Layer>,
        role: &[Layer],
        grant_list: &[String],
        role_name: &str,
        inheritance: Inheritance,
    ) -> Result<Self, PolicyError> {
        let base = match narrowing {
            Some(layer) => parent_grant.and(layer)?,
            None => parent_grant.clone(),
        };
        let mut effective = base.clone();
        for layer in role {
            effective = effective.and(layer)?;
        }
        let grant = match inheritance {
            Inheritance::Ceiling => parent_grant.clone(),
            Inheritance::Attenuate if grant_list.is_empty() => effective.clone(),
            Inheritance::Attenuate => base.and(&Layer {
                origin: format!("grant_list of role \"{role_name}\""),
                mode: MatchMode::Glob,
                allow: grant_list.to_vec(),
                deny: Vec::new(),
            })?,
        };
        Ok(Self { effective, grant })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    fn owned(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    fn child(parent: &Rights, layer: Layer, grant_list: &[&str], inheritance: Inheritance) -> Rights {
        Rights::child(&parent.grant, None, &[layer], &owned(grant_list), "r", inheritance).unwrap()
    }

    fn root(ceiling: Layer) -> Rights {
        Rights::root(Policy::compile(vec![ceiling]).unwrap())
    }

    #[test]
    fn root_has_ceiling() {
        let root = root(Layer::of_role("ceiling", &[], &["web_search"]));
        assert_eq!(root.effective, root.grant);
        assert!(!root.grant.allows("web_search"));
    }

    #[test]
    fn child_without_grant_list_passes_on_effective_policy() {
        let root = root(Layer::of_role("ceiling", &[], &["web_search"]));
        let parent = child(
            &root,
            Layer::of_role("worker", &[], &["apply_patch"]),
            &[],
            Inheritance::Attenuate,
        );
        assert_eq!(parent.grant, parent.effective);
        let default = Rights::child(&parent.grant, None, &[], &[], "default", Inheritance::Attenuate).unwrap();
        assert!(default.effective.allows("wait"));
        assert!(
            !default.effective.allows("apply_patch"),
            "a child never has a tool that its parent lacks"
        );
        assert!(!default.effective.allows("web_search"));
    }

    #[test]
    fn grant_list_exceeds_coordinator_permissions() {
        let root = root(Layer::of_role("ceiling", &[], &["web_search"]));
        let lead = Layer::of_role("lead", &["spawn_agent", "wait"], &[]);
        let parent = child(&root, lead, &["exec_*", "web_search"], Inheritance::Attenuate);
        assert!(!parent.effective.allows("exec_command"));
        let worker = child(&parent, Layer::of_role("worker", &[], &[]), &[], Inheritance::Attenuate);
        assert!(worker.effective.allows("exec_command"));
        assert!(
            !worker.effective.allows("apply_patch"),
            "the grant list does not contain the tool"
        );
        assert!(
            !worker.effective.allows("web_search"),
            "tools that the ceiling denies cannot be granted"
        );
    }

    #[test]
    fn grant_does_not_widen_narrowed_spawn() {
        let root = root(Layer::of_role("ceiling", &[], &[]));
        let narrowing = Layer::of_role("spawn", &[], &["exec_command"]);
        let child = |grant_list: &[&str], inheritance| {
            Rights::child(
                &root.grant,
                Some(&narrowing),
                &[],
                &owned(grant_list),
                "lead",
                inheritance,
            )
            .unwrap()
        };
        for grant_list in [&[][..], &["exec_*", "wait"]] {
            let lead = child(grant_list, Inheritance::Attenuate);
            assert!(!lead.effective.allows("exec_command") && lead.effective.allows("wait"));
            assert!(!lead.grant.allows("exec_command") && lead.grant.allows("wait"));
        }
        let original = child(&[], Inheritance::Ceiling);
        assert!(!original.effective.allows("exec_command"));
        assert_eq!(original.grant, root.grant);
    }

    #[test]
    fn ceiling_is_passed_on_unchanged() {
        let root = root(Layer::of_role("ceiling", &[], &["web_search"]));
        let parent = child(
            &root,
            Layer::of_role("lead", &["spawn_agent"], &[]),
            &["wait"],
            Inheritance::Ceiling,
        );
        assert_eq!(parent.grant, root.grant);
        assert!(!parent.effective.allows("exec_command"));
        let worker = child(&parent, Layer::of_role("worker", &[], &[]), &[], Inheritance::Ceiling);
        assert!(worker.effective.allows("exec_command"));
        assert!(!worker.effective.allows("web_search"));
    }

    #[test]
    fn chain_of_same_role_does_not_grow() {
        let mut rights = root(Layer::of_role("ceiling", &["*"], &[]));
        for _ in 0..10 {
            rights = child(
                &rights,
                Layer::of_role("worker", &[], &["apply_patch"]),
                &["a*"],
                Inheritance::Attenuate,
            );
        }
        assert_eq!(rights.effective.layers().len(), 3);
        assert_eq!(rights.grant.layers().len(), 2);
    }

    #[test]
    fn invalid_grant_list_error_names_list() {
        let error = Rights::child(
            &Policy::unrestricted(),
            None,
            &[],
            &owned(&[""]),
            "lead",
            Inheritance::Attenuate,
        );
        assert_eq!(
            error.unwrap_err().to_string(),
            "allow_list of grant_list of role \"lead\": a tool pattern is empty (\"\"); remove it or name a tool"
        );
    }
}
