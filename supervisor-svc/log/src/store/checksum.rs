//! Checksums of stored rows. Each checksum covers the row's key too, so a row in the wrong place fails the check.

use crc32fast::Hasher;
use supervisor_core::ids::{Digest, Sequence, SessionId, ThreadId};

use crate::store::batch::RequestRecord;

/// Returns the checksum of a record, or of a snapshot with the sequence of its last record.
pub(super) fn numbered(session: SessionId, sequence: Sequence, bytes: &[u8]) -> u32 {
    checksum(session, &[&sequence.get().to_be_bytes(), bytes])
}

/// Returns the checksum of a content.
pub(super) fn content(session: SessionId, digest: Digest, bytes: &[u8]) -> u32 {
    checksum(session, &[&digest.as_bytes()[..], bytes])
}

/// Returns the checksum of a stored request.
pub(super) fn request(session: SessionId, request: &RequestRecord) -> u32 {
    let expires = i64::try_from(request.expires.get()).unwrap_or(i64::MAX);
    checksum(
        session,
        &[
            &length(&request.scope),
            request.scope.as_bytes(),
            &length(&request.request_id),
            request.request_id.as_bytes(),
            &request.hash,
            &expires.to_be_bytes(),
            &request.outcome[..],
        ],
    )
}

/// Returns the checksum of a transcript entry. A dropped text counts as empty.
pub(super) fn transcript(
    session: SessionId,
    thread: ThreadId,
    number: u64,
    kind: u8,
    header: &[u8],
    text: Option<&[u8]>,
) -> u32 {
    let thread = thread.as_uuid().into_bytes();
    let text = text.unwrap_or_default();
    checksum(session, &[&thread, &number.to_be_bytes(), &[kind], header, text])
}

fn checksum(session: SessionId, parts: &[&[u8]]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&session.as_uuid().into_bytes());
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

/// Encodes the length of a text independently of the machine's word size.
fn length(text: &str) -> [u8; 8] {
    u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes()
}
