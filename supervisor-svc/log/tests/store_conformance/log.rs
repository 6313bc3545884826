//! Tests of batches and records.

use super::*;

pub(super) async fn read_returns_page_after_position(store: Store) {
    created(&store, session(1), 5).await;
    let all = stored(session(1), 5);
    assert_eq!(store.read(session(1), Sequence::new(1), 2).await.unwrap(), all[1..3]);
    assert_eq!(store.read(session(1), Sequence::new(3), 2).await.unwrap(), all[3..]);
    for beyond in [5, 6, u64::MAX] {
        assert_eq!(store.read(session(1), Sequence::new(beyond), 2).await, Ok(Vec::new()));
    }
    assert_eq!(store.read(session(1), Sequence::ZERO, 0).await, Ok(Vec::new()));
}

pub(super) async fn page_size_is_limited(store: Store) {
    let count = u64::try_from(limits::MAX_BATCH_ITEMS).unwrap();
    created(&store, session(1), count).await;
    store.append(batch(session(1), count, count)).await.unwrap();
    let page = store.read(session(1), Sequence::ZERO, usize::MAX).await.unwrap();
    assert_eq!(page.len(), limits::MAX_PAGE);
}

pub(super) async fn absent_session_has_no_data(store: Store) {
    let absent = session(9);
    assert_eq!(store.head(absent).await, Ok(None));
    assert_eq!(store.read(absent, Sequence::ZERO, 10).await, Ok(Vec::new()));
    assert_eq!(store.snapshot(absent).await, Ok(None));
    assert_eq!(store.content(absent, digest(1)).await, Ok(None));
    assert_eq!(store.session_of(thread(1)).await, Ok(None));
    assert_eq!(store.append(batch(absent, 0, 1)).await, not_found(absent));
    assert_eq!(store.claim(absent).await, not_found(absent));
    assert_eq!(store.delete_session(absent, Vec::new()).await, Ok(false));
}

pub(super) async fn batch_with_gap_is_rejected(store: Store) {
    created(&store, session(1), 1).await;
    let mut gap = batch(session(1), 1, 3);
    gap.records.remove(1);
    let invalid = Invalid::Gap {
        expected: Sequence::new(3),
        found: Sequence::new(4),
    };
    assert_eq!(store.append(gap).await, Err(WriteError::Invalid(invalid)));
    let mut late = batch(session(1), 1, 1);
    late.records[0].sequence = Sequence::new(3);
    assert!(matches!(
        store.append(late).await,
        Err(WriteError::Invalid(Invalid::Gap { .. }))
    ));
    assert_eq!(read_all(&store, session(1)).await, stored(session(1), 1));
}

pub(super) async fn batch_with_wrong_head_writes_nothing(store: Store) {
    created(&store, session(1), 2).await;
    for expected in [0, 1, 3] {
        let mut stale = batch(session(1), expected, 1);
        stale.contents = vec![content(1, b"content")];
        stale.new_threads = vec![thread(1)];
        stale.requests = vec![request("a", "done", 1)];
        stale.due = Some(at(1));
        assert_eq!(store.append(stale).await, Err(mismatch(2)));
    }
    assert_eq!(read_all(&store, session(1)).await, stored(session(1), 2));
    assert_eq!(store.content(session(1), digest(1)).await, Ok(None));
    assert_eq!(store.session_of(thread(1)).await, Ok(None));
    assert_eq!(store.requests(session(1), None, 10).await, Ok(Vec::new()));
    assert_eq!(store.due_before(at(9), None, 10).await, Ok(Vec::new()));
}

