//! The service as clients call it: thin. A handler checks the request's form, finds the session and the caller, hands a
//! command to the session, and shows the result. It decides nothing.

mod call;
mod check;
mod page;
mod reads;
mod resolved;
mod service;
mod sessions;
mod spawn;
mod status;
mod threads;
mod tools;
mod unbuilt;
mod wait;
mod watch;

pub use self::{
    service::{ServiceConfig, SupervisorService},
    wait::WaitLimits,
};
