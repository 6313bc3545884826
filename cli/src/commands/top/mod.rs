//! `troupe top`: one screen with all sessions, their threads, and the approvals and threads that wait for a person.
//!
//! The feed and the keys change the `state`, which returns the effects to perform; `view` draws the state. Both are
//! pure. Only this module, `terminal`, `input`, `detail` and `action` have side effects.

mod action;
mod detail;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod fixture;
mod input;
mod keys;
mod layout;
mod model;
mod rate;
mod rows;
mod state;
mod terminal;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests;
mod view;

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    io::{self, IsTerminal as _},
    iter,
    path::PathBuf,
    process::Stdio,
    time::{Duration, SystemTime},
};

use crossterm::{
    Command as _,
    clipboard::CopyToClipboard,
    event::{Event, KeyEventKind},
};
use futures::FutureExt as _;
use ratatui::{buffer::Buffer, layout::Rect};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::{Value, json};
use tokio::{
    process::Command as Process,
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    task::{LocalSet, spawn_local},
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;
use troupe_proto::{
    registry::v1::ResolveSpawnRequest,
    supervisor::v1::{GetGroupRequest, GetThreadRequest, WatchSessionsRequest, WatchThreadsRequest},
};

use self::{
    detail::{Change, Source},
    input::TerminalInput,
    model::Reread,
    state::{Answer, Effect, State},
    terminal::Screen,
    view::Theme,
};
use troupe_client::{Supervisor, follow::ThreadWatch, token::GivenToken};

use crate::{
    commands::{agents, resolve},
    context::Context,
    error::{Error, Result},
    follow::{AllSessions, OpenSession, SessionsUpdate},
    json, listing,
    options::FilterArg,
    programs,
};

/// Minimum time between two frames.
const FRAME: Duration = Duration::from_millis(33);
/// Maximum time from an update to the frame that shows it. All updates in this time are drawn in one frame.
const BACKGROUND_FRAME: Duration = Duration::from_millis(200);
/// Minimum time between two reads of the updates. Updates that arrive in this time are applied together, so that the
/// process wakes up less often.
const GATHER: Duration = Duration::from_millis(20);
/// Maximum number of updates that are applied before keys are read again.
const MAX_GATHERED: usize = 256;
/// Interval at which the times on the screen are updated.
const TICK: Duration = Duration::from_secs(1);
/// Delay before a part of a session is read again. All events in this time cause one call.
const REREAD: Duration = Duration::from_millis(250);
/// Width of the printed screen without a terminal and without the variable COLUMNS, in columns.
const PRINTED_COLUMNS: usize = 140;

const AFTER_HELP: &str = "\
Examples:
  troupe top
  troupe top --filter needs:me
  troupe top --once --filter s:running
  troupe top --read-only --theme light

`?` shows the keys. FILTER is as in `troupe ps`. Without a terminal, the screen is printed once, as with --once.";

/// The arguments of `top`.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The threads to show.
    #[command(flatten)]
    filter: FilterArg,
    /// Print the screen once and exit
    #[arg(long)]
    once: bool,
    /// Turn off the keys that change sessions
    #[arg(long)]
    read_only: bool,
    /// Colors
    #[arg(long, value_enum, default_value_t, value_name = "THEME")]
    theme: Theme,
    /// Use the mouse to select and scroll
    #[arg(long)]
    mouse: bool,
    /// Alert when an approval or a thread starts to wait for a person
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    alert: Alert,
}

/// The alert when an approval or a thread starts to wait for a person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Alert {
    /// Ring the bell of the terminal.
    #[default]
    Bell,
    /// Show a desktop notification, if the terminal supports OSC 9.
    Osc9,
    /// No alert.
    Off,
}

