//! The state of a remote task, computed from its snapshots and updates. Pure.
//!
//! A snapshot may repeat everything that was received before, so each message and each piece of an artifact is emitted
//! only once. Everything that the remote agent sends is bounded.

use std::collections::BTreeSet;

use a2a_proto::{
    Artifact, Message, Part, Role, Task, TaskState, TaskStatus, json, part::Content, stream_response::Payload,
};
use serde_json::Value;

use crate::{
    agent::{AgentEvent, FileKind, ProducedFile},
    redact,
    text::{clean, start},
};

/// Maximum size of the texts of a turn, in bytes.
pub(crate) const MAX_TEXT_BYTES: usize = 1024 * 1024;
/// Maximum size of the files of a task, in bytes.
pub(crate) const MAX_FILE_BYTES: usize = 15 * 1024 * 1024;
/// Maximum number of artifacts of a task, and of files of an artifact.
pub(crate) const MAX_ARTIFACTS: usize = 64;
/// Maximum number of messages of a task.
const MAX_MESSAGES: usize = 1_000;
/// Maximum length of an id, in bytes.
const MAX_ID_BYTES: usize = 512;
/// The text that replaces output beyond the limit.
const LEFT_OUT: &str = "[the rest of the remote agent's output is left out: it is too long]";

/// A remote task.
#[derive(Debug, Default)]
pub(super) struct RemoteTask {
    /// The task's id. Empty: not known yet.
    pub(super) id: String,
    pub(super) context: String,
    status: TaskStatus,
    /// The status in which the task asked the question that the last message answered. As long as the status does not
    /// change, the task does not ask again.
    answered: Option<TaskStatus>,
    artifacts: Vec<RemoteArtifact>,
    /// The ids of the emitted messages.
    messages: BTreeSet<String>,
    /// The agent's last message.
    spoken: String,
    /// Whether the agent answered with a message and without a task.
    is_answered: bool,
    /// The size of the emitted texts.
    emitted: usize,
    /// Whether output was omitted.
    is_cut: bool,
    /// The names of omitted files.
    left_out: BTreeSet<String>,
    /// The id of the artifact whose text may continue.
    open: Option<String>,
    /// The credentials, which are removed from displayed texts.
    secrets: Vec<String>,
}

#[derive(Debug, Default)]
struct RemoteArtifact {
    id: String,
    text: String,
    /// How many bytes of the text were emitted.
    shown: usize,
    files: Vec<ProducedFile>,
}

impl RemoteTask {
    pub(super) fn new(secrets: Vec<String>) -> Self {
        Self {
            secrets,
            ..Self::default()
        }
    }

    /// Prepares for the rest of a task whose question was answered.
    pub(super) fn answer(&mut self) {
        self.answered = Some(std::mem::take(&mut self.status));
        self.spoken.clear();
        self.emitted = 0;
        self.is_cut = false;
    }

    pub(super) fn state(&self) -> TaskState {
        match self.is_answered {
            true => TaskState::Completed,
            false => self.status.state(),
        }
    }

    /// Returns whether the task has ended or asks its client a question. With `is_late`, the task counts as asking even
    /// if its status is still the status of the answered question.
    pub(super) fn is_settled(&self, is_late: bool) -> bool {
        match self.state() {
            TaskState::Unspecified | TaskState::Submitted | TaskState::Working => false,
            TaskState::InputRequired | TaskState::AuthRequired => {
                is_late || self.answered.as_ref() != Some(&self.status)
            }
            TaskState::Completed | TaskState::Failed | TaskState::Canceled | TaskState::Rejected => true,
        }
    }

