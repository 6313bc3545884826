//! Tasks of a context as messages of the protocol.

use std::collections::BTreeMap;

use prost::Message as _;
use prost_types::{Struct, Value};
use troupe_proto::supervisor::v1::{
    ArtifactRecorded, ConditionKind, Input as ThreadInput, InputItem, ListTranscriptRequest, Session, TranscriptKind,
};

use crate::{
    error::Result,
    fold::{Change, Descendant, Output, Standing, Task, Text, Turn, Update, condition_name, is_terminal},
    parts,
    pb::{
        self, Artifact, Message, Part, Role, StreamResponse, TaskArtifactUpdateEvent, TaskStatusUpdateEvent, part,
        stream_response::Payload,
    },
    upstream::{Supervisor, brief, content},
};

/// The URI of the extension that gives each update its position in the log.
pub(crate) const SEQUENCE_EXTENSION: &str = "https://troupe.dev/a2a/extensions/sequence/v1";
/// The key of the position in metadata.
const SEQUENCE_KEY: &str = "troupe/sequence";
/// The key of the number of turns in metadata.
const TURNS_KEY: &str = "troupe/turns";
/// The key of the threads below the agent in metadata.
const TREE_KEY: &str = "troupe/tree";
/// The key of the agent's conditions in metadata.
const CONDITIONS_KEY: &str = "troupe/conditions";
/// Maximum size of a text or an artifact in a task, in bytes.
pub(crate) const MAX_INLINE_BYTES: usize = 1024 * 1024;
/// Maximum number of entries of a transcript that are read for the history.
const MAX_ENTRIES: u32 = 1_000;
/// Maximum number of messages in a history.
pub(crate) const MAX_HISTORY: usize = 1_000;

/// Renders the tasks of a session.
pub(crate) struct Renderer<'a> {
    pub(crate) supervisor: &'a Supervisor,
    pub(crate) session: &'a Session,
    /// Whether the inputs of the agent show the ids of their messages.
    pub(crate) shows_ids: bool,
}

/// The part of a task to render.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    /// The position in the log.
    pub(crate) sequence: u64,
    pub(crate) artifacts: bool,
    /// Maximum number of messages of the history. `None`: all.
    pub(crate) history: Option<usize>,
}

impl Default for Extent {
    fn default() -> Self {
        Self {
            sequence: u64::MAX,
            artifacts: true,
            history: None,
        }
    }
}