pub(super) async fn rejected_append_does_not_affect_other_sessions(store: Store) {
    let mut owner = batch(session(100), 0, 1);
    owner.new_threads = vec![thread(1)];
    assert_eq!(store.create(None, owner).await, Ok(Created::New));
    for number in 0..32 {
        created(&store, session(number), 1).await;
    }
    let is_stale = |number: u128| number % 2 == 1;
    let takes = |number: u128| number % 8 == 2;
    // All appends are sent before any of them is answered.
    let appends = (0..32).map(|number| {
        let mut batch = batch(session(number), u64::from(!is_stale(number)), 1);
        batch.new_threads = vec![
            thread(200 + number),
            if takes(number) { thread(1) } else { thread(300 + number) },
        ];
        store.append(batch)
    });
    for (number, answer) in (0..).zip(join_all(appends).await) {
        let expected = if is_stale(number) {
            Err(mismatch(1))
        } else if takes(number) {
            Err(WriteError::Invalid(Invalid::ThreadTaken { thread: thread(1) }))
        } else {
            Ok(())
        };
        assert_eq!(answer, expected);
        let head = if answer.is_ok() { 2 } else { 1 };
        assert_eq!(read_all(&store, session(number)).await, stored(session(number), head));
        let owner = answer.is_ok().then_some(session(number));
        assert_eq!(store.session_of(thread(200 + number)).await, Ok(owner));
    }
    assert_eq!(store.session_of(thread(1)).await, Ok(Some(session(100))));
}

/// A key that drops a table if the engine inserts keys into the text of a statement.
const STATEMENT: &str = "'); DROP TABLE records; --";

pub(super) async fn keys_may_have_any_character(store: Store) {
    created(&store, session(1), 1).await;
    let mut answered = batch(session(1), 1, 0);
    let ids = ["", "\0", STATEMENT, "A", "a", "a\0b", "\u{e9}"];
    answered.requests = ids.iter().rev().map(|id| request(id, "first", 50)).collect();
    // If a batch has two requests with one key, the last one is stored.
    answered.requests.push(request("a", "second", 60));
    store.append(answered).await.unwrap();
    let found = store.requests(session(1), None, 10).await.unwrap();
    let expected = ids.map(|id| match id {
        "a" => request("a", "second", 60),
        other => request(other, "first", 50),
    });
    assert_eq!(found, expected, "in the order of their bytes");
    let rest = store.requests(session(1), Some(expected[5].key()), 10).await;
    assert_eq!(rest, Ok(vec![expected[6].clone()]));
    for (number, creator, id) in [(2, "\0ann\u{e9}", "\0"), (3, STATEMENT, STATEMENT)] {
        let mut odd = key(creator, 1);
        odd.request_id = id.to_owned();
        let first = batch(session(number), 0, 1);
        assert_eq!(store.create(Some(odd), first).await, Ok(Created::New));
        let found = store.creation(creator.to_owned(), id.to_owned()).await.unwrap();
        assert_eq!(found.unwrap().session, session(number));
    }
    created(&store, session(0), 1).await;
    for name in ["\0", STATEMENT] {
        cursor_belongs_to_session(&store, name).await;
    }
}

async fn cursor_belongs_to_session(store: &Store, name: &str) {
    let cursor = CursorKey {
        session: Some(session(0)),
        name: name.to_owned(),
    };
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

pub(super) async fn claim_fences_previous_owner(store: Store) {
    created(&store, session(1), 1).await;
    assert_eq!(store.claim(session(1)).await, granted(2));
    let fenced = Err(WriteError::Fenced { current: Epoch::new(2) });
    assert_eq!(store.append(batch(session(1), 1, 1)).await, fenced);
    assert_eq!(
        store.append(batch(session(1), 0, 1)).await,
        fenced,
        "the epoch is checked before the head"
    );
    let mut owned = batch(session(1), 1, 1);
    owned.epoch = Epoch::new(2);
    store.append(owned.clone()).await.unwrap();
    assert_eq!(store.claim(session(1)).await, granted(3));
    owned.expected = Sequence::new(2);
    owned.records.clear();
    assert_eq!(
        store.append(owned).await,
        Err(WriteError::Fenced { current: Epoch::new(3) })
    );
    assert_eq!(read_all(&store, session(1)).await, stored(session(1), 2));
}

pub(super) async fn concurrent_writers_keep_order_of_each_session(store: Store) {
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
                    Err(WriteError::Mismatch { actual }) => head = actual.get(),
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

pub(super) async fn closed_store_rejects_writes(store: Store) {
    created(&store, session(1), 1).await;
    store.close().await;
    store.close().await;
    let closed = Err(WriteError::Refused(Refusal::Closed));
    assert_eq!(store.append(batch(session(1), 1, 1)).await, closed);
    assert_eq!(store.claim(session(1)).await, Err(WriteError::Refused(Refusal::Closed)));
}
