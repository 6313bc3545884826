//! The costs of Troupe, next to a lower bound measured in the same run.
//!
//! ```text
//! cargo bench -p troupe-tests --bench load                        # everything, as Markdown
//! cargo bench -p troupe-tests --bench load -- --only spawn idle   # selected measurements
//! cargo bench -p troupe-tests --bench load -- --write             # everything, into docs/performance.md
//! ```
//!
//! The program does a fixed amount of work on loopback, in temporary directories. The measured services are separate
//! processes: this program with other arguments. Without `--bench`, as in `cargo test --bench load`, the program does a
//! hundredth of the work, which only shows that the measurements still run.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod arguments;
mod arrivals;
mod commits;
mod figure;
mod measures;
mod opaque;
mod plan;
mod plot;
mod raw;
mod report;
mod samples;
mod served;
mod session;
mod site;
mod turns;

use std::{
    env,
    io::{self, BufReader},
    process,
};

use crate::arguments::Arguments;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        Some((served::ROLE, role)) => served::run(role).await,
        Some((served::AGENT, _)) => {
            let code = troupe_runner::sample_agent::main_loop(BufReader::new(io::stdin()), io::stdout());
            process::exit(code);
        }
        _ => measure(Arguments::parse(&arguments).unwrap_or_else(|why| panic!("{why}"))).await,
    }
}

async fn measure(arguments: Arguments) {
    let mut chapters = Vec::new();
    for measure in arguments.measures {
        let chapter = (measure.run)(arguments.plan).await;
        println!("{}", report::chapter(&chapter));
        chapters.push(chapter);
    }
    println!("{}", report::summary(&chapters));
    if arguments.write {
        report::write(&chapters);
    }
}
