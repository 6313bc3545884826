//! Requirements for every engine of the store, checked on each engine.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

mod postgres_server;

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use futures::future::join_all;
use supervisor_core::{
    ids::{Digest, Epoch, Generation, Sequence, SessionId, ThreadId},
    time::UnixMillis,
    transcript::{TranscriptKind, TranscriptKinds, TranscriptSource},
};
use supervisor_log::store::{
    AppendError, Batch, Content, Created, CreationKey, CursorKey, Due, EventStore, Evidence, Head, Invalid, LongText,
    Mark, MarkKind, MemoryStore, NewEntry, NewRecord, PostgresStore, ReadError, Refusal, RequestKey, RequestRecord,
    SessionEntry, Side, Snapshot, SqliteStore, StoredRecord, TranscriptQuery, WriteError, limits,
};
use tempfile::TempDir;
use uuid::Uuid;

use self::postgres_server::Database;

type Store = Arc<dyn EventStore>;

fn session(number: u128) -> SessionId {
    SessionId::from_uuid(Uuid::from_u128(number))
}

fn thread(number: u128) -> ThreadId {
    ThreadId::from_uuid(Uuid::from_u128(number))
}

fn digest(byte: u8) -> Digest {
    Digest::from_bytes([byte; 32])
}

fn at(millis: u64) -> UnixMillis {
    UnixMillis::new(millis)
}

fn epoch() -> Epoch {
    Epoch::new(1)
}

/// A batch of records "number.1", "number.2", ... after `expected`.
fn batch(session: SessionId, expected: u64, count: u64) -> Batch {
    let records = (expected + 1..=expected + count).map(|number| NewRecord {
        sequence: Sequence::new(number),
        bytes: Bytes::from(format!("{session}.{number}")),
    });
    Batch {
        session,
        expected: Sequence::new(expected),
        epoch: epoch(),
        records: records.collect(),
        contents: Vec::new(),
        marks: Vec::new(),
        entries: Vec::new(),
        new_threads: Vec::new(),
        requests: Vec::new(),
        due: None,
    }
}

/// What [`batch`]es from the beginning to `head` must read as.
fn stored(session: SessionId, head: u64) -> Vec<StoredRecord> {
    let records = batch(session, 0, head).records.into_iter();
    records
        .map(|record| StoredRecord {
            sequence: record.sequence,
            bytes: record.bytes,
        })
        .collect()
}

fn request(id: &str, outcome: &'static str, expires: u64) -> RequestRecord {
    RequestRecord {
        scope: "operator|SpawnAgent".to_owned(),
        request_id: id.to_owned(),
        hash: [7; 32],
        outcome: Bytes::from_static(outcome.as_bytes()),
        expires: at(expires),
    }
}

fn key(creator: &str, hash: u8) -> CreationKey {
    CreationKey {
        creator: creator.to_owned(),
        request_id: "same".to_owned(),
        hash: [hash; 32],
        now: at(100),
        expires: at(200),
    }
}

async fn created(store: &Store, session: SessionId, count: u64) {
    assert_eq!(store.create(None, batch(session, 0, count)).await, Ok(Created::New));
}

async fn read_all(store: &Store, session: SessionId) -> Vec<StoredRecord> {
    store.read(session, Sequence::ZERO, limits::MAX_PAGE).await.unwrap()
}

async fn head_of(store: &Store, session: SessionId) -> Option<u64> {
    store.head(session).await.unwrap().map(|head| head.sequence.get())
}

async fn reads_in_order_what_was_appended(store: Store) {
    created(&store, session(1), 2).await;
    store.append(batch(session(1), 2, 3)).await.unwrap();
    assert_eq!(read_all(&store, session(1)).await, stored(session(1), 5));
    let head = Head {
        sequence: Sequence::new(5),
        epoch: epoch(),
        oldest: Sequence::ZERO,
        content_bytes: 0,
    };
    assert_eq!(store.head(session(1)).await, Ok(Some(head)));
}

async fn reads_pages_after_a_position(store: Store) {
    created(&store, session(1), 5).await;
    let all = stored(session(1), 5);
    assert_eq!(store.read(session(1), Sequence::new(1), 2).await.unwrap(), all[1..3]);
    assert_eq!(store.read(session(1), Sequence::new(3), 2).await.unwrap(), all[3..]);
    for beyond in [5, 6, u64::MAX] {
        assert_eq!(store.read(session(1), Sequence::new(beyond), 2).await, Ok(Vec::new()));
    }
    assert_eq!(store.read(session(1), Sequence::ZERO, 0).await, Ok(Vec::new()));
}

async fn a_page_is_bounded(store: Store) {
    let count = u64::try_from(limits::MAX_BATCH_ITEMS).unwrap();
    created(&store, session(1), count).await;
    store.append(batch(session(1), count, count)).await.unwrap();
    let page = store.read(session(1), Sequence::ZERO, usize::MAX).await.unwrap();
    assert_eq!(page.len(), limits::MAX_PAGE);
}

async fn knows_nothing_of_an_absent_session(store: Store) {
    let absent = session(9);
    assert_eq!(store.head(absent).await, Ok(None));
    assert_eq!(store.read(absent, Sequence::ZERO, 10).await, Ok(Vec::new()));
    assert_eq!(store.snapshot(absent).await, Ok(None));
    assert_eq!(store.content(absent, digest(1)).await, Ok(None));
    assert_eq!(store.session_of(thread(1)).await, Ok(None));
    assert_eq!(
        store.append(batch(absent, 0, 1)).await,
        Err(AppendError::NotFound { session: absent })
    );
    assert_eq!(store.claim(absent).await, Err(WriteError::NotFound { session: absent }));
    assert_eq!(store.delete_session(absent, Vec::new()).await, Ok(false));
}

async fn a_gap_is_refused(store: Store) {
    created(&store, session(1), 1).await;
    let mut gap = batch(session(1), 1, 3);
    gap.records.remove(1);
    let invalid = Invalid::Gap {
        expected: Sequence::new(3),
        found: Sequence::new(4),
    };
    assert_eq!(store.append(gap).await, Err(AppendError::Invalid(invalid)));
    let mut late = batch(session(1), 1, 1);
    late.records[0].sequence = Sequence::new(3);
    assert!(matches!(
        store.append(late).await,
        Err(AppendError::Invalid(Invalid::Gap { .. }))
    ));
    assert_eq!(read_all(&store, session(1)).await, stored(session(1), 1));
}

async fn a_mismatch_leaves_nothing(store: Store) {
    created(&store, session(1), 2).await;
    for expected in [0, 1, 3] {
        let mut stale = batch(session(1), expected, 1);
        stale.contents = vec![Content {
            digest: digest(1),
            bytes: Bytes::from_static(b"content"),
        }];
        stale.new_threads = vec![thread(1)];
        stale.requests = vec![request("a", "done", 1)];
        stale.due = Some(at(1));
        assert_eq!(
            store.append(stale).await,
            Err(AppendError::Mismatch {
                actual: Sequence::new(2)
            })
        );
    }
    assert_eq!(read_all(&store, session(1)).await, stored(session(1), 2));
    assert_eq!(store.content(session(1), digest(1)).await, Ok(None));
    assert_eq!(store.session_of(thread(1)).await, Ok(None));
    assert_eq!(store.requests(session(1), None, 10).await, Ok(Vec::new()));
    assert_eq!(store.due_before(at(9), None, 10).await, Ok(Vec::new()));
}

