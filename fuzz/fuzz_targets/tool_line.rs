//! `tool_call` lines: a line of an agent program is either text, or a call that survives serialization.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::json;
use troupe_runner::tool_line::{self, WorkspaceTool};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let _ = tool_line::holds_call(text);
    for line in text.lines() {
        let Some(call) = tool_line::parse(line) else { continue };
        assert!(!call.name.is_empty(), "a call without a name");
        assert_eq!(call.name, call.name.trim());
        assert_eq!(call.id, call.id.trim());

        let written = json!({"tool_call": {"id": call.id, "name": call.name, "args": call.args}}).to_string();
        let again = tool_line::parse(&written).expect("a serialized call is parsed");
        assert_eq!((&again.id, &again.name), (&call.id, &call.name));
        // Only keys are compared, because the last digit of a number may change.
        assert!(again.args.keys().eq(call.args.keys()));
        assert!(again.warning.is_none(), "a valid call has no warning");
        assert!(tool_line::holds_call(&written));

        if let Some(tool) = WorkspaceTool::named(&call.name) {
            assert!(call.keeps_order());
            match tool.read(call.args) {
                Ok(call) => assert_eq!(call.tool, tool),
                Err(error) => assert!(error.to_string().starts_with(tool.name()), "{error}"),
            }
        }
    }
});
