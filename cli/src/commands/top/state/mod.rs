//! The state of the screen: the selection, the view, and the effects of keys and updates. Pure: time and data come in,
//! effects come out.

mod commands;
mod input;

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    time::{Duration, SystemTime},
};

use crossterm::event::{KeyEvent, MouseEvent, MouseEventKind};
use troupe_proto::{
    registry::v1::{Agent, InheritedSettings, ResolveSpawnRequest},
    supervisor::v1::{
        Approval, Group, ResolveApprovalRequest, Runner, SendInputRequest, SpawnableAgent, Thread, WatchThreadsResponse,
    },
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
use crate::{error::Error, filter::Filter, follow::SessionsUpdate, ids, ui};

/// Time for which a notice is shown.
const NOTICE: Duration = Duration::from_secs(6);
/// Maximum number of stored lines of details.
const MAX_DETAIL_LINES: usize = 4000;

/// An effect that the state requests.
#[derive(Debug, PartialEq)]
pub(super) enum Effect {
    Quit,
    Suspend,
    Redraw,
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
    /// Resolve a spawn of the role below the thread.
    Resolve {
        session: String,
        parent: String,
        role: String,
    },
    /// Run a command of this program with the whole terminal.
    RunOnTerminal(Vec<String>),
    /// Run a command of this program in the background.
    Run {
        arguments: Vec<String>,
        /// The new file for the output. `None` shows the last line of the output as a message.
        file: Option<String>,
    },
}

/// The result of a call that was made in the background.
pub(super) enum Answer {
    Thread(Box<Thread>),
    Group(Box<Group>),
    Runners(Vec<Runner>),
    Roles(Vec<Agent>),
    /// The roles that a thread may spawn.
    Spawnable(String, Vec<SpawnableAgent>),
    /// The values that an agent of this role would have, as lines.
    Resolved(String, Vec<String>),
    /// The call for this part has ended.
    Reread(Reread),
    /// A message for the last line.
    Done(String),
    /// An error for the last line.
    Failed(Error),
}

/// The purpose of a line of input.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    Filter {
        /// The filter from before the edit.
        before: Filter,
    },
    Run,
    /// The message of the input.
    Send(SendInputRequest),
    /// The reason of the decision.
    Deny(ResolveApprovalRequest),
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
    /// A role with the values that its agent would have, and their origins.
    pub(super) resolved: Option<(String, Vec<String>)>,
    session: String,
}

impl Picker {
    /// Returns the marked role.
    pub(super) fn marked(&self) -> Option<&SpawnableAgent> {
        self.roles.as_deref()?.get(self.place)
    }

    /// Asks for the values of the marked role.
    fn resolve(&self) -> Vec<Effect> {
        let role = self.marked().map(|role| role.agent_type.clone());
        let resolve = role.map(|role| Effect::Resolve {
            session: self.session.clone(),
            parent: self.parent.clone(),
            role,
        });
        resolve.into_iter().collect()
    }
}

/// The mode, which determines the meaning of the keys.
#[derive(Clone, Debug, Default)]
pub(super) enum Mode {
    /// Keys move in the list and act on the selection.
    #[default]
    Browse,
    /// Keys edit a line.
    Line(Box<Line>),
    /// `y` and Enter make the call, any other key cancels it.
    Confirm { question: String, call: Call },
    /// Keys choose a role.
    Pick(Picker),
    /// The list of keys is shown, starting at this line.
    Help(usize),
}

/// A message at the bottom.
#[derive(Clone, Debug)]
pub(super) struct Notice {
    pub(super) text: String,
    pub(super) is_error: bool,
    since: SystemTime,
}

/// The object that a row shows.
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

