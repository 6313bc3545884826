//! The `a2a-svc` binary.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    svc_kit::program::main(a2a_svc::program::run)
}
