//! The driver of one thread: sends each turn as a message, and follows the message's task until the task ends or asks a
//! question.
//!
//! The ids of the context and the task are stored before the task's output is reported. Therefore the next attempt can
//! continue a task that was running when the runner crashed, and the next turn can continue the context.

use std::{
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use a2a_proto::{
    Message, Part, Role, SendMessageConfiguration, SendMessageRequest, TaskState, part::Content,
    stream_response::Payload,
};
use base16ct::lower;
use prost::Message as _;
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};
use sha2::{Digest as _, Sha256};
use svc_kit::{outgoing::Backoff, private_file};
use tokio::{
    sync::mpsc,
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;
use troupe_proto::{
    common::v1::{BlockKind, PromptBlock},
    supervisor::v1::{Input, input_item::Item},
};

use super::{
    client::{Client, Events, Fault, Interface, Operation, Reply, redacted},
    task::RemoteTask,
};
use crate::{
    agent::{AgentEvent, Order, TurnEnding},
    backoff,
    driven::DriverChannels,
    input,
    programs::A2aBinding,
    prompt::{PreparedTurn, REPEATED, assignment},
    redact,
    tool_line::ToolCall,
    workspace::Workspace,
};

/// Maximum time to try to start a task while the agent does not accept one.
pub(crate) const REACH_WITHIN: Duration = Duration::from_secs(60);
/// Maximum time to follow a task while the agent is not reachable.
pub(crate) const LOST_AFTER: Duration = Duration::from_secs(10 * 60);
/// Maximum time that an ending thread waits for the cancellation of its task.
const CANCEL_WITHIN: Duration = Duration::from_secs(5);
/// Maximum time that a task may still show a question that was already answered.
const QUESTION_WITHIN: Duration = Duration::from_secs(30);
/// The id of the call by which a thread asks its parent.
const QUESTION: &str = "question";

/// The stored state that a later turn or a later attempt needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The URL of the agent to which the context belongs.
    url: String,
    context: String,
    /// The id of the last task. Empty: the agent has not named it yet.
    task: String,
    /// Whether the task waits for a message.
    asks: bool,
    /// The number of the turn that was sent last. If another attempt repeats the turn, the supervisor gives the turn
    /// another number.
    turn: u32,
    /// The digest of that turn's inputs.
    inputs: String,
    /// Whether the turn has ended.
    ended: bool,
}

impl Record {
    /// Reads the record of a thread. Returns an empty record if the stored record is unreadable or belongs to another
    /// agent.
    pub(super) async fn read(path: &Path, url: &str) -> Self {
        let text = tokio::fs::read(path).await.unwrap_or_default();
        let record: Self = serde_json::from_slice(&text).unwrap_or_default();
        if record.url == url {
            return record;
        }
        Self {
            url: url.to_owned(),
            ..Self::default()
        }
    }

    pub(super) const fn has_context(&self) -> bool {
        !self.context.is_empty()
    }
}

/// The driver of a thread.
pub(super) struct Driver {
    pub(super) client: Client,
    pub(super) binding: Option<A2aBinding>,
    pub(super) record: Record,
    pub(super) path: PathBuf,
    pub(super) workspace: Arc<Workspace>,
    /// The beginning of the ids of messages.
    pub(super) thread_id: String,
    /// The number of the attempt. The ids of messages that are sent again contain this number.
    pub(super) generation: u32,
    pub(super) gaps: Vec<String>,
    /// The role's prompt blocks, for turns that do not contain them.
    pub(super) blocks: Vec<PromptBlock>,
    /// Whether the thread had turns whose context is not known.
    pub(super) has_lost_context: bool,
    pub(super) interface: Option<Interface>,
    pub(super) task: RemoteTask,
    pub(super) events: mpsc::Sender<AgentEvent>,
}

/// How a turn ended.
enum Outcome {
    Ended(TurnEnding, String),
    /// The agent asks its client a question.
    Asks(String),
}

impl Driver {
    pub(super) async fn drive(mut self, channels: DriverChannels) {
        channels.report_gaps(&self.gaps).await;
        if self.has_lost_context {
            channels.report_context_lost("the runner has no context of it").await;
        }
        let mut orders = channels.orders;
        while let Some(order) = orders.recv().await {
            let Order::Turn(turn) = order else { continue };
            let outcome = self.run_turn(&turn, &mut orders).await;
            let ended = |ending, message| AgentEvent::TurnEnded { ending, message };
            let event = match outcome {
                Outcome::Ended(ending, message) => ended(ending, message),
                Outcome::Asks(question) => match self.ask(&question, &mut orders).await {
                    Ok(()) => ended(TurnEnding::Completed, question),
                    Err(()) => ended(TurnEnding::Interrupted, question),
                },
            };
            self.emit(event).await;
        }
    }

