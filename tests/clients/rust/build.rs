//! Generates the stubs of both services. protox reads the protos, so protoc is not required.

use std::error::Error;

/// The directory to which the paths of the protos are relative.
const PROTOS: &str = "../../../proto";

fn main() -> Result<(), Box<dyn Error>> {
    let services = [
        "troupe/registry/v1/registry.proto",
        "troupe/supervisor/v1/supervisor.proto",
    ];
    let descriptors = protox::compile(services, [PROTOS])?;
    tonic_prost_build::configure()
        .build_server(false)
        .compile_fds(descriptors)?;
    println!("cargo::rerun-if-changed={PROTOS}/troupe");
    Ok(())
}
