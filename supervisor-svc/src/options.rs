//! The flags that all programs that contain a supervisor share.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::Args;

use crate::{
    config::Config,
    domain::{
        rules::rate::EventRate,
        settings::{Limits, StallRule},
    },
    engine::UpkeepLimits,
    prices::PriceList,
};

/// Limits of sessions, and the rule for stalled agents.
#[derive(Clone, Debug, Args)]
pub struct SessionOptions {
    /// Maximum depth of a thread; the root is at depth 0
    #[arg(long, env = "TROUPE_MAX_DEPTH", value_name = "NUMBER", default_value_t = Limits::default().max_depth)]
    pub max_depth: u32,
    /// Maximum active threads of a session, without the root
    #[arg(long, env = "TROUPE_MAX_THREADS", value_name = "NUMBER", default_value_t = Limits::default().max_threads)]
    pub max_threads: u32,
    /// Maximum open threads of a session
    #[arg(
        long,
        env = "TROUPE_MAX_OPEN_THREADS",
        value_name = "NUMBER",
        default_value_t = Limits::default().max_open_threads
    )]
    pub max_open_threads: u32,
    /// Maximum threads created in a session, closed ones included
    #[arg(
        long,
        env = "TROUPE_MAX_TOTAL_THREADS",
        value_name = "NUMBER",
        default_value_t = Limits::default().max_total_threads
    )]
    pub max_total_threads: u32,
    /// Maximum bytes of content (inputs, prompts, results) of a session; beyond it, input is rejected and runner
    /// reports are stored without content
    #[arg(
        long,
        env = "TROUPE_SESSION_CONTENT_BYTES",
        value_name = "BYTES",
        default_value_t = Config::SESSION_CONTENT_BYTES
    )]
    pub session_content_bytes: u64,
    /// Maximum number of items of a group
    #[arg(
        long,
        env = "TROUPE_MAX_GROUP_ITEMS",
        value_name = "NUMBER",
        default_value_t = Config::MAX_GROUP_ITEMS,
        value_parser = clap::value_parser!(u32).range(1..=10_000)
    )]
    pub max_group_items: u32,
    /// Events per second that a thread may cause, after a burst of 50 times that number; all threads of a session
    /// together: twice the rate, burst 200 times
    #[arg(
        long,
        env = "TROUPE_THREAD_EVENT_RATE",
        value_name = "NUMBER",
        default_value_t = EventRate::default().of_thread().per_second
    )]
    pub thread_event_rate: u32,
    /// Days that compaction keeps security events: spawns, closings, approvals and denials
    #[arg(
        long,
        env = "TROUPE_KEEP_SECURITY_EVENTS",
        value_name = "DAYS",
        default_value_t = UpkeepLimits::SECURITY_EVENT_DAYS
    )]
    pub keep_security_events: u32,
    /// Price list of models, YAML; without one, only costs that programs report are known
    #[arg(long, env = "TROUPE_PRICES", value_name = "FILE")]
    pub prices: Option<PathBuf>,
    /// Allow webhooks at private, loopback and link-local addresses
    #[arg(long, env = "TROUPE_WEBHOOK_ALLOW_PRIVATE")]
    pub webhook_allow_private: bool,
    /// Seconds of silence after which a running agent is stalled; 0: never
    #[arg(
        long,
        env = "TROUPE_STALL_AFTER",
        value_name = "SECONDS",
        default_value_t = StallRule::default().silence.as_secs()
    )]
    pub stall_after: u64,
    /// Number of consecutive turns with equal output or equal changes after which an agent is stalled; 0: never
    #[arg(long, env = "TROUPE_STALL_REPEATS", value_name = "TURNS", default_value_t = StallRule::default().repeats)]
    pub stall_repeats: u32,
}

impl SessionOptions {
    /// Applies the options to a configuration.
    ///
    /// # Errors
    ///
    /// As [`Limits::check`], [`StallRule::check`], [`EventRate::new`], [`UpkeepLimits::keep_security_events_for`] and
    /// [`PriceList::read`].
    pub fn apply(self, config: &mut Config) -> Result<(), String> {
        let limits = Limits {
            max_depth: self.max_depth,
            max_threads: self.max_threads,
            max_open_threads: self.max_open_threads,
            max_total_threads: self.max_total_threads,
        };
        limits.check()?;
        let stall = StallRule {
            repeats: self.stall_repeats,
            silence: Duration::from_secs(self.stall_after),
        };
        stall.check()?;
        let event_rate = EventRate::new(self.thread_event_rate)?;
        config.upkeep = config.upkeep.keep_security_events_for(self.keep_security_events)?;
        config.event_rate = event_rate;
        config.limits = limits;
        config.stall = stall;
        if let Some(path) = &self.prices {
            config.prices = Arc::new(PriceList::read(path)?);
        }
        config.session_content_bytes = self.session_content_bytes;
        config.max_group_items = self.max_group_items;
        config.webhooks.allow_private = self.webhook_allow_private;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_flags;

    fn applied(arguments: &[&str]) -> Result<Config, String> {
        let options: SessionOptions = parse_flags(arguments).unwrap();
        let mut config = Config::new(PathBuf::new(), String::new());
        options.apply(&mut config).map(|()| config)
    }

    #[test]
    fn values_outside_bounds_are_rejected() {
        let config = applied(&["--stall-after", "0", "--stall-repeats", "5", "--max-depth", "3"]).unwrap();
        assert_eq!(
            (config.stall.repeats, config.stall.silence, config.limits.max_depth),
            (5, Duration::ZERO, 3)
        );
        let ceiling = applied(&["--max-total-threads", "100000"]).unwrap();
        assert_eq!(ceiling.limits.max_total_threads, 100_000);
        for (arguments, expected) in [
            (
                ["--max-total-threads", "100001"],
                "max_total_threads is 100001; it must be 1 to 100000",
            ),
            (["--thread-event-rate", "0"], "it must be "),
            (["--keep-security-events", "6"], "it must be "),
            (
                ["--stall-repeats", "1"],
                "stall_repeats is 1, which would mark every turn as stalled",
            ),
        ] {
            let error = applied(&arguments).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
