//! Secrets are planted in every input of a pair, in accepted and rejected calls, with all logs and traces enabled. No
//! secret may appear in any output.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use tokio::process::Child;
use tonic::Status;
use troupe_proto::supervisor::v1::{
    CreateSessionRequest, ListSessionsRequest, NotificationKind, SendInputRequest, SetThreadNoteRequest,
    SpawnAgentRequest, StatusKind, Webhook,
};
use troupe_tests::{
    agents::settled,
    authority::Authority,
    client,
    collector::Collector,
    process::{Home, Ready, service},
    provider::Key,
    receiver::Receiver,
    tree::{Spawned, Tree, kind},
    within,
};

use crate::{
    metrics::get,
    traces::{await_metric, await_span},
};

/// A text that every planted secret contains.
const PLANTED: &str = "pl4nted";

fn planted(what: &str) -> String {
    format!("{PLANTED}-{what}-0123456789abcdef0123456789abcdef")
}

/// Writes a file with a secret in the format of its reader.
fn plant(directory: &Path, name: &str) -> String {
    let path = directory.join(name);
    fs::write(&path, planted(name)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Writes the keys of an identity provider to `jwks.json` and returns a token that the provider signed.
fn signed_token(directory: &Path) -> String {
    let key = Key::new("one");
    fs::write(directory.join("jwks.json"), key.published()).unwrap();
    key.token("admin")
}

/// Starts a service that logs everything, including the logs of its dependencies.
async fn start(home: &Home, collector: &Collector, name: &str, arguments: &[&str]) -> (Child, Ready, String) {
    let (mut command, ready) = service(home, name);
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(home.path().join("log"))
        .unwrap();
    command
        .args(arguments)
        .args(["--admin-listen", "127.0.0.1:0", "--log-format", "json"])
        .env("TROUPE_LOG", "trace")
        .stderr(log);
    let process = collector.export_from(&mut command).spawn().unwrap();
    let address = within("a service that serves", ready.address()).await;
    (process, ready, address)
}

/// Returns the complete text and details of an error, as the caller receives them.
fn said(status: &Status) -> String {
    format!("{status:?} {}", String::from_utf8_lossy(status.details()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_in_no_log_span_metric_error_or_configuration() {
    let home = Home::default();
    let mut collector = Collector::start().await;
    let file = |name: &str| plant(home.path(), name);
    let (registry_token, operator, runner) = (file("registry.token"), file("operator.token"), file("runner.token"));

    let authority = Authority::default();
    authority.publish(home.path(), "ca.crt");
    let (_, key) = authority.server(home.path(), "registry");
    let key = fs::read_to_string(key).unwrap();
    let key = key.lines().nth(1).expect("the first line of the key itself");
    let jwt = signed_token(home.path());

    let of_registry = [
        ["--token-file", &registry_token],
        ["--tls-cert", "registry.crt"],
        ["--tls-key", "registry.key"],
    ];
    let of_registry = of_registry.as_flattened();
    let (_registry, registry_ready, registry) = start(&home, &collector, "registry", of_registry).await;
    // A password in the URL, as for a proxy.
    let url = format!("https://ann:{}@{registry}", planted("password"));
    let arguments = [
        ["--data-dir", "data"],
        ["--registry-url", &url],
        ["--registry-ca", "ca.crt"],
        ["--jwt-issuer", "https://id.example.org"],
        ["--jwt-audience", "troupe"],
        ["--jwt-keys", "jwks.json"],
        ["--registry-token-file", &registry_token],
        ["--operator-token-file", &operator],
        ["--runner-token-file", &runner],
    ];
    let arguments = arguments.as_flattened();
    let (_supervisor, supervisor_ready, supervisor) = start(
        &home,
        &collector,
        "supervisor",
        &[arguments, &["--require-token", "--webhook-allow-private"]].concat(),
    )
    .await;
    let mut command = home.troupe(&[
        "run",
        "--supervisor",
        &format!("http://{supervisor}"),
        "--token-file",
        &runner,
    ]);
    let log = OpenOptions::new().append(true).open(home.path().join("log")).unwrap();
    command
        .env("TROUPE_LOG", "trace")
        .env("ANTHROPIC_API_KEY", planted("provider-key"))
        .stderr(log);
    let _runner = collector.export_from(&mut command).spawn().unwrap();

    // Accepted calls with a secret in every field.
    let token = planted("operator.token");
    let client = client::supervisor(supervisor.parse().unwrap(), Some(&token));
    let webhook = |url: String| Webhook {
        url,
        kinds: vec![
            NotificationKind::AgentTurnComplete.into(),
            NotificationKind::SubAgentComplete.into(),
        ],
        secret: planted("webhook-secret"),
    };
    let request = CreateSessionRequest {
        webhooks: vec![webhook(String::from("ftp://127.0.0.1:9/hook"))],
        ..CreateSessionRequest::default()
    };
    let mut errors = Vec::new();
    errors.push(client.clone().create_session(request).await.unwrap_err());
    let receiver = Receiver::start().await;
    let request = CreateSessionRequest {
        webhooks: vec![webhook(receiver.url())],
        ..CreateSessionRequest::default()
    };
    let tree = Tree::open(client.clone(), request).await;
    let mut vouched_for = client::supervisor(supervisor.parse().unwrap(), Some(&jwt));
    vouched_for.list_sessions(ListSessionsRequest::default()).await.unwrap();
    let spawn = |role: &str| SpawnAgentRequest {
        message: Some(format!("say: {}", planted("prompt"))),
        objective: planted("objective"),
        definition_of_done: planted("definition"),
        r#override: planted("override"),
        custom_system_prompt: planted("system-prompt"),
        return_token: true,
        ..tree.request(role)
    };
    let worker = Spawned::of(tree.try_spawn(spawn("worker")).await.unwrap());
    assert_eq!(kind(&settled(&tree, &worker.id).await), StatusKind::Completed);

    // The delivery is rejected. The next attempt shows that the first one has ended.
    for _ in 0..2 {
        receiver.next(503).await;
    }

    // Rejected calls: by the registry, by the domain, and by authentication.
    errors.push(tree.try_spawn(spawn("nobody")).await.unwrap_err());
    let note = SetThreadNoteRequest {
        thread_id: worker.id.clone(),
        thread_note: planted("note").repeat(200),
        ..SetThreadNoteRequest::default()
    };
    errors.push(client.clone().set_thread_note(note).await.unwrap_err());
    tree.close(&worker.id).await;
    let input = SendInputRequest {
        thread_id: worker.id.clone(),
        message: Some(planted("input")),
        ..SendInputRequest::default()
    };
    errors.push(client.clone().send_input(input.clone()).await.unwrap_err());
    for bad in [
        worker.token.clone(),
        planted("guess"),
        format!("a.{}.c", planted("jwt")),
    ] {
        let mut stranger = client::supervisor(supervisor.parse().unwrap(), Some(&bad));
        errors.push(stranger.send_input(input.clone()).await.unwrap_err());
    }

    let configured = |name: &str, arguments: &[&str]| {
        let (mut command, _) = service(&home, name);
        command.args(arguments).arg("--print-config=json");
        async move { within("the settings", command.output()).await.unwrap().stdout }
    };
    let up = async {
        let mut command = home.troupe(&["up", "--registry-listen", "127.0.0.1:0", "--print-config=json"]);
        command.env("ANTHROPIC_API_KEY", planted("provider-key"));
        within("the settings", command.output()).await.unwrap().stdout
    };
    let mut found = vec![
        ("the settings of `up`", String::from_utf8(up.await)),
        (
            "the registry's settings",
            String::from_utf8(configured("registry", of_registry).await),
        ),
        (
            "the supervisor's settings",
            String::from_utf8(configured("supervisor", arguments).await),
        ),
    ]
    .into_iter()
    .map(|(what, text)| (what, text.unwrap()))
    .collect::<Vec<_>>();
    for (_, settings) in &found {
        assert!(
            settings.contains("\"origin\":\"flag\""),
            "the configured settings: {settings}"
        );
    }
    await_span(&mut collector, "invoke_agent worker").await;
    await_metric(&mut collector, "troupe.turns").await;
    found.push(("the collector's data", format!("{:?}", collector.seen)));
    found.push(("the errors", errors.iter().map(said).collect()));
    found.push((
        "the metrics",
        get(&registry_ready.admin().await, "/metrics").await + &get(&supervisor_ready.admin().await, "/metrics").await,
    ));
    let mut log = String::new();
    std::io::Read::read_to_string(&mut File::open(home.path().join("log")).unwrap(), &mut log).unwrap();
    assert!(
        log.contains("SpawnAgent") && log.contains("TRACE"),
        "the log contains every level"
    );
    found.push(("the log", log));

    for (what, text) in found {
        for secret in [PLANTED, &worker.token, &tree.root_token, &jwt, key] {
            let place = text.find(secret).map(|place| {
                let from = (place.saturating_sub(300)..=place).find(|at| text.is_char_boundary(*at));
                text[from.unwrap_or(place)..].chars().take(600).collect::<String>()
            });
            assert!(
                secret.is_empty() || place.is_none(),
                "a secret is in {what}: {}",
                place.unwrap_or_default()
            );
        }
    }
}
