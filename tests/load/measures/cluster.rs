//! Several supervisors over one PostgreSQL database: the additional time of a forwarded call, the time of a move, and
//! the cost of a spawn with one, two and three supervisors.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use troupe_proto::supervisor::v1::{GetSessionRequest, ListMembersRequest, MoveSessionRequest};
use troupe_tests::{client, postgres_server::Server, tree::Tree};

use crate::{
    figure::{Chapter, Figure},
    plan::Plan,
    samples::{Samples, median, millis},
    served::Served,
};

/// Maximum number of supervisors.
const MEMBERS: usize = 3;

pub(crate) async fn run(plan: Plan) -> Chapter {
    let server = Server::start(&[]);
    let registry = Served::registry(None).await;
    // Supervisors that share nothing, to measure the overhead of the cluster at the same load of the machine.
    let mut separate = Vec::new();
    for _ in 0..MEMBERS {
        separate.extend(start(&server, &registry, 1).await);
    }
    let (two, members) = (
        start(&server, &registry, 2).await,
        start(&server, &registry, MEMBERS).await,
    );
    let mut costs: [Vec<f64>; 4] = Default::default();
    // Alternately, because the speed of a machine changes within minutes.
    for _ in 0..plan.rounds {
        for one in &separate {
            costs[0].push(cost(plan, &[std::slice::from_ref(one)]).await);
        }
        costs[1].push(cost(plan, &[&two]).await);
        costs[2].push(cost(plan, &[&members]).await);
        let apart: Vec<&[Served]> = separate.iter().map(std::slice::from_ref).collect();
        costs[3].push(cost(plan, &apart).await);
    }
    let [one, two, three, apart] = costs.map(|costs| median(&costs));
    let time = |who: &str, cost| Figure::new(format!("processor time of 1,000 spawns, {who}"), cost, "s");
    let mut figures = vec![
        time("one supervisor", one),
        time("2 supervisors", two).against("one supervisor", one),
        time("3 supervisors", three).against("one supervisor", one),
        time("3 supervisors", three)
            .against("3 separate supervisors at the same time", apart)
            .at_most(1.5),
    ];
    figures.extend(forwarding(plan, &members).await);
    figures.push(moves(plan, &members).await);
    let (sessions, spawns) = plan.cluster;
    Chapter {
        title: "Several supervisors",
        how: format!(
            "Supervisors over one PostgreSQL server on the same machine and disk, reached over a Unix socket, without \
             standbys. Spawns: each supervisor has {sessions} concurrent sessions with {spawns} spawns each. The \
             calls are distributed evenly over the supervisors of a cluster, so that two of three supervisors forward \
             them. The processor time is the supervisors', the median of {} rounds. Separate supervisors have one \
             database each and share only the machine. Calls: one caller makes {} calls, alternately to the owner of \
             the session and to another supervisor. Moves: MoveSession from one supervisor to the next.",
            plan.rounds, plan.calls
        ),
        figures,
    }
}

/// Starts supervisors over a new database and waits until they know each other.
async fn start(server: &Server, registry: &Served, count: usize) -> Vec<Served> {
    let url = server.url("postgres", &server.create_database());
    let mut members = Vec::new();
    for _ in 0..count {
        members.push(Served::supervisor_with(&url, registry.address).await);
    }
    for member in &members {
        let mut client = client::supervisor(member.address, None);
        let mut known = 0;
        while known < count {
            let listed = client.list_members(ListMembersRequest {}).await.unwrap().into_inner();
            known = listed.members.len();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    members
}

/// Returns the processor time of 1,000 spawns, in seconds. The clusters work at the same time.
async fn cost(plan: Plan, clusters: &[&[Served]]) -> f64 {
    let (sessions, spawns) = plan.cluster;
    let all = || clusters.iter().copied().flatten();
    let spent = || -> Duration { all().filter_map(Served::processor_time).sum() };
    let sessions = sessions * all().count();
    let mut trees = Vec::new();
    for index in 0..sessions {
        let members = clusters[index % clusters.len()];
        let owner = &members[index / clusters.len() % members.len()];
        let tree = owner.tree().await;
        let through: Vec<Tree> = members
            .iter()
            .map(|member| tree.by(client::supervisor(member.address, None)))
            .collect();
        for tree in &through {
            tree.spawn("worker").await;
        }
        trees.push(through);
    }
    let before = spent();
    let mut spawning = JoinSet::new();
    for through in trees {
        spawning.spawn(async move {
            for number in 0..spawns {
                through[number % through.len()].spawn("worker").await;
            }
        });
    }
    spawning.join_all().await;
    let thousands = (sessions * spawns) as f64 / 1e3;
    (spent() - before).as_secs_f64() / thousands
}

/// Compares calls to the owner with calls through another supervisor.
async fn forwarding(plan: Plan, members: &[Served]) -> Vec<Figure> {
    let owner = members[0].tree().await;
    let other = owner.by(client::supervisor(members[1].address, None));
    let (mut direct, mut forwarded) = (Vec::new(), Vec::new());
    let (mut direct_spawns, mut forwarded_spawns) = (Vec::new(), Vec::new());
    for number in 0..plan.calls {
        for (tree, reads, spawns) in [
            (&owner, &mut direct, &mut direct_spawns),
            (&other, &mut forwarded, &mut forwarded_spawns),
        ] {
            let request = GetSessionRequest {
                session_id: tree.session.clone(),
            };
            let begun = Instant::now();
            tree.client().get_session(request).await.unwrap();
            reads.push(begun.elapsed());
            if number % 4 == 0 {
                let begun = Instant::now();
                tree.spawn("worker").await;
                spawns.push(begun.elapsed());
            }
        }
    }
    let half = |samples: Vec<Duration>| millis(Samples(samples).quantile(0.5));
    let (direct, forwarded) = (half(direct), half(forwarded));
    let (direct_spawn, forwarded_spawn) = (half(direct_spawns), half(forwarded_spawns));
    vec![
        Figure::new("GetSession through another supervisor, p50", forwarded, "ms").against("its owner", direct),
        Figure::new("added to GetSession by forwarding, p50", forwarded - direct, "ms").value_at_most(0.5),
        Figure::new("SpawnAgent through another supervisor, p50", forwarded_spawn, "ms")
            .against("its owner", direct_spawn),
    ]
}

/// Measures moves of a session between supervisors.
async fn moves(plan: Plan, members: &[Served]) -> Figure {
    let tree = members[0].tree().await;
    let listed = tree.client().list_members(ListMembersRequest {}).await.unwrap();
    let names: Vec<String> = listed
        .into_inner()
        .members
        .into_iter()
        .map(|member| member.name)
        .collect();
    let mut durations = Vec::new();
    for number in 0..plan.moves {
        let request = MoveSessionRequest {
            session_id: tree.session.clone(),
            name: names[number % names.len()].clone(),
        };
        let begun = Instant::now();
        tree.client().move_session(request).await.unwrap();
        durations.push(begun.elapsed());
        tree.spawn("worker").await;
    }
    let nearly_all = millis(Samples(durations).quantile(0.99));
    Figure::new("a move of a session, p99", nearly_all, "ms").value_at_most(100.0)
}
