//! The admin port of a pair: health for probes, and every metric that the documentation names.

use std::{collections::BTreeSet, fs, net::SocketAddr, path::Path, process::Stdio, time::Duration};

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use svc_kit::{
    admin::{LIVENESS, READINESS},
    auth::Effect,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::Child,
    time::timeout,
};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};
use troupe_proto::supervisor::v1::{CreateSessionRequest, Event, OnLimit, event::Kind};
use troupe_tests::{
    admin::Admin,
    agents::settled,
    client::endpoint,
    postgres_server::Database,
    process::{Home, Up, service, terminate},
    tree::Tree,
    within,
};

/// Arguments for a free admin port.
const ADMIN: [&str; 2] = ["--admin-listen", "127.0.0.1:0"];

/// The metric that only a service with TLS has; `up` has no TLS.
const EXPIRY: &str = "troupe_tls_certificate_expiry_seconds";

/// Returns the response to a plain HTTP request.
pub(crate) async fn get(address: &str, path: &str) -> String {
    exchange(address, &format!("GET {path}"), "", "").await
}

/// Waits until the metrics contain a text.
async fn await_metric(admin: &str, text: &str) {
    within(text, async { while !get(admin, "/metrics").await.contains(text) {} }).await;
}

/// Returns the response to a plain HTTP request with these header lines and this body.
async fn exchange(address: &str, method_and_path: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let request = format!(
        "{method_and_path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    within("an answer", stream.read_to_string(&mut answer)).await.unwrap();
    answer
}

/// Returns the metrics in the tables of the documentation: the metrics of every service, and the metrics of cluster
/// members.
fn documented() -> (BTreeSet<String>, BTreeSet<String>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/monitoring.md");
    let text = fs::read_to_string(path).unwrap();
    let section = text.split("## Metrics").nth(1).expect("a section on metrics");
    let section = section.split("\n## ").next().unwrap();
    let (all, members) = section.split_once("also exports:").expect("a table of members");
    (names(all), names(members))
}

fn names(table: &str) -> BTreeSet<String> {
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split(['`', '{']).next().unwrap().to_owned())
        .collect()
}

/// Returns the names of the metrics that have a value.
fn measured(text: &str) -> BTreeSet<String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

/// Returns the metrics that rules and panels mention, without the suffixes of histograms.
fn named_in(text: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = text.split(|letter| !is_part(letter));
    let ours = words.filter(|word| word.starts_with("troupe_") || word.starts_with("rpc_server_"));
    ours.map(|word| {
        let parts = ["_bucket", "_count", "_sum"];
        let whole = parts.iter().find_map(|part| word.strip_suffix(part));
        whole.unwrap_or(word).to_owned()
    })
    .collect()
}

#[test]
fn every_metric_in_rules_and_panels_exists() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/chart/monitoring");
    for name in ["alerts.yaml", "dashboard.json"] {
        let text = fs::read_to_string(directory.join(name)).unwrap();
        let named = named_in(&text);
        assert!(named.len() > 5, "{name} names too few: {named:?}");
        let (all, members) = documented();
        let unknown: Vec<_> = named.difference(&(&all | &members)).cloned().collect();
        assert!(unknown.is_empty(), "{name} names unknown metrics: {unknown:?}");
    }
}

