//! The `supervisor-svc` binary.
#![forbid(unsafe_code)]

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    Box::pin(svc_kit::program::main(supervisor_svc::program::run)).await
}
