//! Rotation of static tokens without a restart: at first, the new token and the old token are both valid. Later, only
//! the new token is valid.

use std::{fs, net::SocketAddr, os::unix::fs::symlink, path::Path, process::Stdio};

use tokio::process::Child;
use tonic::Code;
use troupe_proto::{
    registry::v1::ListAgentsRequest,
    supervisor::v1::{CreateSessionRequest, ListSessionsRequest},
};
use troupe_tests::{
    client,
    process::{Home, service},
    tree::Tree,
};

const OLD: &str = "the-old-token-of-all";
const NEW: &str = "the-new-token-of-all";

/// The responses of the supervisor and of the registry to a token.
type Answers = [Result<(), Code>; 2];
const WELCOME: Answers = [Ok(()), Ok(())];
const REFUSED: Answers = [Err(Code::Unauthenticated), Err(Code::Unauthenticated)];

/// The path of the token file, relative to the home directory.
const FILE: &str = "mount/tokens";

/// Replaces the token file like Kubernetes, by changing a link to its directory.
fn mount(home: &Home, version: &str, text: &str) {
    let mount = home.path().join("mount");
    fs::create_dir_all(mount.join(version)).unwrap();
    fs::write(mount.join(version).join("tokens"), text).unwrap();
    let aside = mount.join("..data_tmp");
    symlink(version, &aside).unwrap();
    fs::rename(aside, mount.join("..data")).unwrap();
}

async fn serve(home: &Home, name: &str, arguments: &[&str]) -> (Child, SocketAddr) {
    let (mut command, ready) = service(home, name);
    ready.start(command.args(arguments).stderr(Stdio::null())).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_token_is_valid_with_old_token_and_then_alone() {
    let home = Home::default();
    mount(&home, "..1", OLD);
    symlink(Path::new("..data/tokens"), home.path().join(FILE)).unwrap();
    let (_registry, registry) = serve(&home, "registry", &["--token-file", FILE]).await;
    let url = format!("http://{registry}");
    let to_registry = ["--registry-url", &url, "--registry-token-file", FILE];
    let own = ["--operator-token-file", FILE, "--require-token", "--data-dir", "data"];
    let (_supervisor, supervisor) = serve(&home, "supervisor", &[&to_registry[..], &own].concat()).await;

    // Connections stay open when tokens change.
    let channel = client::endpoint(supervisor).connect().await.unwrap();
    let by = |token: &str| client::supervisor_over(channel.clone(), Some(token));
    let asks = async |token: &str| -> Answers {
        let sessions = by(token).list_sessions(ListSessionsRequest::default()).await;
        let mut catalogue = client::registry(registry, Some(token));
        let agents = catalogue.list_agents(ListAgentsRequest::default()).await;
        [
            sessions.map(drop).map_err(|status| status.code()),
            agents.map(drop).map_err(|status| status.code()),
        ]
    };
    let tree = Tree::open(by(OLD), CreateSessionRequest::default()).await;
    let broken = format!("{NEW}\nshort\n");
    for (version, text, old, new) in [
        ("..2", OLD.to_owned(), WELCOME, REFUSED),
        ("..3", format!("{OLD}\n{NEW}\n"), WELCOME, WELCOME),
        ("..4", String::new(), WELCOME, WELCOME),
        ("..5", broken, WELCOME, WELCOME),
        ("..6", format!("\n{NEW}\n  {OLD}\n"), WELCOME, WELCOME),
        ("..7", NEW.to_owned(), REFUSED, WELCOME),
    ] {
        mount(&home, version, &text);
        assert_eq!(asks(OLD).await, old, "{version}");
        assert_eq!(asks(NEW).await, new, "{version}");
        // For a spawn, the supervisor calls the registry with the first token of the file.
        let known = if old == WELCOME { OLD } else { NEW };
        tree.by(by(known)).spawn("worker").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_line_sends_first_token_of_file() {
    let home = Home::default();
    mount(&home, "..1", OLD);
    symlink(Path::new("..data/tokens"), home.path().join(FILE)).unwrap();
    let arguments = ["--operator-token-file", FILE, "--require-token", "--data-dir", "data"];
    let (_supervisor, supervisor) = serve(&home, "supervisor", &arguments).await;
    let url = format!("http://{supervisor}");
    for (text, succeeds) in [(format!("\n{OLD}\n{NEW}\n"), true), (format!("{NEW}\n{OLD}\n"), false)] {
        let shown = home.path().join("shown");
        fs::write(&shown, text).unwrap();
        let arguments = ["ps", "--supervisor", &url, "--token-file", shown.to_str().unwrap()];
        let output = home.run(&arguments).await;
        assert_eq!(output.status.success(), succeeds, "{output:?}");
    }
}
