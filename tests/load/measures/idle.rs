//! The cost of a runner and its supervisor while their agents do nothing.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use troupe_tests::tree::Tree;

use crate::{
    figure::{Chapter, Figure},
    plan::Plan,
    served::{Served, Upkeep},
};

/// Number of concurrent agents.
const THREADS: usize = 12;

pub(crate) async fn run(plan: Plan) -> Chapter {
    let registry = Served::registry(None).await;
    let supervisor = Served::supervisor(registry.address, Upkeep::Usual).await;
    let runner = Served::runner(supervisor.address).await;
    let tree = supervisor.tree().await;
    for _ in 0..THREADS {
        tree.spawn_for("worker", "hold").await;
    }
    while !all_hold(&tree).await {
        sleep(Duration::from_millis(20)).await;
    }
    // Waits until background work of the start is finished.
    sleep(plan.rest).await;

    let both = [("supervisor", &supervisor), ("runner", &runner)];
    let spent = || both.map(|(_, process)| process.processor_time());
    let (before, since) = (spent(), Instant::now());
    sleep(plan.rest * 4).await;
    let (after, took) = (spent(), since.elapsed());

    let mut figures = Vec::new();
    for ((name, process), (before, after)) in both.into_iter().zip(before.into_iter().zip(after)) {
        if let (Some(before), Some(after)) = (before, after) {
            let part = (after - before).as_secs_f64() / took.as_secs_f64();
            figures.push(Figure::new(format!("{name}, of one core"), part * 100.0, "%"));
        }
        if let Some(resident) = process.resident() {
            figures.push(Figure::new(format!("{name}, resident"), resident / 1_024.0, "MiB"));
        }
    }
    Chapter {
        title: "Agents that do nothing",
        how: format!(
            "Processor time within {:.0} s, and memory, while {THREADS} agents of one runner run turns without any \
             activity.",
            took.as_secs_f64()
        ),
        figures,
    }
}

async fn all_hold(tree: &Tree) -> bool {
    let threads = tree.threads().await;
    threads.iter().filter(|thread| thread.activity == "holding").count() == THREADS
}
