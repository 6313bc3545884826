//! Errors and warnings about template files, worded for the authors of the files.

use crate::domain::{dialect::Dialect, finding_kind::FindingKind};

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file cannot be used, or only a part of it can be used.
    Error,
    /// The file can be used, but probably not as its author intended.
    Warning,
}

/// A finding about a file's text. The caller knows which file it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind of problem.
    pub kind: FindingKind,
    /// The line, starting at 1. `None` if the finding is about the whole file.
    pub line: Option<usize>,
    /// The column, in characters from 1. Only lint determines it.
    pub column: Option<u32>,
    /// The severity.
    pub severity: Severity,
    /// The problem, with the offending value.
    pub message: String,
    /// The suggested fix.
    pub suggestion: Option<String>,
    /// The mechanical fix of the line, if there is one.
    pub replacement: Option<Box<Replacement>>,
}

/// A mechanical fix of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The text as written.
    pub from: String,
    /// The corrected text.
    pub to: String,
}

impl Finding {
    /// Returns a finding of severity error.
    #[must_use]
    pub fn error(kind: FindingKind, line: Option<usize>, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, kind, line, message)
    }

    /// Returns a finding of severity warning.
    #[must_use]
    pub fn warning(kind: FindingKind, line: Option<usize>, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, kind, line, message)
    }

    /// Adds a suggested fix.
    #[must_use]
    pub fn suggest(mut self, suggestion: impl Into<String>) -> Self {
        self.suggestion = Some(suggestion.into());
        self
    }

    /// Adds a mechanical fix.
    #[must_use]
    pub fn replace(mut self, from: impl Into<String>, to: impl Into<String>) -> Self {
        self.replacement = Some(Box::new(Replacement {
            from: from.into(),
            to: to.into(),
        }));
        self
    }

    fn new(severity: Severity, kind: FindingKind, line: Option<usize>, message: impl Into<String>) -> Self {
        Self {
            kind,
            line,
            column: None,
            severity,
            message: message.into(),
            suggestion: None,
            replacement: None,
        }
    }
}

/// A finding with the file or directory it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The path, or `embedded:...` for an embedded template.
    pub path: String,
    /// The format in which a file was read; `None` for a directory.
    pub dialect: Option<Dialect>,
    /// The finding.
    pub finding: Finding,
}

impl Diagnostic {
    /// Returns the key that sorts findings for display: path, line, then text.
    #[must_use]
    pub fn sort_key(&self) -> (&str, Option<usize>, &str) {
        (&self.path, self.finding.line, &self.finding.message)
    }
}