impl Renderer<'_> {
    pub(crate) fn id(&self, task: &Task) -> String {
        format!("{}-{}", self.session.session_id, task.number)
    }

    /// Renders a task.
    pub(crate) async fn task(&self, task: &Task, extent: Extent) -> Result<pb::Task> {
        let standing = task.standing_at(extent.sequence);
        let mut artifacts = Vec::new();
        if extent.artifacts {
            for output in task.outputs_at(extent.sequence) {
                artifacts.push(self.artifact(output).await?);
            }
        }
        let history = match extent.history {
            Some(0) => Vec::new(),
            most => self.history(task, most.unwrap_or(MAX_HISTORY).min(MAX_HISTORY)).await?,
        };
        let mut metadata = metadata(standing.resume, &standing.conditions);
        if task.turns.len() > 1 {
            let turns = u32::try_from(task.turns.len()).unwrap_or(u32::MAX);
            metadata.fields.insert(TURNS_KEY.to_owned(), turns.into());
        }
        if !task.descendants.is_empty() {
            metadata.fields.insert(TREE_KEY.to_owned(), tree(task));
        }
        Ok(pb::Task {
            id: self.id(task),
            context_id: self.session.session_id.clone(),
            status: Some(self.status(task, &standing).await?),
            artifacts,
            history,
            metadata: Some(metadata),
        })
    }

    async fn status(&self, task: &Task, standing: &Standing) -> Result<pb::TaskStatus> {
        let message = match &standing.message {
            Some(text) => {
                let part = parts::text(self.text(text).await?);
                Some(self.message(task, &format!("status-{}", standing.resume), Role::Agent, vec![part]))
            }
            None => None,
        };
        Ok(pb::TaskStatus {
            state: standing.state.into(),
            message,
            timestamp: Some(standing.time),
        })
    }

    fn message(&self, task: &Task, suffix: &str, role: Role, parts: Vec<Part>) -> Message {
        let id = self.id(task);
        Message {
            message_id: format!("{id}-{suffix}"),
            context_id: self.session.session_id.clone(),
            task_id: id,
            role: role.into(),
            parts,
            ..Message::default()
        }
    }

    /// Returns the messages of a task in the order in which they were exchanged: for each turn its inputs, then the
    /// messages of the agent, and at the end the inputs that no turn has consumed. Only the last `most` messages are
    /// returned.
    async fn history(&self, task: &Task, most: usize) -> Result<Vec<Message>> {
        let mut spoken = self.spoken(task).await?;
        let mut history = Vec::new();
        let mut consumed: Vec<u32> = Vec::new();
        for turn in &task.turns {
            for number in &turn.inputs {
                if let Some(message) = self.input(task, *number).await? {
                    history.push(message);
                }
                consumed.push(*number);
            }
            for (index, text) in spoken.remove(&turn.turn).unwrap_or_default().into_iter().enumerate() {
                let suffix = format!("turn-{}-{}", turn.turn, index + 1);
                history.push(self.message(task, &suffix, Role::Agent, vec![parts::text(text)]));
            }
        }
        for input in &task.inputs {
            if !consumed.contains(&input.number)
                && let Some(message) = self.input(task, input.number).await?
            {
                history.push(message);
            }
        }
        let first = history.len().saturating_sub(most);
        Ok(history.split_off(first))
    }

    /// Returns the messages of the agent by turn.
    async fn spoken(&self, task: &Task) -> Result<BTreeMap<u32, Vec<String>>> {
        let mut spoken: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        if !task.turns.is_empty() {
            let request = ListTranscriptRequest {
                session_id: self.session.session_id.clone(),
                thread_id: self.session.root_thread_id.clone(),
                kinds: vec![TranscriptKind::Message.into()],
                tail: MAX_ENTRIES,
                page_size: i32::try_from(MAX_ENTRIES).unwrap_or(i32::MAX),
                ..ListTranscriptRequest::default()
            };
            let entries = self
                .supervisor
                .clone()
                .list_transcript(brief(request))
                .await?
                .into_inner()
                .entries;
            for entry in entries {
                if task.turns.iter().any(|turn| turn.turn == entry.turn) && !entry.text_left_out {
                    let text = self
                        .text(&Text {
                            inline: entry.text,
                            content: entry.content,
                        })
                        .await?;
                    spoken.entry(entry.turn).or_default().push(text);
                }
            }
        }
        for Turn { turn, message, .. } in &task.turns {
            if let Some(message) = message
                && !message.inline.is_empty()
                && !spoken.contains_key(turn)
            {
                spoken.insert(*turn, vec![self.text(message).await?]);
            }
        }
        Ok(spoken)
    }

    /// Returns the message that began a task.
    pub(crate) fn opening(&self, task: &Task, items: &[InputItem]) -> Message {
        let input = ThreadInput {
            items: items.to_vec(),
            ..ThreadInput::default()
        };
        self.input_message(task, task.number, &input)
    }

    fn input_message(&self, task: &Task, number: u32, input: &ThreadInput) -> Message {
        let parts = parts::of_input(input, self.shows_ids);
        self.message(task, &format!("input-{number}"), Role::User, parts)
    }

    async fn input(&self, task: &Task, number: u32) -> Result<Option<Message>> {
        let Some(input) = task.inputs.iter().find(|input| input.number == number) else {
            return Ok(None);
        };
        let Some(stored) = &input.content else { return Ok(None) };
        let bytes = content(self.supervisor, &self.session.session_id, stored, 2 * MAX_INLINE_BYTES).await?;
        let decoded = bytes.and_then(|bytes| ThreadInput::decode(bytes.as_slice()).ok());
        Ok(decoded.map(|decoded| self.input_message(task, number, &decoded)))
    }

    async fn text(&self, text: &Text) -> Result<String> {
        let Some(stored) = &text.content else {
            return Ok(text.inline.clone());
        };
        let bytes = content(self.supervisor, &self.session.session_id, stored, MAX_INLINE_BYTES).await?;
        Ok(bytes.map_or_else(
            || text.inline.clone(),
            |bytes| String::from_utf8_lossy(&bytes).into_owned(),
        ))
    }

    /// Returns an output for a task, without large contents.
    async fn artifact(&self, output: &Output) -> Result<Artifact> {
        let recorded = match output {
            Output::Result(text) => return self.result(text).await,
            Output::Recorded(recorded) => recorded,
        };
        Ok(match self.recorded(recorded, MAX_INLINE_BYTES).await? {
            Some(bytes) => artifact(recorded, content_of(recorded, bytes)),
            None => artifact(
                recorded,
                part::Content::Text(format!(
                    "{} has {} bytes, which is too large to be part of a task; a stream of the task has it",
                    recorded.name,
                    recorded.content.as_ref().map_or(0, |content| content.size)
                )),
            ),
        })
    }

    /// Returns an output in pieces of at most [`MAX_INLINE_BYTES`], of which there is at least one.
    async fn pieces(&self, output: &Output) -> Result<Vec<Artifact>> {
        let recorded = match output {
            Output::Result(text) => return Ok(vec![self.result(text).await?]),
            Output::Recorded(recorded) => recorded,
        };
        let bytes = self.recorded(recorded, usize::MAX).await?.unwrap_or_default();
        if bytes.len() <= MAX_INLINE_BYTES {
            return Ok(vec![artifact(recorded, content_of(recorded, bytes))]);
        }
        // The pieces are bytes, because a text could be cut within a character.
        let pieces = bytes.chunks(MAX_INLINE_BYTES);
        Ok(pieces
            .map(|piece| artifact(recorded, part::Content::Raw(piece.to_vec().into())))
            .collect())
    }

    async fn result(&self, text: &Text) -> Result<Artifact> {
        Ok(Artifact {
            artifact_id: String::from("result"),
            name: String::from("result"),
            parts: vec![parts::result(self.text(text).await?)],
            ..Artifact::default()
        })
    }

    /// Reads the content of an artifact. `None`: it has more than `most` bytes.
    async fn recorded(&self, recorded: &ArtifactRecorded, most: usize) -> Result<Option<Vec<u8>>> {
        let stored = recorded.content.clone().unwrap_or_default();
        content(self.supervisor, &self.session.session_id, &stored, most).await
    }

    /// Renders an update. A large artifact is split into pieces; all pieces except the last one have the position
    /// before the update.
    pub(crate) async fn update(&self, task: &Task, update: &Update) -> Result<Vec<StreamResponse>> {
        let payloads = match &update.change {
            Change::State(state, message, conditions) => {
                let standing = Standing {
                    state: *state,
                    message: message.clone(),
                    conditions: conditions.clone(),
                    time: update.time,
                    resume: update.resume,
                };
                vec![Payload::StatusUpdate(TaskStatusUpdateEvent {
                    task_id: self.id(task),
                    context_id: self.session.session_id.clone(),
                    status: Some(self.status(task, &standing).await?),
                    metadata: Some(metadata(update.resume, conditions)),
                })]
            }
            Change::Output(output) => {
                let pieces = self.pieces(output).await?;
                let last = pieces.len().saturating_sub(1);
                let update = |(index, artifact)| {
                    let resume = if index == last {
                        update.resume
                    } else {
                        update.sequence.saturating_sub(1)
                    };
                    Payload::ArtifactUpdate(TaskArtifactUpdateEvent {
                        task_id: self.id(task),
                        context_id: self.session.session_id.clone(),
                        artifact: Some(artifact),
                        append: index > 0,
                        last_chunk: index == last,
                        metadata: Some(metadata(resume, &[])),
                    })
                };
                pieces.into_iter().enumerate().map(update).collect()
            }
        };
        let response = |payload| StreamResponse { payload: Some(payload) };
        Ok(payloads.into_iter().map(response).collect())
    }
}

