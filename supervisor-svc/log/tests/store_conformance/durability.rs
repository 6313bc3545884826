//! Logs that are opened again, and logs that are damaged or full.

use super::*;

pub(super) async fn data_survives_reopening(location: Location) {
    let store = location.open().await;
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
    assert_eq!(store.claim(session(1)).await, granted(2));
    store.put_snapshot(session(1), snapshot(2, b"state")).await.unwrap();
    let position = Bytes::from_static(b"3");
    store.put_cursor(cursor(None), Some(position.clone())).await.unwrap();

    let store = location.reopen(store).await;
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
    assert_eq!(store.snapshot(session(1)).await, Ok(Some(snapshot(2, b"state"))));
    assert_eq!(store.cursor(cursor(None)).await, Ok(Some(position)));
    assert_eq!(create_with(&store, key("ann", 1), 2).await, existing(1, 1));
    assert_eq!(store.claim(session(1)).await, granted(3));
    let mut next = batch(session(1), 3, 1);
    next.epoch = Epoch::new(3);
    store.append(next).await.unwrap();
}

pub(super) async fn dropped_store_flushes_accepted_writes(location: Location) {
    let store = location.open().await;
    created(&store, session(1), 1).await;
    let append = store.append(batch(session(1), 1, 1));
    // Polls the append once, which queues it. The test does not wait for the answer.
    assert!(futures::future::FutureExt::now_or_never(append).is_none_or(|answer| answer.is_ok()));
    drop(store);
    assert_eq!(
        read_all(&location.open().await, session(1)).await,
        stored(session(1), 2)
    );
}

pub(super) async fn changed_record_is_reported_as_corrupt(location: Location) {
    let store = location.open().await;
    created(&store, session(1), 3).await;
    created(&store, session(2), 1).await;
    location.change("UPDATE records SET bytes = substr(bytes, 2) WHERE sequence = 2");
    let store = location.reopen(store).await;
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

pub(super) async fn missing_record_is_reported_as_corrupt(location: Location) {
    let mut store = location.open().await;
    created(&store, session(1), 3).await;
    for missing in [3, 2, 1] {
        location.change(&format!("DELETE FROM records WHERE sequence = {missing}"));
        store = location.reopen(store).await;
        let corrupt = ReadError::Corrupt {
            session: session(1),
            sequence: Sequence::new(missing),
        };
        assert_eq!(store.read(session(1), Sequence::ZERO, 10).await, Err(corrupt));
    }
}

pub(super) async fn full_transcript_drops_oldest_results_first(location: Location) {
    let store = location.open().await;
    created(&store, session(1), 1).await;
    let large = Bytes::from(vec![b'x'; 1024 * 1024]);
    let kinds = [TranscriptKind::Message, TranscriptKind::ToolResult];
    let pairs = limits::MAX_TRANSCRIPT_BYTES / (2 * large.len() as u64);
    let append = async |batch| {
        let both = kinds.map(|kind| entry(kind, large.clone())).into();
        append_entries(&store, source(1, batch), both).await.unwrap();
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
    append_entries(&store, source(2, 1), Vec::new()).await.unwrap();
    let many = limits::MAX_TRANSCRIPT_ENTRIES / limits::MAX_TRANSCRIPT_BATCH as u64 + 2;
    for batch in 2..=many {
        let entries = vec![entry(TranscriptKind::Notice, "n"); limits::MAX_TRANSCRIPT_BATCH];
        append_entries(&store, source(2, batch), entries).await.unwrap();
    }
    let first = &store.transcript(ENTRIES).await.unwrap()[0];
    let last = store.transcript_tail(ENTRIES, 0).await.unwrap();
    assert_eq!(last - first.number + 1, limits::MAX_TRANSCRIPT_ENTRIES);
}

pub(super) async fn texts_beyond_session_limit_are_omitted(location: Location) {
    let store = location.open().await;
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

pub(super) async fn damage_outside_records_is_reported(location: Location) {
    let store = location.open().await;
    let mut first = batch(session(1), 0, 1);
    first.contents = vec![content(1, b"content")];
    first.requests = vec![request("a", "done", 90)];
    assert_eq!(store.create(None, first).await, Ok(Created::New));
    store.put_snapshot(session(1), snapshot(1, b"state")).await.unwrap();
    let entries = vec![entry(TranscriptKind::Message, "a")];
    append_entries(&store, source(1, 1), entries).await.unwrap();
    for change in [
        "UPDATE entries SET text = substr(text, 2)",
        "UPDATE contents SET bytes = substr(bytes, 2)",
        "UPDATE snapshots SET bytes = substr(bytes, 2)",
        "UPDATE requests SET expires = 91",
    ] {
        location.change(change);
    }
    let store = location.reopen(store).await;
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
