//! The startup configuration of the supervisor.

use std::{path::PathBuf, sync::Arc, time::Duration};

use supervisor_log::store::PostgresOptions;
use svc_kit::shown_token::ShownToken;
use troupe_client::tls::ClientFiles;

use crate::{
    backups::BackupSettings,
    cluster_options::ClusterOptions,
    domain::{
        rules::rate::EventRate,
        settings::{Limits, StallRule},
    },
    engine::UpkeepLimits,
    prices::PriceList,
    projections::{watch::WatchLimits, webhooks::WebhookLimits},
    runners::LEASE,
};

/// Startup configuration of the supervisor.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of the log and the keys. The caller holds the directory's lock.
    pub data_dir: PathBuf,
    /// The PostgreSQL database of the log, instead of a SQLite file in the data directory.
    pub postgres: Option<PostgresOptions>,
    /// How this supervisor shares its log with others, if the log can be shared.
    pub cluster: ClusterOptions,
    /// The registry's URL.
    pub registry_url: String,
    /// The token that authenticates the supervisor to the registry.
    pub registry_token: Option<ShownToken>,
    /// Trusted authorities for the registry's certificate and the client certificate, if the URL uses TLS.
    pub registry_tls: ClientFiles,
    /// Defaults and maxima of sessions' limits.
    pub limits: Limits,
    /// How long a runner may be silent before its lease expires.
    pub lease: Duration,
    /// The stall rule for threads of new sessions.
    pub stall: StallRule,
    /// Times of watches.
    pub watch: WatchLimits,
    /// Webhook delivery settings.
    pub webhooks: WebhookLimits,
    /// When sessions are passivated, and which derived data is stored in addition to their log.
    pub upkeep: UpkeepLimits,
    /// Maximum content of a session, in bytes.
    pub session_content_bytes: u64,
    /// Maximum number of items of a group.
    pub max_group_items: u32,
    /// Maximum event rate of a thread.
    pub event_rate: EventRate,
    /// The prices of models, and the currency of new sessions.
    pub prices: Arc<PriceList>,
    /// Scheduled backups of the log. `None` makes no backups.
    pub backups: Option<BackupSettings>,
}

impl Config {
    /// Default maximum content of a session, in bytes: 1 GiB.
    pub const SESSION_CONTENT_BYTES: u64 = 1024 * 1024 * 1024;
    /// Default of [`Self::max_group_items`].
    pub const MAX_GROUP_ITEMS: u32 = 500;

    /// Creates the default configuration for a data directory and a registry.
    #[must_use]
    pub fn new(data_dir: PathBuf, registry_url: String) -> Self {
        Self {
            data_dir,
            postgres: None,
            cluster: ClusterOptions::default(),
            registry_url,
            registry_token: None,
            registry_tls: ClientFiles::default(),
            limits: Limits::default(),
            lease: LEASE,
            stall: StallRule::default(),
            watch: WatchLimits::default(),
            webhooks: WebhookLimits::default(),
            upkeep: UpkeepLimits::default(),
            session_content_bytes: Self::SESSION_CONTENT_BYTES,
            max_group_items: Self::MAX_GROUP_ITEMS,
            event_rate: EventRate::default(),
            prices: Arc::default(),
            backups: None,
        }
    }
}
