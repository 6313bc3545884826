//! The rules of the supervisor, without a store, a clock, runners or the network: tables with the effect of each
//! command in each state, and a model that runs random histories and checks the laws of CONTRACT.md §3 and STATE.md
//! §2-5 after every append. [`open`] and [`wire`] test code around the rules: the data directory and the messages of
//! the API.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod approvals;
mod budgets;
mod close;
mod control;
mod eviction;
mod graph;
mod groups;
mod laws;
mod mail;
mod model;
mod notify;
mod open;
mod queue;
mod reports;
mod results;
mod resume;
mod runners;
#[path = "../../log/tests/log/samples.rs"]
mod samples;
mod settings;
mod spawning;
mod stall;
mod steps;
mod tools;
mod waiting;
mod wire;
mod world;
