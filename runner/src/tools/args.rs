//! The arguments of the supervisor's tools, as models write them. Unknown keys are ignored. The supervisor rejects
//! missing or contradictory arguments, so that each error has one text. The exception is an empty list, which this
//! module rejects: the supervisor could not distinguish it from a missing list.

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;
use serde_json::Value;
use troupe_proto::{
    reason::Reason,
    supervisor::v1::{
        ArtifactRef, CreateEdgeRequest, CreateGroupRequest, EdgeKind, GroupItem, InputItem, ListScope,
        ListTranscriptRequest, OnLimit, ResponseExpectation, SendHandoffRequest, SendInputRequest, SpawnAgentRequest,
        TranscriptKind,
    },
};

use super::ToolFailure;
use crate::input::JsonItem;

/// The default duration of an agent's wait.
const DEFAULT_WAIT: Duration = Duration::from_secs(5 * 60);
/// Minimum duration of an agent's wait.
const SHORTEST_WAIT: Duration = Duration::from_secs(10);
/// Maximum duration of an agent's wait.
const LONGEST_WAIT: Duration = Duration::from_secs(30 * 60);

/// The default number of entries of a transcript in an answer.
const DEFAULT_ENTRIES: u32 = 50;
/// Maximum number of entries of a transcript in an answer.
const MAX_ENTRIES: u32 = 200;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SpawnAgent {
    message: Option<String>,
    items: Option<Vec<JsonItem>>,
    agent_type: String,
    agent_name: String,
    model: String,
    reasoning_effort: String,
    thread_note: Option<String>,
    working_directory: String,
    label: String,
    alias: String,
    objective: String,
    definition_of_done: String,
    /// The JSON Schema of the result; `None`: no result is requested.
    result_schema: Option<Value>,
    /// Whether to wait for a slot instead of being rejected.
    queue: bool,
}

