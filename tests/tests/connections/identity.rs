//! Callers with signed tokens (JWTs): operators with tokens of an identity provider, and parts of Troupe with tokens of
//! a cluster. The services read the keys from a file or from the provider.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    process::Child,
};
use tonic::Code;
use troupe_proto::{
    registry::v1::ListAgentsRequest,
    supervisor::v1::{AttachRequest, CreateSessionRequest, ListSessionsRequest, attach_request},
};
use troupe_tests::{
    authority::Authority,
    client,
    process::{Home, service},
    provider::Key,
    runner::{Runner, hello},
    tls_front::tls_in_front_of,
    tree::Tree,
    within,
};

/// Starts a supervisor that accepts only tokens that were signed with these keys.
async fn supervisor(home: &Home, keys: &str, arguments: &[&str]) -> (Child, SocketAddr) {
    let (mut command, ready) = service(home, "supervisor");
    command
        .args(["--data-dir", "data", "--require-token"])
        .args(["--jwt-issuer", "https://id.example.org", "--jwt-audience", "troupe"])
        .args(["--jwt-keys", keys])
        .args(arguments)
        .stderr(Stdio::null());
    ready.start(&mut command).await
}

/// Starts a supervisor that reads the keys of one provider from a file.
async fn supervisor_of_provider(home: &Home, arguments: &[&str]) -> (Key, Child, SocketAddr) {
    let key = Key::new("one");
    fs::write(home.path().join("keys.json"), key.published()).unwrap();
    let (process, address) = supervisor(home, "keys.json", arguments).await;
    (key, process, address)
}

