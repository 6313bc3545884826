//! The profile dialect, and the distinction between profiles and subagents.
#![no_main]

use libfuzzer_sys::fuzz_target;
use registry_svc::domain::{agents, lint::LintKind, profile};

fuzz_target!(|bytes: &[u8]| {
    troupe_fuzz::templates::lint("fuzzed.md", LintKind::CodexAgent, bytes);
    let Ok(text) = str::from_utf8(bytes) else { return };
    let mut findings = Vec::new();
    if let Ok((_, template)) = profile::read(text, &mut findings) {
        troupe_fuzz::templates::template(&template);
    }
    findings.iter().for_each(troupe_fuzz::templates::finding);
    // Reading is deterministic.
    assert_eq!(agents::read("fuzzed", text), agents::read("fuzzed", text));
});