async fn one_mismatch_fails_no_other_session(store: Store) {
    for number in 0..32 {
        created(&store, session(number), 1).await;
    }
    // Every other one is stale, and all are sent before any is answered.
    let is_fresh = |number: u128| number & 1 == 0;
    let appends = (0..32).map(|number| store.append(batch(session(number), u64::from(is_fresh(number)), 1)));
    for (number, answer) in (0..).zip(join_all(appends).await) {
        if is_fresh(number) {
            assert_eq!(answer, Ok(()));
            assert_eq!(read_all(&store, session(number)).await, stored(session(number), 2));
        } else {
            assert_eq!(
                answer,
                Err(AppendError::Mismatch {
                    actual: Sequence::new(1)
                })
            );
            assert_eq!(read_all(&store, session(number)).await, stored(session(number), 1));
        }
    }
}

async fn one_taken_thread_fails_no_other_session(store: Store) {
    let mut owner = batch(session(100), 0, 1);
    owner.new_threads = vec![thread(1)];
    assert_eq!(store.create(None, owner).await, Ok(Created::New));
    for number in 0..32 {
        created(&store, session(number), 1).await;
    }
    let takes = |number: u128| number % 8 == 3;
    let appends = (0..32).map(|number| {
        let mut batch = batch(session(number), 1, 1);
        batch.new_threads = vec![
            thread(200 + number),
            if takes(number) { thread(1) } else { thread(300 + number) },
        ];
        store.append(batch)
    });
    for (number, answer) in (0..).zip(join_all(appends).await) {
        let invalid = Invalid::ThreadTaken { thread: thread(1) };
        let expected = if takes(number) {
            Err(AppendError::Invalid(invalid))
        } else {
            Ok(())
        };
        assert_eq!(answer, expected);
        let head = if takes(number) { 1 } else { 2 };
        assert_eq!(read_all(&store, session(number)).await, stored(session(number), head));
        let owner = (!takes(number)).then_some(session(number));
        assert_eq!(store.session_of(thread(200 + number)).await, Ok(owner));
    }
}

async fn keys_may_have_any_character(store: Store) {
    created(&store, session(1), 1).await;
    let mut answered = batch(session(1), 1, 0);
    let ids = ["", "\0", "A", "a", "a\0b", "\u{e9}"];
    answered.requests = ids.iter().rev().map(|id| request(id, "first", 50)).collect();
    // Of two requests with one key in a batch, the last one counts.
    answered.requests.push(request("a", "second", 60));
    store.append(answered).await.unwrap();
    let found = store.requests(session(1), None, 10).await.unwrap();
    let expected = ids.map(|id| match id {
        "a" => request("a", "second", 60),
        other => request(other, "first", 50),
    });
    assert_eq!(found, expected, "in the order of their bytes");
    let rest = store.requests(session(1), Some(expected[4].key()), 10).await;
    assert_eq!(rest, Ok(vec![expected[5].clone()]));
    let mut odd = key("\0ann\u{e9}", 1);
    odd.request_id = "\0".to_owned();
    assert_eq!(store.create(Some(odd), batch(session(2), 0, 1)).await, Ok(Created::New));
    let found = store.creation("\0ann\u{e9}".to_owned(), "\0".to_owned()).await.unwrap();
    assert_eq!(found.unwrap().session, session(2));
    let cursor = CursorKey {
        session: Some(session(0)),
        name: "\0".to_owned(),
    };
    created(&store, session(0), 1).await;
    store
        .put_cursor(cursor.clone(), Some(Bytes::from_static(b"\0")))
        .await
        .unwrap();
    assert_eq!(store.cursor(cursor.clone()).await, Ok(Some(Bytes::from_static(b"\0"))));
    let shared = CursorKey {
        session: None,
        ..cursor
    };
    assert_eq!(
        store.cursor(shared).await,
        Ok(None),
        "the session with the id zero is a session"
    );
}

async fn of_many_with_one_expectation_one_wins(store: Store) {
    created(&store, session(1), 1).await;
    let answers = join_all((0..20).map(|_| store.append(batch(session(1), 1, 1)))).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    let lost = Err(AppendError::Mismatch {
        actual: Sequence::new(2),
    });
    assert_eq!(answers.iter().filter(|answer| **answer == lost).count(), 19);
    assert_eq!(read_all(&store, session(1)).await, stored(session(1), 2));
}

async fn a_claim_fences_the_owner_before(store: Store) {
    created(&store, session(1), 1).await;
    assert_eq!(store.claim(session(1)).await, Ok(Epoch::new(2)));
    let fenced = Err(AppendError::Fenced { current: Epoch::new(2) });
    assert_eq!(store.append(batch(session(1), 1, 1)).await, fenced);
    assert_eq!(
        store.append(batch(session(1), 0, 1)).await,
        fenced,
        "the epoch is checked before the head"
    );
    let mut owned = batch(session(1), 1, 1);
    owned.epoch = Epoch::new(2);
    store.append(owned.clone()).await.unwrap();
    assert_eq!(store.claim(session(1)).await, Ok(Epoch::new(3)));
    owned.expected = Sequence::new(2);
    owned.records.clear();
    assert_eq!(
        store.append(owned).await,
        Err(AppendError::Fenced { current: Epoch::new(3) })
    );
    assert_eq!(read_all(&store, session(1)).await, stored(session(1), 2));
}

async fn a_creation_happens_once_per_creator(store: Store) {
    assert_eq!(
        store.create(Some(key("ann", 1)), batch(session(1), 0, 1)).await,
        Ok(Created::New)
    );
    let existing = Created::Existing {
        session: session(1),
        hash: [1; 32],
    };
    assert_eq!(
        store.create(Some(key("ann", 1)), batch(session(2), 0, 1)).await,
        Ok(existing)
    );
    assert_eq!(head_of(&store, session(2)).await, None);
    assert_eq!(
        store.create(Some(key("bob", 1)), batch(session(2), 0, 1)).await,
        Ok(Created::New)
    );
    let found = store
        .creation("bob".to_owned(), "same".to_owned())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (found.session, found.hash, found.expires),
        (session(2), [1; 32], at(200))
    );
    assert_eq!(store.creation("eve".to_owned(), "same".to_owned()).await, Ok(None));
}

async fn a_creation_reports_the_hash_of_the_first(store: Store) {
    assert_eq!(
        store.create(Some(key("ann", 1)), batch(session(1), 0, 1)).await,
        Ok(Created::New)
    );
    let existing = Created::Existing {
        session: session(1),
        hash: [1; 32],
    };
    assert_eq!(
        store.create(Some(key("ann", 2)), batch(session(1), 0, 1)).await,
        Ok(existing)
    );
}

async fn of_many_creations_with_one_key_one_wins(store: Store) {
    let creations = (0..16).map(|number| store.create(Some(key("ann", 1)), batch(session(number), 0, 1)));
    let answers = join_all(creations).await;
    assert_eq!(answers.iter().filter(|answer| **answer == Ok(Created::New)).count(), 1);
    let sessions = store.sessions(None, 100).await.unwrap();
    assert_eq!(sessions.len(), 1);
    let existing = Ok(Created::Existing {
        session: sessions[0],
        hash: [1; 32],
    });
    assert_eq!(answers.iter().filter(|answer| **answer == existing).count(), 15);
}

async fn an_expired_creation_is_forgotten(store: Store) {
    assert_eq!(
        store.create(Some(key("ann", 1)), batch(session(1), 0, 1)).await,
        Ok(Created::New)
    );
    let mut later = key("ann", 2);
    later.now = at(200);
    later.expires = at(300);
    assert_eq!(
        store.create(Some(later.clone()), batch(session(2), 0, 1)).await,
        Ok(Created::New)
    );
    let existing = Created::Existing {
        session: session(2),
        hash: [2; 32],
    };
    assert_eq!(store.create(Some(later), batch(session(3), 0, 1)).await, Ok(existing));
}

