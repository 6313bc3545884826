//! A session as its operator sees it.

use tokio::task::JoinSet;
use tonic::Status;
use troupe_proto::supervisor::v1::{
    CloseAgentRequest, CloseAgentResponse, CloseSessionRequest, ConditionKind, CreateSessionRequest, Event,
    GetSessionRequest, GetThreadRequest, Limits, ListActiveAgentsRequest, SendInputRequest, Session,
    SetThreadNoteRequest, SpawnAgentRequest, SpawnAgentResponse, StatusKind, Thread, ThreadStatus, WaitAgentsRequest,
    WatchThreadsRequest,
};

use crate::{
    client::Supervisor,
    pair::Pair,
    runner::{Attempt, Runner},
    watch::Watch,
    within,
};

/// A session with an operator's client.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The session's id.
    pub session: String,
    /// The root's id.
    pub root: String,
    /// The root's token.
    pub root_token: String,
    client: Supervisor,
}

/// A spawned thread.
#[derive(Clone, Debug)]
pub struct Spawned {
    /// Its id.
    pub id: String,
    /// Its token.
    pub token: String,
    /// The thread in the response of the spawn.
    pub thread: Thread,
}

impl Pair {
    /// Creates a session over the project with a root that its client executes.
    pub async fn tree(&self) -> Tree {
        self.tree_with(CreateSessionRequest::default()).await
    }

    /// Creates a session with `max_threads` slots.
    pub async fn tree_of(&self, max_threads: u32) -> Tree {
        let limits = Limits {
            max_threads: Some(max_threads),
            ..Limits::default()
        };
        self.tree_with(CreateSessionRequest {
            limits: Some(limits),
            ..CreateSessionRequest::default()
        })
        .await
    }

    /// Creates a session over the project.
    pub async fn tree_with(&self, request: CreateSessionRequest) -> Tree {
        let request = CreateSessionRequest {
            cwd: self.project(),
            ..request
        };
        Tree::open(self.operator(), request).await
    }
}

impl Tree {
    /// Opens a session.
    pub async fn open(client: Supervisor, request: CreateSessionRequest) -> Self {
        let answer = within("a session", client.clone().create_session(request)).await;
        let answer = answer.unwrap().into_inner();
        let session = answer.session.unwrap();
        Self {
            session: session.session_id,
            root: session.root_thread_id,
            root_token: answer.thread_token,
            client,
        }
    }

    /// Returns a session that another client opened. Only that client has the root's token.
    #[must_use]
    pub fn of(client: Supervisor, session: &Session) -> Self {
        Self {
            session: session.session_id.clone(),
            root: session.root_thread_id.clone(),
            root_token: String::new(),
            client,
        }
    }

    /// Returns the same session with another client, for example after a restart.
    #[must_use]
    pub fn by(&self, client: Supervisor) -> Self {
        Self { client, ..self.clone() }
    }

    /// Returns the operator's client.
    #[must_use]
    pub fn client(&self) -> Supervisor {
        self.client.clone()
    }

    /// Returns the request of a spawn below the root.
    #[must_use]
    pub fn request(&self, role: &str) -> SpawnAgentRequest {
        SpawnAgentRequest {
            session_id: self.session.clone(),
            agent_type: role.to_owned(),
            message: Some(String::from("the task")),
            return_token: true,
            ..SpawnAgentRequest::default()
        }
    }

    /// Makes the same spawn from several tasks at once.
    pub async fn try_spawn_concurrently(
        &self,
        request: &SpawnAgentRequest,
        count: usize,
    ) -> Vec<Result<SpawnAgentResponse, Status>> {
        let mut calls = JoinSet::new();
        for _ in 0..count {
            let (tree, request) = (self.clone(), request.clone());
            calls.spawn(async move { tree.try_spawn(request).await });
        }
        calls.join_all().await
    }

    /// Returns the request of a spawn below a thread.
    #[must_use]
    pub fn request_under(&self, parent: &str, role: &str) -> SpawnAgentRequest {
        SpawnAgentRequest {
            parent_thread_id: parent.to_owned(),
            ..self.request(role)
        }
    }

    /// Spawns a thread.
    ///
    /// # Errors
    ///
    /// The status of a rejected spawn.
    pub async fn try_spawn(&self, request: SpawnAgentRequest) -> Result<SpawnAgentResponse, Status> {
        let answer = within("the answer to a spawn", self.client().spawn_agent(request)).await?;
        Ok(answer.into_inner())
    }

    /// Spawns a thread below the root.
    pub async fn spawn(&self, role: &str) -> Spawned {
        Spawned::of(self.try_spawn(self.request(role)).await.unwrap())
    }

    /// Spawns a thread below the root with a task.
    pub async fn spawn_for(&self, role: &str, task: &str) -> Spawned {
        let request = SpawnAgentRequest {
            message: Some(task.to_owned()),
            ..self.request(role)
        };
        Spawned::of(self.try_spawn(request).await.unwrap())
    }

    /// Spawns a thread below a thread.
    pub async fn spawn_under(&self, parent: &str, role: &str) -> Spawned {
        Spawned::of(self.try_spawn(self.request_under(parent, role)).await.unwrap())
    }

