//! The `troupe` binary.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    troupe_cli::main()
}
