//! The operations of the protocol, independent of its bindings.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use base16ct::lower;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use sha2::{Digest as _, Sha256};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use troupe_proto::supervisor::v1::{
    Budget, CreateSessionRequest, InputItem, InterruptAgentRequest, Limits, ListSessionsRequest, OnLimit,
    SendInputRequest, Session, SetThreadNoteRequest, StatusKind, ToolCeiling,
};
use uuid::Uuid;

use crate::{
    caller::{Caller, Callers},
    card::Cards,
    config::{Agent, Config},
    contexts::{Contexts, Reader},
    error::{Error, Kind, Result, cut},
    fold::{Fold, Task, cancel_note, is_interrupted, is_terminal},
    ids::{TaskId, parse_context},
    parts,
    pb::{
        self, AgentCard, CancelTaskRequest, GetTaskRequest, ListTasksRequest, ListTasksResponse, SendMessageRequest,
        SendMessageResponse, StreamResponse, TaskPushNotificationConfig, TaskState, send_message_response,
        stream_response::Payload,
    },
    push::Push,
    render::{Extent, Renderer, is_last},
    upstream::{self, Supervisor, brief, time_key},
};

/// Label of the sessions of this service, with its only value.
pub(crate) const LABEL: (&str, &str) = ("troupe.a2a", "context");
/// Label with the caller's name.
const CALLER_LABEL: &str = "troupe.a2a/caller";
/// Label with the agent's id.
const AGENT_LABEL: &str = "troupe.a2a/agent";

/// Maximum number of contexts of a caller that are read for a list.
pub(crate) const MAX_LISTED_CONTEXTS: usize = 2_000;
/// Number of contexts that are read at a time.
const READ_AT_ONCE: usize = 16;
/// How long the usage of a caller is remembered.
const USAGE_LIFETIME: Duration = Duration::from_secs(2);
/// Number of repeated messages that are recognized without the supervisor.
const MAX_RECENT: usize = 10_000;
/// Number of updates that a slow reader may be behind before the stream waits for it.
const STREAM_BUFFER: usize = 16;
/// How often an unwanted turn of a canceled task is interrupted.
const INTERRUPTS: u32 = 20;
const INTERRUPT_PAUSE: Duration = Duration::from_millis(500);
const DEFAULT_PAGE: i32 = 50;
pub(crate) const MAX_PAGE: i32 = 100;

/// A stream of responses.
pub(crate) type Responses = ReceiverStream<Result<StreamResponse>>;

/// An authenticated caller with a counted call.
#[derive(Clone)]
pub(crate) struct Entry {
    caller: Arc<Caller>,
    permit: Arc<OwnedSemaphorePermit>,
}

/// A call by an authenticated caller.
pub(crate) struct Call {
    pub(crate) caller: Arc<Caller>,
    pub(crate) agent: Arc<Agent>,
    /// Where a subscription continues.
    pub(crate) after: Option<u64>,
    _permit: Arc<OwnedSemaphorePermit>,
}

/// Executes the operations.
pub(crate) struct Gateway {
    pub(crate) config: Config,
    pub(crate) callers: Callers,
    pub(crate) agents: Vec<Arc<Agent>>,
    pub(crate) cards: Cards,
    supervisor: Supervisor,
    contexts: Arc<Contexts>,
    push: Arc<Push>,
    usage: Mutex<HashMap<String, (Instant, Spent)>>,
    recent: Mutex<Recent>,
    draining: CancellationToken,
}

/// The parts of a gateway.
pub(crate) struct Parts {
    pub(crate) config: Config,
    pub(crate) cards: Cards,
    pub(crate) supervisor: Supervisor,
    /// Clients for streams, each with its own connection.
    pub(crate) streams: Vec<Supervisor>,
    pub(crate) push_directory: PathBuf,
    pub(crate) draining: CancellationToken,
}

/// What a caller uses.
#[derive(Clone, Copy, Default)]
struct Spent {
    tokens: u64,
    open_contexts: u32,
}

/// The tasks of the latest messages, so that a repeated message gets the answer of the first one although its task has
/// changed since.
#[derive(Default)]
struct Recent {
    tasks: HashMap<String, TaskId>,
    order: std::collections::VecDeque<String>,
}

impl Recent {
    fn insert(&mut self, key: String, task: TaskId) {
        if self.tasks.insert(key.clone(), task).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > MAX_RECENT {
            if let Some(oldest) = self.order.pop_front() {
                self.tasks.remove(&oldest);
            }
        }
    }
}

