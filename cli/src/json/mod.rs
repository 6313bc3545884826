//! API messages as protobuf JSON, for `--output json`.
//!
//! The conversion follows the descriptors, so a new field needs no code here. Field names are those of the protos, enum
//! values have their full names, 64-bit integers are numbers, and fields with default values are written.

pub(crate) mod writer;

use std::sync::LazyLock;

use prost::{Message, Name};
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use serde_json::{Value, value::Serializer};
use troupe_proto::FILE_DESCRIPTOR_SET;

/// The descriptors of the API. Empty if they cannot be decoded, which a test excludes.
static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap_or_default());

/// Converts a message. Returns null for a message that is not part of the API.
pub(crate) fn message<M: Message + Name>(message: &M) -> Value {
    let options = SerializeOptions::new()
        .use_proto_field_name(true)
        .stringify_64_bit_integers(false)
        .skip_default_fields(false);
    POOL.get_message_by_name(&M::full_name())
        .and_then(|descriptor| DynamicMessage::decode(descriptor, message.encode_to_vec().as_slice()).ok())
        .and_then(|dynamic| dynamic.serialize_with_options(Serializer, &options).ok())
        .unwrap_or_default()
}

/// Converts messages in order.
pub(crate) fn list<M: Message + Name>(messages: &[M]) -> Value {
    messages.iter().map(message).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use serde_json::json;
    use troupe_proto::supervisor::v1::{
        Event, Status, StatusKind, ThreadClosed, Usage, WatchThreadsResponse, event::Kind,
        watch_threads_response::Message as Watched,
    };

    use super::*;

    #[test]
    fn fields_have_proto_names_and_defaults() {
        let usage = Usage {
            input_tokens: 5_000_000_000,
            wall_time: Some(prost_types::Duration {
                seconds: 1,
                nanos: 500_000_000,
            }),
            ..Usage::default()
        };
        let value = message(&usage);
        assert_eq!(value["input_tokens"], 5_000_000_000_u64);
        assert_eq!(value["output_tokens"], 0);
        assert_eq!(value["wall_time"], "1.500s");
    }

    #[test]
    fn enums_have_full_names() {
        let status = Status {
            kind: StatusKind::Completed.into(),
            ..Status::default()
        };
        assert_eq!(message(&status)["kind"], "STATUS_KIND_COMPLETED");
    }

    #[test]
    fn event_body_is_named_by_its_kind() {
        let event = Event {
            sequence: 9,
            kind: Some(Kind::ThreadClosed(ThreadClosed {
                forced: true,
                reason: "deadline".to_owned(),
            })),
            ..Event::default()
        };
        let response = WatchThreadsResponse {
            sequence: 9,
            message: Some(Watched::Event(event)),
        };
        let value = message(&response);
        assert_eq!(
            value["event"]["thread_closed"],
            json!({"forced": true, "reason": "deadline"})
        );
        assert_eq!(value["event"]["sequence"], 9);
        assert_eq!(value["event"].get("time"), None, "absent messages are omitted");
    }
}
