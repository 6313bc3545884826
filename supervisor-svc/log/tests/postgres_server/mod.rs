//! PostgreSQL servers for tests: real servers in temporary directories, reached over a Unix socket.
//!
//! A server ends with its test process, even if the process is killed: a shell waits for the end of the process, stops
//! the server and removes the directory. A missing installation fails the test.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "each test program uses a part of it, and a check fails by panicking"
)]

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Read as _, Seek as _, Write as _},
    os::unix::fs::{MetadataExt as _, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

/// The role that owns the server. It needs no password on the socket.
const ROLE: &str = "postgres";

/// The name of a standby.
const STANDBY: &str = "standby";

/// The number in the name of the pooler's socket.
const POOLER_PORT: u16 = 6432;

/// A running server.
pub struct Server {
    programs: PathBuf,
    directory: PathBuf,
    /// Stops the server when the pipe to this process is closed.
    guard: Child,
    databases: AtomicU32,
}

/// A pgbouncer in front of the shared server. It can use a different server connection for each transaction.
struct Pooler {
    /// Stops the program when the pipe to this process is closed.
    _guard: Child,
}

/// A database of a server. Dropping this value ends the connections to the database. The database itself stays until
/// the server ends, because each DROP DATABASE waits for a checkpoint.
pub struct Database {
    server: &'static Server,
    /// Its name.
    pub name: String,
}

impl Server {
    /// Returns the server that the tests of a process share.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(&[]))
    }

    /// Starts a separate server with these settings, such as `fsync=off`.
    pub fn start(settings: &[&str]) -> Self {
        let programs = programs();
        let directory = new_directory();
        let data = directory.join("data");
        output(
            unprivileged(programs.join("initdb"))
                .args(["--username", ROLE, "--auth-local=trust", "--auth-host=scram-sha-256"])
                .args(["--encoding=UTF8", "--locale=C", "--no-sync", "--pgdata"])
                .arg(&data),
        );
        let access = "local all ann scram-sha-256\nlocal all all trust\nlocal replication all trust\n\
                      host all all 127.0.0.1/32 scram-sha-256\n";
        write(&data.join("pg_hba.conf"), access);
        let mut config = format!(
            "listen_addresses = ''\nunix_socket_directories = '{}'\nmax_connections = 200\nshared_buffers = 32MB\n",
            directory.display()
        );
        for setting in settings {
            let (name, value) = setting.split_once('=').unwrap();
            config.push_str(&format!("{name} = '{value}'\n"));
        }
        write(&data.join("postgresql.auto.conf"), &config);
        Self::launch(programs, directory)
    }

    /// Copies the server and starts the copy as its standby.
    pub fn standby(&self) -> Self {
        let directory = new_directory();
        let data = directory.join("data");
        let source = format!(
            "host={} user={ROLE} application_name={STANDBY}",
            self.directory.display()
        );
        output(
            unprivileged(self.programs.join("pg_basebackup"))
                .args([
                    "--dbname",
                    &source,
                    "--checkpoint=fast",
                    "--no-sync",
                    "--write-recovery-conf",
                ])
                .arg("--pgdata")
                .arg(&data),
        );
        let copied = output(unprivileged("cat").arg(data.join("postgresql.auto.conf")));
        let config = format!("{copied}unix_socket_directories = '{}'\n", directory.display());
        write(&data.join("postgresql.auto.conf"), &config);
        Self::launch(self.programs.clone(), directory)
    }

    /// Makes commits wait for the standby, once it is connected.
    pub fn wait_for_standby(&self) {
        self.set_synchronous_standby(STANDBY);
        let state = "SELECT sync_state FROM pg_stat_replication";
        while self.run(ROLE, state).trim() != "sync" {}
    }

    /// Sets the name of the synchronous standby. Without a name, commits wait for no standby.
    pub fn set_synchronous_standby(&self, name: &str) {
        self.run(ROLE, &format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'"));
        self.run(ROLE, "SELECT pg_reload_conf()");
    }

    /// Turns a standby into a primary.
    pub fn promote(&self) {
        output(&mut self.control("promote"));
    }

    fn launch(programs: PathBuf, directory: PathBuf) -> Self {
        let guard = unprivileged("sh")
            .args([
                "-c",
                "cat; \"$1\" stop --mode=immediate --pgdata=\"$2/data\"; rm -rf \"$2\"",
                "sh",
            ])
            .arg(programs.join("pg_ctl"))
            .arg(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self {
            programs,
            directory,
            guard,
            databases: AtomicU32::new(0),
        };
        server.resume();
        server
    }

    /// Starts the server again after [`crash`](Self::crash).
    pub fn resume(&self) {
        let log = self.directory.join("log");
        output(self.control("start").arg("--log").arg(log));
    }

    /// Ends the server as a crash does: no transaction is finished, and the next start recovers.
    pub fn crash(&self) {
        output(self.control("stop").arg("--mode=immediate"));
    }

    /// Runs SQL as the owner of the server and returns the rows.
    pub fn run(&self, database: &str, sql: &str) -> String {
        let mut command = unprivileged(self.programs.join("psql"));
        command
            .args([
                "--no-psqlrc",
                "--quiet",
                "--tuples-only",
                "--no-align",
                "--set=ON_ERROR_STOP=1",
            ])
            .args(["--username", ROLE, "--dbname", database, "--host"])
            .arg(&self.directory)
            .args(["--command", sql]);
        output(&mut command)
    }

    /// Creates an empty database with a new name.
    pub fn create_database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.run(ROLE, &format!("CREATE DATABASE {name}"));
        name
    }

    /// Returns the directory of the server's socket.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the URL of a database for a role.
    pub fn url(&self, role: &str, database: &str) -> String {
        url(&self.directory, role, database)
    }

    /// Writes a file that only the server may read, and returns its path.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.join(name);
        write(&path, text);
        path
    }

    fn control(&self, action: &str) -> Command {
        let mut command = unprivileged(self.programs.join("pg_ctl"));
        command
            .args([action, "--wait", "--silent", "--pgdata"])
            .arg(self.directory.join("data"));
        command
    }
}

