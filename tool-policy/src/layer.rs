//! One origin's allow list and deny list, as data.

use std::fmt;

use crate::pattern::{MatchMode, PatternError};

/// Maximum number of patterns in a list.
pub const MAX_PATTERNS: usize = 1000;

/// The tool lists of one origin: the session's ceiling, a role or a grant list.
///
/// An empty allow list restricts nothing. Deny takes precedence over allow. The deny pattern `*` denies every tool in
/// every mode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Layer {
    /// The origin, worded for users: `role "worker"`.
    pub origin: String,
    /// The match mode of the patterns.
    pub mode: MatchMode,
    /// Patterns of allowed tools. An empty list allows every tool.
    pub allow: Vec<String>,
    /// Patterns of denied tools.
    pub deny: Vec<String>,
}

impl Layer {
    /// Returns a layer that denies every tool.
    #[must_use]
    pub fn nothing(origin: impl Into<String>) -> Self {
        Self {
            origin: origin.into(),
            mode: MatchMode::Glob,
            allow: Vec::new(),
            deny: vec!["*".to_owned()],
        }
    }

    /// Returns the layer of a role, for tests.
    #[cfg(test)]
    pub(crate) fn of_role(role: &str, allow: &[&str], deny: &[&str]) -> Self {
        let owned = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
        Self {
            origin: format!("role \"{role}\""),
            mode: MatchMode::Glob,
            allow: owned(allow),
            deny: owned(deny),
        }
    }

    /// Returns whether any list is set.
    #[must_use]
    pub fn restricts(&self) -> bool {
        !(self.allow.is_empty() && self.deny.is_empty())
    }
}

/// One of the two lists of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// `allow_list`.
    Allow,
    /// `deny_list`.
    Deny,
}

impl fmt::Display for ListKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow_list",
            Self::Deny => "deny_list",
        })
    }
}

/// The reason why layers cannot form a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A list has an invalid pattern.
    #[error("{list} of {origin}: {error}")]
    Pattern {
        /// The layer's origin.
        origin: String,
        /// The list.
        list: ListKind,
        /// The defect of the pattern.
        error: PatternError,
    },
    /// A list is longer than [`MAX_PATTERNS`].
    #[error("{list} of {origin} has {count} patterns; at most {max} are allowed, use wildcards", max = MAX_PATTERNS)]
    TooManyPatterns {
        /// The layer's origin.
        origin: String,
        /// The list.
        list: ListKind,
        /// The number of patterns.
        count: usize,
    },
}
