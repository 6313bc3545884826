//! Results of the supervisor's tools, in the format that models expect.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use troupe_proto::supervisor::v1::{
    CreateEdgeResponse, Group, GroupItemStatus, GroupState, ListTranscriptResponse, SendInputResponse,
    SpawnAgentResponse, SpawnableAgent, SpawnablePersona, Status, StatusKind, Thread, ThreadResult, ToolVerdict,
    TranscriptEntry, WaitAgentsResponse,
};

use crate::text::start;

/// The label of a spawn that waits for an operator's approval.
const AWAITING_APPROVAL: &str = "awaiting_approval";

/// Maximum length of an entry's text in an answer with a transcript, in bytes.
const ENTRY_BYTES: usize = 2 * 1_024;
/// Maximum total size of the entries in an answer with a transcript, in bytes. The first entry is always complete.
const TRANSCRIPT_BYTES: usize = 64 * 1_024;

/// Returns the answer to a spawn: the id of the thread under `key`, its status if an operator has to approve it, and
/// the queue position and warnings if present.
pub(super) fn spawned(key: &str, answer: SpawnAgentResponse) -> Value {
    let mut value = Map::new();
    let thread = answer.thread.unwrap_or_default();
    if kind(thread.status.as_ref()) == StatusKind::AwaitingApproval {
        value.insert("status".to_owned(), AWAITING_APPROVAL.into());
    }
    value.insert(key.to_owned(), thread.thread_id.into());
    if answer.queue_position > 0 {
        value.insert("queue_position".to_owned(), answer.queue_position.into());
    }
    if !answer.warnings.is_empty() {
        value.insert("warnings".to_owned(), answer.warnings.into());
    }
    Value::Object(value)
}

/// Returns the roles that may be spawned: `{"agents": [...]}`.
pub(super) fn roles(agents: &[SpawnableAgent]) -> Value {
    json!({"agents": agents.iter().map(role).collect::<Vec<_>>()})
}

fn role(agent: &SpawnableAgent) -> Value {
    let mut role = json!({
        "agent_type": agent.agent_type,
        "description": agent.description,
        "allow_list": agent.allow_list,
        "deny_list": agent.deny_list,
    });
    let texts = [
        ("model", &agent.model),
        ("reasoning_effort", &agent.reasoning_effort),
        ("default_prompt", &agent.default_prompt),
    ];
    add_texts(&mut role, &texts);
    if !agent.agent_names.is_empty() {
        role["agent_names"] = agent.agent_names.iter().map(persona).collect();
    }
    role
}

fn persona(persona: &SpawnablePersona) -> Value {
    let mut value = json!({"name": persona.name, "description": persona.description});
    let texts = [
        ("model", &persona.model),
        ("reasoning_effort", &persona.reasoning_effort),
        ("prompt", &persona.prompt),
    ];
    add_texts(&mut value, &texts);
    value
}

fn add_texts(value: &mut Value, texts: &[(&str, &Option<String>)]) {
    for (key, text) in texts {
        if let Some(text) = text {
            value[*key] = text.as_str().into();
        }
    }
}

/// Returns threads with their statuses, without messages: `{"agents": [...]}`. Parents are included only in a tree.
pub(super) fn threads(threads: &[Thread], tree: bool) -> Value {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|time| i64::try_from(time.as_secs()).ok())
        .unwrap_or_default();
    json!({"agents": threads.iter().map(|found| thread(found, tree, now)).collect::<Vec<_>>()})
}