/// A task that a message created or continued.
struct Sent {
    session: Session,
    reader: Reader,
    number: u32,
    /// The event of the message.
    sequence: u64,
}

impl Gateway {
    pub(crate) fn new(parts: Parts) -> std::result::Result<Arc<Self>, crate::push::PushError> {
        let contexts = Arc::new(Contexts::new(parts.streams));
        let push = Push::open(
            &parts.push_directory,
            parts.supervisor.clone(),
            Arc::clone(&contexts),
            parts.config.push_allow_private,
            parts.draining.clone(),
        )?;
        Ok(Arc::new(Self {
            callers: Callers::new(parts.config.callers.clone()),
            agents: parts.config.agents.iter().cloned().map(Arc::new).collect(),
            config: parts.config,
            cards: parts.cards,
            supervisor: parts.supervisor,
            contexts,
            push,
            usage: Mutex::default(),
            recent: Mutex::default(),
            draining: parts.draining,
        }))
    }

    pub(crate) fn push(&self) -> &Push {
        &self.push
    }

    pub(crate) const fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Returns the agent of a tenant. An empty tenant is the default agent.
    pub(crate) fn agent(&self, tenant: &str) -> Option<Arc<Agent>> {
        match tenant {
            "" => self.agents.first().cloned(),
            id => self.agents.iter().find(|agent| agent.id == id).cloned(),
        }
    }

    /// Authenticates a caller and counts the call. Comes before the body of a request is read.
    ///
    /// # Errors
    ///
    /// The token is not valid, or the caller exceeds its rate.
    pub(crate) fn enter(&self, authorization: Option<&str>) -> Result<Entry> {
        let caller = self.callers.identify(authorization)?;
        let permit = Arc::new(caller.admit(Instant::now())?);
        Ok(Entry { caller, permit })
    }

    /// Returns a call to an agent. With a position, a subscription continues after it.
    ///
    /// # Errors
    ///
    /// The caller may not use the agent.
    pub(crate) fn admit(&self, entry: Entry, tenant: &str, after: Option<u64>) -> Result<Call> {
        let Entry { caller, permit } = entry;
        let agent = self.agent(tenant).filter(|agent| caller.may_use(&agent.id));
        let agent = agent.ok_or_else(|| {
            Error::new(
                Kind::PermissionDenied,
                format!("no agent {:?} is available to this caller", cut(tenant)),
            )
        })?;
        Ok(Call {
            caller,
            agent,
            after,
            _permit: permit,
        })
    }

    fn renderer<'a>(&'a self, call: &Call, session: &'a Session) -> Renderer<'a> {
        Renderer {
            supervisor: &self.supervisor,
            session,
            shows_ids: call.agent.show_message_ids,
        }
    }

    /// Returns a session if it is a context of this caller and agent.
    async fn context(&self, call: &Call, id: &str) -> Result<Option<Session>> {
        let session = upstream::session(&self.supervisor, id).await?;
        Ok(session.filter(|session| is_of(session, call)))
    }

    /// Returns a task of the caller with its context, up to date.
    async fn task(&self, call: &Call, id: &str) -> Result<(TaskId, Session, Reader)> {
        let not_found = || Error::task_not_found(id);
        let task = TaskId::parse(id).ok_or_else(not_found)?;
        let session = self.context(call, &task.context).await?.ok_or_else(not_found)?;
        let reader = self.contexts.read(&session, session.sequence).await?;
        if reader.fold().task(task.number).is_none() {
            return Err(not_found());
        }
        Ok((task, session, reader))
    }

    /// SendMessage.
    pub(crate) async fn send(&self, call: &Call, request: SendMessageRequest) -> Result<SendMessageResponse> {
        let configuration = request.configuration.clone().unwrap_or_default();
        let history = history_length(configuration.history_length)?;
        let Sent {
            session,
            mut reader,
            number,
            sequence,
        } = self.deliver(call, request).await?;
        let mut fold = reader.see();
        if !configuration.return_immediately {
            loop {
                let standing = task_in(&fold, number)?.standing();
                if is_terminal(standing.state) || is_interrupted(standing.state) {
                    break;
                }
                fold = tokio::select! {
                    changed = reader.changed() => changed?,
                    () = self.draining.cancelled() => {
                        return Err(stopping().with("taskId", format!("{}-{number}", session.session_id)));
                    }
                };
            }
        }
        let extent = Extent {
            sequence: if configuration.return_immediately {
                sequence.max(fold.sequence)
            } else {
                u64::MAX
            },
            history,
            ..Extent::default()
        };
        let task = self
            .renderer(call, &session)
            .task(task_in(&fold, number)?, extent)
            .await?;
        Ok(SendMessageResponse {
            payload: Some(send_message_response::Payload::Task(task)),
        })
    }

