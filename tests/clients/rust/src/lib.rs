//! A small client of a pair of Troupe services, based on the stubs that are generated from its protos.
#![forbid(unsafe_code)]

pub mod client;
pub mod environment;
pub mod refusal;
pub mod watch;

// The generated code refers to types of other packages by `super::super`, so the modules are nested like the packages.

/// Types that both services share.
pub mod common {
    /// Package `troupe.common.v1`.
    pub mod v1 {
        tonic::include_proto!("troupe.common.v1");
    }
}

/// The registry's API.
pub mod registry {
    /// Package `troupe.registry.v1`.
    pub mod v1 {
        tonic::include_proto!("troupe.registry.v1");
    }
}

/// The supervisor's API.
pub mod supervisor {
    /// Package `troupe.supervisor.v1`.
    pub mod v1 {
        tonic::include_proto!("troupe.supervisor.v1");
    }
}
