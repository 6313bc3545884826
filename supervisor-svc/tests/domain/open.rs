//! Opening the supervisor's data directory.

use std::fs;

use supervisor_log::store::DATABASE;
use supervisor_svc::{Config, Supervisor};
use svc_kit::thread_token::KEYS_FILE;

#[tokio::test]
async fn lost_log_next_to_keys_is_not_replaced_by_empty_one() {
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join(DATABASE);
    let start = async || {
        let config = Config::new(directory.path().to_owned(), String::from("http://127.0.0.1:1"));
        Supervisor::open(config)
            .await
            .map(drop)
            .map_err(|error| error.to_string())
    };
    start().await.unwrap();
    start().await.unwrap();
    let log = directory.path().join(format!("{DATABASE}-wal"));
    let backup = (fs::read(&database).unwrap(), fs::read(&log).unwrap());
    let remove = |suffix: &str| drop(fs::remove_file(directory.path().join(format!("{DATABASE}{suffix}"))));
    let without_tables = || {
        ["", "-wal", "-shm"].into_iter().for_each(remove);
        let connection = rusqlite::Connection::open(&database).unwrap();
        connection.execute_batch("CREATE TABLE t (x); DROP TABLE t").unwrap();
    };
    for lose in [
        &(|| fs::write(&database, "").unwrap()) as &dyn Fn(),
        &|| remove(""),
        &without_tables,
    ] {
        lose();
        let refused = start().await.unwrap_err();
        assert!(
            refused
                .contains("it is missing or empty, but \"token.keys\" shows that the data directory has been used; ")
                && refused.contains("restore a backup, or move \"token.keys\" away to start with an empty log")
                && refused.contains(&*database.to_string_lossy()),
            "{refused}"
        );
    }
    fs::write(&database, backup.0).unwrap();
    fs::write(&log, backup.1).unwrap();
    start().await.unwrap();
    for suffix in ["", "-wal", "-shm"] {
        remove(suffix);
    }
    fs::remove_file(directory.path().join(KEYS_FILE)).unwrap();
    start().await.unwrap();
}
