//! Keys that edit a line, answer a question, choose a role or read the help.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use tui_input::{Input, InputRequest};

use super::{
    super::{
        action::Call,
        keys::{self, Command},
    },
    Effect, Line, Mode, Purpose, State,
};
use crate::sanitize;

impl State {
    pub(super) fn key_in_help(&mut self, event: &KeyEvent) -> Vec<Effect> {
        let Mode::Help(top) = &mut self.mode else {
            return Vec::new();
        };
        match keys::command(event) {
            Some(Command::Down) => *top = (*top + 1).min(keys::BINDINGS.len()),
            Some(Command::Up) => *top = top.saturating_sub(1),
            Some(Command::PageDown) => *top = (*top + 10).min(keys::BINDINGS.len()),
            Some(Command::PageUp) => *top = top.saturating_sub(10),
            _ => self.mode = Mode::Browse,
        }
        Vec::new()
    }

    pub(super) fn key_in_question(&mut self, event: &KeyEvent) -> Vec<Effect> {
        let Mode::Confirm { call, .. } = std::mem::take(&mut self.mode) else {
            return Vec::new();
        };
        if matches!(event.code, KeyCode::Char('y' | 'Y') | KeyCode::Enter) {
            vec![Effect::Call(call)]
        } else {
            self.note("cancelled", false);
            Vec::new()
        }
    }

    pub(super) fn key_in_picker(&mut self, event: &KeyEvent) -> Vec<Effect> {
        let Mode::Pick(picker) = &mut self.mode else {
            return Vec::new();
        };
        let roles = picker.roles.as_deref().unwrap_or_default();
        match keys::command(event) {
            Some(Command::Down) => {
                picker.place = (picker.place + 1).min(roles.len().saturating_sub(1));
                return picker.resolve();
            }
            Some(Command::Up) => {
                picker.place = picker.place.saturating_sub(1);
                return picker.resolve();
            }
            Some(Command::Open) => {
                if let Some(role) = roles.get(picker.place) {
                    let purpose = Purpose::Task {
                        role: role.agent_type.clone(),
                        parent: picker.parent.clone(),
                    };
                    let label = format!("task of {}", role.agent_type);
                    self.edit(purpose, label, "");
                }
            }
            _ => self.mode = Mode::Browse,
        }
        Vec::new()
    }

    pub(super) fn key_in_line(&mut self, event: &KeyEvent) -> Vec<Effect> {
        let Mode::Line(line) = &mut self.mode else {
            return Vec::new();
        };
        let is_control = event.modifiers.contains(KeyModifiers::CONTROL);
        let request = match event.code {
            KeyCode::Esc => return self.cancel(),
            KeyCode::Char('c') if is_control => return self.cancel(),
            KeyCode::Enter => return self.submit(),
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
            _ => return Vec::new(),
        };
        line.input.handle(request);
        if matches!(line.purpose, Purpose::Filter { .. }) {
            self.try_filter();
        }
        Vec::new()
    }

    /// Leaves the line of input. An unfinished filter has no effect.
    fn cancel(&mut self) -> Vec<Effect> {
        if let Mode::Line(line) = std::mem::take(&mut self.mode)
            && let Purpose::Filter { before } = line.purpose
        {
            self.set_filter(before);
        }
        Vec::new()
    }

    /// Applies the filter of the line as far as it is valid, so that the list follows each key.
    fn try_filter(&mut self) {
        let Mode::Line(line) = &mut self.mode else {
            return;
        };
        match line.input.value().parse() {
            Ok(filter) => {
                self.options.filter = filter;
                line.error.clear();
            }
            Err(error) => line.error = error,
        }
        self.rebuild();
    }

    fn submit(&mut self) -> Vec<Effect> {
        let Mode::Line(mut line) = std::mem::take(&mut self.mode) else {
            return Vec::new();
        };
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
            // The same reason for an empty text: nothing would be sent.
            Purpose::Send { .. } | Purpose::Task { .. } if text.is_empty() => Vec::new(),
            Purpose::Send { session, thread, steer } => vec![Effect::Call(Call::Send {
                session_id: session.clone(),
                thread_id: thread.clone(),
                text,
                steer: *steer,
            })],
            Purpose::Deny { session, approval } => vec![Effect::Call(Call::Decide {
                session_id: session.clone(),
                approval_id: approval.clone(),
                grant: false,
                reason: text,
            })],
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
        let id = self.selected_id().unwrap_or_default();
        for word in &mut words {
            if word == "%" {
                word.clone_from(&id);
            }
        }
        vec![Effect::RunOnTerminal(words)]
    }

    pub(super) fn edit(&mut self, purpose: Purpose, label: impl Into<String>, text: &str) {
        self.mode = Mode::Line(Box::new(Line {
            purpose,
            label: label.into(),
            input: Input::new(text.to_owned()),
            error: String::new(),
        }));
    }
}
