//! The commands of keys in the list and in the details.

use std::{
    collections::HashSet,
    time::{Duration, SystemTime},
};

use troupe_proto::{
    common::v1::Mode as SessionMode,
    supervisor::v1::{
        Approval, CloseAgentRequest, CloseSessionRequest, InterruptAgentRequest, ResolveApprovalRequest,
        ResumeAgentRequest, SendInputRequest, StatusKind, Thread, UpdateSessionRequest,
    },
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

/// Time after an update has moved the selection in which keys that change a session are ignored.
const MOVED: Duration = Duration::from_secs(1);
/// The filters that the key `f` selects, one after the other.
const COMMON_FILTERS: [&str; 4] = ["", "needs:me", "s:running", "over:budget"];

/// The effects of a command, or the reason why the command is not possible.
type Outcome = Result<Vec<Effect>, String>;

impl State {
    /// Executes the command of a key. If the command is not possible, shows the reason.
    pub(super) fn command(&mut self, command: Command) -> Vec<Effect> {
        self.try_command(command).unwrap_or_else(|why| {
            self.note(why, true);
            Vec::new()
        })
    }

    fn try_command(&mut self, command: Command) -> Outcome {
        if command.is_mutation() {
            if self.is_read_only {
                return Err("--read-only: this key is off".to_owned());
            }
            let is_recent = |moved: SystemTime| self.now.duration_since(moved).is_ok_and(|age| age < MOVED);
            if self.moved.is_some_and(is_recent) {
                return Err("the selection has just moved; press the key again".to_owned());
            }
        }
        match command {
            Command::Quit => return Ok(vec![Effect::Quit]),
            Command::Suspend => return Ok(vec![Effect::Suspend]),
            Command::Redraw => return Ok(vec![Effect::Redraw]),
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
                return Ok(vec![Effect::ReadRunners]);
            }
            Command::ViewRoles => {
                self.show(View::Roles);
                return Ok(vec![Effect::ReadRoles]);
            }
            Command::Filter => {
                let before = self.options.filter.clone();
                let text = before.text().to_owned();
                return Ok(self.edit(Purpose::Filter { before }, "filter", &text));
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
                if let Some(id) = self.target().id().map(str::to_owned) {
                    self.note(format!("copied {id}"), false);
                    return Ok(vec![Effect::Copy(id)]);
                }
            }
            Command::Run => return Ok(self.edit(Purpose::Run, "troupe", "")),
            Command::Pager => return Ok(self.pager()),
            Command::Export => return Ok(self.export()),
            Command::Grant | Command::Deny | Command::DenyWithReason => return self.decide(command),
            Command::Send | Command::Steer => return self.send(command == Command::Steer),
            Command::Interrupt => return self.interrupt(),
            Command::Close => return self.close(),
            Command::Resume => return self.resume(),
            Command::Pause => return self.pause(),
            Command::Mode => return self.set_mode(),
            Command::Budget => return self.budget(),
            Command::Spawn => return Ok(self.spawn()),
        }
        Ok(Vec::new())
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
            Some(Row::Session { .. } | Row::Thread { .. }) => self.target().id().map(str::to_owned),
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
        let Some(followed) = self.target().session() else {
            return Vec::new();
        };
        let id = followed.info.session_id.as_str();
        vec![Effect::Run {
            arguments: ["export", id, "--output", "html"].map(ToOwned::to_owned).to_vec(),
            file: Some(format!("troupe-{}.html", ids::short(id))),
        }]
    }

    /// Returns the selected thread with its session.
    fn thread(&self) -> Result<(&Followed, &Thread), String> {
        match self.target() {
            Target::Thread(followed, thread) => Ok((followed, thread)),
            _ => Err("select a thread first".to_owned()),
        }
    }

    /// Returns the session of the selection.
    fn session(&self) -> Result<&Followed, String> {
        let session = self.target().session();
        session.ok_or_else(|| "select a session or one of its threads first".to_owned())
    }

    /// Shows a question whose confirmation makes the call.
    fn confirm(&mut self, question: String, call: Call) -> Vec<Effect> {
        self.mode = Mode::Confirm { question, call };
        Vec::new()
    }

    fn decide(&mut self, command: Command) -> Outcome {
        let found = match self.target() {
            Target::Approval(followed, approval) => Some((followed, approval)),
            Target::Thread(followed, thread) => only_approval(followed, thread).map(|approval| (followed, approval)),
            _ => None,
        };
        let (followed, approval) = found.ok_or("select an approval first; `a` goes to the next one")?;
        let request = ResolveApprovalRequest {
            session_id: followed.info.session_id.clone(),
            approval_id: approval.approval_id.clone(),
            grant: command == Command::Grant,
            ..ResolveApprovalRequest::default()
        };
        if command == Command::DenyWithReason {
            return Ok(self.edit(Purpose::Deny(request), "deny because", ""));
        }
        Ok(vec![Effect::Call(Call::Decide(request))])
    }

    fn send(&mut self, steer: bool) -> Outcome {
        let (_, thread) = self.thread()?;
        let request = SendInputRequest {
            session_id: thread.session_id.clone(),
            thread_id: thread.thread_id.clone(),
            steer,
            ..SendInputRequest::default()
        };
        let verb = if steer { "steer" } else { "send to" };
        let label = format!("{verb} {}", name(thread));
        Ok(self.edit(Purpose::Send(request), label, ""))
    }

    fn interrupt(&mut self) -> Outcome {
        let (followed, thread) = self.thread()?;
        let below = below(followed, thread);
        let running = below.iter().filter(|thread| is_active(thread)).count();
        if !is_active(thread) && running == 0 {
            return Err(format!("no turn of {} or below it is running", name(thread)));
        }
        let question = format!("interrupt {}{}?", name(thread), and_below(running, running));
        let request = InterruptAgentRequest {
            session_id: thread.session_id.clone(),
            thread_id: thread.thread_id.clone(),
            turn: (thread.turn > 0).then_some(thread.turn),
            ..InterruptAgentRequest::default()
        };
        Ok(self.confirm(question, Call::Interrupt(request)))
    }

    fn close(&mut self) -> Outcome {
        match self.target() {
            Target::Session(followed) => {
                let open = open(followed.view.threads().iter());
                let question = format!(
                    "close session {} with {} threads ({} running)?",
                    ids::short(&followed.info.session_id),
                    open.len(),
                    open.iter().filter(|thread| is_active(thread)).count(),
                );
                let request = CloseSessionRequest {
                    session_id: followed.info.session_id.clone(),
                    ..CloseSessionRequest::default()
                };
                Ok(self.confirm(question, Call::CloseSession(request)))
            }
            Target::Thread(_, thread) if ui::status_of(thread) == StatusKind::Shutdown => {
                Err(format!("{} is closed", name(thread)))
            }
            Target::Thread(followed, thread) => {
                let below = below(followed, thread);
                let running = below.iter().filter(|thread| is_active(thread)).count();
                let question = format!("close {}{}?", name(thread), and_below(below.len(), running));
                let request = CloseAgentRequest {
                    session_id: thread.session_id.clone(),
                    thread_id: thread.thread_id.clone(),
                    ..CloseAgentRequest::default()
                };
                Ok(self.confirm(question, Call::Close(request)))
            }
            _ => Err("select a thread or a session first".to_owned()),
        }
    }

    fn resume(&self) -> Outcome {
        match self.target() {
            Target::Thread(_, thread) if ui::status_of(thread) == StatusKind::Shutdown => {
                Ok(vec![Effect::Call(Call::Resume(ResumeAgentRequest {
                    session_id: thread.session_id.clone(),
                    thread_id: thread.thread_id.clone(),
                    ..ResumeAgentRequest::default()
                }))])
            }
            _ => Err("select a closed thread first; `w` shows closed threads".to_owned()),
        }
    }

    fn pause(&self) -> Outcome {
        let followed = self.session()?;
        Ok(vec![Effect::Call(Call::Update(UpdateSessionRequest {
            session_id: followed.info.session_id.clone(),
            paused: Some(!followed.session().paused),
            ..UpdateSessionRequest::default()
        }))])
    }

    fn set_mode(&mut self) -> Outcome {
        let followed = self.session()?;
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
        let request = UpdateSessionRequest {
            session_id,
            mode: Some(mode.into()),
            ..UpdateSessionRequest::default()
        };
        Ok(self.confirm(question, Call::Update(request)))
    }

    fn budget(&mut self) -> Outcome {
        let text = format!("budget {} --tokens ", self.thread()?.1.thread_id);
        Ok(self.edit(Purpose::Run, "troupe", &text))
    }

    fn spawn(&mut self) -> Vec<Effect> {
        let parent = match self.target() {
            Target::Thread(_, thread) => Some(thread),
            Target::Session(followed) => followed.view.threads().first(),
            _ => None,
        };
        let Some(parent) = parent else {
            return self.edit(Purpose::Run, "troupe", "spawn ");
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
