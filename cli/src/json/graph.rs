//! Edges, handoffs and mail.

use serde_json::{Value, json};
use troupe_proto::supervisor::v1::{Edge, Handoff, Mail, mail::Body};

use super::{list, name, optional, thread, time};
use crate::names;

/// An edge.
pub(crate) fn edge(edge: &Edge) -> Value {
    json!({
        "edge_id": edge.edge_id,
        "from_thread_id": edge.from_thread_id,
        "to_thread_id": edge.to_thread_id,
        "bidirectional": edge.bidirectional,
        "kind": name(names::edge_kind(edge.kind())),
        "label": edge.label,
    })
}

/// A handoff.
pub(crate) fn handoff(handoff: &Handoff) -> Value {
    json!({
        "handoff_id": handoff.handoff_id,
        "from_thread_id": handoff.from_thread_id,
        "to_thread_id": handoff.to_thread_id,
        "message": optional(handoff.message.as_ref(), thread::content),
        "structured": optional(handoff.structured.as_ref(), thread::content),
        "artifacts": list(&handoff.artifacts, |artifact| json!({
            "type": artifact.r#type,
            "ref": artifact.r#ref,
        })),
        "ok": handoff.ok,
        "ok_reason": handoff.ok_reason,
        "expectation": name(names::response_expectation(handoff.expectation())),
        "reply_to_thread_id": handoff.reply_to_thread_id,
        "context_ref": handoff.context_ref,
    })
}

/// Converts a piece of mail. The body is in `handoff` or `settled`; the other field is null.
pub(crate) fn mail(mail: &Mail) -> Value {
    let (handed_over, settled) = match &mail.body {
        Some(Body::Handoff(sent)) => (handoff(sent), Value::Null),
        Some(Body::Settled(child)) => (
            Value::Null,
            json!({
                "thread_id": child.thread_id,
                "status": optional(child.status.as_ref(), thread::status),
            }),
        ),
        None => (Value::Null, Value::Null),
    };
    json!({
        "sequence": mail.sequence,
        "time": time(mail.time.as_ref()),
        "acknowledged": mail.acknowledged,
        "handoff": handed_over,
        "settled": settled,
    })
}