    /// SendStreamingMessage. The first response is the task as the message left it.
    pub(crate) async fn send_streaming(self: &Arc<Self>, call: Call, request: SendMessageRequest) -> Result<Responses> {
        let configuration = request.configuration.clone().unwrap_or_default();
        let history = history_length(configuration.history_length)?;
        let sent = self.deliver(&call, request).await?;
        let extent = Extent {
            sequence: sent.sequence,
            history,
            ..Extent::default()
        };
        let first = {
            let fold = sent.reader.fold();
            let renderer = self.renderer(&call, &sent.session);
            renderer.task(task_in(&fold, sent.number)?, extent).await?
        };
        Ok(self.stream(call, sent, first, true))
    }

    /// SubscribeToTask.
    pub(crate) async fn subscribe(self: &Arc<Self>, call: Call, id: &str) -> Result<Responses> {
        let (task, session, _) = self.task(&call, id).await?;
        let reader = self.contexts.watch(&session, session.sequence).await?;
        let fold = reader.fold();
        let found = task_in(&fold, task.number)?;
        if is_terminal(found.standing().state) && call.after.is_none() {
            return Err(Error::new(
                Kind::UnsupportedOperation,
                "the task has ended, so it has no further updates; read it with GetTask",
            )
            .with("taskId", id));
        }
        // With a position, the task is as it was there, and all later updates follow.
        let sequence = call.after.unwrap_or(fold.sequence).min(fold.sequence);
        let extent = Extent {
            sequence,
            ..Extent::default()
        };
        let first = self.renderer(&call, &session).task(found, extent).await?;
        let sent = Sent {
            session,
            reader,
            number: task.number,
            sequence,
        };
        Ok(self.stream(call, sent, first, false))
    }

    /// Sends the task, then its updates after `sent.sequence`.
    fn stream(self: &Arc<Self>, call: Call, sent: Sent, first: pb::Task, ends_at_question: bool) -> Responses {
        let (sender, responses) = mpsc::channel(STREAM_BUFFER);
        let gateway = Arc::clone(self);
        tokio::spawn(async move {
            let sending = gateway.send_updates(&call, sent, first, ends_at_question, &sender);
            let ended = tokio::select! {
                ended = sending => ended,
                () = sender.closed() => return,
                () = gateway.draining.cancelled() => Err(stopping()),
            };
            if let Err(error) = ended {
                let _ = sender.send(Err(error)).await;
            }
            drop(call);
        });
        ReceiverStream::new(responses)
    }

    async fn send_updates(
        &self,
        call: &Call,
        sent: Sent,
        first: pb::Task,
        ends_at_question: bool,
        sender: &mpsc::Sender<Result<StreamResponse>>,
    ) -> Result<()> {
        let Sent {
            session,
            mut reader,
            number,
            mut sequence,
        } = sent;
        let closed = |_| Error::new(Kind::Unavailable, "the reader is gone");
        let first = StreamResponse {
            payload: Some(Payload::Task(first)),
        };
        sender.send(Ok(first)).await.map_err(closed)?;
        let renderer = self.renderer(call, &session);
        let mut fold = reader.see();
        loop {
            let task = task_in(&fold, number)?;
            for update in task.updates.iter().filter(|update| update.sequence > sequence) {
                let response = renderer.update(task, update).await?;
                sender.send(Ok(response)).await.map_err(closed)?;
            }
            sequence = sequence.max(fold.sequence);
            let is_over = task.updates.iter().any(is_last);
            let asks = task.standing().state == TaskState::InputRequired;
            if is_over || (ends_at_question && asks) {
                return Ok(());
            }
            fold = reader.changed().await?;
        }
    }

    /// Gives a message to the agent.
    async fn deliver(&self, call: &Call, request: SendMessageRequest) -> Result<Sent> {
        let message = request
            .message
            .ok_or_else(|| Error::invalid_params("message", "the request has no message"))?;
        parts::check(&message)?;
        let items = parts::to_items(&message, call.agent.show_message_ids)?;
        let push = request
            .configuration
            .and_then(|configuration| configuration.task_push_notification_config);
        if let Some(config) = &push {
            self.push.check(config)?;
        }
        let key = self.config.deduplicate_messages.then(|| request_id(call, &message));
        if let Some(sent) = self.repeated(call, &message, key.as_deref()).await? {
            return Ok(sent);
        }
        let sent = if !message.task_id.is_empty() {
            self.continue_task(call, &message, items, key.clone()).await?
        } else if !message.context_id.is_empty() {
            self.begin_task(call, &message, items, key.clone()).await?
        } else {
            self.begin_context(call, items, key.clone()).await?
        };
        let task = TaskId {
            context: sent.session.session_id.clone(),
            number: sent.number,
        };
        if let Some(config) = &push {
            self.push
                .create(&task, config, sent.sequence.saturating_sub(1), false)
                .await?;
        }
        if let Some(key) = key {
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            recent.insert(key, task);
        }
        Ok(sent)
    }

