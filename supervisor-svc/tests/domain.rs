//! The rules of the supervisor, without a store, a clock, runners or the network: tables of each command's effect in
//! each state, and a model that plays random histories and checks the laws of CONTRACT.md §3 and STATE.md §2-5 after
//! every append.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "domain/approvals.rs"]
mod approvals;
#[path = "domain/budgets.rs"]
mod budgets;
#[path = "domain/close.rs"]
mod close;
#[path = "domain/control.rs"]
mod control;
#[path = "domain/eviction.rs"]
mod eviction;
#[path = "domain/graph.rs"]
mod graph;
#[path = "domain/groups.rs"]
mod groups;
#[path = "domain/laws.rs"]
mod laws;
#[path = "domain/mail.rs"]
mod mail;
#[path = "domain/model.rs"]
mod model;
#[path = "domain/notify.rs"]
mod notify;
#[path = "domain/queue.rs"]
mod queue;
#[path = "domain/reports.rs"]
mod reports;
#[path = "domain/results.rs"]
mod results;
#[path = "domain/resume.rs"]
mod resume;
#[path = "domain/runners.rs"]
mod runners;
#[path = "domain/settings.rs"]
mod settings;
#[path = "domain/snapshots.rs"]
mod snapshots;
#[path = "domain/spawning.rs"]
mod spawning;
#[path = "domain/stall.rs"]
mod stall;
#[path = "domain/steps.rs"]
mod steps;
#[path = "domain/tools.rs"]
mod tools;
#[path = "domain/waiting.rs"]
mod waiting;
#[path = "domain/world.rs"]
mod world;
