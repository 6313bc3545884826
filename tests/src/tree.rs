//! A session as its operator sees it.

use tokio::task::JoinSet;
use tonic::Status;
use troupe_proto::supervisor::v1::{
    Approval, Artifact, AuthorizeToolRequest, CloseAgentRequest, CloseAgentResponse, CloseSessionRequest, Condition,
    ConditionKind, CreateSessionRequest, DeleteSessionRequest, DescribeToolsRequest, Event, GetQuotaRequest,
    GetSessionRequest, GetThreadRequest, GetThreadResponse, InterruptAgentRequest, Limits, ListActiveAgentsRequest,
    ListApprovalsRequest, ListArtifactsRequest, Quota, ResolveApprovalRequest, ResumeAgentRequest, ResumeAgentResponse,
    SendInputRequest, Session, SetThreadNoteRequest, SpawnAgentRequest, SpawnAgentResponse, StatusKind, Thread,
    ThreadStatus, ToolDescription, UpdateSessionRequest, WaitAgentsRequest, WatchThreadsRequest,
};

use crate::{
    accepted,
    client::Supervisor,
    events::{about, names},
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
        self.tree_where(|session| session.limits = Some(limits)).await
    }

    /// Creates a session whose request `change` has changed.
    pub async fn tree_where(&self, change: impl FnOnce(&mut CreateSessionRequest)) -> Tree {
        let mut request = CreateSessionRequest::default();
        change(&mut request);
        self.tree_with(request).await
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
        let answer = accepted("a session", client.clone().create_session(request)).await;
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

    /// Restarts the pair and returns the same session with a new client of an operator.
    pub async fn after_restart(&self, pair: &mut Pair) -> Self {
        pair.restart().await;
        self.by(pair.operator())
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

    /// Spawns a thread with this request.
    pub async fn spawn_with(&self, request: SpawnAgentRequest) -> Spawned {
        Spawned::of(self.try_spawn(request).await.unwrap())
    }

    /// Spawns a thread below the root.
    pub async fn spawn(&self, role: &str) -> Spawned {
        self.spawn_with(self.request(role)).await
    }

    /// Spawns a thread below the root with a request that `change` has changed.
    pub async fn spawn_where(&self, role: &str, change: impl FnOnce(&mut SpawnAgentRequest)) -> Spawned {
        let mut request = self.request(role);
        change(&mut request);
        self.spawn_with(request).await
    }

    /// Spawns a thread below the root with a task.
    pub async fn spawn_for(&self, role: &str, task: &str) -> Spawned {
        self.spawn_where(role, |spawn| spawn.message = Some(task.to_owned()))
            .await
    }

    /// Spawns a thread below a thread.
    pub async fn spawn_under(&self, parent: &str, role: &str) -> Spawned {
        self.spawn_with(self.request_under(parent, role)).await
    }

    /// Spawns a worker below the root and runs its first turn.
    pub async fn run_worker(&self, runner: &mut Runner) -> Attempt {
        let worker = self.spawn("worker").await;
        runner.run(&worker.id).await
    }

    /// Spawns a worker below the root, whose first turn completes.
    pub async fn complete_worker(&self, runner: &mut Runner) -> Attempt {
        let attempt = self.run_worker(runner).await;
        runner.complete(&attempt, "done").await;
        attempt
    }

    /// Sends input to a thread and returns the thread.
    pub async fn send(&self, thread: &str, text: &str) -> Thread {
        self.try_send(input(thread, text)).await.unwrap()
    }

    /// Sends input and returns the thread.
    ///
    /// # Errors
    ///
    /// The status of rejected input.
    pub async fn try_send(&self, request: SendInputRequest) -> Result<Thread, Status> {
        let answer = within("the answer to an input", self.client().send_input(request)).await?;
        Ok(answer.into_inner().thread.unwrap())
    }

    /// Interrupts a thread.
    pub async fn interrupt(&self, thread: &str) {
        let request = InterruptAgentRequest {
            thread_id: thread.to_owned(),
            ..InterruptAgentRequest::default()
        };
        accepted("the answer to an interrupt", self.client().interrupt_agent(request)).await;
    }

    /// Opens a closed thread again.
    pub async fn resume(&self, thread: &str) -> ResumeAgentResponse {
        let request = ResumeAgentRequest {
            thread_id: thread.to_owned(),
            ..ResumeAgentRequest::default()
        };
        accepted("the answer to a resume", self.client().resume_agent(request)).await
    }

    /// Closes a thread with a request that `change` has changed.
    pub async fn close_where(&self, thread: &str, change: impl FnOnce(&mut CloseAgentRequest)) -> CloseAgentResponse {
        let mut request = CloseAgentRequest {
            thread_id: thread.to_owned(),
            ..CloseAgentRequest::default()
        };
        change(&mut request);
        accepted("the answer to a close", self.client().close_agent(request)).await
    }

    /// Closes a thread and does not wait until it is closed.
    pub async fn begin_close(&self, thread: &str) -> CloseAgentResponse {
        self.close_where(thread, |_| {}).await
    }

    /// Closes a thread and waits until it is closed.
    pub async fn close(&self, thread: &str) -> CloseAgentResponse {
        self.close_where(thread, |close| close.wait = true).await
    }

    /// Closes a thread. The runner stops its program.
    pub async fn close_with(&self, runner: &mut Runner, attempt: &Attempt) {
        tokio::join!(self.close(&attempt.thread), runner.stop_as_asked(attempt));
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
        accepted("the answer to a note", self.client().set_thread_note(request)).await;
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

    /// Deletes the closed session.
    pub async fn delete(&self) {
        let request = DeleteSessionRequest {
            session_id: self.session.clone(),
            ..DeleteSessionRequest::default()
        };
        accepted("the answer to a deletion", self.client().delete_session(request)).await;
    }

    /// Changes the session's settings by a request that `change` has changed.
    pub async fn update(&self, change: impl FnOnce(&mut UpdateSessionRequest)) -> Session {
        let mut request = UpdateSessionRequest {
            session_id: self.session.clone(),
            ..UpdateSessionRequest::default()
        };
        change(&mut request);
        let answer = within("the answer to an update", self.client().update_session(request)).await;
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
        self.try_thread(id).await.unwrap().thread.unwrap()
    }

    /// Returns a thread with the sums over its subtree.
    ///
    /// # Errors
    ///
    /// The status of the call.
    pub async fn try_thread(&self, id: &str) -> Result<GetThreadResponse, Status> {
        let request = GetThreadRequest {
            thread_id: id.to_owned(),
            ..GetThreadRequest::default()
        };
        let answer = within("a thread", self.client().get_thread(request)).await?;
        Ok(answer.into_inner())
    }

    /// Returns the status of a settled thread and its message.
    pub async fn outcome(&self, id: &str) -> (StatusKind, String) {
        let status = self.thread(id).await.status.unwrap();
        (status.kind(), status.message)
    }

    /// Returns the quota of the session and of a thread. An empty id is the root or the client's own thread.
    pub async fn quota(&self, thread: &str) -> Quota {
        let session = if thread.is_empty() { self.session.as_str() } else { "" };
        let request = GetQuotaRequest {
            session_id: session.to_owned(),
            thread_id: thread.to_owned(),
        };
        let answer = within("a quota", self.client().get_quota(request)).await;
        answer.unwrap().into_inner().quota.unwrap()
    }

    /// Returns whether a thread may use a tool. An empty id is the client's own thread.
    pub async fn may_use(&self, thread: &str, tool: &str) -> bool {
        let request = AuthorizeToolRequest {
            thread_id: thread.to_owned(),
            tool: tool.to_owned(),
            arguments_json: String::from("{}"),
            ..AuthorizeToolRequest::default()
        };
        accepted("a decision", self.client().authorize_tool(request))
            .await
            .allowed
    }

    /// Returns the approvals of the session that are not resolved.
    pub async fn pending_approvals(&self) -> Vec<Approval> {
        let request = ListApprovalsRequest {
            session_id: self.session.clone(),
            ..ListApprovalsRequest::default()
        };
        accepted("approvals", self.client().list_approvals(request))
            .await
            .approvals
    }

    /// Grants or denies an approval with a reason.
    pub async fn resolve(&self, approval: &str, grant: bool, reason: &str) -> Approval {
        let request = ResolveApprovalRequest {
            session_id: self.session.clone(),
            approval_id: approval.to_owned(),
            grant,
            reason: reason.to_owned(),
            ..ResolveApprovalRequest::default()
        };
        let answer = accepted("a decision", self.client().resolve_approval(request)).await;
        answer.approval.unwrap()
    }

    /// Returns the tools that are offered to a thread. An empty id is the root or the client's own thread.
    pub async fn tools(&self, thread: &str) -> Vec<ToolDescription> {
        let request = DescribeToolsRequest {
            session_id: self.session.clone(),
            thread_id: thread.to_owned(),
        };
        accepted("the tools", self.client().describe_tools(request)).await.tools
    }

    /// Returns a thread's artifacts.
    pub async fn artifacts(&self, thread: &str) -> Vec<Artifact> {
        let request = ListArtifactsRequest {
            thread_id: thread.to_owned(),
            ..ListArtifactsRequest::default()
        };
        let answer = within("artifacts", self.client().list_artifacts(request)).await;
        answer.unwrap().into_inner().artifacts
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
            let page = accepted("a page of threads", self.client().list_active_agents(request)).await;
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

    /// Returns the names of a thread's events, in order.
    pub async fn event_names(&self, thread: &str) -> Vec<String> {
        names(&about(&self.log().await, thread))
    }

    /// Opens a watch that begins with a snapshot.
    pub async fn watch(&self) -> Watch {
        Watch::open(&self.client, self.watch_request()).await
    }

    /// Opens a watch that resumes after a sequence.
    pub async fn watch_after(&self, sequence: u64) -> Watch {
        self.watch_where(|watch| watch.after_sequence = Some(sequence)).await
    }

    /// Opens a watch of the session with a request that `change` has changed.
    pub async fn watch_where(&self, change: impl FnOnce(&mut WatchThreadsRequest)) -> Watch {
        let mut request = self.watch_request();
        change(&mut request);
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

/// Returns a thread's condition, if it holds.
#[must_use]
pub fn condition(thread: &Thread, kind: ConditionKind) -> Option<&Condition> {
    thread.conditions.iter().find(|condition| condition.kind() == kind)
}

/// Returns whether a condition holds for a thread.
#[must_use]
pub fn has(thread: &Thread, kind: ConditionKind) -> bool {
    condition(thread, kind).is_some()
}

/// Returns the request of input to a thread.
#[must_use]
pub fn input(thread: &str, text: &str) -> SendInputRequest {
    SendInputRequest {
        thread_id: thread.to_owned(),
        message: Some(text.to_owned()),
        ..SendInputRequest::default()
    }
}
