//! The JSON form of the protocol's messages, with the errors of the protocol.

use prost::Name;
use serde_json::Value;

use crate::error::{Error, Result};

/// Parses a message of a caller.
///
/// # Errors
///
/// The value is not the JSON form of the message.
pub(crate) fn parse<M: Name + Default>(value: Value) -> Result<M> {
    a2a_proto::json::parse(value).map_err(|error| Error::invalid_params("request", error.to_string()))
}

/// Returns the JSON form of a message.
///
/// # Errors
///
/// The message cannot be encoded. This is a defect of the build.
pub(crate) fn to_value<M: Name>(message: &M) -> Result<Value> {
    a2a_proto::json::to_value(message).map_err(|error| Error::internal(error.to_string()))
}
