//! Tests of transcripts.

use super::*;

pub(super) fn source(generation: u32, batch: u64) -> TranscriptSource {
    TranscriptSource {
        session: session(1),
        thread: thread(1),
        generation: Generation::new(generation),
        batch,
    }
}

pub(super) fn entry(kind: TranscriptKind, text: impl Into<Bytes>) -> NewEntry {
    NewEntry {
        kind: kind as u8,
        header: Bytes::from_static(b"header"),
        text: text.into(),
    }
}

/// A size limit that no test reaches.
pub(super) const ROOM: u64 = u64::MAX / 2;

pub(super) const ENTRIES: TranscriptQuery = TranscriptQuery {
    session: SessionId::from_uuid(Uuid::from_u128(1)),
    thread: ThreadId::from_uuid(Uuid::from_u128(1)),
    after: 0,
    kinds: TranscriptKinds::ALL,
    limit: usize::MAX,
};

/// Appends entries to a transcript. Returns the number of the last entry.
pub(super) async fn append_entries(
    store: &Store,
    source: TranscriptSource,
    entries: Vec<NewEntry>,
) -> Result<Option<u64>, WriteError> {
    store.append_transcript(source, entries, ROOM).await.durable().await
}

/// Returns the numbers and listed texts of the entries that a query selects.
pub(super) async fn entries(store: &Store, query: TranscriptQuery) -> Vec<(u64, Option<String>)> {
    let found = store.transcript(query).await.unwrap();
    let text = |text: Bytes| String::from_utf8(text.into()).unwrap();
    found
        .into_iter()
        .map(|entry| (entry.number, entry.text.map(text)))
        .collect()
}

pub(super) async fn transcript_entries_are_numbered_and_stored_once(store: Store) {
    created(&store, session(1), 1).await;
    let message = |text: &'static str| entry(TranscriptKind::Message, text);
    let append = async |generation, batch, texts| append_entries(&store, source(generation, batch), texts).await;
    assert_eq!(append(1, 1, vec![message("a"), message("b")]).await, Ok(Some(2)));
    assert_eq!(append(1, 1, vec![message("again")]).await, Ok(None));
    // A runner may drop batches. The numbers of the entries have no gap.
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
    assert_eq!(append_entries(&store, absent, Vec::new()).await, not_found(session(2)));
}

pub(super) async fn records_add_entries_to_transcripts(store: Store) {
    created(&store, session(1), 1).await;
    let notice = |expected, text: &'static str| Batch {
        entries: vec![(thread(1), entry(TranscriptKind::Notice, text))],
        ..batch(session(1), expected, 1)
    };
    store.append(notice(1, "first")).await.unwrap();
    let message = vec![entry(TranscriptKind::Message, "second")];
    assert_eq!(append_entries(&store, source(1, 1), message).await, Ok(Some(2)));
    assert!(store.append(notice(1, "rejected with its records")).await.is_err());
    store.append(notice(2, "third")).await.unwrap();
    // The supervisor's entry does not change the number of the attempt's last batch.
    assert_eq!(append_entries(&store, source(1, 1), Vec::new()).await, Ok(None));
    let expected = [(1, "first"), (2, "second"), (3, "third")];
    let expected = expected.map(|(number, text)| (number, Some(text.to_owned())));
    assert_eq!(entries(&store, ENTRIES).await, expected);
}

pub(super) async fn transcripts_are_read_by_kind_and_position(store: Store) {
    created(&store, session(1), 1).await;
    let kinds = [TranscriptKind::Message, TranscriptKind::ToolCall];
    let all = (0..10).map(|number| entry(kinds[number % 2], Bytes::new())).collect();
    append_entries(&store, source(1, 1), all).await.unwrap();
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

pub(super) async fn long_texts_of_transcripts_are_read_by_digest(store: Store) {
    created(&store, session(1), 1).await;
    let long = Bytes::from(vec![b'x'; limits::MAX_LISTED_TEXT_BYTES + 1]);
    let new = entry(TranscriptKind::Message, long.clone());
    let digest = new.digest().unwrap();
    for number in [1, 2] {
        let source = TranscriptSource {
            thread: thread(number),
            ..source(1, 1)
        };
        append_entries(&store, source, vec![new.clone()]).await.unwrap();
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
        append_entries(&store, source(1, 2), too_many).await,
        Err(WriteError::Invalid(Invalid::TooMany { .. }))
    ));
}
