//! The client crate finds a running pair and its token, and follows a session across a restart.

use troupe_client::{
    Settings,
    follow::{Follow, ThreadWatch, Update},
    request_id,
};
use troupe_proto::supervisor::v1::{
    CreateSessionRequest, SpawnAgentRequest, WatchThreadsRequest, event::Kind, watch_threads_response::Message,
};
use troupe_tests::{
    process::{Home, Up},
    within,
};

/// Returns the settings of a client on the machine of the pair. They contain only the data directory.
fn settings(home: &Home) -> Settings {
    let given = Settings {
        // The client must not use a context of the user who runs the tests.
        context: Some(String::new()),
        data_dir: Some(home.path().join(".local/share/troupe")),
        ..Settings::default()
    };
    given.resolve().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_finds_services_and_follows_across_restart() {
    let home = Home::default();
    let up = Up::start_with(&home, Up::WITH_RUNNER).await;
    let address = up.supervisor.to_string();
    let mut supervisor = settings(&home).supervisor().await.unwrap();
    let request = CreateSessionRequest {
        request_id: request_id(),
        ..CreateSessionRequest::default()
    };
    let created = supervisor.create_session(request).await.unwrap().into_inner();
    let session = created.session.unwrap();
    let watch = WatchThreadsRequest {
        session_id: session.session_id.clone(),
        ..WatchThreadsRequest::default()
    };
    let mut follow = Follow::new(supervisor, ThreadWatch::new(watch));
    assert!(matches!(follow.next().await.unwrap(), Update::Opened));
    let Update::Message(first) = follow.next().await.unwrap() else {
        panic!("no message")
    };
    let Some(Message::Snapshot(_)) = first.message else {
        panic!("{first:?}")
    };

    up.kill().await;
    let same_address: Vec<&str> = vec![
        "up",
        "--registry-listen",
        "127.0.0.1:0",
        "--supervisor-listen",
        &address,
    ];
    let _up = Up::start_with(&home, &same_address).await;
    let mut supervisor = settings(&home).supervisor().await.unwrap();
    let spawn = SpawnAgentRequest {
        request_id: request_id(),
        session_id: session.session_id.clone(),
        parent_thread_id: session.root_thread_id.clone(),
        agent_type: "explorer".to_owned(),
        message: Some("Find the parser.".to_owned()),
        ..SpawnAgentRequest::default()
    };
    supervisor.spawn_agent(spawn).await.unwrap();
    let (mut next, mut is_lost) = (first.sequence + 1, false);
    let ended = async {
        loop {
            match follow.next().await.unwrap() {
                Update::Lost { after, .. } => {
                    assert_eq!(after, Some(next - 1));
                    is_lost = true;
                }
                Update::Opened => {}
                Update::Message(response) => {
                    let Some(Message::Event(event)) = response.message else {
                        continue;
                    };
                    assert_eq!(response.sequence, next, "an event is missing or repeated");
                    next += 1;
                    if let Some(Kind::TurnEnded(_)) = event.kind {
                        break;
                    }
                }
            }
        }
    };
    within("the end of the turn", ended).await;
    assert!(is_lost, "the stream outlived its service");
}
