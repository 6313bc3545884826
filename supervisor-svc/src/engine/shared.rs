//! The parts that all actors of a process share.

use std::sync::Arc;

use bytes::Bytes;
use opentelemetry::metrics::{Counter, Gauge};
use supervisor_log::store::EventStore;
use svc_kit::instruments::{counter, meter};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::{deletions::Deletions, feed::Feed, places::Places, table::ActorTable, upkeep_limits::UpkeepLimits};
use crate::{
    clock::Clock,
    domain::{rules::rate::EventRate, state::session::Session},
    prices::PriceList,
};

/// The maximum number of sessions that restore their requests concurrently: half of the store's readers.
const RESTORES: usize = 2;

/// The dependencies and limits of the engine.
pub struct EngineConfig {
    /// The event store.
    pub store: Arc<dyn EventStore>,
    /// The source of the current time and of new ids.
    pub clock: Clock,
    /// The subscribers of all sessions.
    pub feed: Feed,
    /// Encodes the summary of a session, which is stored for listings of sessions that are not in memory.
    pub summarize: fn(&Session) -> Bytes,
    /// Limits of passivation, snapshots and compaction.
    pub upkeep: UpkeepLimits,
    /// The maximum content of a session, in bytes.
    pub session_content_bytes: u64,
    /// The maximum rate of events of a thread.
    pub event_rate: EventRate,
    /// The prices of models.
    pub prices: Arc<PriceList>,
}

/// The configuration and the state that the actors of a process share.
pub(super) struct Shared {
    pub config: EngineConfig,
    pub actors: ActorTable,
    /// The sessions of other supervisors.
    pub places: Places,
    /// The record of recent deletions.
    pub deletions: Deletions,
    /// Cancelled when the outcome of a write is unknown: the process must stop and replay its log.
    pub outcome_unknown: CancellationToken,
    /// Notified when a session that must be activated or deleted later leaves memory.
    pub due: Notify,
    /// Notified when sessions have lost their owner.
    pub orphans: Notify,
    /// Permits for sessions that restore their requests. The limit leaves some of the store's readers to callers.
    pub restores: Arc<Semaphore>,
    /// The number of writes that were refused because the session has another owner.
    pub fenced: Counter<u64>,
    /// The number of due sessions that could not be activated at the last attempt.
    pub not_activated: Gauge<u64>,
}

impl Shared {
    pub fn new(config: EngineConfig) -> Self {
        Self {
            config,
            actors: ActorTable::default(),
            places: Places::default(),
            deletions: Deletions::default(),
            outcome_unknown: CancellationToken::new(),
            due: Notify::new(),
            orphans: Notify::new(),
            restores: Arc::new(Semaphore::new(RESTORES)),
            fenced: counter(
                "troupe.log.fenced",
                "Writes that were refused because another supervisor owns the session",
            ),
            not_activated: meter()
                .u64_gauge("troupe.sessions.not.activated")
                .with_description("Sessions that are due and could not be activated at the last attempt")
                .build(),
        }
    }
}
