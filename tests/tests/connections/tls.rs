//! Both services, a runner and the command line as processes with TLS: clients have no tokens and authenticate by
//! certificates.

use std::{
    path::PathBuf,
    process::{Output, Stdio},
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    process::{Child, Command},
};
use troupe_tests::{
    authority::Authority,
    process::{Home, service, stderr},
    within,
};

/// The processes in the test's directory.
struct TestCluster {
    home: Home,
    ca: PathBuf,
    authority: Authority,
}

impl TestCluster {
    fn new() -> Self {
        let (home, authority) = (Home::default(), Authority::default());
        let ca = authority.publish(home.path(), "ca.crt");
        for name in ["registry", "supervisor"] {
            authority.server(home.path(), name);
        }
        for (name, uri) in [
            ("service", "spiffe://example.org/troupe/service/supervisor"),
            ("runner", "spiffe://example.org/troupe/runner/box"),
            ("admin", "spiffe://example.org/troupe/admin/ann"),
            ("viewer", "spiffe://example.org/troupe/viewer/vic"),
            ("stranger", "spiffe://example.org/somebody/else"),
        ] {
            authority.client(home.path(), name, uri);
        }
        Self { home, ca, authority }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Starts a service, waits until it serves, and returns its URL.
    async fn serve(&self, name: &str, arguments: &[&str]) -> (Child, String) {
        let (mut command, ready) = service(&self.home, name);
        command
            .args([
                "--tls-cert",
                &format!("{name}.crt"),
                "--tls-key",
                &format!("{name}.key"),
            ])
            .args(["--tls-client-ca", "ca.crt"])
            .args(arguments);
        let (process, address) = ready.start(&mut command).await;
        (process, format!("https://{address}"))
    }

    fn troupe(&self, who: &str, arguments: &[&str]) -> Command {
        let mut command = self.home.troupe(arguments);
        command
            .env("TROUPE_CA", &self.ca)
            .env("TROUPE_CLIENT_CERT", self.path(&format!("{who}.crt")))
            .env("TROUPE_CLIENT_KEY", self.path(&format!("{who}.key")));
        command
    }

    async fn run(&self, who: &str, arguments: &[&str]) -> Output {
        within("the end of troupe", self.troupe(who, arguments).output())
            .await
            .unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_alone_authenticate_all_callers() {
    let cluster = TestCluster::new();
    let (_registry, registry) = cluster.serve("registry", &[]).await;
    let to_registry = ["--registry-url", &registry, "--registry-ca", "ca.crt"];
    let as_service = ["--registry-cert", "service.crt", "--registry-key", "service.key"];
    let arguments = [
        &to_registry[..],
        &as_service,
        &["--require-token", "--data-dir", "data"],
    ]
    .concat();
    let (_supervisor, supervisor) = cluster.serve("supervisor", &arguments).await;
    let run = |id| ["run", "--supervisor", &supervisor, "--runner-id", id];
    let mut runner = cluster.troupe("runner", &run("box-1"));
    let _runner = runner.stdout(Stdio::null()).spawn().unwrap();
    let refused = cluster.run("runner", &run("other")).await;
    assert!(!refused.status.success());
    let reason = r#"the certificate belongs to "box"; use it as --runner-id, or an id that begins with "box-""#;
    assert!(stderr(&refused).contains(reason), "{}", stderr(&refused));

    let spawn = [
        "spawn",
        "explorer",
        "-m",
        "say: hello",
        "--wait",
        "--supervisor",
        &supervisor,
    ];
    let spawned = cluster.run("admin", &spawn).await;
    assert!(spawned.status.success(), "{}", stderr(&spawned));
    let agents = ["agents", "--registry", &registry];
    assert!(cluster.run("viewer", &agents).await.status.success());

    let refused = cluster.run("viewer", &spawn).await;
    assert!(stderr(&refused).contains("operator (viewer)"), "{}", stderr(&refused));
    let refused = cluster.run("stranger", &spawn).await;
    assert!(stderr(&refused).contains("UNAUTHENTICATED"), "{}", stderr(&refused));

    // A client that trusts another authority gets an error that explains why the connection failed.
    cluster.authority.publish(cluster.home.path(), "same.crt");
    Authority::default().publish(cluster.home.path(), "other.crt");
    for (ca, succeeds) in [("same.crt", true), ("other.crt", false)] {
        let listed = cluster.run("admin", &[&agents[..], &["--ca", ca]].concat()).await;
        assert_eq!(listed.status.success(), succeeds, "{}", stderr(&listed));
        if !succeeds {
            assert!(
                stderr(&listed).contains("invalid peer certificate"),
                "{}",
                stderr(&listed)
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_tls_handshake_is_logged_with_peer_and_error() {
    let cluster = TestCluster::new();
    let (mut command, ready) = service(&cluster.home, "registry");
    command
        .args(["--tls-cert", "registry.crt", "--tls-key", "registry.key"])
        .stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let address = within("a service that serves", ready.address()).await;

    // Like a client whose URL begins with `http` instead of `https`.
    let mut client = TcpStream::connect(&address).await.unwrap();
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    let mut log = BufReader::new(process.stderr.take().unwrap()).lines();
    let said = async {
        while let Some(line) = log.next_line().await.unwrap() {
            if line.contains("TLS handshake failed") {
                return line;
            }
        }
        panic!("the service has ended");
    };
    let said = within("the failed handshake", said).await;
    let peer = client.local_addr().unwrap().to_string();
    assert!(said.contains(&peer) && said.contains("error"), "{said}");
}
