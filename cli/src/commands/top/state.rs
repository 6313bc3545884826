//! The state of the screen: the selection, the view, and the effects of keys and updates. Pure: time and data come in,
//! effects come out.

use std::{
    collections::HashSet,
    time::{Duration, SystemTime},
};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseEvent, MouseEventKind};
use troupe_proto::{
    common::v1::Mode as SessionMode,
    registry::v1::Agent,
    supervisor::v1::{Approval, Group, Runner, SpawnableAgent, StatusKind, Thread, WatchThreadsResponse},
};
use tui_input::{Input, InputRequest};

use super::{
    action::Call,
    detail::{Change, Source, Tab},
    keys::{self, Command},
    layout::{self, Focus, Panes},
    model::{Followed, Model, Reread},
    rows::{self, Key, Options, Row, View},
};
use crate::{filter::Filter, follow::SessionsUpdate, ids, names, ui};

/// How long a notice is shown.
const NOTICE: Duration = Duration::from_secs(6);
/// After an update has moved the selection, keys that act on it are ignored for this time.
const MOVED: Duration = Duration::from_secs(1);
/// Lines of details that are stored.
const MAX_DETAIL_LINES: usize = 4000;
/// Filters of the key `f`, in a circle.
const COMMON_FILTERS: [&str; 4] = ["", "needs:me", "s:running", "over:budget"];

/// An effect outside of the state.
#[derive(Debug, PartialEq)]
pub(super) enum Effect {
    Quit,
    Suspend,
    Redraw,
    /// Something starts to need a person.
    Alert,
    Copy(String),
    Call(Call),
    /// Read a part of a session again.
    Reread(Reread),
    /// List the runners.
    ReadRunners,
    /// List the roles.
    ReadRoles,
    /// List the roles that a thread may spawn.
    ReadSpawnable(String),
    /// Run a command of this program.
    Run {
        arguments: Vec<String>,
        /// Whether the command uses the whole terminal. Otherwise its output becomes a notice.
        on_terminal: bool,
    },
}

/// The purpose of a line of input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Filter,
    Run,
    Send {
        session: String,
        thread: String,
        steer: bool,
    },
    Deny {
        session: String,
        approval: String,
    },
    Task {
        role: String,
        parent: String,
    },
}

/// A line of input.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) purpose: Purpose,
    /// The text before the input.
    pub(super) label: String,
    pub(super) input: Input,
    /// Why the input was rejected.
    pub(super) error: String,
}

/// The choice of a role.
#[derive(Clone, Debug)]
pub(super) struct Picker {
    pub(super) parent: String,
    /// The name of the parent for people.
    pub(super) parent_name: String,
    /// `None`: not loaded yet.
    pub(super) roles: Option<Vec<SpawnableAgent>>,
    pub(super) place: usize,
}

/// What the keys do.
#[derive(Clone, Debug, Default)]
pub(super) enum Mode {
    /// Move in the list and act on the selection.
    #[default]
    Browse,
    /// Edit a line.
    Line(Box<Line>),
    /// Answer a question about a call with `y` or another key.
    Confirm { question: String, call: Call },
    /// Choose a role.
    Pick(Picker),
    /// Read the keys, from a line.
    Help(usize),
}

/// A message at the bottom.
#[derive(Clone, Debug)]
pub(super) struct Notice {
    pub(super) text: String,
    pub(super) is_error: bool,
    since: SystemTime,
}

