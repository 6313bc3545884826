//! Why a message has no meaning in the domain.

use thiserror::Error;

use crate::store::limits::MAX_RECORD_BYTES;

/// A number that is no value of an enumeration, or stands for "not given" where that is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{name} has no value {number}")]
pub struct UnknownValue {
    /// The enumeration, as the API calls it.
    pub name: &'static str,
    /// The number.
    pub number: i32,
}

/// Why a stored record, or a part of one, cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// A newer release wrote it. It must not be passed over.
    #[error("UPGRADE_REQUIRED: {what} is not known to this release; start a newer one")]
    UpgradeRequired {
        /// What is not known.
        what: String,
    },
    /// No release writes it so.
    #[error("malformed: {what}")]
    Malformed {
        /// What is wrong.
        what: String,
    },
}

impl From<UnknownValue> for DecodeError {
    /// Nothing is not a value; every other number is one that a newer release has.
    fn from(unknown: UnknownValue) -> Self {
        if unknown.number == 0 {
            malformed(format!("{} is not given", unknown.name))
        } else {
            newer(format!("value {} of {}", unknown.number, unknown.name))
        }
    }
}

/// Why an event cannot be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// Its record would be larger than the store takes; something in it should have been content.
    #[error("the record has {bytes} bytes; at most {max} are allowed", max = MAX_RECORD_BYTES)]
    TooLarge {
        /// How large it would be.
        bytes: usize,
    },
    /// The record of a spawn would be; what a template puts into it is told apart.
    #[error(
        "the record of the agent's role has {bytes} bytes; at most {max} are allowed: tool_policy, from the lists of the \
         template and of those above it, has {tool_policy}, grant, from grant_list, {grant}, spawn_list {spawn_list}, and \
         source, with what it shadows, {template}; shorten the longest, for instance by patterns with `*`",
        max = MAX_RECORD_BYTES
    )]
    RoleTooLarge {
        /// How large it would be.
        bytes: usize,
        /// How much of that is what the thread may use.
        tool_policy: usize,
        /// What its children may hold; 0: the same.
        grant: usize,
        /// The roles that it may spawn.
        spawn_list: usize,
        /// Where its template is.
        template: usize,
    },
}

pub(super) fn malformed(what: impl Into<String>) -> DecodeError {
    DecodeError::Malformed { what: what.into() }
}

pub(super) fn newer(what: impl Into<String>) -> DecodeError {
    DecodeError::UpgradeRequired { what: what.into() }
}

/// The value of a field that is always written.
pub(super) fn required<T>(value: Option<T>, what: &str) -> Result<T, DecodeError> {
    value.ok_or_else(|| malformed(format!("{what} is missing")))
}
