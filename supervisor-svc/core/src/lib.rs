//! The rules of the supervisor, without side effects: no clock, no id generation, no I/O, no async runtime. Time, ids
//! and randomness are arguments, so the same commands always produce the same history.
//!
//! [`decide()`](decide::decide) returns events, [`evolve()`](evolve::evolve) folds them into a
//! [`Session`](session::Session), and [`effect`] returns the pending effects.
#![forbid(unsafe_code)]

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
