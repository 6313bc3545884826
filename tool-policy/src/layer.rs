//! One origin's allow list and deny list, as data.

use std::fmt;

use crate::pattern::{MatchMode, PatternError};

/// How many patterns a list may have.
pub const MAX_PATTERNS: usize = 1000;

/// What one origin (the session's ceiling, a role, a grant list) says about tools.
///
/// An empty allow list restricts nothing; deny beats allow; "nothing is allowed" is the deny pattern `*`, which means
/// that in every mode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Layer {
    /// Where it comes from, as a user would say it: `role "worker"`.
    pub origin: String,
    /// How its patterns match.
    pub mode: MatchMode,
    /// Patterns of allowed tools. An empty list allows every tool.
    pub allow: Vec<String>,
    /// Patterns of denied tools.
    pub deny: Vec<String>,
}

impl Layer {
    /// Returns the layer under which nothing is allowed.
    #[must_use]
    pub fn nothing(origin: impl Into<String>) -> Self {
        Self {
            origin: origin.into(),
            mode: MatchMode::Glob,
            allow: Vec::new(),
            deny: vec!["*".to_owned()],
        }
    }

    /// Returns a layer of a test's role.
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

/// Which list of a layer.
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
    /// A list has a bad pattern.
    #[error("{list} of {origin}: {error}")]
    Pattern {
        /// Where the layer comes from.
        origin: String,
        /// Which of its lists.
        list: ListKind,
        /// The defect of the pattern.
        error: PatternError,
    },
    /// A list is longer than [`MAX_PATTERNS`].
    #[error("{list} of {origin} has {count} patterns; at most {max} are allowed, use wildcards", max = MAX_PATTERNS)]
    TooManyPatterns {
        /// Where the layer comes from.
        origin: String,
        /// Which of its lists.
        list: ListKind,
        /// How many patterns it has.
        count: usize,
    },
}
