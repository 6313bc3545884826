//! Tests of operator actions on running sessions: approvals, budgets, pauses, edges and notifications.

use std::fs;

use serde_json::Value;

use crate::support::up::{Up, refused, words};

/// A graph template of the project. It may spawn after an operator's approval.
const LEAD: &str =
    "[template]\nname = \"lead\"\nversion = \"1\"\ncapabilities = [\"edge_management_all\"]\n\nYou lead.\n";

/// The line that makes the sample agent spawn a node.
const SPAWN: &str = r#"{"tool_call":{"name":"spawn_node","args":{"label":"Docs Agent","roleTemplate":"planner"}}}"#;

/// Returns the last eight characters of an id, as shown in tables.
fn short(id: &str) -> &str {
    &id[id.len() - 8..]
}

fn waiting(up: &Up) -> Vec<Value> {
    let listed = up.succeeds(&["approvals"]);
    listed["approvals"].as_array().unwrap().clone()
}

#[test]
fn operator_grants_and_denies_approvals() {
    let up = Up::start();
    let templates = up.home.path().join("docs/templates");
    fs::create_dir_all(&templates).unwrap();
    fs::write(templates.join("lead.md"), LEAD).unwrap();
    assert!(waiting(&up).is_empty());

    let (session, lead) = up.complete(&["--template", "lead", "-m", SPAWN]);
    let asked = waiting(&up);
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(
        (&asked[0]["kind"], &asked[0]["decision"]),
        (
            &Value::from("APPROVAL_KIND_SPAWN"),
            &Value::from("APPROVAL_DECISION_UNSPECIFIED")
        )
    );
    let child = asked[0]["thread_id"].as_str().unwrap();
    let approval = asked[0]["approval_id"].as_str().unwrap();
    let shown = up.text(&["approvals", "--session", &session]);
    assert!(
        shown.starts_with(&format!("{}  SPAWN  thread {}", short(approval), short(child)))
            && shown.contains("\n  Spawn node: Docs Agent (planner)\n"),
        "{shown}"
    );
    let listed = up.text(&["ps"]);
    assert!(
        listed.contains("AWAITING_APPROVAL: `troupe approvals` shows the spawn"),
        "{listed}"
    );

    let granted = up.succeeds(&["approvals", "grant", short(approval), "--reason", "go on"]);
    assert_eq!(
        (&granted["approval"]["decision"], &granted["approval"]["reason"]),
        (&Value::from("APPROVAL_DECISION_GRANTED"), &Value::from("go on"))
    );
    up.succeeds(&["wait", child]);
    refused(&up, &["approvals", "deny", approval], 1, "ILLEGAL_TRANSITION");

    up.succeeds(&["send", &lead, "-m", SPAWN]);
    up.succeeds(&["wait", &lead]);
    let second = waiting(&up).remove(0);
    let approval = second["approval_id"].as_str().unwrap();
    let denied = up.succeeds(&["approvals", "deny", approval, "--session", &session]);
    assert_eq!(denied["approval"]["decision"], "APPROVAL_DECISION_DENIED");
    assert!(waiting(&up).is_empty());
    let all = up.succeeds(&["approvals", "--all"]);
    assert_eq!(all["approvals"].as_array().map(Vec::len), Some(2));
    let (code, unknown) = up.json(&["approvals", "grant", "00000000"]);
    assert_eq!(code, Some(4));
    assert!(
        unknown["error"]["hint"]
            .as_str()
            .unwrap()
            .contains("troupe approvals --all"),
        "{unknown}"
    );
}

#[test]
fn session_settings_are_changed() {
    let up = Up::start();
    let (session, _) = up.complete(&["worker", "-m", "Rest.", "--planning"]);
    let session = session.as_str();
    let listed = up.succeeds(&["ps"]);
    assert_eq!(listed["sessions"][0]["mode"], "MODE_PLANNING");
    assert_eq!(listed["sessions"][0]["stall"]["repeats"], 3, "{listed}");

    let paused = up.succeeds(&["session", "pause", short(session)]);
    assert_eq!(paused["session"]["paused"], true);
    let error = refused(
        &up,
        &["spawn", "worker", "-m", "Not now.", "--session", session],
        3,
        "SESSION_PAUSED",
    );
    assert!(
        error["hint"].as_str().unwrap().contains("troupe session resume"),
        "{error}"
    );
    let shown = up.text(&["ps"]);
    assert!(shown.contains("\npaused: "), "{shown}");
    let resumed = up.succeeds(&["session", "resume", session]);
    assert_eq!(resumed["session"]["paused"], false);
    up.complete(&["worker", "-m", "Now.", "--session", session]);

    let set = |arguments: &[&str]| up.succeeds(&[&["session"][..], arguments].concat())["session"].clone();
    assert_eq!(set(&["mode", session, "implementation"])["mode"], "MODE_IMPLEMENTATION");
    assert_eq!(
        set(&["orchestration", session, "auto"])["orchestration"],
        "ORCHESTRATION_AUTO"
    );
    assert_eq!(
        set(&["edges", session, "self"])["edge_management"],
        "EDGE_MANAGEMENT_SELF"
    );
    assert_eq!(
        set(&["budget", session, "--tokens", "100000"])["budget"]["tokens"],
        100_000
    );
    let watched = up.text(&["session", "close", session, "--wait"]);
    assert!(watched.contains("closed"), "{watched}");
    let log = up.text(&["watch", session, "--after", "0"]);
    for change in [
        "updated  paused",
        "updated  resumed",
        "updated  AUTO",
        "updated  edge management SELF",
        "updated  budget 100000 tokens",
    ] {
        assert!(log.contains(change), "{change} is not in {log}");
    }
}

