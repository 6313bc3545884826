//! Tests of marks, compaction, summaries and deletion.

use super::*;

/// Adds marks for records of a batch.
pub(super) fn marking(mut batch: Batch, marks: &[(MarkKind, u128, u64)]) -> Batch {
    let mark = |&(kind, about, sequence): &(MarkKind, u128, u64)| Mark {
        kind,
        sequence: Sequence::new(sequence),
        thread: thread(about),
    };
    batch.marks = marks.iter().map(mark).collect();
    batch
}

pub(super) async fn marked(store: &Store, kind: MarkKind, about: Option<u128>, after: u64, limit: usize) -> Vec<u64> {
    let found = store
        .marked(session(1), kind, about.map(thread), Sequence::new(after), limit)
        .await
        .unwrap();
    found.iter().map(|record| record.sequence.get()).collect()
}

pub(super) async fn marked_records_are_found_by_kind_and_thread(store: Store) {
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

pub(super) async fn evidence_is_retained_until_it_expires(store: Store) {
    let first = marking(batch(session(1), 0, 8), &[(MarkKind::Prompt, 1, 2)]);
    assert_eq!(store.create(None, first).await, Ok(Created::New));
    store.put_snapshot(session(1), snapshot(8, b"state")).await.unwrap();
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
    assert_eq!(compact(4, keeping(&[3])).await, Ok(0), "a repeated mark has no effect");
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

pub(super) async fn log_is_compacted_only_up_to_its_snapshot(store: Store) {
    let first = marking(batch(session(1), 0, 8), &[(MarkKind::Prompt, 1, 2)]);
    assert_eq!(store.create(None, first).await, Ok(Created::New));
    let too_far = Invalid::CompactedTooFar {
        until: Sequence::new(5),
        snapshot: Sequence::ZERO,
    };
    let refused = store.compact(session(1), Sequence::new(5), Evidence::default()).await;
    assert_eq!(refused, Err(WriteError::Invalid(too_far)));

    store.put_snapshot(session(1), snapshot(5, b"state")).await.unwrap();
    assert_eq!(
        store.compact(session(1), Sequence::new(5), Evidence::default()).await,
        Ok(4),
        "the marked record stays"
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

pub(super) async fn summary_is_valid_for_its_record_only(store: Store) {
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
        owner: None,
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
    assert_eq!(absent, not_found(session(9)));
}

pub(super) async fn deleted_session_leaves_no_data(store: Store) {
    let cursor = |number| cursor(Some(session(number)));
    for number in [1, 2] {
        let mut first = batch(session(number), 0, 3);
        first.contents = vec![content(1, b"secret")];
        first.new_threads = vec![thread(number)];
        first.requests = vec![request("a", "done", 1)];
        first.due = Some(at(1));
        assert_eq!(
            store.create(Some(key(&format!("creator {number}"), 1)), first).await,
            Ok(Created::New)
        );
        store.put_snapshot(session(number), snapshot(1, b"")).await.unwrap();
        let source = TranscriptSource {
            session: session(number),
            ..source(1, 1)
        };
        let entries = vec![entry(TranscriptKind::Message, "secret")];
        append_entries(&store, source, entries).await.unwrap();
        store
            .put_cursor(cursor(number), Some(Bytes::from_static(b"3")))
            .await
            .unwrap();
    }
    // A thread of another session is not deleted, even if its id is listed.
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
    assert_eq!(store.append(batch(session(1), 3, 1)).await, not_found(session(1)));
}
