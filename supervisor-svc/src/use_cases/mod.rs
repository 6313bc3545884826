//! Operations that combine the engine with the registry and the runners. They know no requests of the API.

mod instructions;
pub mod role;
pub mod route;
pub mod spawn;
