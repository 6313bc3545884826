//! Errors of session commands.

use supervisor_log::{
    codec::record::{DecodeError, EncodeError},
    store::{MemberId, ReadError, WriteError},
};

use crate::domain::{ids::SessionId, rejection::Rejection};

/// The reason why a command has no [`Done`](super::Done).
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    /// The rules reject the command, which had no effect.
    #[error(transparent)]
    Refused(#[from] Rejection),
    /// The session does not exist.
    #[error("session with id {0} not found")]
    SessionNotFound(SessionId),
    /// The store could not write. The command had no effect; a retry may succeed.
    #[error("nothing was done: {0}; remove the cause and try again")]
    StoreUnavailable(String),
    /// The record would exceed its maximum size. The command had no effect.
    #[error("nothing was done: {0}")]
    TooLarge(String),
    /// The command may or may not have taken effect. The service ends and replays its log.
    #[error("the outcome is unknown; retry with the same request_id")]
    OutcomeUnknown,
    /// Another supervisor owns the session or takes it over. The command had no effect; the call can be repeated there.
    #[error("the session is moving to another supervisor; try again")]
    Elsewhere {
        /// The session.
        session: SessionId,
        /// The supervisor that owns the session. `None` if the owner is not known.
        owner: Option<MemberId>,
    },
    /// The session's actor has ended; the caller may look the session up again.
    #[error("the session is moving; try again")]
    Gone,
    /// A stored record cannot be read.
    #[error("{0}")]
    Corrupt(String),
    /// Stored data was written by a newer release.
    #[error("{0}")]
    UpgradeRequired(String),
}

impl Failure {
    /// Returns the failure of a call whose session no longer has an actor here. The call had no effect.
    pub(crate) const fn moved(session: SessionId) -> Self {
        Self::Elsewhere { session, owner: None }
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::NotFound { session } => Self::SessionNotFound(session),
            WriteError::Fenced { .. } | WriteError::Mismatch { .. } => Self::Gone,
            WriteError::Invalid(invalid) => Self::TooLarge(invalid.to_string()),
            WriteError::Refused(refusal) => Self::StoreUnavailable(refusal.to_string()),
            WriteError::Stopped | WriteError::Unknown(_) => Self::OutcomeUnknown,
        }
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Compacted { oldest, head, .. } => Self::Refused(Rejection::HistoryCompacted { oldest, head }),
            ReadError::Corrupt { .. } | ReadError::CorruptSide { .. } => Self::Corrupt(error.to_string()),
            ReadError::Engine(_) => Self::StoreUnavailable(error.to_string()),
        }
    }
}

impl From<EncodeError> for Failure {
    fn from(error: EncodeError) -> Self {
        Self::TooLarge(error.to_string())
    }
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::UpgradeRequired { .. } => Self::UpgradeRequired(error.to_string()),
            other => Self::Corrupt(other.to_string()),
        }
    }
}
