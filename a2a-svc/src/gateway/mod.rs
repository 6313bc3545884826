//! The operations of the protocol, independent of its bindings.

mod canceling;
mod listing;
mod sending;

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Instant,
};

use http::Extensions;
use svc_kit::{peer::Peer, web::KnownCall};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use troupe_proto::supervisor::v1::{ListSessionsRequest, Session};
use uuid::Uuid;

pub(crate) use self::listing::{MAX_LISTED_CONTEXTS, MAX_PAGE};
use self::sending::{Recent, Sent, Spent};
use crate::{
    caller::{Caller, Callers},
    card::Cards,
    config::{Agent, Config},
    contexts::{Contexts, Reader},
    error::{Error, Kind, Result, cut},
    fold::{Fold, Task, is_interrupted, is_terminal},
    ids::TaskId,
    metrics::Metrics,
    pb::{
        self, AgentCard, GetTaskRequest, ListTaskPushNotificationConfigsResponse, SendMessageRequest,
        SendMessageResponse, StreamResponse, TaskPushNotificationConfig, TaskState, send_message_response,
        stream_response::Payload,
    },
    push::Push,
    render::{Extent, Renderer, is_last},
    upstream::{self, Supervisor, brief},
};

/// Label of the sessions of this service, with its only value.
pub(crate) const LABEL: (&str, &str) = ("troupe.a2a", "context");
/// Label with the caller's name.
const CALLER_LABEL: &str = "troupe.a2a/caller";
/// Label with the agent's id.
const AGENT_LABEL: &str = "troupe.a2a/agent";

/// Number of updates that a slow reader may be behind before the stream waits for it.
const STREAM_BUFFER: usize = 16;
/// A stream of responses.
pub(crate) type Responses = ReceiverStream<Result<StreamResponse>>;

/// An authenticated caller with a counted call.
#[derive(Clone)]
pub(crate) struct Entry {
    caller: Arc<Caller>,
    held: Held,
}

/// The resources that a call holds: a slot among the calls of its caller, and its connection.
type Held = Arc<(OwnedSemaphorePermit, KnownCall)>;

/// A call by an authenticated caller.
pub(crate) struct Call {
    pub(crate) caller: Arc<Caller>,
    pub(crate) agent: Arc<Agent>,
    /// The position after which a subscription continues.
    pub(crate) after: Option<u64>,
    _held: Held,
}