/// Shows the screen until a key or a signal ends it. Without a terminal, prints the screen once.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let supervisor = context.supervisor().await?;
    let state = State::new(args.filter.filter, args.read_only, SystemTime::now());
    let is_dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
    let has_terminal = io::stdout().is_terminal() && io::stdin().is_terminal() && !is_dumb;
    if args.once || !has_terminal || !context.ui.is_text() {
        return print(supervisor, state, context).await;
    }
    let has_no_color = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    terminal::restore_at_panic();
    let (answers, answered) = mpsc::channel(64);
    let (changes, changed) = mpsc::channel(64);
    let top = Top {
        supervisor,
        context,
        theme: if has_no_color { Theme::None } else { args.theme },
        alert: args.alert,
        state,
        screen: Screen::enter(args.mouse)?,
        answers,
        changes,
        loading: None,
        draw_at: Some(Instant::now()),
        drawn: Instant::now(),
    };
    // The tasks that make calls run on the thread of the screen.
    LocalSet::new().run_until(top.run(answered, changed)).await
}

/// The watches of all open sessions.
type Feed = AllSessions<ThreadWatch, fn(&OpenSession) -> Option<ThreadWatch>>;

fn feed(supervisor: Supervisor) -> Feed {
    AllSessions::new(supervisor, WatchSessionsRequest::default(), |session| {
        Some(ThreadWatch::new(WatchThreadsRequest {
            session_id: session.id.clone(),
            ..WatchThreadsRequest::default()
        }))
    })
}

/// Prints the screen once all sessions are known.
async fn print(supervisor: Supervisor, mut state: State, context: &Context) -> Result<()> {
    let mut feed = feed(supervisor);
    while !state.model.is_synced() {
        let update = feed.next().await?;
        if let SessionsUpdate::Lost(why) = update {
            return Err(Error::unreachable(format!("the connection was lost: {why}")));
        }
        state.tick(SystemTime::now());
        state.apply(update);
    }
    state.refresh();
    let columns = match context.ui.columns() {
        usize::MAX => env::var("COLUMNS")
            .ok()
            .and_then(|columns| columns.parse().ok())
            .unwrap_or(PRINTED_COLUMNS),
        columns => columns,
    };
    context.ui.answer(
        || to_json(&state),
        || view::printed(&state, &context.global.server_name(), columns),
    )
}

fn to_json(state: &State) -> Value {
    let sessions = state.model.sessions().iter().map(|followed| {
        let mut session = followed.session().clone();
        session.roll_up.clone_from(&followed.info.roll_up);
        let mut value = json::message(&session);
        value["threads"] = json::list(followed.view.threads());
        value["approvals"] = json::list(followed.view.approvals());
        value["groups"] = json::list(followed.view.groups());
        value
    });
    json!({ "needs_person": state.needs, "sessions": sessions.collect::<Vec<_>>() })
}

/// The screen with its state and its connection.
struct Top<'a> {
    supervisor: Supervisor,
    context: &'a Context,
    theme: Theme,
    alert: Alert,
    state: State,
    screen: Screen,
    answers: mpsc::Sender<Answer>,
    changes: mpsc::Sender<(Source, Change)>,
    /// The task that loads the details.
    loading: Option<(Source, AbortOnDropHandle<()>)>,
    /// When the next frame is drawn.
    draw_at: Option<Instant>,
    /// When the last frame was drawn.
    drawn: Instant,
}