fn thread(thread: &Thread, tree: bool, now: i64) -> Value {
    let mut value = json!({
        "thread_id": thread.thread_id,
        "status": label(thread.status.as_ref()),
        "model": thread.model,
    });
    let texts = [
        ("thread_note", &thread.thread_note),
        ("agent_type", &thread.agent_type),
        ("agent_name", &thread.agent_name),
        ("alias", &thread.alias),
        ("reasoning_effort", &thread.reasoning_effort),
    ];
    for (key, text) in texts {
        if !text.is_empty() {
            value[key] = text.as_str().into();
        }
    }
    if let Some(since) = thread.status.as_ref().and_then(|status| status.since) {
        value["status_duration_sec"] = now.saturating_sub(since.seconds).max(0).into();
    }
    if let Some(updated) = thread.update_time {
        value["updated_at"] = updated.to_string().into();
    }
    if tree {
        value["depth"] = thread.depth.into();
        if !thread.parent_thread_id.is_empty() {
            value["parent_thread_id"] = thread.parent_thread_id.as_str().into();
        }
    }
    value
}

/// Returns a page of a transcript: `{"entries": [{"number", "turn", "kind", "text", ...}]}`, with `next_after` if more
/// entries follow.
pub(super) fn transcript(page: &ListTranscriptResponse) -> Value {
    let mut room = TRANSCRIPT_BYTES;
    let mut entries = Vec::new();
    let mut last = 0;
    for found in &page.entries {
        let (entry, size) = transcript_entry(found);
        if size > room && !entries.is_empty() {
            break;
        }
        room = room.saturating_sub(size);
        entries.push(entry);
        last = found.number;
    }
    let is_cut = entries.len() < page.entries.len() || !page.next_page_token.is_empty();
    let mut value = json!({"entries": entries});
    if is_cut {
        value["next_after"] = last.into();
    }
    value
}

/// Returns an entry in JSON, and the size of this JSON in bytes.
fn transcript_entry(entry: &TranscriptEntry) -> (Value, usize) {
    let mut value = json!({
        "number": entry.number,
        "turn": entry.turn,
        "kind": short(entry.kind().as_str_name(), "TRANSCRIPT_KIND_"),
    });
    let whole = entry
        .content
        .as_ref()
        .map_or(entry.text.as_str(), |content| &content.preview);
    let text = start(whole, ENTRY_BYTES);
    if !text.is_empty() {
        value["text"] = text.into();
    }
    if entry.text_left_out || entry.content.is_some() || text.len() < whole.len() {
        value["cut"] = true.into();
    }
    if let Some(call) = &entry.tool_call {
        value["tool"] = call.tool.as_str().into();
        if call.verdict() == ToolVerdict::Denied {
            value["denied"] = call.reason.as_str().into();
        }
    }
    if let Some(result) = &entry.tool_result {
        value["failed"] = result.failed.into();
    }
    if let Some(change) = &entry.file_change {
        value["path"] = change.path.as_str().into();
        value["added"] = change.added.into();
        value["removed"] = change.removed.into();
    }
    let steps = entry.plan.iter().map(|step| {
        let state = short(step.state().as_str_name(), "STATE_");
        json!({"step": step.step, "state": state})
    });
    if !entry.plan.is_empty() {
        value["plan"] = steps.collect();
    }
    let size = value.to_string().len();
    (value, size)
}

/// Returns the answer to a sent input: `{"submission_id": ...}`, with the queue position if present.
pub(super) fn input_sent(answer: &SendInputResponse) -> Value {
    let mut value = json!({"submission_id": answer.input_number.to_string()});
    if answer.queue_position > 0 {
        value["queue_position"] = answer.queue_position.into();
    }
    value
}

/// Returns the answer to a wait: `{"status": {id: status}, "timed_out": bool}`, with `results` and `questions` by id if
/// there are any.
pub(super) fn waited(answer: &WaitAgentsResponse) -> Value {
    let settled = answer
        .statuses
        .iter()
        .map(|settled| (settled.thread_id.clone(), status(settled.status.as_ref())));
    let unknown = answer
        .not_found_ids
        .iter()
        .map(|id| (id.clone(), Value::from("not_found")));
    let mut value = json!({
        "status": settled.chain(unknown).collect::<Map<_, _>>(),
        "timed_out": answer.timed_out,
    });
    let results = answer
        .statuses
        .iter()
        .filter_map(|settled| Some((settled.thread_id.clone(), result(settled.result.as_ref()?))));
    let questions = answer.statuses.iter().filter(|settled| !settled.question.is_empty());
    let questions = questions.map(|settled| (settled.thread_id.clone(), settled.question.as_str().into()));
    for (key, values) in [
        ("results", results.collect::<Map<_, _>>()),
        ("questions", questions.collect()),
    ] {
        if !values.is_empty() {
            value[key] = values.into();
        }
    }
    value
}

