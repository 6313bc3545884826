//! Converts Codex's report of a turn to events of an agent.

use serde_json::{Map, Value, json};

use crate::{
    agent::{AgentEvent, StartedTool},
    provider_access::provider_error,
    redact,
    usage::{Tokens, percentage_left},
};

/// Returns the event for an item that begins.
pub(super) fn begun(item: &Value) -> Option<AgentEvent> {
    let text = |key: &str| item[key].as_str().unwrap_or_default();
    let (name, detail) = match item["type"].as_str()? {
        "commandExecution" => ("exec_command".to_owned(), redact::detail(command(text("command")))),
        "fileChange" => ("apply_patch".to_owned(), patch(&item["changes"])),
        "dynamicToolCall" => (text("tool").to_owned(), redact::arguments_in_line(&item["arguments"])),
        "mcpToolCall" => (
            format!("{}.{}", text("server"), text("tool")),
            redact::arguments_in_line(&item["arguments"]),
        ),
        "webSearch" => (
            "web_search".to_owned(),
            redact::detail(&format!("search: {}", text("query"))),
        ),
        "reasoning" => return Some(AgentEvent::Activity("thinking".to_owned())),
        _ => return None,
    };
    Some(AgentEvent::ToolUsed(redact::tool_use(&name, &detail)))
}

/// Returns the call of a tool that Codex executes without a hook, from an item that begins.
pub(super) fn started(item: &Value) -> Option<AgentEvent> {
    let text = |key: &str| item[key].as_str().unwrap_or_default();
    let (tool, arguments) = match item["type"].as_str()? {
        "webSearch" => ("web_search".to_owned(), json!({"query": item["query"]})),
        "mcpToolCall" => (
            format!("{}.{}", text("server"), text("tool")),
            item["arguments"].clone(),
        ),
        _ => return None,
    };
    let id = text("id").to_owned();
    Some(AgentEvent::ToolStarted(StartedTool { id, tool, arguments }))
}

/// Returns the end of a call, or a summary of reasoning, from an item that has ended.
pub(super) fn ended(item: &Value) -> Vec<AgentEvent> {
    let failed = matches!(item["status"].as_str(), Some("failed" | "declined"));
    let end = |text: &str| {
        let id = item["id"].as_str().unwrap_or_default();
        vec![AgentEvent::tool_ended(id, failed, text)]
    };
    match item["type"].as_str() {
        Some("commandExecution") => end(item["aggregatedOutput"].as_str().unwrap_or_default()),
        Some("fileChange" | "webSearch") => end(""),
        Some("mcpToolCall") => {
            let parts = item["result"]["content"].as_array().into_iter().flatten();
            let parts: Vec<&str> = parts.filter_map(|part| part["text"].as_str()).collect();
            let error = item["error"]["message"].as_str().unwrap_or_default();
            end(&format!("{}{error}", parts.join("\n")))
        }
        Some("reasoning") => {
            let summary = item["summary"].as_array().into_iter().flatten();
            let summary: Vec<&str> = summary.filter_map(Value::as_str).collect();
            vec![AgentEvent::Reasoning(summary.join("\n")), AgentEvent::MessageEnd]
        }
        _ => Vec::new(),
    }
}

/// Returns the command itself, without the shell that runs it.
fn command(line: &str) -> &str {
    let shell = [" -lc ", " -c "].iter().find_map(|flag| line.split_once(flag));
    let inner = shell.map_or(line, |(_, command)| command);
    let unquoted = inner.strip_prefix('\'').and_then(|inner| inner.strip_suffix('\''));
    unquoted.unwrap_or(inner)
}

fn patch(changes: &Value) -> String {
    let changes = changes.as_array().map(Vec::as_slice).unwrap_or_default();
    let of_kind = |kind: &str| changes.iter().filter(|change| change["kind"]["type"] == kind).count();
    let files: Vec<String> = changes
        .iter()
        .filter_map(|change| change["path"].as_str().map(str::to_owned))
        .collect();
    redact::patch(of_kind("add"), of_kind("update"), of_kind("delete"), &files)
}

/// Returns the tokens of a Codex count.
pub(super) fn tokens(count: &Value) -> Tokens {
    let number = |key: &str| count[key].as_u64().unwrap_or_default();
    Tokens {
        input: number("inputTokens"),
        cached_input: number("cachedInputTokens"),
        output: number("outputTokens"),
        cost: 0,
    }
}

/// Returns a Codex count, the inverse of [`tokens`].
pub(super) fn count(tokens: Tokens) -> Value {
    json!({
        "inputTokens": tokens.input,
        "cachedInputTokens": tokens.cached_input,
        "outputTokens": tokens.output,
    })
}

/// Returns the usage beyond `base`. Codex may report the same numbers several times, which does not change the total.
pub(super) fn spent(usage: &Value, base: Tokens) -> AgentEvent {
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let context_left_percent = usage["modelContextWindow"]
        .as_u64()
        .and_then(|window| percentage_left(number(&usage["last"]["totalTokens"]), window));
    AgentEvent::Spent {
        tokens: tokens(&usage["total"]).minus(base),
        context_left_percent,
    }
}