impl Top<'_> {
    async fn run(
        mut self,
        mut answered: mpsc::Receiver<Answer>,
        mut changed: mpsc::Receiver<(Source, Change)>,
    ) -> Result<()> {
        let mut feed = feed(self.supervisor.clone());
        let mut keys = TerminalInput::start();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut stop = signal(SignalKind::from_raw(Signal::TSTP.as_raw()))?;
        // crossterm loses the event of a new size if a key is pressed at the same time.
        let mut resized = signal(SignalKind::window_change())?;
        let mut gather_at = Instant::now();
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.state.size = self.screen.size()?;
        loop {
            let draw_at = self.draw_at;
            let draw = async {
                match draw_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let mut effects = Vec::new();
            tokio::select! {
                biased;
                event = keys.next() => {
                    // The terminal was closed.
                    let Some(event) = event else {
                        return Ok(());
                    };
                    self.state.tick(SystemTime::now());
                    effects = self.input(event);
                    self.draw_within(Duration::ZERO);
                }
                _ = terminate.recv() => return Ok(()),
                _ = hang_up.recv() => return Ok(()),
                _ = interrupt.recv() => return Ok(()),
                _ = resized.recv() => {
                    self.state.size = self.screen.size()?;
                    self.draw_within(Duration::ZERO);
                }
                _ = stop.recv() => effects.push(Effect::Suspend),
                () = draw => self.draw()?,
                Some(answer) = answered.recv() => {
                    self.state.tick(SystemTime::now());
                    effects = self.state.answer(answer);
                    self.draw_within(Duration::ZERO);
                }
                Some((source, change)) = changed.recv() => {
                    self.state.apply_detail(&source, change);
                    self.draw_within(FRAME);
                }
                update = async {
                    sleep_until(gather_at).await;
                    feed.next().await
                } => {
                    self.state.tick(SystemTime::now());
                    effects = self.state.apply(update?);
                    let ready = iter::from_fn(|| feed.next().now_or_never());
                    for update in ready.take(MAX_GATHERED) {
                        effects.extend(self.state.apply(update?));
                    }
                    gather_at = Instant::now() + GATHER;
                    self.draw_within(BACKGROUND_FRAME);
                }
                _ = tick.tick() => {
                    self.state.tick(SystemTime::now());
                    self.draw_within(BACKGROUND_FRAME);
                }
            }
            for effect in effects {
                match effect {
                    Effect::Quit => return Ok(()),
                    Effect::Suspend => {
                        drop(keys);
                        self.suspend()?;
                        keys = TerminalInput::start();
                    }
                    Effect::RunOnTerminal(arguments) => {
                        drop(keys);
                        self.run_on_terminal(&arguments).await?;
                        // A new stream, because the old one received the Ctrl-C that interrupted the command.
                        interrupt = signal(SignalKind::interrupt())?;
                        keys = TerminalInput::start();
                    }
                    effect => self.perform(effect)?,
                }
            }
        }
    }

    /// Draws a frame within this time, but not before the shortest time between two frames has passed.
    fn draw_within(&mut self, time: Duration) {
        let at = (Instant::now() + time).max(self.drawn + FRAME);
        self.draw_at = Some(self.draw_at.map_or(at, |earlier| earlier.min(at)));
    }

    fn draw(&mut self) -> Result<()> {
        self.draw_at = None;
        self.drawn = Instant::now();
        self.state.refresh();
        let (width, height) = self.state.size;
        let mut frame = Buffer::empty(Rect::new(0, 0, width, height));
        let drawn = view::draw(&self.state, &self.context.global.server_name(), self.theme, &mut frame);
        self.state.detail.extent = drawn.detail;
        let title = match self.state.needs {
            0 => "troupe top".to_owned(),
            count => format!("troupe top: {count} need you"),
        };
        self.screen.draw(frame, drawn.cursor, &title)?;
        self.load_detail();
        if self.state.take_alert() {
            self.alert()?;
        }
        Ok(())
    }

    fn input(&mut self, event: Event) -> Vec<Effect> {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => return self.state.key(&key),
            Event::Paste(text) => self.state.paste(&text),
            Event::Mouse(mouse) => self.state.mouse(&mouse),
            Event::Key(_) | Event::Resize(..) | Event::FocusGained | Event::FocusLost => {}
        }
        Vec::new()
    }

    /// Performs an effect that does not need the whole terminal.
    fn perform(&mut self, effect: Effect) -> Result<()> {
        let mut supervisor = self.supervisor.clone();
        match effect {
            Effect::Call(call) => {
                self.answer_with(async move { Ok(Answer::Done(action::make(supervisor, call).await?)) });
            }
            Effect::ReadRunners => {
                self.answer_with(async move { Ok(Answer::Runners(listing::runners(&mut supervisor).await?)) });
            }
            Effect::ReadRoles => {
                let context = self.context.clone();
                self.answer_with(async move { Ok(Answer::Roles(agents::roles(&context).await?)) });
            }
            Effect::ReadSpawnable(thread) => self.answer_with(async move {
                let roles = listing::spawnable(&mut supervisor, &thread).await?;
                Ok(Answer::Spawnable(thread, roles))
            }),
            Effect::Resolve { session, parent, role } => {
                if let Some(request) = self.state.spawn_request(&session, &parent, &role) {
                    let context = self.context.clone();
                    self.answer_with(async move { Ok(Answer::Resolved(role, resolved(&context, request).await?)) });
                }
            }
            Effect::Reread(part) => {
                let answers = self.answers.clone();
                spawn_local(async move {
                    sleep(REREAD).await;
                    // Without an answer, the thread or the group no longer exists, or the call failed.
                    if let Some(answer) = read(supervisor, &part).await {
                        let _ = answers.send(answer).await;
                    }
                    let _ = answers.send(Answer::Reread(part)).await;
                });
            }
            Effect::Run { arguments, file } => {
                let child = self.child(&arguments)?;
                self.answer_with(async move { Ok(Answer::Done(run_in_background(child, file).await?)) });
            }
            Effect::Copy(text) => {
                let mut sequence = String::new();
                // Writing to a string cannot fail.
                let _ = CopyToClipboard::to_clipboard_from(&text).write_ansi(&mut sequence);
                self.screen.write(&sequence)?;
            }
            Effect::Redraw => {
                self.screen.redraw();
                self.draw_within(Duration::ZERO);
            }
            // `run` handles the effects that end its loop or need its input.
            Effect::Quit | Effect::Suspend | Effect::RunOnTerminal(_) => {}
        }
        Ok(())
    }

    fn alert(&mut self) -> Result<()> {
        match self.alert {
            Alert::Bell => self.screen.write("\u{7}"),
            Alert::Osc9 => {
                let text = format!("\u{1b}]9;troupe: {} need you\u{7}", self.state.needs);
                self.screen.write(&text)
            }
            Alert::Off => Ok(()),
        }
    }

    fn answer_with(&self, work: impl Future<Output = Result<Answer>> + 'static) {
        let answers = self.answers.clone();
        spawn_local(async move {
            // Sending fails only after the screen has ended.
            let _ = answers.send(work.await.unwrap_or_else(Answer::Failed)).await;
        });
    }

    /// Loads the details of the selection. A new version of the same details is loaded only after the earlier version
    /// has been loaded, so that frequent changes do not prevent loading.
    fn load_detail(&mut self) {
        let source = self.state.source();
        let is_loading = match (&source, &self.loading) {
            (Some(source), Some((loading, task))) => {
                loading == source || (loading.is_same_subject(source) && !task.is_finished())
            }
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !is_loading {
            self.loading = source.map(|source| {
                let task = detail::load(self.supervisor.clone(), source.clone(), self.changes.clone());
                (source, AbortOnDropHandle::new(spawn_local(task)))
            });
        }
    }

    /// Stops this process until the shell continues it.
    fn suspend(&mut self) -> Result<()> {
        self.screen.leave();
        kill_process(getpid(), Signal::STOP).map_err(io::Error::from)?;
        self.resume()
    }

    fn resume(&mut self) -> Result<()> {
        self.screen.resume()?;
        self.state.size = self.screen.size()?;
        self.draw_within(Duration::ZERO);
        Ok(())
    }

    /// Returns a process of this program with the same connection and these arguments.
    fn child(&self, arguments: &[String]) -> Result<Process> {
        let global = &self.context.global;
        let mut child = Process::new(programs::own()?);
        child.args(arguments).kill_on_drop(true);
        child.env("TROUPE_SUPERVISOR_URL", &global.supervisor);
        child.env("TROUPE_REGISTRY_URL", &global.registry);
        let path = |path: &Option<PathBuf>| path.as_ref().map(OsString::from);
        let token = global.token.as_ref().and_then(GivenToken::expose);
        for (name, value) in [
            ("TROUPE_CONTEXT", global.context.as_ref().map(OsString::from)),
            ("TROUPE_TOKEN", token.map(OsString::from)),
            ("TROUPE_TOKEN_FILE", path(&global.token_file)),
            ("TROUPE_DATA_DIR", path(&global.data_dir)),
            ("TROUPE_CA", path(&global.tls.ca)),
            ("TROUPE_CLIENT_CERT", path(&global.tls.client_cert)),
            ("TROUPE_CLIENT_KEY", path(&global.tls.client_key)),
        ] {
            // A variable without a value here is removed from the environment of the process, because the inherited
            // value may belong to another pair.
            match value {
                Some(value) => child.env(name, value),
                None => child.env_remove(name),
            };
        }
        Ok(child)
    }

    /// Runs a command of this program on the terminal, and then waits for a key.
    async fn run_on_terminal(&mut self, arguments: &[String]) -> Result<()> {
        let mut child = self.child(arguments)?;
        self.screen.leave();
        if let Err(error) = child.status().await {
            self.context.ui.note(format!("cannot run the command: {error}"));
        }
        self.context.ui.note("\npress any key to return to the screen");
        self.screen.read_keys()?;
        let mut input = TerminalInput::start();
        while let Some(event) = input.next().await {
            if matches!(event, Event::Key(key) if key.kind != KeyEventKind::Release) {
                break;
            }
        }
        drop(input);
        self.resume()
    }
}