    /// Executes a turn. The first interruption cancels the task. The second interruption ends the turn without waiting
    /// for the agent.
    async fn run_turn(&mut self, turn: &PreparedTurn, orders: &mut mpsc::Receiver<Order>) -> Outcome {
        let interrupted = |why: &str| Outcome::Ended(TurnEnding::Interrupted, why.to_owned());
        let cancel = CancellationToken::new();
        let mut work = pin!(self.execute(turn, &cancel));
        loop {
            tokio::select! {
                outcome = &mut work => return outcome,
                order = orders.recv() => match order {
                    Some(Order::Interrupt) if cancel.is_cancelled() => {
                        return interrupted("the remote agent did not confirm the cancellation of its task");
                    }
                    Some(Order::Interrupt) => cancel.cancel(),
                    // More input becomes part of the next turn.
                    Some(_) => {}
                    None => {
                        cancel.cancel();
                        let _ = timeout(CANCEL_WITHIN, &mut work).await;
                        return interrupted("the thread has ended");
                    }
                },
            }
        }
    }

    /// Forwards a question to the thread's parent. The answer arrives as the next input. An error means an
    /// interruption.
    async fn ask(&self, question: &str, orders: &mut mpsc::Receiver<Order>) -> Result<(), ()> {
        let args = Map::from_iter([("question".to_owned(), json!(question))]);
        let call = ToolCall {
            id: QUESTION.to_owned(),
            name: "ask_parent".to_owned(),
            args,
            warning: None,
        };
        self.emit(AgentEvent::ToolCalled(call)).await;
        loop {
            match orders.recv().await {
                // If the tool is not available, the turn's message is the question.
                Some(Order::ToolAnswered { id, .. }) if id == QUESTION => return Ok(()),
                Some(Order::Interrupt) | None => return Err(()),
                Some(_) => {}
            }
        }
    }

    /// Reports an event. While the thread ends, there is no receiver and the event is dropped.
    async fn emit(&self, event: AgentEvent) {
        let _ = self.events.send(event).await;
    }

    async fn execute(&mut self, turn: &PreparedTurn, cancel: &CancellationToken) -> Outcome {
        let worked = Box::pin(self.try_execute(turn, cancel)).await;
        let is_over = worked.is_ok();
        let secrets = self.client.secrets().await;
        let agent = format!("the remote agent {}", self.client.authority());
        let outcome = match worked {
            Ok(()) => self.conclude(&agent),
            Err(fault) => Outcome::Ended(TurnEnding::Errored, redacted(&format!("{agent}: {fault}"), &secrets)),
        };
        for event in self.task.settle() {
            self.emit(event).await;
        }
        let waits = matches!(self.task.state(), TaskState::InputRequired | TaskState::AuthRequired);
        self.record.asks = waits && !self.record.task.is_empty() && self.record.task == self.task.id;
        self.record.ended |= is_over;
        self.store().await;
        outcome
    }

