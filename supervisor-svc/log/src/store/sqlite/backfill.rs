//! Data that migrations compute from existing records. No other part of the store decodes records.

use prost::Message as _;
use rusqlite::{Transaction, params};
use troupe_proto::{store::v1::Record, supervisor::v1::event::Kind};
use uuid::Uuid;

use crate::store::{batch::MarkKind, error::OpenError};

/// Adds marks to the records that were written before marks existed. A record that cannot be decoded is skipped; its
/// readers report the error.
///
/// # Errors
/// Errors of the database engine.
pub(super) fn marks(transaction: &Transaction<'_>) -> Result<(), OpenError> {
    let mut records = transaction.prepare("SELECT session, sequence, bytes FROM records ORDER BY session, sequence")?;
    let mut insert =
        transaction.prepare("INSERT INTO marks (session, kind, sequence, thread) VALUES (?1, ?2, ?3, ?4)")?;
    let mut rows = records.query([])?;
    while let Some(row) = rows.next()? {
        let (session, sequence): (Vec<u8>, i64) = (row.get(0)?, row.get(1)?);
        let bytes = row.get_ref(2)?.as_bytes().unwrap_or_default();
        if let Some((kind, thread)) = Record::decode(bytes).ok().and_then(mark) {
            insert.execute(params![session, kind as i64, sequence, thread.as_bytes()])?;
        }
    }
    Ok(())
}

/// Returns the same mark as an append of the record would add.
fn mark(record: Record) -> Option<(MarkKind, Uuid)> {
    let thread = || Uuid::from_slice(&record.header.as_ref()?.thread).ok();
    match record.event?.kind? {
        Kind::TurnDispatched(_) => Some((MarkKind::Prompt, thread()?)),
        Kind::ArtifactRecorded(_) => Some((MarkKind::Artifact, thread()?)),
        Kind::HandoffSent(sent) => Some((MarkKind::Mail, sent.handoff?.to_thread_id.parse().ok()?)),
        _ => None,
    }
}
