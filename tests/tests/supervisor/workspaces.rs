//! Sessions with uploaded templates: the supervisor keeps the bundles and uploads them again to a registry that has
//! lost them, without visible effects.

use std::{fmt::Debug, io, net::SocketAddr, path::Path, sync::Arc};

use supervisor_log::store::MemoryStore;
use supervisor_svc::{Config, LookUp, PeerConnector, RegistryClient, Supervisor, Surroundings, clock::Clock};
use svc_kit::{
    auth::{Authenticator, Trust},
    serve::ServeLimits,
    shutdown::Shutdown,
};
use tokio::net::TcpListener;
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};
use troupe_client::tls::ClientFiles;
use troupe_proto::{
    MAX_WORKSPACE_MESSAGE_BYTES,
    common::v1::Scope,
    reason::Reason,
    registry::v1::{GetWorkspaceRequest, PutWorkspaceRequest, WorkspaceFile},
    supervisor::v1::{CreateSessionRequest, ListSessionsRequest, ListSpawnableAgentsRequest},
};
use troupe_tests::{
    client,
    pair::{OPERATOR, Pair, RUNNER, SERVICE, VIEWER},
    refusal::{not_permitted, refused},
    tree::Tree,
    within,
};

fn role(name: &str, prompt: &str) -> WorkspaceFile {
    WorkspaceFile {
        scope: Scope::Project.into(),
        path: format!(".codex/.agents/{name}.md"),
        content: format!("---\ndescription: {name}\n---\n{prompt}\n").into(),
    }
}

/// Uploads a bundle and returns its digest from the registry.
async fn put(pair: &Pair, files: Vec<WorkspaceFile>) -> String {
    let request = PutWorkspaceRequest {
        files,
        request_id: String::new(),
    };
    let answer = within("an upload", pair.registry(OPERATOR).put_workspace(request)).await;
    answer.unwrap().into_inner().workspace_digest
}

/// Reads a bundle from the registry with a token.
async fn get(pair: &Pair, token: &str, digest: &str) -> Result<Vec<WorkspaceFile>, Status> {
    let request = GetWorkspaceRequest {
        workspace_digest: digest.to_owned(),
    };
    let mut registry = pair
        .registry(token)
        .max_decoding_message_size(MAX_WORKSPACE_MESSAGE_BYTES);
    let answer = within("a bundle", registry.get_workspace(request)).await?;
    Ok(answer.into_inner().files)
}

/// Returns the request of a session over a bundle.
fn over(digest: &str) -> CreateSessionRequest {
    CreateSessionRequest {
        workspace_digest: digest.to_owned(),
        ..CreateSessionRequest::default()
    }
}

/// Replaces the registry with a registry without bundles.
async fn forget(pair: &mut Pair, digest: &str) {
    pair.stop_registry().await;
    pair.start_registry().await;
    refused_as_unknown(get(pair, OPERATOR, digest).await);
}

/// Checks that a call was rejected because the registry does not have the bundle.
#[track_caller]
fn refused_as_unknown<T: Debug>(answer: Result<T, Status>) {
    let text = "upload it with PutWorkspace";
    refused(answer, Code::FailedPrecondition, Reason::WorkspaceUnknown, text);
}

/// Returns the roles that the root may spawn.
async fn spawnable(tree: &Tree) -> Vec<String> {
    let request = ListSpawnableAgentsRequest {
        session_id: tree.session.clone(),
        ..ListSpawnableAgentsRequest::default()
    };
    let answer = within("the roles", tree.client().list_spawnable_agents(request)).await;
    let agents = answer.unwrap().into_inner().agents;
    agents.into_iter().map(|agent| agent.agent_type).collect()
}

/// Returns the text in which the root's tools describe the roles.
async fn described(tree: &Tree) -> String {
    let tools = tree.tools("").await;
    let texts = tools.into_iter().map(|tool| tool.description + &tool.input_schema_json);
    texts.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_bundle_is_uploaded_again() {
    let mut pair = Pair::start().await;
    let files = vec![role("clerk", "You file."), role("scribe", "You write.")];
    let digest = put(&pair, files.clone()).await;
    let tree = pair.tree_with(over(&digest)).await;
    assert_eq!(tree.now().await.workspace_digest, digest);
    let clerk = tree.spawn("clerk").await;
    let source = clerk.thread.source.unwrap();
    assert_eq!(source.path, "project:.codex/.agents/clerk.md");

    forget(&mut pair, &digest).await;
    tree.spawn("scribe").await;
    assert_eq!(get(&pair, OPERATOR, &digest).await.unwrap(), files);

    // The other calls to the registry upload the bundle again too.
    forget(&mut pair, &digest).await;
    let roles = spawnable(&tree).await;
    assert!(roles.contains(&String::from("clerk")), "{roles:?}");
    forget(&mut pair, &digest).await;
    let text = described(&tree).await;
    assert!(text.contains("scribe"), "{text}");

    // Stored bundles outlive the supervisor as well.
    let tree = tree.after_restart(&mut pair).await;
    tree.spawn("clerk").await;
    assert_eq!(get(&pair, OPERATOR, &digest).await.unwrap(), files);
}

/// A host name that resolves to these addresses.
struct Name(Vec<SocketAddr>);

impl LookUp for Name {
    async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        Ok(self.0.clone())
    }
}

