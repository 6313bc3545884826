//! A few read-only connections, so that reads never wait for the writer.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use rusqlite::Connection;
use supervisor_core::ids::SessionId;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::{query, schema};
use crate::store::{error::ReadError, limits::MAX_READERS};

/// The pool of read connections. All connections are opened at the start, so the first call about a session does not
/// wait for one.
pub(super) struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn open(path: PathBuf) -> Result<Self, rusqlite::Error> {
        let idle: Result<_, _> = (0..MAX_READERS).map(|_| connect(&path)).collect();
        Ok(Self {
            idle: Mutex::new(idle?),
            path,
            permits: Arc::new(Semaphore::new(MAX_READERS)),
        })
    }

    /// Runs a query on a blocking thread, once a connection is free.
    ///
    /// # Errors
    /// The errors of the query, or [`ReadError::Engine`] if no connection is available.
    pub(super) async fn run<T, F>(self: &Arc<Self>, query: F) -> Result<T, ReadError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, ReadError> + Send + 'static,
    {
        let permit = match Arc::clone(&self.permits).acquire_owned().await {
            Ok(permit) => permit,
            Err(closed) => return Err(ReadError::Engine(closed.to_string())),
        };
        let readers = Arc::clone(self);
        let task = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let connection = readers.take()?;
            let result = query(&connection);
            // A connection that failed may fail again, so it is dropped. The next reader opens another.
            if !matches!(result, Err(ReadError::Engine(_))) {
                readers.give_back(connection);
            }
            result
        });
        match task.await {
            Ok(result) => result,
            Err(cut_short) => Err(ReadError::Engine(cut_short.to_string())),
        }
    }

    fn take(&self) -> Result<Connection, ReadError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match idle {
            Some(connection) => Ok(connection),
            None => Ok(connect(&self.path)?),
        }
    }

    fn give_back(&self, connection: Connection) {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(connection);
    }
}

/// Opens a connection and loads the schema, so that the first query does not wait for the schema.
fn connect(path: &Path) -> Result<Connection, rusqlite::Error> {
    let connection = schema::open_reader(path)?;
    query::head(&connection, SessionId::from_uuid(Uuid::nil()))?;
    Ok(connection)
}
