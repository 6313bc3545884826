//! A few connections for queries, so that reads never wait for the writer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::{BoxFuture, try_join_all};
use scopeguard::{ScopeGuard, guard};
use tokio::{sync::Semaphore, time::timeout};

use super::{
    connection::Connection,
    error::{Meaning, meaning},
    options::PostgresOptions,
    query::QueryError,
};
use crate::store::{
    error::{PostgresError, ReadError},
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
    /// The errors of the query, or [`ReadError::Engine`] if no connection is available.
    pub(super) async fn run<T, F>(&self, query: F) -> Result<T, ReadError>
    where
        F: for<'a> Fn(&'a Connection) -> BoxFuture<'a, Result<T, QueryError>> + Send,
    {
        let permit = self.permits.acquire().await;
        let _permit = permit.map_err(|closed| ReadError::Engine(closed.to_string()))?;
        let idle = self.idle().pop().filter(|connection| !connection.is_closed());
        let is_new = idle.is_none();
        match self.run_on(idle, &query).await {
            Err(QueryError::Engine(error)) if !is_new && meaning(&error) == Meaning::Lost => {
                self.run_on(None, &query).await
            }
            result => result,
        }
        .map_err(|error| match error {
            QueryError::Read(error) => error,
            QueryError::Engine(error) => error.into(),
        })
    }

    async fn run_on<T, F>(&self, idle: Option<Connection>, query: &F) -> Result<T, QueryError>
    where
        F: for<'a> Fn(&'a Connection) -> BoxFuture<'a, Result<T, QueryError>> + Send,
    {
        let connection = match idle {
            Some(connection) => connection,
            None => Connection::open(&self.options)
                .await
                .map_err(|error| ReadError::Engine(error.to_string()))?,
        };
        // The connection returns to the pool even if the caller stops waiting. The remaining results are then ignored.
        let connection = guard(connection, |connection| {
            if !connection.is_closed() {
                self.idle().push(connection);
            }
        });
        let result = match timeout(DATABASE_TIMEOUT, query(&connection)).await {
            Ok(result) => result,
            Err(elapsed) => Err(ReadError::Engine(elapsed.to_string()).into()),
        };
        if matches!(
            result,
            Err(QueryError::Engine(_) | QueryError::Read(ReadError::Engine(_)))
        ) {
            drop(ScopeGuard::into_inner(connection));
        }
        result
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