    async fn try_execute(&mut self, turn: &PreparedTurn, cancel: &CancellationToken) -> Result<(), Fault> {
        let started = Instant::now();
        let mut backoff = backoff::new();
        if self.interface.is_none() {
            let interface = loop {
                match self.client.interface(self.binding).await {
                    Err(fault)
                        if fault.is_transient() && started.elapsed() < REACH_WITHIN && !cancel.is_cancelled() =>
                    {
                        self.wait(&fault, &mut backoff, cancel).await;
                    }
                    selected => break selected?,
                }
            };
            self.interface = Some(interface);
        }
        let inputs = digest(&turn.inputs);
        // An earlier attempt has sent the same turn.
        let is_again = !self.record.ended && !inputs.is_empty() && self.record.inputs == inputs;
        let is_known = !self.record.task.is_empty();
        let is_open = !self.record.ended || (self.record.asks && self.task.id != self.record.task);
        if is_known && is_open && self.resume(is_again, cancel).await? {
            return self.follow(None, cancel).await;
        }
        let is_resent = is_again && is_known && !self.record.asks;
        if !is_again {
            self.record.turn = turn.number;
        }
        self.record.inputs = inputs;
        self.record.ended = false;
        if !self.record.asks {
            self.record.task.clear();
        }
        self.store().await;
        let reply = loop {
            if cancel.is_cancelled() {
                return Err(Fault::Refused("the turn was interrupted before it was sent".to_owned()));
            }
            let request = self.request(turn, is_resent).await;
            match self.send(&request).await {
                Err(fault @ Fault::Unsent(_)) if started.elapsed() < REACH_WITHIN => {
                    self.wait(&fault, &mut backoff, cancel).await;
                }
                Err(Fault::Lost(why)) => {
                    return Err(Fault::Refused(format!(
                        "{why}; it may have received the turn and work on it"
                    )));
                }
                // The agent accepts no answer to the question any more. The turn is sent again without the question's
                // task.
                Err(Fault::Refused(_) | Fault::NotFound(_)) if self.record.asks => self.record.asks = false,
                Err(Fault::Refused(why) | Fault::NotFound(why)) if self.record.has_context() => {
                    self.lose_context(&why).await;
                }
                reply => break reply?,
            }
        };
        match self.record.asks {
            true => self.task.answer(),
            false => self.task = RemoteTask::new(self.client.secrets().await),
        }
        let stream = match reply {
            Reply::Events(stream) => Some(stream),
            Reply::Value(payload) => {
                self.apply(*payload).await?;
                None
            }
        };
        self.follow(stream, cancel).await
    }

    /// Continues the task of a turn that is repeated. Returns false if the turn must be sent. An unfinished task of
    /// another turn is canceled, because a context may have only one unfinished task.
    async fn resume(&mut self, is_again: bool, cancel: &CancellationToken) -> Result<bool, Fault> {
        let id = self.record.task.clone();
        let (mut backoff, started) = (backoff::new(), Instant::now());
        let payload = loop {
            match self.call(Operation::Get(&id)).await {
                Err(fault) if fault.is_transient() && started.elapsed() < LOST_AFTER && !cancel.is_cancelled() => {
                    self.wait(&fault, &mut backoff, cancel).await;
                }
                Ok(Reply::Value(payload)) => break payload,
                Err(Fault::NotFound(why)) => {
                    self.lose_context(&why).await;
                    return Ok(false);
                }
                Ok(Reply::Events(_)) => return Ok(false),
                Err(fault) => return Err(fault),
            }
        };
        let state = match &*payload {
            Payload::Task(task) => task
                .status
                .as_ref()
                .map_or(TaskState::Unspecified, |status| status.state()),
            _ => return Ok(false),
        };
        let waits = matches!(state, TaskState::InputRequired | TaskState::AuthRequired);
        // Only the task of a repeated turn is resumed. Two such tasks are not: a task that was canceled when its
        // attempt was stopped, and a task that waits for an answer to an earlier turn's question, because this turn has
        // to be sent as the answer.
        let resumes = is_again && state != TaskState::Canceled && !(waits && self.record.asks);
        self.task = RemoteTask::new(self.client.secrets().await);
        if resumes {
            self.apply(*payload).await?;
        } else if waits && self.record.asks {
            // An earlier attempt has displayed this question.
            self.task.apply(*payload).map_err(Fault::Refused)?;
        } else {
            self.record.asks = false;
            if matches!(state, TaskState::Submitted | TaskState::Working)
                && let Err(fault) = self.call(Operation::Cancel(&id)).await
            {
                debug!(%fault, "an earlier remote task was not canceled");
            }
        }
        Ok(resumes)
    }

    /// Abandons a context that the agent rejects. The next message begins another context.
    async fn lose_context(&mut self, why: &str) {
        self.record.context.clear();
        self.record.task.clear();
        self.record.asks = false;
        let why = format!("the remote agent does not continue the earlier conversation: {why}");
        let why = redacted(&why, &self.client.secrets().await);
        self.emit(AgentEvent::ContextLost(why)).await;
    }

    async fn call(&self, operation: Operation<'_>) -> Result<Reply, Fault> {
        match &self.interface {
            Some(interface) => self.client.call(interface, operation).await,
            None => Err(Fault::Unsent("its card was not read".to_owned())),
        }
    }

    async fn send(&self, request: &SendMessageRequest) -> Result<Reply, Fault> {
        match self.supports_streams() {
            true => self.call(Operation::Stream(request)).await,
            false => self.call(Operation::Send(request)).await,
        }
    }

    fn supports_streams(&self) -> bool {
        self.interface.as_ref().is_some_and(|interface| interface.streams)
    }

