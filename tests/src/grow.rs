//! Trees of many threads.

use std::iter::repeat_n;

use tokio::task::JoinSet;
use troupe_proto::supervisor::v1::SpawnAgentRequest;

use crate::{
    tree::{Spawned, Tree},
    within,
};

/// Number of concurrent spawns.
const AT_ONCE: usize = 32;

impl Tree {
    /// Spawns until the session has `10^levels` threads: nine below its root, ten below each of these, and so on, level
    /// by level. The session's limits must permit that number.
    pub async fn grow(&self, levels: u32) {
        let mut parents = vec![self.root.clone()];
        for level in 0..levels {
            let children = if level == 0 { 9 } else { 10 };
            parents = self.spawn_below(&parents, children).await;
        }
    }

    /// Spawns `children` children of each parent and returns all of them.
    async fn spawn_below(&self, parents: &[String], children: usize) -> Vec<String> {
        let wanted: Vec<String> = parents
            .iter()
            .flat_map(|parent| repeat_n(parent.clone(), children))
            .collect();
        let mut spawning = JoinSet::new();
        for share in wanted.chunks(wanted.len().div_ceil(AT_ONCE)) {
            let requests: Vec<SpawnAgentRequest> = share
                .iter()
                .map(|parent| SpawnAgentRequest {
                    return_token: false,
                    ..self.request_under(parent, "default")
                })
                .collect();
            let mut client = self.client();
            spawning.spawn(async move {
                let mut spawned = Vec::with_capacity(requests.len());
                for request in requests {
                    let answer = within("the answer to a spawn", client.spawn_agent(request)).await;
                    spawned.push(Spawned::of(answer.unwrap().into_inner()).id);
                }
                spawned
            });
        }
        spawning.join_all().await.concat()
    }
}
