//! Snapshots: a written snapshot is read back equal, for any session. Invalid snapshots are rejected without guesses.

use std::{env, fs, path::Path, sync::Arc};

use bytes::Bytes;
use proptest::{collection::vec, prelude::*, sample::Index};
use prost::Message as _;
use supervisor_core::{
    event::{ApprovalDecision, ConditionKind, Event, Recorded, SessionEvent, SettingsChange, ThreadEvent},
    evolve::{evolve, open},
    ids::{ApprovalId, Generation, Sequence, SessionId, Turn},
    principal::Actor,
    settings::{Usage, Webhook},
    state::{mailbox::Body, session::Session, thread::LatestTurn, webhook::WebhookStart},
    status::{Settled, Status},
    time::UnixMillis,
};
use supervisor_log::codec::{DecodeError, decode_snapshot, encode_snapshot};
use troupe_proto::store::v1 as store;
use uuid::Uuid;

use crate::{
    events::{
        BUSY, ROOT, RUNNING, asked, dispatched, edge, ended, fence, handoff, placed, queued, settings, spawned,
        started, usage,
    },
    samples::{at, session, thread},
};

/// A thread that was closed after a turn with an empty message.
const CLOSED: u128 = 3;

/// Returns a session with a value in every field.
fn full() -> Session {
    let busy = |event| Event::Thread(thread(BUSY), event);
    let running = |event| Event::Thread(thread(RUNNING), event);
    let closed = |event| Event::Thread(thread(CLOSED), event);
    let spawn = |number, parent, alias: &str| {
        let spawned = spawned(parent, alias);
        Event::Thread(thread(number), ThreadEvent::Spawned(Arc::new(spawned)))
    };
    let events = vec![
        Event::Session(SessionEvent::Opened(Box::new(settings()))),
        spawn(ROOT, None, ""),
        spawn(BUSY, Some(ROOT), "Busy"),
        spawn(RUNNING, Some(BUSY), ""),
        spawn(CLOSED, Some(BUSY), ""),
        busy(placed("r1", 1)),
        busy(dispatched(1, 1, &[1], 0)),
        busy(started(1, 1)),
        busy(placed("r2", 2)),
        busy(dispatched(2, 2, &[1], 0)),
        busy(started(2, 2)),
        busy(ended(2, 2, "done")),
        busy(queued(2)),
        busy(ThreadEvent::Admitted),
        running(placed("r1", 1)),
        running(dispatched(1, 1, &[1], 0)),
        running(started(1, 1)),
        running(queued(2)),
        running(ThreadEvent::InterruptRequested {
            turn: Turn::new(1),
            reason: String::from("stop"),
        }),
        running(ThreadEvent::NoteSet(String::from("on it"))),
        running(ThreadEvent::ConditionChanged {
            kind: ConditionKind::PolicyGap,
            active: true,
            reason: String::from("web_search"),
        }),
        running(ThreadEvent::UsageRecorded {
            generation: Generation::new(1),
            usage: usage(0),
        }),
        Event::Thread(thread(ROOT), asked(30)),
        running(asked(31)),
        running(ThreadEvent::ApprovalResolved {
            approval: ApprovalId::from_uuid(Uuid::from_u128(31)),
            decision: ApprovalDecision::Denied,
            by: Actor::Operator(String::from("ada")),
            reason: String::from("no"),
        }),
        running(ThreadEvent::EdgeCreated(edge())),
        running(ThreadEvent::HandoffSent(Box::new(handoff()))),
        closed(placed("r1", 1)),
        closed(dispatched(1, 1, &[1], 0)),
        closed(started(1, 1)),
        closed(ended(1, 1, "")),
        closed(ThreadEvent::Closed {
            forced: true,
            reason: String::from("deadline"),
        }),
        busy(ThreadEvent::MailAcknowledged(Sequence::new(10))),
        busy(dispatched(3, 2, &[2], 27)),
        busy(started(3, 2)),
        busy(placed("r3", 3)),
        busy(dispatched(4, 3, &[2], 27)),
        busy(ThreadEvent::CloseRequested(fence())),
        Event::Session(SessionEvent::Updated(Box::new(SettingsChange {
            paused: Some(true),
            ..SettingsChange::default()
        }))),
    ];
    let mut records = events.into_iter().zip(1..).map(|(event, sequence)| at(sequence, event));
    let mut session = open(session(1), &records.next().unwrap()).unwrap();
    records.for_each(|recorded| evolve(&mut session, &recorded));
    session
}

fn read(session: &Session, bytes: impl Into<Bytes>) -> Result<Session, DecodeError> {
    decode_snapshot(session.id, session.sequence, &bytes.into())
}

fn raw(session: &Session) -> store::Snapshot {
    store::Snapshot::decode(encode_snapshot(session)).unwrap()
}

