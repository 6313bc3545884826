//! The API of Troupe: generated messages, clients and servers, the descriptor set, and the closed list of error
//! reasons.
//!
//! This crate contains no domain logic, and the domain crates do not depend on it.
#![forbid(unsafe_code)]

pub mod fault;
pub mod reason;

/// Types that both services share.
pub mod common {
    /// Package `troupe.common.v1`.
    #[allow(
        missing_docs,
        clippy::all,
        clippy::unwrap_used,
        unreachable_pub,
        unused_qualifications
    )]
    pub mod v1 {
        tonic::include_proto!("troupe.common.v1");
    }
}

/// The registry's API.
pub mod registry {
    /// Package `troupe.registry.v1`.
    #[allow(
        missing_docs,
        clippy::all,
        clippy::unwrap_used,
        unreachable_pub,
        unused_qualifications
    )]
    pub mod v1 {
        tonic::include_proto!("troupe.registry.v1");
    }
}

/// The supervisor's API, for clients and for runners.
pub mod supervisor {
    /// Package `troupe.supervisor.v1`.
    #[allow(
        missing_docs,
        clippy::all,
        clippy::unwrap_used,
        unreachable_pub,
        unused_qualifications
    )]
    pub mod v1 {
        tonic::include_proto!("troupe.supervisor.v1");
    }
}

/// Calls between supervisors that share a log. Not part of the API.
pub mod cluster {
    /// Package `troupe.cluster.v1`.
    #[allow(
        missing_docs,
        clippy::all,
        clippy::unwrap_used,
        unreachable_pub,
        unused_qualifications
    )]
    pub mod v1 {
        tonic::include_proto!("troupe.cluster.v1");
    }
}

/// The stream of the web console. `troupe console` serves it to its page; not part of the API.
pub mod console {
    /// Package `troupe.console.v1`.
    #[allow(
        missing_docs,
        clippy::all,
        clippy::unwrap_used,
        unreachable_pub,
        unused_qualifications
    )]
    pub mod v1 {
        tonic::include_proto!("troupe.console.v1");
    }
}

/// Records in the supervisor's log. Not part of the API.
pub mod store {
    /// Package `troupe.store.v1`.
    #[allow(
        missing_docs,
        clippy::all,
        clippy::unwrap_used,
        unreachable_pub,
        unused_qualifications
    )]
    pub mod v1 {
        tonic::include_proto!("troupe.store.v1");
    }
}

/// The descriptors of the whole API without comments, as an encoded `FileDescriptorSet`. Reflection serves them.
pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("troupe_descriptor");

/// [`FILE_DESCRIPTOR_SET`] with source information, for checks and generated documentation.
pub const FILE_DESCRIPTOR_SET_WITH_COMMENTS: &[u8] =
    tonic::include_file_descriptor_set!("troupe_descriptor_with_comments");

/// Maximum size of a message that a client or server of this API accepts, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// Maximum size of a message with a workspace bundle, in bytes: 16 MiB of files with 2,000 paths of 4,096 bytes.
pub const MAX_WORKSPACE_MESSAGE_BYTES: usize = 32 * 1024 * 1024;
