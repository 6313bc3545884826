//! The rules of the supervisor, pure: no clock, no ids of its own, no I/O, no runtime. Time, ids and randomness come in as
//! arguments, so that the same commands give the same history.
//!
//! [`decide()`](decide::decide) says what happens, [`evolve()`](evolve::evolve) folds it into a [`Session`](session::Session),
//! and [`effect`] says what is then owed to the world outside.

pub mod actor;
pub mod approval;
pub mod authority;
pub mod authorize;
pub mod budget;
pub mod cascade;
pub mod command;
pub mod content;
pub mod decide;
pub mod effect;
pub mod event;
pub mod evolve;
pub mod graph;
pub mod ids;
pub mod input;
pub mod limits;
pub mod list;
pub mod mail;
pub mod mailbox;
pub mod notify;
pub mod orchestration;
pub mod prompt;
pub mod rate;
pub mod reach;
pub mod refusal;
mod roles;
pub mod session;
pub mod settings;
pub mod stall;
pub mod status;
pub mod thread;
pub mod time;
pub mod waiting;