    /// Applies a snapshot or an update. Updates of other tasks are ignored.
    ///
    /// # Errors
    ///
    /// An id is too long.
    pub(super) fn apply(&mut self, payload: Payload) -> Result<Vec<AgentEvent>, String> {
        let (task, context) = match &payload {
            Payload::Task(task) => (&task.id, &task.context_id),
            Payload::StatusUpdate(update) => (&update.task_id, &update.context_id),
            Payload::ArtifactUpdate(update) => (&update.task_id, &update.context_id),
            Payload::Message(message) => (&message.task_id, &message.context_id),
        };
        if task.len() > MAX_ID_BYTES || context.len() > MAX_ID_BYTES {
            return Err(format!("the remote agent sent an id of over {MAX_ID_BYTES} bytes"));
        }
        let mut events = Vec::new();
        if !self.id.is_empty() && !task.is_empty() && *task != self.id {
            return Ok(events);
        }
        for (known, named) in [(&mut self.id, task), (&mut self.context, context)] {
            if known.is_empty() {
                known.clone_from(named);
            }
        }
        match payload {
            Payload::Task(task) => self.snapshot(task, &mut events),
            Payload::StatusUpdate(update) => self.set_status(update.status.unwrap_or_default(), &mut events),
            Payload::ArtifactUpdate(update) => {
                if let Some(artifact) = update.artifact {
                    self.set_artifact(&artifact, update.append, &mut events);
                }
            }
            Payload::Message(message) => {
                // Without a task, the message is the whole answer.
                self.is_answered = self.id.is_empty();
                self.emit_message(&message, &mut events);
            }
        }
        Ok(events)
    }

    fn snapshot(&mut self, task: Task, events: &mut Vec<AgentEvent>) {
        // Some histories contain the results as messages, too.
        let text = |parts: &[Part]| self.contents(parts).0.trim().to_owned();
        let results: BTreeSet<String> = task.artifacts.iter().map(|artifact| text(&artifact.parts)).collect();
        let repeated = task
            .history
            .iter()
            .filter(|message| results.contains(&text(&message.parts)));
        let repeated: BTreeSet<String> = repeated.map(|message| message.message_id.clone()).collect();
        // Everything before the last message of the user belongs to an earlier turn.
        let asked = task.history.iter().rposition(|message| message.role() == Role::User);
        for message in task.history.iter().skip(asked.map_or(0, |place| place + 1)) {
            if !repeated.contains(&message.message_id) {
                self.emit_message(message, events);
            }
        }
        for artifact in task.artifacts {
            self.set_artifact(&artifact, false, events);
        }
        self.set_status(task.status.unwrap_or_default(), events);
    }

    fn set_status(&mut self, status: TaskStatus, events: &mut Vec<AgentEvent>) {
        if status.state() != self.status.state() {
            let name = status.state().as_str_name().trim_start_matches("TASK_STATE_");
            let activity = format!("remote agent: {}", name.to_ascii_lowercase().replace('_', " "));
            events.push(AgentEvent::Activity(activity));
        }
        if let Some(message) = &status.message {
            self.emit_message(message, events);
        }
        self.status = status;
    }

    /// Emits a message of the agent, once.
    fn emit_message(&mut self, message: &Message, events: &mut Vec<AgentEvent>) {
        let id = &message.message_id;
        if message.role() == Role::User
            || id.len() > MAX_ID_BYTES
            || self.messages.len() >= MAX_MESSAGES
            || !self.messages.insert(id.clone())
        {
            return;
        }
        let (text, files) = self.contents(&message.parts);
        if !files.is_empty() {
            let mut artifact = RemoteArtifact {
                id: format!("message {id}"),
                files,
                ..RemoteArtifact::default()
            };
            self.bound(&mut artifact, events);
            self.keep(artifact);
        }
        text.trim().clone_into(&mut self.spoken);
        if !text.trim().is_empty() {
            self.close(events);
            self.emit(text.trim(), events);
            events.push(AgentEvent::MessageEnd);
        }
    }

    /// Emits the new text of an artifact. If another text replaces the artifact's text, the whole new text is emitted.
    fn set_artifact(&mut self, artifact: &Artifact, append: bool, events: &mut Vec<AgentEvent>) {
        let id = &artifact.artifact_id;
        if id.len() > MAX_ID_BYTES {
            return;
        }
        let (text, files) = self.contents(&artifact.parts);
        let place = self.artifacts.iter().position(|known| known.id == *id);
        let mut known = match place {
            Some(place) => self.artifacts.remove(place),
            None => RemoteArtifact {
                id: id.clone(),
                ..RemoteArtifact::default()
            },
        };
        if append {
            known.text.push_str(&text);
            for file in files {
                match known.files.iter_mut().find(|before| before.name == file.name) {
                    Some(before) => before.data.extend(file.data),
                    None => known.files.push(file),
                }
            }
        } else {
            let is_continued = text.as_bytes().starts_with(&known.text.as_bytes()[..known.shown]);
            if !is_continued {
                known.shown = 0;
                self.close(events);
            }
            known.text = text;
            known.files = files;
        }
        self.bound(&mut known, events);
        if self.open.as_ref() != Some(id) {
            self.close(events);
        }
        let new = known.text[known.shown.min(known.text.len())..].to_owned();
        if !new.is_empty() {
            self.emit(&new, events);
            self.open = Some(id.clone());
        }
        known.shown = known.text.len();
        match place {
            Some(place) => self.artifacts.insert(place, known),
            None => self.keep(known),
        }
    }

