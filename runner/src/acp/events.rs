//! Converts messages of the Agent Client Protocol to events of an agent. Programs use different terms for the same
//! thing and omit different fields.

use std::path::Path;

use serde_json::{Value, json};
use troupe_proto::supervisor::v1::ToolUse;

use crate::{
    agent::TurnEnding,
    programs::Profile,
    redact,
    text::cut,
    usage::{Tokens, millionths, percentage_left, sum},
};

/// Maximum length of a tool name, in bytes. A truncated name does not match any offered tool.
const MAX_NAME_BYTES: usize = 256;

/// Returns the tool name of a call, as the program spells it. OpenCode sends it as the title of the first update of a
/// call, and uses later titles for other text. Gemini CLI includes it only in the id.
pub(super) fn tool(profile: Profile, call: &Value) -> Option<String> {
    let name = match profile {
        Profile::OpenCode => call["title"].as_str()?,
        Profile::Gemini => call["toolCallId"].as_str()?.split_once("__")?.0,
    };
    (!name.is_empty()).then(|| cut(name.to_owned(), MAX_NAME_BYTES))
}

/// Returns the arguments of a call as far as the program reports them.
pub(super) fn arguments(profile: Profile, call: &Value) -> Value {
    let raw = &call["rawInput"];
    if raw.as_object().is_some_and(|fields| !fields.is_empty()) {
        return raw.clone();
    }
    let title = call["title"].as_str().unwrap_or_default();
    match (profile, call["kind"].as_str()) {
        (_, _) if title.is_empty() => json!({}),
        (Profile::Gemini, Some("execute")) => json!({"command": title}),
        (Profile::Gemini, _) => json!({"title": title}),
        (Profile::OpenCode, _) => json!({}),
    }
}

