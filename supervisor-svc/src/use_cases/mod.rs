//! Operations that combine the engine with the registry, the runners or an operator's decision. They know no requests of
//! the API.

mod claims;
mod denials;
pub mod spawn;
pub mod tool_decision;
