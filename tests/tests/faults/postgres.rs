//! The supervisor with its log in PostgreSQL: kills and restarts of the supervisor, and an outage of the database.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{sync::Semaphore, task::JoinSet, time::interval};
use tonic::Code;
use troupe_proto::supervisor::v1::CreateSessionRequest;
use troupe_tests::{
    events::assert_whole,
    postgres_server::{Database, Server},
    service::Ground,
    tree::Tree,
    within,
};

use crate::{spawn, threads};

const ROUNDS: usize = 3;
const WRITERS: usize = 6;
/// Number of acknowledged spawns in a round before the service is killed.
const SPAWNS: u32 = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_supervisor_finds_everything_in_postgres() {
    let (ground, database) = (Ground::new().await, Database::create());
    let url = database.url();
    let arguments = ["--store", url.as_str()];
    let mut service = ground.start(&arguments).await;
    let mut tree = Tree::open(service.client(), CreateSessionRequest::default()).await;
    let mut acknowledged = BTreeSet::new();
    for round in 0..ROUNDS {
        let (spawned, count) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Semaphore::new(0)));
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let (tree, spawned, count) = (tree.clone(), Arc::clone(&spawned), Arc::clone(&count));
            writers.spawn(async move {
                for number in 0.. {
                    let Ok(thread) = spawn(&tree, format!("{round}-{writer}-{number}")).await else {
                        return;
                    };
                    spawned.lock().unwrap().push(thread);
                    count.add_permits(1);
                }
            });
        }
        drop(within("enough spawns", count.acquire_many(SPAWNS)).await);
        service.kill().await;
        writers.join_all().await;
        acknowledged.extend(spawned.lock().unwrap().drain(..));

        service = ground.start(&arguments).await;
        tree = tree.by(service.client());
        let found = threads(&tree).await;
        let lost: Vec<_> = acknowledged.difference(&found).collect();
        assert_eq!(lost, [""; 0], "round {round}");
        assert_whole(&tree.log().await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn supervisor_continues_after_outage_of_postgres() {
    let (ground, server) = (Ground::new().await, Server::start(&[]));
    let url = server.url("postgres", &server.create_database());
    let service = ground.start(&["--store", url.as_str()]).await;
    let tree = Tree::open(service.client(), CreateSessionRequest::default()).await;
    spawn(&tree, String::from("before")).await.unwrap();

    tokio::task::block_in_place(|| server.crash());
    let refused = spawn(&tree, String::from("during")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("nothing was done"), "{refused}");
    tokio::task::block_in_place(|| server.resume());

    let mut retries = interval(Duration::from_millis(50));
    let retry = async {
        loop {
            match spawn(&tree, String::from("during")).await {
                Ok(thread) => return thread,
                Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status}"),
            }
            retries.tick().await;
        }
    };
    let thread = Box::pin(within("a spawn after the outage", retry)).await;
    assert!(threads(&tree).await.contains(&thread));
    assert_whole(&tree.log().await);
}
