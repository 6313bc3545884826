//! Errors, their presentation and the exit codes.

use std::{collections::BTreeMap, fmt, io, process::ExitCode};

use serde_json::{Value, json};
use tonic::{Code, Status};
use troupe_proto::{fault, reason::Reason};

use crate::{hints, rpcs, sanitize, suggest};

/// The result type of this crate.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// The kind of failure, which determines the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The operation failed: 1.
    Failure,
    /// The command line is invalid: 2.
    Usage,
    /// A limit or a policy rejected the request: 3.
    Refused,
    /// An object does not exist: 4.
    NotFound,
    /// The time limit of a wait has passed: 5.
    Timeout,
    /// An agent ended without success: 6.
    AgentFailed,
    /// A service cannot be reached: 7.
    Unreachable,
    /// The user interrupted the command: 130, as for SIGINT.
    Interrupted,
    /// The output already describes the rejection: 3.
    ReportedRefusal,
    /// The output already describes the problem, so no message is added: 1.
    Reported,
    /// The reader of the output has closed the pipe, as with `| head`: 141, the code that shells report for SIGPIPE.
    ClosedPipe,
}

/// A failure as displayed: the message, the stable reason if a service returned one, and a hint.
#[derive(Debug)]
pub(crate) struct Error {
    kind: Kind,
    message: String,
    reason: Option<String>,
    hint: Option<String>,
    metadata: BTreeMap<String, String>,
}

impl Error {
    fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            reason: None,
            hint: None,
            metadata: BTreeMap::new(),
        }
    }

    /// Creates the error of a failed operation.
    pub(crate) fn failure(message: impl Into<String>) -> Self {
        Self::new(Kind::Failure, message)
    }

    /// Creates the error of a failed operation from another error. Takes that error by value, so that this function can
    /// be passed to `map_err`.
    pub(crate) fn of(error: impl fmt::Display) -> Self {
        Self::failure(error.to_string())
    }

    /// Creates an error for a problem that the output already describes.
    pub(crate) fn reported(message: impl Into<String>) -> Self {
        Self::new(Kind::Reported, message)
    }

    /// Creates an error for a rejection that the output already describes.
    pub(crate) fn reported_refusal() -> Self {
        Self::new(Kind::ReportedRefusal, "rejected")
    }

    /// Creates an error for an invalid command line that only the command itself can detect.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// Creates the error for an object that does not exist.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, message)
    }

    /// Creates the error for a wait whose time limit has passed.
    pub(crate) fn timeout(message: impl Into<String>) -> Self {
        Self::new(Kind::Timeout, message)
    }

    /// Creates the error for an agent that ended without success.
    pub(crate) fn agent_failed(message: impl Into<String>) -> Self {
        Self::new(Kind::AgentFailed, message)
    }

    /// Creates the error for a service that cannot be reached.
    pub(crate) fn unreachable(message: impl Into<String>) -> Self {
        Self::new(Kind::Unreachable, message)
    }

    /// Creates the error for a command that the user interrupted.
    pub(crate) fn interrupted(message: impl Into<String>) -> Self {
        Self::new(Kind::Interrupted, message)
    }

    /// Creates the error for an answer without its main field.
    pub(crate) fn empty_answer() -> Self {
        Self::failure("the service returned an empty answer").hint("`troupe doctor` compares the releases")
    }

    /// Adds a hint.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Prefixes the message with the operation that failed.
    #[must_use]
    pub(crate) fn context(mut self, doing: impl fmt::Display) -> Self {
        self.message = format!("{doing}: {}", self.message);
        self
    }

    /// Returns the kind.
    pub(crate) const fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the message.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Returns the reason as it appears in the API.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Returns the hint.
    pub(crate) fn remedy(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Returns the error as JSON.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "error": {
                "message": self.message,
                "reason": self.reason,
                "hint": self.hint,
                "metadata": self.metadata,
                "exit_code": self.code(),
            }
        })
    }

    /// Returns the exit code as a number.
    pub(crate) const fn code(&self) -> u8 {
        match self.kind {
            Kind::Failure | Kind::Reported => 1,
            Kind::Usage => 2,
            Kind::Refused | Kind::ReportedRefusal => 3,
            Kind::NotFound => 4,
            Kind::Timeout => 5,
            Kind::AgentFailed => 6,
            Kind::Unreachable => 7,
            Kind::Interrupted => 130,
            Kind::ClosedPipe => 141,
        }
    }

    /// Returns the exit code.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        let reason = fault::reason_of(&status);
        let message = match sanitize::line(status.message()) {
            text if text.is_empty() => format!("the service returned {:?} without a message", status.code()),
            text => rpcs::name_commands(&text),
        };
        Self {
            kind: kind_of(reason, status.code()),
            message,
            reason: reason.map(|reason| reason.as_str().to_owned()),
            hint: reason
                .and_then(hints::for_reason)
                .or_else(|| hints::for_code(status.code()))
                .map(str::to_owned),
            metadata: fault::metadata_of(&status).into_iter().collect(),
        }
    }
}

