//! All limits of the registry that a client can encounter.

use svc_kit::limits::Limit;

use crate::{grpc, source};

/// Returns the table, in the order in which it is shown.
#[must_use]
pub fn limits() -> Vec<Limit> {
    [grpc::limits::limits(), source::limits::limits()].concat()
}