    /// Follows the task until it ends or asks a question. After a lost stream, the state of the task contains the
    /// missed updates.
    async fn follow(&mut self, mut stream: Option<Events>, cancel: &CancellationToken) -> Result<(), Fault> {
        let (mut backoff, began, mut reached) = (backoff::new(), Instant::now(), Instant::now());
        let mut is_canceled = false;
        loop {
            if self.task.is_settled(began.elapsed() > QUESTION_WITHIN) {
                return Ok(());
            }
            let id = self.task.id.clone();
            if cancel.is_cancelled() && !is_canceled && !id.is_empty() {
                is_canceled = true;
                match self.call(Operation::Cancel(&id)).await {
                    Ok(Reply::Value(payload)) => self.apply(*payload).await?,
                    Ok(Reply::Events(_)) => {}
                    // The task has just ended, or the agent cannot cancel.
                    Err(fault) => debug!(%fault, "a remote task was not canceled"),
                }
                continue;
            }
            if let Some(open) = &mut stream {
                let next = tokio::select! {
                    next = open.next() => next,
                    () = cancel.cancelled(), if !is_canceled && !id.is_empty() => continue,
                };
                match next {
                    Ok(Some(payload)) => {
                        reached = Instant::now();
                        self.apply(payload).await?;
                        continue;
                    }
                    Err(fault) if !fault.is_transient() => return Err(fault),
                    Ok(None) | Err(_) => stream = None,
                }
                if reached.duration_since(began) > backoff::LONGEST {
                    backoff = backoff::new();
                }
            }
            if self.task.id.is_empty() {
                let why = "the connection was lost before it named its task; it may work on the turn";
                return Err(Fault::Refused(why.to_owned()));
            }
            match self.call(Operation::Get(&id)).await {
                Ok(Reply::Value(payload)) => {
                    reached = Instant::now();
                    self.apply(*payload).await?;
                }
                Ok(Reply::Events(_)) => {}
                Err(fault) if fault.is_transient() && reached.elapsed() < LOST_AFTER => {
                    self.wait(&fault, &mut backoff, cancel).await;
                    continue;
                }
                Err(fault) => return Err(fault),
            }
            if self.task.is_settled(began.elapsed() > QUESTION_WITHIN) {
                return Ok(());
            }
            tokio::select! {
                () = sleep(backoff.next_delay()) => {}
                () = cancel.cancelled(), if !is_canceled => continue,
            }
            // The first event of the stream is the task, so no update between the two requests is missed.
            if self.supports_streams()
                && let Ok(Reply::Events(open)) = self.call(Operation::Subscribe(&id)).await
            {
                stream = Some(open);
            }
        }
    }

    /// Waits before the next attempt to reach the agent.
    async fn wait(&self, fault: &Fault, backoff: &mut Backoff, cancel: &CancellationToken) {
        let text = format!("remote agent not reachable: {fault}");
        let text = redacted(&text, &self.client.secrets().await);
        self.emit(AgentEvent::Activity(redact::detail(&text))).await;
        tokio::select! {
            () = sleep(backoff.next_delay()) => {}
            () = cancel.cancelled() => {}
        }
    }

    /// Applies an update, and stores the ids that it contains.
    async fn apply(&mut self, payload: Payload) -> Result<(), Fault> {
        let updates = self.task.apply(payload).map_err(Fault::Refused)?;
        let before = self.record.clone();
        if !self.task.context.is_empty() {
            self.record.context.clone_from(&self.task.context);
        }
        self.record.task.clone_from(&self.task.id);
        self.record.asks = false;
        if self.record != before {
            self.store().await;
        }
        for update in updates {
            self.emit(update).await;
        }
        Ok(())
    }

    /// Stores the record. If that fails, the next attempt begins a new context.
    async fn store(&self) {
        let (path, bytes) = (self.path.clone(), serde_json::to_vec(&self.record).unwrap_or_default());
        let stored = spawn_blocking(move || private_file::replace(&path, &bytes, private_file::PRIVATE)).await;
        if let Ok(Err(error)) = stored {
            debug!(%error, "the context of a remote agent was not stored");
        }
    }

