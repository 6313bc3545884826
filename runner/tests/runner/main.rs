//! Tests of the runner with a fake supervisor over real gRPC, and with `/bin/sh` scripts as agents.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acp;
mod draining;
mod endpoints;
mod program;
mod reattach;
mod sample;
mod stopping;
mod supervisor;
mod tools;
mod transcript;
mod turns;
mod workspace;
