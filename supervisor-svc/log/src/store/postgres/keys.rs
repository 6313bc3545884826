//! Rotation of the keys of threads' tokens, which all members of a database share.

use std::{collections::HashMap, time::Duration};

use svc_kit::thread_token::{RetiredKeys, TokenKeys};

use super::{connection::Connection, options::PostgresOptions, query::members, schema, sql::Statement};
use crate::store::{
    TOKEN_KEYS,
    error::{PostgresError, RotateError},
};

/// Time in which each running member beats at least once. Members beat once a second.
const BEATS_WITHIN: Duration = Duration::from_secs(4);

/// Adds a new signing key, keeps `keep` of the earlier ones, and returns the number of keys.
///
/// No member may run, because members authenticate each other with a token of the signing key and read the keys only
/// when they start.
///
/// # Errors
/// See [`RotateError`]. The keys are then unchanged.
pub(super) async fn rotate_keys(options: &PostgresOptions, keep: RetiredKeys) -> Result<usize, RotateError> {
    let no_keys = || RotateError::NoKeys {
        database: options.to_string(),
    };
    let connection = Connection::open(options).await?;
    if connection.query(Statement::HasMeta, &[]).await?.is_empty() {
        return Err(no_keys());
    }
    schema::prepare(options).await?;
    let rows = connection.query(Statement::Meta, &[&TOKEN_KEYS]).await?;
    let Some(row) = rows.first() else { return Err(no_keys()) };
    let old: String = row.try_get(0)?;
    TokenKeys::parse(&old).map_err(RotateError::Malformed)?;
    if let Some(name) = running_member(&connection).await? {
        return Err(RotateError::InUse { name });
    }
    let (new, keys) = TokenKeys::rotated(&old, keep)?;
    let changed = connection
        .execute(Statement::ReplaceMeta, &[&TOKEN_KEYS, &old, &new])
        .await?;
    if changed == 0 {
        return Err(RotateError::Changed);
    }
    Ok(keys)
}

/// Returns the name of a running member: a member whose beats increase. A killed member stays in the table until
/// another member starts.
async fn running_member(connection: &Connection) -> Result<Option<String>, PostgresError> {
    let before: HashMap<_, _> = members(connection)
        .await?
        .into_iter()
        .map(|member| (member.id, member.beats))
        .collect();
    if before.is_empty() {
        return Ok(None);
    }
    tokio::time::sleep(BEATS_WITHIN).await;
    let now = members(connection).await?;
    let running = now
        .into_iter()
        .find(|member| before.get(&member.id) != Some(&member.beats));
    Ok(running.map(|member| member.info.name))
}