impl SpawnAgent {
    pub(super) fn into_request(self, request_id: String) -> Result<SpawnAgentRequest, ToolFailure> {
        Ok(SpawnAgentRequest {
            request_id,
            items: items(self.message.as_deref(), self.items)?,
            message: self.message,
            agent_type: self.agent_type,
            agent_name: self.agent_name,
            model: self.model,
            reasoning_effort: self.reasoning_effort,
            thread_note: self.thread_note,
            working_directory: self.working_directory,
            label: self.label,
            alias: self.alias,
            objective: self.objective,
            definition_of_done: self.definition_of_done,
            result_schema: schema_text(self.result_schema),
            on_limit: on_limit(self.queue).into(),
            ..Default::default()
        })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ListAgents {
    /// The role whose description is requested. `None`: all roles.
    pub(super) agent_type: Option<String>,
    /// Whether to include models, reasoning efforts and prompts of roles and personas.
    pub(super) expanded: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ListActiveAgents {
    scope: String,
    pub(super) include_tree: bool,
    pub(super) include_closed: bool,
}

impl ListActiveAgents {
    pub(super) fn scope(&self) -> Result<ListScope, ToolFailure> {
        match self.scope.trim().to_ascii_lowercase().as_str() {
            "" | "all" => Ok(ListScope::All),
            "children" => Ok(ListScope::Children),
            "descendants" => Ok(ListScope::Descendants),
            other => Err(ToolFailure::bad_arguments(format!(
                "unsupported scope {other:?}; expected one of: children, descendants, all"
            ))),
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct SendInput {
    id: String,
    message: Option<String>,
    items: Option<Vec<JsonItem>>,
    /// The JSON Schema of the result; `None`: no result is requested.
    result_schema: Option<Value>,
    #[serde(default)]
    interrupt: bool,
    /// Whether to wait for a slot instead of being rejected.
    #[serde(default)]
    queue: bool,
}

impl SendInput {
    pub(super) fn into_request(self, request_id: String) -> Result<SendInputRequest, ToolFailure> {
        Ok(SendInputRequest {
            request_id,
            thread_id: self.id,
            items: items(self.message.as_deref(), self.items)?,
            message: self.message,
            interrupt: self.interrupt,
            result_schema: schema_text(self.result_schema),
            on_limit: on_limit(self.queue).into(),
            ..Default::default()
        })
    }
}

/// Returns a schema as the text for the request. A model may write the schema as a JSON object or as a string with the
/// JSON.
fn schema_text(schema: Option<Value>) -> String {
    match schema {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text,
        Some(schema) => schema.to_string(),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SpawnGroup {
    message: Option<String>,
    items: Vec<Item>,
    agent_type: String,
    agent_name: String,
    model: String,
    name: String,
    max_concurrency: u32,
    retries: u32,
    tolerated_failures: u32,
    /// The JSON Schema of the results; `None`: no results are requested.
    result_schema: Option<Value>,
    wait: Option<bool>,
    timeout_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Item {
    key: String,
    #[serde(default)]
    variables: BTreeMap<String, String>,
    #[serde(default)]
    message: String,
}

impl SpawnGroup {
    /// Returns how long to wait for the end of the group. Zero: does not wait.
    pub(super) fn wait(&self) -> Duration {
        match (self.wait, self.timeout_ms) {
            (Some(false), _) => Duration::ZERO,
            (_, Some(milliseconds)) => Duration::from_millis(milliseconds).clamp(SHORTEST_WAIT, LONGEST_WAIT),
            (_, None) => LONGEST_WAIT,
        }
    }

    pub(super) fn into_request(self, request_id: String) -> CreateGroupRequest {
        let items = self.items.into_iter().map(|item| GroupItem {
            key: item.key,
            variables: item.variables,
            message: item.message,
        });
        CreateGroupRequest {
            request_id,
            name: self.name,
            template: Some(SpawnAgentRequest {
                message: self.message,
                agent_type: self.agent_type,
                agent_name: self.agent_name,
                model: self.model,
                result_schema: schema_text(self.result_schema),
                ..Default::default()
            }),
            items: items.collect(),
            max_concurrency: self.max_concurrency,
            retries: self.retries,
            tolerated_failures: self.tolerated_failures,
            ..Default::default()
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct ReportResult {
    pub(super) result: Value,
}

#[derive(Debug, Deserialize)]
pub(super) struct AskParent {
    pub(super) question: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wait {
    pub(super) ids: Vec<String>,
    timeout_ms: Option<i64>,
    /// Whether to wait for all of the threads instead of one.
    #[serde(default)]
    pub(super) all: bool,
}

impl Wait {
    /// Returns the duration of the wait. Zero and negative values become zero, which the supervisor rejects.
    pub(super) fn timeout(&self) -> Duration {
        match self.timeout_ms {
            None => DEFAULT_WAIT,
            Some(milliseconds) => match u64::try_from(milliseconds) {
                Err(_) | Ok(0) => Duration::ZERO,
                Ok(milliseconds) => Duration::from_millis(milliseconds).clamp(SHORTEST_WAIT, LONGEST_WAIT),
            },
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Target {
    pub(super) id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SetThreadNote {
    /// The thread. `None`: the caller's own thread.
    pub(super) id: Option<String>,
    pub(super) note: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReadTranscript {
    /// The thread. `None`: the caller's own thread.
    pub(super) id: Option<String>,
    kinds: Vec<String>,
    /// How many of the last entries to return. `None`: the default, or all that follow `after`.
    tail: Option<u32>,
    after: u64,
}

impl ReadTranscript {
    pub(super) fn into_request(self) -> Result<ListTranscriptRequest, ToolFailure> {
        let kind = |name: &String| {
            let known = TranscriptKind::from_str_name(&format!("TRANSCRIPT_KIND_{}", name.to_ascii_uppercase()));
            match known {
                Some(kind) if kind != TranscriptKind::Unspecified => Ok(kind.into()),
                Some(_) | None => Err(ToolFailure::bad_arguments(format!(
                    "unsupported kind {name:?}; expected some of: input, message, reasoning, tool_call, tool_result, \
                     plan, file_change, error, notice"
                ))),
            }
        };
        Ok(ListTranscriptRequest {
            thread_id: self.id.unwrap_or_default(),
            kinds: self.kinds.iter().map(kind).collect::<Result<_, _>>()?,
            tail: match (self.tail, self.after) {
                (Some(tail), _) => tail.clamp(1, MAX_ENTRIES),
                (None, 0) => DEFAULT_ENTRIES,
                (None, _) => 0,
            },
            after_number: self.after,
            page_size: MAX_ENTRIES.cast_signed(),
            ..Default::default()
        })
    }
}

/// The keys are spelled as in graph templates.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CreateEdge {
    from: String,
    to: String,
    bidirectional: Option<bool>,
    #[serde(rename = "type")]
    kind: String,
    label: String,
}

impl CreateEdge {
    pub(super) fn into_request(self, request_id: String) -> Result<CreateEdgeRequest, ToolFailure> {
        let (from, to) = (self.from.trim(), self.to.trim());
        if from.is_empty() || to.is_empty() {
            return Err(ToolFailure::bad_arguments("create_edge requires from and to node ids"));
        }
        let kind = match self.kind.as_str() {
            "" => EdgeKind::Unspecified,
            "handoff" => EdgeKind::Handoff,
            "report" => EdgeKind::Report,
            other => {
                return Err(ToolFailure::bad_arguments(format!(
                    "unsupported type {other:?}; expected one of: handoff, report"
                )));
            }
        };
        Ok(CreateEdgeRequest {
            request_id,
            from_thread_id: from.to_owned(),
            to_thread_id: to.to_owned(),
            one_way: self.bidirectional == Some(false),
            kind: kind.into(),
            label: self.label,
            ..Default::default()
        })
    }
}

/// The keys are spelled as in graph templates.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SendHandoff {
    #[serde(alias = "toNodeId")]
    to: String,
    #[serde(alias = "summary")]
    message: String,
    structured: Option<Value>,
    artifacts: Vec<Artifact>,
    status: Option<HandoffStatus>,
    response: Expected,
    #[serde(alias = "contextRef")]
    context_ref: String,
}

#[derive(Debug, Deserialize)]
struct Artifact {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "ref")]
    reference: String,
}

#[derive(Debug, Deserialize)]
struct HandoffStatus {
    ok: bool,
    #[serde(default)]
    reason: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Expected {
    expectation: String,
    #[serde(alias = "replyTo")]
    reply_to: String,
}

impl SendHandoff {
    pub(super) fn into_request(self, request_id: String) -> Result<SendHandoffRequest, ToolFailure> {
        let (to, message) = (self.to.trim(), self.message.trim());
        if to.is_empty() || message.is_empty() {
            return Err(ToolFailure::bad_arguments("send_handoff requires to and message"));
        }
        let expectation = match self.response.expectation.as_str() {
            "" => ResponseExpectation::Unspecified,
            "none" => ResponseExpectation::None,
            "optional" => ResponseExpectation::Optional,
            "required" => ResponseExpectation::Required,
            other => {
                return Err(ToolFailure::bad_arguments(format!(
                    "unsupported expectation {other:?}; expected one of: none, optional, required"
                )));
            }
        };
        let (ok, ok_reason) = self
            .status
            .map_or((None, String::new()), |status| (Some(status.ok), status.reason));
        Ok(SendHandoffRequest {
            request_id,
            to_thread_id: to.to_owned(),
            message: message.to_owned(),
            structured_json: self.structured.map(|value| value.to_string()).unwrap_or_default(),
            artifacts: self
                .artifacts
                .into_iter()
                .map(|artifact| ArtifactRef {
                    r#type: artifact.kind,
                    r#ref: artifact.reference,
                })
                .collect(),
            ok,
            ok_reason,
            expectation: expectation.into(),
            reply_to_thread_id: self.response.reply_to,
            context_ref: self.context_ref,
            ..Default::default()
        })
    }
}

/// Returns the input items other than the message.
fn items(message: Option<&str>, items: Option<Vec<JsonItem>>) -> Result<Vec<InputItem>, ToolFailure> {
    let Some(items) = items else {
        return Ok(Vec::new());
    };
    if items.is_empty() {
        let text = match message {
            Some(_) => "Provide either message or items, but not both",
            None => "Items can't be empty",
        };
        return Err(ToolFailure::new(Reason::InvalidInput, text));
    }
    Ok(items.into_iter().map(Into::into).collect())
}

const fn on_limit(queue: bool) -> OnLimit {
    if queue { OnLimit::Queue } else { OnLimit::Unspecified }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn spawn_arguments_are_forwarded() {
        let args: SpawnAgent = serde_json::from_value(json!({
            "message": "look", "agent_type": "explorer", "thread_note": "", "unknown": 1
        }))
        .unwrap();
        let request = args.into_request("r".to_owned()).unwrap();
        assert_eq!(request.message.as_deref(), Some("look"));
        assert_eq!(request.agent_type, "explorer");
        assert_eq!(request.thread_note.as_deref(), Some(""));
        assert_eq!(request.request_id, "r");
        assert_eq!(request.on_limit(), OnLimit::Unspecified);
    }

    #[test]
    fn wait_timeout_is_clamped() {
        let wait = |timeout_ms| Wait {
            ids: Vec::new(),
            timeout_ms,
            all: false,
        };
        assert_eq!(wait(None).timeout(), DEFAULT_WAIT);
        assert_eq!(wait(Some(1)).timeout(), SHORTEST_WAIT);
        assert_eq!(wait(Some(20_000)).timeout(), Duration::from_secs(20));
        assert_eq!(wait(Some(i64::MAX)).timeout(), LONGEST_WAIT);
        assert_eq!(wait(Some(0)).timeout(), Duration::ZERO);
        assert_eq!(wait(Some(-5)).timeout(), Duration::ZERO);
    }

    #[test]
    fn handoff_arguments_accept_seed_spelling() {
        let args: SendHandoff = serde_json::from_value(json!({
            "to": "docs-agent", "message": "done", "structured": {"n": 1},
            "artifacts": [{"type": "diff", "ref": "a1"}], "status": {"ok": false, "reason": "late"},
            "response": {"expectation": "optional", "replyTo": "me"}, "contextRef": "c"
        }))
        .unwrap();
        let request = args.into_request(String::new()).unwrap();
        assert_eq!(request.structured_json, r#"{"n":1}"#);
        assert_eq!((request.ok, request.ok_reason.as_str()), (Some(false), "late"));
        assert_eq!(request.expectation(), ResponseExpectation::Optional);
        assert_eq!(
            (request.reply_to_thread_id.as_str(), request.context_ref.as_str()),
            ("me", "c")
        );
        assert_eq!(request.artifacts[0].r#ref, "a1");
    }

    #[test]
    fn edge_is_bidirectional_by_default() {
        let edge = |args| {
            serde_json::from_value::<CreateEdge>(args)
                .unwrap()
                .into_request(String::new())
        };
        assert!(!edge(json!({"from": "a", "to": "b"})).unwrap().one_way);
        assert!(
            edge(json!({"from": "a", "to": "b", "bidirectional": false}))
                .unwrap()
                .one_way
        );
        assert!(edge(json!({"from": "a", "to": "b", "type": "friendship"})).is_err());
    }

    #[test]
    fn edge_and_handoff_arguments_are_checked() {
        for args in [json!({}), json!({"from": "a"}), json!({"from": "a", "to": " "})] {
            let edge: CreateEdge = serde_json::from_value(args).unwrap();
            let failure = edge.into_request(String::new()).unwrap_err();
            assert_eq!(failure.to_json()["error"], "create_edge requires from and to node ids");
        }
        for args in [json!({}), json!({"to": "a"}), json!({"toNodeId": "a", "message": " "})] {
            let handoff: SendHandoff = serde_json::from_value(args).unwrap();
            let failure = handoff.into_request(String::new()).unwrap_err();
            assert_eq!(failure.to_json()["error"], "send_handoff requires to and message");
        }
        let legacy: SendHandoff = serde_json::from_value(json!({"toNodeId": " a ", "summary": "done"})).unwrap();
        let request = legacy.into_request(String::new()).unwrap();
        assert_eq!((request.to_thread_id.as_str(), request.message.as_str()), ("a", "done"));
    }
}