async fn a_session_is_created_once(store: Store) {
    created(&store, session(1), 3).await;
    let again = store.create(Some(key("ann", 1)), batch(session(1), 0, 1)).await;
    assert_eq!(
        again,
        Err(AppendError::Mismatch {
            actual: Sequence::new(3)
        })
    );
    let invalid = Invalid::NotFirst {
        expected: Sequence::new(1),
    };
    assert_eq!(
        store.create(None, batch(session(2), 1, 1)).await,
        Err(AppendError::Invalid(invalid))
    );
    assert_eq!(store.sessions(None, 10).await, Ok(vec![session(1)]));
    assert_eq!(store.creation("ann".to_owned(), "same".to_owned()).await, Ok(None));
}

async fn contents_are_kept_once_per_session(store: Store) {
    let content = Content {
        digest: digest(1),
        bytes: Bytes::from_static(b"once"),
    };
    for number in [1, 2] {
        let mut first = batch(session(number), 0, 1);
        first.contents = vec![content.clone(), content.clone()];
        assert_eq!(store.create(None, first).await, Ok(Created::New));
    }
    let mut again = batch(session(1), 1, 1);
    again.contents = vec![
        content.clone(),
        Content {
            digest: digest(2),
            bytes: Bytes::new(),
        },
    ];
    store.append(again).await.unwrap();
    assert_eq!(
        store.content(session(1), digest(1)).await,
        Ok(Some(content.bytes.clone()))
    );
    assert_eq!(store.content(session(1), digest(2)).await, Ok(Some(Bytes::new())));
    assert_eq!(store.content(session(2), digest(2)).await, Ok(None));
    assert_eq!(store.delete_session(session(1), Vec::new()).await, Ok(true));
    assert_eq!(store.content(session(1), digest(1)).await, Ok(None));
    assert_eq!(store.content(session(2), digest(1)).await, Ok(Some(content.bytes)));
}

async fn threads_lead_to_their_session(store: Store) {
    let mut first = batch(session(1), 0, 1);
    first.new_threads = vec![thread(1), thread(2)];
    assert_eq!(store.create(None, first).await, Ok(Created::New));
    created(&store, session(2), 1).await;
    let mut taken = batch(session(2), 1, 1);
    taken.new_threads = vec![thread(3), thread(2)];
    let invalid = Invalid::ThreadTaken { thread: thread(2) };
    assert_eq!(store.append(taken).await, Err(AppendError::Invalid(invalid)));
    assert_eq!(head_of(&store, session(2)).await, Some(1));
    assert_eq!(store.session_of(thread(2)).await, Ok(Some(session(1))));
    assert_eq!(store.session_of(thread(3)).await, Ok(None));
}

async fn lists_sessions_in_pages(store: Store) {
    for number in [5, 1, 4, 2, 3] {
        created(&store, session(number), 1).await;
    }
    assert_eq!(store.sessions(None, 2).await, Ok(vec![session(1), session(2)]));
    assert_eq!(
        store.sessions(Some(session(2)), 10).await,
        Ok(vec![session(3), session(4), session(5)])
    );
    assert_eq!(store.sessions(Some(session(5)), 10).await, Ok(Vec::new()));
}

async fn lists_what_is_due(store: Store) {
    for (number, due) in [(1, Some(30)), (2, Some(10)), (3, None), (4, Some(20)), (5, Some(20))] {
        let mut first = batch(session(number), 0, 1);
        first.due = due.map(at);
        assert_eq!(store.create(None, first).await, Ok(Created::New));
    }
    let due = |millis, number| Due {
        at: at(millis),
        session: session(number),
    };
    assert_eq!(store.due_before(at(9), None, 10).await, Ok(Vec::new()));
    assert_eq!(
        store.due_before(at(20), None, 10).await,
        Ok(vec![due(10, 2), due(20, 4), due(20, 5)])
    );
    assert_eq!(
        store.due_before(at(99), Some(due(20, 4)), 1).await,
        Ok(vec![due(20, 5)])
    );
    let mut later = batch(session(2), 1, 1);
    later.due = Some(at(40));
    store.append(later).await.unwrap();
    store.append(batch(session(4), 1, 1)).await.unwrap();
    assert_eq!(
        store.due_before(at(99), None, 10).await,
        Ok(vec![due(20, 5), due(30, 1), due(40, 2)])
    );
}

async fn requests_are_remembered_with_their_batch(store: Store) {
    created(&store, session(1), 1).await;
    let mut answered = batch(session(1), 1, 0);
    answered.requests = vec![
        request("b", "first", 50),
        request("a", "second", 60),
        request("c", "third", 70),
    ];
    store.append(answered.clone()).await.unwrap();
    assert_eq!(
        head_of(&store, session(1)).await,
        Some(1),
        "a request may be remembered without a record"
    );
    let [b, a, c] = [0, 1, 2].map(|index: usize| answered.requests[index].clone());
    assert_eq!(store.request(session(1), a.key()).await, Ok(Some(a.clone())));
    let other = RequestKey {
        scope: "other".to_owned(),
        request_id: "a".to_owned(),
    };
    assert_eq!(store.request(session(1), other).await, Ok(None));
    assert_eq!(
        store.requests(session(1), None, 2).await,
        Ok(vec![a.clone(), b.clone()])
    );
    assert_eq!(store.requests(session(1), Some(b.key()), 2).await, Ok(vec![c]));

    let mut replaced = batch(session(1), 1, 1);
    replaced.requests = vec![request("a", "newer", 80)];
    store.append(replaced.clone()).await.unwrap();
    assert_eq!(
        store.request(session(1), a.key()).await,
        Ok(Some(replaced.requests[0].clone()))
    );
}

async fn expired_requests_are_forgotten_on_demand(store: Store) {
    let mut first = batch(session(1), 0, 1);
    first.requests = vec![request("a", "1", 10), request("b", "2", 200), request("c", "3", 201)];
    assert_eq!(store.create(Some(key("ann", 1)), first).await, Ok(Created::New));
    assert_eq!(store.forget_requests(at(200)).await, Ok(3));
    assert_eq!(store.forget_requests(at(200)).await, Ok(0));
    assert_eq!(
        store.requests(session(1), None, 10).await,
        Ok(vec![request("c", "3", 201)])
    );
    assert_eq!(store.creation("ann".to_owned(), "same".to_owned()).await, Ok(None));
}

async fn oversized_batch_is_rejected_as_a_whole(store: Store) {
    created(&store, session(1), 1).await;
    let mut fits = batch(session(1), 1, 1);
    fits.records[0].bytes = Bytes::from(vec![1; limits::MAX_RECORD_BYTES]);
    store.append(fits).await.unwrap();
    let mut record = batch(session(1), 2, 2);
    record.records[1].bytes = Bytes::from(vec![1; limits::MAX_RECORD_BYTES + 1]);
    let mut content = batch(session(1), 2, 1);
    let bytes = Bytes::from(vec![1; limits::MAX_CONTENT_BYTES + 1]);
    content.contents = vec![Content {
        digest: digest(1),
        bytes,
    }];
    let mut outcome = batch(session(1), 2, 1);
    outcome.requests = vec![request("a", "", 1)];
    outcome.requests[0].outcome = Bytes::from(vec![1; limits::MAX_OUTCOME_BYTES + 1]);
    for (what, large) in [("record", record), ("content", content), ("outcome", outcome)] {
        match store.append(large).await {
            Err(AppendError::Invalid(Invalid::TooLarge { what: named, .. })) => assert_eq!(named, what),
            other => panic!("{what}: {other:?}"),
        }
    }
    let many = u64::try_from(limits::MAX_BATCH_ITEMS + 1).unwrap();
    let too_many = store.append(batch(session(1), 2, many)).await;
    assert!(matches!(too_many, Err(AppendError::Invalid(Invalid::TooMany { .. }))));
    assert_eq!(head_of(&store, session(1)).await, Some(2));
}