/// A link to the directory of the current primary. In these tests, the link replaces an address that moves in a
/// failover.
pub struct Address(PathBuf);

impl Address {
    /// Creates an address that leads to a server.
    pub fn of(server: &Server) -> Self {
        let address = Self(new_directory());
        address.move_to(server);
        address
    }

    /// Changes the address to lead to another server.
    pub fn move_to(&self, server: &Server) {
        let new = self.0.join("new");
        symlink(server.directory(), &new).unwrap();
        fs::rename(new, self.0.join("primary")).unwrap();
    }

    /// Returns the URL of a database.
    pub fn url(&self, database: &str) -> String {
        url(&self.0.join("primary"), ROLE, database)
    }
}

impl Drop for Address {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        // The shell ends once it has removed the directory.
        let _ = self.guard.wait();
    }
}

impl Database {
    /// Creates a database of the shared server.
    pub fn create() -> Self {
        let server = Server::shared();
        Self {
            server,
            name: server.create_database(),
        }
    }

    /// Returns the URL of the database.
    pub fn url(&self) -> String {
        self.server.url(ROLE, &self.name)
    }

    /// Returns the URL of the database through the connection pooler.
    pub fn pooled_url(&self) -> String {
        static POOLER: OnceLock<Pooler> = OnceLock::new();
        POOLER.get_or_init(|| Pooler::start(self.server));
        let url = self.url();
        let (server, database) = url.rsplit_once('/').unwrap();
        format!("{server}:{POOLER_PORT}/{database}")
    }

    /// Runs SQL in the database.
    pub fn run(&self, sql: &str) -> String {
        self.server.run(&self.name, sql)
    }
}

impl Pooler {
    fn start(server: &Server) -> Self {
        let directory = server.directory.display();
        let config = format!(
            "[databases]\n* = host={directory} user={ROLE}\n[pgbouncer]\nunix_socket_dir = {directory}\n\
             listen_port = {POOLER_PORT}\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 4\n"
        );
        let config = server.write("pgbouncer.ini", &config);
        let mut guard = unprivileged("sh")
            .args([
                "-c",
                "\"$1\" \"$2\" & cat; kill \"$!\"; wait",
                "sh",
                "/usr/sbin/pgbouncer",
            ])
            .arg(config)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(guard.stderr.take().unwrap()).lines();
        let is_up = log.any(|line| line.is_ok_and(|line| line.contains("process up")));
        assert!(
            is_up,
            "pgbouncer does not start; install the Debian package pgbouncer, see .ci/install"
        );
        // The program must be able to write its log.
        thread::spawn(move || log.for_each(drop));
        Self { _guard: guard }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let connections = format!("FROM pg_stat_activity WHERE datname = '{}'", self.name);
        let sql = format!("SELECT pg_terminate_backend(pid) {connections}");
        self.server.run(ROLE, &sql);
    }
}

/// Returns the directory of the server's programs: the directory in `TROUPE_POSTGRES`, otherwise the directory of the
/// newest installed server.
fn programs() -> PathBuf {
    if let Some(path) = env::var_os("TROUPE_POSTGRES") {
        return path.into();
    }
    let version = |path: &Path| -> Option<u32> { path.parent()?.file_name()?.to_str()?.parse().ok() };
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let installed = installed.map(|entry| entry.path().join("bin"));
    let newest = installed
        .filter(|path| path.join("initdb").exists())
        .max_by_key(|path| version(path));
    newest
        .or_else(|| env::split_paths(&env::var_os("PATH")?).find(|path| path.join("initdb").exists()))
        .expect("PostgreSQL is not installed; install the Debian package postgresql, see .ci/install")
}

/// Returns the URL of a database of the server with a socket in this directory.
fn url(socket: &Path, role: &str, database: &str) -> String {
    let socket = socket.display().to_string().replace('/', "%2F");
    format!("postgres://{role}@{socket}/{database}")
}

fn new_directory() -> PathBuf {
    let directory = output(unprivileged("mktemp").args(["--directory", "--tmpdir", "troupe-pg.XXXXXX"]));
    PathBuf::from(directory.trim())
}

/// Returns a command that runs as the owner of the server. The server refuses to run as root.
fn unprivileged(program: impl AsRef<Path>) -> Command {
    let is_root = fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0);
    let mut command = if is_root {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"])
            .arg(program.as_ref());
        command
    } else {
        Command::new(program.as_ref())
    };
    command.current_dir("/");
    command
}

fn write(path: &Path, text: &str) {
    let mut shell = unprivileged("sh");
    let mut shell = shell
        .args(["-c", "umask 077; cat > \"$1\"", "sh"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success());
}

fn output(command: &mut Command) -> String {
    // The server that pg_ctl starts would keep a pipe open.
    let mut log = tempfile::tempfile().unwrap();
    let found = command
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log.try_clone().unwrap())
        .status()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut text = String::new();
    log.rewind().unwrap();
    log.read_to_string(&mut text).unwrap();
    assert!(found.success(), "{command:?}: {text}");
    text
}
