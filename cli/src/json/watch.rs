//! Messages of a watch.

use serde_json::{Value, json};
use troupe_proto::supervisor::v1::{Snapshot, Telemetry, WatchThreadsResponse, watch_threads_response::Message};

use super::{duration, event, list, optional, session, thread};

/// Converts a message of WatchThreads: `sequence`, and one of `snapshot`, `event`, `telemetry`, `bookmark`, `reset`,
/// `output`.
pub(crate) fn watch_message(response: &WatchThreadsResponse) -> Value {
    let (kind, value) = match &response.message {
        Some(Message::Snapshot(snapshot)) => ("snapshot", self::snapshot(snapshot)),
        Some(Message::Event(event)) => ("event", event::event(event)),
        Some(Message::Telemetry(telemetry)) => ("telemetry", self::telemetry(telemetry)),
        Some(Message::Bookmark(bookmark)) => ("bookmark", json!({ "ending": bookmark.ending })),
        Some(Message::Reset(reset)) => ("reset", json!({ "reason": reset.reason })),
        Some(Message::Output(output)) => (
            "output",
            json!({
                "thread_id": output.thread_id,
                "generation": output.generation,
                "text": output.text,
            }),
        ),
        None => ("unknown", Value::Null),
    };
    json!({ "sequence": response.sequence, kind: value })
}

fn snapshot(snapshot: &Snapshot) -> Value {
    json!({
        "session": optional(snapshot.session.as_ref(), session::session),
        "threads": list(&snapshot.threads, thread::thread),
        "last": snapshot.last,
        "log_id": snapshot.log_id,
    })
}

fn telemetry(telemetry: &Telemetry) -> Value {
    json!({
        "thread_id": telemetry.thread_id,
        "generation": telemetry.generation,
        "usage": optional(telemetry.usage.as_ref(), thread::usage),
        "context_left_percent": telemetry.context_left_percent,
        "last_tool": optional(telemetry.last_tool.as_ref(), thread::tool_use),
        "activity": telemetry.activity,
        "plan": list(&telemetry.plan, thread::plan_step),
        "turn_time": duration(telemetry.turn_time.as_ref()),
    })
}

#[cfg(test)]
mod tests {
    use troupe_proto::supervisor::v1::{Bookmark, Event, ThreadClosed, event::Kind};

    use super::*;

    #[test]
    fn a_message_is_named_by_its_kind() {
        let bookmark = WatchThreadsResponse {
            sequence: 7,
            message: Some(Message::Bookmark(Bookmark { ending: true })),
        };
        assert_eq!(
            watch_message(&bookmark),
            json!({"sequence": 7, "bookmark": {"ending": true}})
        );
    }

    #[test]
    fn an_event_carries_its_kind_and_body() {
        let event = Event {
            session_id: "s".to_owned(),
            thread_id: "t".to_owned(),
            sequence: 9,
            actor: "service".to_owned(),
            kind: Some(Kind::ThreadClosed(ThreadClosed {
                forced: true,
                reason: "deadline".to_owned(),
            })),
            ..Event::default()
        };
        let response = WatchThreadsResponse {
            sequence: 9,
            message: Some(Message::Event(event)),
        };
        assert_eq!(
            watch_message(&response)["event"],
            json!({
                "session_id": "s",
                "thread_id": "t",
                "sequence": 9,
                "time": null,
                "actor": "service",
                "kind": "thread_closed",
                "thread_closed": {"forced": true, "reason": "deadline"},
            })
        );
    }
}