/// Returns whether a group has ended.
pub(super) fn has_ended(group: &Group) -> bool {
    matches!(
        group.state(),
        GroupState::Succeeded | GroupState::Failed | GroupState::Cancelled
    )
}

/// Returns a group: `{"group_id", "state", "succeeded", "failed", ..., "items": [{"key", "state", "result" | "message"
/// | "error"}]}`.
pub(super) fn group(group: &Group, items: &[GroupItemStatus]) -> Value {
    let spec = group.spec.clone().unwrap_or_default();
    let mut value = json!({
        "group_id": spec.group_id,
        "state": short(group.state().as_str_name(), "GROUP_STATE_"),
        "succeeded": group.succeeded,
        "failed": group.failed,
        "cancelled": group.cancelled,
        "running": group.running,
        "pending": group.pending,
    });
    for (key, text) in [
        ("reason", &group.reason),
        ("approval_id", &group.approval_id),
        ("artifact_id", &group.table_artifact_id),
    ] {
        if !text.is_empty() {
            value[key] = text.as_str().into();
        }
    }
    if !items.is_empty() {
        value["items"] = items.iter().map(group_item).collect();
    }
    value
}

fn group_item(item: &GroupItemStatus) -> Value {
    let state = short(item.state().as_str_name(), "GROUP_ITEM_STATE_");
    let mut value = json!({"key": item.key, "state": state});
    match &item.result {
        Some(found) => value["result"] = result(found),
        None if !item.message.is_empty() => value["message"] = item.message.as_str().into(),
        None => {}
    }
    if !item.error.is_empty() {
        value["error"] = item.error.as_str().into();
    }
    value
}

fn short(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_ascii_lowercase()
}

/// Returns a result. A result that is too large for the answer is cut.
fn result(result: &ThreadResult) -> Value {
    serde_json::from_str(&result.document_json).unwrap_or_else(|_| {
        let content = result.content.clone().unwrap_or_default();
        json!({"cut": true, "bytes": content.size, "beginning": content.preview})
    })
}

/// Returns the answer to the creation of an edge: `{"edge_id": ...}`, or the edge's pending approval.
pub(super) fn connected(answer: CreateEdgeResponse) -> Value {
    match answer.edge {
        Some(edge) => json!({"edge_id": edge.edge_id}),
        None => json!({
            "approval_id": answer.approval_id,
            "status": AWAITING_APPROVAL,
            "message": "the edge waits for an operator's approval; until then nothing can be sent along it",
        }),
    }
}

/// Returns the note of a thread: `{"thread_note": ...}`. Empty if the note was cleared.
pub(super) fn noted(thread: &Thread) -> Value {
    if thread.thread_note.is_empty() {
        json!({})
    } else {
        json!({"thread_note": thread.thread_note})
    }
}

/// Returns a status with its message: `"running"`, `{"completed": "done"}`, `{"errored": "why"}`.
pub(super) fn status(status: Option<&Status>) -> Value {
    let message = || match status.map(|status| status.message.as_str()) {
        None | Some("") => Value::Null,
        Some(message) => message.into(),
    };
    match kind(status) {
        StatusKind::Completed => json!({"completed": message()}),
        StatusKind::Errored => json!({"errored": message()}),
        _ => label(status).into(),
    }
}

fn kind(status: Option<&Status>) -> StatusKind {
    status.map_or(StatusKind::Unspecified, Status::kind)
}

