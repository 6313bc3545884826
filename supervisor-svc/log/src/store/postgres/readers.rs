//! A few connections for queries, so that reads never wait for the writer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::{BoxFuture, try_join_all};
use tokio::{sync::Semaphore, time::timeout};

use super::{
    connection::Connection,
    error::{Meaning, PostgresError, meaning},
    options::PostgresOptions,
    query::QueryError,
};
use crate::store::{
    error::ReadError,
    limits::{DATABASE_TIMEOUT, MAX_READERS},
};

/// The pool of read connections. All connections are opened at the start, so that a wrong limit of the server is found
/// early.
pub(super) struct Readers {
    options: Arc<PostgresOptions>,
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
}

impl Readers {
    pub(super) async fn open(options: Arc<PostgresOptions>) -> Result<Self, PostgresError> {
        let idle = try_join_all((0..MAX_READERS).map(|_| Connection::open(&options))).await?;
        Ok(Self {
            options,
            idle: Mutex::new(idle),
            permits: Semaphore::new(MAX_READERS),
        })
    }

    /// Runs a query once a connection is free. If the connection is lost, the query runs once more on a new one.
    ///
    /// # Errors
    /// The query's own errors, or [`ReadError::Engine`] if no connection is available.
    pub(super) async fn run<T, F>(&self, query: F) -> Result<T, ReadError>
    where
        F: for<'a> Fn(&'a Connection) -> BoxFuture<'a, Result<T, QueryError>> + Send,
    {
        let permit = self.permits.acquire().await;
        let _permit = permit.map_err(|closed| ReadError::Engine(closed.to_string()))?;
        let mut is_retry = false;
        loop {
            let idle = if is_retry { None } else { self.idle().pop() };
            let idle = idle.filter(|connection| !connection.is_closed());
            let connection = match idle {
                Some(connection) => connection,
                None => Connection::open(&self.options)
                    .await
                    .map_err(|error| ReadError::Engine(error.to_string()))?,
            };
            let error = match timeout(DATABASE_TIMEOUT, query(&connection)).await {
                Ok(Ok(found)) => {
                    self.idle().push(connection);
                    return Ok(found);
                }
                Ok(Err(QueryError::Read(error))) => {
                    self.idle().push(connection);
                    return Err(error);
                }
                Ok(Err(QueryError::Engine(error))) => error,
                Err(elapsed) => return Err(ReadError::Engine(elapsed.to_string())),
            };
            if is_retry || meaning(&error) != Meaning::Lost {
                return Err(error.into());
            }
            is_retry = true;
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
