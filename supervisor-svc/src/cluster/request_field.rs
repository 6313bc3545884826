//! Finds a field in an encoded request, without decoding the request.

use std::{collections::HashMap, sync::LazyLock};

use prost::{
    Message as _,
    encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field},
};
use prost_types::FileDescriptorSet;

/// A text field that many requests have.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field {
    RequestId,
    SessionId,
}

impl Field {
    const fn name(self) -> &'static str {
        match self {
            Self::RequestId => "request_id",
            Self::SessionId => "session_id",
        }
    }
}

/// The number of a field in the requests of each method, by the method's full path.
type Numbers = HashMap<String, u32>;

static REQUEST_IDS: LazyLock<Numbers> = LazyLock::new(|| numbers(Field::RequestId).unwrap_or_default());
static SESSION_IDS: LazyLock<Numbers> = LazyLock::new(|| numbers(Field::SessionId).unwrap_or_default());

fn numbers(field: Field) -> Option<Numbers> {
    let set = FileDescriptorSet::decode(troupe_proto::FILE_DESCRIPTOR_SET).ok()?;
    let mut messages = HashMap::new();
    for file in &set.file {
        for message in &file.message_type {
            if let Some(found) = message.field.iter().find(|found| found.name() == field.name()) {
                messages.insert(format!(".{}.{}", file.package(), message.name()), found.number());
            }
        }
    }
    let mut numbers = HashMap::new();
    for file in &set.file {
        for service in &file.service {
            for method in &service.method {
                if let Some(number) = messages.get(method.input_type()) {
                    let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                    numbers.insert(path, u32::try_from(*number).ok()?);
                }
            }
        }
    }
    Some(numbers)
}

/// Returns the text of a field; `None` if it is missing, empty, or cannot be found. `message` is the body of the call:
/// a header of five bytes and the encoded request.
pub(super) fn find<'message>(field: Field, method: &str, message: &'message [u8]) -> Option<&'message str> {
    let numbers = match field {
        Field::RequestId => &REQUEST_IDS,
        Field::SessionId => &SESSION_IDS,
    };
    let number = numbers.get(method)?;
    // A compressed message is not searched.
    let [0, _, _, _, _, request @ ..] = message else {
        return None;
    };
    let mut request = request;
    while !request.is_empty() {
        let (tag, kind) = decode_key(&mut request).ok()?;
        if tag == *number && kind == WireType::LengthDelimited {
            let length = usize::try_from(decode_varint(&mut request).ok()?).ok()?;
            let text = str::from_utf8(request.get(..length)?).ok()?;
            return Some(text).filter(|text| !text.is_empty());
        }
        skip_field(kind, tag, &mut request, DecodeContext::default()).ok()?;
    }
    None
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
    fn find_returns_the_text_of_a_field() {
        let mut request = SpawnAgentRequest {
            session_id: String::from("session"),
            message: Some(String::from("the task")),
            ..SpawnAgentRequest::default()
        };
        assert_eq!(find(Field::RequestId, SPAWN, &body(&request)), None);
        assert_eq!(find(Field::SessionId, SPAWN, &body(&request)), Some("session"));
        request.request_id = String::from("1");
        assert_eq!(find(Field::RequestId, SPAWN, &body(&request)), Some("1"));
        let mut compressed = body(&request);
        compressed[0] = 1;
        assert_eq!(find(Field::RequestId, SPAWN, &compressed), None);
        for cut in 0..body(&request).len() {
            // A truncated message must not cause a panic.
            find(Field::SessionId, SPAWN, &body(&request)[..cut]);
        }
        let get = GetSessionRequest {
            session_id: String::from("session"),
        };
        const GET: &str = "/troupe.supervisor.v1.AgentSupervisorService/GetSession";
        assert_eq!(find(Field::RequestId, GET, &body(&get)), None);
        assert_eq!(find(Field::SessionId, GET, &body(&get)), Some("session"));
    }
}
