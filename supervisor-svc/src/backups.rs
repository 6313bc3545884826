//! Scheduled backups of the log: when a backup is due, and the metrics about backups. Making and verifying one is in
//! `supervisor_log::maintenance`.
//!
//! A backup that fails never affects the service: it is logged, counted, and tried again.

use std::{
    path::{Path, PathBuf, absolute},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use clap::Args;
use opentelemetry::metrics::{Counter, Histogram};
use supervisor_log::maintenance::{self, Backup, BackupDir, MaintenanceError};
use svc_kit::{
    duration,
    instruments::{counter, meter},
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{clock::Clock, domain::time::UnixMillis};

/// Minimum interval of backups.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Time until the next attempt after a failed backup, unless the interval of the backups is shorter.
const RETRY_AFTER: Duration = Duration::from_secs(5 * 60);

/// Maximum time between two checks of whether a backup is due. Timers do not follow changes of the time of day.
const CHECK_EVERY: Duration = Duration::from_secs(60);

/// The flags for scheduled backups.
#[derive(Clone, Debug, Args)]
pub struct BackupOptions {
    /// Existing directory for scheduled backups, outside the data directory; without it, no backups are made
    #[arg(long, env = "TROUPE_BACKUP_DIR", value_name = "DIR")]
    pub backup_dir: Option<PathBuf>,
    /// Interval of the backups, such as 30m or 24h
    #[arg(
        long,
        env = "TROUPE_BACKUP_EVERY",
        value_name = "DURATION",
        default_value = "24h",
        value_parser = parse_interval,
        requires = "backup_dir"
    )]
    pub backup_every: Duration,
    /// Number of complete backups to keep; the oldest are removed after a new one is complete
    #[arg(
        long,
        env = "TROUPE_BACKUP_KEEP",
        value_name = "NUMBER",
        default_value_t = 7,
        value_parser = clap::value_parser!(u16).range(1..),
        requires = "backup_dir"
    )]
    pub backup_keep: u16,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = duration::parse(text)?;
    if interval < MIN_INTERVAL {
        return Err("expected at least 1s".to_owned());
    }
    Ok(interval)
}

impl BackupOptions {
    /// Returns the settings, or `None` without a directory.
    ///
    /// # Errors
    ///
    /// The directory is in the data directory. A missing directory is no error here, because it may appear later.
    pub fn settings(self, data_dir: &Path) -> Result<Option<BackupSettings>, MaintenanceError> {
        let Some(directory) = self.backup_dir else {
            return Ok(None);
        };
        if let Err(error @ MaintenanceError::BackupDirInside { .. }) = BackupDir::open(&directory, data_dir) {
            return Err(error);
        }
        Ok(Some(BackupSettings {
            directory: absolute(&directory).unwrap_or(directory),
            every: self.backup_every,
            keep: self.backup_keep.into(),
        }))
    }
}

/// The schedule of backups.
#[derive(Clone, Debug)]
pub struct BackupSettings {
    /// The directory of the backups.
    pub directory: PathBuf,
    /// The interval.
    pub every: Duration,
    /// Number of complete backups to keep.
    pub keep: usize,
}

/// Makes a backup if another release wrote the log, before this release changes it. A failure is logged and counted.
/// A log without a change since the newest backup needs no other, so repeated starts make one backup. If the future is
/// dropped, the backup is cancelled.
pub(crate) async fn before_upgrade(settings: &BackupSettings, data_dir: &Path) {
    let cancel = CancellationToken::new();
    let _guard = cancel.clone().drop_guard();
    let (settings, data_dir) = (settings.clone(), data_dir.to_owned());
    let backing_up = tokio::task::spawn_blocking(move || {
        // A log that cannot be read is reported when it is opened.
        if !maintenance::is_of_other_release(&data_dir).unwrap_or(false) {
            return;
        }
        let made = BackupDir::open(&settings.directory, &data_dir).and_then(|directory| {
            if !directory.is_current(&data_dir)? {
                directory.create(&data_dir, Clock::system().now(), &cancel)?;
            }
            Ok(())
        });
        match made {
            Ok(()) => tracing::info!("the log of another release has a backup"),
            Err(error) => {
                failures().add(1, &[]);
                tracing::error!(%error, "the log of another release has no backup");
            }
        }
    });
    // A panic was reported where it happened.
    let _ = backing_up.await;
}

fn failures() -> Counter<u64> {
    counter("troupe.backup.failures", "Backups that failed")
}

/// The scheduled backups of a supervisor.
#[derive(Clone)]
pub(crate) struct Backups {
    settings: BackupSettings,
    data_dir: PathBuf,
    clock: Clock,
    metrics: Arc<Metrics>,
}

/// The instruments of backups.
struct Metrics {
    /// When the newest complete backup was started, in seconds since 1970.
    last_success: AtomicU64,
    /// The size of the newest backup that this process made. While it is zero, the gauge has no value.
    size: AtomicU64,
    duration: Histogram<f64>,
    failures: Counter<u64>,
}

