//! All limits of the registry that a client can encounter.

use svc_kit::limits::Area;

use crate::{grpc, source};

/// Returns the table, in the order in which it is shown.
#[must_use]
pub fn limits() -> Vec<Area> {
    [grpc::limits::limits(), source::limits::limits()].concat()
}