async fn the_newest_snapshot_is_kept(store: Store) {
    created(&store, session(1), 5).await;
    let snapshot = |sequence, text: &'static str| Snapshot {
        sequence: Sequence::new(sequence),
        bytes: Bytes::from_static(text.as_bytes()),
    };
    assert_eq!(store.snapshot(session(1)).await, Ok(None));
    store.put_snapshot(session(1), snapshot(3, "three")).await.unwrap();
    store.put_snapshot(session(1), snapshot(2, "two")).await.unwrap();
    assert_eq!(store.snapshot(session(1)).await, Ok(Some(snapshot(3, "three"))));
    store.put_snapshot(session(1), snapshot(5, "five")).await.unwrap();
    assert_eq!(store.snapshot(session(1)).await, Ok(Some(snapshot(5, "five"))));
    let ahead = Invalid::SnapshotAhead {
        sequence: Sequence::new(6),
        head: Sequence::new(5),
    };
    assert_eq!(
        store.put_snapshot(session(1), snapshot(6, "")).await,
        Err(WriteError::Invalid(ahead))
    );
    let absent = store.put_snapshot(session(2), snapshot(0, "")).await;
    assert_eq!(absent, Err(WriteError::NotFound { session: session(2) }));
}

async fn cursors_are_set_and_removed(store: Store) {
    created(&store, session(1), 1).await;
    let own = CursorKey {
        session: Some(session(1)),
        name: "webhook".to_owned(),
    };
    let global = CursorKey {
        session: None,
        name: "webhook".to_owned(),
    };
    let value = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
    assert_eq!(store.cursor(own.clone()).await, Ok(None));
    store.put_cursor(own.clone(), value("1")).await.unwrap();
    store.put_cursor(own.clone(), value("2")).await.unwrap();
    store.put_cursor(global.clone(), value("3")).await.unwrap();
    assert_eq!(store.cursor(own.clone()).await, Ok(value("2")));
    assert_eq!(store.cursor(global.clone()).await, Ok(value("3")));
    store.put_cursor(global.clone(), None).await.unwrap();
    assert_eq!(store.cursor(global).await, Ok(None));
    assert_eq!(store.cursor(own).await, Ok(value("2")));
    let absent = CursorKey {
        session: Some(session(2)),
        name: "webhook".to_owned(),
    };
    assert_eq!(
        store.put_cursor(absent, value("4")).await,
        Err(WriteError::NotFound { session: session(2) })
    );
}

/// Marks some records of a batch.
fn marking(mut batch: Batch, marks: &[(MarkKind, u128, u64)]) -> Batch {
    let mark = |&(kind, about, sequence): &(MarkKind, u128, u64)| Mark {
        kind,
        sequence: Sequence::new(sequence),
        thread: thread(about),
    };
    batch.marks = marks.iter().map(mark).collect();
    batch
}

async fn marked(store: &Store, kind: MarkKind, about: Option<u128>, after: u64, limit: usize) -> Vec<u64> {
    let found = store
        .marked(session(1), kind, about.map(thread), Sequence::new(after), limit)
        .await
        .unwrap();
    found.iter().map(|record| record.sequence.get()).collect()
}

async fn marked_records_are_found_by_what_they_are(store: Store) {
    let marks = [
        (MarkKind::Prompt, 1, 2),
        (MarkKind::Prompt, 2, 3),
        (MarkKind::Mail, 1, 4),
    ];
    let first = marking(batch(session(1), 0, 5), &marks);
    assert_eq!(store.create(None, first).await, Ok(Created::New));
    let second = marking(batch(session(1), 5, 1), &[(MarkKind::Prompt, 1, 6)]);
    store.append(second).await.unwrap();

    assert_eq!(marked(&store, MarkKind::Prompt, None, 0, 10).await, [2, 3, 6]);
    assert_eq!(marked(&store, MarkKind::Prompt, Some(1), 0, 10).await, [2, 6]);
    assert_eq!(marked(&store, MarkKind::Prompt, Some(1), 2, 10).await, [6]);
    assert_eq!(marked(&store, MarkKind::Prompt, None, 0, 1).await, [2]);
    assert_eq!(marked(&store, MarkKind::Artifact, None, 0, 10).await, [0_u64; 0]);
    let found = store
        .marked(session(1), MarkKind::Mail, None, Sequence::ZERO, 10)
        .await
        .unwrap();
    assert_eq!(found, stored(session(1), 4)[3..]);
}

async fn evidence_stays_until_it_is_expired(store: Store) {
    let first = marking(batch(session(1), 0, 8), &[(MarkKind::Prompt, 1, 2)]);
    assert_eq!(store.create(None, first).await, Ok(Created::New));
    let snapshot = Snapshot {
        sequence: Sequence::new(8),
        bytes: Bytes::from_static(b"state"),
    };
    store.put_snapshot(session(1), snapshot).await.unwrap();
    let keeping = |sequences: &[u64]| Evidence {
        keep: sequences
            .iter()
            .map(|&sequence| Mark {
                kind: MarkKind::Evidence,
                sequence: Sequence::new(sequence),
                thread: thread(1),
            })
            .collect(),
        ..Evidence::default()
    };
    let compact = async |until, evidence| store.compact(session(1), Sequence::new(until), evidence).await;
    assert_eq!(compact(4, keeping(&[1, 2, 3])).await, Ok(1));
    assert_eq!(compact(4, keeping(&[3])).await, Ok(0), "to mark twice changes nothing");
    assert_eq!(marked(&store, MarkKind::Evidence, None, 0, 10).await, [1, 2, 3]);
    assert_eq!(compact(7, keeping(&[6])).await, Ok(2));
    assert_eq!(marked(&store, MarkKind::Evidence, None, 0, 10).await, [1, 2, 3, 6]);
    let old = Evidence {
        after: Sequence::new(7),
        expired: Sequence::new(3),
        ..Evidence::default()
    };
    assert_eq!(compact(7, old).await, Ok(2));
    assert_eq!(marked(&store, MarkKind::Evidence, None, 0, 10).await, [6]);
    assert_eq!(
        marked(&store, MarkKind::Prompt, None, 0, 10).await,
        [2],
        "other marks stay"
    );
    let rest = store.read(session(1), Sequence::new(7), 10).await.unwrap();
    assert_eq!(rest, stored(session(1), 8)[7..]);
}

async fn a_log_is_compacted_as_far_as_its_snapshot_goes(store: Store) {
    let first = marking(batch(session(1), 0, 8), &[(MarkKind::Prompt, 1, 2)]);
    assert_eq!(store.create(None, first).await, Ok(Created::New));
    let too_far = Invalid::CompactedTooFar {
        until: Sequence::new(5),
        snapshot: Sequence::ZERO,
    };
    let refused = store.compact(session(1), Sequence::new(5), Evidence::default()).await;
    assert_eq!(refused, Err(WriteError::Invalid(too_far)));

    let snapshot = Snapshot {
        sequence: Sequence::new(5),
        bytes: Bytes::from_static(b"state"),
    };
    store.put_snapshot(session(1), snapshot).await.unwrap();
    assert_eq!(
        store.compact(session(1), Sequence::new(5), Evidence::default()).await,
        Ok(4),
        "the marked one stays"
    );
    assert_eq!(
        store.compact(session(1), Sequence::new(5), Evidence::default()).await,
        Ok(0)
    );
    assert_eq!(
        store.read(session(1), Sequence::new(4), 10).await,
        Err(ReadError::Compacted {
            session: session(1),
            oldest: Sequence::new(5),
            head: Sequence::new(8),
        })
    );
    let rest = store.read(session(1), Sequence::new(5), 10).await.unwrap();
    assert_eq!(rest, stored(session(1), 8)[5..]);
    assert_eq!(marked(&store, MarkKind::Prompt, None, 0, 10).await, [2]);
    let head = store.head(session(1)).await.unwrap().unwrap();
    assert_eq!((head.oldest, head.sequence), (Sequence::new(5), Sequence::new(8)));
    store.append(batch(session(1), 8, 1)).await.unwrap();
}