impl Metrics {
    fn new(every: Duration) -> Arc<Self> {
        let meter = meter();
        let metrics = Arc::new(Self {
            last_success: AtomicU64::new(0),
            size: AtomicU64::new(0),
            duration: meter
                .f64_histogram("troupe.backup.duration")
                .with_unit("s")
                .with_description("Time to make and verify a backup")
                .build(),
            failures: failures(),
        });
        meter
            .f64_observable_gauge("troupe.backup.interval")
            .with_unit("s")
            .with_description("Interval of the scheduled backups")
            .with_callback(move |gauge| gauge.observe(every.as_secs_f64(), &[]))
            .build();
        let observed = Arc::clone(&metrics);
        meter
            .u64_observable_gauge("troupe.backup.last.success")
            .with_unit("s")
            .with_description("When the newest complete backup was started, in seconds since 1970; 0: never")
            .with_callback(move |gauge| gauge.observe(observed.last_success.load(Ordering::Relaxed), &[]))
            .build();
        let observed = Arc::clone(&metrics);
        meter
            .u64_observable_gauge("troupe.backup.size")
            .with_unit("By")
            .with_description("Size of the log in the newest backup that this process made")
            .with_callback(move |gauge| {
                let size = observed.size.load(Ordering::Relaxed);
                if size > 0 {
                    gauge.observe(size, &[]);
                }
            })
            .build();
        metrics
    }
}

impl Backups {
    pub(crate) fn new(settings: BackupSettings, data_dir: PathBuf, clock: Clock) -> Self {
        Self {
            metrics: Metrics::new(settings.every),
            settings,
            data_dir,
            clock,
        }
    }

    /// Makes backups until `ended`. Then it cancels a running backup and waits until its files are removed.
    pub(crate) async fn run(self, ended: CancellationToken) {
        let mut directory = None;
        loop {
            let (this, cancel) = (self.clone(), ended.clone());
            let checked = tokio::task::spawn_blocking(move || {
                let wait = this.back_up_if_due(&mut directory, &cancel);
                (directory, wait)
            });
            let wait;
            // A panic was reported where it happened.
            (directory, wait) = checked.await.unwrap_or((None, RETRY_AFTER));
            tokio::select! {
                () = ended.cancelled() => return,
                () = sleep(wait) => {}
            }
        }
    }

    /// Makes a backup if one is due, and returns the time until the next check. `directory` keeps the lock on the
    /// directory between two calls.
    fn back_up_if_due(&self, directory: &mut Option<BackupDir>, cancel: &CancellationToken) -> Duration {
        let wait = self.open(directory).and_then(|directory| {
            let now = self.clock.now();
            let wait = self.until_due(directory, now)?;
            if wait.is_zero() {
                self.back_up(directory, now, cancel)?;
            }
            Ok(wait)
        });
        match wait {
            Ok(wait) => wait.clamp(Duration::from_millis(1), CHECK_EVERY),
            Err(MaintenanceError::Cancelled) => Duration::ZERO,
            Err(error) => {
                // At the next attempt, the path may be another directory.
                *directory = None;
                self.metrics.failures.add(1, &[]);
                tracing::error!(directory = %self.settings.directory.display(), %error, "backup failed");
                RETRY_AFTER.min(self.settings.every)
            }
        }
    }

    fn open<'a>(&self, directory: &'a mut Option<BackupDir>) -> Result<&'a BackupDir, MaintenanceError> {
        let opened = match directory.take() {
            Some(opened) => opened,
            None => BackupDir::open(&self.settings.directory, &self.data_dir)?,
        };
        Ok(directory.insert(opened))
    }

    /// Returns the time until the next backup: zero without a complete backup. Updates the metric of the newest one.
    fn until_due(&self, directory: &BackupDir, now: UnixMillis) -> Result<Duration, MaintenanceError> {
        let newest = directory.newest(now)?;
        let seconds = newest.map_or(0, |time| time.get() / 1_000);
        self.metrics.last_success.store(seconds, Ordering::Relaxed);
        Ok(newest.map_or(Duration::ZERO, |time| time.plus(self.settings.every).since(now)))
    }

    fn back_up(
        &self,
        directory: &BackupDir,
        now: UnixMillis,
        cancel: &CancellationToken,
    ) -> Result<(), MaintenanceError> {
        let began = Instant::now();
        let Backup { bytes, .. } = directory.create(&self.data_dir, now, cancel)?;
        let elapsed = began.elapsed();
        self.metrics.last_success.store(now.get() / 1_000, Ordering::Relaxed);
        self.metrics.size.store(bytes, Ordering::Relaxed);
        self.metrics.duration.record(elapsed.as_secs_f64(), &[]);
        tracing::info!(bytes, ?elapsed, "backup complete");
        directory.prune(self.settings.keep, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_flags;

    fn parse(arguments: &[&str]) -> Result<BackupOptions, String> {
        parse_flags(arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn values_outside_bounds_are_rejected() {
        let directory = ["--backup-dir", "backups"];
        for (arguments, expected) in [
            (["--backup-every", "0s"], "expected at least 1s"),
            (["--backup-every", "soon"], "expected a duration like"),
            (["--backup-keep", "0"], "0 is not in 1..=65535"),
        ] {
            let error = parse(&[directory, arguments].concat()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let error = parse(&["--backup-every", "1h"]).unwrap_err();
        assert!(error.contains("--backup-dir"), "{error}");
    }

    #[test]
    fn backups_need_a_directory_outside_the_data() {
        let parent = tempfile::tempdir().unwrap();
        let settings = |arguments: &[&str]| parse(arguments).unwrap().settings(parent.path());
        assert!(settings(&[]).unwrap().is_none());
        let found = settings(&["--backup-dir", "missing"]).unwrap().unwrap();
        assert_eq!((found.every, found.keep), (Duration::from_secs(24 * 60 * 60), 7));
        assert!(found.directory.is_absolute());
        let inside = settings(&["--backup-dir", parent.path().to_str().unwrap()]).unwrap_err();
        assert!(inside.to_string().contains("would be lost with it"), "{inside}");
    }
}
