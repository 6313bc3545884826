//! An operator's calls while hostile clients hold as many calls and connections as possible, and calls for a project
//! while another project's templates are alias bombs.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use futures::stream;
use tokio::{task::JoinSet, time::sleep};
use tonic::{
    Request,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};
use troupe_proto::{
    registry::v1::ListAgentsRequest,
    supervisor::v1::{GetSessionRequest, WaitAgentsRequest},
};
use troupe_tests::{client, tree::Tree};

use crate::{
    figure::{Chapter, Figure},
    opaque::AsIs,
    plan::Plan,
    samples::{Samples, millis},
    served::Served,
};

/// A method that each thread may call for itself.
const METHOD: &str = "/troupe.supervisor.v1.AgentSupervisorService/GetThread";
/// Delay before a rejected call is repeated or a closed connection is opened again.
const REPEAT: Duration = Duration::from_secs(1);
/// Connections of each hostile thread.
const CONNECTIONS: usize = 3;
/// A valid template of the project that is not attacked.
const ROLE: &str = "---\ndescription: Answers.\n---\nAnswer the question.\n";

pub(crate) async fn run(plan: Plan) -> Chapter {
    let mut figures = calls_of_threads(plan).await;
    figures.extend(connections_of_strangers(plan).await);
    figures.extend(alias_bombs(plan).await);
    Chapter {
        title: "Attacks",
        how: format!(
            "The services have their default limits. An operator calls GetSession {} times, one call after the other, \
             and then closes a thread over a new connection. At the same time, either two threads open {} calls each \
             and repeat rejected calls each second (half are waits of 30 minutes, half never send their message), or \
             {} connections without a token answer pings and are opened again when they are closed. For the last \
             figures a client lists the agents of a project whose neighbour has {} templates that are alias bombs, \
             which change before each call of the neighbour. The writes alone take one processor, so the slowest \
             calls are compared with calls next to the same writes in a directory that the registry does not read.",
            plan.calls, plan.hostile_calls, plan.strangers, plan.bombs,
        ),
        figures,
    }
}

/// Measures attack 1: two threads with thousands of open calls each.
async fn calls_of_threads(plan: Plan) -> Vec<Figure> {
    let registry = Served::registry(None).await;
    let supervisor = Served::guarded_supervisor(registry.address).await;
    let at = supervisor.address;
    let mut attack = JoinSet::new();
    let tree = supervisor.tree().await;
    for tree in [&tree, &supervisor.tree().await] {
        let child = tree.spawn("worker").await.id;
        for number in 0..CONNECTIONS {
            let channel = client::endpoint(at).connect().await.unwrap();
            let calls = plan.hostile_calls / CONNECTIONS;
            for call in 0..calls {
                let (channel, token, child) = (channel.clone(), tree.root_token.clone(), child.clone());
                if (number + call).is_multiple_of(2) {
                    attack.spawn(wait_for_ever(channel, token, child));
                } else {
                    attack.spawn(send_no_message(channel, token));
                }
            }
        }
    }
    let under_attack = operate(&tree, at, plan, "2 threads").await;
    attack.shutdown().await;
    under_attack
}

/// Measures attack 2: connections that never send a token.
async fn connections_of_strangers(plan: Plan) -> Vec<Figure> {
    let registry = Served::registry(None).await;
    let supervisor = Served::guarded_supervisor(registry.address).await;
    let at = supervisor.address;
    let tree = supervisor.tree().await;
    let mut attack = JoinSet::new();
    for _ in 0..plan.strangers {
        attack.spawn(async move {
            loop {
                let open = client::endpoint(at).connect().await;
                // The client answers pings in the background. A closed connection is no longer ready.
                if let Ok(channel) = open {
                    let mut grpc = Grpc::new(channel);
                    while grpc.ready().await.is_ok() {
                        sleep(REPEAT).await;
                    }
                }
                sleep(REPEAT).await;
            }
        });
    }
    sleep(REPEAT).await;
    let under_attack = operate(&tree, at, plan, "strangers").await;
    attack.shutdown().await;
    under_attack
}