    /// Returns the task of a message that was sent before.
    async fn repeated(&self, call: &Call, message: &pb::Message, key: Option<&str>) -> Result<Option<Sent>> {
        let known = key.and_then(|key| {
            let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            recent.tasks.get(key).cloned()
        });
        let Some(task) = known else { return Ok(None) };
        if !message.task_id.is_empty() && message.task_id != task.to_string() {
            return Err(Error::invalid_params(
                "message.messageId",
                "another message of yours had this messageId; ids must be unique",
            ));
        }
        let Some(session) = self.context(call, &task.context).await? else {
            return Ok(None);
        };
        let reader = self.contexts.watch(&session, session.sequence).await?;
        let sequence = match reader.fold().task(task.number) {
            Some(task) => task.began,
            None => return Ok(None),
        };
        Ok(Some(Sent {
            session,
            reader,
            number: task.number,
            sequence,
        }))
    }

    /// Continues a task.
    async fn continue_task(
        &self,
        call: &Call,
        message: &pb::Message,
        items: Vec<InputItem>,
        key: Option<String>,
    ) -> Result<Sent> {
        let (task, session, reader) = self.task(call, &message.task_id).await?;
        if !message.context_id.is_empty() && message.context_id != task.context {
            return Err(Error::invalid_params(
                "message.contextId",
                format!(
                    "the task is in the context {}, not in {:?}",
                    task.context,
                    cut(&message.context_id)
                ),
            ));
        }
        let fold = reader.fold();
        let state = task_in(&fold, task.number)?.standing().state;
        if is_terminal(state) {
            return Err(Error::new(
                Kind::UnsupportedOperation,
                "the task has ended and accepts no further messages; send the message with its contextId only",
            )
            .with("taskId", &message.task_id));
        }
        self.check_budget(call).await?;
        self.input(call, session, items, key, state != TaskState::InputRequired)
            .await
    }

    /// Begins a task in a context.
    async fn begin_task(
        &self,
        call: &Call,
        message: &pb::Message,
        items: Vec<InputItem>,
        key: Option<String>,
    ) -> Result<Sent> {
        let id = parse_context(&message.context_id);
        let session = match id {
            Some(id) => self.context(call, &id).await?,
            None => None,
        };
        let session = session.ok_or_else(|| {
            Error::invalid_params(
                "message.contextId",
                format!(
                    "unknown context {:?}; contexts are created by the agent: leave contextId out",
                    cut(&message.context_id)
                ),
            )
        })?;
        if session.closed {
            return Err(Error::new(
                Kind::UnsupportedOperation,
                "the context is closed; send the message without a contextId",
            ));
        }
        let reader = self.contexts.read(&session, session.sequence).await?;
        if let Some(open) = reader.fold().open_task() {
            let id = format!("{}-{}", session.session_id, open.number);
            return Err(Error::new(
                Kind::UnsupportedOperation,
                format!(
                    "the task {id} of this context has not ended; send the message with its taskId, or cancel it first"
                ),
            )
            .with("taskId", id));
        }
        self.check_budget(call).await?;
        self.input(call, session, items, key, false).await
    }

    /// Gives an input to the agent of a context.
    async fn input(
        &self,
        call: &Call,
        session: Session,
        items: Vec<InputItem>,
        key: Option<String>,
        steer: bool,
    ) -> Result<Sent> {
        let request = SendInputRequest {
            request_id: key.unwrap_or_else(new_request_id),
            session_id: session.session_id.clone(),
            thread_id: session.root_thread_id.clone(),
            items,
            on_limit: OnLimit::Queue.into(),
            steer,
            ..SendInputRequest::default()
        };
        let response = self.supervisor.clone().send_input(brief(request)).await?.into_inner();
        tracing::info!(
            caller = call.caller.name(),
            agent = call.agent.id,
            session = session.session_id,
            "message"
        );
        let sequence = response.thread.map(|thread| thread.sequence).unwrap_or_default();
        let reader = self.contexts.watch(&session, sequence).await?;
        let fold = reader.fold();
        let number = fold
            .task_of_input(response.input_number)
            .map(|task| task.number)
            .ok_or_else(|| Error::internal("the input belongs to no task"))?;
        Ok(Sent {
            session,
            reader,
            number,
            sequence,
        })
    }

