//! Closing a whole tree at once. The cost per thread must not depend on the number of threads.

use std::time::{Duration, Instant};

use troupe_proto::supervisor::v1::CloseSessionRequest;

use crate::{
    commits::{APPEND, Commits},
    figure::{Chapter, Figure},
    plan::Plan,
    samples::{median, millis},
    served::{Served, Upkeep},
};

/// The duration of a cascade and of its floor.
struct Cascade {
    took: Duration,
    /// The duration of commits with the same number and sizes as the cascade's appends.
    committed: Duration,
}

pub(crate) async fn run(plan: Plan) -> Chapter {
    let registry = Served::registry(None).await;
    let supervisor = Served::supervisor(registry.address, Upkeep::Usual).await;
    let commits = Commits::beside_log(supervisor.data());
    let mut figures = Vec::new();
    for levels in plan.levels {
        let threads = 10_u32.pow(*levels);
        let mut cascades = Vec::new();
        for _ in 0..plan.rounds {
            cascades.push(close(&supervisor, &commits, *levels).await);
        }
        let each = |time: fn(&Cascade) -> Duration| {
            let times: Vec<Duration> = cascades.iter().map(time).collect();
            millis(median(&times)) * 1e3 / f64::from(threads)
        };
        let figure = Figure::new(format!("{threads} threads, each"), each(|cascade| cascade.took), "µs");
        figures.push(figure.against("commits by SQLite alone", each(|cascade| cascade.committed)));
    }
    Chapter {
        title: "Closing a session",
        how: format!(
            "The duration of CloseSession with `wait`, divided by the number of threads; no runner is attached. The \
             floor commits the same events, {APPEND} at a time. Medians of {} rounds.",
            plan.rounds
        ),
        figures,
    }
}

async fn close(supervisor: &Served, commits: &Commits, levels: u32) -> Cascade {
    let tree = supervisor.tree().await;
    tree.grow(levels).await;
    let before = tree.head().await;
    let request = CloseSessionRequest {
        session_id: tree.session.clone(),
        wait: true,
        ..CloseSessionRequest::default()
    };
    let start = Instant::now();
    let answer = tree.client().close_session(request).await.unwrap();
    let took = start.elapsed();
    assert!(answer.into_inner().session.unwrap().closed);
    Cascade {
        took,
        committed: commits.of_events(&tree, before).await,
    }
}