impl From<troupe_client::Error> for Error {
    fn from(error: troupe_client::Error) -> Self {
        use troupe_client::Error as Cause;
        let text = sanitize::line(&error.to_string());
        match error {
            Cause::Address { service, .. } => {
                Self::usage(text).hint(format!("expected a URL like --{service} {}", service.default_url()))
            }
            Cause::Plaintext { .. } => {
                Self::usage(text).hint("leave --ca and --client-cert out, or give a URL that begins with https")
            }
            Cause::HalfIdentity | Cause::TokenCharacters | Cause::InvalidContexts { .. } => Self::usage(text),
            Cause::NoToken { .. } => {
                Self::failure(text).hint("--token-file and TROUPE_TOKEN_FILE need a file that contains only tokens")
            }
            Cause::TokenFile { .. } => Self::failure(text).hint("pass --token, or make the file readable to you"),
            Cause::UnknownContext { name, known } => {
                let similar = suggest::closest(&name, known.iter().map(String::as_str));
                Self::not_found(text).hint(match similar {
                    Some(similar) => format!("did you mean \"{similar}\"?"),
                    None => "`troupe context list` lists the contexts".to_owned(),
                })
            }
            Cause::UnreadableContexts { .. } | Cause::UnwritableContexts { .. } | Cause::NoConfigDir => {
                Self::failure(text)
            }
            Cause::Unreachable { service, uri, cause } => {
                let is_https = uri.scheme_str() == Some("https");
                Self::unreachable(text).hint(if is_https && is_plaintext_answer(&cause) {
                    format!("the service does not use TLS; pass --{service} http://...")
                } else {
                    format!(
                        "`troupe up` starts the services; --{service} URL selects another server; `troupe doctor` checks \
                         the installation"
                    )
                })
            }
        }
    }
}

/// Returns whether a TLS handshake failed because the other side answered in plaintext.
fn is_plaintext_answer(cause: &str) -> bool {
    cause.contains("corrupt message") || cause.contains("InvalidContentType")
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::BrokenPipe => Kind::ClosedPipe,
            _ => Kind::Failure,
        };
        Self::new(kind, error.to_string())
    }
}

const fn kind_of(reason: Option<Reason>, code: Code) -> Kind {
    match reason {
        Some(
            Reason::DepthLimit
            | Reason::ThreadLimit
            | Reason::OpenLimit
            | Reason::BudgetExhausted
            | Reason::LimitExceeded
            | Reason::ToolDenied
            | Reason::OutsideSubtree
            | Reason::SpawnNotAllowed
            | Reason::NotPermitted
            | Reason::PolicyNotEnforceable
            | Reason::CwdOutsideRoots
            | Reason::SessionPaused,
        ) => Kind::Refused,
        Some(
            Reason::TemplateNotFound
            | Reason::CwdNotFound
            | Reason::SessionNotFound
            | Reason::ThreadNotFound
            | Reason::NotFound,
        ) => Kind::NotFound,
        Some(Reason::DeadlineExceeded) => Kind::Timeout,
        Some(Reason::Draining | Reason::RegistryUnavailable | Reason::SessionMoving) => Kind::Unreachable,
        Some(_) => Kind::Failure,
        None => match code {
            Code::Unavailable => Kind::Unreachable,
            Code::DeadlineExceeded => Kind::Timeout,
            _ => Kind::Failure,
        },
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use troupe_proto::fault::Fault;

    use super::*;

    #[test]
    fn rejection_has_code_reason_and_hint() {
        let status: Status = Fault::new(
            Code::FailedPrecondition,
            Reason::DepthLimit,
            "Agent depth limit reached. Solve the task yourself.",
        )
        .with("max_depth", 2)
        .into();
        let error = Error::from(status);
        assert_eq!(error.code(), 3);
        assert_eq!(error.reason(), Some("DEPTH_LIMIT"));
        assert!(
            error.remedy().is_some_and(|hint| hint.contains("max_depth")),
            "{error:?}"
        );
        assert_eq!(error.to_json()["error"]["metadata"]["max_depth"], "2");
    }

    #[test]
    fn texts_of_services_are_sanitized() {
        let error = Error::from(Status::not_found("gone\u{1b}[2J"));
        assert_eq!(error.message(), "gone[2J");
        assert_eq!(error.code(), 1);
    }

    #[test]
    fn closed_pipe_is_not_reported() {
        let error = Error::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(error.kind(), Kind::ClosedPipe);
    }
}
