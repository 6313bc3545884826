//! Parses `tool_call` lines of agent programs. Pure.
//!
//! A line is a call if it is exactly one JSON object with the call under `tool_call` (or `toolCall`). Everything else
//! is text, even if it resembles a call: a model that explains a call does not make one. Lines are parsed one by one,
//! so a code fence around a call has no effect.

mod workspace;

use serde_json::{Map, Value};

pub use self::workspace::{ArgumentError, WorkspaceCall, WorkspaceTool};

/// The message to a program whose command printed a call. The program should write the call itself.
pub const CALL_IN_OUTPUT: &str =
    "command output contained tool_call JSON; emit tool_call JSON directly in your assistant response (not via Bash)";

/// The warning about a call whose arguments are under the key `params` instead of `args`.
const PREFER_ARGS: &str = "tool_call JSON used params; prefer args";

/// The keys under which a call can be.
const WRAPPERS: [&str; 2] = ["tool_call", "toolCall"];

/// A call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The id that the agent assigned, trimmed. May be empty.
    pub id: String,
    /// The name of the tool, trimmed and not empty. The tool may not exist.
    pub name: String,
    /// The arguments. May be empty.
    pub args: Map<String, Value>,
    /// A warning about an accepted call, for display.
    pub warning: Option<&'static str>,
}

impl ToolCall {
    /// Returns whether the call must wait for the earlier calls for which this is also true. A model that writes
    /// several calls in one response relies on their order, for example for the alias of a node or for a file.
    #[must_use]
    pub fn keeps_order(&self) -> bool {
        WorkspaceTool::named(&self.name).is_some()
            || matches!(self.name.as_str(), "spawn_node" | "create_edge" | "send_handoff")
    }
}

/// Returns the call that a line contains. `None`: the line is not a call.
#[must_use]
pub fn parse(line: &str) -> Option<ToolCall> {
    take_call(&mut object(line)?)
}

/// Returns whether a line of a command's output resembles a call. This check is more lenient than the check that
/// recognizes calls: the wrapper may be missing, because some models omit it.
#[must_use]
pub fn holds_call(output: &str) -> bool {
    output.lines().filter_map(object).any(|object| {
        let wrapped = WRAPPERS.iter().find_map(|wrapper| object.get(*wrapper)?.as_object());
        let call = wrapped.unwrap_or(&object);
        let is_text = |key: &&str| {
            call.get(*key)
                .and_then(Value::as_str)
                .is_some_and(|text| !text.is_empty())
        };
        let is_object = |key: &&str| call.get(*key).is_some_and(Value::is_object);
        ["name", "tool"].iter().any(is_text) && ["args", "params"].iter().any(is_object)
    })
}

/// Parses the line as a JSON object.
pub(crate) fn object(line: &str) -> Option<Map<String, Value>> {
    let line = line.trim();
    if line.starts_with('{') && line.ends_with('}') {
        serde_json::from_str(line).ok()
    } else {
        None
    }
}

/// Removes the call from an object and returns it.
pub(crate) fn take_call(object: &mut Map<String, Value>) -> Option<ToolCall> {
    let Value::Object(mut call) = WRAPPERS
        .iter()
        .find_map(|wrapper| object.remove(*wrapper).filter(Value::is_object))?
    else {
        return None;
    };
    let name = trimmed(call.remove("name")).filter(|name| !name.is_empty())?;
    let (args, warning) = match (call.remove("args"), call.remove("params")) {
        (Some(Value::Object(args)), _) => (args, None),
        (_, Some(Value::Object(params))) => (params, Some(PREFER_ARGS)),
        (None, None) => (Map::new(), None),
        (Some(_), _) | (None, Some(_)) => return None,
    };
    Some(ToolCall {
        id: trimmed(call.remove("id")).unwrap_or_default(),
        name,
        args,
        warning,
    })
}

