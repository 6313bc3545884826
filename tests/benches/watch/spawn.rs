//! A spawn against the least that one can cost: two hops and one durable commit, of the same sizes, in the same run.

use std::time::{Duration, Instant};

use prost::Message as _;
use troupe_proto::{
    registry::v1::ResolveSpawnRequest,
    supervisor::v1::{CreateSessionRequest, event::Kind},
};
use troupe_tests::{
    client::{self, endpoint},
    tree::Tree,
};

use crate::{
    Plan, echo,
    floor::Sizes,
    served::{self, Served},
    table::{self, median, millis, percent, quantile},
};

const ROLE: &str = "worker";

pub(crate) async fn run(plan: Plan) {
    let registry = served::registry().await;
    let supervisor = Served::supervisor(registry).await;
    let client = client::supervisor(supervisor.address, None);
    let tree = Tree::open(client, CreateSessionRequest::default()).await;

    let question = ResolveSpawnRequest {
        agent_type: Some(ROLE.to_owned()),
        ..ResolveSpawnRequest::default()
    };
    let resolved = client::registry(registry, None).resolve_spawn(question.clone()).await;
    let resolved = resolved.unwrap().into_inner().encoded_len();
    let request = tree.request(ROLE);
    let head = tree.head().await;
    let answer = tree.try_spawn(request.clone()).await.unwrap();
    let event = tree.watch_after(head).await.event().await;
    assert!(matches!(event.kind, Some(Kind::ThreadSpawned(_))));

    let sizes = Sizes {
        question: question.encoded_len(),
        row: event.encoded_len(),
        answer: answer.encoded_len(),
    };
    let echo = echo::Served::start(echo::message(resolved)).await;
    let floor = Served::floor(echo.address, sizes).await;
    let channel = endpoint(floor.address).connect_lazy();
    let asked = echo::sent(request.encoded_len());

    let (mut least, mut spawned) = (Vec::new(), Vec::new());
    // In turns, so that whatever slows the machine down slows both.
    for _ in 0..plan.rounds {
        let mut times = Vec::new();
        for _ in 0..plan.spawns {
            let start = Instant::now();
            let answered = echo::call(channel.clone(), echo::PATH, asked.clone()).await;
            times.push(start.elapsed());
            assert_eq!(answered.len(), sizes.answer);
        }
        least.push(sorted(times));
        let mut times = Vec::new();
        for _ in 0..plan.spawns {
            let start = Instant::now();
            tree.try_spawn(request.clone()).await.unwrap();
            times.push(start.elapsed());
        }
        spawned.push(sorted(times));
    }

    println!("## SpawnAgent against two hops and a commit\n");
    println!(
        "One call at a time, {} a round, medians of {} rounds; {} bytes asked, {} resolved, {} committed, {} \
         answered.\n",
        plan.spawns,
        plan.rounds,
        request.encoded_len(),
        resolved,
        sizes.row,
        sizes.answer
    );
    let at = |rounds: &[Vec<Duration>], part| {
        let each: Vec<Duration> = rounds.iter().map(|times| quantile(times, part)).collect();
        median(&each)
    };
    let row = |what: &str, rounds: &[Vec<Duration>]| {
        [
            what.to_owned(),
            millis(at(rounds, 0.5)),
            millis(at(rounds, 0.99)),
            percent(at(rounds, 0.5), at(&least, 0.5)),
        ]
    };
    table::print(
        ["service", "p50, ms", "p99, ms", "p50 of the floor's"],
        &[row("two raw hops and a commit", &least), row("SpawnAgent", &spawned)],
    );
}

fn sorted(mut times: Vec<Duration>) -> Vec<Duration> {
    times.sort_unstable();
    times
}