    /// Creates a context and its first task.
    async fn begin_context(&self, call: &Call, items: Vec<InputItem>, key: Option<String>) -> Result<Sent> {
        // One at a time, so that the number of contexts is exact.
        let _creating = call.caller.creating().lock().await;
        let spent = self.check_budget(call).await?;
        let (agent, limits) = (&call.agent, call.caller.limits());
        if spent.open_contexts >= limits.max_contexts {
            return Err(Error::new(
                Kind::Overloaded,
                format!(
                    "{} contexts of this caller are open; use one of them, or wait until idle ones are closed",
                    spent.open_contexts
                ),
            ));
        }
        let left = (limits.token_budget > 0).then(|| limits.token_budget.saturating_sub(spent.tokens));
        let tokens = match (agent.token_budget, left) {
            (0, left) => left.unwrap_or(0),
            (own, left) => own.min(left.unwrap_or(own)),
        };
        let labels = [
            (LABEL.0, LABEL.1),
            (CALLER_LABEL, call.caller.name()),
            (AGENT_LABEL, agent.id.as_str()),
        ];
        let request = CreateSessionRequest {
            request_id: key.unwrap_or_else(new_request_id),
            cwd: agent.cwd.clone(),
            items,
            agent_type: agent.role.clone(),
            agent_name: agent.agent_name.clone(),
            model: agent.model.clone(),
            reasoning_effort: agent.reasoning_effort.clone(),
            provider: agent.provider.clone(),
            sandbox: agent.sandbox.to_pb().into(),
            tool_ceiling: (!(agent.allow_tools.is_empty() && agent.deny_tools.is_empty())).then(|| ToolCeiling {
                allow_list: agent.allow_tools.clone(),
                deny_list: agent.deny_tools.clone(),
            }),
            limits: (agent.max_depth.is_some() || agent.max_threads.is_some()).then(|| Limits {
                max_depth: agent.max_depth,
                max_threads: agent.max_threads,
                ..Limits::default()
            }),
            budget: (tokens > 0 || agent.turn_budget > 0).then(|| Budget {
                tokens,
                turns: agent.turn_budget,
                ..Budget::default()
            }),
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            approve_tools: agent.approve_tools.clone(),
            retention: self
                .config
                .retention
                .and_then(|retention| prost_types::Duration::try_from(retention).ok()),
            approval_timeout: agent
                .approval_timeout
                .and_then(|timeout| prost_types::Duration::try_from(timeout).ok()),
            ..CreateSessionRequest::default()
        };
        let response = self
            .supervisor
            .clone()
            .create_session(brief(request))
            .await?
            .into_inner();
        let session = response
            .session
            .ok_or_else(|| Error::internal("the supervisor returned no session"))?;
        tracing::info!(
            caller = call.caller.name(),
            agent = agent.id,
            session = session.session_id,
            "context"
        );
        self.usage
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(call.caller.name());
        let reader = self.contexts.watch(&session, session.sequence).await?;
        let fold = reader.fold();
        let sequence = task_in(&fold, 1)?.began;
        Ok(Sent {
            session,
            reader,
            number: 1,
            sequence,
        })
    }

    /// Returns what the caller uses.
    ///
    /// # Errors
    ///
    /// The budget of the caller is spent.
    async fn check_budget(&self, call: &Call) -> Result<Spent> {
        let name = call.caller.name();
        let known = {
            let usage = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
            usage.get(name).copied()
        };
        let spent = match known {
            Some((read, spent)) if read.elapsed() < USAGE_LIFETIME => spent,
            _ => {
                let labels = [(LABEL.0, LABEL.1), (CALLER_LABEL, name)];
                let mut spent = Spent::default();
                for session in self.sessions(&labels, usize::MAX).await? {
                    let usage = session.roll_up.and_then(|roll_up| roll_up.usage).unwrap_or_default();
                    spent.tokens = spent
                        .tokens
                        .saturating_add(usage.input_tokens)
                        .saturating_add(usage.output_tokens);
                    spent.open_contexts += u32::from(!session.closed);
                }
                let mut usage = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
                usage.insert(name.to_owned(), (Instant::now(), spent));
                spent
            }
        };
        let budget = call.caller.limits().token_budget;
        if budget > 0 && spent.tokens >= budget {
            return Err(Error::new(
                Kind::BudgetExhausted,
                format!("this caller has used {} of its {budget} tokens", spent.tokens),
            ));
        }
        Ok(spent)
    }