/// Returns the text of an error that answers a call.
pub(super) fn refusal(error: &Value) -> String {
    error["message"].as_str().unwrap_or("Codex refuses").to_owned()
}

/// Returns the activity that displays a failure of the provider after which Codex tries again.
pub(super) fn retry(error: &Value, attempt: u32) -> AgentEvent {
    let infos = error["codexErrorInfo"].as_object().into_iter().flat_map(Map::values);
    let status = infos.filter_map(|info| info["httpStatusCode"].as_u64()).next();
    let failure = status.map_or_else(|| failure(error), |status| status.to_string());
    AgentEvent::Activity(provider_error(&failure, attempt))
}

/// Returns the text of a failure.
pub(super) fn failure(error: &Value) -> String {
    let message = error["message"].as_str().unwrap_or("the turn failed");
    match error["codexErrorInfo"].as_str() {
        Some(info) if info != "other" => format!("{message} ({info})"),
        _ => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use troupe_proto::supervisor::v1::plan_step::State;

    use super::*;

    fn used(item: &Value) -> (String, String) {
        match begun(item) {
            Some(AgentEvent::ToolUsed(used)) => (used.name, used.detail),
            other => (format!("{other:?}"), String::new()),
        }
    }

    #[test]
    fn tool_uses_have_canonical_names_and_short_details() {
        for (item, name, detail) in [
            (
                json!({"type": "commandExecution", "command": "/bin/bash -lc 'ls -l'"}),
                "exec_command",
                "ls -l",
            ),
            (
                json!({"type": "commandExecution", "command": "/bin/bash -c 'echo hi'"}),
                "exec_command",
                "echo hi",
            ),
            (
                json!({"type": "fileChange", "changes": [
                    {"path": "/w/a", "kind": {"type": "add"}}, {"path": "/w/b", "kind": {"type": "update"}},
                ]}),
                "apply_patch",
                "A:1 M:1 D:0 (2 files): /w/a, /w/b",
            ),
            (
                json!({"type": "dynamicToolCall", "tool": "wait", "arguments": {"token": "x"}}),
                "wait",
                "{\"token\":\"<redacted>\"}",
            ),
        ] {
            assert_eq!(used(&item), (name.to_owned(), detail.to_owned()));
        }
        assert_eq!(begun(&json!({"type": "userMessage"})), None);
        let (name, _) = used(&json!({"type": "dynamicToolCall", "tool": "x".repeat(5_000)}));
        assert!(name.len() < 200, "{name}");
        let steps = vec![json!({"step": "s", "status": "completed"}); 1_000];
        let AgentEvent::Plan(plan) = AgentEvent::plan(&json!(steps), "step") else {
            panic!()
        };
        assert_eq!((plan.len(), plan[0].state()), (64, State::Completed));
        for (status, state) in [
            ("inProgress", State::InProgress),
            ("in_progress", State::InProgress),
            ("pending", State::Pending),
        ] {
            let AgentEvent::Plan(plan) = AgentEvent::plan(&json!([{"step": "s", "status": status}]), "step") else {
                panic!()
            };
            assert_eq!(plan[0].state(), state);
        }
    }

    #[test]
    fn usage_is_total_and_context_is_of_last_call() {
        let usage = json!({
            "total": {"inputTokens": 2100, "cachedInputTokens": 1000, "outputTokens": 40},
            "last": {"totalTokens": 250}, "modelContextWindow": 1000,
        });
        let expected = AgentEvent::Spent {
            tokens: Tokens {
                input: 2100,
                cached_input: 1000,
                output: 40,
                cost: 0,
            },
            context_left_percent: Some(75),
        };
        assert_eq!(spent(&usage, Tokens::default()), expected);
        let total = tokens(&usage["total"]);
        assert_eq!(tokens(&count(total)), total);
        let base = tokens(&json!({"inputTokens": 2000, "cachedInputTokens": 1000, "outputTokens": 50}));
        let AgentEvent::Spent { tokens, .. } = spent(&usage, base) else {
            panic!()
        };
        assert_eq!(
            (tokens.input, tokens.cached_input, tokens.output),
            (100, 0, 0),
            "the usage after a thread was resumed"
        );
        assert!(matches!(
            spent(&json!({}), Tokens::default()),
            AgentEvent::Spent {
                context_left_percent: None,
                ..
            }
        ));
    }

    #[test]
    fn retry_names_the_status_and_the_attempt() {
        let error = json!({"message": "m", "codexErrorInfo": {"responseStreamDisconnected": {"httpStatusCode": 503}}});
        let shown = |error: &Value| match retry(error, 3) {
            AgentEvent::Activity(text) => text,
            other => format!("{other:?}"),
        };
        assert_eq!(shown(&error), "provider error 503, attempt 3");
        assert_eq!(shown(&json!({"message": "m"})), "provider error m, attempt 3");
    }

    #[test]
    fn failure_names_kind_if_informative() {
        let failed = |info: &str| failure(&json!({"message": "m", "codexErrorInfo": info}));
        assert_eq!(failed("contextWindowExceeded"), "m (contextWindowExceeded)");
        assert_eq!(failed("other"), "m");
    }
}