fn label(status: Option<&Status>) -> &'static str {
    match kind(status) {
        StatusKind::Unspecified => "unknown",
        StatusKind::Queued => "queued",
        StatusKind::AwaitingApproval => AWAITING_APPROVAL,
        StatusKind::PendingInit => "pending_init",
        StatusKind::Running => "running",
        StatusKind::Completed => "completed",
        StatusKind::Errored => "errored",
        StatusKind::Interrupted => "interrupted",
        StatusKind::Shutdown => "shutdown",
    }
}

#[cfg(test)]
mod tests {
    use troupe_proto::supervisor::v1::{
        Edge, PlanStep, ThreadStatus, TranscriptFileChange, TranscriptKind, TranscriptToolCall, TranscriptToolResult,
        plan_step::State,
    };

    use super::*;

    fn at(kind: StatusKind, message: &str) -> Status {
        Status {
            kind: kind.into(),
            message: message.to_owned(),
            ..Default::default()
        }
    }

    #[test]
    fn transcript_answer_is_bounded() {
        let entry = |number, text: &str| TranscriptEntry {
            number,
            turn: 2,
            kind: TranscriptKind::Message.into(),
            text: text.to_owned(),
            ..Default::default()
        };
        let long = "é".repeat(ENTRY_BYTES);
        let page = |entries, token: &str| ListTranscriptResponse {
            entries,
            next_page_token: token.to_owned(),
        };
        assert_eq!(
            transcript(&page(vec![entry(1, "I look.")], "")),
            json!({"entries": [{"number": 1, "turn": 2, "kind": "message", "text": "I look."}]})
        );
        let many = transcript(&page((1..=200).map(|number| entry(number, &long)).collect(), ""));
        let entries = many["entries"].as_array().unwrap();
        assert!(many.to_string().len() < TRANSCRIPT_BYTES + 1_024);
        assert_eq!(many["next_after"], json!(entries.len()));
        assert_eq!(
            (&entries[0]["cut"], entries[0]["text"].as_str().unwrap().len()),
            (&json!(true), ENTRY_BYTES)
        );
        assert_eq!(transcript(&page(vec![entry(7, "")], "more"))["next_after"], json!(7));
    }

