//! Tests of the SQLite engine's file.

use super::*;

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
