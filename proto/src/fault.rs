//! Building and reading the errors of the API: a gRPC code, a stable [`Reason`], and typed details.

use std::{collections::HashMap, time::Duration};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::reason::{DOMAIN, Reason};

/// An error to be sent to a client. Every variable part of the message is also in the metadata.
#[derive(Clone, Debug)]
pub struct Fault {
    code: Code,
    reason: Reason,
    message: String,
    metadata: HashMap<String, String>,
    // Boxed, because a fault is the error value of many results.
    details: Box<ErrorDetails>,
}

impl Fault {
    /// Creates a fault without metadata. The message says what was wrong, shows the value, and says what to do.
    #[must_use]
    pub fn new(code: Code, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            metadata: HashMap::new(),
            details: Box::new(ErrorDetails::new()),
        }
    }

    /// Creates INVALID_ARGUMENT with a BadRequest that names the field by its path in the request.
    #[must_use]
    pub fn bad_field(reason: Reason, field: impl Into<String>, message: impl Into<String>) -> Self {
        let message = message.into();
        let mut fault = Self::new(Code::InvalidArgument, reason, message.clone());
        fault.details.add_bad_request_violation(field, message);
        fault
    }

    /// Adds a metadata entry. Keys are lower_snake_case and do not change after a release.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl ToString) -> Self {
        self.metadata.insert(key.to_owned(), value.to_string());
        self
    }

    /// Sets the delay after which a retry may succeed.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.details.set_retry_info(Some(delay));
        self
    }

    /// Adds the exceeded quota and what would free it.
    #[must_use]
    pub fn quota(mut self, subject: impl Into<String>, description: impl Into<String>) -> Self {
        self.details.add_quota_failure_violation(subject, description);
        self
    }

    /// Adds the resource that the error is about.
    #[must_use]
    pub fn resource(mut self, kind: &str, name: impl Into<String>, description: &str) -> Self {
        self.details.set_resource_info(kind, name, String::new(), description);
        self
    }

    /// Adds the precondition that does not hold.
    #[must_use]
    pub fn precondition(mut self, subject: impl Into<String>, description: impl Into<String>) -> Self {
        self.details
            .add_precondition_failure_violation(self.reason.as_str(), subject, description);
        self
    }

    /// Returns the stable reason.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        self.reason
    }

    /// Returns the gRPC code.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.code
    }

    /// Returns the human-readable text.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl From<Fault> for Status {
    fn from(mut fault: Fault) -> Self {
        fault
            .details
            .set_error_info(fault.reason.as_str(), DOMAIN, fault.metadata);
        Self::with_error_details(fault.code, fault.message, *fault.details)
    }
}

/// Returns the reason of an error that a Troupe service sent; `None` for transport errors and errors of other services.
#[must_use]
pub fn reason_of(status: &Status) -> Option<Reason> {
    let info = status.get_details_error_info()?;
    (info.domain == DOMAIN)
        .then(|| Reason::from_name(&info.reason))
        .flatten()
}

/// Returns the metadata of an error that a Troupe service sent. The map is empty if the error has no metadata.
#[must_use]
pub fn metadata_of(status: &Status) -> HashMap<String, String> {
    status
        .get_details_error_info()
        .map(|info| info.metadata)
        .unwrap_or_default()
}

/// Returns how long to wait before a retry, if the service says so.
#[must_use]
pub fn retry_after(status: &Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay
}
