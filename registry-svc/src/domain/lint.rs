//! Checks of a single text with the registry's rules, without a registry.

use std::{borrow::Cow, path::Path};

pub use crate::domain::encoding::MAX_BYTES;
use crate::domain::{
    diagnostic::Diagnostic,
    encoding,
    family::{Family, FileText},
    foreign::ForeignFormat,
    rules::Rules,
    template::Scope,
};

/// The kind of template to read a text as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LintKind {
    /// `.codex/.agents/*.md`.
    Role,
    /// `.codex/agents/*.md`: the keys determine whether it is a profile or a subagent.
    CodexAgent,
    /// `docs/templates/*.md`.
    Graph,
    /// Another program's agent. The path determines the program; otherwise the text is read as Claude Code's.
    Foreign,
}

impl LintKind {
    /// Returns the kind of a file from its directory. `None` if the directory does not hold templates.
    #[must_use]
    pub fn of_path(path: &str) -> Option<Self> {
        Family::of_path(path).map(|(family, _)| match family {
            Family::Roles => Self::Role,
            Family::Agents => Self::CodexAgent,
            Family::Graph => Self::Graph,
            Family::Foreign(_) => Self::Foreign,
        })
    }

    fn family(self, path: &str) -> Family {
        match self {
            Self::Role => Family::Roles,
            Self::CodexAgent => Family::Agents,
            Self::Graph => Family::Graph,
            Self::Foreign => match Family::of_path(path) {
                Some((family @ Family::Foreign(_), _)) => family,
                Some((Family::Roles | Family::Agents | Family::Graph, _)) | None => {
                    Family::Foreign(ForeignFormat::by_ending(path))
                }
            },
        }
    }
}

/// Returns the registry's findings about a file with this path and text, in order of line. The path identifies the file
/// in the diagnostics and, in dialects where the stem is the name, names the template. No file is read. The rules of an
/// operator (`allowed_endpoints`) are not applied.
#[must_use]
pub fn lint_text(path: &str, kind: LintKind, text: &[u8]) -> Vec<Diagnostic> {
    let family = kind.family(path);
    let file_name = || Path::new(path).file_name()?.to_str();
    let below = match Family::of_path(path) {
        Some((found, below)) if found == family => below,
        Some(_) | None => file_name().unwrap_or(path),
    };
    // A file outside the known directories may have any name.
    let stem = family
        .stem(below)
        .or_else(|| Some(Cow::Borrowed(Path::new(below).file_stem()?.to_str()?)))
        .unwrap_or(Cow::Borrowed(below));
    let text = encoding::decode(text).map_err(|why| why.to_string());
    let file = FileText {
        path,
        stem: &stem,
        // The user scope, whose templates may set every key.
        scope: Scope::User,
        text: text.as_deref().map_err(String::as_str),
    };
    let mut diagnostics: Vec<Diagnostic> = match family.read(file, &Rules::default()) {
        Ok(file) => file.diagnostics().collect(),
        Err(note) => vec![note],
    };
    diagnostics.sort_by(|one, other| one.sort_key().cmp(&other.sort_key()));
    diagnostics
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{diagnostic::Severity, dialect::Dialect};

    fn run(path: &str, kind: LintKind, text: &str) -> Vec<(Option<usize>, String)> {
        lint_text(path, kind, text.as_bytes())
            .into_iter()
            .map(|diagnostic| {
                assert_eq!(diagnostic.path, path);
                (diagnostic.finding.line, diagnostic.finding.message)
            })
            .collect()
    }

    #[test]
    fn sound_files_are_silent() {
        for (path, kind, text) in [
            ("/a/worker.md", LintKind::Role, "---\ndescription: d\n---\nx"),
            ("worker.md", LintKind::CodexAgent, "---\nname: abc\n---\nx"),
            (
                "worker.md",
                LintKind::CodexAgent,
                "---\nagent_type: abc\ndescription: d\nmodel: m\ncolor: red\n---\nx",
            ),
            ("Planner.md", LintKind::Graph, "[template]\nname = \"Planner\"\n\nPlan."),
            ("a.md", LintKind::Foreign, "---\nname: abc\ndescription: d\n---\nx"),
            (
                "a.toml",
                LintKind::Foreign,
                "name = 'abc'\ndescription = 'd'\ndeveloper_instructions = 'x'\n",
            ),
            (
                "p/.gemini/agents/a.md",
                LintKind::Foreign,
                "---\nname: abc\ndescription: d\ntools: [read_file]\n---\nx",
            ),
        ] {
            assert_eq!(run(path, kind, text), [], "{path}");
        }
    }

    #[test]
    fn findings_have_line_and_suggestion() {
        let found = lint_text(
            "worker.md",
            LintKind::Role,
            b"---\ndescription: d\nallow_lst: [a]\n---\nx",
        );
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].dialect, Some(Dialect::Role));
        assert_eq!(found[0].finding.line, Some(3));
        assert_eq!(found[0].finding.severity, Severity::Error);
        assert_eq!(found[0].finding.suggestion.as_deref(), Some("did you mean allow_list?"));
        // Requirements for listing are checked too.
        assert_eq!(
            run("worker.md", LintKind::Role, "x")[0].1,
            "missing required frontmatter description"
        );
    }

    #[test]
    fn bytes_have_bounds() {
        let largest = format!("---\ndescription: d\n---\n{}", "x".repeat(MAX_BYTES - 23));
        assert_eq!(largest.len(), MAX_BYTES);
        assert_eq!(run("a.md", LintKind::Role, &largest), []);
        let message = |bytes: &[u8]| lint_text("a.md", LintKind::Role, bytes)[0].finding.message.clone();
        assert_eq!(
            message(format!("{largest}x").as_bytes()),
            "the file is larger than 1048576 bytes"
        );
        assert_eq!(message(b"ab\xff"), "not valid UTF-8 (byte 2)");
        assert_eq!(message(b"ab\0"), "has a NUL byte (byte 2)");
    }

    #[test]
    fn file_outside_template_directories_has_any_name() {
        assert_eq!(run("-", LintKind::Role, "---\ndescription: d\n---\nx"), [], "a stream");
        assert!(run("no name.md", LintKind::Role, "x")[0].1.starts_with("not used: "));
    }
}