/// Executes the operations.
pub(crate) struct Gateway {
    pub(crate) config: Config,
    pub(crate) callers: Callers,
    pub(crate) agents: Vec<Arc<Agent>>,
    pub(crate) cards: Cards,
    pub(crate) metrics: Arc<Metrics>,
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

impl Gateway {
    pub(crate) fn new(parts: Parts) -> std::result::Result<Arc<Self>, crate::push::PushError> {
        let contexts = Arc::new(Contexts::new(parts.streams));
        let metrics = Arc::new(Metrics::default());
        let push = Push::open(
            &parts.push_directory,
            parts.supervisor.clone(),
            Arc::clone(&contexts),
            Arc::clone(&metrics),
            parts.config.push_allow_private,
            parts.draining.clone(),
        )?;
        Ok(Arc::new(Self {
            callers: Callers::new(parts.config.callers.clone()),
            agents: parts.config.agents.iter().cloned().map(Arc::new).collect(),
            config: parts.config,
            cards: parts.cards,
            metrics,
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

    /// Authenticates a caller and counts the call. Call this function before the body of a request is read.
    ///
    /// # Errors
    ///
    /// The token or the certificate is not valid, or the caller exceeds its rate or its number of calls.
    pub(crate) fn enter(&self, authorization: Option<&str>, extensions: &Extensions) -> Result<Entry> {
        let peer = extensions.get::<Peer>();
        let certificate = peer.and_then(|peer| peer.principal.as_deref());
        let caller = self.callers.identify(authorization, certificate)?;
        let permit = caller.admit(Instant::now())?;
        let held = Arc::new((permit, KnownCall::begin(extensions)));
        Ok(Entry { caller, held })
    }

    /// Returns a call to an agent. A subscription continues after the position `after`.
    ///
    /// # Errors
    ///
    /// The caller may not use the agent.
    pub(crate) fn admit(&self, entry: Entry, tenant: &str, after: Option<u64>) -> Result<Call> {
        let Entry { caller, held } = entry;
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
            _held: held,
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

    /// Handles SendMessage.
    pub(crate) async fn send(&self, call: &Call, request: SendMessageRequest) -> Result<SendMessageResponse> {
        let configuration = request.configuration.clone().unwrap_or_default();
        let history = history_length(configuration.history_length)?;
        let Sent {
            session,
            mut reader,
            number,
            sequence,
            ..
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

    /// Handles SendStreamingMessage. The first response is the task after the message.
    pub(crate) async fn send_streaming(self: &Arc<Self>, call: Call, request: SendMessageRequest) -> Result<Responses> {
        let configuration = request.configuration.clone().unwrap_or_default();
        let history = history_length(configuration.history_length)?;
        let sent = self.deliver(&call, request).await?;
        // The history of a new task is known without a call.
        let opening = sent.opening.as_ref().filter(|_| history != Some(0));
        let extent = Extent {
            sequence: sent.sequence,
            history: if opening.is_some() { Some(0) } else { history },
            ..Extent::default()
        };
        let first = {
            let fold = sent.reader.fold();
            let renderer = self.renderer(&call, &sent.session);
            let task = task_in(&fold, sent.number)?;
            let mut first = renderer.task(task, extent).await?;
            first.history.extend(opening.map(|items| renderer.opening(task, items)));
            first
        };
        Ok(self.stream(call, sent, first, true))
    }

    /// Handles SubscribeToTask.
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
        // With a position, the first response is the task as of the position. All later updates follow.
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
            opening: None,
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
            ..
        } = sent;
        let closed = |_| Error::new(Kind::Unavailable, "the reader has disconnected");
        let first = StreamResponse {
            payload: Some(Payload::Task(first)),
        };
        sender.send(Ok(first)).await.map_err(closed)?;
        let renderer = self.renderer(call, &session);
        let mut fold = reader.see();
        loop {
            let task = task_in(&fold, number)?;
            for update in task.updates.iter().filter(|update| update.sequence > sequence) {
                for response in renderer.update(task, update).await? {
                    sender.send(Ok(response)).await.map_err(closed)?;
                }
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

    /// Handles GetTask.
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

    /// Handles CreateTaskPushNotificationConfig.
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

    /// Handles GetTaskPushNotificationConfig.
    pub(crate) async fn get_push(&self, call: &Call, task: &str, id: &str) -> Result<TaskPushNotificationConfig> {
        let (task, ..) = self.task(call, task).await?;
        self.push.get(&task, id)
    }

    /// Handles ListTaskPushNotificationConfigs. The configurations of a task always fit into one page.
    pub(crate) async fn list_push(&self, call: &Call, task: &str) -> Result<ListTaskPushNotificationConfigsResponse> {
        let (task, ..) = self.task(call, task).await?;
        Ok(ListTaskPushNotificationConfigsResponse {
            configs: self.push.list(&task),
            next_page_token: String::new(),
        })
    }

    /// Handles DeleteTaskPushNotificationConfig.
    pub(crate) async fn delete_push(&self, call: &Call, task: &str, id: &str) -> Result<()> {
        let (task, ..) = self.task(call, task).await?;
        self.push.delete(&task, id).await
    }

    /// Handles GetExtendedAgentCard.
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

    /// Returns the public card of an agent.
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
        "the service is stopping; the task continues, read it with GetTask",
    )
}

fn new_request_id() -> String {
    Uuid::now_v7().to_string()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_length_is_bounded() {
        assert!(history_length(Some(-1)).is_err());
        assert_eq!(history_length(Some(0)).ok(), Some(Some(0)));
        assert_eq!(history_length(None).ok(), Some(None));
    }
}
