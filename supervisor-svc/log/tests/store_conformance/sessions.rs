//! Tests of the creation of sessions, and of the data that is stored with them.

use super::*;

/// A repeated request receives the hash of the first request.
pub(super) async fn creation_key_creates_one_session_per_creator(store: Store) {
    assert_eq!(create_with(&store, key("ann", 1), 1).await, Ok(Created::New));
    assert_eq!(create_with(&store, key("ann", 2), 2).await, existing(1, 1));
    assert_eq!(head_of(&store, session(2)).await, None);
    assert_eq!(create_with(&store, key("bob", 1), 2).await, Ok(Created::New));
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

pub(super) async fn concurrent_creations_with_one_key_create_one_session(store: Store) {
    let creations = (1..=16).map(|number| store.create(Some(key("ann", 1)), batch(session(number), 0, 1)));
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

pub(super) async fn expired_creation_key_can_be_reused(store: Store) {
    assert_eq!(create_with(&store, key("ann", 1), 1).await, Ok(Created::New));
    let mut later = key("ann", 2);
    later.now = at(200);
    later.expires = at(300);
    assert_eq!(create_with(&store, later.clone(), 2).await, Ok(Created::New));
    assert_eq!(create_with(&store, later, 3).await, existing(2, 2));
}

pub(super) async fn existing_session_is_not_created_again(store: Store) {
    created(&store, session(1), 3).await;
    let again = create_with(&store, key("ann", 1), 1).await;
    assert_eq!(again, Err(mismatch(3)));
    let invalid = Invalid::NotFirst {
        expected: Sequence::new(1),
    };
    assert_eq!(
        store.create(None, batch(session(2), 1, 1)).await,
        Err(WriteError::Invalid(invalid))
    );
    assert_eq!(store.sessions(None, 10).await, Ok(vec![session(1)]));
    assert_eq!(store.creation("ann".to_owned(), "same".to_owned()).await, Ok(None));
}

pub(super) async fn contents_are_stored_once_per_session(store: Store) {
    let once = Bytes::from_static(b"once");
    for number in [1, 2] {
        let mut first = batch(session(number), 0, 1);
        first.contents = vec![content(1, b"once"), content(1, b"once")];
        assert_eq!(store.create(None, first).await, Ok(Created::New));
    }
    let mut again = batch(session(1), 1, 1);
    again.contents = vec![content(1, b"once"), content(2, b"")];
    store.append(again).await.unwrap();
    assert_eq!(store.head(session(1)).await.unwrap().unwrap().content_bytes, 4);
    assert_eq!(store.content(session(1), digest(1)).await, Ok(Some(once.clone())));
    assert_eq!(store.content(session(1), digest(2)).await, Ok(Some(Bytes::new())));
    assert_eq!(store.content(session(2), digest(2)).await, Ok(None));
    assert_eq!(store.delete_session(session(1), Vec::new()).await, Ok(true));
    assert_eq!(store.content(session(1), digest(1)).await, Ok(None));
    assert_eq!(store.content(session(2), digest(1)).await, Ok(Some(once)));
}

pub(super) async fn sessions_are_listed_in_pages(store: Store) {
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

pub(super) async fn due_sessions_are_listed_by_time(store: Store) {
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

pub(super) async fn requests_are_stored_with_their_batch(store: Store) {
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

pub(super) async fn expired_requests_are_deleted_on_demand(store: Store) {
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

pub(super) async fn oversized_batch_is_rejected_as_a_whole(store: Store) {
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
            Err(WriteError::Invalid(Invalid::TooLarge { what: named, .. })) => assert_eq!(named, what),
            other => panic!("{what}: {other:?}"),
        }
    }
    let many = u64::try_from(limits::MAX_BATCH_ITEMS + 1).unwrap();
    let too_many = store.append(batch(session(1), 2, many)).await;
    assert!(matches!(too_many, Err(WriteError::Invalid(Invalid::TooMany { .. }))));
    assert_eq!(head_of(&store, session(1)).await, Some(2));
}

pub(super) async fn newest_snapshot_is_kept(store: Store) {
    created(&store, session(1), 5).await;
    assert_eq!(store.snapshot(session(1)).await, Ok(None));
    store.put_snapshot(session(1), snapshot(3, b"three")).await.unwrap();
    store.put_snapshot(session(1), snapshot(2, b"two")).await.unwrap();
    assert_eq!(store.snapshot(session(1)).await, Ok(Some(snapshot(3, b"three"))));
    store.put_snapshot(session(1), snapshot(5, b"five")).await.unwrap();
    assert_eq!(store.snapshot(session(1)).await, Ok(Some(snapshot(5, b"five"))));
    let ahead = Invalid::SnapshotAhead {
        sequence: Sequence::new(6),
        head: Sequence::new(5),
    };
    assert_eq!(
        store.put_snapshot(session(1), snapshot(6, b"")).await,
        Err(WriteError::Invalid(ahead))
    );
    let absent = store.put_snapshot(session(2), snapshot(0, b"")).await;
    assert_eq!(absent, not_found(session(2)));
}

pub(super) async fn cursors_are_set_and_removed(store: Store) {
    created(&store, session(1), 1).await;
    let (own, global) = (cursor(Some(session(1))), cursor(None));
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
    let absent = store.put_cursor(cursor(Some(session(2))), value("4")).await;
    assert_eq!(absent, not_found(session(2)));
}
