//! The graph dialect.
#![no_main]

use libfuzzer_sys::fuzz_target;
use registry_svc::domain::{graph, lint::LintKind};

fuzz_target!(|bytes: &[u8]| {
    troupe_fuzz::templates::lint("fuzzed.md", LintKind::Graph, bytes);
    let Ok(text) = str::from_utf8(bytes) else { return };
    if let Ok(template) = &graph::parse(text).template {
        troupe_fuzz::templates::template(template);
        // The preamble contains all declarations.
        let plain = text.strip_prefix('\u{feff}').unwrap_or(text);
        let opener = plain.lines().map(str::trim).find(|line| !line.is_empty());
        assert!(opener == Some("[template]") || template.capabilities.is_empty());
    }
});
