//! What a migration computes from the records that are there already. Elsewhere the store does not look into records.

use prost::Message as _;
use rusqlite::{Transaction, params};
use troupe_proto::{store::v1::Record, supervisor::v1::event::Kind};
use uuid::Uuid;

use super::{batch::MarkKind, error::OpenError};

/// Marks the records that were written before there were marks. One that cannot be read is left: whoever needs it says so.
///
/// # Errors
/// The engine's.
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

/// As an append marks its records.
fn mark(record: Record) -> Option<(MarkKind, Uuid)> {
    let thread = || Uuid::from_slice(&record.header.as_ref()?.thread).ok();
    match record.event?.kind? {
        Kind::TurnDispatched(_) => Some((MarkKind::Prompt, thread()?)),
        Kind::ArtifactRecorded(_) => Some((MarkKind::Artifact, thread()?)),
        Kind::HandoffSent(sent) => Some((MarkKind::Mail, sent.handoff?.to_thread_id.parse().ok()?)),
        _ => None,
    }
}
