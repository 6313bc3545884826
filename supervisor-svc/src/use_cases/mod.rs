//! Operations that combine the engine with the registry and the runners. They know no requests of the API.

pub mod group_plan;
pub mod groups;
mod instructions;
mod role;
pub mod route;
pub mod spawn;