/// Lists the sessions with a token. Returns their number or the code of the error.
async fn lists(at: SocketAddr, token: &str) -> Result<usize, Code> {
    let listed = client::supervisor(at, Some(token))
        .list_sessions(ListSessionsRequest::default())
        .await;
    listed
        .map(|answer| answer.into_inner().sessions.len())
        .map_err(|status| status.code())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn provider_token_sets_operator_and_role() {
    let home = Home::default();
    let (key, _process, address) = supervisor_of_provider(&home, &[]).await;
    let by = |role: &str| client::supervisor(address, Some(&key.token(role)));

    let request = CreateSessionRequest::default();
    by("admin").create_session(request.clone()).await.unwrap();
    assert_eq!(lists(address, &key.token("viewer")).await, Ok(1));
    let refused = by("viewer").create_session(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(lists(address, &key.token("root")).await, Err(Code::Unauthenticated));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_and_service_accounts_have_granted_roles() {
    const ACCOUNT: &str = "system:serviceaccount:ci:deployer";
    let home = Home::default();
    let by_account = format!("sub:{ACCOUNT}=admin");
    let arguments = [
        "--jwt-role-claim=realm_access.roles",
        "--jwt-role=troupe-readers=viewer",
        "--jwt-role",
        &by_account,
    ];
    let (key, _process, address) = supervisor_of_provider(&home, &arguments).await;
    let creates = async |token: &str| {
        let mut client = client::supervisor(address, Some(token));
        let created = client.create_session(CreateSessionRequest::default()).await;
        created.map(drop).map_err(|status| status.code())
    };

    // Like projected service account tokens: they have no role, and no claim can be added.
    let namespace = json!({"kubernetes.io": {"namespace": "ci", "serviceaccount": {"name": "deployer"}}});
    assert_eq!(creates(&key.signed(ACCOUNT, namespace.clone())).await, Ok(()));
    let other = key.signed("system:serviceaccount:ci:default", namespace);
    assert_eq!(creates(&other).await, Err(Code::Unauthenticated));

    let groups = |groups: Value| json!({"realm_access": {"roles": groups}, "troupe_role": "admin"});
    let reader = key.signed("ann", groups(json!(["offline_access", "troupe-readers"])));
    assert_eq!(lists(address, &reader).await, Ok(1));
    assert_eq!(creates(&reader).await, Err(Code::PermissionDenied));
    for nobody in [json!(["offline_access"]), json!("admin")] {
        let token = key.signed("ann", groups(nobody));
        assert_eq!(lists(address, &token).await, Err(Code::Unauthenticated));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jwt_with_built_in_operator_name_is_rejected() {
    let home = Home::default();
    let (key, _process, address) = supervisor_of_provider(&home, &[]).await;
    let local = key.signed("local", json!({"troupe_role": "admin"}));
    assert_eq!(lists(address, &local).await, Err(Code::Unauthenticated));
    assert_eq!(lists(address, &key.token("admin")).await, Ok(0));
    let token = fs::read_to_string(home.path().join("data/operator.token")).unwrap();
    assert_eq!(lists(address, token.trim()).await, Ok(0));
}

/// The content that a provider publishes.
#[derive(Clone, Default)]
struct Published {
    keys: Arc<Mutex<String>>,
    /// The only accepted token. If it is empty, every request is accepted.
    token: Arc<Mutex<String>>,
}

impl Published {
    fn change(&self, keys: String, token: &str) {
        *self.keys.lock().unwrap() = keys;
        token.clone_into(&mut self.token.lock().unwrap());
    }

    fn answer_to(&self, request: &str) -> String {
        let token = self.token.lock().unwrap();
        if !token.is_empty() && !request.contains(&format!("authorization: Bearer {token}\r\n")) {
            return String::from("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
        }
        let text = self.keys.lock().unwrap();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len())
    }
}

/// Answers every request with the content that is published at that time.
async fn publish(published: Published) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            let read = stream.read(&mut request).await.unwrap_or_default();
            let answer = published.answer_to(&String::from_utf8_lossy(&request[..read]));
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    address
}

/// Waits until a viewer with a token of this key is accepted.
async fn await_accepted(address: SocketAddr, key: &Key) {
    let token = key.token("viewer");
    within("the keys", async { while lists(address, &token).await.is_err() {} }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_fetched_again_for_an_unknown_key_id() {
    let home = Home::default();
    let (old, new) = (Key::new("old"), Key::new("new"));
    let published = Published::default();
    published.change(old.published(), "");
    let provider = publish(published.clone()).await;
    let authority = Authority::default();
    let believed = authority.publish(home.path(), "ca.crt");
    let front = tls_in_front_of(provider, authority.server(home.path(), "provider"), &["http/1.1"]).await;
    let believed: &Path = &believed;
    let url = format!("https://{front}/keys");
    let (_process, address) = supervisor(&home, &url, &["--jwt-ca", believed.to_str().unwrap()]).await;

    await_accepted(address, &old).await;
    published.change(new.published(), "");
    await_accepted(address, &new).await;
    assert_eq!(lists(address, &old.token("viewer")).await, Err(Code::Unauthenticated));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_fetched_with_current_token_of_the_file() {
    let home = Home::default();
    let (old, new) = (Key::new("old"), Key::new("new"));
    let published = Published::default();
    let file = home.path().join("keys.token");
    // As long as a projected Kubernetes service account token.
    let token = |name: &str| format!("{name}-{}", "x".repeat(1_500));
    published.change(old.published(), &token("first"));
    fs::write(&file, token("first")).unwrap();
    let provider = publish(published.clone()).await;
    let url = format!("http://{provider}/keys");
    let (_process, address) = supervisor(&home, &url, &["--jwt-keys-token", "keys.token"]).await;

    await_accepted(address, &old).await;
    published.change(new.published(), &token("second"));
    fs::write(&file, token("second")).unwrap();
    await_accepted(address, &new).await;
}

/// Returns the subject of a service account of a cluster.
fn account(name: &str) -> String {
    format!("system:serviceaccount:troupe:{name}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_troupe_authenticate_by_account_tokens() {
    let home = Home::default();
    let key = Key::new("one");
    fs::write(home.path().join("keys.json"), key.published()).unwrap();
    // As long as a real token, which contains more claims about the pod.
    let pod = "x".repeat(63);
    let of = |name: &str| {
        key.signed(
            &account(name),
            json!({"kubernetes.io": {"pod": {"name": pod, "uid": "u".repeat(1_000)}}}),
        )
    };
    fs::write(home.path().join("own.token"), of("supervisor")).unwrap();

    let (mut command, ready) = service(&home, "registry");
    command
        .args(["--jwt-issuer", "https://id.example.org", "--jwt-audience", "troupe"])
        .args(["--jwt-keys", "keys.json", "--jwt-role"])
        .arg(format!("sub:{}=service", account("supervisor")))
        .stderr(Stdio::null());
    let (_registry, registry) = ready.start(&mut command).await;
    let (url, grant) = (
        format!("http://{registry}"),
        format!("sub:{}=runner", account("runner")),
    );
    let arguments = [
        "--registry-url",
        &url,
        "--registry-token-file",
        "own.token",
        "--jwt-role",
        &grant,
    ];
    let (_process, address) = supervisor(&home, "keys.json", &arguments).await;

    // For a spawn, the supervisor calls the registry, and the attached runner receives the thread.
    let operator = fs::read_to_string(home.path().join("data/operator.token")).unwrap();
    let operator = client::supervisor(address, Some(operator.trim()));
    let tree = Tree::open(operator, CreateSessionRequest::default()).await;
    let mut runner = Runner::greet_by(client::runners(address, Some(&of("runner"))), hello(&pod)).await;
    let spawned = tree.spawn("worker").await;
    runner.start_of(&spawned.id).await;

    let attaches = async |token: &str| {
        let other = AttachRequest {
            message: Some(attach_request::Message::Hello(hello("other"))),
        };
        let attached = client::runners(address, Some(token))
            .attach(tokio_stream::iter([other]))
            .await;
        attached.map(drop).map_err(|status| status.code())
    };
    // The token of a pod is not valid for another runner id.
    assert_eq!(attaches(&of("runner")).await, Err(Code::PermissionDenied));
    let asks = async |token: &str| {
        let mut client = client::registry(registry, Some(token));
        let agents = client.list_agents(ListAgentsRequest::default()).await;
        agents.map(drop).map_err(|status| status.code())
    };
    assert_eq!(asks(&of("supervisor")).await, Ok(()));
    for nobody in ["default", "runner"] {
        assert_eq!(asks(&of(nobody)).await, Err(Code::Unauthenticated), "{nobody}");
    }
    for nobody in ["default", "supervisor"] {
        assert_eq!(attaches(&of(nobody)).await, Err(Code::Unauthenticated), "{nobody}");
    }
    // A runner's token is not an operator's token.
    assert_eq!(lists(address, &of("runner")).await, Err(Code::PermissionDenied));
}

#[tokio::test]
async fn role_grant_of_a_non_caller_is_rejected_at_start() {
    for (name, grant) in [("supervisor", "sub:a=service"), ("registry", "sub:a=runner")] {
        let home = Home::default();
        fs::write(home.path().join("keys.json"), Key::new("one").published()).unwrap();
        let (mut command, _) = service(&home, name);
        command
            .args(["--jwt-issuer", "i", "--jwt-audience", "a", "--jwt-keys", "keys.json"])
            .args(["--jwt-role", grant]);
        let output = within("its end", command.output()).await.unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains(grant), "{text}");
    }
}

#[tokio::test]
async fn keys_over_plain_http_from_other_hosts_are_rejected() {
    let home = Home::default();
    let (mut command, _) = service(&home, "supervisor");
    command
        .args(["--jwt-issuer", "i", "--jwt-audience", "a"])
        .args(["--jwt-keys", "http://id.example.org/keys"]);
    let output = within("its end", command.output()).await.unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && text.contains("the URL must use https"),
        "{text}"
    );
}