    /// Truncates an artifact so that all artifacts together are within the limits.
    fn bound(&mut self, artifact: &mut RemoteArtifact, events: &mut Vec<AgentEvent>) {
        let texts: usize = self.artifacts.iter().map(|other| other.text.len()).sum();
        let most = start(&artifact.text, MAX_TEXT_BYTES.saturating_sub(texts)).len();
        if most < artifact.text.len() {
            artifact.text.truncate(most);
            self.note_cut(events);
        }
        artifact.files.truncate(MAX_ARTIFACTS);
        let stored = self.artifacts.iter().chain([&*artifact]).flat_map(|other| &other.files);
        if stored.map(|file| file.data.len()).sum::<usize>() > MAX_FILE_BYTES {
            let names = artifact.files.drain(..).map(|file| file.name);
            self.left_out
                .extend(names.take(MAX_ARTIFACTS.saturating_sub(self.left_out.len())));
        }
    }

    /// Stores an artifact if the number of artifacts permits it.
    fn keep(&mut self, artifact: RemoteArtifact) {
        if self.artifacts.len() < MAX_ARTIFACTS {
            self.artifacts.push(artifact);
        }
    }

    fn emit(&mut self, text: &str, events: &mut Vec<AgentEvent>) {
        if self.emitted + text.len() > MAX_TEXT_BYTES {
            self.note_cut(events);
        } else if !text.is_empty() {
            self.emitted += text.len();
            events.push(AgentEvent::Output(text.to_owned()));
        }
    }

    fn note_cut(&mut self, events: &mut Vec<AgentEvent>) {
        if !std::mem::replace(&mut self.is_cut, true) {
            events.extend([AgentEvent::Output(LEFT_OUT.to_owned()), AgentEvent::MessageEnd]);
        }
    }

    /// Ends the text that could continue.
    fn close(&mut self, events: &mut Vec<AgentEvent>) {
        if self.open.take().is_some() {
            events.push(AgentEvent::MessageEnd);
        }
    }

    /// Returns the text and the files of a message's or artifact's parts. A text with a file name is a file.
    fn contents(&self, parts: &[Part]) -> (String, Vec<ProducedFile>) {
        let (mut text, mut files) = (String::new(), Vec::new());
        for part in parts {
            let line = match &part.content {
                Some(Content::Text(words)) if part.filename.is_empty() => {
                    text.push_str(&redact::text(&clean(words), &self.secrets));
                    continue;
                }
                Some(Content::Text(words)) => {
                    files.push(file(part, words.as_bytes()));
                    continue;
                }
                Some(Content::Raw(data)) => {
                    files.push(file(part, data));
                    continue;
                }
                Some(Content::Url(url)) if part.filename.is_empty() => url.clone(),
                Some(Content::Url(url)) => format!("{}: {url}", part.filename),
                Some(Content::Data(_)) => match json::to_value(part) {
                    Ok(mut value) => value.get_mut("data").map(Value::take).unwrap_or_default().to_string(),
                    Err(_) => continue,
                },
                None => continue,
            };
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&redact::text(&clean(&line), &self.secrets));
            text.push('\n');
        }
        (text, files)
    }

    /// Returns the text of the status, or the agent's last message.
    pub(super) fn words(&self) -> String {
        let message = self.status.message.as_ref();
        let text = message
            .map(|message| self.contents(&message.parts).0)
            .unwrap_or_default();
        let text = if text.trim().is_empty() { &self.spoken } else { &text };
        start(text.trim(), MAX_TEXT_BYTES).to_owned()
    }

    /// Returns the result: the texts of the artifacts, or the agent's last message, or the names of the files.
    pub(super) fn result(&self) -> String {
        let texts = self.artifacts.iter().map(|artifact| artifact.text.trim());
        let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
        if !texts.is_empty() {
            return texts.join("\n\n");
        }
        let words = self.words();
        if !words.is_empty() {
            return words;
        }
        let files = self.artifacts.iter().flat_map(|artifact| &artifact.files);
        files.map(|file| file.name.as_str()).collect::<Vec<_>>().join("\n")
    }

    /// Removes and returns the files, and ends the text that could continue.
    pub(super) fn settle(&mut self) -> Vec<AgentEvent> {
        let mut events = Vec::new();
        self.close(&mut events);
        let files = self.artifacts.iter_mut().flat_map(|artifact| artifact.files.drain(..));
        events.extend(files.map(AgentEvent::File));
        for name in std::mem::take(&mut self.left_out) {
            let text = format!("[the file {name} is left out: it is too large]");
            events.extend([AgentEvent::Output(text), AgentEvent::MessageEnd]);
        }
        events
    }
}

