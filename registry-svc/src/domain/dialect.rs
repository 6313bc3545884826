//! The formats in which templates are written.

use std::fmt;

/// The format in which a template is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dialect {
    /// `.codex/.agents/*.md`.
    Role,
    /// `.codex/agents/*.md` with profile keys.
    Profile,
    /// `.codex/agents/*.md` without profile keys.
    Subagent,
    /// `docs/templates/*.md`.
    Graph,
    /// Another program's agent file.
    Foreign,
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Role => "role",
            Self::Profile => "profile",
            Self::Subagent => "subagent",
            Self::Graph => "graph",
            Self::Foreign => "foreign",
        })
    }
}
