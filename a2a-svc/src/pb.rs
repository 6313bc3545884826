//! The generated types of the protocol, and their descriptors.

use std::sync::LazyLock;

use prost_reflect::DescriptorPool;

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

const DESCRIPTORS: &[u8] = tonic::include_file_descriptor_set!("a2a_descriptor");

/// The descriptors of the protocol. `None` would be a defect of the build, which every test would show.
pub(crate) static POOL: LazyLock<Option<DescriptorPool>> = LazyLock::new(|| DescriptorPool::decode(DESCRIPTORS).ok());
