//! What the demo's agents are told. The sample agent obeys these lines; a model would find its own.

use serde_json::{Value, json};

/// A line by which the sample agent calls a tool.
fn tool_call(name: &str, args: &Value) -> String {
    json!({ "tool_call": { "name": name, "args": args } }).to_string()
}

/// A line by which the sample agent waits for what it spawned.
fn wait_for_spawned() -> String {
    tool_call("wait", &json!({ "ids": ["$spawned"] }))
}

/// A line by which the sample agent stays in its turn until it is stopped.
const HOLD: &str = "hold";

/// Somebody to be spawned by an agent.
fn spawn(agent_type: &str, label: &str, message: &str) -> String {
    tool_call(
        "spawn_agent",
        &json!({ "agent_type": agent_type, "label": label, "message": message }),
    )
}

/// Orchestrator A: an explorer does the work, and A waits for it.
pub(super) fn finder() -> String {
    let explorer = "Find where nothing happens.";
    format!(
        "Find out where nothing happens.\n{}\n{}",
        spawn("explorer", "scout", explorer),
        wait_for_spawned()
    )
}

/// Orchestrator B: hands everything to another orchestrator, which tries to do the same.
pub(super) fn delegator() -> String {
    let grandchild = format!(
        "Delegate this.\n{}",
        spawn("explorer", "too deep", "Nobody will read this.")
    );
    format!(
        "Have it done.\n{}\n{}",
        spawn("orchestrator", "deputy", &grandchild),
        wait_for_spawned()
    )
}

/// The worker: its role lets it work, not delegate.
pub(super) fn worker() -> String {
    format!(
        "Do it, or have it done.\n{}",
        spawn("explorer", "not mine to spawn", "Nobody will read this.")
    )
}

/// The reviewer: still at it when the session is closed.
pub(super) fn holder() -> String {
    format!("Review until you are stopped.\n{HOLD}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    /// The tool calls of a message: lines that are JSON objects.
    fn calls(message: &str) -> Vec<Value> {
        message
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    #[test]
    fn a_call_is_one_line_even_inside_another() {
        let outer = calls(&delegator());
        assert_eq!(outer.len(), 2);
        let inner = outer[0]["tool_call"]["args"]["message"].as_str().unwrap();
        assert_eq!(calls(inner)[0]["tool_call"]["name"], "spawn_agent");
    }
}
