//! Stored records: a record survives encoding and decoding, and a log of records folds into a state. The seeds are logs
//! with length-prefixed records.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message as _;
use supervisor_core::{
    event::{Event, Recorded, ThreadEvent},
    evolve::{evolve, open},
    ids::{Sequence, SessionId},
    state::session::Session,
    time::UnixMillis,
};
use supervisor_log::{
    codec::{EncodeError, decode_record, encode_record, event_to_pb},
    store::limits::MAX_RECORD_BYTES,
};
use supervisor_svc::convert::Redaction;
use troupe_fuzz::{frames::frames, states};
use troupe_proto::store::v1::Record;
use uuid::Uuid;

/// Returns the session id in a record.
fn session_of(record: &[u8]) -> SessionId {
    let header = Record::decode(record).ok().and_then(|record| record.header);
    let id = header.and_then(|header| Uuid::from_slice(&header.session).ok());
    SessionId::from_uuid(id.unwrap_or_default())
}

fn check_round_trip(id: SessionId, recorded: &Recorded) {
    match encode_record(id, recorded) {
        Ok(bytes) => assert_eq!(decode_record(id, &bytes).as_ref(), Ok(recorded)),
        Err(EncodeError::TooLarge { bytes } | EncodeError::RoleTooLarge { bytes, .. }) => {
            assert!(bytes > MAX_RECORD_BYTES)
        }
    }
    for redaction in [Redaction::Everything, Redaction::Previews, Redaction::Digests] {
        let _ = redaction.event(event_to_pb(id, recorded));
    }
}

/// Returns the record with the next sequence number of its log and with a time that is not before the previous one.
fn after(sequence: Sequence, time: UnixMillis, recorded: Recorded) -> Recorded {
    Recorded {
        sequence: sequence.next(),
        time: time.max(recorded.time),
        ..recorded
    }
}

/// Returns whether the supervisor could have recorded the event: a new thread has a new id and, unless it is the root,
/// a known parent. Folding relies on this; otherwise a thread could be its own ancestor.
fn is_possible(session: &Session, event: &Event) -> bool {
    match event {
        Event::Thread(id, ThreadEvent::Spawned(spawned)) => {
            let has_valid_parent = match spawned.parent {
                Some(parent) => session.thread(parent).is_some(),
                None => session.root_id().is_none(),
            };
            has_valid_parent && session.thread(*id).is_none()
        }
        Event::Session(_) | Event::Thread(..) => true,
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut state: Option<Session> = None;
    for frame in frames(bytes) {
        let id = session_of(frame);
        let Ok(recorded) = decode_record(id, &frame.to_vec().into()) else {
            continue;
        };
        check_round_trip(id, &recorded);
        match &mut state {
            None => state = open(id, &after(Sequence::ZERO, UnixMillis::default(), recorded)),
            Some(session) if session.id == id && is_possible(session, &recorded.event) => {
                let recorded = after(session.sequence, session.updated, recorded);
                evolve(session, &recorded);
            }
            Some(_) => {}
        }
    }
    if let Some(session) = &state {
        states::check(session);
    }
});
