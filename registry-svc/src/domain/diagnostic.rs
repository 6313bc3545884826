//! What is wrong or odd with template files, in words for their authors.

use crate::domain::template::Dialect;

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file cannot be used, or not for everything.
    Error,
    /// It works, but probably not as its author meant it.
    Warning,
}

/// One finding in a file's text. Which file it is, whoever has the text knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The line, from 1. `None`: the file as a whole.
    pub line: Option<usize>,
    /// How serious it is.
    pub severity: Severity,
    /// What is wrong, with the value.
    pub message: String,
    /// What to do about it.
    pub suggestion: Option<String>,
}

impl Finding {
    /// A finding of severity error.
    #[must_use]
    pub fn error(line: Option<usize>, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, line, message)
    }

    /// A finding of severity warning.
    #[must_use]
    pub fn warning(line: Option<usize>, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, line, message)
    }

    /// Adds what to do about it.
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
    /// The path; `embedded:...` for the embedded templates.
    pub path: String,
    /// The format in which a file was read; `None` for a directory.
    pub dialect: Option<Dialect>,
    /// What was found.
    pub finding: Finding,
}

impl Diagnostic {
    /// The order in which findings are shown: by path, line, then text.
    #[must_use]
    pub fn sort_key(&self) -> (&str, Option<usize>, &str) {
        (&self.path, self.finding.line, &self.finding.message)
    }
}