impl<'a> Target<'a> {
    /// Returns the id of the object.
    fn id(self) -> Option<&'a str> {
        Some(match self {
            Self::Nothing => return None,
            Self::Session(followed) => &followed.info.session_id,
            Self::Thread(_, thread) => &thread.thread_id,
            Self::Approval(_, approval) => &approval.approval_id,
            Self::Group(_, group) => &group.spec.as_ref()?.group_id,
            Self::Runner(runner) => &runner.runner_id,
            Self::Role(role) => &role.agent_type,
        })
    }

    /// Returns the session of the object.
    fn session(self) -> Option<&'a Followed> {
        match self {
            Self::Session(followed)
            | Self::Thread(followed, _)
            | Self::Approval(followed, _)
            | Self::Group(followed, _) => Some(followed),
            Self::Nothing | Self::Runner(_) | Self::Role(_) => None,
        }
    }
}

/// The loaded details.
#[derive(Debug, Default)]
pub(super) struct Detail {
    /// The source of the lines.
    source: Option<Source>,
    pub(super) lines: Vec<String>,
    /// The first line on the screen. `None`: the end of a log, otherwise the beginning.
    pub(super) top: Option<usize>,
    /// The extent in the last frame.
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
    /// The number of approvals and threads that wait for a person.
    pub(super) needs: usize,
    pub(super) size: (u16, u16),
    is_read_only: bool,
    are_rows_stale: bool,
    /// The parts that are being read again, and whether each part has changed since the call began.
    rereading: HashMap<Reread, bool>,
    key: Option<Key>,
    /// The tree row of the selected approval or thread. This tree row is selected if the selected row disappears.
    waiting: Option<Key>,
    /// The time at which an update moved the selection.
    moved: Option<SystemTime>,
    known_needs: HashSet<String>,
    has_new_need: bool,
}

impl State {
    /// Creates the state of an empty screen.
    pub(super) fn new(filter: Filter, is_read_only: bool, now: SystemTime) -> Self {
        Self {
            model: Model::default(),
            runners: Vec::new(),
            roles: Vec::new(),
            options: Options {
                filter,
                ..Options::default()
            },
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
            rereading: HashMap::new(),
            key: None,
            waiting: None,
            moved: None,
            known_needs: HashSet::new(),
            has_new_need: false,
        }
    }

