//! Finds the request id in an encoded request, without decoding the request.

use std::{collections::HashMap, sync::LazyLock};

use prost::{
    Message as _,
    bytes::Buf as _,
    encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field},
};
use prost_types::FileDescriptorSet;

/// The name of the field.
const FIELD: &str = "request_id";

/// The number of the field in the requests of each method, by the method's full path.
static FIELDS: LazyLock<HashMap<String, u32>> = LazyLock::new(|| fields().unwrap_or_default());

fn fields() -> Option<HashMap<String, u32>> {
    let set = FileDescriptorSet::decode(troupe_proto::FILE_DESCRIPTOR_SET).ok()?;
    let mut messages = HashMap::new();
    for file in &set.file {
        for message in &file.message_type {
            if let Some(field) = message.field.iter().find(|field| field.name() == FIELD) {
                messages.insert(format!(".{}.{}", file.package(), message.name()), field.number());
            }
        }
    }
    let mut fields = HashMap::new();
    for file in &set.file {
        for service in &file.service {
            for method in &service.method {
                if let Some(number) = messages.get(method.input_type()) {
                    let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                    fields.insert(path, u32::try_from(*number).ok()?);
                }
            }
        }
    }
    Some(fields)
}

/// Returns whether a request names a request id, so that a repetition has the effect only once. `message` is the body of
/// the call: a header of five bytes and the encoded request.
pub(super) fn has_request_id(method: &str, message: &[u8]) -> bool {
    let Some(number) = FIELDS.get(method) else {
        return false;
    };
    // A compressed message is not searched.
    let [0, _, _, _, _, request @ ..] = message else {
        return false;
    };
    let mut request = request;
    while request.has_remaining() {
        let Ok((tag, kind)) = decode_key(&mut request) else {
            return false;
        };
        if tag == *number && kind == WireType::LengthDelimited {
            return decode_varint(&mut request).is_ok_and(|length| length > 0);
        }
        if skip_field(kind, tag, &mut request, DecodeContext::default()).is_err() {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use troupe_proto::supervisor::v1::{GetSessionRequest, SpawnAgentRequest};

    use super::*;

    const SPAWN: &str = "/troupe.supervisor.v1.AgentSupervisorService/SpawnAgent";

    fn body(request: &impl prost::Message) -> Vec<u8> {
        [vec![0; 5], request.encode_to_vec()].concat()
    }

    #[test]
    fn request_id_is_found() {
        let mut request = SpawnAgentRequest {
            session_id: String::from("session"),
            message: Some(String::from("the task")),
            ..SpawnAgentRequest::default()
        };
        assert!(!has_request_id(SPAWN, &body(&request)));
        request.request_id = String::from("1");
        assert!(has_request_id(SPAWN, &body(&request)));
        let mut compressed = body(&request);
        compressed[0] = 1;
        assert!(!has_request_id(SPAWN, &compressed));
        for cut in 0..body(&request).len() {
            // It does not panic.
            has_request_id(SPAWN, &body(&request)[..cut]);
        }
        let get = GetSessionRequest {
            session_id: String::from("session"),
        };
        assert!(!has_request_id(
            "/troupe.supervisor.v1.AgentSupervisorService/GetSession",
            &body(&get)
        ));
    }
}
