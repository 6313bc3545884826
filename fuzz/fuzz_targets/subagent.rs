//! The subagent dialect.
#![no_main]

use libfuzzer_sys::fuzz_target;
use registry_svc::domain::subagent;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let mut findings = Vec::new();
    if let Ok((name, template)) = subagent::read(text, &mut findings) {
        assert!(name.as_str().len() >= 3, "the name has at least three characters");
        assert!(template.personas.is_empty(), "a subagent has no personas");
        troupe_fuzz::templates::template(&template);
    }
    findings.iter().for_each(troupe_fuzz::templates::finding);
});
