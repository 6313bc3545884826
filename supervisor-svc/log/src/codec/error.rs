//! Errors of conversions between messages and domain values.

use thiserror::Error;

use crate::store::limits::MAX_RECORD_BYTES;

/// The error for a number that is not a value of an enumeration, or that is UNSPECIFIED where a value is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{name} has no value {number}")]
pub struct UnknownValue {
    /// The enumeration's name in the API.
    pub name: &'static str,
    /// The number.
    pub number: i32,
}

/// The error for a stored record, or a part of one, that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The data was written by a newer release. It must not be skipped.
    #[error("UPGRADE_REQUIRED: {what} is unknown to this release; start a newer release")]
    UpgradeRequired {
        /// The unknown item.
        what: String,
    },
    /// The data is invalid in every release.
    #[error("malformed: {what}")]
    Malformed {
        /// A description of the error.
        what: String,
    },
}

impl From<UnknownValue> for DecodeError {
    /// Zero means that the value is missing. Every other unknown number comes from a newer release.
    fn from(unknown: UnknownValue) -> Self {
        if unknown.number == 0 {
            malformed(format!("{} is missing", unknown.name))
        } else {
            newer(format!("value {} of {}", unknown.number, unknown.name))
        }
    }
}

/// The error for an event that cannot be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// The record exceeds the store's limit. Some of its data should have been stored as content.
    #[error("the record has {bytes} bytes; at most {max} are allowed", max = MAX_RECORD_BYTES)]
    TooLarge {
        /// The size of the record, in bytes.
        bytes: usize,
    },
    /// The record of a spawn would be too large. The parts that come from a template are listed separately.
    #[error(
        "the record of the agent's role has {bytes} bytes; at most {max} are allowed: tool_policy (the tool lists of the \
         template and of the ancestors) has {tool_policy}, grant (from grant_list) {grant}, spawn_list {spawn_list}, and \
         source (with the templates that it shadows) {template}; shorten the longest, for example with patterns that \
         contain `*`",
        max = MAX_RECORD_BYTES
    )]
    RoleTooLarge {
        /// The size of the record, in bytes.
        bytes: usize,
        /// Size of the thread's own permissions, in bytes.
        tool_policy: usize,
        /// Size of the grant list for children. 0 if it equals the role's own permissions.
        grant: usize,
        /// Size of the list of spawnable roles, in bytes.
        spawn_list: usize,
        /// Size of the template's source and of the templates that it shadows, in bytes.
        template: usize,
    },
}

/// Returns the error for a value that no release writes.
pub fn malformed(what: impl Into<String>) -> DecodeError {
    DecodeError::Malformed { what: what.into() }
}

pub(super) fn newer(what: impl Into<String>) -> DecodeError {
    DecodeError::UpgradeRequired { what: what.into() }
}

/// Returns the value of a required field, or an error if it is missing.
pub(super) fn required<T>(value: Option<T>, what: &str) -> Result<T, DecodeError> {
    value.ok_or_else(|| malformed(format!("{what} is missing")))
}
