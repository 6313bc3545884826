//! Stored records: what is read is read back equal from what is written of it, and a log of them folds into a state.
//! The seeds are logs, each record after its length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message as _;
use supervisor_svc::{
    domain::{
        event::{Event, Recorded, ThreadEvent},
        evolve::{evolve, open},
        ids::{Sequence, SessionId},
        session::Session,
        time::UnixMillis,
    },
    store::limits::MAX_RECORD_BYTES,
    wire::{EncodeError, decode_record, encode_record, event::Sight, event_to_pb},
};
use troupe_fuzz::{frames::frames, states};
use troupe_proto::store::v1::Record;
use uuid::Uuid;

/// The session that a record says it is of.
fn session_of(record: &[u8]) -> SessionId {
    let header = Record::decode(record).ok().and_then(|record| record.header);
    let id = header.and_then(|header| Uuid::from_slice(&header.session).ok());
    SessionId::from_uuid(id.unwrap_or_default())
}

fn read_back(id: SessionId, recorded: &Recorded) {
    match encode_record(id, recorded) {
        Ok(bytes) => assert_eq!(decode_record(id, &bytes).as_ref(), Ok(recorded)),
        Err(EncodeError::TooLarge { bytes } | EncodeError::RoleTooLarge { bytes, .. }) => {
            assert!(bytes > MAX_RECORD_BYTES)
        }
    }
    for sight in [Sight::Everything, Sight::Previews, Sight::Digests] {
        let _ = sight.event(event_to_pb(id, recorded));
    }
}

/// The record as the next one of its log: the store counts without gaps, and time never goes back.
fn after(sequence: Sequence, time: UnixMillis, recorded: Recorded) -> Recorded {
    Recorded {
        sequence: sequence.next(),
        time: time.max(recorded.time),
        ..recorded
    }
}

/// Whether an event can have been decided: a new thread has a new id, and a parent unless it is the root. Folding rests on
/// that, or a thread could be above itself.
fn is_possible(session: &Session, event: &Event) -> bool {
    match event {
        Event::Thread(id, ThreadEvent::Spawned(spawned)) => {
            let has_place = match spawned.parent {
                Some(parent) => session.thread(parent).is_some(),
                None => session.root_id().is_none(),
            };
            has_place && session.thread(*id).is_none()
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
        read_back(id, &recorded);
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
