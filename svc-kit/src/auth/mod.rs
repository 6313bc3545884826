//! Authentication and the table of who may call what, as one layer in front of every service.
//!
//! [`Authenticator`] turns a bearer token into a [`Principal`](crate::identity::Principal); [`Authority`] holds a service's
//! table; [`AuthLayer`] asks both. A method without a row is refused. Health and reflection are open to all. Finer rules (a
//! thread's subtree, its tools, fields that only operators may set) are the services' own and come after this.

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

/// The one text for every failed authentication: which of its causes it was helps only an attacker.
const UNAUTHENTICATED: &str = r#"missing, malformed or stale token; send "authorization: Bearer TOKEN""#;

/// Open to all: they say that the service lives and what its API is, both public.
const OPEN: &[&str] = &[
    "/grpc.health.v1.Health/",
    "/grpc.reflection.v1.ServerReflection/",
    "/grpc.reflection.v1alpha.ServerReflection/",
];

/// Of these, the methods that stream.
pub(crate) const OPEN_STREAMS: &[&str] = &[
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// Whether a method (its full path) is open to all.
#[must_use]
pub fn is_open(method: &str) -> bool {
    OPEN.iter().any(|prefix| method.starts_with(prefix))
}

/// The answer to every failed authentication: no token, a bad one, a stale one.
#[must_use]
pub fn unauthenticated() -> Status {
    Fault::new(Code::Unauthenticated, Reason::Unauthenticated, UNAUTHENTICATED).into()
}
