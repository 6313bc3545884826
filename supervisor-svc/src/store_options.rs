//! The flags that select where the log is stored.

use std::{fmt, path::PathBuf};

use anyhow::Context as _;
use clap::Args;
use supervisor_log::store::PostgresOptions;

/// The value of `--store` for a file in the data directory.
const SQLITE: &str = "sqlite";

/// The store of the log.
#[derive(Clone, Args)]
pub struct StoreOptions {
    /// Database of the log: sqlite is a file in the data directory; postgres://USER@HOST/DATABASE is a PostgreSQL
    /// database, over TLS unless the URL ends with ?sslmode=disable
    #[arg(
        long,
        env = "TROUPE_STORE",
        value_name = "sqlite|URL",
        default_value = SQLITE,
        hide_env_values = true
    )]
    store: String,
    /// Password file of the PostgreSQL database; the first line is used, and read for each connection
    #[arg(long, env = "TROUPE_STORE_PASSWORD_FILE", value_name = "FILE")]
    store_password_file: Option<PathBuf>,
    /// Reject a PostgreSQL server that has no synchronous standby
    #[arg(long, env = "TROUPE_REQUIRE_STANDBY")]
    require_standby: bool,
}

impl fmt::Debug for StoreOptions {
    /// Does not show the URL, because it may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreOptions")
    }
}

impl StoreOptions {
    /// Returns how to connect to PostgreSQL, or `None` for SQLite.
    ///
    /// # Errors
    /// The value is invalid, or another option does not apply to the store.
    pub fn postgres(&self, has_backups: bool) -> anyhow::Result<Option<PostgresOptions>> {
        if self.store == SQLITE {
            let other = [
                ("--store-password-file", self.store_password_file.is_some()),
                ("--require-standby", self.require_standby),
            ];
            if let Some((flag, _)) = other.into_iter().find(|(_, is_given)| *is_given) {
                anyhow::bail!("{flag} needs --store with a PostgreSQL URL");
            }
            return Ok(None);
        }
        anyhow::ensure!(
            !has_backups,
            "--backup-dir copies a SQLite log; for PostgreSQL, use the backups of the database"
        );
        let mut options: PostgresOptions = self
            .store
            .parse()
            .context("--store is neither sqlite nor a PostgreSQL URL")?;
        if let Some(path) = &self.store_password_file {
            options = options.with_password_file(path.clone());
        }
        if self.require_standby {
            options = options.require_standby();
        }
        Ok(Some(options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_flags;

    fn parsed(arguments: &[&str], has_backups: bool) -> Result<Option<PostgresOptions>, String> {
        let store: StoreOptions = parse_flags(arguments).unwrap();
        assert!(!format!("{store:?}").contains("secret"));
        store.postgres(has_backups).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn store_is_sqlite_or_postgres() {
        assert!(parsed(&[], true).unwrap().is_none());
        let url = "postgres://ann:secret@db.example/log";
        let flags = ["--store", url, "--store-password-file", "password", "--require-standby"];
        assert_eq!(
            parsed(&flags, false).unwrap().unwrap().to_string(),
            "db.example:5432/log"
        );
        for (arguments, has_backups, cause) in [
            (
                &["--store-password-file", "password"][..],
                false,
                "--store-password-file needs",
            ),
            (&["--require-standby"], false, "--require-standby needs"),
            (&["--store", url], true, "--backup-dir copies a SQLite log"),
            (&["--store", "mysql"], false, "neither sqlite nor a PostgreSQL URL"),
            (
                &["--store", &format!("{url}?sslmode=prefer")],
                false,
                "sslmode is \"prefer\"",
            ),
        ] {
            let error = parsed(arguments, has_backups).unwrap_err();
            assert!(error.contains(cause) && !error.contains("secret"), "{error}");
        }
    }
}