async fn contents_count_once(store: Store) {
    let content = |byte: u8, text: &'static str| Content {
        digest: digest(byte),
        bytes: Bytes::from_static(text.as_bytes()),
    };
    let mut first = batch(session(1), 0, 1);
    first.contents = vec![content(1, "abc"), content(1, "abc")];
    assert_eq!(store.create(None, first).await, Ok(Created::New));
    let mut second = batch(session(1), 1, 1);
    second.contents = vec![content(1, "abc"), content(2, "de")];
    store.append(second).await.unwrap();
    assert_eq!(store.head(session(1)).await.unwrap().unwrap().content_bytes, 5);
}

async fn a_summary_counts_for_its_record_only(store: Store) {
    created(&store, session(1), 2).await;
    created(&store, session(2), 1).await;
    let summary = Bytes::from_static(b"two records");
    store
        .put_summary(session(1), Sequence::new(2), summary.clone())
        .await
        .unwrap();
    let entry = |number, head, summary: Option<&Bytes>| SessionEntry {
        session: session(number),
        head: Sequence::new(head),
        summary: summary.cloned(),
    };
    assert_eq!(
        store.summaries(None, 10).await,
        Ok(vec![entry(2, 1, None), entry(1, 2, Some(&summary))])
    );
    assert_eq!(
        store.summaries(Some(session(2)), 10).await,
        Ok(vec![entry(1, 2, Some(&summary))])
    );
    assert_eq!(store.summaries(None, 1).await, Ok(vec![entry(2, 1, None)]));
    store.append(batch(session(1), 2, 1)).await.unwrap();
    assert_eq!(store.summaries(Some(session(2)), 10).await, Ok(vec![entry(1, 3, None)]));
    let absent = store.put_summary(session(9), Sequence::new(1), summary).await;
    assert_eq!(absent, Err(WriteError::NotFound { session: session(9) }));
}

async fn deleting_a_session_leaves_nothing_of_it(store: Store) {
    let cursor = |number| CursorKey {
        session: Some(session(number)),
        name: "client".to_owned(),
    };
    for number in [1, 2] {
        let mut first = batch(session(number), 0, 3);
        first.contents = vec![Content {
            digest: digest(1),
            bytes: Bytes::from_static(b"secret"),
        }];
        first.new_threads = vec![thread(number)];
        first.requests = vec![request("a", "done", 1)];
        first.due = Some(at(1));
        assert_eq!(
            store.create(Some(key(&format!("creator {number}"), 1)), first).await,
            Ok(Created::New)
        );
        let snapshot = Snapshot {
            sequence: Sequence::new(1),
            bytes: Bytes::new(),
        };
        store.put_snapshot(session(number), snapshot).await.unwrap();
        let source = TranscriptSource {
            session: session(number),
            ..source(1, 1)
        };
        let entries = vec![entry(TranscriptKind::Message, "secret")];
        store
            .append_transcript(source, entries, ROOM)
            .await
            .durable()
            .await
            .unwrap();
        store
            .put_cursor(cursor(number), Some(Bytes::from_static(b"3")))
            .await
            .unwrap();
    }
    // A thread of another session is not found, even if its id is given.
    let threads = vec![thread(1), thread(2)];
    assert_eq!(store.delete_session(session(1), threads.clone()).await, Ok(true));
    assert_eq!(store.delete_session(session(1), threads).await, Ok(false));
    for (number, is_there) in [(1, false), (2, true)] {
        let name = format!("creator {number}");
        let found = [
            store.head(session(number)).await.unwrap().is_some(),
            !read_all(&store, session(number)).await.is_empty(),
            store.content(session(number), digest(1)).await.unwrap().is_some(),
            store.session_of(thread(number)).await.unwrap().is_some(),
            store
                .request(session(number), request("a", "", 1).key())
                .await
                .unwrap()
                .is_some(),
            store.snapshot(session(number)).await.unwrap().is_some(),
            !store
                .transcript(TranscriptQuery {
                    session: session(number),
                    ..ENTRIES
                })
                .await
                .unwrap()
                .is_empty(),
            store.cursor(cursor(number)).await.unwrap().is_some(),
            store.creation(name, "same".to_owned()).await.unwrap().is_some(),
            store
                .due_before(at(1), None, 10)
                .await
                .unwrap()
                .iter()
                .any(|due| due.session == session(number)),
        ];
        assert_eq!(found, [is_there; 10], "session {number}");
    }
    assert_eq!(
        store.append(batch(session(1), 3, 1)).await,
        Err(AppendError::NotFound { session: session(1) })
    );
}

fn source(generation: u32, batch: u64) -> TranscriptSource {
    TranscriptSource {
        session: session(1),
        thread: thread(1),
        generation: Generation::new(generation),
        batch,
    }
}

fn entry(kind: TranscriptKind, text: impl Into<Bytes>) -> NewEntry {
    NewEntry {
        kind: kind as u8,
        header: Bytes::from_static(b"header"),
        text: text.into(),
    }
}

/// Enough for the transcripts of any session.
const ROOM: u64 = u64::MAX / 2;

const ENTRIES: TranscriptQuery = TranscriptQuery {
    session: SessionId::from_uuid(Uuid::from_u128(1)),
    thread: ThreadId::from_uuid(Uuid::from_u128(1)),
    after: 0,
    kinds: TranscriptKinds::ALL,
    limit: usize::MAX,
};

/// The entries that a query selects: their numbers and listed texts.
async fn entries(store: &Store, query: TranscriptQuery) -> Vec<(u64, Option<String>)> {
    let found = store.transcript(query).await.unwrap();
    let text = |text: Bytes| String::from_utf8(text.into()).unwrap();
    found
        .into_iter()
        .map(|entry| (entry.number, entry.text.map(text)))
        .collect()
}

async fn transcript_entries_are_numbered_and_stored_once(store: Store) {
    created(&store, session(1), 1).await;
    let message = |text: &'static str| entry(TranscriptKind::Message, text);
    let append = async |generation, batch, texts: Vec<NewEntry>| {
        store
            .append_transcript(source(generation, batch), texts, ROOM)
            .await
            .durable()
            .await
    };
    assert_eq!(append(1, 1, vec![message("a"), message("b")]).await, Ok(Some(2)));
    assert_eq!(append(1, 1, vec![message("again")]).await, Ok(None));
    // A runner may drop batches. The numbers have no gap.
    assert_eq!(append(1, 5, vec![message("c")]).await, Ok(Some(3)));
    assert_eq!(append(1, 4, vec![message("late")]).await, Ok(None));
    assert_eq!(append(2, 1, vec![message("d")]).await, Ok(Some(4)));
    assert_eq!(append(1, 6, vec![message("of an earlier attempt")]).await, Ok(None));
    let found: Vec<_> = entries(&store, ENTRIES).await;
    let expected = [(1, "a"), (2, "b"), (3, "c"), (4, "d")];
    assert_eq!(found, expected.map(|(number, text)| (number, Some(text.to_owned()))));
    let absent = TranscriptSource {
        session: session(2),
        ..source(1, 1)
    };
    assert_eq!(
        store.append_transcript(absent, Vec::new(), ROOM).await.durable().await,
        Err(WriteError::NotFound { session: session(2) })
    );
}

