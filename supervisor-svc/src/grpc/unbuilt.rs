//! What the API names and this release does not build yet, answered clearly instead of half.

use tonic::{Code, Status};
use troupe_proto::{fault::Fault, reason::Reason};

/// The answer of a method that is not built yet.
pub(super) fn method(name: &str) -> Status {
    let text = format!("{name} is designed but not built in this release");
    Fault::new(Code::Unimplemented, Reason::NotBuilt, text)
        .with("method", name)
        .into()
}
