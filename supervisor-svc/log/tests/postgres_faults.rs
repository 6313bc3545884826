//! PostgreSQL servers that are wrongly configured, crash, or lose connections: errors say what to do, no acknowledged
//! write is lost, and no rejected write appears.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

mod postgres_server;

use std::{
    env,
    error::Error,
    fs,
    net::TcpListener,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::future::join_all;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use supervisor_core::ids::{Epoch, Sequence, SessionId, ThreadId};
use supervisor_log::store::{
    Batch, Claim, Created, EventStore, Mark, MarkKind, NewMember, NewRecord, OpenError, PostgresError, PostgresOptions,
    PostgresStore, Refusal, StoredRecord, WriteError, limits,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UnixStream},
    task::{JoinHandle, block_in_place},
    time::{sleep, timeout},
};
use uuid::Uuid;

use self::postgres_server::{Address, Database, Server};

/// Time limit of a step that waits for a server.
const SOON: Duration = Duration::from_secs(60);

fn session(number: u128) -> SessionId {
    SessionId::from_uuid(Uuid::from_u128(number))
}

fn batch(session: SessionId, expected: u64) -> Batch {
    let number = expected + 1;
    Batch {
        session,
        expected: Sequence::new(expected),
        epoch: Epoch::new(1),
        records: vec![NewRecord {
            sequence: Sequence::new(number),
            bytes: Bytes::from(format!("{session}.{number}")),
        }],
        contents: Vec::new(),
        marks: Vec::new(),
        entries: Vec::new(),
        new_threads: Vec::new(),
        requests: Vec::new(),
        due: None,
    }
}

async fn open(url: &str) -> Result<PostgresStore, OpenError> {
    PostgresStore::open(url.parse().unwrap()).await
}

