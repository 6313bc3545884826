//! Many watchers of one session.

use tokio::task::JoinSet;
use troupe_proto::supervisor::v1::WatchThreadsRequest;

use crate::{client::Supervisor, watch::Watch};

/// Number of streams per connection.
const STREAMS_PER_CONNECTION: usize = 100;

/// Opens `watchers` equal watches over several connections.
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
