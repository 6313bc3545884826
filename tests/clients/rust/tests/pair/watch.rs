//! A watch that is disconnected by the client, by a cut connection, and permanently.

use troupe_client::{
    client::Client,
    environment::Environment,
    supervisor::v1::{Event, StatusKind, event::Kind, watch_threads_response::Message},
    watch::{Position, Watch},
};

use crate::{
    relay::Relay,
    session::{TestSession, connect, next, next_event, remaining},
};

#[tokio::test]
async fn watch_loses_nothing_after_dropped_stream() {
    let session = TestSession::open(2).await;
    let mut watch = session.watch(Position::beginning());
    assert_loses_nothing(&session, &mut watch, Watch::disconnect).await;
}

#[tokio::test]
async fn watch_loses_nothing_after_lost_connection() {
    let session = TestSession::open(2).await;
    let mut environment = Environment::read();
    let relay = Relay::before(environment.supervisor).await;
    environment.supervisor = relay.address().to_owned();
    let client = Client::new(&environment).unwrap();
    let mut watch = Watch::new(&client, &session.id, Position::beginning());
    assert_loses_nothing(&session, &mut watch, |_| relay.cut()).await;
    assert_eq!(relay.count(), 3, "connections: one before each cut and one after both");
}

#[tokio::test]
async fn another_client_resumes_from_stored_position() {
    let session = TestSession::open(2).await;
    let mut watch = session.watch(Position::default());
    read_snapshot(&mut watch).await;
    let kept = watch.position().clone();

    session.spawn(&session.root, "worker", "Do something.").await;
    session.close().await;
    let mut elsewhere = Watch::new(&connect(), &session.id, kept.clone());
    assert_whole(kept.after.unwrap(), &remaining(&mut elsewhere).await);
}

#[tokio::test]
async fn watch_of_another_log_begins_with_reset() {
    let session = TestSession::open(2).await;
    let mut watch = session.watch(Position {
        after: Some(1),
        log_id: "another".to_owned(),
    });
    let first = next(&mut watch).await.message;
    assert!(matches!(first, Some(Message::Reset(_))), "{first:?}");
    read_snapshot(&mut watch).await;
    session.close().await;
}

/// Reads the parts of a snapshot, which must come next.
async fn read_snapshot(watch: &mut Watch) {
    loop {
        match next(watch).await.message {
            Some(Message::Snapshot(part)) if part.last => return,
            Some(Message::Snapshot(_)) => {}
            other => panic!("a part of the snapshot is due, not {other:?}"),
        }
    }
}

/// Disconnects twice while a tree runs: before two threads end without a watcher, and in the middle of the missed
/// events.
async fn assert_loses_nothing(session: &TestSession, watch: &mut Watch, disconnect: impl Fn(&mut Watch)) {
    let lead = session
        .spawn(&session.root, "orchestrator", "Lead the search.\nhold")
        .await;
    let mut events = until_turn_starts(watch, &lead).await;
    disconnect(watch);
    let mut scouts = Vec::new();
    for message in ["Find the main function.", "Find the tests."] {
        let scout = session.spawn(&lead, "explorer", message).await;
        assert_eq!(session.settled(&scout).await, StatusKind::Completed);
        scouts.push(scout);
    }
    events.extend(until_turn_starts(watch, &scouts[0]).await);
    disconnect(watch);
    session.close().await;
    events.extend(remaining(watch).await);
    assert_whole(0, &events);
}

/// Returns the events up to the start of the thread's turn.
async fn until_turn_starts(watch: &mut Watch, thread: &str) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        let event = next_event(watch).await;
        let is_last = event.thread_id == thread && matches!(event.kind, Some(Kind::TurnStarted(_)));
        events.push(event);
        if is_last {
            return events;
        }
    }
}

/// Checks that the events after a position have consecutive sequences.
fn assert_whole(after: u64, events: &[Event]) {
    for (event, due) in events.iter().zip(after + 1..) {
        assert_eq!(event.sequence, due, "{event:?}");
    }
}
