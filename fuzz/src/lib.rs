//! Shared parts of the fuzz targets: invariants of templates and states, the format of inputs with several messages,
//! and in-memory services that accept arbitrary bytes.

#[cfg(feature = "services")]
pub mod calls;
#[cfg(feature = "services")]
pub mod frames;
#[cfg(feature = "services")]
pub mod harness;
#[cfg(feature = "services")]
pub mod keys;
#[cfg(feature = "services")]
pub mod registry;
#[cfg(feature = "services")]
pub mod states;
pub mod templates;
