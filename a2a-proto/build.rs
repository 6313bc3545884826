//! Compiles the protocol's official proto file with protox, so that a build needs no protoc.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).open_files(["lf/a2a/v1/a2a.proto"])?;
    let descriptors = compiler.file_descriptor_set();
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("a2a_descriptor.bin"), descriptors.encode_to_vec())?;
    let mut config = tonic_prost_build::Config::new();
    // Code finds the descriptor of a message by its full name.
    config.enable_type_names();
    tonic_prost_build::configure()
        .bytes(".")
        .btree_map(".lf.a2a.v1")
        .compile_fds_with_config(descriptors, config)?;
    println!("cargo::rerun-if-changed=proto");
    Ok(())
}