#[test]
fn objective_covers_methods_that_change_data() {
    const SERVICE: &str = "troupe[.]supervisor[.]v1[.]AgentSupervisorService/(";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/chart/monitoring/alerts.yaml");
    let text = fs::read_to_string(path).unwrap();
    let filters: BTreeSet<_> = text
        .split(SERVICE)
        .skip(1)
        .map(|rest| rest.split(").*").next().unwrap())
        .collect();
    let [verbs] = Vec::from_iter(filters)[..] else {
        panic!("expected one filter for all rules")
    };
    for row in supervisor_svc::AUTHORITY {
        let Some(method) = row.method.strip_prefix("/troupe.supervisor.v1.AgentSupervisorService/") else {
            continue;
        };
        let is_counted = verbs.split('|').any(|verb| method.starts_with(verb));
        assert_eq!(is_counted, row.effect == Effect::Changes, "{method}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_port_serves_health_and_metrics() {
    let home = Home::default();
    fs::create_dir(home.path().join("backups")).unwrap();
    fs::write(
        home.path().join("a2a.yaml"),
        "agents: [{role: worker}]\nanonymous: {}\n",
    )
    .unwrap();
    let of_supervisor = ["--trust-loopback", "--max-threads", "1", "--backup-dir", "backups"];
    let of_a2a = ["--a2a", "127.0.0.1:0", "--a2a-config", "a2a.yaml"];
    let arguments = [Up::WITH_RUNNER, &ADMIN, &of_supervisor, &of_a2a].concat();
    let up = Up::start_with(&home, &arguments).await;
    let admin = up.ready["admin"].as_str().unwrap().to_owned();

    let health = HealthClient::new(endpoint(admin.parse().unwrap()).connect_lazy());
    let is_serving = async |name: &str| {
        let request = HealthCheckRequest {
            service: name.to_owned(),
        };
        let answer = health.clone().check(request).await;
        answer.is_ok_and(|answer| answer.get_ref().status() == ServingStatus::Serving)
    };
    for name in [
        "",
        "liveness",
        "troupe.registry.v1.AgentRegistryService",
        "troupe.supervisor.v1.AgentSupervisorService",
    ] {
        within("health on the admin port", async { while !is_serving(name).await {} }).await;
    }

    // Causes one turn, one queued thread, one rejected thread and one cascade.
    let tree = Tree::open(up.client(), CreateSessionRequest::default()).await;
    let first = tree.spawn_for("worker", "hold").await.id;
    let mut queued = tree.request("worker");
    queued.set_on_limit(OnLimit::Queue);
    let second = tree.try_spawn(queued).await.unwrap().thread.unwrap().thread_id;
    tree.try_spawn(tree.request("nobody")).await.unwrap_err();
    tree.close(&first).await;
    settled(&tree, &second).await;
    let mut watch = tree.watch().await;
    watch.snapshot().await;
    tree.note(&tree.root, "to be watched").await;
    watch.event().await;
    let a2a = up.ready["a2a"].as_str().unwrap();
    let headers = "Content-Type: application/json\r\nA2A-Version: 1.0\r\n";
    let listed = exchange(
        a2a,
        "POST /",
        headers,
        r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks"}"#,
    )
    .await;
    assert!(listed.contains(r#""result""#), "{listed}");
    get(a2a, "/tasks").await;
    await_metric(&admin, "\ntroupe_backup_size_bytes").await;

    let answer = get(&admin, "/metrics").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("content-type: text/plain"), "{answer}");
    let (process, measured): (BTreeSet<_>, BTreeSet<_>) = measured(&answer)
        .into_iter()
        .partition(|name| name.starts_with("process_"));
    assert!(process.contains("process_resident_memory_bytes"), "{process:?}");
    let (mut expected, _) = documented();
    assert!(expected.remove("process_cpu_seconds_total"));
    assert!(expected.remove(EXPIRY), "{EXPIRY} is documented");
    assert_eq!(measured, expected, "{answer}");
    let has = |line: &str| answer.lines().any(|other| other.starts_with(line));
    for line in [
        "rpc_server_call_duration_seconds_count{rpc_method=\"troupe.supervisor.v1.AgentSupervisorService/SpawnAgent\",rpc_response_status_code=\"OK\",rpc_system_name=\"grpc\"} 2",
        "troupe_turns_total{status=\"COMPLETED\"} 1",
        "troupe_thread_cascade_duration_seconds_count 1",
        "troupe_thread_queue_duration_seconds_count 1",
        "troupe_threads{status=\"COMPLETED\"} 1",
        "troupe_threads{status=\"SHUTDOWN\"} 1",
        "troupe_spawns_refused_total{reason=\"TEMPLATE_NOT_FOUND\"} 1",
        "troupe_backup_interval_seconds 86400",
        "troupe_backup_failures_total 0",
        "troupe_slots{state=\"taken\"} 0",
        "troupe_slots{state=\"free\"} 1",
        "troupe_approvals 0",
        "troupe_runners_slots{state=\"free\"} 6",
        "troupe_runners 1",
        "troupe_runners_away 0",
        "troupe_watchers_delay_duration_seconds_count 1",
        "troupe_watchers 1",
        "troupe_a2a_calls_total{binding=\"jsonrpc\"} 1",
        "troupe_a2a_calls_total{binding=\"http_json\",error_type=\"VERSION_NOT_SUPPORTED\"} 1",
    ] {
        assert!(has(line), "{line}\n{answer}");
    }
    assert!(
        !answer.contains(&first),
        "metrics must not contain ids, which are unbounded"
    );
    let of_tokens = |line: &&str| line.starts_with("gen_ai_client_token_usage_count{");
    let tokens = answer.lines().find(of_tokens).expect("a turn used tokens");
    assert!(tokens.contains("gen_ai_agent_name=\"worker\""), "{tokens}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn member_exports_the_metrics_of_its_cluster() {
    let (home, database) = (Home::default(), Database::create());
    let url = database.url();
    let (mut command, ready) = service(&home, "supervisor");
    command
        .args(["--store", &url, "--registry-url", "http://127.0.0.1:1"])
        .args(ADMIN);
    let _process = command.spawn().unwrap();
    let admin = &within("its admin port", ready.admin()).await;
    let joined = "\ntroupe_members{state=\"active\"} 1\n";
    await_metric(admin, joined).await;
    let answer = get(admin, "/metrics").await;
    let (_, members) = documented();
    assert!(measured(&answer).is_superset(&members), "{answer}");
    for line in [
        "troupe_members{state=\"leaving\"} 0",
        "troupe_members_removed_total 0",
        "troupe_calls_forwarded_total{result=\"lost\"} 0",
    ] {
        assert!(answer.lines().any(|other| other.starts_with(line)), "{line}\n{answer}");
    }
}

/// Writes the certificate of a server that expires at the beginning of a year, and its key.
fn write_certificate(directory: &Path, year: i32) {
    let mut params = CertificateParams::new(vec![String::from("localhost")]).unwrap();
    params.not_after = date_time_ymd(year, 1, 1);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    fs::write(directory.join("tls.key"), key.serialize_pem()).unwrap();
    fs::write(directory.join("tls.crt"), certificate.pem()).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_expiry_is_a_metric() {
    let home = Home::default();
    write_certificate(home.path(), 2100);
    let (mut command, ready) = service(&home, "registry");
    command
        .args(["--tls-cert", "tls.crt", "--tls-key", "tls.key"])
        .args(ADMIN);
    let _process = command.spawn().unwrap();
    let admin = &within("its admin port", ready.admin()).await;
    let ends = async || {
        let answer = get(admin, "/metrics").await;
        let line = answer
            .lines()
            .find_map(|line| line.strip_prefix(EXPIRY)?.strip_prefix(' '));
        line.map(|value| value.parse::<u64>().unwrap())
    };
    assert_eq!(ends().await, Some(4_102_444_800));

    // The new certificate is detected without a connection. If a file is invalid, the previous certificate stays in
    // use.
    write_certificate(home.path(), 2200);
    assert_eq!(ends().await, Some(7_258_118_400));
    fs::write(home.path().join("tls.crt"), "nothing").unwrap();
    assert_eq!(ends().await, Some(7_258_118_400));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_requests_do_not_block_the_admin_port() {
    /// Maximum number of connections of the admin port.
    const CONNECTIONS: usize = 64;
    /// Less than the default request timeout of an HTTP/1.1 server.
    const SOON: Duration = Duration::from_secs(20);
    let home = Home::default();
    let arguments = [Up::ARGUMENTS, &ADMIN].concat();
    let up = Up::start_with(&home, &arguments).await;
    let admin = up.ready["admin"].as_str().unwrap().to_owned();
    let mut halves = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut half = TcpStream::connect(&admin).await.unwrap();
        half.write_all(b"GET /metrics HTTP/1.1\r\nHost: troupe\r\n")
            .await
            .unwrap();
        halves.push(half);
    }
    let answer = timeout(SOON, get(&admin, "/metrics")).await;
    assert!(answer.expect("an answer soon").starts_with("HTTP/1.1 200"));
}

/// Starts a runner and waits until it is attached.
async fn runner(home: &Home, supervisor: SocketAddr) -> (Child, Admin) {
    let url = format!("http://{supervisor}");
    let mut process = home
        .troupe(&["run", "--supervisor", &url, "--drain", "1h"])
        .args(ADMIN)
        .env("TROUPE_LOG_FORMAT", "json")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let admin = Admin::of(&mut process).await;
    admin.until(READINESS, true).await;
    (process, admin)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runner_is_ready_while_attached_and_not_draining() {
    let home = Home::default();
    let up = Up::start(&home).await;
    let tree = Tree::open(up.client(), CreateSessionRequest::default()).await;

    let (mut process, admin) = runner(&home, up.supervisor).await;
    let thread = tree.spawn_for("worker", "hold").await.id;
    let mut watch = tree.watch_after(0).await;
    let has_begun = |event: &Event| matches!(event.kind, Some(Kind::TurnStarted(_)));
    watch.until(has_begun).await;
    terminate(&process);
    admin.until(READINESS, false).await;
    assert!(admin.is_serving(LIVENESS).await && !admin.is_serving("").await);
    tree.close(&thread).await;
    let ended = within("the end of the runner", process.wait()).await.unwrap();
    assert!(ended.success(), "{ended}");

    let (mut process, admin) = runner(&home, up.supervisor).await;
    assert!(admin.is_serving("").await);
    up.kill().await;
    admin.until(READINESS, false).await;
    assert!(admin.is_serving(LIVENESS).await);
    process.kill().await.unwrap();
}
