//! The Agent2Agent protocol (A2A) v1.0: its generated messages, client and server, and their JSON form.
#![forbid(unsafe_code)]

pub mod json;

/// Package `lf.a2a.v1`.
#[allow(
    missing_docs,
    clippy::all,
    clippy::unwrap_used,
    unreachable_pub,
    unused_qualifications
)]
mod generated {
    tonic::include_proto!("lf.a2a.v1");
}

pub use generated::*;
