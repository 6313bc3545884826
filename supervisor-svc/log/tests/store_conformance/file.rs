//! The engine with a file.

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
                 it, or start with an empty database"
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
