//! Errors of the PostgreSQL engine.

use std::{error::Error as StdError, io};

use tokio_postgres::{Error as SqlError, error::SqlState};

use crate::store::error::{ImportError, PostgresError, ReadError, Refusal, RotateError};

impl PostgresError {
    /// Classifies the error of a connection attempt.
    pub(super) fn of_connection(server: String, error: &SqlError) -> Self {
        let cause = describe(error);
        match error.code() {
            Some(&SqlState::INVALID_PASSWORD | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION) => {
                Self::Login { server, cause }
            }
            // Errors of the library itself can be distinguished only by their texts.
            None => match error.to_string().as_str() {
                "error performing TLS handshake" => Self::Tls { server, cause },
                // The client has no password, or the server asks for a method that the client does not know.
                "invalid configuration" | "authentication error" => Self::Login { server, cause },
                _ => Self::Unreachable { server, cause },
            },
            Some(_) => Self::Unreachable { server, cause },
        }
    }
}

impl From<SqlError> for PostgresError {
    fn from(error: SqlError) -> Self {
        let cause = describe(&error);
        match error.code() {
            Some(&SqlState::INSUFFICIENT_PRIVILEGE) => Self::Permission { cause },
            _ => Self::Engine(cause),
        }
    }
}

/// Returns the text of an error with its causes. Errors of the server include their detail and hint.
pub(super) fn describe(error: &SqlError) -> String {
    if let Some(database) = error.as_db_error() {
        let mut text = format!("{} ({})", database.message(), database.code().code());
        for more in [database.detail(), database.hint()].into_iter().flatten() {
            text.push_str(": ");
            text.push_str(more);
        }
        return text;
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

impl From<SqlError> for RotateError {
    fn from(error: SqlError) -> Self {
        PostgresError::from(error).into()
    }
}

impl From<SqlError> for ImportError {
    fn from(error: SqlError) -> Self {
        PostgresError::from(error).into()
    }
}

impl From<SqlError> for ReadError {
    fn from(error: SqlError) -> Self {
        Self::Engine(describe(&error))
    }
}

/// The consequence of a statement's error. The transaction has not been committed, so it had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The connection is lost or unusable. The transaction can be retried on a new connection.
    Lost,
    /// The transaction conflicts with another transaction. It can be retried on the same connection.
    Conflict,
    /// The data of a single write is the cause.
    Data,
    /// A retry would fail again.
    Refused,
}

/// Classifies the error of a statement.
pub(super) fn meaning(error: &SqlError) -> Meaning {
    let Some(database) = error.as_db_error() else {
        let is_of_connection = error.is_closed() || error.source().is_some_and(|source| source.is::<io::Error>());
        // Otherwise a parameter or a column has the wrong type.
        return if is_of_connection {
            Meaning::Lost
        } else {
            Meaning::Refused
        };
    };
    let code = database.code();
    match code.code().get(..2) {
        Some("22" | "23" | "21" | "54") => Meaning::Data,
        Some("40") if *code != SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN => Meaning::Conflict,
        Some("53") if *code == SqlState::DISK_FULL => Meaning::Refused,
        Some("42" | "58") => Meaning::Refused,
        // Shutdown, failover, lack of connections, and all unknown errors.
        _ => Meaning::Lost,
    }
}

/// Returns the reason for the rejection of a write after an error.
pub(super) fn refusal(error: &SqlError) -> Refusal {
    match error.code() {
        Some(&SqlState::DISK_FULL) => Refusal::DiskFull,
        Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => Refusal::ReadOnly,
        Some(&SqlState::IO_ERROR) => Refusal::Io(describe(error)),
        _ => Refusal::Engine(describe(error)),
    }
}
