//! The audit log: the callers that changed something, and the callers that were denied.

use std::fs::{self, File};

use serde_json::Value;
use tonic::Code;
use troupe_proto::supervisor::v1::{CreateSessionRequest, SetThreadNoteRequest};
use troupe_tests::{
    client,
    process::{Home, service},
    tree::Tree,
    within,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_or_denial_writes_one_audit_line() {
    let home = Home::default();
    let path = home.path().join("supervisor.log");
    let (mut command, ready) = service(&home, "supervisor");
    command
        .args(["--data-dir", "data", "--log", "off,audit=info"])
        // An address without a listener.
        .args(["--registry-url", "http://127.0.0.1:1"])
        .env("TROUPE_LOG_FORMAT", "json")
        .stderr(File::create(&path).unwrap());
    let (_supervisor, at) = ready.start(&mut command).await;

    let tree = Tree::open(client::supervisor(at, None), CreateSessionRequest::default()).await;
    let mut thread = client::supervisor(at, Some(&tree.root_token));
    let note = SetThreadNoteRequest {
        thread_id: tree.root.clone(),
        thread_note: String::from("a private text"),
        ..SetThreadNoteRequest::default()
    };
    within("an answer", thread.set_thread_note(note)).await.unwrap();
    // Neither reads nor invalid requests have a line.
    tree.head().await;
    let nobody = SetThreadNoteRequest {
        thread_id: String::from("00000000-0000-0000-0000-000000000001"),
        ..SetThreadNoteRequest::default()
    };
    within("a refusal", tree.client().set_thread_note(nobody))
        .await
        .unwrap_err();
    // A call that ends without a response may have had its effect.
    let away = tree.try_spawn(tree.request("worker")).await.unwrap_err();
    assert_eq!(away.code(), Code::Unavailable);
    let mut stranger = client::supervisor(at, Some("not-a-token-of-anybody"));
    for (client, code) in [
        (&mut thread, Code::PermissionDenied),
        (&mut stranger, Code::Unauthenticated),
    ] {
        let refused = within("a refusal", client.create_session(CreateSessionRequest::default())).await;
        assert_eq!(refused.unwrap_err().code(), code);
    }

    let log = fs::read_to_string(path).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
    let entries: Vec<[String; 3]> = lines
        .iter()
        .map(|line| {
            assert_eq!(line["target"], "audit");
            assert!(said(line, "peer").starts_with("127.0.0.1:"), "{line}");
            assert_eq!(said(line, "trace_id").len(), 32, "{line}");
            ["principal", "method", "code"].map(|key| said(line, key))
        })
        .collect();
    let root = format!("thread:{}", tree.root);
    let method = |name: &str| format!("troupe.supervisor.v1.AgentSupervisorService/{name}");
    let expected = [
        ("operator:loopback", "CreateSession", "OK"),
        (root.as_str(), "SetThreadNote", "OK"),
        ("operator:loopback", "SpawnAgent", "UNAVAILABLE"),
        (root.as_str(), "CreateSession", "PERMISSION_DENIED"),
        ("", "CreateSession", "UNAUTHENTICATED"),
    ]
    .map(|(who, name, code)| [who.to_owned(), method(name), code.to_owned()]);
    assert_eq!(entries, expected);
    assert!(!log.contains("a private text"), "{log}");
}
