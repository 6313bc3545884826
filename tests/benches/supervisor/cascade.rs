//! Closing a whole tree at once: what each thread of it costs must not depend on how many there are.

use std::time::{Duration, Instant};

use troupe_proto::supervisor::v1::{CloseSessionRequest, CreateSessionRequest};
use troupe_tests::{client, tree::Tree};

use crate::{
    Plan,
    served::{self, Served},
    table::{self, median, millis, percent},
};

pub(crate) async fn run(plan: Plan) {
    let registry = served::registry().await;
    let supervisor = Served::supervisor(registry).await;
    let mut sizes: Vec<(u32, Duration)> = Vec::new();
    for levels in plan.levels {
        let mut times = Vec::new();
        for _ in 0..plan.rounds {
            times.push(close(&supervisor, *levels).await);
        }
        sizes.push((10_u32.pow(*levels), median(&times)));
    }

    println!("## Closing a session\n");
    println!(
        "From CloseSession with `wait` to its answer; no runner is attached. Medians of {} rounds.\n",
        plan.rounds
    );
    let (fewest, shortest) = sizes[0];
    let rows: Vec<[String; 4]> = sizes
        .iter()
        .map(|(threads, whole)| {
            let each = *whole / *threads;
            [
                threads.to_string(),
                millis(*whole),
                format!("{:.1}", each.as_secs_f64() * 1e6),
                percent(each, shortest / fewest),
            ]
        })
        .collect();
    table::print(["threads", "all, ms", "each, µs", "of the first"], &rows);
}

async fn close(supervisor: &Served, levels: u32) -> Duration {
    let client = client::supervisor(supervisor.address, None);
    let tree = Tree::open(client, CreateSessionRequest::default()).await;
    tree.grow(levels).await;
    let request = CloseSessionRequest {
        session_id: tree.session.clone(),
        wait: true,
        ..CloseSessionRequest::default()
    };
    let start = Instant::now();
    let answer = tree.client().close_session(request).await.unwrap();
    let took = start.elapsed();
    assert!(answer.into_inner().session.unwrap().closed);
    took
}
