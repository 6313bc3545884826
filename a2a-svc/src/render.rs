//! Tasks of a context as messages of the protocol.

use std::collections::BTreeMap;

use prost::Message as _;
use prost_types::{Struct, Value, value::Kind as ValueKind};
use troupe_proto::supervisor::v1::{Input as ThreadInput, InputItem, ListTranscriptRequest, Session, TranscriptKind};

use crate::{
    error::Result,
    fold::{Change, Output, Standing, Task, Text, Turn, Update, is_terminal},
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
    /// Whether the inputs of the agent have the ids of messages.
    pub(crate) shows_ids: bool,
}

/// What to render of a task.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    /// The place in the log.
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
        let mut metadata = position(standing.resume);
        if task.turns.len() > 1 {
            metadata.fields.insert(
                TURNS_KEY.to_owned(),
                number(f64::from(u32::try_from(task.turns.len()).unwrap_or(u32::MAX))),
            );
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
    /// messages of the agent. The last messages are kept.
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

    async fn artifact(&self, output: &Output) -> Result<Artifact> {
        match output {
            Output::Result(text) => Ok(Artifact {
                artifact_id: String::from("result"),
                name: String::from("result"),
                parts: vec![parts::result(self.text(text).await?)],
                ..Artifact::default()
            }),
            Output::Recorded(recorded) => {
                let stored = recorded.content.clone().unwrap_or_default();
                let bytes = content(self.supervisor, &self.session.session_id, &stored, MAX_INLINE_BYTES).await?;
                let is_text = recorded.media_type.starts_with("text/");
                let content = match bytes {
                    None => part::Content::Text(format!(
                        "{} has {} bytes, which is too large to be part of a task; ask the operator of the agent for it",
                        recorded.name, stored.size
                    )),
                    Some(bytes) => match String::from_utf8(bytes) {
                        Ok(text) if is_text => part::Content::Text(text),
                        Ok(text) => part::Content::Raw(text.into_bytes().into()),
                        Err(error) => part::Content::Raw(error.into_bytes().into()),
                    },
                };
                Ok(Artifact {
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
                })
            }
        }
    }

    /// Renders an update.
    pub(crate) async fn update(&self, task: &Task, update: &Update) -> Result<StreamResponse> {
        let metadata = Some(position(update.resume));
        let payload = match &update.change {
            Change::State(state, message) => {
                let standing = Standing {
                    state: *state,
                    message: message.clone(),
                    time: update.time,
                    resume: update.resume,
                };
                Payload::StatusUpdate(TaskStatusUpdateEvent {
                    task_id: self.id(task),
                    context_id: self.session.session_id.clone(),
                    status: Some(self.status(task, &standing).await?),
                    metadata,
                })
            }
            Change::Output(output) => Payload::ArtifactUpdate(TaskArtifactUpdateEvent {
                task_id: self.id(task),
                context_id: self.session.session_id.clone(),
                artifact: Some(self.artifact(output).await?),
                append: false,
                last_chunk: true,
                metadata,
            }),
        };
        Ok(StreamResponse { payload: Some(payload) })
    }
}

/// Returns whether this update is the last one of its task.
pub(crate) const fn is_last(update: &Update) -> bool {
    matches!(&update.change, Change::State(state, _) if is_terminal(*state))
}

/// Returns metadata with a position in the log.
fn position(sequence: u64) -> Struct {
    let value = Value {
        kind: Some(ValueKind::StringValue(sequence.to_string())),
    };
    Struct {
        fields: [(SEQUENCE_KEY.to_owned(), value)].into(),
    }
}

const fn number(value: f64) -> Value {
    Value {
        kind: Some(ValueKind::NumberValue(value)),
    }
}
