//! The parts that the dispatches of all sessions share.

use std::sync::{Arc, OnceLock};

use supervisor_log::store::EventStore;
use svc_kit::thread_token::TokenKeys;

use super::{hub::RunnerHub, telemetry::TelemetryBoard};
use crate::{clock::Clock, prices::PriceList};

/// The store, the runners, and the data that a runner receives with a thread.
pub struct Services {
    pub store: Arc<dyn EventStore>,
    pub hub: RunnerHub,
    /// Mints the threads' tokens.
    pub keys: Arc<TokenKeys>,
    pub telemetry: TelemetryBoard,
    pub prices: Arc<PriceList>,
    pub clock: Clock,
    /// The URL at which agents' tools reach this service. Set once the service listens.
    pub public_url: Arc<OnceLock<String>>,
}
