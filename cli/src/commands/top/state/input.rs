//! Keys that edit a line, answer a question, choose a role or read the help.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use troupe_proto::supervisor::v1::{ResolveApprovalRequest, SendInputRequest};
use tui_input::{Input, InputRequest};

use super::{
    super::{
        action::Call,
        keys::{self, Command},
    },
    Effect, Line, Mode, Picker, Purpose, State,
};
use crate::sanitize;

impl State {
    pub(super) fn key_in_help(&mut self, event: &KeyEvent, top: usize) -> Vec<Effect> {
        let top = match keys::command(event) {
            Some(Command::Down) => (top + 1).min(keys::BINDINGS.len()),
            Some(Command::Up) => top.saturating_sub(1),
            Some(Command::PageDown) => (top + 10).min(keys::BINDINGS.len()),
            Some(Command::PageUp) => top.saturating_sub(10),
            _ => return Vec::new(),
        };
        self.mode = Mode::Help(top);
        Vec::new()
    }

    pub(super) fn key_in_question(&mut self, event: &KeyEvent, call: Call) -> Vec<Effect> {
        if matches!(event.code, KeyCode::Char('y' | 'Y') | KeyCode::Enter) {
            vec![Effect::Call(call)]
        } else {
            self.note("cancelled", false);
            Vec::new()
        }
    }

    pub(super) fn key_in_picker(&mut self, event: &KeyEvent, mut picker: Picker) -> Vec<Effect> {
        let last = picker.roles.as_ref().map_or(0, |roles| roles.len().saturating_sub(1));
        let effects = match (keys::command(event), picker.marked()) {
            (Some(Command::Down), _) => {
                picker.place = (picker.place + 1).min(last);
                picker.resolve()
            }
            (Some(Command::Up), _) => {
                picker.place = picker.place.saturating_sub(1);
                picker.resolve()
            }
            (Some(Command::Open), None) => Vec::new(),
            (Some(Command::Open), Some(role)) => {
                let purpose = Purpose::Task {
                    role: role.agent_type.clone(),
                    parent: picker.parent.clone(),
                };
                let label = format!("task of {}", role.agent_type);
                return self.edit(purpose, label, "");
            }
            _ => return Vec::new(),
        };
        self.mode = Mode::Pick(picker);
        effects
    }

    pub(super) fn key_in_line(&mut self, event: &KeyEvent, mut line: Box<Line>) -> Vec<Effect> {
        let is_control = event.modifiers.contains(KeyModifiers::CONTROL);
        let request = match event.code {
            KeyCode::Esc => return self.cancel(*line),
            KeyCode::Char('c') if is_control => return self.cancel(*line),
            KeyCode::Enter => return self.submit(line),
            KeyCode::Char('a') if is_control => InputRequest::GoToStart,
            KeyCode::Char('e') if is_control => InputRequest::GoToEnd,
            KeyCode::Char('u') if is_control => InputRequest::DeleteFromStart,
            KeyCode::Char('k') if is_control => InputRequest::DeleteTillEnd,
            KeyCode::Char('w') if is_control => InputRequest::DeletePrevWord,
            KeyCode::Char(character) if !is_control && !sanitize::is_unsafe(character) => {
                InputRequest::InsertChar(character)
            }
            KeyCode::Backspace => InputRequest::DeletePrevChar,
            KeyCode::Delete => InputRequest::DeleteNextChar,
            KeyCode::Left => InputRequest::GoToPrevChar,
            KeyCode::Right => InputRequest::GoToNextChar,
            KeyCode::Home => InputRequest::GoToStart,
            KeyCode::End => InputRequest::GoToEnd,
            _ => {
                self.mode = Mode::Line(line);
                return Vec::new();
            }
        };
        line.input.handle(request);
        if matches!(line.purpose, Purpose::Filter { .. }) {
            // A valid filter applies at once, so that the list follows each key.
            match line.input.value().parse() {
                Ok(filter) => {
                    self.options.filter = filter;
                    line.error.clear();
                }
                Err(error) => line.error = error,
            }
            self.rebuild();
        }
        self.mode = Mode::Line(line);
        Vec::new()
    }

    /// Closes the input line. Restores the filter from before the edit.
    fn cancel(&mut self, line: Line) -> Vec<Effect> {
        if let Purpose::Filter { before } = line.purpose {
            self.set_filter(before);
        }
        Vec::new()
    }

    fn submit(&mut self, mut line: Box<Line>) -> Vec<Effect> {
        let text = line.input.value().trim().to_owned();
        match &line.purpose {
            Purpose::Filter { .. } => match text.parse() {
                Ok(filter) => {
                    self.set_filter(filter);
                    Vec::new()
                }
                Err(error) => {
                    line.error = error;
                    self.mode = Mode::Line(line);
                    Vec::new()
                }
            },
            Purpose::Run => self.run_line(&text, line),
            // An empty text is not sent.
            Purpose::Send(_) | Purpose::Task { .. } if text.is_empty() => Vec::new(),
            Purpose::Send(request) => vec![Effect::Call(Call::Send(SendInputRequest {
                message: Some(text),
                ..request.clone()
            }))],
            Purpose::Deny(request) => vec![Effect::Call(Call::Decide(ResolveApprovalRequest {
                reason: text,
                ..request.clone()
            }))],
            Purpose::Task { role, parent } => vec![Effect::Run {
                arguments: ["spawn", role, "--parent", parent, "--message", &text]
                    .map(ToOwned::to_owned)
                    .to_vec(),
                file: None,
            }],
        }
    }

    /// Runs a command line of this program.
    fn run_line(&mut self, text: &str, mut line: Box<Line>) -> Vec<Effect> {
        let Some(mut words) = shlex::split(text) else {
            "a quote is not closed".clone_into(&mut line.error);
            self.mode = Mode::Line(line);
            return Vec::new();
        };
        if words.first().is_some_and(|word| word == "troupe") {
            words.remove(0);
        }
        if words.is_empty() {
            return Vec::new();
        }
        let id = self.target().id().unwrap_or_default().to_owned();
        for word in &mut words {
            if word == "%" {
                word.clone_from(&id);
            }
        }
        vec![Effect::RunOnTerminal(words)]
    }

    /// Opens the input line with a text to edit.
    pub(super) fn edit(&mut self, purpose: Purpose, label: impl Into<String>, text: &str) -> Vec<Effect> {
        self.mode = Mode::Line(Box::new(Line {
            purpose,
            label: label.into(),
            input: Input::new(text.to_owned()),
            error: String::new(),
        }));
        Vec::new()
    }
}