/// What the selected row is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'a> {
    Nothing,
    Session(&'a Followed),
    Thread(&'a Followed, &'a Thread),
    Approval(&'a Followed, &'a Approval),
    Group(&'a Followed, &'a Group),
    Runner(&'a Runner),
    Role(&'a Agent),
}

/// The loaded details.
#[derive(Debug, Default)]
pub(super) struct Detail {
    /// What the lines are about.
    source: Option<Source>,
    pub(super) lines: Vec<String>,
    /// The first line on the screen. `None`: the end of a log, otherwise the beginning.
    pub(super) top: Option<usize>,
    /// The extent in the last picture.
    pub(super) extent: DetailExtent,
}

/// The lines of the details, and how many of them fit the screen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DetailExtent {
    pub(super) lines: usize,
    pub(super) height: usize,
}

/// The state of the screen.
#[derive(Debug)]
pub(super) struct State {
    pub(super) model: Model,
    pub(super) runners: Vec<Runner>,
    pub(super) roles: Vec<Agent>,
    pub(super) options: Options,
    pub(super) filter_text: String,
    pub(super) rows: Vec<Row>,
    pub(super) selected: usize,
    /// The first row on the screen.
    pub(super) top: usize,
    pub(super) focus: Focus,
    pub(super) tab: Tab,
    pub(super) detail: Detail,
    pub(super) mode: Mode,
    pub(super) notice: Option<Notice>,
    pub(super) now: SystemTime,
    /// The number of rows that wait for a person.
    pub(super) needs: usize,
    pub(super) size: (u16, u16),
    is_read_only: bool,
    are_rows_stale: bool,
    key: Option<Key>,
    /// When an update moved the selection.
    moved: Option<SystemTime>,
    known_needs: HashSet<String>,
}

impl State {
    /// Creates the state of an empty screen.
    pub(super) fn new(filter: Filter, filter_text: String, is_read_only: bool, now: SystemTime) -> Self {
        Self {
            model: Model::default(),
            runners: Vec::new(),
            roles: Vec::new(),
            options: Options {
                filter,
                ..Options::default()
            },
            filter_text,
            rows: Vec::new(),
            selected: 0,
            top: 0,
            focus: Focus::default(),
            tab: Tab::default(),
            detail: Detail::default(),
            mode: Mode::default(),
            notice: None,
            now,
            needs: 0,
            size: (0, 0),
            is_read_only,
            are_rows_stale: true,
            key: None,
            moved: None,
            known_needs: HashSet::new(),
        }
    }

    /// Sets the time.
    pub(super) fn tick(&mut self, now: SystemTime) {
        self.now = now;
        let is_old = |notice: &mut Notice| now.duration_since(notice.since).is_ok_and(|age| age >= NOTICE);
        self.notice.take_if(is_old);
    }

    /// Applies an update of the sessions.
    pub(super) fn apply(&mut self, update: SessionsUpdate<WatchThreadsResponse>) -> Vec<Effect> {
        self.are_rows_stale = true;
        if let SessionsUpdate::Unfollowed(session, error) = &update {
            let text = format!(
                "session {} cannot be followed: {}",
                ids::short(session),
                error.message()
            );
            self.note(text, true);
        }
        let reread = self.model.apply(update, self.now);
        reread.into_iter().map(Effect::Reread).collect()
    }

    /// Adds or replaces a thread that was read.
    pub(super) fn put_thread(&mut self, thread: Thread) {
        self.are_rows_stale = true;
        self.model.put_thread(thread);
    }

    /// Replaces a group that was read.
    pub(super) fn put_group(&mut self, group: Group) {
        self.are_rows_stale = true;
        self.model.put_group(group);
    }

    /// Sets the runners.
    pub(super) fn put_runners(&mut self, runners: Vec<Runner>) {
        self.are_rows_stale = true;
        self.runners = runners;
    }

    /// Sets the roles.
    pub(super) fn put_roles(&mut self, roles: Vec<Agent>) {
        self.are_rows_stale = true;
        self.roles = roles;
    }

    /// Sets the roles of the choice for a parent.
    pub(super) fn put_spawnable(&mut self, thread: &str, roles: Vec<SpawnableAgent>) {
        if let Mode::Pick(picker) = &mut self.mode
            && picker.parent == thread
        {
            picker.roles = Some(roles);
        }
    }

    /// Applies a change of the details.
    pub(super) fn apply_detail(&mut self, source: &Source, change: Change) {
        if self.source().as_ref() != Some(source) {
            return;
        }
        let detail = &mut self.detail;
        let is_same = detail
            .source
            .as_ref()
            .is_some_and(|shown| shown.is_same_subject(source));
        if !is_same {
            detail.top = None;
            detail.lines.clear();
        }
        detail.source = Some(source.clone());
        match change {
            Change::Replace(lines) => detail.lines = lines,
            Change::Failed(error) => detail.lines = vec![error],
            Change::Append(lines) => detail.lines.extend(lines),
            Change::Events(events) => {
                let session = events.first().map(|event| event.session_id.clone()).unwrap_or_default();
                if let Some(followed) = self.model.followed(&session) {
                    let lines = events.iter().map(|event| {
                        let line = crate::event_format::line(event, &followed.view);
                        line.render(usize::MAX)
                    });
                    detail.lines.extend(lines);
                }
            }
        }
        let excess = self.detail.lines.len().saturating_sub(MAX_DETAIL_LINES);
        self.detail.lines.drain(..excess);
    }

    /// Returns what to load for the details of the selection.
    pub(super) fn source(&self) -> Option<Source> {
        let columns = usize::from(self.panes().detail?.width);
        let source = match self.target() {
            Target::Approval(_, approval) => Source::Approval(Box::new(approval.clone())),
            Target::Thread(_, thread) => {
                let (session, version) = (thread.session_id.clone(), thread.sequence);
                let thread = thread.thread_id.clone();
                match self.tab {
                    Tab::Transcript => Source::Transcript { thread },
                    Tab::Info => return None,
                    Tab::Prompt => Source::Prompt { thread, version },
                    Tab::Mail => Source::Mail {
                        session,
                        thread,
                        columns,
                        version,
                    },
                    Tab::Files => Source::Files {
                        session,
                        thread,
                        columns,
                        version,
                    },
                    Tab::Events => Source::Events { session, thread },
                }
            }
            _ => return None,
        };
        Some(source)
    }

    /// Returns the loaded lines if they are about the selection.
    pub(super) fn loaded(&self) -> Option<&[String]> {
        let source = self.source()?;
        let shown = self.detail.source.as_ref()?;
        shown.is_same_subject(&source).then_some(self.detail.lines.as_slice())
    }

    /// Returns the areas of the screen.
    pub(super) fn panes(&self) -> Panes {
        layout::panes(self.size, self.focus)
    }

    /// Shows a message at the bottom.
    pub(super) fn note(&mut self, text: impl Into<String>, is_error: bool) {
        self.notice = Some(Notice {
            text: text.into(),
            is_error,
            since: self.now,
        });
    }

    /// Returns what the selected row is about.
    pub(super) fn target(&self) -> Target<'_> {
        self.rows
            .get(self.selected)
            .map_or(Target::Nothing, |row| self.target_of(row))
    }

    /// Returns what a row is about.
    pub(super) fn target_of(&self, row: &Row) -> Target<'_> {
        let followed = |session: &usize| self.model.sessions().get(*session);
        let found = match row {
            Row::NeedsHeading(_) => None,
            Row::Approval { session, approval } => followed(session).and_then(|followed| {
                let approval = followed.view.approvals().get(*approval)?;
                Some(Target::Approval(followed, approval))
            }),
            Row::Need { session, thread } | Row::Thread { session, thread, .. } => {
                followed(session).and_then(|followed| {
                    let thread = followed.view.threads().get(*thread)?;
                    Some(Target::Thread(followed, thread))
                })
            }
            Row::Session { session, .. } => followed(session).map(Target::Session),
            Row::Group { session, group } => followed(session).and_then(|followed| {
                let group = followed.view.groups().get(*group)?;
                Some(Target::Group(followed, group))
            }),
            Row::Runner(runner) => self.runners.get(*runner).map(Target::Runner),
            Row::Role(role) => self.roles.get(*role).map(Target::Role),
        };
        found.unwrap_or(Target::Nothing)
    }

    /// Builds the rows again if the data has changed, and keeps the selection on its row. Returns an alert if something
    /// starts to need a person.
    pub(super) fn refresh(&mut self) -> Option<Effect> {
        let mut alert = None;
        if std::mem::take(&mut self.are_rows_stale) {
            self.rows = rows::build(&self.model, &self.runners, &self.roles, &self.options);
            self.find_selected();
            alert = self.update_needs();
        }
        self.scroll_to_selected();
        alert
    }

    fn key_of(&self, row: &Row) -> Option<Key> {
        rows::key(row, &self.model, &self.runners, &self.roles)
    }

    fn find_selected(&mut self) {
        let last = self.rows.len().saturating_sub(1);
        let place = self
            .key
            .as_ref()
            .and_then(|key| self.rows.iter().position(|row| self.key_of(row).as_ref() == Some(key)));
        match place {
            Some(place) => self.selected = place,
            None => {
                // The first row to select is one to act on.
                let first = if self.key.is_none() {
                    self.first_row()
                } else {
                    self.selected
                };
                if self.key.is_some() {
                    self.moved = Some(self.now);
                }
                self.selected = first.min(last);
                self.key = self.rows.get(self.selected).and_then(|row| self.key_of(row));
            }
        }
    }

    /// Returns the place of the first row that is not a heading.
    fn first_row(&self) -> usize {
        let is_heading = |row: &Row| matches!(row, Row::NeedsHeading(_));
        self.rows.iter().position(|row| !is_heading(row)).unwrap_or_default()
    }

    fn update_needs(&mut self) -> Option<Effect> {
        if !matches!(self.options.view, View::Needs | View::Tree) {
            return None;
        }
        let needs: HashSet<String> = self
            .rows
            .iter()
            .filter_map(|row| match self.key_of(row)? {
                Key::Approval(id) | Key::Need(id) => Some(id),
                _ => None,
            })
            .collect();
        self.needs = needs.len();
        let is_new = needs.iter().any(|id| !self.known_needs.contains(id));
        self.known_needs = needs;
        (is_new && self.model.is_synced()).then_some(Effect::Alert)
    }

    fn scroll_to_selected(&mut self) {
        let height = self.panes().list_rows().max(1);
        self.top = self.top.min(self.rows.len().saturating_sub(height));
        self.top = self
            .top
            .min(self.selected)
            .max((self.selected + 1).saturating_sub(height));
    }

    fn select(&mut self, place: usize) {
        let last = self.rows.len().saturating_sub(1);
        self.selected = place.min(last);
        self.key = self.rows.get(self.selected).and_then(|row| self.key_of(row));
        self.moved = None;
        self.detail.top = None;
    }

    fn rebuild(&mut self) {
        self.are_rows_stale = true;
        self.refresh();
    }

    /// Handles a key.
    pub(super) fn key(&mut self, event: &KeyEvent) -> Vec<Effect> {
        match &mut self.mode {
            Mode::Browse => keys::command(event).map_or_else(Vec::new, |command| self.command(command)),
            Mode::Help(_) => self.key_in_help(event),
            Mode::Confirm { .. } => self.key_in_question(event),
            Mode::Pick(_) => self.key_in_picker(event),
            Mode::Line(_) => self.key_in_line(event),
        }
    }

    /// Inserts pasted text into the line of input.
    pub(super) fn paste(&mut self, text: &str) {
        if let Mode::Line(line) = &mut self.mode {
            for character in crate::sanitize::line(text).chars() {
                line.input.handle(InputRequest::InsertChar(character));
            }
        }
    }

    /// Selects the row under the mouse, or scrolls.
    pub(super) fn mouse(&mut self, event: &MouseEvent) {
        let position = (event.column, event.row).into();
        let panes = self.panes();
        if panes.detail.is_some_and(|detail| detail.contains(position)) {
            self.focus = Focus::Detail;
        } else if let Some(list) = panes.list.filter(|list| list.contains(position)) {
            self.focus = Focus::List;
            let row = usize::from(event.row.saturating_sub(list.y));
            if matches!(event.kind, MouseEventKind::Down(_)) && row > 0 && self.top + row <= self.rows.len() {
                self.select(self.top + row - 1);
            }
        }
        match event.kind {
            MouseEventKind::ScrollUp => self.move_by(Command::Up),
            MouseEventKind::ScrollDown => self.move_by(Command::Down),
            _ => {}
        }
    }

    fn key_in_help(&mut self, event: &KeyEvent) -> Vec<Effect> {
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

    fn key_in_question(&mut self, event: &KeyEvent) -> Vec<Effect> {
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

    fn key_in_picker(&mut self, event: &KeyEvent) -> Vec<Effect> {
        let Mode::Pick(picker) = &mut self.mode else {
            return Vec::new();
        };
        let roles = picker.roles.as_deref().unwrap_or_default();
        match keys::command(event) {
            Some(Command::Down) => picker.place = (picker.place + 1).min(roles.len().saturating_sub(1)),
            Some(Command::Up) => picker.place = picker.place.saturating_sub(1),
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

    fn key_in_line(&mut self, event: &KeyEvent) -> Vec<Effect> {
        let Mode::Line(line) = &mut self.mode else {
            return Vec::new();
        };
        let is_control = event.modifiers.contains(KeyModifiers::CONTROL);
        let request = match event.code {
            KeyCode::Esc => {
                self.mode = Mode::Browse;
                return Vec::new();
            }
            KeyCode::Char('c') if is_control => {
                self.mode = Mode::Browse;
                return Vec::new();
            }
            KeyCode::Enter => return self.submit(),
            KeyCode::Char('a') if is_control => InputRequest::GoToStart,
            KeyCode::Char('e') if is_control => InputRequest::GoToEnd,
            KeyCode::Char('u') if is_control => InputRequest::DeleteFromStart,
            KeyCode::Char('k') if is_control => InputRequest::DeleteTillEnd,
            KeyCode::Char('w') if is_control => InputRequest::DeletePrevWord,
            KeyCode::Char(character) if !is_control && !crate::sanitize::is_unsafe(character) => {
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
        if line.purpose == Purpose::Filter {
            self.try_filter();
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
            Purpose::Filter => match text.parse() {
                Ok(filter) => {
                    self.options.filter = filter;
                    self.filter_text = text;
                    self.rebuild();
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
                session: session.clone(),
                thread: thread.clone(),
                text,
                steer: *steer,
            })],
            Purpose::Deny { session, approval } => vec![Effect::Call(Call::Decide {
                session: session.clone(),
                approval: approval.clone(),
                grant: false,
                reason: text,
            })],
            Purpose::Task { role, parent } => vec![Effect::Run {
                arguments: ["spawn", role, "--parent", parent, "--message", &text]
                    .map(ToOwned::to_owned)
                    .to_vec(),
                on_terminal: false,
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
        vec![Effect::Run {
            arguments: words,
            on_terminal: true,
        }]
    }

    fn edit(&mut self, purpose: Purpose, label: impl Into<String>, text: &str) {
        self.mode = Mode::Line(Box::new(Line {
            purpose,
            label: label.into(),
            input: Input::new(text.to_owned()),
            error: String::new(),
        }));
    }

    /// Returns the id of the selected object.
    fn selected_id(&self) -> Option<String> {
        Some(match self.target() {
            Target::Nothing => return None,
            Target::Session(followed) => followed.info.session_id.clone(),
            Target::Thread(_, thread) => thread.thread_id.clone(),
            Target::Approval(_, approval) => approval.approval_id.clone(),
            Target::Group(_, group) => group.spec.as_ref()?.group_id.clone(),
            Target::Runner(runner) => runner.runner_id.clone(),
            Target::Role(role) => role.agent_type.clone(),
        })
    }

    /// Returns the session of the selection.
    fn selected_session(&self) -> Option<&Followed> {
        match self.target() {
            Target::Session(followed)
            | Target::Thread(followed, _)
            | Target::Approval(followed, _)
            | Target::Group(followed, _) => Some(followed),
            Target::Nothing | Target::Runner(_) | Target::Role(_) => None,
        }
    }

    fn command(&mut self, command: Command) -> Vec<Effect> {
        if command.is_mutation() {
            if self.is_read_only {
                self.note("--read-only: this key is off", true);
                return Vec::new();
            }
            let is_recent = |moved: SystemTime| self.now.duration_since(moved).is_ok_and(|age| age < MOVED);
            if self.moved.is_some_and(is_recent) {
                self.note("the selection has just moved; press the key again", true);
                return Vec::new();
            }
        }
        match command {
            Command::Quit => return vec![Effect::Quit],
            Command::Suspend => return vec![Effect::Suspend],
            Command::Redraw => return vec![Effect::Redraw],
            Command::Help => self.mode = Mode::Help(0),
            Command::Up | Command::Down | Command::PageUp | Command::PageDown | Command::First | Command::Last => {
                self.move_by(command);
            }
            Command::Fold | Command::Unfold | Command::ToggleFold => self.fold(command),
            Command::Open => self.focus = Focus::Detail,
            Command::Back => self.back(),
            Command::OtherPane => {
                self.focus = match self.focus {
                    Focus::List => Focus::Detail,
                    Focus::Detail => Focus::List,
                };
            }
            Command::NextTab => self.step_tab(1),
            Command::PreviousTab => self.step_tab(Tab::ALL.len() - 1),
            Command::NextNeed => self.select_next(
                |state, row| matches!(state.key_of(row), Some(Key::Approval(_) | Key::Need(_))),
                "nothing waits for a person",
            ),
            Command::NextActive => self.select_next(
                |state, row| {
                    // A root that its client executes has no turn.
                    let has_turn = |thread: &Thread| is_active(thread) && thread.turn > 0;
                    matches!(row, Row::Thread { .. })
                        && matches!(state.target_of(row), Target::Thread(_, thread) if has_turn(thread))
                },
                "no thread is active",
            ),
            Command::ViewNeeds => self.show(View::Needs),
            Command::ViewTree => self.show(View::Tree),
            Command::ViewRunners => {
                self.show(View::Runners);
                return vec![Effect::ReadRunners];
            }
            Command::ViewRoles => {
                self.show(View::Roles);
                return vec![Effect::ReadRoles];
            }
            Command::Filter => {
                let text = self.filter_text.clone();
                self.edit(Purpose::Filter, "filter", &text);
            }
            Command::NextFilter => self.next_filter(),
            Command::Sort => {
                self.options.sort = self.options.sort.next();
                self.note(format!("ordered by {}", self.options.sort.name()), false);
                self.rebuild();
            }
            Command::ShowClosed => {
                self.options.shows_closed = !self.options.shows_closed;
                let shown = if self.options.shows_closed { "shown" } else { "hidden" };
                self.note(format!("closed threads and sessions are {shown}"), false);
                self.rebuild();
            }
            Command::Copy => {
                if let Some(id) = self.selected_id() {
                    self.note(format!("copied {id}"), false);
                    return vec![Effect::Copy(id)];
                }
            }
            Command::Run => self.edit(Purpose::Run, "troupe", ""),
            Command::Pager => return self.pager(),
            Command::Export => return self.export(),
            Command::Grant | Command::Deny | Command::DenyWithReason => return self.decide(command),
            Command::Send | Command::Steer => self.send(command == Command::Steer),
            Command::Interrupt => self.interrupt(),
            Command::Close => self.close(),
            Command::Resume => return self.resume(),
            Command::Pause => return self.pause(),
            Command::Mode => return self.set_mode(),
            Command::Budget => self.budget(),
            Command::Spawn => return self.spawn(),
        }
        Vec::new()
    }

    fn move_by(&mut self, command: Command) {
        if self.focus == Focus::Detail {
            self.scroll_detail(command);
            return;
        }
        let page = self.panes().list_rows().saturating_sub(1).max(1);
        let place = match command {
            Command::Up => self.selected.saturating_sub(1),
            Command::Down => self.selected + 1,
            Command::PageUp => self.selected.saturating_sub(page),
            Command::PageDown => self.selected + page,
            Command::First => 0,
            _ => usize::MAX,
        };
        self.select(place);
    }

    fn scroll_detail(&mut self, command: Command) {
        let extent = self.detail.extent;
        let most = extent.lines.saturating_sub(extent.height);
        let top = self.detail_top(extent);
        let page = extent.height.saturating_sub(1).max(1);
        let top = match command {
            Command::Up => top.saturating_sub(1),
            Command::Down => top + 1,
            Command::PageUp => top.saturating_sub(page),
            Command::PageDown => top + page,
            Command::First => 0,
            _ => most,
        };
        // At the end, a log shows its new lines again.
        self.detail.top = (top < most || !self.shows_log()).then_some(top.min(most));
    }

    /// Returns the first line of the details on the screen.
    pub(super) fn detail_top(&self, extent: DetailExtent) -> usize {
        let most = extent.lines.saturating_sub(extent.height);
        self.detail
            .top
            .unwrap_or(if self.shows_log() { most } else { 0 })
            .min(most)
    }

    /// Returns whether the details are a log, whose end is shown at first.
    fn shows_log(&self) -> bool {
        matches!(self.target(), Target::Thread(..)) && self.tab.is_log()
    }

    fn fold(&mut self, command: Command) {
        if self.focus == Focus::Detail {
            self.step_tab(if command == Command::Fold {
                Tab::ALL.len() - 1
            } else {
                1
            });
            return;
        }
        let id = match self.rows.get(self.selected) {
            Some(Row::Session { .. } | Row::Thread { .. }) => self.selected_id(),
            _ => None,
        };
        let Some(id) = id else {
            return;
        };
        let is_folded = self.options.folded.contains(&id);
        match command {
            Command::Fold if is_folded => self.select_parent(),
            Command::Unfold if !is_folded => {}
            _ if is_folded => {
                self.options.folded.remove(&id);
            }
            _ => {
                self.options.folded.insert(id);
            }
        }
        self.rebuild();
    }

    fn select_parent(&mut self) {
        let parent = match self.target() {
            Target::Thread(followed, thread) if thread.parent_thread_id.is_empty() => {
                Key::Session(followed.info.session_id.clone())
            }
            Target::Thread(_, thread) => Key::Thread(thread.parent_thread_id.clone()),
            _ => return,
        };
        let place = self
            .rows
            .iter()
            .position(|row| self.key_of(row).as_ref() == Some(&parent));
        if let Some(place) = place {
            self.select(place);
        }
    }

    fn back(&mut self) {
        if self.focus == Focus::Detail {
            self.focus = Focus::List;
        } else if !self.options.filter.is_empty() {
            self.set_filter("");
        } else if self.options.view != View::Tree {
            self.show(View::Tree);
        }
    }

    fn step_tab(&mut self, steps: usize) {
        self.tab = self.tab.step(steps);
        self.detail.top = None;
    }

    fn select_next(&mut self, is_wanted: impl Fn(&Self, &Row) -> bool, nothing: &str) {
        let count = self.rows.len();
        let places = (1..=count).map(|step| (self.selected + step) % count);
        let wanted = places
            .filter_map(|place| Some((place, self.rows.get(place)?)))
            .find(|(_, row)| is_wanted(self, row))
            .map(|(place, _)| place);
        match wanted {
            Some(place) => self.select(place),
            None => self.note(nothing, false),
        }
    }

    fn show(&mut self, view: View) {
        self.options.view = view;
        self.focus = Focus::List;
        self.key = None;
        self.rebuild();
    }

    fn set_filter(&mut self, text: &str) {
        if let Ok(filter) = text.parse() {
            self.options.filter = filter;
            text.clone_into(&mut self.filter_text);
            self.rebuild();
        }
    }

    fn next_filter(&mut self) {
        let place = COMMON_FILTERS.iter().position(|filter| *filter == self.filter_text);
        let next = place.map_or(0, |place| place + 1) % COMMON_FILTERS.len();
        self.set_filter(COMMON_FILTERS.get(next).copied().unwrap_or_default());
    }

    fn pager(&mut self) -> Vec<Effect> {
        let arguments: Vec<String> = match self.target() {
            Target::Approval(_, approval) => ["approvals", "show", &approval.approval_id]
                .map(ToOwned::to_owned)
                .to_vec(),
            Target::Thread(_, thread) => {
                let id = thread.thread_id.as_str();
                let words: &[&str] = match self.tab {
                    Tab::Transcript => &["logs", id],
                    Tab::Info => &["show", id],
                    Tab::Prompt => &["prompts", "show", id],
                    Tab::Mail => &["mail", id, "--all"],
                    Tab::Files => &["artifacts", "--thread", id],
                    Tab::Events => &["watch", id, "--after", "0"],
                };
                words.iter().map(|word| (*word).to_owned()).collect()
            }
            Target::Session(followed) => vec!["show".to_owned(), followed.info.session_id.clone()],
            Target::Role(role) => ["agents", "show", &role.agent_type].map(ToOwned::to_owned).to_vec(),
            Target::Group(..) | Target::Runner(_) | Target::Nothing => return Vec::new(),
        };
        vec![Effect::Run {
            arguments,
            on_terminal: true,
        }]
    }

    fn export(&mut self) -> Vec<Effect> {
        let Some(followed) = self.selected_session() else {
            return Vec::new();
        };
        let id = followed.info.session_id.clone();
        let file = format!("troupe-{}.html", ids::short(&id));
        self.note(format!("writing {file}"), false);
        let words = ["export", id.as_str(), "--output", "html", "--file", file.as_str()];
        vec![Effect::Run {
            arguments: words.map(ToOwned::to_owned).to_vec(),
            on_terminal: false,
        }]
    }

    fn decide(&mut self, command: Command) -> Vec<Effect> {
        let Target::Approval(followed, approval) = self.target() else {
            self.note("select an approval first; `a` goes to the next one", true);
            return Vec::new();
        };
        let (session, id) = (followed.info.session_id.clone(), approval.approval_id.clone());
        if command == Command::DenyWithReason {
            let purpose = Purpose::Deny { session, approval: id };
            self.edit(purpose, "deny because", "");
            return Vec::new();
        }
        vec![Effect::Call(Call::Decide {
            session,
            approval: id,
            grant: command == Command::Grant,
            reason: String::new(),
        })]
    }

    fn send(&mut self, steer: bool) {
        let Target::Thread(_, thread) = self.target() else {
            self.note("select a thread first", true);
            return;
        };
        let purpose = Purpose::Send {
            session: thread.session_id.clone(),
            thread: thread.thread_id.clone(),
            steer,
        };
        let verb = if steer { "steer" } else { "send to" };
        let label = format!("{verb} {}", name(thread));
        self.edit(purpose, label, "");
    }

    fn interrupt(&mut self) {
        let Target::Thread(followed, thread) = self.target() else {
            self.note("select a thread first", true);
            return;
        };
        let below = below(followed, thread);
        let running = below.iter().filter(|thread| is_active(thread)).count();
        if !is_active(thread) && running == 0 {
            self.note(format!("no turn of {} or below it is running", name(thread)), true);
            return;
        }
        let question = format!("interrupt {} and {running} running below it?", name(thread));
        let call = Call::Interrupt {
            session: thread.session_id.clone(),
            thread: thread.thread_id.clone(),
            turn: (thread.turn > 0).then_some(thread.turn),
        };
        self.mode = Mode::Confirm { question, call };
    }

    fn close(&mut self) {
        let (question, call) = match self.target() {
            Target::Session(followed) => {
                let open = open(followed.view.threads().iter());
                let question = format!(
                    "close session {} with {} threads ({} running)?",
                    ids::short(&followed.info.session_id),
                    open.len(),
                    open.iter().filter(|thread| is_active(thread)).count(),
                );
                let session = followed.info.session_id.clone();
                (question, Call::CloseSession { session })
            }
            Target::Thread(followed, thread) => {
                let below = below(followed, thread);
                let running = below.iter().filter(|thread| is_active(thread)).count();
                let question = format!(
                    "close {} and {} threads below it ({running} running)?",
                    name(thread),
                    below.len()
                );
                let call = Call::Close {
                    session: thread.session_id.clone(),
                    thread: thread.thread_id.clone(),
                };
                (question, call)
            }
            _ => {
                self.note("select a thread or a session first", true);
                return;
            }
        };
        self.mode = Mode::Confirm { question, call };
    }

    fn resume(&mut self) -> Vec<Effect> {
        match self.target() {
            Target::Thread(_, thread) if ui::status_of(thread) == StatusKind::Shutdown => {
                vec![Effect::Call(Call::Resume {
                    session: thread.session_id.clone(),
                    thread: thread.thread_id.clone(),
                })]
            }
            _ => {
                self.note("select a closed thread first; `w` shows closed threads", true);
                Vec::new()
            }
        }
    }

    fn pause(&mut self) -> Vec<Effect> {
        let Some(followed) = self.selected_session() else {
            self.note("select a session or one of its threads first", true);
            return Vec::new();
        };
        vec![Effect::Call(Call::Pause {
            session: followed.info.session_id.clone(),
            paused: !followed.session().paused,
        })]
    }

    fn set_mode(&mut self) -> Vec<Effect> {
        let Some(followed) = self.selected_session() else {
            self.note("select a session or one of its threads first", true);
            return Vec::new();
        };
        let mode = match followed.session().mode() {
            SessionMode::Planning => SessionMode::Implementation,
            SessionMode::Implementation | SessionMode::Unspecified => SessionMode::Planning,
        };
        let session = followed.info.session_id.clone();
        let question = format!(
            "change the mode of session {} to {}?",
            ids::short(&session),
            names::mode(mode)
        );
        let call = Call::SetMode { session, mode };
        self.mode = Mode::Confirm { question, call };
        Vec::new()
    }

    fn budget(&mut self) {
        let Target::Thread(_, thread) = self.target() else {
            self.note("select a thread first", true);
            return;
        };
        let text = format!("budget {} --tokens ", thread.thread_id);
        self.edit(Purpose::Run, "troupe", &text);
    }

    fn spawn(&mut self) -> Vec<Effect> {
        let parent = match self.target() {
            Target::Thread(_, thread) => Some(thread),
            Target::Session(followed) => followed.view.threads().first(),
            _ => None,
        };
        let Some(parent) = parent else {
            self.edit(Purpose::Run, "troupe", "spawn ");
            return Vec::new();
        };
        let (parent, parent_name) = (parent.thread_id.clone(), name(parent));
        self.mode = Mode::Pick(Picker {
            parent: parent.clone(),
            parent_name,
            roles: None,
            place: 0,
        });
        vec![Effect::ReadSpawnable(parent)]
    }
}

/// Returns a thread's role and alias, or the end of its id, for questions and labels.
pub(super) fn name(thread: &Thread) -> String {
    let name = match thread.alias.as_str() {
        "" => ids::short(&thread.thread_id),
        alias => alias,
    };
    crate::sanitize::line(&format!("{} {name}", ui::role(thread)))
}

fn is_active(thread: &Thread) -> bool {
    matches!(ui::status_of(thread), StatusKind::PendingInit | StatusKind::Running)
}

fn open<'a>(threads: impl Iterator<Item = &'a Thread>) -> Vec<&'a Thread> {
    threads
        .filter(|thread| ui::status_of(thread) != StatusKind::Shutdown)
        .collect()
}

/// Returns the open threads below a thread.
fn below<'a>(followed: &'a Followed, thread: &Thread) -> Vec<&'a Thread> {
    let mut above: HashSet<&str> = HashSet::from([thread.thread_id.as_str()]);
    let mut below = Vec::new();
    // Parents come before their children.
    for other in followed.view.threads() {
        if above.contains(other.parent_thread_id.as_str()) {
            above.insert(&other.thread_id);
            below.push(other);
        }
    }
    open(below.into_iter())
}