/// Resolves a spawn. Returns its values with their origins as lines.
async fn resolved(context: &Context, request: ResolveSpawnRequest) -> Result<Vec<String>> {
    let answer = context.registry().await?.resolve_spawn(request).await?.into_inner();
    let resolved = answer.resolved.ok_or_else(Error::empty_answer)?;
    let text = resolve::text(&resolved, false, usize::MAX);
    Ok(text.lines().map(ToOwned::to_owned).collect())
}

/// Reads a part of a session. Returns `None` if the part no longer exists, or if the call fails. In the latter case, a
/// later event causes another call.
async fn read(mut supervisor: Supervisor, part: &Reread) -> Option<Answer> {
    match part {
        Reread::Thread { session, thread } => {
            let request = GetThreadRequest {
                session_id: session.clone(),
                thread_id: thread.clone(),
            };
            let answer = supervisor.get_thread(request).await.ok()?.into_inner();
            Some(Answer::Thread(Box::new(answer.thread?)))
        }
        Reread::Group { session, group } => {
            let request = GetGroupRequest {
                session_id: session.clone(),
                group_id: group.clone(),
                ..GetGroupRequest::default()
            };
            let answer = supervisor.get_group(request).await.ok()?.into_inner();
            Some(Answer::Group(Box::new(answer.group?)))
        }
    }
}

/// Runs a command in the background. With `file`, writes its output to a new file of that name. Returns a message: the
/// name of the file, or the last line of the output.
async fn run_in_background(mut child: Process, file: Option<String>) -> Result<String> {
    let stdout = match &file {
        Some(path) => File::create_new(path)
            .map_err(|error| Error::failure(format!("cannot write \"{path}\": {error}")))?
            .into(),
        None => Stdio::piped(),
    };
    let child = child.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
    let output = child.spawn()?.wait_with_output().await?;
    if output.status.success() {
        let text = String::from_utf8_lossy(&output.stdout);
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        return Ok(file.map_or_else(|| last.to_owned(), |path| format!("wrote {path}")));
    }
    if let Some(path) = file {
        // A failure to remove the file is ignored, because the error of the command is reported.
        let _ = fs::remove_file(path);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let first = errors.lines().next().unwrap_or_default();
    Err(Error::failure(first.strip_prefix("error: ").unwrap_or(first)))
}
