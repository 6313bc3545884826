//! Compiles the protos with protox, so that building Troupe does not need protoc.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

/// The proto files: the API; `cluster`, which supervisors serve to each other; `console`, which `troupe console` serves
/// to its page; and `store`, the format of stored records.
const FILES: &[&str] = &[
    "troupe/common/v1/common.proto",
    "troupe/registry/v1/registry.proto",
    "troupe/supervisor/v1/thread.proto",
    "troupe/supervisor/v1/group.proto",
    "troupe/supervisor/v1/session.proto",
    "troupe/supervisor/v1/event.proto",
    "troupe/supervisor/v1/transcript.proto",
    "troupe/supervisor/v1/supervisor.proto",
    "troupe/supervisor/v1/runner.proto",
    "troupe/cluster/v1/cluster.proto",
    "troupe/console/v1/console.proto",
    "troupe/store/v1/record.proto",
];

/// Internal packages. The descriptors of the API do not contain them.
const INTERNAL: &[&str] = &["troupe.cluster.v1", "troupe.console.v1"];

/// Fields that are boxed because they are much larger than the messages around them, or rarely set. Unboxed, they would
/// enlarge every decoded event and every thread of a snapshot.
const BOXED: &[&str] = &[
    ".troupe.supervisor.v1.Event.kind.session_opened",
    ".troupe.supervisor.v1.Event.kind.thread_spawned",
    ".troupe.supervisor.v1.Event.kind.group_created",
    ".troupe.store.v1.Record.private",
    ".troupe.store.v1.Snapshot.private",
    ".troupe.store.v1.ThreadState.spawned",
    ".troupe.store.v1.ThreadState.spawned_private",
    ".troupe.store.v1.ThreadState.budget",
    ".troupe.store.v1.ThreadState.budget_private",
    ".troupe.store.v1.ThreadState.fence",
    ".troupe.store.v1.ThreadState.earlier_usage",
    ".troupe.store.v1.ThreadState.repeated_output",
    ".troupe.store.v1.ThreadState.repeated_diff",
    ".troupe.store.v1.StatusState.status",
    ".troupe.store.v1.StatusState.private",
    ".troupe.store.v1.Letter.body.handoff",
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut compiler = protox::Compiler::new(["."])?;
    compiler
        .include_source_info(true)
        .include_imports(true)
        .open_files(FILES)?;
    let descriptors = compiler.file_descriptor_set();

    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut described = descriptors.clone();
    described.file.retain(|file| !INTERNAL.contains(&file.package()));
    // Reflection serves names and types; comments would only make the binary larger.
    let mut served = described.clone();
    for file in &mut served.file {
        file.source_code_info = None;
    }
    fs::write(out.join("troupe_descriptor.bin"), served.encode_to_vec())?;
    fs::write(
        out.join("troupe_descriptor_with_comments.bin"),
        described.encode_to_vec(),
    )?;

    let mut config = tonic_prost_build::Config::new();
    // Code finds the descriptor of a message by its full name.
    config.enable_type_names();
    let mut builder = tonic_prost_build::configure();
    for field in BOXED {
        builder = builder.boxed(field);
    }
    builder
        .bytes(".")
        // Ordered, so that equal messages have equal encodings: request hashes depend on it.
        .btree_map(".")
        .compile_fds_with_config(descriptors, config)?;
    // tonic-prost-build does not emit this for protos that it did not open itself.
    println!("cargo::rerun-if-changed=troupe");
    Ok(())
}
