//! A property test of the real services over gRPC: random scripts of calls, runner reports and restarts run against a
//! pair. After each step, all answers of the service must equal the state that the domain's fold derives from the
//! watched log. Every event of the log is also checked against the invariants of the domain (`laws`).
//!
//! `PROPTEST_CASES=1000 cargo test -p troupe-tests --test model` tries more scripts than a normal run.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod answers;
#[allow(
    dead_code,
    reason = "the service decides commands here, so the checks of decisions are unused"
)]
#[path = "../../../supervisor-svc/tests/domain/laws.rs"]
mod laws;
mod mirror;
mod play;
mod request;
mod script;

/// The names that the module `laws` imports from the crate that includes it.
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

/// Number of scripts in a normal run.
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

async fn run_script(setup: &Setup, script: &[Op]) {
    let mut play = Play::open(setup).await;
    for op in script {
        play.run_step(op).await;
    }
    Box::pin(play.close()).await;
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn service_answers_match_log(setup in setups(), script in scripts()) {
        runtime().block_on(run_script(&setup, &script));
    }
}