    /// Sets the time, and removes an old notice.
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
        let unclear = self.model.apply(update, self.now);
        unclear.into_iter().filter_map(|part| self.reread(part)).collect()
    }

    /// Applies the result of a call.
    pub(super) fn answer(&mut self, answer: Answer) -> Vec<Effect> {
        self.are_rows_stale = true;
        match answer {
            Answer::Thread(thread) => self.model.put_thread(*thread),
            Answer::Group(group) => self.model.put_group(*group),
            Answer::Runners(runners) => self.runners = runners,
            Answer::Roles(roles) => self.roles = roles,
            Answer::Spawnable(thread, roles) => {
                if let Mode::Pick(picker) = &mut self.mode
                    && picker.parent == thread
                {
                    picker.roles = Some(roles);
                    return picker.resolve();
                }
            }
            Answer::Resolved(role, lines) => {
                if let Mode::Pick(picker) = &mut self.mode {
                    picker.resolved = Some((role, lines));
                }
            }
            Answer::Reread(part) => {
                if self.rereading.remove(&part) == Some(true) {
                    return self.reread(part).into_iter().collect();
                }
            }
            Answer::Done(text) => self.note(text, false),
            Answer::Failed(error) => {
                let remedy = error.remedy().map(|remedy| format!(" ({remedy})"));
                let text = format!("{}{}", error.message(), remedy.unwrap_or_default());
                self.note(text, true);
            }
        }
        Vec::new()
    }

    /// Returns the effect that reads a part again. If the part is being read, returns `None`, and the part is read once
    /// more afterwards.
    fn reread(&mut self, part: Reread) -> Option<Effect> {
        match self.rereading.entry(part) {
            Entry::Occupied(mut has_changed) => {
                has_changed.insert(true);
                None
            }
            Entry::Vacant(new) => {
                let part = new.key().clone();
                new.insert(false);
                Some(Effect::Reread(part))
            }
        }
    }

    /// Returns the request that resolves a spawn of the role below the thread.
    pub(super) fn spawn_request(&self, session: &str, parent: &str, role: &str) -> Option<ResolveSpawnRequest> {
        let followed = self.model.followed(session)?;
        let parent = followed.view.thread(parent)?;
        let session = followed.session();
        Some(ResolveSpawnRequest {
            cwd: session.cwd.clone(),
            workspace_digest: session.workspace_digest.clone(),
            agent_type: Some(role.to_owned()),
            inherited: Some(InheritedSettings {
                model: parent.model.clone(),
                reasoning_effort: parent.reasoning_effort.clone(),
                provider: parent.provider.clone(),
                sandbox: parent.sandbox,
                ..InheritedSettings::default()
            }),
            mode: session.mode,
            ..ResolveSpawnRequest::default()
        })
    }

    /// Applies a change of the details.
    pub(super) fn apply_detail(&mut self, source: &Source, change: Change) {
        if !self.source().is_some_and(|wanted| wanted.is_same_subject(source)) {
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

    /// Returns the source of the details of the selection.
    pub(super) fn source(&self) -> Option<Source> {
        let columns = usize::from(self.panes().detail?.width);
        let source = match self.target() {
            Target::Approval(_, approval) => Source::Approval(Box::new(approval.clone())),
            Target::Thread(..) if self.tab == Tab::Info => return None,
            Target::Thread(_, thread) => Source::Thread {
                tab: self.tab,
                session: thread.session_id.clone(),
                thread: thread.thread_id.clone(),
                columns: match self.tab {
                    Tab::Mail | Tab::Files => columns,
                    Tab::Transcript | Tab::Info | Tab::Prompt | Tab::Events => 0,
                },
                version: if self.tab.is_log() { 0 } else { thread.sequence },
            },
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

    /// Returns the first line of the details on the screen.
    pub(super) fn detail_top(&self, extent: DetailExtent) -> usize {
        let most = extent.lines.saturating_sub(extent.height);
        self.detail
            .top
            .unwrap_or(if self.shows_log() { most } else { 0 })
            .min(most)
    }

    /// Returns whether the details are a log, whose end is shown first.
    fn shows_log(&self) -> bool {
        matches!(self.target(), Target::Thread(..)) && self.tab.is_log()
    }

    /// Shows a message at the bottom.
    pub(super) fn note(&mut self, text: impl Into<String>, is_error: bool) {
        self.notice = Some(Notice {
            text: text.into(),
            is_error,
            since: self.now,
        });
    }

    /// Returns the object that the selected row shows.
    pub(super) fn target(&self) -> Target<'_> {
        self.rows
            .get(self.selected)
            .map_or(Target::Nothing, |row| self.target_of(row))
    }

    /// Returns the object that a row shows.
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

    /// Builds the rows again if the data has changed, and keeps the selection on its row.
    pub(super) fn refresh(&mut self) {
        let build = || rows::build(&self.model, &self.runners, &self.roles, &self.options);
        if std::mem::take(&mut self.are_rows_stale) {
            self.rows = build();
            self.find_selected();
            self.update_needs();
        } else {
            debug_assert_eq!(self.rows, build(), "the rows are not stale");
        }
        self.scroll_to_selected();
    }

    /// Returns whether an approval or a thread has started to wait for a person since the last call.
    pub(super) fn take_alert(&mut self) -> bool {
        std::mem::take(&mut self.has_new_need)
    }

    /// Returns the identity of a row.
    pub(super) fn key_of(&self, row: &Row) -> Option<Key> {
        let key = match row {
            Row::NeedsHeading(_) => return Some(Key::NeedsHeading),
            Row::Approval { .. } => Key::Approval,
            Row::Need { .. } => Key::Need,
            Row::Session { .. } => Key::Session,
            Row::Thread { .. } => Key::Thread,
            Row::Group { .. } => Key::Group,
            Row::Runner(_) => Key::Runner,
            Row::Role(_) => Key::Role,
        };
        self.target_of(row).id().map(|id| key(id.to_owned()))
    }

    fn find_selected(&mut self) {
        let has_key = |row: &Row, key: &Key| self.key_of(row).as_ref() == Some(key);
        let place = |key: &Key| {
            // Most changes do not move the row.
            let is_same = self.rows.get(self.selected).is_some_and(|row| has_key(row, key));
            if is_same {
                return Some(self.selected);
            }
            self.rows.iter().position(|row| has_key(row, key))
        };
        if let Some(place) = self.key.as_ref().and_then(place) {
            self.selected = place;
            return;
        }
        let is_approval = |row: &Row| matches!(row, Row::Approval { .. });
        let next = match &self.key {
            None => Some(self.first_row()),
            // After a decision on an approval, the first approval is selected. Without another approval, the thread
            // that waited for the decision is selected.
            Some(Key::Approval(_)) => self.rows.iter().position(is_approval),
            Some(_) => None,
        };
        let next = next.or_else(|| self.waiting.as_ref().and_then(place));
        if self.key.is_some() {
            self.moved = Some(self.now);
        }
        let last = self.rows.len().saturating_sub(1);
        self.selected = next.unwrap_or(self.selected).min(last);
        self.remember_selected();
    }

    fn remember_selected(&mut self) {
        self.key = self.rows.get(self.selected).and_then(|row| self.key_of(row));
        self.waiting = match self.target() {
            Target::Approval(_, approval) => Some(Key::Thread(approval.thread_id.clone())),
            Target::Thread(_, thread) => Some(Key::Thread(thread.thread_id.clone())),
            _ => None,
        };
    }

    /// Returns the place of the first row that is not a heading.
    fn first_row(&self) -> usize {
        let is_heading = |row: &Row| matches!(row, Row::NeedsHeading(_));
        self.rows.iter().position(|row| !is_heading(row)).unwrap_or_default()
    }

    /// Counts the approvals and threads that wait for a person, independently of the view and the filter.
    fn update_needs(&mut self) {
        let has_all = self.options.filter.is_empty() && matches!(self.options.view, View::Needs | View::Tree);
        let waiting = (!has_all).then(|| rows::needs(&self.model, &Options::default()));
        let needs: HashSet<String> = waiting
            .as_ref()
            .unwrap_or(&self.rows)
            .iter()
            .filter(|row| matches!(row, Row::Approval { .. } | Row::Need { .. }))
            .filter_map(|row| self.target_of(row).id().map(str::to_owned))
            .collect();
        self.needs = needs.len();
        let is_new = needs.iter().any(|id| !self.known_needs.contains(id));
        self.has_new_need |= is_new && self.model.is_synced();
        self.known_needs = needs;
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
        self.remember_selected();
        self.moved = None;
        self.detail.top = None;
    }

    fn rebuild(&mut self) {
        self.are_rows_stale = true;
        self.refresh();
    }

    /// Handles a key.
    pub(super) fn key(&mut self, event: &KeyEvent) -> Vec<Effect> {
        // Updates since the last frame may have moved another row to the selected place.
        self.refresh();
        match std::mem::take(&mut self.mode) {
            Mode::Browse => keys::command(event).map_or_else(Vec::new, |command| self.command(command)),
            Mode::Help(top) => self.key_in_help(event, top),
            Mode::Confirm { call, .. } => self.key_in_question(event, call),
            Mode::Pick(picker) => self.key_in_picker(event, picker),
            Mode::Line(line) => self.key_in_line(event, line),
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
        self.refresh();
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
}

/// Returns a thread's role and alias, or the end of its id, for questions and labels.
pub(super) fn name(thread: &Thread) -> String {
    let name = match thread.alias.as_str() {
        "" => ids::short(&thread.thread_id),
        alias => alias,
    };
    crate::sanitize::line(&format!("{} {name}", ui::role(thread)))
}
