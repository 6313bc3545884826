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
