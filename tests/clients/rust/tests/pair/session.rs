//! A session of the running pair, and waits with a deadline for its events.

use std::time::Duration;

use troupe_client::{
    client::Client,
    environment::Environment,
    supervisor::v1::{
        CloseSessionRequest, Event, StatusKind, WaitAgentsRequest, WatchThreadsResponse, event::Kind,
        watch_threads_response::Message,
    },
    watch::{Position, Watch},
};
use uuid::Uuid;

/// Maximum wait of a test for one response or event.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Waits for a future and returns its output. Panics if it takes too long.
pub async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(MAX_WAIT, future)
        .await
        .expect("it happens in time")
}

/// Returns a client of the running pair.
pub fn connect() -> Client {
    Client::new(&Environment::read()).unwrap()
}

/// A session of one test, which closes it at its end.
pub struct TestSession {
    pub client: Client,
    pub id: String,
    pub root: String,
}

impl TestSession {
    pub async fn open(max_depth: u32) -> Self {
        Self::request(&Uuid::new_v4().to_string(), max_depth).await
    }

    /// Opens a session, or returns the session that an earlier request with this id has opened.
    pub async fn request(request_id: &str, max_depth: u32) -> Self {
        let client = connect();
        let project = Environment::read().project;
        let session = within(client.open(request_id, &project, max_depth)).await.unwrap();
        Self {
            client,
            id: session.session_id,
            root: session.root_thread_id,
        }
    }

    /// Spawns an agent below `parent` and returns its thread's id.
    pub async fn spawn(&self, parent: &str, agent_type: &str, message: &str) -> String {
        within(self.client.spawn(&self.id, parent, agent_type, message))
            .await
            .unwrap()
    }

    /// Waits until the thread is settled and returns its status.
    pub async fn settled(&self, thread: &str) -> StatusKind {
        let request = WaitAgentsRequest {
            thread_ids: vec![thread.to_owned()],
            ..WaitAgentsRequest::default()
        };
        let mut supervisor = self.client.supervisor.clone();
        let answer = within(supervisor.wait_agents(request)).await.unwrap().into_inner();
        assert!(!answer.timed_out, "{thread} has not settled");
        answer.statuses[0].status.as_ref().unwrap().kind()
    }

    /// Opens a watch of the session after a position.
    pub fn watch(&self, position: Position) -> Watch {
        Watch::new(&self.client, &self.id, position)
    }

    /// Closes the session and returns when all of its threads are closed. May be called again.
    pub async fn close(&self) {
        let request = CloseSessionRequest {
            session_id: self.id.clone(),
            wait: true,
            ..CloseSessionRequest::default()
        };
        let mut supervisor = self.client.supervisor.clone();
        within(supervisor.close_session(request)).await.unwrap();
    }
}

/// Returns the next message of the watch.
pub async fn next(watch: &mut Watch) -> WatchThreadsResponse {
    within(watch.next()).await.unwrap()
}

/// Returns the next event of the watch.
pub async fn next_event(watch: &mut Watch) -> Event {
    loop {
        if let Some(Message::Event(event)) = next(watch).await.message {
            return event;
        }
    }
}

/// Returns the events up to the end of the session, in the order of their arrival.
pub async fn remaining(watch: &mut Watch) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        let event = next_event(watch).await;
        let is_last = matches!(event.kind, Some(Kind::SessionClosed(_)));
        events.push(event);
        if is_last {
            return events;
        }
    }
}