async fn records_add_entries_to_transcripts(store: Store) {
    created(&store, session(1), 1).await;
    let notice = |expected, text: &'static str| Batch {
        entries: vec![(thread(1), entry(TranscriptKind::Notice, text))],
        ..batch(session(1), expected, 1)
    };
    store.append(notice(1, "first")).await.unwrap();
    let message = vec![entry(TranscriptKind::Message, "second")];
    let appended = store.append_transcript(source(1, 1), message, ROOM).await;
    assert_eq!(appended.durable().await, Ok(Some(2)));
    assert!(store.append(notice(1, "rejected with its records")).await.is_err());
    store.append(notice(2, "third")).await.unwrap();
    // The number of the last batch is that of the attempt.
    let repeated = store.append_transcript(source(1, 1), Vec::new(), ROOM).await;
    assert_eq!(repeated.durable().await, Ok(None));
    let expected = [(1, "first"), (2, "second"), (3, "third")];
    let expected = expected.map(|(number, text)| (number, Some(text.to_owned())));
    assert_eq!(entries(&store, ENTRIES).await, expected);
}

async fn transcripts_are_read_by_kind_and_position(store: Store) {
    created(&store, session(1), 1).await;
    let kinds = [TranscriptKind::Message, TranscriptKind::ToolCall];
    let all = (0..10).map(|number| entry(kinds[number % 2], Bytes::new())).collect();
    store
        .append_transcript(source(1, 1), all, ROOM)
        .await
        .durable()
        .await
        .unwrap();
    let numbers = async |query| {
        let found = entries(&store, query).await;
        found.into_iter().map(|(number, _)| number).collect::<Vec<_>>()
    };
    let calls = TranscriptQuery {
        kinds: [TranscriptKind::ToolCall].into_iter().collect(),
        ..ENTRIES
    };
    assert_eq!(numbers(calls).await, [2, 4, 6, 8, 10]);
    assert_eq!(
        numbers(TranscriptQuery {
            after: 4,
            limit: 2,
            ..calls
        })
        .await,
        [6, 8]
    );
    for (query, count, before) in [
        (calls, 2, 6),
        (calls, 5, 0),
        (ENTRIES, 3, 7),
        (TranscriptQuery { after: 8, ..ENTRIES }, 3, 8),
    ] {
        assert_eq!(
            store.transcript_tail(query, count).await,
            Ok(before),
            "{count} of {query:?}"
        );
    }
}

async fn long_texts_of_transcripts_are_read_by_digest(store: Store) {
    created(&store, session(1), 1).await;
    let long = Bytes::from(vec![b'x'; limits::MAX_LISTED_TEXT_BYTES + 1]);
    let new = entry(TranscriptKind::Message, long.clone());
    let digest = new.digest().unwrap();
    for number in [1, 2] {
        let source = TranscriptSource {
            thread: thread(number),
            ..source(1, 1)
        };
        store
            .append_transcript(source, vec![new.clone()], ROOM)
            .await
            .durable()
            .await
            .unwrap();
    }
    let found = store.transcript(ENTRIES).await.unwrap();
    assert_eq!((found[0].text.as_ref(), found[0].digest), (None, Some(digest)));
    let found = LongText {
        threads: vec![thread(1), thread(2)],
        text: long,
    };
    assert_eq!(store.transcript_text(session(1), digest).await, Ok(Some(found)));
    assert_eq!(store.transcript_text(session(2), digest).await, Ok(None));
    let too_many = vec![entry(TranscriptKind::Message, "a"); limits::MAX_TRANSCRIPT_BATCH + 1];
    assert!(matches!(
        store
            .append_transcript(source(1, 2), too_many, ROOM)
            .await
            .durable()
            .await,
        Err(WriteError::Invalid(Invalid::TooMany { .. }))
    ));
}

async fn many_writers_keep_every_sessions_order(store: Store) {
    const SESSIONS: u128 = 16;
    const APPENDS: u64 = 10;
    for number in 0..SESSIONS {
        created(&store, session(number), 1).await;
    }
    // Four writers per session. A writer that loses the race takes the head from the error and retries.
    let writers = (0..4 * SESSIONS).map(|writer| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let mut head = 1;
            let mut left = APPENDS;
            while left > 0 {
                match store.append(batch(session(writer % SESSIONS), head, 1)).await {
                    Ok(()) => (head, left) = (head + 1, left - 1),
                    Err(AppendError::Mismatch { actual }) => head = actual.get(),
                    Err(other) => panic!("{other}"),
                }
            }
        })
    });
    for writer in join_all(writers).await {
        writer.unwrap();
    }
    for number in 0..SESSIONS {
        assert_eq!(
            read_all(&store, session(number)).await,
            stored(session(number), 1 + 4 * APPENDS)
        );
    }
}

async fn a_closed_store_refuses_writes(store: Store) {
    created(&store, session(1), 1).await;
    store.close().await;
    store.close().await;
    let closed = Err(AppendError::Refused(Refusal::Closed));
    assert_eq!(store.append(batch(session(1), 1, 1)).await, closed);
    assert_eq!(store.claim(session(1)).await, Err(WriteError::Refused(Refusal::Closed)));
}

async fn two_logs_have_two_ids(store: Store) {
    assert_eq!(store.log_id(), store.log_id());
    assert_ne!(store.log_id(), MemoryStore::new().log_id());
}

async fn on_memory<F: Future<Output = ()>>(check: impl FnOnce(Store) -> F) {
    check(Arc::new(MemoryStore::new())).await;
}

async fn on_sqlite<F: Future<Output = ()>>(check: impl FnOnce(Store) -> F) {
    let directory = tempfile::tempdir().unwrap();
    check(opened(directory.path()).await).await;
}

async fn on_postgres<F: Future<Output = ()>>(check: impl FnOnce(Store) -> F) {
    let database = Database::create();
    check(opened_postgres(&database).await).await;
}

/// Distributed databases have this isolation. Transactions fail where they would wait at the default one.
async fn on_serializable_postgres<F: Future<Output = ()>>(check: impl FnOnce(Store) -> F) {
    let database = Database::create();
    database.run(&format!(
        "ALTER DATABASE {} SET default_transaction_isolation = serializable",
        database.name
    ));
    check(opened_postgres(&database).await).await;
}

async fn opened_postgres(database: &Database) -> Store {
    Arc::new(PostgresStore::open(database.url().parse().unwrap()).await.unwrap())
}

async fn opened(directory: &Path) -> Store {
    Arc::new(SqliteStore::open(directory.join("log.db")).await.unwrap())
}

macro_rules! conformance {
    ($($check:ident),* $(,)?) => {
        mod memory {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $check() {
                    super::on_memory(super::$check).await;
                }
            )*
        }

        mod sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $check() {
                    super::on_sqlite(super::$check).await;
                }
            )*
        }

        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $check() {
                    super::on_postgres(super::$check).await;
                }
            )*
        }

        mod postgres_serializable {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $check() {
                    super::on_serializable_postgres(super::$check).await;
                }
            )*
        }
    };
}

