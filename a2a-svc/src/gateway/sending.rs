//! Messages: which context and task they belong to, and their delivery to the agent.

use std::{
    collections::{HashMap, VecDeque},
    sync::PoisonError,
    time::{Duration, Instant},
};

use base16ct::lower;
use sha2::{Digest as _, Sha256};
use troupe_proto::supervisor::v1::{
    Budget, CreateSessionRequest, InputItem, Limits, OnLimit, SendInputRequest, Session, ToolCeiling,
};

use super::{AGENT_LABEL, CALLER_LABEL, Call, Gateway, LABEL, new_request_id, task_in};
use crate::{
    contexts::Reader,
    error::{Error, Kind, Result, cut},
    fold::is_terminal,
    ids::{TaskId, parse_context},
    parts,
    pb::{self, SendMessageRequest, TaskState},
    upstream::brief,
};

/// Time for which the usage of a caller is cached.
const USAGE_LIFETIME: Duration = Duration::from_secs(2);
/// Maximum number of recent messages whose repetition is recognized without the supervisor.
const MAX_RECENT: usize = 10_000;

/// The usage of a caller.
#[derive(Clone, Copy, Default)]
pub(super) struct Spent {
    tokens: u64,
    open_contexts: u32,
}

/// A task that a message created or continued.
pub(super) struct Sent {
    pub(super) session: Session,
    pub(super) reader: Reader,
    pub(super) number: u32,
    /// The event of the message.
    pub(super) sequence: u64,
    /// The items of the input that began the task. `None` if the message was repeated or continues a task.
    pub(super) opening: Option<Vec<InputItem>>,
}

/// The tasks of recent messages. A repeated message gets the response of the first message, even if the task has
/// changed since.
#[derive(Default)]
pub(super) struct Recent {
    tasks: HashMap<String, TaskId>,
    order: VecDeque<String>,
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

impl Gateway {
    /// Delivers a message to the agent.
    pub(super) async fn deliver(&self, call: &Call, request: SendMessageRequest) -> Result<Sent> {
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
        let opening = message.task_id.is_empty().then(|| items.clone());
        let mut sent = if !message.task_id.is_empty() {
            self.continue_task(call, &message, items, key.clone()).await?
        } else if !message.context_id.is_empty() {
            self.begin_task(call, &message, items, key.clone()).await?
        } else {
            self.begin_context(call, items, key.clone()).await?
        };
        sent.opening = opening;
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
            opening: None,
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

    /// Sends an input to the agent of a context.
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
            opening: None,
        })
    }

    /// Creates a context and its first task.
    async fn begin_context(&self, call: &Call, items: Vec<InputItem>, key: Option<String>) -> Result<Sent> {
        // Contexts of a caller are created one at a time, so that their number is exact.
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
        // A repeated message counts again, until the usage is read again.
        if let Some((_, spent)) = self
            .usage
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_mut(call.caller.name())
        {
            spent.open_contexts += 1;
        }
        let reader = self.contexts.watch(&session, session.sequence).await?;
        let fold = reader.fold();
        let sequence = task_in(&fold, 1)?.began;
        Ok(Sent {
            session,
            reader,
            number: 1,
            sequence,
            opening: None,
        })
    }

    /// Returns the usage of the caller.
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
}

/// Returns the request id of a message, which is the same for a repeated message.
fn request_id(call: &Call, message: &pb::Message) -> String {
    let mut hash = Sha256::new();
    for text in [call.caller.name(), &call.agent.id, &message.message_id] {
        hash.update(text.len().to_be_bytes());
        hash.update(text.as_bytes());
    }
    format!("a2a-{}", lower::encode_string(&hash.finalize()))
}
