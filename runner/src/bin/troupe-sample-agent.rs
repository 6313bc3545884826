//! The sample agent as a separate program, for runners that start it by name.
#![forbid(unsafe_code)]

use std::io::{BufReader, stdin, stdout};

fn main() {
    std::process::exit(troupe_runner::sample_agent::main_loop(
        BufReader::new(stdin()),
        stdout(),
    ));
}