/// Measures calls for a project in three cases: alone, while files are written that the registry does not read, and
/// while another project with expensive templates changes and is read.
async fn alias_bombs(plan: Plan) -> [Figure; 3] {
    let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let root = fs::canonicalize(directory.path()).unwrap();
    let [quiet, hostile] = ["quiet", "hostile"].map(|name| {
        let project = root.join(name);
        fs::create_dir_all(project.join(".git")).unwrap();
        fs::create_dir_all(project.join(".codex/.agents")).unwrap();
        project
    });
    fs::write(quiet.join(".codex/.agents/answerer.md"), ROLE).unwrap();
    let registry = Served::registry(Some(&root)).await;
    let list = |project: String| {
        let mut registry = client::registry(registry.address, None);
        async move {
            let request = ListAgentsRequest {
                cwd: project,
                allow_partial: true,
                ..ListAgentsRequest::default()
            };
            registry.list_agents(request).await.unwrap();
        }
    };
    let measure = async || {
        let mut times = Vec::with_capacity(plan.calls);
        for _ in 0..plan.calls {
            let start = Instant::now();
            list(quiet.display().to_string()).await;
            times.push(start.elapsed());
        }
        Samples(times)
    };
    let change = |directory: PathBuf, version| {
        let write = move || (0..plan.bombs).for_each(|number| write_bomb(&directory, number, version));
        tokio::task::spawn_blocking(write)
    };
    let alone = measure().await;
    let writes = async {
        for version in 0.. {
            change(elsewhere.path().to_owned(), version).await.unwrap();
        }
    };
    let next_to_writes = tokio::select! {
        times = measure() => times,
        () = writes => unreachable!("the writes do not end"),
    };
    let attack = async {
        for version in 0.. {
            change(hostile.join(".codex/.agents"), version).await.unwrap();
            list(hostile.display().to_string()).await;
        }
    };
    let attacked = tokio::select! {
        times = measure() => times,
        () = attack => unreachable!("the attack does not end"),
    };
    let figure = |name, part, reference, against: &Samples| {
        Figure::new(name, millis(attacked.quantile(part)), "ms").against(reference, millis(against.quantile(part)))
    };
    [
        figure("ListAgents next to alias bombs, median", 0.5, "alone", &alone).at_most(2.0),
        figure("ListAgents next to alias bombs, p99", 0.99, "alone", &alone),
        figure(
            "ListAgents next to alias bombs, p99",
            0.99,
            "next to the writes",
            &next_to_writes,
        )
        .at_most(2.0),
    ]
}

/// Writes an alias bomb of about 400 bytes.
fn write_bomb(directory: &Path, number: usize, version: usize) {
    let mut text = format!("---\n# {version}\na0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let alias = format!("*a{}", level - 1);
        text += &format!("a{level}: &a{level} [{}]\n", [alias.as_str(); 9].join(", "));
    }
    text += "description: *a8\n---\nText.\n";
    fs::write(directory.join(format!("bomb-{number}.md")), text).unwrap();
}

/// Measures an operator's reads, then closes a thread over a new connection.
async fn operate(tree: &Tree, at: SocketAddr, plan: Plan, attack: &str) -> Vec<Figure> {
    let doomed = tree.spawn("worker").await.id;
    let mut operator = tree.client();
    let mut times = Vec::with_capacity(plan.calls);
    for _ in 0..plan.calls {
        let request = GetSessionRequest {
            session_id: tree.session.clone(),
        };
        let start = Instant::now();
        operator.get_session(request).await.unwrap();
        times.push(start.elapsed());
    }
    let start = Instant::now();
    tree.by(client::supervisor(at, None)).close(&doomed).await;
    let closed = millis(start.elapsed());
    vec![
        Figure::new(
            format!("GetSession, {attack}, p99"),
            millis(Samples(times).quantile(0.99)),
            "ms",
        )
        .at_most(50.0),
        Figure::new(format!("CloseAgent, {attack}"), closed, "ms"),
    ]
}

async fn wait_for_ever(channel: Channel, token: String, child: String) {
    let mut client = client::supervisor_over(channel, Some(&token));
    loop {
        let request = WaitAgentsRequest {
            thread_ids: vec![child.clone()],
            timeout: Some(prost_types::Duration {
                seconds: 30 * 60,
                nanos: 0,
            }),
            ..WaitAgentsRequest::default()
        };
        let _ = client.wait_agents(request).await;
        sleep(REPEAT).await;
    }
}

/// Opens calls that send their headers and never their message.
async fn send_no_message(channel: Channel, token: String) {
    let bearer: MetadataValue<Ascii> = format!("Bearer {token}").parse().unwrap();
    loop {
        let mut grpc = Grpc::new(channel.clone());
        grpc.ready().await.unwrap();
        let mut request = Request::new(stream::pending());
        request.metadata_mut().insert("authorization", bearer.clone());
        let _ = grpc
            .client_streaming(request, PathAndQuery::from_static(METHOD), AsIs)
            .await;
        sleep(REPEAT).await;
    }
}