    /// Returns the message of a turn. If the task of a repeated turn is not known, the message has the same id as
    /// before, so that the agent can detect the repetition. With `is_resent`, the task was canceled, and the message
    /// has a new id.
    async fn request(&self, turn: &PreparedTurn, is_resent: bool) -> SendMessageRequest {
        let mut message_id = format!("{}-{}", self.thread_id, self.record.turn);
        let mut parts = Vec::new();
        if is_resent {
            message_id = format!("{message_id}-{}", self.generation);
            parts.push(text(REPEATED));
        }
        if !self.record.has_context() {
            let role = turn
                .blocks
                .iter()
                .chain(&self.blocks)
                .filter(|block| block.kind() == BlockKind::Role);
            parts.extend(
                role.map(|block| block.text.trim())
                    .find(|role| !role.is_empty())
                    .map(text),
            );
        }
        let mut has_input = false;
        for given in &turn.inputs {
            let asked = self.parts(given).await;
            has_input |= !asked.is_empty();
            parts.extend(asked);
        }
        if !has_input {
            // The turn contains only mail of other agents, which is part of its task block.
            parts.push(text(assignment(turn)));
        }
        SendMessageRequest {
            message: Some(Message {
                message_id,
                context_id: self.record.context.clone(),
                task_id: match self.record.asks {
                    true => self.record.task.clone(),
                    false => String::new(),
                },
                role: Role::User.into(),
                parts,
                ..Message::default()
            }),
            configuration: Some(SendMessageConfiguration {
                return_immediately: !self.supports_streams(),
                ..SendMessageConfiguration::default()
            }),
            ..SendMessageRequest::default()
        }
    }

    /// Returns an input as parts: its texts, and its images as files.
    async fn parts(&self, given: &Input) -> Vec<Part> {
        let (mut words, mut images) = (Vec::new(), Vec::new());
        for item in &given.items {
            match &item.item {
                Some(Item::LocalImage(path)) => images.push(path),
                Some(item) => words.push(input::item_to_text(item)),
                None => {}
            }
        }
        for (title, value) in [
            ("Objective: ", &given.objective),
            ("Definition of done: ", &given.definition_of_done),
            (
                "Answer with one JSON document that matches this JSON Schema, and nothing else: ",
                &given.result_schema,
            ),
            ("", &given.r#override),
        ] {
            if !value.is_empty() {
                words.push(format!("{title}{value}"));
            }
        }
        let words = words.join("\n\n");
        let mut parts: Vec<Part> = Some(words)
            .filter(|words| !words.trim().is_empty())
            .map(text)
            .into_iter()
            .collect();
        for path in images {
            let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
            parts.push(match self.workspace.content(path.clone()).await {
                Ok(data) => Part {
                    content: Some(Content::Raw(data.into())),
                    media_type: media_type(&name).to_owned(),
                    filename: name.into_owned(),
                    ..Part::default()
                },
                Err(failure) => text(format!("[the image {name} is not attached: {}]", failure.text())),
            });
        }
        parts
    }

    /// Returns the outcome of the turn for the state of its task.
    fn conclude(&self, agent: &str) -> Outcome {
        let words = self.task.words();
        let because = |what: &str| match words.is_empty() {
            true => format!("{agent} {what}"),
            false => format!("{agent} {what}: {words}"),
        };
        match self.task.state() {
            TaskState::Completed => Outcome::Ended(TurnEnding::Completed, self.task.result()),
            TaskState::Failed => Outcome::Ended(TurnEnding::Errored, because("failed")),
            TaskState::Rejected => Outcome::Ended(TurnEnding::Errored, because("rejected the task")),
            TaskState::Canceled => Outcome::Ended(TurnEnding::Interrupted, because("canceled the task")),
            TaskState::AuthRequired => Outcome::Ended(
                TurnEnding::Errored,
                because("asks for authentication; authenticate with it, then send input"),
            ),
            TaskState::InputRequired if words.is_empty() => Outcome::Asks(format!("{agent} asks for input")),
            TaskState::InputRequired => Outcome::Asks(words),
            TaskState::Unspecified | TaskState::Submitted | TaskState::Working => {
                Outcome::Ended(TurnEnding::Errored, because("left the task unfinished"))
            }
        }
    }
}

/// Returns the digest of the inputs. Empty without inputs.
fn digest(inputs: &[Input]) -> String {
    let mut hash = Sha256::new();
    for input in inputs {
        hash.update(input.encode_length_delimited_to_vec());
    }
    match inputs.is_empty() {
        true => String::new(),
        false => lower::encode_string(&hash.finalize()),
    }
}

fn text(text: impl Into<String>) -> Part {
    Part {
        content: Some(Content::Text(text.into())),
        ..Part::default()
    }
}

fn media_type(name: &str) -> &'static str {
    let extension = name.rsplit('.').next().unwrap_or_default();
    match extension.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        _ => "application/octet-stream",
    }
}