conformance!(
    reads_in_order_what_was_appended,
    reads_pages_after_a_position,
    a_page_is_bounded,
    knows_nothing_of_an_absent_session,
    a_gap_is_refused,
    a_mismatch_leaves_nothing,
    one_mismatch_fails_no_other_session,
    one_taken_thread_fails_no_other_session,
    keys_may_have_any_character,
    of_many_with_one_expectation_one_wins,
    a_claim_fences_the_owner_before,
    a_creation_happens_once_per_creator,
    a_creation_reports_the_hash_of_the_first,
    of_many_creations_with_one_key_one_wins,
    an_expired_creation_is_forgotten,
    a_session_is_created_once,
    contents_are_kept_once_per_session,
    threads_lead_to_their_session,
    lists_sessions_in_pages,
    lists_what_is_due,
    requests_are_remembered_with_their_batch,
    expired_requests_are_forgotten_on_demand,
    oversized_batch_is_rejected_as_a_whole,
    the_newest_snapshot_is_kept,
    cursors_are_set_and_removed,
    deleting_a_session_leaves_nothing_of_it,
    marked_records_are_found_by_what_they_are,
    a_log_is_compacted_as_far_as_its_snapshot_goes,
    evidence_stays_until_it_is_expired,
    contents_count_once,
    a_summary_counts_for_its_record_only,
    transcript_entries_are_numbered_and_stored_once,
    records_add_entries_to_transcripts,
    transcripts_are_read_by_kind_and_position,
    long_texts_of_transcripts_are_read_by_digest,
    many_writers_keep_every_sessions_order,
    a_closed_store_refuses_writes,
    two_logs_have_two_ids,
);

/// Where an engine stores a log.
enum Place {
    Directory(TempDir),
    Database(Database),
}

impl Place {
    async fn open(&self) -> Store {
        match self {
            Self::Directory(directory) => opened(directory.path()).await,
            Self::Database(database) => opened_postgres(database).await,
        }
    }

    async fn reopen(&self, store: Store) -> Store {
        store.close().await;
        drop(store);
        self.open().await
    }

    /// Runs SQL next to the engine.
    fn change(&self, sql: &str) {
        match self {
            Self::Directory(directory) => change(directory.path(), sql),
            Self::Database(database) => drop(database.run(sql)),
        }
    }
}

fn change(directory: &Path, sql: &str) {
    let connection = rusqlite::Connection::open(directory.join("log.db")).unwrap();
    connection.execute_batch(sql).unwrap();
}

async fn everything_survives_a_reopening(place: Place) {
    let store = place.open().await;
    let log_id = store.log_id();
    let mut first = batch(session(1), 0, 3);
    first.contents = vec![Content {
        digest: digest(1),
        bytes: Bytes::from(vec![5; 100_000]),
    }];
    first.new_threads = vec![thread(1)];
    first.requests = vec![request("a", "done", 90)];
    first.due = Some(at(70));
    let content = first.contents[0].bytes.clone();
    assert_eq!(store.create(Some(key("ann", 1)), first).await, Ok(Created::New));
    assert_eq!(store.claim(session(1)).await, Ok(Epoch::new(2)));
    let snapshot = Snapshot {
        sequence: Sequence::new(2),
        bytes: Bytes::from_static(b"state"),
    };
    store.put_snapshot(session(1), snapshot.clone()).await.unwrap();
    let cursor = CursorKey {
        session: None,
        name: "webhook".to_owned(),
    };
    store
        .put_cursor(cursor.clone(), Some(Bytes::from_static(b"3")))
        .await
        .unwrap();

    let store = place.reopen(store).await;
    assert_eq!(store.log_id(), log_id);
    assert_eq!(read_all(&store, session(1)).await, stored(session(1), 3));
    let head = Head {
        sequence: Sequence::new(3),
        epoch: Epoch::new(2),
        oldest: Sequence::ZERO,
        content_bytes: content.len() as u64,
    };
    assert_eq!(store.head(session(1)).await, Ok(Some(head)));
    assert_eq!(store.content(session(1), digest(1)).await, Ok(Some(content)));
    assert_eq!(store.session_of(thread(1)).await, Ok(Some(session(1))));
    assert_eq!(
        store.requests(session(1), None, 10).await,
        Ok(vec![request("a", "done", 90)])
    );
    assert_eq!(store.due_before(at(70), None, 10).await.unwrap().len(), 1);
    assert_eq!(store.snapshot(session(1)).await, Ok(Some(snapshot)));
    assert_eq!(store.cursor(cursor).await, Ok(Some(Bytes::from_static(b"3"))));
    let existing = Created::Existing {
        session: session(1),
        hash: [1; 32],
    };
    assert_eq!(
        store.create(Some(key("ann", 1)), batch(session(2), 0, 1)).await,
        Ok(existing)
    );
    let mut next = batch(session(1), 3, 1);
    next.epoch = Epoch::new(2);
    store.append(next).await.unwrap();
}

async fn dropping_the_store_flushes_what_it_accepted(place: Place) {
    let store = place.open().await;
    created(&store, session(1), 1).await;
    let append = store.append(batch(session(1), 1, 1));
    // Polled once, the append is with the writer; its answer is not waited for.
    assert!(futures::future::FutureExt::now_or_never(append).is_none_or(|answer| answer.is_ok()));
    drop(store);
    assert_eq!(read_all(&place.open().await, session(1)).await, stored(session(1), 2));
}

async fn a_changed_byte_is_found(place: Place) {
    let store = place.open().await;
    created(&store, session(1), 3).await;
    created(&store, session(2), 1).await;
    place.change("UPDATE records SET bytes = substr(bytes, 2) WHERE sequence = 2");
    let store = place.reopen(store).await;
    let corrupt = ReadError::Corrupt {
        session: session(1),
        sequence: Sequence::new(2),
    };
    assert_eq!(store.read(session(1), Sequence::ZERO, 10).await, Err(corrupt));
    assert_eq!(
        store.read(session(1), Sequence::ZERO, 1).await.unwrap(),
        stored(session(1), 1)
    );
    assert_eq!(
        store.read(session(1), Sequence::new(2), 10).await.unwrap(),
        stored(session(1), 3)[2..]
    );
    assert_eq!(read_all(&store, session(2)).await, stored(session(2), 1));
}

async fn a_missing_record_is_found(place: Place) {
    let mut store = place.open().await;
    created(&store, session(1), 3).await;
    for missing in [3, 2, 1] {
        place.change(&format!("DELETE FROM records WHERE sequence = {missing}"));
        store = place.reopen(store).await;
        let corrupt = ReadError::Corrupt {
            session: session(1),
            sequence: Sequence::new(missing),
        };
        assert_eq!(store.read(session(1), Sequence::ZERO, 10).await, Err(corrupt));
    }
}