#[test]
fn closed_session_is_deleted() {
    let up = Up::start();
    let (session, _) = up.complete(&["worker", "-m", "Rest."]);
    let (code, open) = up.json(&["session", "delete", &session]);
    assert_eq!(code, Some(1), "an open one stays: {open}");
    up.succeeds(&["session", "close", &session, "--wait"]);
    let deleted = up.succeeds(&["session", "delete", &session]);
    assert_eq!(deleted["deleted_session_id"], session.as_str());
    let left = up.succeeds(&["ps", "--closed"]);
    assert_eq!(left["sessions"].as_array().map(Vec::len), Some(0), "{left}");
}

#[test]
fn raised_budget_allows_further_turns() {
    let up = Up::start();
    let (_, worker) = up.complete(&["worker", "-m", "One turn.", "--budget-turns", "1"]);
    let error = refused(&up, &["send", &worker, "-m", "Another."], 3, "BUDGET_EXHAUSTED");
    assert!(error["hint"].as_str().unwrap().contains("troupe budget"), "{error}");
    let listed = up.text(&["ps"]);
    assert!(
        listed.contains("COMPLETED  BUDGET_EXHAUSTED") && listed.contains("BUDGET_EXHAUSTED: `troupe budget"),
        "{listed}"
    );
    let raised = up.succeeds(&["budget", &worker, "--turns", "2", "--time", "1h"]);
    assert_eq!(
        (
            &raised["thread"]["budget"]["turns"],
            &raised["thread"]["budget"]["wall_time"]
        ),
        (&Value::from(2), &Value::from("3600s"))
    );
    up.succeeds(&["send", &worker, "-m", "Another."]);
    up.succeeds(&["wait", &worker]);
}

#[test]
fn handoff_is_stored_in_the_mailbox() {
    let up = Up::start();
    let (session, scout) = up.complete(&["explorer", "-m", "Look.", "--alias", "scout"]);
    let (_, writer) = up.complete(&["worker", "-m", "Rest.", "--session", &session]);
    let message = "in\u{1b}[2J pool.rs";
    let handoff = ["handoff", "scout", &writer, "-m", message, "--answer", "required"];
    refused(&up, &handoff, 1, "ILLEGAL_TRANSITION");
    let made = up.succeeds(&["edges", "create", "scout", &writer, "--label", "findings"]);
    let edge = made["edges"][0]["edge_id"].as_str().unwrap();
    let sent = up.succeeds(&handoff);
    assert_eq!(
        (&sent["handoff"]["from_thread_id"], &sent["handoff"]["to_thread_id"]),
        (&Value::from(scout.as_str()), &Value::from(writer.as_str()))
    );

    // Two edges of the tree and the new one.
    let edges = up.succeeds(&["edges", "--session", &session]);
    assert_eq!(edges["edges"].as_array().map(Vec::len), Some(3), "{edges}");
    let edges = up.text(&["edges", "--thread", "scout"]);
    assert!(edges.contains("findings") && edges.contains("<->"), "{edges}");

    let mail = up.text(&["mail", &writer]);
    assert!(
        mail.contains("HANDOFF") && mail.contains("answer required; in [2J pool.rs"),
        "{mail}"
    );
    assert!(!mail.contains('\u{1b}'), "{mail:?}");
    let root = up.succeeds(&["ps"])["sessions"][0]["root_thread_id"].clone();
    let settled = up.succeeds(&["mail", root.as_str().unwrap()]);
    let settled: Vec<_> = settled["mail"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mail| mail["settled"]["status"]["kind"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(settled, ["STATUS_KIND_COMPLETED", "STATUS_KIND_COMPLETED"]);

    up.succeeds(&["mail", &writer, "--acknowledge"]);
    let left = up.succeeds(&["mail", &writer]);
    assert_eq!(left["mail"].as_array().map(Vec::len), Some(0), "{left}");
    let all = up.succeeds(&["mail", &writer, "--all"]);
    assert_eq!(all["mail"][0]["acknowledged"], true);

    let deleted = up.succeeds(&["edges", "delete", short(edge)]);
    assert_eq!(deleted["deleted_edge_id"], edge);
    refused(&up, &handoff, 1, "ILLEGAL_TRANSITION");
}

#[test]
fn mail_wakes_threads_by_policy() {
    let up = Up::start();
    let (session, _) = up.complete(&["explorer", "-m", "Look.", "--alias", "scout"]);
    let (_, writer) = up.complete(&["worker", "-m", "Rest.", "--session", &session, "--wake", "on-idle"]);
    up.succeeds(&["edges", "create", "scout", &writer, "--one-way"]);
    let edges = up.text(&["edges", "--thread", "scout"]);
    assert!(edges.split_whitespace().any(|word| word == "->"), "{edges}");
    up.succeeds(&["handoff", "scout", &writer, "-m", "yours"]);
    // The second completed turn of the writer was started by the handoff.
    let notify = format!("notify {session} --kind agent-turn-complete --after 0 --count 3");
    let output = up.text(&words(&notify));
    let lines: Vec<_> = output.lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(
        lines
            .iter()
            .all(|line| line.contains("agent-turn-complete sub-agent-complete"))
    );
    assert!(lines[2].contains(short(&writer)), "{lines:?}");
}
