//! Errors and warnings about template files, worded for the authors of the files.

use crate::domain::dialect::Dialect;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file cannot be used, or only in part.
    Error,
    /// The file can be used, but probably not as its author intended.
    Warning,
}

/// A finding about a file's text. The caller knows which file it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The line, starting at 1. `None` if the finding is about the whole file.
    pub line: Option<usize>,
    /// How serious it is.
    pub severity: Severity,
    /// The problem, with the offending value.
    pub message: String,
    /// The suggested fix.
    pub suggestion: Option<String>,
}

impl Finding {
    /// Returns a finding of severity error.
    #[must_use]
    pub fn error(line: Option<usize>, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, line, message)
    }

    /// Returns a finding of severity warning.
    #[must_use]
    pub fn warning(line: Option<usize>, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, line, message)
    }

    /// Adds a suggested fix.
    #[must_use]
    pub fn suggest(mut self, suggestion: impl Into<String>) -> Self {
        self.suggestion = Some(suggestion.into());
        self
    }

    fn new(severity: Severity, line: Option<usize>, message: impl Into<String>) -> Self {
        Self {
            line,
            severity,
            message: message.into(),
            suggestion: None,
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
