//! What the supervisor costs those who watch it, close much at once, or spawn; each against the least that it could
//! cost.
//!
//! ```text
//! cargo bench -p troupe-tests --bench supervisor
//! ```
//!
//! A plain program: a fixed amount of work on loopback, in temporary directories, and tables in Markdown. What is
//! measured is a process of its own: this program again, told to serve. Without `--bench`, as in
//! `cargo test --benches`, it does a hundredth of the work, which only shows that it still runs.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod authorize;
mod cascade;
mod delay;
#[path = "../registry/echo.rs"]
mod echo;
mod floor;
mod idle;
mod memory;
mod rate;
mod served;
mod session;
mod spawn;
#[path = "../registry/table.rs"]
mod table;
mod versus;

use std::{
    env,
    io::{self, BufReader},
    time::Duration,
};

/// How much is done.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// How many watch, in each of the runs.
    crowds: &'static [usize],
    /// Notes whose delay is measured, one after the other.
    notes: usize,
    /// Notes before that, which the slow watcher does not read: more than its window, its outbox and the feed hold.
    backlog: usize,
    /// Streams of the comparison with raw ones.
    streams: usize,
    /// Messages of each.
    messages: usize,
    /// The threads that are closed at once are ten to the power of these.
    levels: &'static [u32],
    /// Calls in a round, where single calls are compared.
    calls: usize,
    /// How long agents that do nothing are left alone, before and, four times as long, while it is measured.
    rest: Duration,
    /// How often calls and cascades are measured; the tables have the medians.
    rounds: usize,
}

impl Plan {
    const FULL: Self = Self {
        crowds: &[1, 100, 1_000],
        notes: 200,
        backlog: 500,
        streams: 100,
        messages: 3_200,
        levels: &[2, 3, 4],
        calls: 500,
        rest: Duration::from_secs(5),
        rounds: 3,
    };

    const BRIEF: Self = Self {
        crowds: &[1, 10],
        notes: 4,
        backlog: 8,
        streams: 4,
        messages: 32,
        levels: &[1, 2],
        calls: 8,
        rest: Duration::from_millis(10),
        rounds: 1,
    };
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let Some((served::ROLE, role)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        served::run(role).await;
        return;
    }
    if arguments.first().is_some_and(|first| first == served::AGENT) {
        let code = troupe_runner::sample_agent::main_loop(BufReader::new(io::stdin()), io::stdout());
        std::process::exit(code);
    }
    let plan = if arguments.iter().any(|argument| argument == "--bench") {
        Plan::FULL
    } else {
        Plan::BRIEF
    };
    delay::run(plan).await;
    memory::run(plan).await;
    rate::run(plan).await;
    cascade::run(plan).await;
    spawn::run(plan).await;
    authorize::run(plan).await;
    idle::run(plan).await;
}
