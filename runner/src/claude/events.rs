//! Converts Claude Code's report of a turn to events of an agent.

use serde_json::Value;
use tool_policy::NativeTools;
use troupe_proto::supervisor::v1::ToolUse;

use crate::{
    agent::{AgentEvent, TurnEnding},
    provider_access::provider_error,
    redact,
    usage::{Tokens, millionths, percentage_left, sum},
};

/// Returns the events for a piece of an answer. Each piece is complete.
pub(super) fn piece(piece: &Value) -> Vec<AgentEvent> {
    let text = |key: &str| piece[key].as_str().unwrap_or_default().to_owned();
    match piece["type"].as_str() {
        Some("text") => vec![AgentEvent::Output(text("text")), AgentEvent::MessageEnd],
        Some("thinking") => vec![
            AgentEvent::Activity("thinking".to_owned()),
            AgentEvent::Reasoning(text("thinking")),
            AgentEvent::MessageEnd,
        ],
        _ => Vec::new(),
    }
}

/// Returns the end of a call, from a piece of the message that answers it.
pub(super) fn result(piece: &Value) -> Option<AgentEvent> {
    let id = piece["tool_use_id"]
        .as_str()
        .filter(|_| piece["type"] == "tool_result")?;
    let parts = piece["content"].as_array().into_iter().flatten();
    let parts: Vec<&str> = parts.filter_map(|part| part["text"].as_str()).collect();
    let text = piece["content"]
        .as_str()
        .map_or_else(|| parts.join("\n"), str::to_owned);
    Some(AgentEvent::tool_ended(id, piece["is_error"] == true, &text))
}

/// Returns the event for a call of one of Claude Code's own tools, from the hook's data. The model's
/// request may be incomplete.
pub(super) fn used(tool: &str, input: &Value) -> ToolUse {
    let text = |key: &str| input[key].as_str().unwrap_or_default();
    let name = NativeTools::CLAUDE.canonical(tool).unwrap_or(tool);
    let one_file = |added, changed| redact::patch(added, changed, 0, &[text("file_path").to_owned()]);
    let detail = match tool {
        "Bash" => redact::detail(text("command")),
        "Write" => one_file(1, 0),
        "Edit" => one_file(0, 1),
        "Read" => redact::detail(text("file_path")),
        "WebFetch" => redact::url(text("url")),
        "WebSearch" => redact::detail(&format!("search: {}", text("query"))),
        _ => redact::arguments_in_line(input),
    };
    redact::tool_use(name, &detail)
}

/// Returns the files that a call of one of Claude Code's own tools writes.
pub(super) fn written(tool: &str, input: &Value) -> Vec<String> {
    let key = match tool {
        "Edit" | "Write" | "MultiEdit" => "file_path",
        "NotebookEdit" => "notebook_path",
        _ => return Vec::new(),
    };
    input[key].as_str().map(str::to_owned).into_iter().collect()
}

/// Returns the activity that displays a failure of the provider after which the program tries again.
pub(super) fn retry(incoming: &Value) -> AgentEvent {
    let status = incoming["error_status"].as_u64().map(|status| status.to_string());
    let failure = status.unwrap_or_else(|| incoming["error"].as_str().unwrap_or("unknown").to_owned());
    let attempt = incoming["attempt"]
        .as_u64()
        .and_then(|attempt| u32::try_from(attempt).ok());
    AgentEvent::Activity(provider_error(&failure, attempt.unwrap_or(1)))
}

/// Returns the tokens of a turn's calls from its result, or the tokens of one call from its message.
pub(super) fn tokens(incoming: &Value) -> Tokens {
    let number = |key: &str| incoming["usage"][key].as_u64().unwrap_or_default();
    let cached_input = number("cache_read_input_tokens");
    Tokens {
        input: sum([
            number("input_tokens"),
            number("cache_creation_input_tokens"),
            cached_input,
        ]),
        cached_input,
        output: number("output_tokens"),
        cost: 0,
    }
}

/// Returns the usage of all models since the session began, and its cost. The usage includes calls that the program
/// makes for its own purposes.
pub(super) fn of_models(result: &Value) -> Tokens {
    let models = result["modelUsage"].as_object().into_iter().flatten();
    let cost = Tokens {
        cost: millionths(result["total_cost_usd"].as_f64()),
        ..Tokens::default()
    };
    models.fold(cost, |total, (_, model)| {
        let number = |key: &str| model[key].as_u64().unwrap_or_default();
        let cached_input = number("cacheReadInputTokens");
        total.plus(Tokens {
            input: sum([number("inputTokens"), number("cacheCreationInputTokens"), cached_input]),
            cached_input,
            output: number("outputTokens"),
            cost: 0,
        })
    })
}

