//! The `registry-svc` binary.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    svc_kit::program::main(registry_svc::program::run)
}