/// Starts a supervisor over the registries of these pairs. It runs until the test ends.
async fn over_registries_of(pairs: &[Pair], keys: &Path) -> client::Supervisor {
    let name = Name(pairs.iter().map(Pair::registry_at).collect());
    let channel = |at: SocketAddr| -> Channel { Endpoint::from_shared(format!("http://{at}")).unwrap().connect_lazy() };
    let (token, clock) = (Some(SERVICE.parse().unwrap()), Clock::system());
    let registry = RegistryClient::over(|| channel(name.0[0]), String::from("registries"), token, clock.clone());
    registry.look_up(&name, channel).await;
    let surroundings = Surroundings {
        store: Arc::new(MemoryStore::new().unwrap()),
        registry,
        peers: PeerConnector::new(ClientFiles::default(), None),
        clock,
    };
    let config = Config::new(keys.to_owned(), String::new());
    let supervisor = Supervisor::over(surroundings, config).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let authenticator = Authenticator::new().trust(Trust::Loopback);
    let serving = supervisor.serve(listener, authenticator, ServeLimits::default(), Shutdown::new());
    tokio::spawn(async move { serving.await.unwrap() });
    client::supervisor(address, None)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bundles_are_found_while_several_registries_restart() {
    let mut pairs = [Pair::start().await, Pair::start().await, Pair::start().await];
    let keys = tempfile::tempdir().unwrap();
    let supervisor = over_registries_of(&pairs, keys.path()).await;

    // Uploads go to the registries in turn, and digests select registries at random.
    let mut trees = Vec::new();
    for number in 0..6 {
        let digest = put(
            &pairs[number % 3],
            vec![role("clerk", &format!("You are number {number}."))],
        )
        .await;
        trees.push(Tree::open(supervisor.clone(), over(&digest)).await);
    }
    for round in 0..4 {
        pairs[round % 3].stop_registry().await;
        for tree in &trees {
            tree.spawn("clerk").await;
        }
        pairs[round % 3].start_registry().await;
        for tree in &trees {
            tree.spawn("clerk").await;
        }
    }

    // No session stores this bundle, so it is lost with its registry. The client has to upload it again.
    let digest = put(&pairs[1], vec![role("scribe", "You write.")]).await;
    pairs[1].stop_registry().await;
    refused_as_unknown(supervisor.clone().create_session(over(&digest)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registry_error_is_returned_after_bundle_upload() {
    let mut pair = Pair::start().await;
    // The role exists only in the project on disk, which a session over a bundle does not read.
    pair.write_role("local", "---\ndescription: d\n---\nx\n");
    let digest = put(&pair, vec![role("clerk", "You file.")]).await;
    let tree = pair.tree_with(over(&digest)).await;
    for _ in 0..2 {
        let answer = tree.try_spawn(tree.request("local")).await;
        let text = "missing agent template: local";
        refused(answer, Code::NotFound, Reason::TemplateNotFound, text);
        forget(&mut pair, &digest).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_over_unknown_bundle_is_rejected() {
    let pair = Pair::start().await;
    let nowhere = "0".repeat(64);
    for digest in [nowhere.as_str(), "abc"] {
        for agent_type in ["", "worker"] {
            let request = CreateSessionRequest {
                agent_type: agent_type.to_owned(),
                ..over(digest)
            };
            refused_as_unknown(pair.operator().create_session(request).await);
        }
    }
    let sessions = pair.operator().list_sessions(ListSessionsRequest::default()).await;
    assert!(sessions.unwrap().into_inner().sessions.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retried_session_does_not_need_the_bundle() {
    let mut pair = Pair::start().await;
    let digest = put(&pair, vec![role("clerk", "You file.")]).await;
    let request = CreateSessionRequest {
        request_id: String::from("once"),
        agent_type: String::from("clerk"),
        ..over(&digest)
    };
    let first = Tree::open(pair.operator(), request.clone()).await;
    forget(&mut pair, &digest).await;
    let again = Tree::open(pair.operator(), request).await;
    assert_eq!((again.session, again.root), (first.session, first.root));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bundle_of_maximum_size_is_stored() {
    const FILES: usize = 2_000;
    let mut pair = Pair::start().await;
    // The maximum number of files, with the maximum total size of 16 MiB and the maximum length of each path.
    let content = "x".repeat(16 * 1024 * 1024 / FILES);
    let name = |number: usize| format!("dd/{}.codex/.agents/r{number:04}.md", "d/".repeat(2_035));
    let files = (0..FILES).map(|number| WorkspaceFile {
        scope: Scope::Project.into(),
        path: name(number),
        content: content.clone().into(),
    });
    assert_eq!(name(0).len(), 4_096);
    let digest = put(&pair, files.collect()).await;
    let tree = pair.tree_with(over(&digest)).await;
    forget(&mut pair, &digest).await;
    assert_eq!(tree.spawn("r1999").await.thread.agent_type, "r1999");
    assert_eq!(get(&pair, SERVICE, &digest).await.unwrap().len(), FILES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_principals_that_upload_bundles_can_read_them() {
    let pair = Pair::start().await;
    let digest = put(&pair, vec![role("clerk", "You file.")]).await;
    let tree = pair.tree_with(over(&digest)).await;
    let clerk = tree.spawn("clerk").await;
    for token in [OPERATOR, SERVICE] {
        assert_eq!(get(&pair, token, &digest).await.unwrap().len(), 1);
    }
    for (token, kind) in [(VIEWER, "operator (viewer)"), (RUNNER, "runner")] {
        let text = format!("a caller of kind {kind} may not call");
        let answer = get(&pair, token, &digest).await;
        not_permitted(answer, &text);
    }
    for token in [&clerk.token, &tree.root_token] {
        let answer = get(&pair, token, &digest).await;
        let text = "missing, malformed or stale";
        refused(answer, Code::Unauthenticated, Reason::Unauthenticated, text);
    }
}
