//! What a runner and its supervisor cost while the agents that they look after do nothing.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use troupe_proto::supervisor::v1::CreateSessionRequest;
use troupe_tests::{client, tree::Tree};

use crate::{
    Plan,
    served::{self, Served},
    table,
};

/// Agents at once.
const THREADS: usize = 12;

pub(crate) async fn run(plan: Plan) {
    let registry = served::registry().await;
    let supervisor = Served::supervisor(registry).await;
    let runner = Served::runner(supervisor.address).await;
    let tree = Tree::open(
        client::supervisor(supervisor.address, None),
        CreateSessionRequest::default(),
    )
    .await;
    for _ in 0..THREADS {
        let request = tree.request("worker");
        let held = troupe_proto::supervisor::v1::SpawnAgentRequest {
            message: Some(String::from("hold")),
            ..request
        };
        tree.try_spawn(held).await.unwrap();
    }
    while tree
        .threads()
        .await
        .iter()
        .filter(|thread| thread.activity == "holding")
        .count()
        < THREADS
    {
        sleep(Duration::from_millis(20)).await;
    }
    // What starting them left to do is done.
    sleep(plan.rest).await;

    let both = [&supervisor, &runner];
    let spent = || both.map(Served::processor_time);
    let (before, since) = (spent(), Instant::now());
    sleep(plan.rest * 4).await;
    let (after, took) = (spent(), since.elapsed());

    println!("## {THREADS} agents that do nothing\n");
    println!(
        "Processor time within {:.0} s, as a part of one core, and resident memory.\n",
        took.as_secs_f64()
    );
    let rows = ["supervisor", "runner"].map(|name| name.to_owned());
    let rows: Vec<[String; 3]> = rows
        .into_iter()
        .zip(before.into_iter().zip(after))
        .zip(both)
        .map(|((name, times), process)| {
            let part = match times {
                (Some(before), Some(after)) => table::percent(after - before, took),
                _ => String::from("-"),
            };
            let memory = process.resident().map(|kib| format!("{:.1}", kib as f64 / 1024.0));
            [name, part, memory.unwrap_or_else(|| String::from("-"))]
        })
        .collect();
    table::print(["process", "of one core", "resident, MiB"], &rows);
}
