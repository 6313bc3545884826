//! One origin's allow list and deny list: as data, and compiled.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::decision::DeniedBy;
use crate::pattern::{MatchMode, PatternError, PatternSet};

/// How many patterns a list may have.
pub const MAX_PATTERNS: usize = 1000;

/// What one origin (the session's ceiling, a role, a grant list) says about tools. This is the form on the wire and in
/// the log.
///
/// An empty allow list restricts nothing; deny beats allow; "nothing is allowed" is the deny pattern `*`, which means
/// that in every mode. A field that this version does not know is an error when a layer is read: it might restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Where it comes from, as a user would say it: `role "worker"`.
    pub origin: String,
    /// How its patterns match.
    pub mode: MatchMode,
    /// What may be used; empty: everything.
    #[serde(default)]
    pub allow: Vec<String>,
    /// What may not.
    #[serde(default)]
    pub deny: Vec<String>,
}

impl Layer {
    /// The layer under which nothing is allowed.
    #[must_use]
    pub fn nothing(origin: impl Into<String>) -> Self {
        Self {
            origin: origin.into(),
            mode: MatchMode::Glob,
            allow: Vec::new(),
            deny: vec!["*".to_owned()],
        }
    }

    /// Whether any list is set.
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

/// Why layers are no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A list has a bad pattern.
    #[error("{list} of {origin}: {error}")]
    Pattern {
        /// Where the layer comes from.
        origin: String,
        /// Which of its lists.
        list: ListKind,
        /// What is wrong with the pattern.
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

/// The lists of a layer, ready to decide. An empty list is `None`.
#[derive(Debug)]
pub(crate) struct Lists {
    denies_everything: bool,
    allow: Option<PatternSet>,
    deny: Option<PatternSet>,
}

impl Lists {
    pub(crate) fn compile(layer: &Layer) -> Result<Self, PolicyError> {
        Ok(Self {
            denies_everything: layer.deny.iter().any(|pattern| pattern == "*"),
            allow: compile_list(layer, ListKind::Allow, &layer.allow)?,
            deny: compile_list(layer, ListKind::Deny, &layer.deny)?,
        })
    }

    /// What says no to a tool that goes by all of `names`: denied if one of them is denied, allowed if one of them is
    /// allowed. `layer` is the one compiled; with `only_explicit`, silence of a layer that restricts is a no.
    pub(crate) fn refusal(&self, layer: &Layer, names: &[&str], only_explicit: bool) -> Option<DeniedBy> {
        if self.denies_everything {
            return Some(DeniedBy::DenyList("*".to_owned()));
        }
        if let Some(deny) = &self.deny {
            for name in names {
                if deny.is_match(name) {
                    let pattern = deny.position(name).and_then(|position| layer.deny.get(position));
                    return Some(DeniedBy::DenyList(pattern.cloned().unwrap_or_default()));
                }
            }
        }
        match &self.allow {
            Some(allow) if names.iter().any(|name| allow.is_match(name)) => None,
            Some(_) if only_explicit => Some(DeniedBy::UnknownTool),
            Some(_) => Some(DeniedBy::NotInAllowList),
            None if only_explicit && self.deny.is_some() => Some(DeniedBy::UnknownTool),
            None => None,
        }
    }
}

fn compile_list(layer: &Layer, list: ListKind, patterns: &[String]) -> Result<Option<PatternSet>, PolicyError> {
    if patterns.is_empty() {
        return Ok(None);
    }
    if patterns.len() > MAX_PATTERNS {
        return Err(PolicyError::TooManyPatterns {
            origin: layer.origin.clone(),
            list,
            count: patterns.len(),
        });
    }
    match PatternSet::compile(layer.mode, patterns) {
        Ok(set) => Ok(Some(set)),
        Err(error) => Err(PolicyError::Pattern {
            origin: layer.origin.clone(),
            list,
            error,
        }),
    }
}
