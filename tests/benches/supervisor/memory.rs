//! What a watcher costs in memory of the supervisor.

use tokio::task::JoinSet;
use troupe_tests::crowd;

use crate::{
    Plan,
    served::{self, Served},
    session::Session,
    table,
};

pub(crate) async fn run(plan: Plan) {
    let watchers = *plan.crowds.last().unwrap();
    let registry = served::registry().await;
    // One that has done nothing else yet: memory that was used once is not given back.
    let supervisor = Served::supervisor(registry).await;
    let session = Session::open(supervisor.address).await;
    let request = session.tree.watch_request();
    crowd::open(|| session.connect(), &request, 1).await;
    let before = supervisor.resident();

    let mut beginning = JoinSet::new();
    for mut watch in crowd::open(|| session.connect(), &request, watchers).await {
        beginning.spawn(async move {
            watch.snapshot().await;
            watch
        });
    }
    let watches = beginning.join_all().await;
    let idle = supervisor.resident();

    let head = session.tree.head().await;
    session.notes(plan.backlog).await;
    let mut reading = JoinSet::new();
    for mut watch in watches {
        let last = head + plan.backlog as u64;
        reading.spawn(async move {
            watch.up_to(last).await;
            watch
        });
    }
    let watches = reading.join_all().await;
    let busy = supervisor.resident();

    println!("## Memory of the supervisor\n");
    println!(
        "Resident memory that {} watchers add, divided by them: when each has its snapshot, and when each was sent {} \
         events more.\n",
        watches.len(),
        plan.backlog
    );
    let each = |after: Option<u64>| match (before, after) {
        (Some(before), Some(after)) => format!("{:.1}", after.saturating_sub(before) as f64 / watchers as f64),
        _ => String::from("-"),
    };
    table::print(
        ["watchers", "idle, KiB each", "busy, KiB each"],
        &[[watchers.to_string(), each(idle), each(busy)]],
    );
}
