//! The `supervisor-svc` binary.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    svc_kit::program::main(supervisor_svc::program::run)
}
