//! Snapshots: arbitrary bytes are rejected, or decode to a state that survives encoding and decoding.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::{Message as _, bytes::Bytes};
use supervisor_core::ids::{Sequence, SessionId};
use supervisor_log::codec::decode_snapshot;
use troupe_fuzz::states;
use troupe_proto::store::v1::Snapshot;
use uuid::Uuid;

/// Returns the session id and the sequence number in a snapshot.
fn session_and_sequence(snapshot: &[u8]) -> (SessionId, Sequence) {
    let snapshot = Snapshot::decode(snapshot).unwrap_or_default();
    let id = snapshot.session.and_then(|session| session.session_id.parse().ok());
    let id = id.unwrap_or_else(|| SessionId::from_uuid(Uuid::nil()));
    (id, Sequence::new(snapshot.sequence))
}

fuzz_target!(|bytes: &[u8]| {
    let (id, sequence) = session_and_sequence(bytes);
    if let Ok(session) = decode_snapshot(id, sequence, &Bytes::copy_from_slice(bytes)) {
        states::check(&session);
    }
});
