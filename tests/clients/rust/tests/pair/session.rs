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

/// What the future ends with, which it has to do in time.
pub async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(MAX_WAIT, future)
        .await
        .expect("it happens in time")
}

/// A client of the running pair.
pub fn connect() -> Client {
    Client::new(&Environment::read()).unwrap()
}

/// A session of its own for each test, which closes it at its end.
pub struct TestSession {
    pub client: Client,
    pub id: String,
    pub root: String,
}

impl TestSession {
    pub async fn open(max_depth: u32) -> Self {
        Self::request(&Uuid::new_v4().to_string(), max_depth).await
    }

    /// Opens a session, unless a request of that id has opened it.
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

    /// Spawns an agent below `parent` and answers its thread's id.
    pub async fn spawn(&self, parent: &str, agent_type: &str, message: &str) -> String {
        within(self.client.spawn(&self.id, parent, agent_type, message))
            .await
            .unwrap()
    }

    /// Waits until the thread has nothing more to do, and answers what it is then.
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

    /// Follows the session from a position.
    pub fn watch(&self, position: Position) -> Watch {
        Watch::new(&self.client, &self.id, position)
    }

    /// Answers when everything in the session is down. May be called again.
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

/// The next message of the watch.
pub async fn next(watch: &mut Watch) -> WatchThreadsResponse {
    within(watch.next()).await.unwrap()
}

/// The next event of the watch.
pub async fn next_event(watch: &mut Watch) -> Event {
    loop {
        if let Some(Message::Event(event)) = next(watch).await.message {
            return event;
        }
    }
}

/// The events up to the session's end, in the order in which they came.
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