/// Returns the absolute paths that a call would write. Empty: unknown.
pub(super) fn written(call: &Value, directory: &Path) -> Vec<String> {
    if call["kind"] != "edit" {
        return Vec::new();
    }
    let places = call["locations"].as_array().into_iter().flatten();
    let diffs = call["content"].as_array().into_iter().flatten();
    let mut paths: Vec<String> = places
        .chain(diffs)
        .filter_map(|place| place["path"].as_str())
        .map(|path| directory.join(path).to_string_lossy().into_owned())
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

/// Returns a call in its displayed form.
pub(super) fn used(profile: Profile, tool: &str, arguments: &Value) -> ToolUse {
    let text = |key: &str| arguments[key].as_str();
    let ours = profile.supervisor_tool(tool);
    let native = profile.native();
    let name = ours.unwrap_or_else(|| native.canonical(tool).unwrap_or(tool));
    let file = text("filePath").or_else(|| text("filepath"));
    let detail = match (ours, name) {
        (None, "exec_command") => redact::detail(text("command").unwrap_or_default()),
        (None, "apply_patch" | "write_file") => match file.or_else(|| text("title")) {
            Some(file) => redact::patch(0, 1, 0, &[file.to_owned()]),
            None => String::new(),
        },
        (None, "read_file" | "list_dir" | "grep_files") => redact::detail(
            file.or_else(|| text("title"))
                .or_else(|| text("pattern"))
                .unwrap_or_default(),
        ),
        (None, "web_search") => match text("url") {
            Some(url) => redact::url(url),
            None => redact::arguments_in_line(arguments),
        },
        _ => redact::arguments_in_line(arguments),
    };
    redact::tool_use(name, &detail)
}

/// Returns the text of a call's result as far as the program reports it.
pub(super) fn result(update: &Value) -> String {
    let parts = update["content"].as_array().into_iter().flatten();
    let parts: Vec<&str> = parts.filter_map(|part| part["content"]["text"].as_str()).collect();
    if !parts.is_empty() {
        return parts.join("\n");
    }
    let raw = &update["rawOutput"];
    let output = raw.as_str().or_else(|| raw["output"].as_str());
    let error = raw["error"].as_str();
    output.or(error).unwrap_or_default().to_owned()
}

/// Returns the tokens of a prompt as far as the program reports them. Gemini CLI reports the tokens of all model calls.
/// OpenCode reports only those of the last model call, without the cached input.
pub(super) fn tokens(result: &Value) -> Tokens {
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let usage = &result["usage"];
    if usage.is_object() {
        let cached_input = number(&usage["cachedReadTokens"]);
        return Tokens {
            input: sum([
                number(&usage["inputTokens"]),
                number(&usage["cachedWriteTokens"]),
                cached_input,
            ]),
            cached_input,
            output: sum([number(&usage["outputTokens"]), number(&usage["thoughtTokens"])]),
            cost: 0,
        };
    }
    let count = &result["_meta"]["quota"]["token_count"];
    Tokens {
        input: number(&count["input_tokens"]),
        cached_input: 0,
        output: number(&count["output_tokens"]),
        cost: 0,
    }
}

/// Returns the tokens and the cost of one step, with its id. OpenCode reports them in a notification of
/// [`settings::USAGE_PLUGIN`](super::settings::USAGE_PLUGIN).
pub(super) fn step(params: &Value) -> Option<(String, Tokens)> {
    let tokens = &params["tokens"];
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let cached_input = number(&tokens["cache"]["read"]);
    let spent = Tokens {
        input: sum([
            number(&tokens["input"]),
            number(&tokens["cache"]["write"]),
            cached_input,
        ]),
        cached_input,
        output: sum([number(&tokens["output"]), number(&tokens["reasoning"])]),
        cost: millionths(params["cost"].as_f64()),
    };
    Some((params["id"].as_str()?.to_owned(), spent))
}

/// Returns the tokens of one call, with its id, from an entry of the log in which Gemini CLI records a conversation.
pub(super) fn recorded_call(entry: &Value) -> Option<(String, Tokens)> {
    let tokens = entry["tokens"].as_object()?;
    let number = |key: &str| tokens.get(key).and_then(Value::as_u64).unwrap_or_default();
    let spent = Tokens {
        input: sum([number("input"), number("tool")]),
        cached_input: number("cached"),
        output: sum([number("output"), number("thoughts")]),
        cost: 0,
    };
    Some((entry["id"].as_str()?.to_owned(), spent))
}

/// Returns the names of unknown tools whose calls Gemini CLI has refused, from an entry of that log.
pub(super) fn unknown_tools(entry: &Value) -> Vec<String> {
    let parts = entry["content"].as_array().into_iter().flatten();
    let refused = parts.map(|part| &part["functionResponse"]).filter(|result| {
        let error = result["response"]["error"].as_str();
        error.is_some_and(|error| error.starts_with("Tool \"") && error.ends_with("\" not found in registry."))
    });
    refused
        .filter_map(|result| result["name"].as_str().map(str::to_owned))
        .collect()
}

/// Returns the results of calls from an entry of that log, each with the id of its call.
pub(super) fn recorded_results(entry: &Value) -> Vec<(String, String)> {
    let parts = entry["content"].as_array().into_iter().flatten();
    let results = parts.map(|part| &part["functionResponse"]).filter_map(|result| {
        let response = &result["response"];
        let text = response["output"].as_str().or_else(|| response["error"].as_str())?;
        Some((result["id"].as_str()?.to_owned(), text.to_owned()))
    });
    results.collect()
}

/// Returns the unused part of the context, as a percentage.
pub(super) fn context_left(update: &Value) -> Option<u32> {
    percentage_left(update["used"].as_u64()?, update["size"].as_u64()?)
}

/// Returns how a prompt ended, and a message if it is not the agent's last message.
pub(super) fn ending(answer: &Value) -> (TurnEnding, String) {
    if let Some(error) = answer.get("error") {
        return (TurnEnding::Errored, failure(error));
    }
    match answer["result"]["stopReason"].as_str() {
        Some("end_turn") => (TurnEnding::Completed, String::new()),
        Some("cancelled") => (TurnEnding::Interrupted, String::new()),
        Some("max_tokens") => (
            TurnEnding::Errored,
            "the answer reached the model's limit of tokens".to_owned(),
        ),
        Some("max_turn_requests") => (
            TurnEnding::Errored,
            "the turn reached the program's limit of calls".to_owned(),
        ),
        Some("refusal") => (TurnEnding::Errored, "the model refused to continue".to_owned()),
        other => (
            TurnEnding::Errored,
            format!("the turn ended by {:?}", other.unwrap_or_default()),
        ),
    }
}

/// Returns an error as displayed text. Gemini CLI forwards the provider's error unchanged.
pub(super) fn failure(error: &Value) -> String {
    let message = error["message"].as_str().unwrap_or("the turn failed");
    let providers: Option<Value> = serde_json::from_str(message).ok();
    let inner = providers
        .as_ref()
        .and_then(|value| value["error"]["message"].as_str())
        .unwrap_or(message);
    match error["data"]["errorName"].as_str() {
        Some(name) => format!("{inner} ({name})"),
        None => inner.to_owned(),
    }
}

/// Returns the answer to a permission request: allow once or reject once. Options with a lasting effect are never
/// chosen.
pub(super) fn outcome(options: &Value, allow: bool) -> Value {
    let kind = if allow { "allow_once" } else { "reject_once" };
    let mut options = options.as_array().into_iter().flatten();
    let chosen = options.find(|option| option["kind"] == kind);
    match chosen.and_then(|option| option["optionId"].as_str()) {
        Some(id) => json!({"outcome": {"outcome": "selected", "optionId": id}}),
        None => cancelled(),
    }
}

/// Returns the answer to a permission request whose turn is being interrupted.
pub(super) fn cancelled() -> Value {
    json!({"outcome": {"outcome": "cancelled"}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_is_identified_by_first_title_or_id() {
        let call = json!({"toolCallId": "call_1", "title": "bash"});
        assert_eq!(tool(Profile::OpenCode, &call).as_deref(), Some("bash"));
        let call = json!({"toolCallId": "run_shell_command__run_shell_command_17_0", "title": "touch zz"});
        assert_eq!(tool(Profile::Gemini, &call).as_deref(), Some("run_shell_command"));
        assert_eq!(tool(Profile::Gemini, &json!({"toolCallId": "x"})), None);
        let long = tool(Profile::OpenCode, &json!({"title": "x".repeat(5_000)})).unwrap_or_default();
        assert_eq!(long.len(), MAX_NAME_BYTES);
        assert!(used(Profile::OpenCode, &long, &json!({})).name.len() < 200);
    }

    #[test]
    fn tool_uses_have_canonical_names_and_short_details() {
        for (profile, tool, arguments, name, detail) in [
            (
                Profile::OpenCode,
                "bash",
                json!({"command": "ls -l", "cwd": "/w"}),
                "exec_command",
                "ls -l",
            ),
            (
                Profile::OpenCode,
                "write",
                json!({"filePath": "/w/a", "content": "x"}),
                "apply_patch",
                "A:0 M:1 D:0 (1 files): /w/a",
            ),
            (
                Profile::OpenCode,
                "troupe_wait",
                json!({"ids": ["a"]}),
                "wait",
                "{\"ids\":[\"a\"]}",
            ),
            (
                Profile::Gemini,
                "run_shell_command",
                json!({"command": "touch zz"}),
                "exec_command",
                "touch zz",
            ),
            (
                Profile::Gemini,
                "read_file",
                json!({"title": "a.txt"}),
                "read_file",
                "a.txt",
            ),
            (
                Profile::OpenCode,
                "new",
                json!({"password": "p"}),
                "new",
                "{\"password\":\"<redacted>\"}",
            ),
        ] {
            let used = used(profile, tool, &arguments);
            assert_eq!((used.name.as_str(), used.detail.as_str()), (name, detail));
        }
    }

    #[test]
    fn edit_call_reports_written_paths() {
        let call = json!({
            "kind": "edit",
            "locations": [{"path": "/w/b"}],
            "content": [{"type": "diff", "path": "/w/b"}, {"type": "diff", "path": "c"}],
        });
        assert_eq!(written(&call, Path::new("/w")), ["/w/b", "/w/c"]);
        let call = json!({"kind": "execute", "locations": [{"path": "/w"}]});
        assert!(written(&call, Path::new("/w")).is_empty());
    }

    #[test]
    fn arguments_come_from_raw_input_or_title() {
        let call = json!({"title": "touch zz", "kind": "execute"});
        assert_eq!(arguments(Profile::Gemini, &call), json!({"command": "touch zz"}));
        let call = json!({"title": "bash", "rawInput": {"command": "x"}});
        assert_eq!(arguments(Profile::OpenCode, &call), json!({"command": "x"}));
    }

    #[test]
    fn usage_of_opencode_and_gemini_is_parsed() {
        let opencode = json!({"usage": {
            "inputTokens": 800, "outputTokens": 15, "totalTokens": 1320, "thoughtTokens": 5, "cachedReadTokens": 500,
        }});
        let spent = tokens(&opencode);
        assert_eq!((spent.input, spent.cached_input, spent.output), (1300, 500, 20));
        let gemini = json!({"_meta": {"quota": {"token_count": {"input_tokens": 7500, "output_tokens": 90}}}});
        let spent = tokens(&gemini);
        assert_eq!((spent.input, spent.cached_input, spent.output), (7500, 0, 90));
        let step = step(&json!({"id": "p", "tokens": {
            "input": 500, "output": 15, "reasoning": 5, "cache": {"read": 400, "write": 100},
        }}));
        let (id, spent) = step.unwrap_or_default();
        assert_eq!(
            (id.as_str(), spent.input, spent.cached_input, spent.output),
            ("p", 1000, 400, 20)
        );
        assert_eq!(recorded_call(&json!({"id": "u", "type": "user"})), None);
        assert_eq!(context_left(&json!({"used": 1300, "size": 100_000})), Some(98));
        assert_eq!(context_left(&json!({"used": 1})), None);
    }

    #[test]
    fn prompt_response_decides_turn_ending() {
        for (answer, expected) in [
            (
                json!({"result": {"stopReason": "end_turn"}}),
                (TurnEnding::Completed, ""),
            ),
            (
                json!({"result": {"stopReason": "cancelled"}}),
                (TurnEnding::Interrupted, ""),
            ),
            (
                json!({"error": {"code": -32603, "message": "Internal error: no", "data": {"errorName": "APIError"}}}),
                (TurnEnding::Errored, "Internal error: no (APIError)"),
            ),
            (
                json!({"error": {"code": 400, "message": "{\"error\":{\"code\":400,\"message\":\"bad\"}}"}}),
                (TurnEnding::Errored, "bad"),
            ),
        ] {
            let (ending, message) = ending(&answer);
            assert_eq!((ending, message.as_str()), expected, "{answer}");
        }
    }

    #[test]
    fn permission_is_granted_once() {
        let options = json!([
            {"optionId": "always", "kind": "allow_always"},
            {"optionId": "once", "kind": "allow_once"},
            {"optionId": "reject", "kind": "reject_once"},
        ]);
        assert_eq!(outcome(&options, true)["outcome"]["optionId"], "once");
        assert_eq!(outcome(&options, false)["outcome"]["optionId"], "reject");
        assert_eq!(outcome(&json!([]), true), cancelled());
    }
}
