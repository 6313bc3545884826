//! Opening the database: the settings that durability requires, the tables, and the log's id.

use uuid::Uuid;

use super::{
    connection::Connection,
    options::PostgresOptions,
    sql::{SCHEMA, SCHEMA_VERSION, Statement},
};
use crate::store::error::{OpenError, PostgresError};

/// The oldest supported version, in the format of `server_version_num`.
const MIN_SERVER_VERSION: i64 = 140_000;

/// Settings without which acknowledged writes can be lost or damaged.
const DURABILITY_SETTINGS: [&str; 3] = ["fsync", "full_page_writes", "synchronous_commit"];

/// Maximum number of attempts for a step. A step can fail when two processes create the same table at the same time.
const ATTEMPTS: u32 = 3;

/// Checks the server, creates the tables if they are missing, and returns the log's id.
///
/// # Errors
/// See [`OpenError`]. A database of another schema version is not changed.
pub(super) async fn prepare(options: &PostgresOptions) -> Result<Uuid, OpenError> {
    let connection = Connection::open(options).await?;
    check_settings(&connection, options.requires_standby).await?;
    let version = version(&connection).await?;
    match version {
        0 => create_tables(&connection).await?,
        SCHEMA_VERSION => {}
        ..SCHEMA_VERSION => {
            return Err(OpenError::Outdated {
                found: version,
                needed: SCHEMA_VERSION,
            });
        }
        _ => {
            return Err(OpenError::UpgradeRequired {
                found: version,
                supported: SCHEMA_VERSION,
            });
        }
    }
    Ok(log_id(&connection).await?)
}

async fn check_settings(connection: &Connection, requires_standby: bool) -> Result<(), PostgresError> {
    let mut standbys = String::new();
    for row in connection.query(Statement::Settings, &[]).await? {
        let (name, value): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
        if let Some(setting) = DURABILITY_SETTINGS.into_iter().find(|setting| *setting == name)
            && value == "off"
        {
            return Err(PostgresError::NotDurable {
                setting,
                found: value.to_owned(),
            });
        }
        match name {
            "server_version_num" => check_server_version(value)?,
            "synchronous_standby_names" => value.clone_into(&mut standbys),
            _ => {}
        }
    }
    if standbys.is_empty() && requires_standby {
        return Err(PostgresError::NoStandby);
    }
    if standbys.is_empty() {
        tracing::warn!(
            "the database has no synchronous standby: a failover to a standby can lose acknowledged writes; see \
             synchronous_standby_names"
        );
    }
    Ok(())
}

fn check_server_version(value: &str) -> Result<(), PostgresError> {
    let found = value.parse().unwrap_or(i64::MAX);
    if found < MIN_SERVER_VERSION {
        return Err(PostgresError::Version {
            found: found / 10_000,
            needed: MIN_SERVER_VERSION / 10_000,
        });
    }
    Ok(())
}

/// Returns the schema version of the database. Zero if it has no tables, or not all of them.
async fn version(connection: &Connection) -> Result<i64, PostgresError> {
    if connection.query(Statement::HasMeta, &[]).await?.is_empty() {
        return Ok(0);
    }
    let rows = connection.query(Statement::Meta, &[&"schema_version"]).await?;
    let Some(row) = rows.first() else { return Ok(0) };
    let value: String = row.try_get(0)?;
    value.parse().map_err(|_| PostgresError::Meta {
        key: "schema_version",
        value,
    })
}

/// Creates the tables and then records their version. An interruption in between is repaired by the next start.
async fn create_tables(connection: &Connection) -> Result<(), PostgresError> {
    for step in SCHEMA {
        let mut attempt = 1;
        while let Err(error) = connection.run(step).await.map_err(PostgresError::from) {
            if attempt == ATTEMPTS || matches!(error, PostgresError::Permission { .. }) {
                return Err(error);
            }
            attempt += 1;
        }
    }
    let version = SCHEMA_VERSION.to_string();
    connection.query(Statement::PutVersion, &[&version]).await?;
    Ok(())
}

/// Returns the log's id, which is assigned when the log is first opened.
async fn log_id(connection: &Connection) -> Result<Uuid, PostgresError> {
    let new = Uuid::new_v4().to_string();
    connection.query(Statement::PutMeta, &[&"log_id", &new]).await?;
    let rows = connection.query(Statement::Meta, &[&"log_id"]).await?;
    let value: String = rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or_default();
    Uuid::parse_str(&value).map_err(|_| PostgresError::Meta { key: "log_id", value })
}
