//! The catalogue, a session, a tree in it, its depth limit, and its end.

use std::collections::HashMap;

use tonic::Code;
use troupe_client::{
    environment::Environment,
    refusal::{self, DEPTH_LIMIT},
    supervisor::v1::{ListActiveAgentsRequest, StatusKind, event::Kind},
    watch::Position,
};
use uuid::Uuid;

use crate::session::{TestSession, connect, remaining, within};

#[tokio::test]
async fn lists_agents() {
    let agents = within(connect().agents(&Environment::read().project)).await.unwrap();
    let names: Vec<String> = agents.into_iter().map(|agent| agent.agent_type).collect();
    for embedded in ["explorer", "orchestrator", "worker"] {
        assert!(
            names.iter().any(|name| name == embedded),
            "there is no {embedded} among {names:?}"
        );
    }
}

#[tokio::test]
async fn retry_opens_no_second_session() {
    let request_id = Uuid::new_v4().to_string();
    let session = TestSession::request(&request_id, 2).await;
    let again = TestSession::request(&request_id, 2).await;
    assert_eq!(session.id, again.id);
    session.close().await;
}

#[tokio::test]
async fn spawns_a_tree() {
    let session = TestSession::open(2).await;
    let lead = session
        .spawn(&session.root, "orchestrator", "Lead the search.\nhold")
        .await;
    let scout = session.spawn(&lead, "explorer", "Find the main function.").await;
    assert_eq!(session.settled(&scout).await, StatusKind::Completed);

    let request = ListActiveAgentsRequest {
        session_id: session.id.clone(),
        include_self: true,
        ..ListActiveAgentsRequest::default()
    };
    let mut supervisor = session.client.supervisor.clone();
    let answer = within(supervisor.list_active_agents(request)).await.unwrap();
    let threads = answer.into_inner().threads;
    let path: Vec<(u32, &String)> = threads.iter().map(|thread| (thread.depth, &thread.thread_id)).collect();
    assert_eq!(path, [(0, &session.root), (1, &lead), (2, &scout)]);
    session.close().await;
}

#[tokio::test]
async fn rejected_deeper_spawn_has_reason() {
    let session = TestSession::open(1).await;
    let lead = session
        .spawn(&session.root, "orchestrator", "Lead the search.\nhold")
        .await;
    let answer = within(session.client.spawn(&session.id, &lead, "explorer", "Deeper.")).await;
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(refusal::reason(&status).as_deref(), Some(DEPTH_LIMIT));
    session.close().await;
}

#[tokio::test]
async fn session_close_closes_children_first() {
    let session = TestSession::open(2).await;
    let lead = session
        .spawn(&session.root, "orchestrator", "Lead the search.\nhold")
        .await;
    session.spawn(&lead, "explorer", "Find the main function.\nhold").await;
    session.spawn(&lead, "explorer", "Find the tests.\nhold").await;
    session.spawn(&session.root, "worker", "Do something else.\nhold").await;
    session.close().await;

    let mut parent_of_open = HashMap::new();
    let mut closed = Vec::new();
    for event in remaining(&mut session.watch(Position::beginning())).await {
        let thread = event.thread_id;
        match event.kind {
            Some(Kind::ThreadSpawned(spawned)) => {
                parent_of_open.insert(thread, spawned.parent_thread_id);
            }
            Some(Kind::ThreadClosed(_)) => {
                let has_open_child = parent_of_open.values().any(|parent| *parent == thread);
                assert!(!has_open_child, "{thread} is closed before a child");
                parent_of_open.remove(&thread);
                closed.push(thread);
            }
            _ => {}
        }
    }
    assert!(
        parent_of_open.is_empty(),
        "still open, with their parents: {parent_of_open:?}"
    );
    assert_eq!((closed.len(), closed.last()), (5, Some(&session.root)));
}
