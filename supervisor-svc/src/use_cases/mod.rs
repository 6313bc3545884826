//! Operations that combine the engine with the registry and the runners. They do not use requests of the API.

pub mod group_plan;
pub mod groups;
mod instructions;
mod role;
pub mod route;
pub mod spawn;
