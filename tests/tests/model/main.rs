//! The same model drives the real service over gRPC: random commands are carried out against a pair, clients and
//! runners at once, with restarts in between, and everything that the service answers is what the fold of its watched
//! log says. The log itself is held to the laws of the domain, event by event.
//!
//! `PROPTEST_CASES=1000 cargo test -p troupe-tests --test model` looks further than a normal run.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod answers;
#[allow(
    dead_code,
    reason = "here commands are decided by the service, so the laws about a decision have no use"
)]
#[path = "../../../supervisor-svc/tests/domain/laws.rs"]
mod laws;
mod mirror;
mod play;
mod request;
mod script;

/// What the laws take from the crate that they are part of.
mod world {
    pub use crate::mirror::name;
}

use std::env;

use proptest::prelude::*;
use tokio::runtime::{Builder, Runtime};

use self::{
    play::Play,
    script::{Op, Setup, scripts, setups},
};

/// How many histories a normal run tries.
const CASES: u32 = 24;

fn config() -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if env::var_os("PROPTEST_CASES").is_none() {
        config.cases = CASES;
    }
    config
}

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

async fn carry_out(setup: &Setup, script: &[Op]) {
    let mut play = Play::open(setup).await;
    for op in script {
        play.happens(op).await;
    }
    Box::pin(play.close()).await;
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_service_is_what_its_log_says(setup in setups(), script in scripts()) {
        runtime().block_on(carry_out(&setup, &script));
    }
}
