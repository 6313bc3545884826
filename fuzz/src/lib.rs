//! What the targets share: what has to hold of templates and of states, the form of inputs with several messages, and
//! services in memory that are called with any bytes.

#[cfg(feature = "services")]
pub mod calls;
#[cfg(feature = "services")]
pub mod frames;
#[cfg(feature = "services")]
pub mod keys;
#[cfg(feature = "services")]
pub mod registry;
#[cfg(feature = "services")]
pub mod stage;
#[cfg(feature = "services")]
pub mod states;
pub mod templates;
