//! The dialect of a file, determined by its location.

use std::path::{self, Path};

use clap::ValueEnum;
use registry_svc::domain::lint::LintKind;

use crate::places;

/// A family of dialects with a common directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    /// `.codex/.agents/*.md`
    Role,
    /// `.codex/agents/*.md`: profiles and subagents, told apart by their keys
    #[value(name = "profile", alias = "subagent")]
    CodexAgent,
    /// `docs/templates/*.md`
    Graph,
    /// Agent files of other programs
    Foreign,
}

impl Kind {
    /// Template directories below a project's directories and below a home, in order of precedence.
    pub(super) const PLACES: &[(&str, Self)] = &[(places::ROLES, Self::Role), (places::PROFILES, Self::CodexAgent)];

    /// Returns the dialect of a file by its directory, or `None` outside of the template directories.
    pub(super) fn of_place(path: &Path) -> Option<Self> {
        let kind = LintKind::of_path(&path::absolute(path).ok()?.display().to_string())?;
        Some(match kind {
            LintKind::Role => Self::Role,
            LintKind::CodexAgent => Self::CodexAgent,
            LintKind::Graph => Self::Graph,
            LintKind::Foreign => Self::Foreign,
        })
    }

    /// Returns the dialect of the files in a directory.
    pub(super) fn of_directory(directory: &Path) -> Option<Self> {
        // Programs use different file names.
        let names = ["x.md", "x.agent.md", "x.toml"];
        names.iter().find_map(|name| Self::of_place(&directory.join(name)))
    }
}

impl From<Kind> for LintKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Role => Self::Role,
            Kind::CodexAgent => Self::CodexAgent,
            Kind::Graph => Self::Graph,
            Kind::Foreign => Self::Foreign,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn location_determines_the_dialect() {
        for (path, kind) in [
            ("/p/.codex/.agents/a.md", Some(Kind::Role)),
            ("/p/.codex/agents/a.md", Some(Kind::CodexAgent)),
            ("/p/docs/templates/a.md", Some(Kind::Graph)),
            ("/p/.claude/agents/a.md", Some(Kind::Foreign)),
            ("/p/.opencode/agent/deep/a.md", Some(Kind::Foreign)),
            ("/p/.github/agents/a.agent.md", Some(Kind::Foreign)),
            ("/p/a.md", None),
        ] {
            assert_eq!(Kind::of_place(Path::new(path)), kind, "{path}");
        }
        assert_eq!(
            Kind::of_directory(Path::new("/p/.codex/agents")),
            Some(Kind::CodexAgent)
        );
        assert_eq!(Kind::of_directory(Path::new("/p/.github/agents")), Some(Kind::Foreign));
        assert_eq!(Kind::of_directory(Path::new("/p")), None);
    }
}