    /// Lists the sessions with these labels, newest first.
    async fn sessions(&self, labels: &[(&str, &str)], most: usize) -> Result<Vec<Session>> {
        let mut found = Vec::new();
        let mut request = ListSessionsRequest {
            page_size: 1_000,
            labels: labels
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            include_closed: true,
            ..ListSessionsRequest::default()
        };
        loop {
            let page = self
                .supervisor
                .clone()
                .list_sessions(brief(request.clone()))
                .await?
                .into_inner();
            found.extend(page.sessions);
            if page.next_page_token.is_empty() || found.len() >= most {
                found.truncate(most);
                return Ok(found);
            }
            request.page_token = page.next_page_token;
        }
    }

    /// Returns the open contexts.
    pub(crate) async fn open_contexts(&self) -> Result<Vec<Session>> {
        let mut sessions = self.sessions(&[LABEL], usize::MAX).await?;
        sessions.retain(|session| !session.closed);
        Ok(sessions)
    }

    /// GetTask.
    pub(crate) async fn get(&self, call: &Call, request: GetTaskRequest) -> Result<pb::Task> {
        let history = history_length(request.history_length)?;
        let (task, session, reader) = self.task(call, &request.id).await?;
        let extent = Extent {
            history,
            ..Extent::default()
        };
        let fold = reader.fold();
        self.renderer(call, &session)
            .task(task_in(&fold, task.number)?, extent)
            .await
    }

    /// ListTasks.
    pub(crate) async fn list(&self, call: &Call, request: ListTasksRequest) -> Result<ListTasksResponse> {
        let page_size = request.page_size.unwrap_or(DEFAULT_PAGE);
        if !(1..=MAX_PAGE).contains(&page_size) {
            return Err(Error::invalid_params(
                "pageSize",
                format!("pageSize must be from 1 to {MAX_PAGE}"),
            ));
        }
        let history = match request.history_length {
            None => Some(0),
            some => history_length(some)?,
        };
        let status = match request.status {
            0 => None,
            number => {
                Some(TaskState::try_from(number).map_err(|_| Error::invalid_params("status", "unknown task state"))?)
            }
        };
        let after_page = match request.page_token.as_str() {
            "" => None,
            token => Some(Cursor::parse(token).ok_or_else(|| {
                Error::invalid_params(
                    "pageToken",
                    "invalid pageToken; pass the nextPageToken of the previous page",
                )
            })?),
        };
        let sessions = match request.context_id.as_str() {
            "" => {
                let labels = [
                    (LABEL.0, LABEL.1),
                    (CALLER_LABEL, call.caller.name()),
                    (AGENT_LABEL, call.agent.id.as_str()),
                ];
                self.sessions(&labels, MAX_LISTED_CONTEXTS).await?
            }
            id => match parse_context(id) {
                Some(id) => self.context(call, &id).await?.into_iter().collect(),
                None => Vec::new(),
            },
        };
        let folds: Vec<Option<(Session, Arc<Fold>)>> = stream::iter(sessions)
            .map(|session| async move {
                match self.contexts.read(&session, session.sequence).await {
                    Ok(reader) => Ok(Some((session, reader.fold()))),
                    // Deleted in the meantime.
                    Err(error) if error.kind == Kind::TaskNotFound => Ok(None),
                    Err(error) => Err(error),
                }
            })
            .buffer_unordered(READ_AT_ONCE)
            .try_collect()
            .await?;
        let since = request.status_timestamp_after.as_ref().map(time_key);
        let mut rows: Vec<(Cursor, &Session, &Task)> = Vec::new();
        for (session, fold) in folds.iter().flatten() {
            for task in fold.tasks() {
                let standing = task.standing();
                let time = time_key(&standing.time);
                if status.is_none_or(|status| standing.state == status) && since.is_none_or(|since| time >= since) {
                    let cursor = Cursor {
                        time,
                        id: TaskId {
                            context: session.session_id.clone(),
                            number: task.number,
                        },
                    };
                    rows.push((cursor, session, task));
                }
            }
        }
        // Newest status first.
        rows.sort_by(|(one, ..), (other, ..)| other.cmp(one));
        let total = rows.len();
        if let Some(after) = &after_page {
            rows.retain(|(cursor, ..)| cursor < after);
        }
        let most = usize::try_from(page_size).unwrap_or_default();
        let has_more = rows.len() > most;
        rows.truncate(most);
        let next_page_token = match rows.last() {
            Some((cursor, ..)) if has_more => cursor.to_string(),
            _ => String::new(),
        };
        let extent = Extent {
            sequence: u64::MAX,
            artifacts: request.include_artifacts.unwrap_or(false),
            history,
        };
        let mut tasks = Vec::with_capacity(rows.len());
        for (_, session, task) in rows {
            tasks.push(self.renderer(call, session).task(task, extent).await?);
        }
        Ok(ListTasksResponse {
            tasks,
            next_page_token,
            page_size,
            total_size: i32::try_from(total).unwrap_or(i32::MAX),
        })
    }

