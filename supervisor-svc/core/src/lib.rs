//! The rules of the supervisor, without side effects: no clock, no id generation, no I/O, no async runtime. Time, ids
//! and randomness are arguments, so the same commands always produce the same history.
//!
//! [`decide()`](decide::decide) returns events, [`evolve()`](evolve::evolve) folds them into a
//! [`Session`](state::session::Session), and [`effect`] returns the pending effects.
//!
//! Dependencies point one way: `decide, effect, evolve -> rules -> state -> event`.
#![forbid(unsafe_code)]

pub mod command;
pub mod content;
pub mod decide;
pub mod effect;
pub mod event;
pub mod evolve;
pub mod group;
pub mod ids;
pub mod principal;
pub mod rejection;
pub mod resource;
pub mod rules;
pub mod settings;
pub mod state;
pub mod status;
pub mod time;
pub mod transcript;