    #[test]
    fn transcript_answer_shows_calls_results_files_and_plans() {
        let of = |entry: TranscriptEntry| transcript_entry(&entry).0;
        let denied = TranscriptEntry {
            kind: TranscriptKind::ToolCall.into(),
            text: "{\"command\": \"rm\"}".to_owned(),
            tool_call: Some(TranscriptToolCall {
                tool: "exec_command".to_owned(),
                verdict: ToolVerdict::Denied.into(),
                reason: "not allowed".to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let denied = of(denied);
        assert_eq!(
            (&denied["tool"], &denied["denied"]),
            (&json!("exec_command"), &json!("not allowed"))
        );
        let failed = of(TranscriptEntry {
            tool_result: Some(TranscriptToolResult {
                failed: true,
                ..Default::default()
            }),
            text_left_out: true,
            ..Default::default()
        });
        assert_eq!((&failed["failed"], &failed["cut"]), (&json!(true), &json!(true)));
        let changed = of(TranscriptEntry {
            file_change: Some(TranscriptFileChange {
                path: "a.rs".to_owned(),
                added: 2,
                removed: 1,
            }),
            ..Default::default()
        });
        assert_eq!(
            (&changed["path"], &changed["added"], &changed["removed"]),
            (&json!("a.rs"), &json!(2), &json!(1))
        );
        let planned = of(TranscriptEntry {
            plan: vec![PlanStep {
                step: "look".to_owned(),
                state: State::InProgress.into(),
            }],
            ..Default::default()
        });
        assert_eq!(planned["plan"], json!([{"step": "look", "state": "in_progress"}]));
    }

    #[test]
    fn statuses_have_names_known_to_models() {
        assert_eq!(status(Some(&at(StatusKind::Running, ""))), json!("running"));
        assert_eq!(
            status(Some(&at(StatusKind::Completed, "done"))),
            json!({"completed": "done"})
        );
        assert_eq!(status(Some(&at(StatusKind::Completed, ""))), json!({"completed": null}));
        assert_eq!(status(Some(&at(StatusKind::Errored, "why"))), json!({"errored": "why"}));
        assert_eq!(status(None), json!("unknown"));
    }

    #[test]
    fn wait_answer_is_keyed_by_id() {
        let answer = WaitAgentsResponse {
            statuses: vec![ThreadStatus {
                thread_id: "a".to_owned(),
                status: Some(at(StatusKind::Shutdown, "")),
                ..Default::default()
            }],
            not_found_ids: vec!["b".to_owned()],
            timed_out: false,
        };
        assert_eq!(
            waited(&answer),
            json!({"status": {"a": "shutdown", "b": "not_found"}, "timed_out": false})
        );
    }

    #[test]
    fn wait_answer_has_results_and_questions() {
        let result = |json: &str| ThreadResult {
            document_json: json.to_owned(),
            ..Default::default()
        };
        let status = |id: &str, json: Option<&str>, question: &str| ThreadStatus {
            thread_id: id.to_owned(),
            status: Some(at(StatusKind::Completed, "")),
            result: json.map(result),
            question: question.to_owned(),
        };
        let answer = WaitAgentsResponse {
            statuses: vec![
                status("a", Some("{\"n\": 1}"), ""),
                status("b", None, "Which?"),
                status("c", Some(""), ""),
            ],
            ..Default::default()
        };
        let answer = waited(&answer);
        assert_eq!(answer["results"]["a"], json!({"n": 1}));
        assert_eq!(answer["results"]["c"]["cut"], json!(true));
        assert_eq!(answer["questions"], json!({"b": "Which?"}));
    }

    #[test]
    fn thread_answer_omits_missing_values() {
        let found = Thread {
            thread_id: "t".to_owned(),
            parent_thread_id: "p".to_owned(),
            depth: 1,
            agent_type: "worker".to_owned(),
            status: Some(Status {
                since: Some(prost_types::Timestamp { seconds: 90, nanos: 0 }),
                ..at(StatusKind::Errored, "why")
            }),
            ..Default::default()
        };
        let flat = json!({
            "thread_id": "t", "agent_type": "worker", "status": "errored", "model": "", "status_duration_sec": 10
        });
        assert_eq!(thread(&found, false, 100), flat);
        assert_eq!(thread(&found, true, 100)["parent_thread_id"], json!("p"));
    }

    #[test]
    fn spawn_answer_contains_agent_id() {
        let answer = SpawnAgentResponse {
            thread: Some(Thread {
                thread_id: "t".to_owned(),
                ..Default::default()
            }),
            queue_position: 2,
            ..Default::default()
        };
        assert_eq!(
            spawned("agent_id", answer),
            json!({"agent_id": "t", "queue_position": 2})
        );
    }

    #[test]
    fn pending_approval_is_stated_in_answer() {
        let answer = SpawnAgentResponse {
            thread: Some(Thread {
                thread_id: "t".to_owned(),
                status: Some(at(StatusKind::AwaitingApproval, "")),
                ..Default::default()
            }),
            ..Default::default()
        };
        assert_eq!(
            spawned("nodeId", answer),
            json!({"nodeId": "t", "status": "awaiting_approval"})
        );
        let waiting = connected(CreateEdgeResponse {
            edge: None,
            approval_id: "a".to_owned(),
        });
        assert_eq!(
            (&waiting["approval_id"], &waiting["status"], waiting.get("edge_id")),
            (&json!("a"), &json!("awaiting_approval"), None)
        );
        let created = connected(CreateEdgeResponse {
            edge: Some(Edge {
                edge_id: "e".to_owned(),
                ..Default::default()
            }),
            approval_id: String::new(),
        });
        assert_eq!(created, json!({"edge_id": "e"}));
    }
}
