//! Errors that prevent the start of a runner.

use tonic::Code;

/// Maximum length of a runner id, in bytes.
pub(crate) const MAX_RUNNER_ID_BYTES: usize = 128;

/// An error that prevents a runner from starting.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// The runner id is empty or too long.
    #[error("the runner id must have 1 to {MAX_RUNNER_ID_BYTES} bytes, not {0}")]
    BadRunnerId(usize),
    /// The supervisor's URL cannot be read.
    #[error("{0:?} is not a URL like http://127.0.0.1:50052")]
    BadSupervisorUrl(String),
    /// The token cannot be sent.
    #[error("the token has characters that metadata cannot carry")]
    BadToken,
    /// The supervisor rejects this runner permanently.
    #[error("the supervisor refused the runner ({code:?}): {message}")]
    Refused {
        /// The status code.
        code: Code,
        /// The status message.
        message: String,
    },
}
