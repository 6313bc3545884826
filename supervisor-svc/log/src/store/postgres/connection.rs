//! A connection to the database.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinHandle,
    time::timeout,
};
use tokio_postgres::{
    AsyncMessage, Client, Connection as Driver, CopyInSink, Error as SqlError, NoTls, Row, Socket,
    error::SqlState,
    types::{ToSql, Type},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{options::PostgresOptions, sql::Statement};
use crate::store::error::PostgresError;

/// A parameter of a statement.
pub(super) type Parameter<'a> = &'a (dyn ToSql + Sync);

/// A connection. Statements whose futures are polled together are sent together. Dropping this value closes the
/// connection.
///
/// Each statement is sent with its text, so that a connection pooler between the supervisor and the database may use a
/// different connection for each transaction.
pub(super) struct Connection {
    client: Client,
    driver: JoinHandle<()>,
    /// Whether the server stopped waiting for the synchronous standby.
    has_unconfirmed_commit: Arc<AtomicBool>,
}

impl Connection {
    /// Connects and logs in. A server that accepts connections may still never answer, so the time is bounded.
    ///
    /// # Errors
    /// See [`PostgresError`].
    pub(super) async fn open(options: &PostgresOptions) -> Result<Self, PostgresError> {
        let limit = options.open_timeout();
        match timeout(limit, Box::pin(Self::connect(options))).await {
            Ok(result) => result,
            Err(_) => Err(PostgresError::Unreachable {
                server: options.to_string(),
                cause: format!("no answer within {} s", limit.as_secs()),
            }),
        }
    }

    async fn connect(options: &PostgresOptions) -> Result<Self, PostgresError> {
        let loaded = options.clone();
        let loaded = tokio::task::spawn_blocking(move || loaded.load()).await;
        let (config, tls) = loaded.map_err(|cut_short| PostgresError::Engine(cut_short.to_string()))??;
        let has_unconfirmed_commit = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&has_unconfirmed_commit);
        let failed = |error: SqlError| PostgresError::of_connection(options.to_string(), &error);
        let (client, driver) = match tls {
            None => {
                let (client, driver) = Box::pin(config.connect(NoTls)).await.map_err(failed)?;
                (client, tokio::spawn(drive(driver, flag)))
            }
            Some(tls) => {
                let tls = MakeRustlsConnect::new(tls);
                let (client, driver) = Box::pin(config.connect(tls)).await.map_err(failed)?;
                (client, tokio::spawn(drive(driver, flag)))
            }
        };
        Ok(Self {
            client,
            driver,
            has_unconfirmed_commit,
        })
    }

    /// Runs a statement and returns its rows.
    ///
    /// # Errors
    /// Errors of the database.
    pub(super) async fn query(&self, statement: Statement, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, SqlError> {
        let (sql, parameters) = typed(statement, parameters);
        self.client.query_typed(sql, &parameters).await
    }

    /// Runs a statement and returns its first row, if any.
    ///
    /// # Errors
    /// Errors of the database.
    pub(super) async fn query_first(
        &self,
        statement: Statement,
        parameters: &[Parameter<'_>],
    ) -> Result<Option<Row>, SqlError> {
        Ok(self.query(statement, parameters).await?.into_iter().next())
    }

    /// Runs a statement and returns the number of affected rows.
    ///
    /// # Errors
    /// Errors of the database.
    pub(super) async fn execute(&self, statement: Statement, parameters: &[Parameter<'_>]) -> Result<u64, SqlError> {
        let (sql, parameters) = typed(statement, parameters);
        self.client.execute_typed(sql, &parameters).await
    }

    /// Runs statements without parameters.
    ///
    /// # Errors
    /// Errors of the database.
    pub(super) async fn run(&self, sql: &str) -> Result<(), SqlError> {
        self.client.batch_execute(sql).await
    }

    /// Begins to copy rows into a table.
    ///
    /// # Errors
    /// Errors of the database.
    pub(super) async fn copy_in(&self, sql: &str) -> Result<CopyInSink<Bytes>, SqlError> {
        self.client.copy_in(sql).await
    }

    /// Returns whether the connection is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Returns whether the server has committed something without the confirmation of its synchronous standby.
    pub(super) fn has_unconfirmed_commit(&self) -> bool {
        self.has_unconfirmed_commit.load(Ordering::Acquire)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Returns the text of a statement, and its parameters with their types.
fn typed<'a>(statement: Statement, parameters: &[Parameter<'a>]) -> (&'static str, Vec<(Parameter<'a>, Type)>) {
    let (sql, types) = statement.parts();
    (sql, parameters.iter().copied().zip(types.iter().cloned()).collect())
}

/// Exchanges messages with the server until the connection ends. Notices arrive before the result of their statement.
async fn drive<T>(mut driver: Driver<Socket, T>, has_unconfirmed_commit: Arc<AtomicBool>)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut driver = pin!(&mut driver);
    while let Some(Ok(message)) = poll_fn(|context| driver.as_mut().get_mut().poll_message(context)).await {
        if let AsyncMessage::Notice(notice) = message {
            // While a commit waits for its standby, a cancellation of the commit makes the server report success with
            // this warning.
            if *notice.code() == SqlState::WARNING || *notice.code() == SqlState::ADMIN_SHUTDOWN {
                has_unconfirmed_commit.store(true, Ordering::Release);
            }
            tracing::warn!(
                code = notice.code().code(),
                message = notice.message(),
                "notice of the database"
            );
        }
    }
}
