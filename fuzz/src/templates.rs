//! What has to hold of every text, whatever dialect it is read in.

use registry_svc::domain::{
    diagnostic::{Diagnostic, Finding},
    lint::{LintKind, lint_text},
    template::Template,
};

/// More is said about no file: an author reads a list, not a flood.
const MAX_MESSAGE_BYTES: usize = 64 * 1024;

/// Lints the bytes, twice, and looks at what was found.
pub fn lint(path: &str, kind: LintKind, bytes: &[u8]) -> Vec<Diagnostic> {
    let found = lint_text(path, kind, bytes);
    assert_eq!(found, lint_text(path, kind, bytes), "two readings differ");
    for diagnostic in &found {
        assert_eq!(diagnostic.path, path);
        finding(&diagnostic.finding);
    }
    found
}

/// Looks at one finding.
pub fn finding(finding: &Finding) {
    assert!(!finding.message.trim().is_empty(), "a finding without a text");
    assert!(
        finding.message.len() <= MAX_MESSAGE_BYTES,
        "a finding that repeats the file"
    );
    // How far a line may be is not checked: YAML knows more line breaks than we do.
    assert_ne!(finding.line, Some(0), "lines count from 1");
}

/// Looks at a template that was read from a text.
pub fn template(template: &Template) {
    for persona in &template.personas {
        assert!(!persona.prompt.trim().is_empty(), "a persona without a text");
        assert!(!persona.name.is_empty(), "a persona without a name");
    }
    let sorted = template.personas.windows(2).all(|pair| pair[0].name < pair[1].name);
    assert!(sorted, "personas are sorted and each is there once");
    for list in [&template.tools.allow, &template.tools.deny, &template.grant_list] {
        assert!(list.iter().all(|entry| !entry.trim().is_empty()), "a blank pattern");
    }
    if let Some(prompt) = &template.default_prompt {
        assert!(!prompt.trim().is_empty(), "a blank prompt is none");
    }
}
