//! The JSON form of the protocol's messages (ProtoJSON).

use std::sync::LazyLock;

use prost::{Message, Name};
use prost_reflect::{DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor, SerializeOptions};
use serde_json::Value;

const DESCRIPTORS: &[u8] = tonic::include_file_descriptor_set!("a2a_descriptor");

/// The descriptors of the protocol. `None` only if the build has a defect, with which every test fails.
static POOL: LazyLock<Option<DescriptorPool>> = LazyLock::new(|| DescriptorPool::decode(DESCRIPTORS).ok());

/// A message without a JSON form, or a value that is not the JSON form of the message.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct JsonError(String);

impl JsonError {
    fn of(error: &dyn std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

fn descriptor<M: Name>() -> Result<MessageDescriptor, JsonError> {
    let pool = POOL.as_ref();
    pool.and_then(|pool| pool.get_message_by_name(&M::full_name()))
        .ok_or_else(|| JsonError::of(&"the message has no descriptor"))
}

/// Parses a message. Unknown fields and enum values are ignored, as newer releases of the protocol may send them.
///
/// # Errors
///
/// The value is not the JSON form of the message.
pub fn parse<M: Name + Default>(value: Value) -> Result<M, JsonError> {
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let message = DynamicMessage::deserialize_with_options(descriptor::<M>()?, value, &options)
        .map_err(|error| JsonError::of(&error))?;
    message.transcode_to().map_err(|error| JsonError::of(&error))
}

/// Returns the JSON form of a message. Fields without a value are left out.
///
/// # Errors
///
/// The message cannot be encoded. This is a defect of the build.
pub fn to_value<M: Name>(message: &M) -> Result<Value, JsonError> {
    let broken = |error: &dyn std::fmt::Display| JsonError::of(&format!("cannot encode the message: {error}"));
    let dynamic = DynamicMessage::decode(descriptor::<M>()?, Message::encode_to_vec(message).as_slice())
        .map_err(|error| broken(&error))?;
    let mut value = dynamic
        .serialize_with_options(serde_json::value::Serializer, &SerializeOptions::new())
        .map_err(|error| broken(&error))?;
    shorten_numbers(&mut value);
    Ok(value)
}

/// Writes whole numbers without a fraction. The numbers of `google.protobuf.Value` are floating-point numbers.
fn shorten_numbers(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(shorten_numbers),
        Value::Object(fields) => fields.values_mut().for_each(shorten_numbers),
        Value::Number(number) => {
            // An f64 represents all whole numbers up to this one exactly.
            const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
            if let Some(float) = number.as_f64()
                && number.is_f64()
                && float.fract() == 0.0
                && float.abs() < MAX_EXACT
                && let Ok(whole) = format!("{float:.0}").parse::<i64>()
            {
                *value = Value::from(whole);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{SendMessageRequest, TaskState, TaskStatus};

    #[test]
    fn names_are_camel_case_and_unknown_fields_are_ignored() {
        let request: SendMessageRequest = parse(json!({
            "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {"n": 1}}], "new": true},
            "configuration": {"returnImmediately": true, "historyLength": 0}
        }))
        .unwrap();
        assert_eq!(request.configuration.as_ref().unwrap().history_length, Some(0));
        let back = to_value(&request).unwrap();
        assert_eq!(back["message"]["parts"][0]["data"]["n"].to_string(), "1");
        let status = TaskStatus {
            state: TaskState::InputRequired.into(),
            ..TaskStatus::default()
        };
        assert_eq!(
            to_value(&status).unwrap(),
            json!({"state": "TASK_STATE_INPUT_REQUIRED"})
        );
    }

    #[test]
    fn malformed_values_are_errors() {
        for value in [
            json!([]),
            json!({"message": 1}),
            json!({"message": {"parts": [{"raw": "%"}]}}),
            json!({"message": {"parts": [{"text": "a", "url": "b"}]}}),
        ] {
            assert!(parse::<SendMessageRequest>(value.clone()).is_err(), "{value}");
        }
    }
}
