//! The event codec: encoded events decode to equal values, and invalid bytes are rejected without guesses or panics.

use std::{collections::HashSet, mem::discriminant, sync::Arc, time::Duration};

use bytes::Bytes;
use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
};
use prost::Message as _;
use supervisor_core::{
    event::{CloseCause, Event, EventMetadata, Recorded, SessionEvent, SettingsChange, Spawned, ThreadEvent},
    ids::{RunnerId, Sequence},
    principal::Actor,
    settings::{Budget, ClosePolicy, EdgeManagement, Sandbox},
    time::UnixMillis,
};
use supervisor_log::{
    codec::{
        DecodeError, EncodeError, WireEnum as _, decode_record, encode_record,
        enums::cause_name,
        event_to_pb,
        parts::{budget_from_request, duration_from_pb, duration_to_pb, time_from_pb, time_to_pb},
        settings::settings_to_pb,
    },
    store::limits::MAX_RECORD_BYTES,
};
use tool_policy::{Layer, MatchMode, Policy};
use troupe_proto::{FILE_DESCRIPTOR_SET, common::v1 as common, store::v1 as store, supervisor::v1 as pb};

use crate::{
    events::events,
    samples::{self, at, opened, root, session, thread},
};

/// The fuzz target "record" (`fuzz/run --services`) checks that a decoded record survives a second encoding.
#[test]
fn encoded_record_decodes_to_equal_value() {
    for (sequence, event) in (1..).zip(events()) {
        let recorded = at(sequence, event);
        assert_eq!(read(&stored(&recorded)), Ok(recorded));
    }
    let actors = [
        Actor::Operator(String::new()),
        Actor::Operator(String::from("ada: 1")),
        Actor::Thread(thread(2)),
        Actor::Runner(RunnerId::new("r1")),
        Actor::Service,
    ];
    for (actor, text) in actors.into_iter().zip([None, Some(""), Some("a"), Some("b"), None]) {
        let recorded = Recorded {
            sequence: Sequence::new(u64::MAX),
            time: UnixMillis::new(0),
            metadata: EventMetadata {
                actor,
                request_id: text.map(|text| text.repeat(2).into()),
                traceparent: text.map(Arc::from),
                cause: text.map(|text| Sequence::new(text.len() as u64)),
                contents_left_out: text.is_some(),
            },
            event: Event::Session(SessionEvent::Closed),
        };
        assert_eq!(read(&stored(&recorded)), Ok(recorded));
    }
}

/// Stored logs contain these names.
#[test]
fn close_causes_have_fixed_names() {
    use CloseCause::{Close, Eviction, Group, Intensity, Session};
    assert_eq!(
        [Close, Session, Eviction, Intensity, Group].map(cause_name),
        ["close", "session", "eviction", "intensity", "group"]
    );
}

#[test]
fn record_omits_fields_of_its_header() {
    for event in events() {
        let event = stored(&at(1, event)).event.unwrap();
        let bare = pb::Event {
            kind: event.kind.clone(),
            ..pb::Event::default()
        };
        assert_eq!(event, bare);
    }
}

#[test]
fn sample_events_include_every_kind_of_the_api() {
    let descriptors = prost_types::FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    let kinds = descriptors
        .file
        .iter()
        .filter(|file| file.package() == "troupe.supervisor.v1")
        .flat_map(|file| &file.message_type)
        .find(|message| message.name() == "Event")
        .unwrap()
        .field
        .iter()
        .filter(|field| field.oneof_index.is_some())
        .count();
    let made = events().into_iter().map(|event| {
        let event = event_to_pb(session(1), &at(1, event));
        discriminant(&event.kind.unwrap())
    });
    assert_eq!(made.collect::<HashSet<_>>().len(), kinds);
}

fn span() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        (0..=i64::MAX.unsigned_abs(), 0..1_000_000_000_u32).prop_map(|(seconds, nanos)| Duration::new(seconds, nanos)),
    ]
}