fn trimmed(value: Option<Value>) -> Option<String> {
    match value {
        Some(Value::String(text)) => Some(text.trim().to_owned()),
        Some(_) | None => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn call_line_is_parsed() {
        let plain = (None, json!({"path": "a"}));
        let params = (Some(PREFER_ARGS), json!({"path": "a"}));
        let bare = (None, json!({}));
        for (line, id, name, (warning, args)) in [
            (
                r#"{"tool_call":{"id":"1","name":"read_file","args":{"path":"a"}}}"#,
                "1",
                "read_file",
                &plain,
            ),
            (
                r#"  {"toolCall":{"id":" 1 ","name":" read_file ","args":{"path":"a"}}}  "#,
                "1",
                "read_file",
                &plain,
            ),
            (
                r#"{"tool_call":{"name":"read_file","params":{"path":"a"}}}"#,
                "",
                "read_file",
                &params,
            ),
            (
                r#"{"tool_call":{"name":"read_file","args":{"path":"a"},"params":{"path":"b"}}}"#,
                "",
                "read_file",
                &plain,
            ),
            (
                r#"{"tool_call":{"name":"read_file","args":"a","params":{"path":"a"}}}"#,
                "",
                "read_file",
                &params,
            ),
            (
                r#"{"tool_call":"x","toolCall":{"id":7,"name":"list_agents"}}"#,
                "",
                "list_agents",
                &bare,
            ),
            (
                r#"{"tool_call":{"id":"1","name":"no_such_tool"}}"#,
                "1",
                "no_such_tool",
                &bare,
            ),
        ] {
            let call = parse(line);
            let expected = ToolCall {
                id: id.to_owned(),
                name: name.to_owned(),
                args: args.as_object().unwrap().clone(),
                warning: *warning,
            };
            assert_eq!(call, Some(expected), "{line}");
        }
    }

    #[test]
    fn other_line_is_text() {
        for line in [
            "",
            "plain words",
            "```json",
            "{",
            "{}",
            "[1]",
            r#"{"tool_call":{"name":"wait"}"#,
            r#"here you are: {"tool_call":{"name":"wait","args":{}}}"#,
            r#"{"tool_call":{"name":"wait","args":{}}} as I said"#,
            r#"- {"tool_call":{"name":"wait","args":{}}}"#,
            r#"{"tool_call":"wait"}"#,
            r#"{"tool_call":["wait"]}"#,
            r#"{"tool_call":{"name":" ","args":{}}}"#,
            r#"{"tool_call":{"name":7,"args":{}}}"#,
            r#"{"tool_call":{"args":{}}}"#,
            r#"{"tool_call":{"name":"wait","args":[]}}"#,
            r#"{"tool_call":{"name":"wait","args":null}}"#,
            r#"{"tool_call":{"name":"wait","params":"x"}}"#,
            r#"{"name":"wait","args":{}}"#,
            r#"{"tool":"wait","args":{}}"#,
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn call_line_in_command_output_is_parsed() {
        for output in [
            r#"{"tool_call":{"name":"wait","args":{}}}"#,
            "done\r\n  {\"toolCall\":{\"tool\":\"wait\",\"params\":{}}}\r\nbye",
            r#"{"name":"wait","args":{}}"#,
        ] {
            assert!(holds_call(output), "{output}");
        }
        for output in [
            "",
            "{}",
            r#"{"name":"package","version":"1.0.0"}"#,
            r#"{"name":"","args":{}}"#,
            r#"{"tool_call":{"name":"wait"}}"#,
            r#"x {"tool_call":{"name":"wait","args":{}}}"#,
        ] {
            assert!(!holds_call(output), "{output}");
        }
    }

    #[test]
    fn only_listed_tools_keep_call_order() {
        let keeps = |name: &str| {
            let line = json!({"tool_call": {"name": name}}).to_string();
            parse(&line).is_some_and(|call| call.keeps_order())
        };
        for name in ["command", "read_file", "write_file", "list_files", "delete_file"] {
            assert!(keeps(name), "{name}");
        }
        for name in ["spawn_node", "create_edge", "send_handoff"] {
            assert!(keeps(name), "{name}");
        }
        assert!(!keeps("wait"));
    }

    proptest! {
        #[test]
        fn any_line_is_parsed_without_panic(line in "\\PC{0,80}") {
            if let Some(call) = parse(&line) {
                prop_assert!(!call.name.is_empty());
            }
            let _ = holds_call(&line);
        }

        #[test]
        fn any_call_like_line_is_parsed_without_panic(
            wrapper in "tool_call|toolCall|tool",
            id in r#"[0-9]{1,2}|"[a-z ]{0,3}"|null"#,
            name in r#"[0-9]{1,2}|"[a-z_ ]{0,9}"|\{\}"#,
            key in "args|params|arg",
            args in r#"\{\}|\{"path":"[a-z./]{0,4}"\}|\[\]|"x""#,
        ) {
            let line = format!(r#"{{"{wrapper}":{{"id":{id},"name":{name},"{key}":{args}}}}}"#);
            if let Some(call) = parse(&line) {
                prop_assert_eq!(call.name.trim(), call.name.as_str());
                prop_assert_eq!(call.warning.is_some(), key == "params");
                if let Some(tool) = WorkspaceTool::named(&call.name) {
                    prop_assert_eq!(tool.name(), call.name.as_str());
                    let _ = tool.read(call.args);
                }
            }
        }

        #[test]
        fn written_call_is_parsed(id in "[a-z0-9-]{0,8}", name in "[a-z_]{1,12}", content in any::<String>()) {
            let args = json!({"path": "a", "content": content});
            let line = json!({"tool_call": {"id": id, "name": name, "args": args}}).to_string();
            let call = parse(&line).unwrap();
            prop_assert_eq!((call.id, call.name, Value::Object(call.args)), (id, name, args));
            prop_assert!(holds_call(&line));
        }
    }
}
