//! What the registry costs: many templates, and one resolution against the least that a call can cost.
//!
//! ```text
//! cargo bench -p troupe-tests --bench registry
//! ```
//!
//! A plain program: a fixed number of calls on loopback, in a temporary directory, and two tables in Markdown. Without
//! `--bench`, as in `cargo test --benches`, it does a hundredth of the work, which only shows that it still runs.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod echo;
mod load;
mod many;
mod resolve;
mod site;
mod table;

use std::env;

/// How much is done.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Templates in each of the project's directories; the registry reads no directory with over 2,000 files.
    templates: usize,
    /// How often everything is measured; the tables have the medians.
    rounds: usize,
    /// Connections, each with one call at a time.
    connections: usize,
    /// Calls of each connection that count, after as many that warm up.
    calls: usize,
}

impl Plan {
    fn of_arguments() -> Self {
        if env::args().any(|argument| argument == "--bench") {
            Self {
                templates: 2_000,
                rounds: 5,
                connections: 4,
                calls: 5_000,
            }
        } else {
            Self {
                templates: 20,
                rounds: 1,
                connections: 2,
                calls: 50,
            }
        }
    }
}

#[tokio::main]
async fn main() {
    let plan = Plan::of_arguments();
    many::run(plan).await;
    resolve::run(plan).await;
}