proptest! {
    #[test]
    fn times_and_durations_are_exact(time in prop_oneof![Just(0), any::<u64>()], span in span()) {
        let time = UnixMillis::new(time);
        prop_assert_eq!(time_from_pb(time_to_pb(time)), Some(time));
        prop_assert_eq!(duration_from_pb(duration_to_pb(span)), Some(span));
    }

    #[test]
    fn damaged_record_does_not_panic(
        event in select(events()),
        damage in vec((any::<Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = encode_record(session(1), &at(1, event)).unwrap().to_vec();
        for (index, value) in damage {
            let index = index.index(bytes.len());
            bytes[index] = value;
        }
        let bytes = Bytes::from(bytes);
        for end in 0..=bytes.len() {
            let _ = decode_record(session(1), &bytes.slice(..end));
        }
    }

    #[test]
    fn random_bytes_do_not_panic(bytes in vec(any::<u8>(), 0..512)) {
        let _ = decode_record(session(1), &bytes.into());
    }
}

fn note(length: usize) -> Recorded {
    at(1, Event::Thread(thread(2), ThreadEvent::NoteSet("x".repeat(length))))
}

fn stored(recorded: &Recorded) -> store::Record {
    store::Record::decode(encode_record(session(1), recorded).unwrap()).unwrap()
}

fn read(record: &store::Record) -> Result<Recorded, DecodeError> {
    decode_record(session(1), &record.encode_to_vec().into())
}

fn needs_upgrade(result: &Result<Recorded, DecodeError>) -> bool {
    matches!(result, Err(DecodeError::UpgradeRequired { .. }))
}

fn is_malformed(result: &Result<Recorded, DecodeError>) -> bool {
    matches!(result, Err(DecodeError::Malformed { .. }))
}

#[test]
fn record_above_16_kib_is_rejected() {
    let overhead = encode_record(session(1), &note(1_000)).unwrap().len() - 1_000;
    let most = MAX_RECORD_BYTES - overhead;
    assert_eq!(encode_record(session(1), &note(most)).unwrap().len(), MAX_RECORD_BYTES);
    assert_eq!(
        encode_record(session(1), &note(most + 1)),
        Err(EncodeError::TooLarge {
            bytes: MAX_RECORD_BYTES + 1
        })
    );
}

#[test]
fn newer_record_is_distinct_from_damage() {
    let good = stored(&note(3));
    assert_eq!(read(&good), Ok(note(3)));

    let older = store::Record {
        version: 1,
        ..good.clone()
    };
    assert!(is_malformed(&read(&older)));

    let newer = store::Record {
        version: 3,
        ..good.clone()
    };
    assert!(needs_upgrade(&read(&newer)));
    // A record of version 3 whose field 2 has another type: a number.
    assert!(needs_upgrade(&decode_record(
        session(1),
        &Bytes::from_static(&[0x08, 3, 0x10, 5])
    )));

    let with_event = |event: Option<pb::Event>| store::Record { event, ..good.clone() };
    assert!(
        needs_upgrade(&read(&with_event(Some(pb::Event::default())))),
        "an unknown kind of event"
    );
    assert!(is_malformed(&read(&with_event(None))));

    let condition = |kind| {
        with_event(Some(pb::Event {
            kind: Some(pb::event::Kind::ConditionChanged(pb::ConditionChanged {
                kind,
                active: true,
                reason: String::new(),
            })),
            ..pb::Event::default()
        }))
    };
    assert!(needs_upgrade(&read(&condition(99))));
    assert!(is_malformed(&read(&condition(0))));

    let mut tenant = good.clone();
    tenant.header.as_mut().unwrap().tenant = "other".to_owned();
    assert!(needs_upgrade(&read(&tenant)));

    assert!(is_malformed(&decode_record(session(1), &Bytes::new())));
    assert!(is_malformed(&decode_record(session(9), &good.encode_to_vec().into())));
}

#[test]
fn event_with_wrong_thread_header_is_rejected() {
    let mut without_thread = stored(&note(3));
    without_thread.header.as_mut().unwrap().thread = Bytes::new();
    assert!(is_malformed(&read(&without_thread)));

    let mut with_thread = stored(&at(1, Event::Session(SessionEvent::Closed)));
    with_thread.header.as_mut().unwrap().thread = Bytes::copy_from_slice(&[7; 16]);
    assert!(is_malformed(&read(&with_thread)));
}

#[test]
fn missing_policy_or_budget_is_rejected() {
    let record = stored(&at(1, Event::Thread(thread(2), ThreadEvent::Spawned(Arc::new(root())))));
    let without = |remove: fn(&mut pb::ThreadSpawned)| {
        let mut record = record.clone();
        remove(spawned_in(&mut record));
        read(&record)
    };
    assert!(without(|_| {}).is_ok());
    assert!(is_malformed(&without(|spawned| spawned.tool_policy = None)));
    assert!(is_malformed(&without(|spawned| spawned.budget = None)));
}

fn spawned_in(record: &mut store::Record) -> &mut pb::ThreadSpawned {
    match &mut record.event.as_mut().unwrap().kind {
        Some(pb::event::Kind::ThreadSpawned(spawned)) => spawned,
        other => panic!("another kind: {other:?}"),
    }
}

#[test]
fn equal_policy_and_grant_are_stored_once() {
    let policy = Policy::compile(vec![Layer::nothing("role \"worker\"")]).unwrap();
    let alike = Spawned {
        effective: policy.clone(),
        grant: policy,
        ..root()
    };
    let shown = |spawned: &Spawned| {
        let recorded = at(
            1,
            Event::Thread(thread(2), ThreadEvent::Spawned(Arc::new(spawned.clone()))),
        );
        (stored(&recorded), event_to_pb(session(1), &recorded), recorded)
    };
    let (mut record, event, recorded) = shown(&alike);
    assert_eq!(spawned_in(&mut record).grant, None);
    assert_eq!(read(&record), Ok(recorded));
    let Some(pb::event::Kind::ThreadSpawned(public)) = event.kind else {
        panic!("another kind");
    };
    assert!(public.grant.is_some());
    assert_eq!(public.grant, public.tool_policy, "clients receive both");

    let wider = Spawned {
        grant: Policy::unrestricted(),
        ..alike
    };
    let (mut record, _, recorded) = shown(&wider);
    assert_eq!(spawned_in(&mut record).grant, Some(common::ToolPolicy::default()));
    assert_eq!(read(&record), Ok(recorded));
}

#[test]
fn unspecified_values_have_the_documented_meaning() {
    assert_eq!(ClosePolicy::from_number(0), Ok(ClosePolicy::Terminate));
    assert_eq!(ClosePolicy::given(0), Ok(None));
    assert_eq!(MatchMode::from_number(0), Ok(MatchMode::Glob));
    assert_eq!(EdgeManagement::given(2), Ok(Some(EdgeManagement::SelfOnly)));
    let error = Sandbox::from_number(0).unwrap_err();
    assert_eq!((error.name, error.number), ("Sandbox", 0));
    assert!(Sandbox::from_number(-1).is_err());
    let unbounded = pb::Budget {
        wall_time: Some(prost_types::Duration::default()),
        ..pb::Budget::default()
    };
    assert_eq!(budget_from_request(unbounded), Ok(Budget::default()));
}

#[test]
fn secrets_are_stored_and_never_displayed() {
    let holds = |bytes: &[u8]| bytes.windows(11).any(|part| part == b"do-not-tell");
    let change = SettingsChange {
        webhooks: Some(samples::some_settings().webhooks),
        ..SettingsChange::default()
    };
    for event in [opened(), Event::Session(SessionEvent::Updated(Box::new(change)))] {
        let recorded = at(1, event);
        assert!(holds(&encode_record(session(1), &recorded).unwrap()));
        assert!(!holds(&event_to_pb(session(1), &recorded).encode_to_vec()));
    }
    assert!(!holds(&settings_to_pb(&samples::some_settings()).encode_to_vec()));
}