/// Returns the unused part of the context after a model call, as a percentage.
pub(super) fn context_left(usage: &Value, window: u64) -> Option<u32> {
    let number = |key: &str| usage[key].as_u64().unwrap_or_default();
    let used = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"].map(number);
    percentage_left(sum(used), window)
}

/// Returns the largest context size of the models that a turn used.
pub(super) fn window(result: &Value) -> Option<u64> {
    let models = result["modelUsage"].as_object()?;
    models
        .values()
        .filter_map(|model| model["contextWindow"].as_u64())
        .max()
}

/// Returns how a turn ended. A failure of the provider has the subtype `success` with `is_error`.
pub(super) fn ending(result: &Value) -> (TurnEnding, String) {
    let text = result["result"].as_str().unwrap_or_default().to_owned();
    let aborted = result["terminal_reason"]
        .as_str()
        .is_some_and(|why| why.starts_with("aborted"));
    if result["is_error"] != true {
        return (TurnEnding::Completed, text);
    }
    if aborted {
        return (TurnEnding::Interrupted, String::new());
    }
    let errors = result["errors"].as_array().into_iter().flatten();
    let errors: Vec<&str> = errors.filter_map(Value::as_str).collect();
    let message = if text.is_empty() { errors.join("; ") } else { text };
    (TurnEnding::Errored, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tool_uses_have_canonical_names_and_short_details() {
        for (tool, input, name, detail) in [
            ("Bash", json!({"command": "ls -l"}), "exec_command", "ls -l"),
            (
                "Edit",
                json!({"file_path": "/w/a"}),
                "apply_patch",
                "A:0 M:1 D:0 (1 files): /w/a",
            ),
            (
                "WebFetch",
                json!({"url": "https://x/y?key=1"}),
                "web_search",
                "open: https://x/y",
            ),
            ("mcp__troupe__wait", json!({"ids": ["a"]}), "wait", "{\"ids\":[\"a\"]}"),
            ("New", json!({"password": "p"}), "New", "{\"password\":\"<redacted>\"}"),
        ] {
            let used = used(tool, &input);
            assert_eq!((used.name.as_str(), used.detail.as_str()), (name, detail));
        }
        assert!(used(&"x".repeat(5_000), &json!({})).name.len() < 200);
    }

    #[test]
    fn retry_names_the_status_and_the_attempt() {
        let incoming = json!({"subtype": "api_retry", "attempt": 2, "error_status": 429, "error": "rate_limit"});
        assert_eq!(
            retry(&incoming),
            AgentEvent::Activity("provider error 429, attempt 2".to_owned())
        );
        let incoming = json!({"subtype": "api_retry", "error": "timeout"});
        assert_eq!(
            retry(&incoming),
            AgentEvent::Activity("provider error timeout, attempt 1".to_owned())
        );
    }

    #[test]
    fn result_decides_turn_ending() {
        for (result, expected) in [
            (
                json!({"is_error": false, "result": "done"}),
                (TurnEnding::Completed, "done"),
            ),
            (
                json!({"is_error": true, "subtype": "success", "result": "API Error: 500", "terminal_reason": "api_error"}),
                (TurnEnding::Errored, "API Error: 500"),
            ),
            (
                json!({"is_error": true, "result": null, "terminal_reason": "aborted_tools", "errors": ["x"]}),
                (TurnEnding::Interrupted, ""),
            ),
            (
                json!({"is_error": true, "errors": ["a", "b"]}),
                (TurnEnding::Errored, "a; b"),
            ),
        ] {
            let (ending, message) = ending(&result);
            assert_eq!((ending, message.as_str()), expected, "{result}");
        }
    }

    #[test]
    fn cached_tokens_count_as_input() {
        let result = json!({
            "usage": {"input_tokens": 5, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 3, "output_tokens": 4},
            "modelUsage": {"a": {"contextWindow": 100}, "b": {"contextWindow": 1000}},
        });
        let spent = tokens(&result);
        assert_eq!((spent.input, spent.cached_input, spent.output), (10, 3, 4));
        assert_eq!(window(&result), Some(1000));
        assert_eq!(context_left(&result["usage"], 40), Some(75));
        assert_eq!(context_left(&result["usage"], 0), None);
    }

    #[test]
    fn single_file_tools_report_written_path() {
        assert_eq!(written("Write", &json!({"file_path": "/a"})), ["/a"]);
        assert!(written("Bash", &json!({"command": "rm a"})).is_empty());
    }
}