    /// Sends input to a thread and returns the thread.
    pub async fn send(&self, thread: &str, text: &str) -> Thread {
        let request = SendInputRequest {
            thread_id: thread.to_owned(),
            message: Some(text.to_owned()),
            ..SendInputRequest::default()
        };
        let answer = within("the answer to an input", self.client().send_input(request)).await;
        answer.unwrap().into_inner().thread.unwrap()
    }

    /// Closes a thread and waits until it is closed.
    pub async fn close(&self, thread: &str) -> CloseAgentResponse {
        let request = CloseAgentRequest {
            thread_id: thread.to_owned(),
            wait: true,
            ..CloseAgentRequest::default()
        };
        let answer = within("the end of a cascade", self.client().close_agent(request)).await;
        answer.unwrap().into_inner()
    }

    /// Closes a thread, whose program the runner stops.
    pub async fn close_with(&self, runner: &mut Runner, attempt: &Attempt) {
        let stopped = async {
            runner.shutdown().await;
            runner.stop(attempt).await;
        };
        tokio::join!(self.close(&attempt.thread), stopped);
    }

    /// Waits until a thread has settled.
    pub async fn settled(&self, thread: &str) -> ThreadStatus {
        let request = WaitAgentsRequest {
            thread_ids: vec![thread.to_owned()],
            ..WaitAgentsRequest::default()
        };
        let answer = within("the answer to a wait", self.client().wait_agents(request)).await;
        answer.unwrap().into_inner().statuses.remove(0)
    }

    /// Sets a thread's note, which appends one event.
    pub async fn note(&self, thread: &str, text: &str) {
        let request = SetThreadNoteRequest {
            thread_id: thread.to_owned(),
            thread_note: text.to_owned(),
            ..SetThreadNoteRequest::default()
        };
        within("the answer to a note", self.client().set_thread_note(request))
            .await
            .unwrap();
    }

    /// Sets notes until the log is compacted beyond a sequence.
    pub async fn compact_beyond(&self, sequence: u64) {
        within("the compaction", async {
            for number in 1.. {
                self.note(&self.root, &format!("note {number}")).await;
                if self.watch_after(sequence).await.next().await.is_err() {
                    return;
                }
            }
        })
        .await;
    }

    /// Closes the session and waits until it is closed.
    pub async fn end(&self) -> Session {
        let request = CloseSessionRequest {
            session_id: self.session.clone(),
            wait: true,
            ..CloseSessionRequest::default()
        };
        let answer = within("the end of a session", self.client().close_session(request)).await;
        answer.unwrap().into_inner().session.unwrap()
    }

    /// Returns the session.
    pub async fn now(&self) -> Session {
        let request = GetSessionRequest {
            session_id: self.session.clone(),
        };
        let answer = within("a session", self.client().get_session(request)).await;
        answer.unwrap().into_inner().session.unwrap()
    }

    /// Returns the sequence of the newest event.
    pub async fn head(&self) -> u64 {
        self.now().await.sequence
    }

    /// Returns a thread.
    pub async fn thread(&self, id: &str) -> Thread {
        let request = GetThreadRequest {
            thread_id: id.to_owned(),
            ..GetThreadRequest::default()
        };
        let answer = within("a thread", self.client().get_thread(request)).await;
        answer.unwrap().into_inner().thread.unwrap()
    }

    /// Returns a thread's status.
    pub async fn status(&self, id: &str) -> StatusKind {
        kind(&self.thread(id).await)
    }

    /// Returns all threads in spawn order, including closed threads and the root.
    pub async fn threads(&self) -> Vec<Thread> {
        let mut threads = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = ListActiveAgentsRequest {
                session_id: self.session.clone(),
                include_closed: true,
                include_self: true,
                page_token,
                ..ListActiveAgentsRequest::default()
            };
            let page = within("a page of threads", self.client().list_active_agents(request)).await;
            let page = page.unwrap().into_inner();
            threads.extend(page.threads);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return threads;
            }
        }
    }

    /// Returns the log from its beginning to its head at the time of the call.
    pub async fn log(&self) -> Vec<Event> {
        let head = self.head().await;
        self.watch_after(0).await.up_to(head).await
    }

    /// Opens a watch that begins with a snapshot.
    pub async fn watch(&self) -> Watch {
        Watch::open(&self.client, self.watch_request()).await
    }

    /// Opens a watch that resumes after a sequence.
    pub async fn watch_after(&self, sequence: u64) -> Watch {
        let request = WatchThreadsRequest {
            after_sequence: Some(sequence),
            ..self.watch_request()
        };
        Watch::open(&self.client, request).await
    }

    /// Returns the request of a watch of the whole session.
    #[must_use]
    pub fn watch_request(&self) -> WatchThreadsRequest {
        WatchThreadsRequest {
            session_id: self.session.clone(),
            ..WatchThreadsRequest::default()
        }
    }
}

impl Spawned {
    /// Returns the thread in a response.
    #[must_use]
    pub fn of(answer: SpawnAgentResponse) -> Self {
        let thread = answer.thread.unwrap();
        Self {
            id: thread.thread_id.clone(),
            token: answer.thread_token,
            thread,
        }
    }
}

/// Returns a thread's status.
#[must_use]
pub fn kind(thread: &Thread) -> StatusKind {
    thread.status.as_ref().unwrap().kind()
}

/// Returns whether a condition holds for a thread.
#[must_use]
pub fn has(thread: &Thread, condition: ConditionKind) -> bool {
    thread.conditions.iter().any(|found| found.kind() == condition)
}