fn file(part: &Part, data: &[u8]) -> ProducedFile {
    let media_type = match &part.content {
        Some(Content::Text(_)) if part.media_type.is_empty() => "text/plain",
        _ => part.media_type.as_str(),
    };
    ProducedFile::new(FileKind::File, &part.filename, media_type, data.to_vec())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use a2a_proto::StreamResponse;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn apply(task: &mut RemoteTask, value: Value) -> String {
        let response: StreamResponse = json::parse(value).unwrap();
        shown(task.apply(response.payload.unwrap()).unwrap())
    }

    /// Returns the emitted texts; `|` marks the end of a message.
    fn shown(events: Vec<AgentEvent>) -> String {
        let texts = events.into_iter().filter_map(|event| match event {
            AgentEvent::Output(text) => Some(text),
            AgentEvent::MessageEnd => Some("|".to_owned()),
            _ => None,
        });
        texts.collect()
    }

    fn status(state: &str, message: Option<(&str, &str)>) -> Value {
        let mut status = json!({"state": state});
        if let Some((id, text)) = message {
            status["message"] = json!({"messageId": id, "role": "ROLE_AGENT", "parts": [{"text": text}]});
        }
        status
    }

    fn update(state: &str, message: Option<(&str, &str)>) -> Value {
        json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": status(state, message)}})
    }

    fn chunk(text: &str, append: bool) -> Value {
        json!({"artifactUpdate": {"taskId": "t", "contextId": "c", "append": append,
               "artifact": {"artifactId": "a", "parts": [{"text": text}]}}})
    }

    #[test]
    fn snapshot_after_lost_stream_repeats_nothing() {
        let mut task = RemoteTask::default();
        assert_eq!(
            apply(
                &mut task,
                json!({"task": {"id": "t", "contextId": "c", "status": status("TASK_STATE_SUBMITTED", None)}})
            ),
            ""
        );
        assert_eq!(
            apply(&mut task, update("TASK_STATE_WORKING", Some(("m1", "reading")))),
            "reading|"
        );
        assert_eq!(apply(&mut task, chunk("one ", false)), "one ");
        let snapshot = json!({"task": {"id": "t", "contextId": "c",
            "history": [{"messageId": "u", "role": "ROLE_USER", "parts": [{"text": "do it"}]},
                        {"messageId": "m1", "role": "ROLE_AGENT", "parts": [{"text": "reading"}]},
                        {"messageId": "m2", "role": "ROLE_AGENT", "parts": [{"text": "writing"}]},
                        {"messageId": "m3", "role": "ROLE_AGENT", "parts": [{"text": "one two"}]}],
            "artifacts": [{"artifactId": "a", "parts": [{"text": "one "}, {"text": "two"}]}],
            "status": status("TASK_STATE_COMPLETED", None)}});
        assert_eq!(apply(&mut task, snapshot.clone()), "|writing|two");
        assert_eq!(apply(&mut task, snapshot), "", "a repeated snapshot has nothing new");
        assert!(task.is_settled(false));
        assert_eq!(task.result(), "one two");
        assert_eq!(shown(task.settle()), "|");
    }

    #[test]
    fn files_are_not_part_of_result_text() {
        let mut task = RemoteTask::default();
        let value = json!({"task": {"id": "t", "status": status("TASK_STATE_COMPLETED", Some(("m", "see"))), "artifacts": [
            {"artifactId": "a", "parts": [{"data": {"n": 1}}, {"url": "https://x/y", "filename": "y"}]},
            {"artifactId": "b", "parts": [{"raw": "aGk=", "filename": "a\n.bin"}, {"text": "d", "filename": "x.diff", "mediaType": "text/x-diff"}]},
        ]}});
        apply(&mut task, value);
        assert_eq!(task.result(), "{\"n\":1}\ny: https://x/y");
        let files: Vec<_> = task
            .settle()
            .into_iter()
            .filter_map(|event| match event {
                AgentEvent::File(file) => Some((file.name, file.media_type, file.data)),
                _ => None,
            })
            .collect();
        assert_eq!(
            files,
            [
                (
                    "a .bin".to_owned(),
                    "application/octet-stream".to_owned(),
                    b"hi".to_vec()
                ),
                ("x.diff".to_owned(), "text/x-diff".to_owned(), b"d".to_vec()),
            ]
        );
    }

    #[test]
    fn answered_question_is_not_asked_again() {
        let mut task = RemoteTask::default();
        apply(&mut task, update("TASK_STATE_INPUT_REQUIRED", Some(("q", "Which?"))));
        assert!(task.is_settled(false));
        assert_eq!(task.words(), "Which?");
        task.answer();
        apply(&mut task, update("TASK_STATE_INPUT_REQUIRED", Some(("q", "Which?"))));
        assert!(!task.is_settled(false) && task.is_settled(true));
        apply(&mut task, update("TASK_STATE_INPUT_REQUIRED", Some(("q2", "Really?"))));
        assert!(task.is_settled(false));
    }

    #[test]
    fn message_without_task_is_the_answer() {
        let mut task = RemoteTask::new(vec!["secret-token".to_owned()]);
        let message = json!({"message": {"messageId": "m", "contextId": "c", "role": "ROLE_AGENT", "parts": [{"text": "hi secret-token\u{1b}[2J"}]}});
        assert_eq!(apply(&mut task, message), "hi <redacted>|");
        assert_eq!(
            (task.state(), task.result().as_str(), task.context.as_str()),
            (TaskState::Completed, "hi <redacted>", "c")
        );
    }

    #[test]
    fn foreign_updates_are_ignored_and_output_is_bounded() {
        let mut task = RemoteTask::default();
        apply(&mut task, update("TASK_STATE_WORKING", None));
        let mut other = update("TASK_STATE_FAILED", None);
        other["statusUpdate"]["taskId"] = json!("another");
        apply(&mut task, other);
        assert_eq!(task.state(), TaskState::Working);
        let piece = "x".repeat(MAX_TEXT_BYTES / 2);
        let emitted: String = (0..8).map(|_| apply(&mut task, chunk(&piece, true))).collect();
        assert_eq!(emitted.matches(LEFT_OUT).count(), 1);
        assert!(emitted.len() <= MAX_TEXT_BYTES + LEFT_OUT.len() + 1);
        assert_eq!(task.result().len(), MAX_TEXT_BYTES);
        let long = json!({"task": {"id": "i".repeat(MAX_ID_BYTES + 1), "status": {}}});
        let response: StreamResponse = json::parse(long).unwrap();
        assert!(task.apply(response.payload.unwrap()).is_err());
    }

    proptest! {
        /// Checks that the emitted text is the final text, whichever updates are lost between two snapshots.
        #[test]
        fn emitted_text_equals_artifact_text(pieces in proptest::collection::vec("[a-zé]{0,4}", 1..8), lost in 0_usize..8) {
            let mut task = RemoteTask::default();
            let mut emitted = String::new();
            for (number, piece) in pieces.iter().enumerate() {
                if number < lost {
                    emitted.push_str(&apply(&mut task, chunk(piece, true)));
                }
            }
            let parts: Vec<_> = pieces.iter().map(|piece| json!({"text": piece})).collect();
            let snapshot = json!({"task": {"id": "t", "status": {}, "artifacts": [{"artifactId": "a", "parts": parts}]}});
            emitted.push_str(&apply(&mut task, snapshot));
            prop_assert_eq!(emitted, pieces.concat());
        }
    }
}
