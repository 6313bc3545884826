//! The service on the wire: bounds of requests, translation, errors. It decides nothing.

mod agents;
mod bounds;
mod convert;
mod findings;
mod page;
pub(crate) mod service;
mod spawn;
mod status;