    /// CancelTask: stops the running turn and marks the task in the log, which decides between a cancellation and an end
    /// at the same time.
    pub(crate) async fn cancel(&self, call: &Call, request: CancelTaskRequest) -> Result<pb::Task> {
        let (id, session, reader) = self.task(call, &request.id).await?;
        let not_cancelable = |state: TaskState| {
            Error::new(
                Kind::TaskNotCancelable,
                format!("the task has ended: {}", state.as_str_name()),
            )
            .with("taskId", &request.id)
        };
        let fold = reader.fold();
        let task = task_in(&fold, id.number)?;
        let state = task.standing().state;
        if is_terminal(state) {
            return Err(not_cancelable(state));
        }
        if state != TaskState::InputRequired {
            self.interrupt(&session, task.last_turn()).await?;
        }
        let note = SetThreadNoteRequest {
            request_id: new_request_id(),
            session_id: session.session_id.clone(),
            thread_id: session.root_thread_id.clone(),
            thread_note: cancel_note(id.number),
        };
        let noted = self.supervisor.clone().set_thread_note(brief(note)).await?.into_inner();
        let sequence = noted.thread.map(|thread| thread.sequence).unwrap_or_default();
        let reader = self.contexts.read(&session, sequence).await?;
        let fold = reader.fold();
        let task = task_in(&fold, id.number)?;
        let standing = task.standing();
        if standing.state != TaskState::Canceled {
            return Err(not_cancelable(standing.state));
        }
        if state != TaskState::InputRequired {
            self.interrupt_waiting_inputs(&session);
        }
        self.renderer(call, &session).task(task, Extent::default()).await
    }

    /// Interrupts the agent of a context. With a turn: only this turn.
    async fn interrupt(&self, session: &Session, turn: Option<u32>) -> Result<bool> {
        let request = InterruptAgentRequest {
            request_id: new_request_id(),
            session_id: session.session_id.clone(),
            thread_id: session.root_thread_id.clone(),
            turn,
            only_this: false,
            reason: String::from("canceled by the A2A caller"),
        };
        let response = self
            .supervisor
            .clone()
            .interrupt_agent(brief(request))
            .await?
            .into_inner();
        let status = response
            .thread
            .and_then(|thread| thread.status)
            .map(|status| status.kind());
        Ok(!matches!(
            status,
            Some(StatusKind::Queued | StatusKind::PendingInit | StatusKind::Running)
        ))
    }

    /// Interrupts the turns that inputs of a canceled task would start, until the agent is idle or has another task.
    fn interrupt_waiting_inputs(&self, session: &Session) {
        let (contexts, supervisor) = (Arc::clone(&self.contexts), self.supervisor.clone());
        let session = session.clone();
        tokio::spawn(async move {
            for _ in 0..INTERRUPTS {
                let Ok(Some(now)) = upstream::session(&supervisor, &session.session_id).await else {
                    return;
                };
                let Ok(reader) = contexts.read(&now, now.sequence).await else {
                    return;
                };
                if reader.fold().open_task().is_some() {
                    return;
                }
                let request = InterruptAgentRequest {
                    request_id: new_request_id(),
                    session_id: session.session_id.clone(),
                    thread_id: session.root_thread_id.clone(),
                    reason: String::from("canceled by the A2A caller"),
                    ..InterruptAgentRequest::default()
                };
                let Ok(response) = supervisor.clone().interrupt_agent(brief(request)).await else {
                    return;
                };
                let status = response.into_inner().thread.and_then(|thread| thread.status);
                let is_active = status.is_some_and(|status| {
                    matches!(
                        status.kind(),
                        StatusKind::Queued | StatusKind::PendingInit | StatusKind::Running
                    )
                });
                if !is_active {
                    return;
                }
                tokio::time::sleep(INTERRUPT_PAUSE).await;
            }
        });
    }

