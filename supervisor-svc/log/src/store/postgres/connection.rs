//! A connection to the database with its prepared statements.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::future::try_join_all;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinHandle,
    time::timeout,
};
use tokio_postgres::{
    AsyncMessage, Client, Connection as Driver, Error as SqlError, NoTls, Row, Socket, error::SqlState, types::ToSql,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    options::PostgresOptions,
    sql::{STATEMENTS, Statement},
};
use crate::store::error::PostgresError;

/// A parameter of a statement.
pub(super) type Parameter<'a> = &'a (dyn ToSql + Sync);

/// A connection without prepared statements. Dropping it closes the connection.
pub(super) struct BareConnection {
    client: Client,
    driver: JoinHandle<()>,
    /// Whether the server stopped waiting for the synchronous standby.
    has_unconfirmed_commit: Arc<AtomicBool>,
}

impl BareConnection {
    /// Connects and logs in.
    ///
    /// # Errors
    /// See [`PostgresError`].
    pub(super) async fn open(options: &PostgresOptions) -> Result<Self, PostgresError> {
        within_limit(options, Self::connect(options)).await
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

    /// Runs a statement that is used only once in a while.
    ///
    /// # Errors
    /// Errors of the database.
    pub(super) async fn query(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, SqlError> {
        self.client.query(sql, parameters).await
    }
}

impl Drop for BareConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A connection with prepared statements. Statements whose futures are polled together are sent together.
pub(super) struct Connection {
    bare: BareConnection,
    statements: Vec<tokio_postgres::Statement>,
}

impl Connection {
    /// Connects and prepares all statements.
    ///
    /// # Errors
    /// See [`PostgresError`].
    pub(super) async fn open(options: &PostgresOptions) -> Result<Self, PostgresError> {
        within_limit(options, async {
            let bare = BareConnection::connect(options).await?;
            let statements = try_join_all(STATEMENTS.iter().map(|sql| bare.client.prepare(sql))).await?;
            Ok(Self { bare, statements })
        })
        .await
    }

    /// Runs a statement and returns its rows.
    ///
    /// # Errors
    /// Errors of the database.
    pub(super) async fn query(&self, statement: Statement, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, SqlError> {
        self.bare.client.query(self.prepared(statement), parameters).await
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
        self.bare.client.execute(self.prepared(statement), parameters).await
    }

    /// Runs a statement that begins or ends a transaction.
    ///
    /// # Errors
    /// Errors of the database.
    pub(super) async fn run(&self, sql: &str) -> Result<(), SqlError> {
        self.bare.client.batch_execute(sql).await
    }

    /// Returns whether the connection is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.bare.client.is_closed()
    }

    /// Returns whether the server has committed something without the confirmation of its synchronous standby.
    pub(super) fn has_unconfirmed_commit(&self) -> bool {
        self.bare.has_unconfirmed_commit.load(Ordering::Acquire)
    }

    fn prepared(&self, statement: Statement) -> &tokio_postgres::Statement {
        // There is one for each value of the enum.
        &self.statements[statement as usize]
    }
}

/// Bounds the time of a connection attempt. A server that accepts connections may still never answer.
async fn within_limit<T>(
    options: &PostgresOptions,
    opening: impl Future<Output = Result<T, PostgresError>>,
) -> Result<T, PostgresError> {
    let limit = options.open_timeout();
    match timeout(limit, Box::pin(opening)).await {
        Ok(result) => result,
        Err(_) => Err(PostgresError::Unreachable {
            server: options.to_string(),
            cause: format!("no answer within {} s", limit.as_secs()),
        }),
    }
}

/// Exchanges messages with the server until the connection ends. Notices arrive before the result of their statement.
async fn drive<T>(mut driver: Driver<Socket, T>, has_unconfirmed_commit: Arc<AtomicBool>)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut driver = pin!(&mut driver);
    while let Some(Ok(message)) = poll_fn(|context| driver.as_mut().get_mut().poll_message(context)).await {
        if let AsyncMessage::Notice(notice) = message {
            // While a commit waits for its standby, its cancellation makes the server report success with this warning.
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
