//! The role dialect.
#![no_main]

use libfuzzer_sys::fuzz_target;
use registry_svc::domain::{lint::LintKind, name::AgentType, role};

fuzz_target!(|bytes: &[u8]| {
    troupe_fuzz::templates::lint("fuzzed.md", LintKind::Role, bytes);
    let (Ok(text), Ok(name)) = (str::from_utf8(bytes), AgentType::parse("fuzzed")) else {
        return;
    };
    let parsed = role::parse(&name, text);
    if let Ok(template) = &parsed.template {
        troupe_fuzz::templates::template(template);
        // An explicit restriction is preserved.
        if text.contains("\nread_only: true\n") && text.starts_with("---\nread_only: true\n---\n") {
            assert!(template.read_only);
        }
    }
    // The kind of line ending makes no difference. A lone CR is an ordinary character, so texts with CR are skipped.
    if !text.contains('\r') {
        assert_eq!(parsed, role::parse(&name, &text.replace('\n', "\r\n")));
    }
});
