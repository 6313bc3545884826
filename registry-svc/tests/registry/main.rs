//! Tests of the registry over gRPC, on a free port and with files of its own (see [`site`]), and properties of its pure
//! domain.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bundles;
mod grpc;
mod prompts;
mod properties;
mod rpcs;
mod site;
mod warm;
mod watch;
