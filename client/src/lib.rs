//! A client of the supervisor and the registry of Troupe.
//!
//! [`Settings::find`] finds the services and the token as the command line does. The methods are those of the generated
//! clients in `troupe_proto`:
//!
//! ```no_run
//! use troupe_client::{Settings, request_id};
//! use troupe_proto::supervisor::v1::CreateSessionRequest;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let mut supervisor = Settings::find()?.supervisor().await?;
//! let request = CreateSessionRequest { request_id: request_id(), ..Default::default() };
//! let created = supervisor.create_session(request).await?.into_inner();
//! println!("{}", created.session.unwrap_or_default().session_id);
//! # Ok(())
//! # }
//! ```
//!
//! [`follow::Follow`] is a stream that resumes after a lost connection.
#![forbid(unsafe_code)]

mod address;
mod backoff;
mod channel;
pub mod contexts;
pub mod data_dir;
mod error;
pub mod follow;
pub mod host;
mod service;
mod settings;
pub mod tls;
pub mod token;

use tonic::{Code, Status};
use troupe_proto::{fault, reason::Reason};
use uuid::Uuid;

pub use self::{
    address::Address,
    channel::{Identified, Registry, Supervisor, is_unauthenticated},
    error::Error,
    service::Service,
    settings::Settings,
};

/// Returns a new request id. If a call fails, repeat it with the same id, so that the call takes effect only once.
#[must_use]
pub fn request_id() -> String {
    Uuid::now_v7().to_string()
}

/// Returns whether a retry of the call may succeed: the service is unreachable, restarting or busy.
#[must_use]
pub fn is_transient(status: &Status) -> bool {
    match fault::reason_of(status) {
        Some(reason) => matches!(
            reason,
            Reason::Draining
                | Reason::SessionMoving
                | Reason::Overloaded
                | Reason::RateLimited
                | Reason::RegistryUnavailable
                | Reason::OutcomeUnknown
        ),
        // A status without a Troupe reason comes from the transport: refused, reset, interrupted.
        None => matches!(
            status.code(),
            Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal
        ),
    }
}

/// Compiles the example of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../docs/sdks.md")]
struct Documentation;

#[cfg(test)]
mod tests {
    use troupe_proto::fault::Fault;

    use super::*;

    #[test]
    fn only_transport_and_busy_errors_are_transient() {
        assert!(is_transient(&Status::unavailable("tcp connect error")));
        let verdict: Status = Fault::new(Code::NotFound, Reason::ThreadNotFound, "no").into();
        assert!(!is_transient(&verdict));
        let drain: Status = Fault::new(Code::Unavailable, Reason::Draining, "later").into();
        assert!(is_transient(&drain));
    }
}
