//! The messages of the demo's agents. The sample agent executes these lines as commands.

use serde_json::{Value, json};

/// Returns the line that makes the sample agent call a tool.
fn tool_call(name: &str, args: &Value) -> String {
    json!({ "tool_call": { "name": name, "args": args } }).to_string()
}

/// Returns the line that makes the sample agent wait for the agents that it spawned.
fn wait_for_spawned() -> String {
    tool_call("wait", &json!({ "ids": ["$spawned"] }))
}

/// The line that makes the sample agent stay in its turn until it is stopped.
const HOLD: &str = "hold";

/// Returns the line that makes the sample agent spawn an agent.
fn spawn(agent_type: &str, label: &str, message: &str) -> String {
    tool_call(
        "spawn_agent",
        &json!({ "agent_type": agent_type, "label": label, "message": message }),
    )
}

/// Returns the message of orchestrator A, which spawns an explorer and waits for it.
pub(super) fn finder() -> String {
    let explorer = "Find where nothing happens.";
    format!(
        "Find out where nothing happens.\n{}\n{}",
        spawn("explorer", "scout", explorer),
        wait_for_spawned()
    )
}

/// Returns the message of orchestrator B, which spawns another orchestrator that tries to delegate in turn.
pub(super) fn delegator() -> String {
    let grandchild = format!(
        "Delegate this.\n{}",
        spawn("explorer", "too deep", "This task is never started.")
    );
    format!(
        "Have it done.\n{}\n{}",
        spawn("orchestrator", "deputy", &grandchild),
        wait_for_spawned()
    )
}

/// Returns the message of the worker. Its role does not allow it to spawn agents.
pub(super) fn worker() -> String {
    format!(
        "Do it, or have it done.\n{}",
        spawn("explorer", "not mine to spawn", "This task is never started.")
    )
}

/// Returns the message of the reviewer, which is still running when the session is closed.
pub(super) fn holder() -> String {
    format!("Review until you are stopped.\n{HOLD}")
}