async fn error(url: &str) -> PostgresError {
    match open(url).await.map(drop) {
        Err(OpenError::Postgres(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn assert_says(error: &impl Error, text: &str) {
    let said = error.to_string();
    assert!(said.contains(text), "{said}");
}

/// Waits until a condition holds.
async fn eventually(holds: impl AsyncFn() -> bool) {
    let held = async {
        while !holds().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, held).await.unwrap();
}

/// Checks that a session has exactly the records up to `head`.
async fn assert_has_exactly(store: &PostgresStore, session: SessionId, head: u64) {
    assert_eq!(store.head(session).await.unwrap().unwrap().sequence.get(), head);
    let mut found: Vec<StoredRecord> = Vec::new();
    while (found.len() as u64) < head {
        let after = Sequence::new(found.len() as u64);
        found.extend(store.read(session, after, limits::MAX_PAGE).await.unwrap());
    }
    for record in found {
        assert_eq!(record.bytes, format!("{session}.{}", record.sequence));
    }
}

#[tokio::test]
async fn unreachable_server_is_named() {
    let port = free_port();
    let error = error(&format!("postgres://ann:secret@127.0.0.1:{port}/log?sslmode=disable")).await;
    let text = error.to_string();
    assert!(matches!(error, PostgresError::Unreachable { .. }), "{text}");
    assert!(
        text.starts_with(&format!("cannot connect to 127.0.0.1:{port}/log: ")),
        "{text}"
    );
    assert!(text.contains("refused") && !text.contains("secret"), "{text}");
}

#[tokio::test]
async fn silent_server_fails_open_in_time() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("postgres://ann@127.0.0.1:{port}/log?sslmode=disable&connect_timeout=1");
    let error = timeout(SOON, error(&url)).await.unwrap();
    assert_eq!(
        error.to_string(),
        format!("cannot connect to 127.0.0.1:{port}/log: no answer within 1 s")
    );
}

#[tokio::test]
async fn wrong_password_and_missing_database_are_reported() {
    let database = Database::create();
    let server = Server::shared();
    database.run("CREATE ROLE ann LOGIN PASSWORD 'right'");
    let url = server.url("ann", &database.name);
    let right = url.replace("ann@", "ann:right@");
    for (expiry, url) in [
        ("infinity", url.replace("ann@", "ann:wrong@")),
        ("infinity", url.clone()),
        ("2000-01-01", right),
    ] {
        database.run(&format!("ALTER ROLE ann VALID UNTIL '{expiry}'"));
        let error = error(&url).await;
        assert!(matches!(error, PostgresError::Login { .. }), "{error}");
        assert!(
            error
                .to_string()
                .ends_with("; check the user, and the password and its expiry"),
            "{error}"
        );
    }
    database.run("ALTER ROLE ann VALID UNTIL 'infinity'");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    let options: PostgresOptions = url.parse().unwrap();
    let options = options.with_password_file(file.clone());
    for (text, defect) in [
        (None, "cannot read"),
        (Some("\nright"), "no password in its first line"),
    ] {
        if let Some(text) = text {
            std::fs::write(&file, text).unwrap();
        }
        let error = PostgresStore::open(options.clone()).await.map(drop).unwrap_err();
        assert_says(&error, defect);
    }
    database.run("GRANT CREATE ON SCHEMA public TO ann");
    std::fs::write(&file, "right\n").unwrap();
    let store = PostgresStore::open(options).await.unwrap();
    assert_eq!(store.create(None, batch(session(1), 0)).await, Ok(Created::New));
    // A new password is used for the next connection.
    database.run("ALTER ROLE ann PASSWORD 'new'");
    std::fs::write(&file, "new").unwrap();
    database.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'ann'");
    assert_eq!(store.append(batch(session(1), 1)).await, Ok(()));
    assert_has_exactly(&store, session(1), 2).await;
    drop(store);
    database.run("DROP OWNED BY ann");
    database.run("DROP ROLE ann");
    let error = error(&server.url("postgres", "absent")).await;
    assert_says(&error, "database \"absent\" does not exist");
}

#[tokio::test]
async fn role_without_ddl_permission_can_use_prepared_database() {
    let database = Database::create();
    database.run("CREATE ROLE bob LOGIN");
    let url = Server::shared().url("bob", &database.name);
    let error = error(&url).await;
    assert!(matches!(error, PostgresError::Permission { .. }), "{error}");
    assert_says(&error, "start once with a role that can create tables");

    open(&database.url()).await.unwrap().close().await;
    database.run("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO bob");
    let store = open(&url).await.unwrap();
    assert_eq!(store.create(None, batch(session(1), 0)).await, Ok(Created::New));
    drop(store);
    database.run("DROP OWNED BY bob");
    database.run("DROP ROLE bob");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_of_the_same_sessions_do_not_deadlock() {
    const SESSIONS: u128 = 100;
    const ROUNDS: u32 = 10;
    let server = Server::start(&["deadlock_timeout=10ms"]);
    let url = server.url("postgres", &server.create_database());
    let mut stores = Vec::new();
    for name in ["one", "two"] {
        let store = open(&url).await.unwrap();
        let member = NewMember {
            name: name.to_owned(),
            address: String::new(),
            release: String::new(),
        };
        store.join(member).await.unwrap();
        stores.push(store);
    }
    for id in (1..=SESSIONS).map(session) {
        assert_eq!(stores[0].create(None, batch(id, 0)).await, Ok(Created::New));
        stores[0].release(id, Epoch::new(1)).await.unwrap();
    }
    for _ in 0..ROUNDS {
        let forward = join_all((1..=SESSIONS).map(|number| stores[0].claim(session(number))));
        let backward = join_all((1..=SESSIONS).rev().map(|number| stores[1].claim(session(number))));
        let (first, mut second) = tokio::join!(forward, backward);
        second.reverse();
        for ((number, first), second) in (1..=SESSIONS).zip(first).zip(second) {
            let (owner, epoch) = match (first.unwrap(), second.unwrap()) {
                (Claim::Granted(epoch), Claim::OwnedBy(_)) => (&stores[0], epoch),
                (Claim::OwnedBy(_), Claim::Granted(epoch)) => (&stores[1], epoch),
                both => panic!("session {number} has no single owner: {both:?}"),
            };
            owner.release(session(number), epoch).await.unwrap();
        }
    }
    let log = fs::read_to_string(server.directory().join("log")).unwrap();
    assert!(!log.contains("deadlock detected"), "{log}");
}

#[tokio::test]
async fn settings_that_lose_writes_are_rejected() {
    let server = Server::start(&["fsync=off"]);
    let database = server.create_database();
    let url = server.url("postgres", &database);
    for (change, setting) in [
        ("SELECT 1", "fsync"),
        ("ALTER SYSTEM SET full_page_writes = off", "full_page_writes"),
        ("ALTER SYSTEM SET synchronous_commit = off", "synchronous_commit"),
    ] {
        server.run("postgres", change);
        server.run("postgres", "SELECT pg_reload_conf()");
        let expected =
            format!("the server has {setting} = \"off\", with which acknowledged writes can be lost; set it to \"on\"");
        // The server applies a reload a little later.
        eventually(async || error(&url).await.to_string() == expected).await;
        server.run("postgres", &format!("ALTER SYSTEM SET {setting} = on"));
    }
    server.run("postgres", "SELECT pg_reload_conf()");
    eventually(async || open(&url).await.is_ok()).await;
}

#[tokio::test]
async fn read_only_and_foreign_databases_are_rejected_unchanged() {
    let database = Database::create();
    open(&database.url()).await.unwrap().close().await;
    database.run(&format!(
        "ALTER DATABASE {} SET default_transaction_read_only = on",
        database.name
    ));
    let read_only = error(&database.url()).await;
    assert_says(&read_only, "database does not allow writes");
    Server::shared().run("postgres", &format!("ALTER DATABASE {} RESET ALL", database.name));
    let rejections = [
        (
            "1",
            "the database has schema version 1, this program reads 2; use the program that wrote it, or start with an \
             empty database",
        ),
        (
            "3",
            "UPGRADE_REQUIRED: the database has schema version 3, this program knows up to 2; start a newer version",
        ),
    ];
    for (version, expected) in rejections {
        database.run(&format!(
            "UPDATE meta SET value = '{version}' WHERE key = 'schema_version'"
        ));
        let error = open(&database.url()).await.map(drop).unwrap_err();
        assert_eq!(error.to_string(), expected);
        let found = database.run("SELECT value FROM meta WHERE key = 'schema_version'");
        assert_eq!(found.trim(), version);
    }
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

#[tokio::test]
async fn tls_needs_right_authority_and_name() {
    let directory = tempfile::tempdir().unwrap();
    let authority = |name: &str| -> (CertifiedIssuer<'static, KeyPair>, PathBuf) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let path = directory.path().join(name);
        std::fs::write(&path, issuer.pem()).unwrap();
        (issuer, path)
    };
    let ((issuer, right), (_, wrong)) = (authority("right.pem"), authority("wrong.pem"));
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![String::from("localhost")]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();

    let server = Server::start(&[]);
    let port = free_port();
    let certificate = server.write("server.pem", &certificate.pem());
    let key = server.write("server.key", &key.serialize_pem());
    server.run("postgres", "ALTER ROLE postgres PASSWORD 'secret'");
    for (name, value) in [
        ("listen_addresses", String::from("127.0.0.1")),
        ("port", port.to_string()),
        ("ssl_cert_file", certificate.display().to_string()),
        ("ssl_key_file", key.display().to_string()),
        ("ssl", String::from("on")),
    ] {
        server.run("postgres", &format!("ALTER SYSTEM SET {name} = '{value}'"));
    }
    server.crash();
    server.resume();
    let url = |host: &str, parameters: &str| format!("postgres://postgres:secret@{host}:{port}/postgres?{parameters}");
    let with = |path: &PathBuf| format!("sslrootcert={}", path.display());

    open(&url("localhost", &with(&right))).await.unwrap().close().await;
    open(&url("127.0.0.1", "sslmode=disable")).await.unwrap().close().await;
    for url in [
        url("localhost", &with(&wrong)),
        url("127.0.0.1", &with(&right)),
        url("localhost", "sslmode=require"),
    ] {
        let error = error(&url).await;
        assert!(matches!(error, PostgresError::Tls { .. }), "{error}");
        assert_says(&error, "sslrootcert=FILE");
    }
    let error = error(&url("localhost", &with(&directory.path().join("absent.pem")))).await;
    assert_says(&error, "absent.pem");
}

/// Writers that each append to one session, even while the server is down.
struct Writers {
    store: Arc<PostgresStore>,
    is_over: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<u64>>,
}

impl Writers {
    async fn start(url: &str) -> Self {
        const SESSIONS: u128 = 16;
        let store = Arc::new(open(url).await.unwrap());
        let (is_over, acknowledged) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let write = |number| {
            let (store, is_over, acknowledged) = (Arc::clone(&store), Arc::clone(&is_over), Arc::clone(&acknowledged));
            tokio::spawn(async move {
                let session = session(number);
                while store.create(None, batch(session, 0)).await != Ok(Created::New) {}
                let mut head = 1;
                while !is_over.load(Ordering::Acquire) {
                    match store.append(batch(session, head)).await {
                        Ok(()) => {
                            head += 1;
                            acknowledged.fetch_add(1, Ordering::Release);
                        }
                        Err(WriteError::Refused(_)) => {}
                        Err(other) => panic!("after {head}: {other}"),
                    }
                }
                head
            })
        };
        let tasks = (0..SESSIONS).map(write).collect();
        Self {
            store,
            is_over,
            acknowledged,
            tasks,
        }
    }

    /// Waits for acknowledged writes.
    async fn write_more(&self) {
        let enough = self.acknowledged.load(Ordering::Acquire) + 500;
        eventually(async || self.acknowledged.load(Ordering::Acquire) >= enough).await;
    }

    /// Stops the writers, and checks that each session has exactly the acknowledged records. Returns their number.
    async fn finish(self) -> u64 {
        self.is_over.store(true, Ordering::Release);
        for (number, head) in (0..).zip(join_all(self.tasks).await) {
            assert_has_exactly(&self.store, session(number), head.unwrap()).await;
        }
        self.store.close().await;
        self.acknowledged.load(Ordering::Acquire)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crashes_lose_no_acknowledged_write() {
    let server = Server::start(&[]);
    let database = server.create_database();
    let writers = Writers::start(&server.url("postgres", &database)).await;
    for _ in 0..5 {
        writers.write_more().await;
        // The writers continue while the server is down.
        block_in_place(|| server.crash());
        assert!(writers.store.head(session(0)).await.is_err());
        block_in_place(|| server.resume());
    }
    writers.write_more().await;
    writers.finish().await;
}

/// `TROUPE_FAILOVERS` sets how often the primary is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failover_to_synchronous_standby_loses_no_acknowledged_write() {
    let failovers = env::var("TROUPE_FAILOVERS").map_or(2, |count| count.parse().unwrap());
    let mut primary = Server::start(&[]);
    let address = Address::of(&primary);
    let url = address.url(&primary.create_database());
    let strict: PostgresOptions = url.parse().unwrap();
    let strict = strict.require_standby();
    let rejected = PostgresStore::open(strict.clone()).await.map(drop);
    assert!(
        matches!(rejected, Err(OpenError::Postgres(PostgresError::NoStandby))),
        "{rejected:?}"
    );
    let writers = Writers::start(&url).await;
    for _ in 0..failovers {
        let standby = block_in_place(|| primary.standby());
        block_in_place(|| primary.wait_for_standby());
        PostgresStore::open(strict.clone()).await.unwrap().close().await;
        writers.write_more().await;
        block_in_place(|| primary.crash());
        block_in_place(|| standby.promote());
        address.move_to(&standby);
        primary = standby;
        writers.write_more().await;
    }
    let acknowledged = writers.finish().await;
    println!("{failovers} failovers, {acknowledged} acknowledged appends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failover_to_lagging_standby_stops_store() {
    let primary = Server::start(&[]);
    let database = primary.create_database();
    let address = Address::of(&primary);
    let store = open(&address.url(&database)).await.unwrap();
    assert_eq!(store.create(None, batch(session(1), 0)).await, Ok(Created::New));
    let standby = block_in_place(|| primary.standby());
    block_in_place(|| standby.crash());
    assert_eq!(store.append(batch(session(1), 1)).await, Ok(()));
    block_in_place(|| primary.crash());
    block_in_place(|| standby.resume());
    block_in_place(|| standby.promote());
    address.move_to(&standby);
    let lost = loop {
        match store.append(batch(session(1), 2)).await {
            // The store has not connected yet.
            Err(WriteError::Refused(_)) => {}
            other => break other,
        }
    };
    assert!(matches!(lost, Err(WriteError::Unknown(_))), "{lost:?}");
    let next = open(&address.url(&database)).await.unwrap();
    assert_has_exactly(&next, session(1), 1).await;
}

/// The action of a relay at the next COMMIT: the relay forwards the COMMIT and returns the result.
const PASS: u8 = 0;
/// The relay closes the connection without forwarding the COMMIT.
const CUT_BEFORE: u8 = 1;
/// The relay forwards the COMMIT, and closes the connection instead of returning the result.
const CUT_AFTER: u8 = 2;

/// Relays connections to the socket of the shared server. Returns the URL of a database through it.
async fn relay(database: &Database, mode: Arc<AtomicU8>) -> String {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let socket = Server::shared().directory().join(".s.PGSQL.5432");
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let server = UnixStream::connect(&socket).await.unwrap();
            tokio::spawn(forward(client, server, Arc::clone(&mode)));
        }
    });
    format!("postgres://postgres@127.0.0.1:{port}/{}?sslmode=disable", database.name)
}

async fn forward(mut client: TcpStream, mut server: UnixStream, mode: Arc<AtomicU8>) {
    let (mut requests, mut results) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            read = client.read(&mut requests) => {
                let Ok(length @ 1..) = read else { return };
                let is_commit = requests[..length].windows(7).any(|window| window == b"COMMIT\0");
                let cut = if is_commit { mode.swap(PASS, Ordering::AcqRel) } else { PASS };
                if cut == CUT_BEFORE || server.write_all(&requests[..length]).await.is_err() {
                    return;
                }
                if cut == CUT_AFTER {
                    let _ = server.read(&mut results).await;
                    return;
                }
            }
            read = server.read(&mut results) => {
                let Ok(length @ 1..) = read else { return };
                if client.write_all(&results[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_connection_during_commit_is_settled() {
    let (database, mode) = (Database::create(), Arc::new(AtomicU8::new(PASS)));
    let url = relay(&database, Arc::clone(&mode)).await;
    let store = open(&url).await.unwrap();
    assert_eq!(store.create(None, batch(session(1), 0)).await, Ok(Created::New));
    let mut head = 1;
    for cut in [CUT_BEFORE, CUT_AFTER, CUT_AFTER, CUT_BEFORE, PASS] {
        mode.store(cut, Ordering::Release);
        assert_eq!(store.append(batch(session(1), head)).await, Ok(()), "{cut}");
        assert_eq!(mode.load(Ordering::Acquire), PASS);
        head += 1;
    }
    assert_has_exactly(&store, session(1), head).await;
    let member = NewMember {
        name: String::from("one"),
        address: String::new(),
        release: String::new(),
    };
    store.join(member).await.unwrap();
    mode.store(CUT_AFTER, Ordering::Release);
    let claim = store.claim(session(1)).await;
    assert_eq!(claim, Ok(Claim::Granted(Epoch::new(2))), "once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loss_of_acknowledged_commits_stops_the_store() {
    let database = Database::create();
    let store = open(&database.url()).await.unwrap();
    for number in [2, 4, 3] {
        assert_eq!(store.create(None, batch(session(number), 0)).await, Ok(Created::New));
    }
    // Undoes the last commit, as a failover does to a standby that has not received it.
    database.run("UPDATE lanes SET committed = committed - 1 WHERE committed = 2");
    let lost = store.append(batch(session(2), 1)).await;
    assert!(matches!(lost, Err(WriteError::Unknown(_))), "{lost:?}");
    for number in [2, 3] {
        assert_eq!(store.append(batch(session(number), 1)).await, Err(WriteError::Stopped));
        assert_has_exactly(&store, session(number), 1).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_without_confirmation_of_standby_is_not_acknowledged() {
    let server = Server::start(&[]);
    let database = server.create_database();
    let store = Arc::new(open(&server.url("postgres", &database)).await.unwrap());
    assert_eq!(store.create(None, batch(session(1), 0)).await, Ok(Created::New));
    server.set_synchronous_standby("absent");
    let waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'troupe'";
    let (count, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let appends = tokio::spawn({
        let (store, count, is_over) = (Arc::clone(&store), Arc::clone(&count), Arc::clone(&is_over));
        async move {
            while !is_over.load(Ordering::Acquire) {
                let expected = count.load(Ordering::Acquire) + 1;
                store.append(batch(session(1), expected)).await?;
                count.store(expected, Ordering::Release);
            }
            Ok::<(), WriteError>(())
        }
    });
    // Commits do not wait until the server has applied the reload.
    eventually(async || !server.run("postgres", waiting).trim().is_empty()).await;
    let before = count.load(Ordering::Acquire);
    server.run(
        "postgres",
        &waiting.replace("SELECT pid", "SELECT pg_cancel_backend(pid)"),
    );
    sleep(Duration::from_millis(500)).await;
    assert_eq!(
        count.load(Ordering::Acquire),
        before,
        "the server has reported success, but no standby has the record"
    );
    is_over.store(true, Ordering::Release);
    server.set_synchronous_standby("");
    assert_eq!(timeout(SOON, appends).await.unwrap().unwrap(), Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_write_does_not_affect_other_writes() {
    let database = Database::create();
    let store = open(&database.url()).await.unwrap();
    for number in 0..32 {
        assert_eq!(store.create(None, batch(session(number), 0)).await, Ok(Created::New));
    }
    let is_bad = |number: u128| number % 8 == 5;
    let appends = (0..32).map(|number| {
        let mut batch = batch(session(number), 1);
        let mark = Mark {
            kind: MarkKind::Prompt,
            sequence: Sequence::new(2),
            thread: ThreadId::from_uuid(Uuid::nil()),
        };
        // The table accepts each mark only once.
        batch.marks = vec![mark; if is_bad(number) { 2 } else { 1 }];
        store.append(batch)
    });
    for (number, answer) in (0..).zip(join_all(appends).await) {
        if is_bad(number) {
            assert!(
                matches!(answer, Err(WriteError::Refused(Refusal::Engine(_)))),
                "{answer:?}"
            );
            assert_has_exactly(&store, session(number), 1).await;
        } else {
            assert_eq!(answer, Ok(()));
            assert_has_exactly(&store, session(number), 2).await;
        }
    }
}
