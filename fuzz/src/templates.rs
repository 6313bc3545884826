//! Invariants of every text in every dialect.

use registry_svc::domain::{
    diagnostic::{Diagnostic, Finding},
    lint::{KnownNames, LintKind, lint_text},
    template::Template,
};

/// Maximum size of a finding's message, in bytes. A message does not repeat the file.
const MAX_MESSAGE_BYTES: usize = 64 * 1024;

/// Lints the bytes twice and checks the findings.
pub fn lint(path: &str, kind: LintKind, bytes: &[u8]) -> Vec<Diagnostic> {
    let known = KnownNames {
        roles: Some(Vec::new()),
        ..KnownNames::default()
    };
    let found = lint_text(path, kind, bytes, &known);
    assert_eq!(
        found,
        lint_text(path, kind, bytes, &known),
        "linting the same text twice gives different results"
    );
    for diagnostic in &found.diagnostics {
        assert_eq!(diagnostic.path, path);
        finding(&diagnostic.finding);
    }
    found.diagnostics
}

/// Checks a finding.
pub fn finding(finding: &Finding) {
    assert!(!finding.message.trim().is_empty(), "a finding without a text");
    assert!(
        finding.message.len() <= MAX_MESSAGE_BYTES,
        "a finding that repeats the file"
    );
    // No upper bound is checked, because YAML has additional line breaks.
    assert_ne!(finding.line, Some(0), "lines count from 1");
}

/// Checks a template that was read from a text.
pub fn template(template: &Template) {
    for persona in &template.personas {
        assert!(!persona.prompt.trim().is_empty(), "a persona without a text");
        assert!(!persona.name.is_empty(), "a persona without a name");
    }
    let sorted = template.personas.windows(2).all(|pair| pair[0].name < pair[1].name);
    assert!(sorted, "personas are sorted and unique");
    for list in [&template.tools.allow, &template.tools.deny, &template.grant_list] {
        assert!(list.iter().all(|entry| !entry.trim().is_empty()), "a blank pattern");
    }
    if let Some(prompt) = &template.default_prompt {
        assert!(!prompt.trim().is_empty(), "a blank prompt counts as absent");
    }
}
