//! The commands of keys in the list and in the details.

use std::{
    collections::HashSet,
    time::{Duration, SystemTime},
};

use troupe_proto::{
    common::v1::Mode as SessionMode,
    supervisor::v1::{Approval, StatusKind, Thread},
};

use super::{
    super::{
        action::Call,
        detail::Tab,
        keys::Command,
        layout::Focus,
        model::Followed,
        rows::{Key, Row, View},
    },
    Effect, Mode, Picker, Purpose, State, Target, name,
};
use crate::{filter::Filter, ids, names, ui};

/// After an update has moved the selection, keys that act on it are ignored for this time.
const MOVED: Duration = Duration::from_secs(1);
/// Filters of the key `f`, in a circle.
const COMMON_FILTERS: [&str; 4] = ["", "needs:me", "s:running", "over:budget"];

impl State {
    /// Executes the command of a key.
    pub(super) fn command(&mut self, command: Command) -> Vec<Effect> {
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
                let before = self.options.filter.clone();
                let text = before.text().to_owned();
                self.edit(Purpose::Filter { before }, "filter", &text);
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

    pub(super) fn move_by(&mut self, command: Command) {
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
            Command::Fold if is_folded || self.is_leaf() => self.select_parent(),
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

    /// Returns whether the selected row is a thread without children.
    fn is_leaf(&self) -> bool {
        let Target::Thread(followed, thread) = self.target() else {
            return false;
        };
        let is_child = |other: &Thread| other.parent_thread_id == thread.thread_id;
        !followed.view.threads().iter().any(is_child)
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
            self.set_filter(Filter::default());
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

    pub(super) fn set_filter(&mut self, filter: Filter) {
        self.options.filter = filter;
        self.rebuild();
    }

    fn next_filter(&mut self) {
        let text = self.options.filter.text();
        let place = COMMON_FILTERS.iter().position(|filter| *filter == text);
        let next = place.map_or(0, |place| place + 1) % COMMON_FILTERS.len();
        if let Some(Ok(filter)) = COMMON_FILTERS.get(next).map(|text| text.parse()) {
            self.set_filter(filter);
        }
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
        vec![Effect::RunOnTerminal(arguments)]
    }

    fn export(&self) -> Vec<Effect> {
        let Some(followed) = self.selected_session() else {
            return Vec::new();
        };
        let id = followed.info.session_id.as_str();
        vec![Effect::Run {
            arguments: ["export", id, "--output", "html"].map(ToOwned::to_owned).to_vec(),
            file: Some(format!("troupe-{}.html", ids::short(id))),
        }]
    }

    fn decide(&mut self, command: Command) -> Vec<Effect> {
        let found = match self.target() {
            Target::Approval(followed, approval) => Some((followed, approval)),
            Target::Thread(followed, thread) => only_approval(followed, thread).map(|approval| (followed, approval)),
            _ => None,
        };
        let Some((followed, approval)) = found else {
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
            session_id: session,
            approval_id: id,
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
        let question = format!("interrupt {}{}?", name(thread), and_below(running, running));
        let call = Call::Interrupt {
            session_id: thread.session_id.clone(),
            thread_id: thread.thread_id.clone(),
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
                let session_id = followed.info.session_id.clone();
                (question, Call::CloseSession { session_id })
            }
            Target::Thread(followed, thread) => {
                if ui::status_of(thread) == StatusKind::Shutdown {
                    self.note(format!("{} is closed", name(thread)), true);
                    return;
                }
                let below = below(followed, thread);
                let running = below.iter().filter(|thread| is_active(thread)).count();
                let question = format!("close {}{}?", name(thread), and_below(below.len(), running));
                let call = Call::Close {
                    session_id: thread.session_id.clone(),
                    thread_id: thread.thread_id.clone(),
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
                    session_id: thread.session_id.clone(),
                    thread_id: thread.thread_id.clone(),
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
            session_id: followed.info.session_id.clone(),
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
        let session_id = followed.info.session_id.clone();
        let question = format!(
            "change the mode of session {} to {}?",
            ids::short(&session_id),
            names::mode(mode)
        );
        let call = Call::SetMode { session_id, mode };
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
        let (session, parent_name) = (parent.session_id.clone(), name(parent));
        let parent = parent.thread_id.clone();
        self.mode = Mode::Pick(Picker {
            parent: parent.clone(),
            parent_name,
            roles: None,
            place: 0,
            resolved: None,
            session,
        });
        vec![Effect::ReadSpawnable(parent)]
    }
}

/// Names the threads below a thread that a call affects.
fn and_below(count: usize, running: usize) -> String {
    match count {
        0 => String::new(),
        1 => format!(" and 1 thread below it ({running} running)"),
        _ => format!(" and {count} threads below it ({running} running)"),
    }
}

/// Returns the approval that a thread waits for, if it is the only one.
fn only_approval<'a>(followed: &'a Followed, thread: &Thread) -> Option<&'a Approval> {
    let mut approvals = followed.view.approvals().iter();
    let found = approvals.find(|approval| approval.thread_id == thread.thread_id)?;
    let is_only = !approvals.any(|approval| approval.thread_id == thread.thread_id);
    is_only.then_some(found)
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
