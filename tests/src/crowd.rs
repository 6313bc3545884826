//! Many watchers of one session.

use tokio::task::JoinSet;
use troupe_proto::supervisor::v1::WatchThreadsRequest;

use crate::{client::Supervisor, watch::Watch};

/// How many streams one connection carries: far fewer than a server takes, as behind a proxy.
const STREAMS_PER_CONNECTION: usize = 100;

/// Opens so many equal watches, over as many connections as they need.
pub async fn open(connect: impl Fn() -> Supervisor, request: &WatchThreadsRequest, watchers: usize) -> Vec<Watch> {
    let mut opening = JoinSet::new();
    let mut client = connect();
    for number in 0..watchers {
        if number > 0 && number % STREAMS_PER_CONNECTION == 0 {
            client = connect();
        }
        let (client, request) = (client.clone(), request.clone());
        opening.spawn(async move { Watch::open(&client, request).await });
    }
    opening.join_all().await
}
