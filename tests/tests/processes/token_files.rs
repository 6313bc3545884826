//! The operator's token in the data directory, and services that do not accept it.

use std::process::Output;

use tokio::process::Child;
use troupe_proto::supervisor::v1::CreateSessionRequest;
use troupe_tests::{
    process::{Home, Up, service, stderr},
    tree::Tree,
    within,
};

/// Commands that call the supervisor, the registry, or both.
const COMMANDS: &[&[&str]] = &[
    &["ps"],
    &["agents"],
    &["resolve", "worker"],
    &["spawn", "worker", "-m", "Fix it."],
    &["doctor"],
];

/// Runs a command with the default data directory and services at these addresses.
async fn troupe(home: &Home, registry: &str, supervisor: &str, arguments: &[&str]) -> Output {
    let mut command = home.troupe(arguments);
    command
        .env("TROUPE_REGISTRY_URL", format!("http://{registry}"))
        .env("TROUPE_SUPERVISOR_URL", format!("http://{supervisor}"));
    within("the end of troupe", command.output()).await.unwrap()
}

async fn expect_all(home: &Home, registry: &str, supervisor: &str) {
    for arguments in COMMANDS {
        let output = troupe(home, registry, supervisor, arguments).await;
        let said = stderr(&output);
        assert!(output.status.success(), "{arguments:?}: {said}");
    }
}

async fn started(home: &Home, name: &str, arguments: &[&str]) -> (Child, String) {
    let (mut command, ready) = service(home, name);
    let process = command.args(arguments).spawn().unwrap();
    (process, within("a service that serves", ready.address()).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn separate_services_accept_every_command() {
    let home = Home::default();
    let (_registry, registry) = started(&home, "registry", &[]).await;
    let url = format!("http://{registry}");
    let (_supervisor, supervisor) = started(&home, "supervisor", &["--registry-url", &url]).await;
    // The supervisor has created the file. The registry accepts no token.
    assert!(!home.operator_token().is_empty());
    expect_all(&home, &registry, &supervisor).await;

    // A token on the command line is always sent.
    let token = home.operator_token();
    let named = troupe(&home, &registry, &supervisor, &["agents", "--token", &token]).await;
    let said = stderr(&named);
    assert!(!named.status.success() && said.contains("UNAUTHENTICATED"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pair_without_runner_accepts_earlier_token() {
    let home = Home::default();
    Up::start_with(&home, Up::WITH_RUNNER).await.terminate().await;
    let token = home.operator_token();
    let up = Up::start(&home).await;
    let (registry, supervisor) = (up.registry.to_string(), up.supervisor.to_string());
    expect_all(&home, &registry, &supervisor).await;
    // The file still exists, its token is valid, and clients without a token are the operator as before.
    assert_eq!(home.operator_token(), token);
    let named = troupe(&home, &registry, &supervisor, &["ps", "--token", &token]).await;
    assert!(named.status.success());
    Tree::open(up.client(), CreateSessionRequest::default()).await;
    up.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_of_another_pair_is_not_sent() {
    let (home, other) = (Home::default(), Home::default());
    Up::start_with(&home, Up::WITH_RUNNER).await.kill().await;
    let mut arguments = Up::ARGUMENTS.to_vec();
    arguments.extend(["--workspace-root", home.path().to_str().unwrap()]);
    let up = Up::start_with(&other, &arguments).await;
    let (registry, supervisor) = (up.registry.to_string(), up.supervisor.to_string());
    expect_all(&home, &registry, &supervisor).await;
    let mut runner = home.troupe(&["run"]);
    runner.env("TROUPE_SUPERVISOR_URL", format!("http://{supervisor}"));
    let mut runner = runner.spawn().unwrap();
    let waiting = ["spawn", "worker", "-m", "Fix it.", "--wait"];
    let waited = troupe(&home, &registry, &supervisor, &waiting).await;
    let said = stderr(&waited);
    assert!(waited.status.success(), "{said}");
    runner.kill().await.unwrap();
    up.kill().await;

    // A pair that requires a token does not receive the token of another pair, and the error explains it.
    let up = Up::start_with(&other, Up::WITH_RUNNER).await;
    let refused = troupe(&home, &up.registry.to_string(), &up.supervisor.to_string(), &["ps"]).await;
    let said = stderr(&refused);
    assert!(!refused.status.success() && said.contains("UNAUTHENTICATED"), "{said}");
    up.kill().await;
}
