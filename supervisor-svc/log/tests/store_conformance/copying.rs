//! Copying of a log from a file into a database.

use supervisor_log::store::{ImportError, LogReader};

use super::{transcripts::*, *};

/// The tables of a log.
const TABLES: [&str; 12] = [
    "sessions",
    "creations",
    "records",
    "contents",
    "threads",
    "requests",
    "snapshots",
    "cursors",
    "marks",
    "transcripts",
    "entries",
    "summaries",
];

/// Fills every table.
async fn fill(store: &Store) {
    let mut full = batch(session(1), 0, 2);
    full.contents = vec![content(1, b"\0\xff content")];
    full.marks = vec![Mark {
        kind: MarkKind::Prompt,
        sequence: Sequence::new(2),
        thread: thread(1),
    }];
    full.new_threads = vec![thread(1)];
    full.requests = vec![request("é", "outcome", 300)];
    full.due = Some(at(70));
    assert_eq!(store.create(Some(key("ann", 1)), full).await, Ok(Created::New));
    let long = "x".repeat(limits::MAX_LISTED_TEXT_BYTES + 1);
    let entries = vec![
        entry(TranscriptKind::Message, "short"),
        entry(TranscriptKind::Message, long),
    ];
    assert_eq!(append_entries(store, source(1, 1), entries).await, Ok(Some(2)));
    store.put_snapshot(session(1), snapshot(2, b"state")).await.unwrap();
    let summary = Bytes::from_static(b"summary");
    store.put_summary(session(1), Sequence::new(2), summary).await.unwrap();
    for owner in [None, Some(session(1))] {
        let value = Some(Bytes::from_static(b"7"));
        store.put_cursor(cursor(owner), value).await.unwrap();
    }
    created(store, session(2), 3).await;
}

#[tokio::test]
async fn every_table_is_copied_into_an_empty_database() {
    let directory = tempfile::tempdir().unwrap();
    let file = opened(directory.path()).await;
    fill(&file).await;
    let path = directory.path().join("log.db");
    let database = Database::create();
    let options = database.url().parse().unwrap();
    let mut reported = 0;
    let reader = LogReader::open(&path).unwrap();
    let rows = reader.copy_to(&options, &mut |rows| reported = rows).await.unwrap();
    assert_eq!(rows, reported);
    let connection = rusqlite::Connection::open(&path).unwrap();
    let mut total = 0;
    for table in TABLES {
        let sql = format!("SELECT count(*) FROM {table}");
        let count: u32 = connection.query_row(&sql, [], |row| row.get(0)).unwrap();
        assert!(count > 0, "{table} is empty");
        assert_eq!(database.run(&sql).trim(), count.to_string(), "{table}");
        total += u64::from(count);
    }
    assert_eq!(rows, total);

    let copy = opened_postgres(&database).await;
    assert_ne!(copy.log_id(), file.log_id());
    for id in [1, 2].map(session) {
        assert_eq!(copy.head(id).await, file.head(id).await);
        assert_eq!(read_all(&copy, id).await, read_all(&file, id).await);
        assert_eq!(copy.snapshot(id).await, file.snapshot(id).await);
        assert_eq!(copy.requests(id, None, 9).await, file.requests(id, None, 9).await);
    }
    let bytes = Bytes::from_static(b"\0\xff content");
    assert_eq!(copy.content(session(1), digest(1)).await, Ok(Some(bytes)));
    assert_eq!(copy.transcript(ENTRIES).await, file.transcript(ENTRIES).await);
    assert_eq!(copy.summaries(None, 9).await, file.summaries(None, 9).await);
    assert_eq!(
        copy.due_before(at(99), None, 9).await,
        file.due_before(at(99), None, 9).await
    );
    assert_eq!(copy.session_of(thread(1)).await, Ok(Some(session(1))));
    let creation = |store: Store| async move { store.creation("ann".to_owned(), "same".to_owned()).await };
    assert_eq!(creation(Arc::clone(&copy)).await, creation(file).await);
    assert_eq!(copy.claim(session(1)).await, granted(2));

    let again = reader.copy_to(&options, &mut |_| {}).await;
    assert!(matches!(again, Err(ImportError::Occupied { .. })), "{again:?}");
}