fn change(thread: &mut Bytes, change: impl FnOnce(&mut store::ThreadState)) {
    let mut state = store::ThreadState::decode(thread.clone()).unwrap();
    change(&mut state);
    *thread = state.encode_to_vec().into();
}

#[test]
fn snapshot_preserves_every_field() {
    let session = full();
    // Checks that the session has a value in every field. Otherwise the test would prove nothing.
    let busy = session.thread(thread(BUSY)).unwrap();
    assert_eq!((busy.restarts.len(), busy.repeats_turn), (2, true));
    assert_eq!((busy.mail.len(), busy.mail_shown), (3, Sequence::new(27)));
    assert_eq!((busy.open_children, busy.children.len()), (1, 2));
    assert!(busy.fence.is_some() && busy.repeated.output.is_some() && busy.repeated.diff.is_some());
    assert!(matches!(&busy.turn, LatestTurn::Dispatched { inputs, .. } if inputs.len() == 1));
    let running = session.thread(thread(RUNNING)).unwrap();
    assert!(running.interrupt.is_some() && !running.pending_inputs.is_empty() && !running.conditions.is_empty());
    assert!(matches!(running.turn, LatestTurn::Running { .. }));
    let closed = session.thread(thread(CLOSED)).unwrap();
    let silent = Settled::Completed {
        message: Some(String::new()),
        content: None,
    };
    assert!(matches!(&closed.status, Status::Shutdown { before: Some(before), .. } if **before == silent));
    assert_ne!(closed.earlier_usage, Usage::default());
    assert_ne!(session.usage(), Usage::default());
    assert_eq!((session.edges.len(), session.approvals.len()), (1, 2));
    assert!(session.paused);

    let restored = read(&session, encode_snapshot(&session)).unwrap();
    assert_eq!(restored, session);
    assert_eq!(restored.thread_by_alias("busy"), Some(thread(BUSY)));
    assert_eq!(
        encode_snapshot(&restored),
        encode_snapshot(&session),
        "equal states have equal encodings"
    );
}

#[test]
fn snapshot_stores_shared_values_once() {
    let mut session = full();
    let before = raw(&session);
    for number in 100..300 {
        let event = ThreadEvent::Spawned(Arc::new(spawned(Some(ROOT), "")));
        let recorded = at(session.sequence.next().get(), Event::Thread(thread(number), event));
        evolve(&mut session, &recorded);
    }
    let after = raw(&session);
    assert_eq!(after.policies.len(), before.policies.len());
    assert_eq!(after.roles.len(), before.roles.len());
    assert_eq!(after.notes, before.notes);
    assert_eq!(read(&session, encode_snapshot(&session)), Ok(session));
}

#[test]
fn restored_threads_share_common_values() {
    let session = full();
    let restored = read(&session, encode_snapshot(&session)).unwrap();
    let [busy, running] = [BUSY, RUNNING].map(|number| restored.thread(thread(number)).unwrap());
    assert!(Arc::ptr_eq(&busy.note, &running.spawned.note));
    assert!(Arc::ptr_eq(&busy.spawned.role, &running.spawned.role));
}

#[test]
fn restored_mail_shares_the_childs_status() {
    const CHILD: u128 = 100;
    let mut session = full();
    let events = [
        ThreadEvent::Spawned(Arc::new(spawned(Some(ROOT), ""))),
        placed("r1", 1),
        dispatched(1, 1, &[1], 0),
        started(1, 1),
        ended(1, 1, "done"),
    ];
    for event in events {
        let recorded = at(session.sequence.next().get(), Event::Thread(thread(CHILD), event));
        evolve(&mut session, &recorded);
    }
    let restored = read(&session, encode_snapshot(&session)).unwrap();
    let root = restored.thread(thread(ROOT)).unwrap();
    let letter_status = root.mail.letters().find_map(|letter| match &letter.body {
        Body::Settled {
            child,
            status: Status::Settled(settled),
        } if *child == thread(CHILD) => Some(settled),
        _ => None,
    });
    let Status::Settled(settled) = &restored.thread(thread(CHILD)).unwrap().status else {
        panic!("it is settled");
    };
    assert!(Arc::ptr_eq(letter_status.unwrap(), settled));
}

#[test]
fn time_zero_is_preserved() {
    let opened = Event::Session(SessionEvent::Opened(Box::new(settings())));
    let spawn = Event::Thread(thread(ROOT), ThreadEvent::Spawned(Arc::new(spawned(None, ""))));
    let [opened, spawn] = [at(1, opened), at(2, spawn)].map(|recorded| Recorded {
        time: UnixMillis::new(0),
        ..recorded
    });
    let mut session = open(session(1), &opened).unwrap();
    evolve(&mut session, &spawn);
    assert_eq!(read(&session, encode_snapshot(&session)), Ok(session));
}

