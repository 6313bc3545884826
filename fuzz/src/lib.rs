//! What the targets share: what has to hold of templates and of states, the form of inputs with several messages, and
//! services in memory that are called with any bytes.

pub mod calls;
pub mod frames;
pub mod keys;
pub mod registry;
pub mod stage;
pub mod states;
pub mod templates;
