//! The rate at which a runner without programs ends items of a group, from the creation of the group to its end.

use std::time::{Duration, Instant};

use troupe_proto::supervisor::v1::{
    CreateGroupRequest, CreateSessionRequest, GetGroupRequest, GroupItem, GroupState, Limits, SpawnAgentRequest,
};
use troupe_tests::{client, tree::Tree};

use crate::{
    commits::{APPEND, Commits},
    figure::{Chapter, Figure},
    plan::Plan,
    samples::median,
    served::{Served, Upkeep},
    turns::Worker,
};

/// Number of items that run at the same time.
const CONCURRENCY: u32 = 64;

/// The rates of one group, in items per second.
struct Run {
    items: f64,
    /// The rate if each item cost no more than the commits of its events.
    committed: f64,
}

pub(crate) async fn run(plan: Plan) -> Chapter {
    let registry = Served::registry(None).await;
    let supervisor = Served::supervisor(registry.address, Upkeep::Usual).await;
    let _worker = Worker::attach(supervisor.address).await;
    let commits = Commits::beside_log(supervisor.data());
    let mut figures = Vec::new();
    for items in plan.groups {
        let mut runs = Vec::new();
        for _ in 0..plan.rounds.min(3) {
            runs.push(group(&supervisor, &commits, *items).await);
        }
        let typical = |rate: fn(&Run) -> f64| median(&runs.iter().map(rate).collect::<Vec<_>>());
        let figure = Figure::new(format!("{items} items"), typical(|run| run.items), "items/s");
        let figure = figure.against("commits by SQLite alone", typical(|run| run.committed));
        figures.push(figure.value_at_least(300.0));
    }
    Chapter {
        title: "Groups",
        how: format!(
            "From CreateGroup to the end of the group, with {CONCURRENCY} concurrent items; the runner ends each turn \
             immediately. Each item is a spawn with a call of the registry, a turn, and a close. The floor commits \
             the same events, {APPEND} at a time. Medians of at most 3 rounds."
        ),
        figures,
    }
}

async fn group(supervisor: &Served, commits: &Commits, items: usize) -> Run {
    let client = client::supervisor(supervisor.address, None);
    let request = CreateSessionRequest {
        limits: Some(Limits {
            max_threads: Some(CONCURRENCY),
            ..Limits::default()
        }),
        ..CreateSessionRequest::default()
    };
    let tree = Tree::open(client, request).await;
    let before = tree.head().await;
    let item = |number: usize| GroupItem {
        key: number.to_string(),
        ..GroupItem::default()
    };
    let request = CreateGroupRequest {
        session_id: tree.session.clone(),
        template: Some(SpawnAgentRequest {
            agent_type: String::from("worker"),
            message: Some(String::from("Do {key}.")),
            ..SpawnAgentRequest::default()
        }),
        items: (0..items).map(item).collect(),
        max_concurrency: CONCURRENCY,
        ..CreateGroupRequest::default()
    };
    let start = Instant::now();
    let created = tree.client().create_group(request).await.unwrap().into_inner();
    let group_id = created.group.unwrap().spec.unwrap().group_id;
    let ended = loop {
        let request = GetGroupRequest {
            session_id: tree.session.clone(),
            group_id: group_id.clone(),
            wait: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
            ..GetGroupRequest::default()
        };
        let group = tree
            .client()
            .get_group(request)
            .await
            .unwrap()
            .into_inner()
            .group
            .unwrap();
        if matches!(group.state(), GroupState::Succeeded | GroupState::Failed) {
            break group;
        }
    };
    let took = start.elapsed();
    assert_eq!(ended.succeeded as usize, items, "{ended:?}");

    let committed = commits.of_events(&tree, before).await;
    tree.end().await;
    let rate = |time: Duration| items as f64 / time.as_secs_f64();
    Run {
        items: rate(took),
        committed: rate(committed),
    }
}