/// Returns a session with two webhooks: one from its opening, and one that was added later.
fn with_another_webhook() -> Session {
    let mut session = full();
    let mut webhooks = session.settings.webhooks.clone();
    webhooks.insert(
        0,
        Webhook {
            url: String::from("https://example.org/other"),
            kinds: Vec::new(),
            secret: String::from("another secret"),
        },
    );
    let change = SettingsChange {
        webhooks: Some(webhooks),
        ..SettingsChange::default()
    };
    let event = Event::Session(SessionEvent::Updated(Box::new(change)));
    let recorded = at(session.sequence.next().get(), event);
    evolve(&mut session, &recorded);
    session
}

fn starts(session: &Session) -> Vec<WebhookStart> {
    session.receivers().map(|(_, start)| start).collect()
}

#[test]
fn each_webhook_keeps_its_position() {
    let session = with_another_webhook();
    let [later, opening] = [session.sequence, Sequence::ZERO].map(WebhookStart::given_by);
    assert_eq!(starts(&session), [later, opening]);
    assert_eq!(read(&session, encode_snapshot(&session)), Ok(session));
}

#[test]
fn snapshot_of_other_release_or_session_is_rejected() {
    let session = full();
    let good = raw(&session);
    let with = |change: &dyn Fn(&mut store::Snapshot)| {
        let mut snapshot = good.clone();
        change(&mut snapshot);
        read(&session, snapshot.encode_to_vec())
    };
    let with_thread =
        |other: &dyn Fn(&mut store::ThreadState)| with(&|snapshot| change(&mut snapshot.threads[1], other));
    let newer = |result: Result<Session, DecodeError>| matches!(result, Err(DecodeError::UpgradeRequired { .. }));
    let malformed = |result: Result<Session, DecodeError>| matches!(result, Err(DecodeError::Malformed { .. }));
    assert_eq!(with(&|_| {}), Ok(session.clone()));
    assert!(newer(with(&|snapshot| snapshot.version += 1)));
    assert!(newer(with_thread(&|thread| thread.sandbox = 99)));
    let other = SessionId::from_uuid(Uuid::from_u128(2));
    let of_other = decode_snapshot(other, session.sequence, &good.encode_to_vec().into());
    let twice = with(&|snapshot| {
        let mut again = snapshot.threads[1].clone();
        change(&mut again, |thread| thread.spawn_sequence = 1_000);
        snapshot.threads.push(again);
    });
    for (defect, result) in [
        ("no version", with(&|snapshot| snapshot.version = 0)),
        ("an older version", with(&|snapshot| snapshot.version -= 1)),
        ("another sequence", with(&|snapshot| snapshot.sequence += 1)),
        ("children before parents", with(&|snapshot| snapshot.threads.reverse())),
        // A missing policy must not allow every tool.
        ("no policy", with_thread(&|thread| thread.policy = 0)),
        ("no time", with_thread(&|thread| thread.created = None)),
        ("a bad id", with_thread(&|thread| thread.parent = vec![0].into())),
        (
            "a text that is not UTF-8",
            with_thread(&|thread| thread.runner = Some(vec![255].into())),
        ),
        ("no policies", with(&|snapshot| snapshot.policies.clear())),
        ("no roles", with(&|snapshot| snapshot.roles.clear())),
        ("no notes", with(&|snapshot| snapshot.notes.clear())),
        ("no outcomes", with(&|snapshot| snapshot.settled.clear())),
        ("a thread twice", twice),
        ("no webhooks", with(&|snapshot| snapshot.webhook_starts.clear())),
        ("another session", of_other),
        ("nothing", read(&session, Bytes::new())),
    ] {
        assert!(malformed(result), "{defect}");
    }
}

/// Compares the seed of the fuzz target with the current encoding. With `TROUPE_WRITE_SEEDS=1`, writes the seed first.
#[test]
fn fuzz_seed_is_current() {
    let seed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/snapshot/full");
    let encoded = encode_snapshot(&full());
    if env::var_os("TROUPE_WRITE_SEEDS").is_some() {
        fs::write(&seed, &encoded).unwrap();
    }
    assert!(
        fs::read(&seed).unwrap() == encoded,
        "run this test with TROUPE_WRITE_SEEDS=1"
    );
}

proptest! {
    #[test]
    fn damaged_snapshot_does_not_panic(damage in vec((any::<Index>(), any::<u8>()), 1..8), end in any::<Index>()) {
        let session = full();
        let mut bytes = encode_snapshot(&session).to_vec();
        for (index, value) in damage {
            let index = index.index(bytes.len());
            bytes[index] = value;
        }
        let _ = read(&session, bytes.clone());
        let _ = read(&session, bytes[..end.index(bytes.len())].to_vec());
    }
}
