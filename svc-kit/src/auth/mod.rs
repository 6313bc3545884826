//! Authentication and the permission table, as one layer in front of every service.
//!
//! [`Authenticator`] finds the [`Principal`](crate::identity::Principal) of a call; [`Authority`] holds a service's
//! table; [`AuthLayer`] uses both. A method without a row is rejected. Health and reflection are open to all callers.
//! Finer rules (a thread's subtree, its tools, fields that only operators may set) belong to the services and run after
//! this layer.

mod authenticator;
mod authority;
mod layer;
#[cfg(test)]
mod tests;

use tonic::{Code, Status};
use troupe_proto::{fault::Fault, reason::Reason};

pub(crate) use self::authority::quote;
pub use self::{
    authenticator::{Authenticator, Trust},
    authority::{Authority, Caller, Effect, Row, rows_missing},
    layer::{Auth, AuthLayer},
};

/// The text of every failed authentication. The exact cause would help only an attacker.
const UNAUTHENTICATED: &str = r#"missing, malformed or stale token; send "authorization: Bearer TOKEN""#;

/// Methods open to all callers: health and the shape of the API are public.
const OPEN: &[&str] = &[
    "/grpc.health.v1.Health/",
    "/grpc.reflection.v1.ServerReflection/",
    "/grpc.reflection.v1alpha.ServerReflection/",
];

/// The streaming methods among [`OPEN`].
pub(crate) const OPEN_STREAMS: &[&str] = &[
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// Returns whether a method (its full path) is open to all callers.
#[must_use]
pub fn is_open(method: &str) -> bool {
    OPEN.iter().any(|prefix| method.starts_with(prefix))
}

/// The status of every failed authentication: a missing, bad or stale token.
#[must_use]
pub fn unauthenticated() -> Status {
    Fault::new(Code::Unauthenticated, Reason::Unauthenticated, UNAUTHENTICATED).into()
}