    /// CreateTaskPushNotificationConfig.
    pub(crate) async fn create_push(
        &self,
        call: &Call,
        config: TaskPushNotificationConfig,
    ) -> Result<TaskPushNotificationConfig> {
        let (task, _, reader) = self.task(call, &config.task_id).await?;
        let fold = reader.fold();
        let is_done = is_terminal(task_in(&fold, task.number)?.standing().state);
        self.push.create(&task, &config, fold.sequence, is_done).await
    }

    /// GetTaskPushNotificationConfig.
    pub(crate) async fn get_push(&self, call: &Call, task: &str, id: &str) -> Result<TaskPushNotificationConfig> {
        let (task, ..) = self.task(call, task).await?;
        self.push.get(&task, id)
    }

    /// ListTaskPushNotificationConfigs. A task has so few that they fit into one page.
    pub(crate) async fn list_push(&self, call: &Call, task: &str) -> Result<Vec<TaskPushNotificationConfig>> {
        let (task, ..) = self.task(call, task).await?;
        Ok(self.push.list(&task))
    }

    /// DeleteTaskPushNotificationConfig.
    pub(crate) async fn delete_push(&self, call: &Call, task: &str, id: &str) -> Result<()> {
        let (task, ..) = self.task(call, task).await?;
        self.push.delete(&task, id).await
    }

    /// GetExtendedAgentCard.
    pub(crate) async fn extended_card(&self, call: &Call) -> AgentCard {
        self.cards
            .extended(&self.config, &call.agent, &self.callers, &call.caller)
            .await
    }

    /// Logs the agents whose role does not exist.
    pub(crate) async fn check_agents(&self) {
        for agent in &self.agents {
            if !self.cards.has_template(agent).await {
                tracing::warn!(
                    agent = agent.id,
                    role = agent.role,
                    "the role of an agent is not available"
                );
            }
        }
    }

    /// The card that everybody may read.
    pub(crate) async fn card(&self, agent: &Agent) -> AgentCard {
        self.cards.public(&self.config, agent, &self.callers).await
    }
}

/// Returns whether a session is a context of this caller and agent.
fn is_of(session: &Session, call: &Call) -> bool {
    let has = |key: &str, value: &str| session.labels.get(key).is_some_and(|found| found == value);
    has(LABEL.0, LABEL.1) && has(CALLER_LABEL, call.caller.name()) && has(AGENT_LABEL, &call.agent.id)
}

fn task_in(fold: &Fold, number: u32) -> Result<&Task> {
    fold.task(number)
        .ok_or_else(|| Error::new(Kind::TaskNotFound, "the task is too old"))
}

fn stopping() -> Error {
    Error::new(
        Kind::Unavailable,
        "the service stops; the task continues, read it with GetTask",
    )
}

fn new_request_id() -> String {
    Uuid::now_v7().to_string()
}

/// Returns the request id of a message, which makes a repeated message one request.
fn request_id(call: &Call, message: &pb::Message) -> String {
    let mut hash = Sha256::new();
    for text in [call.caller.name(), &call.agent.id, &message.message_id] {
        hash.update(text.len().to_be_bytes());
        hash.update(text.as_bytes());
    }
    format!("a2a-{}", lower::encode_string(&hash.finalize()))
}

/// Returns the maximum number of messages. `None`: no maximum.
fn history_length(length: Option<i32>) -> Result<Option<usize>> {
    length
        .map(|length| {
            usize::try_from(length)
                .map_err(|_| Error::invalid_params("historyLength", "historyLength must not be negative"))
        })
        .transpose()
}

/// A place in a list of tasks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cursor {
    time: (i64, i32),
    id: TaskId,
}

impl Cursor {
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.splitn(3, '.');
        let seconds = fields.next()?.parse().ok()?;
        let nanos = fields.next()?.parse().ok()?;
        Some(Self {
            time: (seconds, nanos),
            id: TaskId::parse(fields.next()?)?,
        })
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}.{}.{}", self.time.0, self.time.1, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_tokens_are_read_back() {
        let token = "12.5.01a1fc89-0902-7629-98ed-9dce17881f00-3";
        assert_eq!(
            Cursor::parse(token).map(|cursor| cursor.to_string()).as_deref(),
            Some(token)
        );
        for text in ["x", "1.2", "1.2.3", "1.2.01a1fc89-0902-7629-98ed-9dce17881f00-3.4"] {
            assert_eq!(Cursor::parse(text), None, "{text}");
        }
    }

    #[test]
    fn history_length_is_bounded() {
        assert!(history_length(Some(-1)).is_err());
        assert_eq!(history_length(Some(0)).ok(), Some(Some(0)));
        assert_eq!(history_length(None).ok(), Some(None));
    }
}
