//! Copies the log of a data directory into a PostgreSQL database.

use std::path::Path;

use svc_kit::paths::DataDir;

use super::{
    database_of,
    error::MaintenanceError,
    open,
    verify::{Progress, verify},
};
use crate::store::PostgresOptions;

/// A copied log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Number of its sessions.
    pub sessions: u64,
    /// Number of rows of all tables.
    pub rows: u64,
}

/// Verifies the log of a data directory and copies it into an empty database. The directory must not be in use. The
/// copy gets a new log id, like a restored backup.
///
/// # Errors
/// See [`MaintenanceError`]. After an error, the database is as empty as before.
pub async fn copy(
    data_dir: &Path,
    options: &PostgresOptions,
    report_progress: &mut dyn FnMut(Progress),
) -> Result<Copied, MaintenanceError> {
    // Runs before the lock is taken, because locking would create a missing directory.
    database_of(data_dir)?;
    let _locked = DataDir::open(data_dir)?;
    let report = verify(data_dir, report_progress)?;
    if !report.is_sound() {
        return Err(report.into_error(data_dir.to_owned()));
    }
    let rows = open(data_dir)?
        .copy_to(options, &mut |copied| report_progress(Progress::Rows { copied }))
        .await?;
    Ok(Copied {
        sessions: report.sessions,
        rows,
    })
}