fn artifact(recorded: &ArtifactRecorded, content: part::Content) -> Artifact {
    Artifact {
        artifact_id: recorded.artifact_id.clone(),
        name: recorded.name.clone(),
        description: recorded.kind.clone(),
        parts: vec![Part {
            content: Some(content),
            filename: recorded.name.clone(),
            media_type: recorded.media_type.clone(),
            ..Part::default()
        }],
        ..Artifact::default()
    }
}

fn content_of(recorded: &ArtifactRecorded, bytes: Vec<u8>) -> part::Content {
    match (recorded.kind.as_str(), String::from_utf8(bytes)) {
        ("link", Ok(url)) => part::Content::Url(url),
        ("file", Ok(text)) => part::Content::Raw(text.into_bytes().into()),
        (_, Ok(text)) if recorded.media_type.starts_with("text/") => part::Content::Text(text),
        (_, Ok(text)) => part::Content::Raw(text.into_bytes().into()),
        (_, Err(error)) => part::Content::Raw(error.into_bytes().into()),
    }
}

/// Returns whether this update ends its task.
pub(crate) const fn is_last(update: &Update) -> bool {
    matches!(&update.change, Change::State(state, ..) if is_terminal(*state))
}

/// Returns metadata with a position in the log, and the conditions if there are any.
fn metadata(sequence: u64, conditions: &[ConditionKind]) -> Struct {
    let mut fields: BTreeMap<String, Value> = [(SEQUENCE_KEY.to_owned(), sequence.to_string().into())].into();
    if !conditions.is_empty() {
        let names: Vec<Value> = conditions.iter().map(|kind| condition_name(*kind).into()).collect();
        fields.insert(CONDITIONS_KEY.to_owned(), names.into());
    }
    Struct { fields }
}

/// Returns the threads below the agent.
fn tree(task: &Task) -> Value {
    let thread = |(id, descendant): (&String, &Descendant)| {
        let fields: BTreeMap<String, Value> = [
            ("threadId", id.as_str()),
            ("parentThreadId", descendant.parent.as_str()),
            ("role", descendant.role.as_str()),
            ("state", descendant.state.as_str_name()),
        ]
        .map(|(key, value)| (key.to_owned(), value.into()))
        .into();
        Value::from(fields)
    };
    task.descendants.iter().map(thread).collect::<Vec<_>>().into()
}
