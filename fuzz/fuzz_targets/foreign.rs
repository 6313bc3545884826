//! The agent files of other programs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use registry_svc::domain::lint::LintKind;

/// A path for each program: the name and the directory of a file determine its format.
const PATHS: &[&str] = &[
    ".claude/agents/fuzzed.md",
    ".opencode/agents/fuzzed.md",
    ".github/agents/fuzzed.agent.md",
    ".gemini/agents/fuzzed.md",
    ".codex/agents/fuzzed.toml",
];

fuzz_target!(|bytes: &[u8]| {
    for path in PATHS {
        troupe_fuzz::templates::lint(path, LintKind::Foreign, bytes);
    }
});
