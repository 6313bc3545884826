//! Copies the log of a file into an empty database.

use std::pin::pin;

use rusqlite::{Connection as File, types::ValueRef};
use tokio_postgres::{
    Error as SqlError,
    binary_copy::BinaryCopyInWriter,
    types::{ToSql, Type},
};
use uuid::Uuid;

use super::{
    connection::Connection,
    options::PostgresOptions,
    schema,
    sql::{BEGIN, COMMIT, Statement},
};
use crate::store::error::{ImportError, PostgresError};

/// The tables of a log. Both engines give a table the same columns.
const TABLES: [&str; 12] = [
    "sessions",
    "creations",
    "records",
    "contents",
    "threads",
    "requests",
    "snapshots",
    "cursors",
    "marks",
    "transcripts",
    "entries",
    "summaries",
];

/// Copies all rows in one transaction, and reports the number of copied rows. The copy gets a new log id.
///
/// # Errors
/// See [`ImportError`]. After an error, the database is as empty as before.
pub(crate) async fn import(
    file: &File,
    options: &PostgresOptions,
    copied: &mut dyn FnMut(u64),
) -> Result<u64, ImportError> {
    schema::prepare(options).await?;
    let connection = Connection::open(options).await?;
    let mut rows = 0;
    connection.run(BEGIN).await?;
    let any = connection.query(Statement::Sessions, &[&1_i64, &Uuid::nil()]).await?;
    if !any.is_empty() {
        return Err(ImportError::Occupied {
            database: options.to_string(),
        });
    }
    // All rows are read from one consistent view.
    let file = file.unchecked_transaction()?;
    for table in TABLES {
        copy_table(&file, &connection, table, &mut rows, copied).await?;
    }
    connection.run(COMMIT).await?;
    if connection.has_unconfirmed_commit() {
        return Err(PostgresError::Engine(String::from("the standby did not confirm the commit")).into());
    }
    Ok(rows)
}

async fn copy_table(
    file: &File,
    connection: &Connection,
    table: &'static str,
    rows: &mut u64,
    copied: &mut dyn FnMut(u64),
) -> Result<(), ImportError> {
    let columns = columns(connection, table).await?;
    let names: Vec<_> = columns.iter().map(|(name, _)| name.as_str()).collect();
    let names = names.join(", ");
    let types: Vec<_> = columns.iter().map(|(_, kind)| kind.clone()).collect();
    let sink = connection
        .copy_in(&format!("COPY {table} ({names}) FROM STDIN BINARY"))
        .await?;
    let mut writer = pin!(BinaryCopyInWriter::new(sink, &types));
    let mut statement = file.prepare(&format!("SELECT {names} FROM {table}"))?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        let mut values = Vec::with_capacity(types.len());
        for (index, (name, kind)) in columns.iter().enumerate() {
            let value = value(kind, row.get_ref(index)?);
            values.push(value.ok_or_else(|| ImportError::Value {
                table,
                column: name.clone(),
            })?);
        }
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(AsRef::as_ref).collect();
        writer.as_mut().write(&values).await?;
        *rows += 1;
        copied(*rows);
    }
    writer.finish().await?;
    Ok(())
}

/// Returns the columns of a table with their types. A copied session has no owner.
async fn columns(connection: &Connection, table: &str) -> Result<Vec<(String, Type)>, SqlError> {
    let rows = connection.query(Statement::Columns, &[&table]).await?;
    rows.iter()
        .filter(|row| !matches!(row.try_get(0), Ok("owner")))
        .map(|row| {
            let kind = match row.try_get(1)? {
                "uuid" => Type::UUID,
                "int2" => Type::INT2,
                "int4" => Type::INT4,
                "int8" => Type::INT8,
                _ => Type::BYTEA,
            };
            Ok((row.try_get(0)?, kind))
        })
        .collect()
}

/// Converts a value to the type of a column. Returns `None` if that is impossible.
fn value(kind: &Type, value: ValueRef<'_>) -> Option<Box<dyn ToSql + Sync>> {
    Some(match (kind, value) {
        (&Type::INT8, ValueRef::Null) => Box::new(None::<i64>),
        (&Type::BYTEA, ValueRef::Null) => Box::new(None::<Vec<u8>>),
        (&Type::INT8, ValueRef::Integer(number)) => Box::new(number),
        // A checksum, which the file stores without a sign.
        (&Type::INT4, ValueRef::Integer(number)) => Box::new(u32::try_from(number).ok()?.cast_signed()),
        (&Type::INT2, ValueRef::Integer(number)) => Box::new(i16::try_from(number).ok()?),
        (&Type::UUID, ValueRef::Blob(bytes)) => Box::new(Uuid::from_slice(bytes).ok()?),
        (&Type::BYTEA, ValueRef::Blob(bytes) | ValueRef::Text(bytes)) => Box::new(bytes.to_vec()),
        _ => return None,
    })
}
