//! Rules over the state: predicates, limits and derived data. They change nothing. Decisions and readers call them.

pub mod approval;
pub mod authority;
pub mod authorize;
pub mod budget;
pub mod cascade;
pub mod graph;
pub mod input;
pub mod limits;
pub mod list;
pub mod mail;
pub mod notify;
pub mod orchestration;
pub mod prompt;
pub mod rate;
pub mod reach;
pub mod stall;
pub mod start;
pub mod waiting;