async fn full_transcript_drops_oldest_results_first(place: Place) {
    let store = place.open().await;
    created(&store, session(1), 1).await;
    let large = Bytes::from(vec![b'x'; 1024 * 1024]);
    let kinds = [TranscriptKind::Message, TranscriptKind::ToolResult];
    let pairs = limits::MAX_TRANSCRIPT_BYTES / (2 * large.len() as u64);
    let append = async |batch| {
        let both = kinds.map(|kind| entry(kind, large.clone())).into();
        store
            .append_transcript(source(1, batch), both, ROOM)
            .await
            .durable()
            .await
            .unwrap();
    };
    for batch in 1..=pairs + 1 {
        append(batch).await;
    }
    let dropped = async || {
        let found = store.transcript(ENTRIES).await.unwrap();
        let dropped = found.into_iter().filter(|entry| entry.digest.is_none());
        dropped.map(|entry| entry.number).collect::<Vec<_>>()
    };
    assert_eq!(dropped().await, [2, 4, 6], "three, because the headers count too");
    for batch in 0..pairs {
        append(pairs + 2 + batch).await;
    }
    let found = dropped().await;
    assert!(found.starts_with(&[1, 2, 3]), "the texts of messages follow: {found:?}");
    assert!(
        store
            .append_transcript(source(2, 1), Vec::new(), ROOM)
            .await
            .durable()
            .await
            .is_ok()
    );
    let many = limits::MAX_TRANSCRIPT_ENTRIES / limits::MAX_TRANSCRIPT_BATCH as u64 + 2;
    for batch in 2..=many {
        let entries = vec![entry(TranscriptKind::Notice, "n"); limits::MAX_TRANSCRIPT_BATCH];
        store
            .append_transcript(source(2, batch), entries, ROOM)
            .await
            .durable()
            .await
            .unwrap();
    }
    let first = &store.transcript(ENTRIES).await.unwrap()[0];
    let last = store.transcript_tail(ENTRIES, 0).await.unwrap();
    assert_eq!(last - first.number + 1, limits::MAX_TRANSCRIPT_ENTRIES);
}

async fn texts_beyond_room_of_session_are_left_out(place: Place) {
    let store = place.open().await;
    created(&store, session(1), 1).await;
    let room = 2 * b"header".len() as u64 + 4;
    for (number, text) in [(1, "1234"), (2, "5")] {
        let source = TranscriptSource {
            thread: thread(number),
            ..source(1, 1)
        };
        let entries = vec![entry(TranscriptKind::Message, text)];
        let pending = store.append_transcript(source, entries, room).await;
        pending.durable().await.unwrap();
    }
    let stored = &store.transcript(ENTRIES).await.unwrap()[0];
    assert_eq!(stored.text.as_deref(), Some(&b"1234"[..]));
    let other = TranscriptQuery {
        thread: thread(2),
        ..ENTRIES
    };
    let left_out = &store.transcript(other).await.unwrap()[0];
    assert_eq!((left_out.size, &left_out.text, left_out.digest), (1, &None, None));
}

async fn damage_outside_the_records_is_found(place: Place) {
    let store = place.open().await;
    let mut first = batch(session(1), 0, 1);
    first.contents = vec![Content {
        digest: digest(1),
        bytes: Bytes::from_static(b"content"),
    }];
    first.requests = vec![request("a", "done", 90)];
    assert_eq!(store.create(None, first).await, Ok(Created::New));
    let snapshot = Snapshot {
        sequence: Sequence::new(1),
        bytes: Bytes::from_static(b"state"),
    };
    store.put_snapshot(session(1), snapshot).await.unwrap();
    let entries = vec![entry(TranscriptKind::Message, "a")];
    store
        .append_transcript(source(1, 1), entries, ROOM)
        .await
        .durable()
        .await
        .unwrap();
    for change in [
        "UPDATE entries SET text = substr(text, 2)",
        "UPDATE contents SET bytes = substr(bytes, 2)",
        "UPDATE snapshots SET bytes = substr(bytes, 2)",
        "UPDATE requests SET expires = 91",
    ] {
        place.change(change);
    }
    let store = place.reopen(store).await;
    let corrupt = |side| ReadError::CorruptSide {
        session: session(1),
        side,
    };
    assert_eq!(
        store.content(session(1), digest(1)).await,
        Err(corrupt(Side::Content(digest(1))))
    );
    assert_eq!(store.snapshot(session(1)).await, Err(corrupt(Side::Snapshot)));
    let (thread, number) = (thread(1), 1);
    assert_eq!(
        store.transcript(ENTRIES).await,
        Err(corrupt(Side::Transcript { thread, number }))
    );
    assert_eq!(store.requests(session(1), None, 10).await, Err(corrupt(Side::Request)));
    assert_eq!(
        store.request(session(1), request("a", "", 1).key()).await,
        Err(corrupt(Side::Request))
    );
    assert_eq!(read_all(&store, session(1)).await, stored(session(1), 1));
}

macro_rules! durability {
    ($($check:ident),* $(,)?) => {
        mod durable_sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $check() {
                    super::$check(super::Place::Directory(tempfile::tempdir().unwrap())).await;
                }
            )*
        }

        mod durable_postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $check() {
                    super::$check(super::Place::Database(super::Database::create())).await;
                }
            )*
        }
    };
}

durability!(
    everything_survives_a_reopening,
    dropping_the_store_flushes_what_it_accepted,
    a_changed_byte_is_found,
    a_missing_record_is_found,
    full_transcript_drops_oldest_results_first,
    texts_beyond_room_of_session_are_left_out,
    damage_outside_the_records_is_found,
);

/// Tests of the engine with a file.
mod file {
    use super::*;

    #[tokio::test]
    async fn acknowledged_writes_survive_without_close() {
        let directory = tempfile::tempdir().unwrap();
        let copy = tempfile::tempdir().unwrap();
        let store = opened(directory.path()).await;
        created(&store, session(1), 3).await;
        for file in ["log.db", "log.db-wal"] {
            std::fs::copy(directory.path().join(file), copy.path().join(file)).unwrap();
        }
        assert_eq!(
            read_all(&opened(copy.path()).await, session(1)).await,
            stored(session(1), 3)
        );
    }

    #[tokio::test]
    async fn the_log_is_moved_into_the_database_as_it_grows() {
        let directory = tempfile::tempdir().unwrap();
        let store = opened(directory.path()).await;
        created(&store, session(1), 1).await;
        for number in 0..8_u8 {
            let mut large = batch(session(1), 1 + u64::from(number), 1);
            let bytes = Bytes::from(vec![number; limits::MAX_CONTENT_BYTES / 2]);
            large.contents = vec![Content {
                digest: digest(number),
                bytes,
            }];
            store.append(large).await.unwrap();
        }
        let wal = std::fs::metadata(directory.path().join("log.db-wal")).unwrap().len();
        let written = u64::try_from(limits::MAX_CONTENT_BYTES / 2 * 8).unwrap();
        assert!(wal < written, "{wal} bytes of log");
        assert_eq!(read_all(&store, session(1)).await, stored(session(1), 9));
    }

    #[tokio::test]
    async fn open_of_other_schema_version_fails_and_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log.db");
        let store = opened(directory.path()).await;
        store.close().await;
        drop(store);
        let connection = rusqlite::Connection::open(&path).unwrap();
        let present: i64 = connection
            .query_row("PRAGMA user_version", [], |row| row.get(0))
            .unwrap();
        drop(connection);
        let [older, newer] = [present - 1, present + 1];
        for (version, expected) in [
            (
                newer,
                format!(
                    "UPGRADE_REQUIRED: the database has schema version {newer}, this program knows up to {present}; start \
                     a newer version"
                ),
            ),
            (
                older,
                format!(
                    "the database has schema version {older}, this program reads {present}; use the program that wrote \
                     it, or start with an empty data directory"
                ),
            ),
        ] {
            change(
                directory.path(),
                &format!("PRAGMA user_version = {version}; PRAGMA wal_checkpoint(TRUNCATE)"),
            );
            let before = std::fs::read(&path).unwrap();
            let error = SqliteStore::open(&path).await.map(drop).unwrap_err();
            assert_eq!(error.to_string(), expected);
            assert!(std::fs::read(&path).unwrap() == before, "the file was changed");
        }
    }

    #[tokio::test]
    async fn open_of_non_database_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("log.db"), vec![b'x'; 8192]).unwrap();
        assert!(SqliteStore::open(directory.path().join("log.db")).await.is_err());
        assert!(
            SqliteStore::open(directory.path().join("absent").join("log.db"))
                .await
                .is_err()
        );
    }
}
