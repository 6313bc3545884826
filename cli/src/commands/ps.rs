//! `troupe ps`: lists sessions and their threads, with hints for blocked threads.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};
use troupe_client::{Supervisor, follow::ThreadWatch};
use troupe_proto::supervisor::v1::{
    ConditionKind, Session, StatusKind, Telemetry, Thread, WatchSessionsRequest, WatchThreadsRequest,
    watch_threads_response::Message,
};

use crate::{
    context::Context,
    error::{Error, Kind, Result},
    filter::Filter,
    follow::{AllSessions, SessionsUpdate},
    hints, ids, json, listing, names,
    options::{self, FilterArg},
    session_view, time,
    ui::{self, Cell, Line, Render, Table, Ui, style},
};

/// Interval at which a watched list updates the ages.
const REDRAW_EVERY: Duration = Duration::from_secs(1);
/// Time in which changes are collected before the list is written again.
const TOGETHER: Duration = Duration::from_millis(200);

const AFTER_HELP: &str = "\
Examples:
  troupe ps
  troupe ps --tree --session 0000aa01
  troupe ps --closed --output wide
  troupe ps --columns thread,status,tokens --no-headers
  troupe ps --tree --watch
  troupe ps --filter 's:running,queued r:worker -over:budget'
  troupe ps --tree --filter needs:me
  troupe ps --output jsonpath='$.sessions[*].threads[*].thread_id'

SESSION is an id, the beginning or the end of one, or @last.

FILTER has terms that must all match. A `-` before a term reverses it. Commas separate alternatives.
  s:STATUS     Status, or its beginning            m:MODEL      Model
  r:ROLE       Role and persona                    on:RUNNER    Runner
  a:ALIAS      Alias                               over:budget  The budget is spent
  label:TEXT   Label of the thread, or KEY=VALUE of the session
  needs:me     Waits for a decision, an answer, budget or a repair
  TEXT         Text in the id, alias, role, label or activity";

/// The arguments of `ps`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// List one session only
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Include closed sessions and threads
    #[arg(long)]
    closed: bool,
    /// List sessions with this label only; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = options::key_value, conflicts_with = "session")]
    labels: Vec<(String, String)>,
    /// The threads to list.
    #[command(flatten)]
    filter: FilterArg,
    /// Show threads as a tree
    #[arg(long)]
    tree: bool,
    /// List again after each change, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

/// The sessions to list.
struct Selection {
    /// The id of the only session to list. `None` selects all sessions with the labels.
    session: Option<String>,
    labels: BTreeMap<String, String>,
    includes_closed: bool,
}

impl Selection {
    /// Reads the sessions and their threads. An unreadable session does not hide the other sessions.
    async fn read(&self, supervisor: &mut Supervisor) -> Result<Listed> {
        let sessions = match &self.session {
            Some(id) => vec![listing::session(supervisor, id.clone()).await?],
            None => listing::sessions_with(supervisor, self.labels.clone(), self.includes_closed).await?,
        };
        let mut listed = Listed::default();
        for session in sessions {
            match listing::threads(supervisor, &session.session_id, self.includes_closed).await {
                Ok(threads) => listed.sessions.push((session, threads)),
                Err(error) => {
                    let failed = format!("cannot read the threads of session {}", session.session_id);
                    listed.unread = listed.unread.or(Some(error.context(failed)));
                }
            }
        }
        match listed.unread.take_if(|_| listed.sessions.is_empty()) {
            Some(error) => Err(error),
            None => Ok(listed),
        }
    }

    fn contains(&self, session: &str) -> bool {
        self.session.as_ref().is_none_or(|id| id == session)
    }
}

/// The sessions with their threads.
#[derive(Default)]
struct Listed {
    sessions: Vec<(Session, Vec<Thread>)>,
    /// The error of the first session whose threads could not be read.
    unread: Option<Error>,
}

impl Listed {
    /// Sets the latest values of a thread. Returns whether the list has changed.
    fn add_telemetry(&mut self, telemetry: &Telemetry) -> bool {
        let mut threads = self.sessions.iter_mut().flat_map(|(_, threads)| threads);
        let Some(thread) = threads.find(|thread| thread.thread_id == telemetry.thread_id) else {
            return false;
        };
        let before = thread.clone();
        session_view::add_telemetry(thread, telemetry);
        *thread != before
    }

    /// Returns the sessions with the threads that the filter selects. With a filter, sessions without such threads are
    /// left out.
    fn shown(&self, form: &Form) -> Cow<'_, [(Session, Vec<Thread>)]> {
        if form.filter.is_empty() {
            return Cow::Borrowed(&self.sessions);
        }
        let selected = self.sessions.iter().map(|(session, threads)| {
            let threads = form.filter.select(session, threads, form.as_tree);
            (session.clone(), threads)
        });
        Cow::Owned(selected.filter(|(_, threads)| !threads.is_empty()).collect())
    }

    fn to_json(&self, form: &Form) -> Value {
        let shown = self.shown(form);
        let sessions = shown.iter().map(|(session, threads)| to_json(session, threads));
        json!({ "sessions": sessions.collect::<Vec<_>>() })
    }

    fn sections<'a>(&'a self, form: &Form, hint_columns: usize) -> Sections<'a> {
        Sections {
            listed: self.shown(form),
            as_tree: form.as_tree,
            hint_columns,
            now: SystemTime::now(),
        }
    }
}

/// The form of the list.
struct Form {
    filter: Filter,
    as_tree: bool,
}

/// Lists the sessions and threads.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let session = match &args.session {
        Some(text) => Some(ids::session(&mut supervisor, text).await?),
        None => None,
    };
    let selection = Selection {
        session,
        labels: args.labels.into_iter().collect(),
        includes_closed: args.closed,
    };
    let form = Form {
        filter: args.filter.filter,
        as_tree: args.tree,
    };
    if args.watch {
        return watch(supervisor, &selection, &form, context).await;
    }
    let listed = selection.read(&mut supervisor).await?;
    context
        .ui
        .answer(|| listed.to_json(&form), || listed.sections(&form, usize::MAX))?;
    if listed.sessions.is_empty() {
        context
            .ui
            .note("no sessions; `troupe spawn ROLE 'TASK'` opens one, `--closed` includes closed ones");
    } else if listed.shown(&form).is_empty() {
        context.ui.note("no thread matches the filter");
    }
    listed.unread.map_or(Ok(()), Err)
}

/// Lists again after each change. On a terminal, the list is redrawn in place. Otherwise each new list is written below
/// the previous list.
async fn watch(mut supervisor: Supervisor, selection: &Selection, form: &Form, context: &Context) -> Result<()> {
    let request = WatchSessionsRequest {
        labels: selection.labels.clone(),
        include_closed: selection.includes_closed || selection.session.is_some(),
    };
    let mut all = AllSessions::new(supervisor.clone(), request, |session| {
        let watch = ThreadWatch::new(WatchThreadsRequest {
            session_id: session.id.clone(),
            ..WatchThreadsRequest::default()
        });
        selection.contains(&session.id).then_some(watch)
    });
    let mut live = context.ui.live();
    let mut listed = selection.read(&mut supervisor).await?;
    let mut is_changed = true;
    loop {
        match &mut live {
            Some(live) => {
                let text = listed.sections(form, context.ui.columns()).render_for(&context.ui)?;
                let text = if text.is_empty() {
                    let nothing = if form.filter.is_empty() {
                        "no sessions"
                    } else {
                        "no thread matches the filter"
                    };
                    nothing.to_owned()
                } else {
                    text
                };
                live.draw(&text)?;
            }
            None if is_changed => context
                .ui
                .answer(|| listed.to_json(form), || listed.sections(form, usize::MAX))?,
            None => {}
        }
        let first = match &live {
            Some(_) => timeout(REDRAW_EVERY, all.next()).await.ok(),
            None => Some(all.next().await),
        };
        is_changed = false;
        let mut is_stale = false;
        let mut next = first;
        let together = Instant::now() + TOGETHER;
        while let Some(update) = next {
            match update? {
                SessionsUpdate::Session(message) => {
                    let session = message.session.as_ref();
                    is_stale |= session.is_some_and(|session| selection.contains(&session.session_id));
                }
                SessionsUpdate::Message(_, message) => match message.message {
                    Some(Message::Telemetry(telemetry)) => is_changed |= listed.add_telemetry(&telemetry),
                    Some(Message::Event(_) | Message::Snapshot(_) | Message::Reset(_)) => is_stale = true,
                    Some(Message::Bookmark(_) | Message::Output(_)) | None => {}
                },
                SessionsUpdate::Deleted(id) => is_stale |= selection.contains(&id),
                SessionsUpdate::Opened(_) | SessionsUpdate::Interrupted(_) => {}
                SessionsUpdate::Lost(why) => match &mut live {
                    Some(live) => live.above(&format!("connection lost ({why}); reconnecting"))?,
                    None => context.ui.lost(&why, ""),
                },
                SessionsUpdate::Unfollowed(id, error) => {
                    let text = format!("session {} cannot be followed: {}", ids::short(&id), error.message());
                    match &mut live {
                        Some(live) => live.above(&text)?,
                        None => context.ui.note(text),
                    }
                }
            }
            next = timeout_at(together, all.next()).await.ok();
        }
        if is_stale {
            match selection.read(&mut supervisor).await {
                Ok(read) => {
                    if let Some(error) = &read.unread {
                        context.ui.note(error.message());
                    }
                    is_changed |= read.sessions != listed.sessions;
                    listed = read;
                }
                // The watch reports the lost connection, and the list is read again once the watch is reconnected.
                Err(error) if error.kind() == Kind::Unreachable => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn to_json(session: &Session, threads: &[Thread]) -> Value {
    let mut value = json::message(session);
    value["threads"] = json::list(threads);
    value
}

/// The sessions and their threads.
struct Sections<'a> {
    listed: Cow<'a, [(Session, Vec<Thread>)]>,
    as_tree: bool,
    /// Maximum width of the hints. They contain commands to copy.
    hint_columns: usize,
    now: SystemTime,
}

impl Render for Sections<'_> {
    fn render_for(&self, ui: &Ui) -> Result<String> {
        let sections = self
            .listed
            .iter()
            .map(|(session, threads)| section(session, threads, self, ui));
        Ok(sections.collect::<Result<Vec<_>>>()?.join("\n\n"))
    }
}

fn section(session: &Session, threads: &[Thread], sections: &Sections<'_>, ui: &Ui) -> Result<String> {
    let columns = ui.columns();
    let now = sections.now;
    let (_, state) = style::session_state(session);
    let head = Line::default()
        .mark(style::HEADING, "session")
        .word(style::PLAIN, &session.session_id)
        .word(style::NAME, state)
        .word(style::PLAIN, &session.cwd)
        .word(style::DIM, time::age(session.create_time.as_ref(), now))
        .word(style::DIM, slots(session, threads))
        .word(style::NAME, ui::labels(&session.labels, ","))
        .render(columns);
    let body = match (threads.is_empty(), sections.as_tree) {
        (true, _) => "no open threads; `--closed` includes closed ones".to_owned(),
        (false, true) => ui::tree(threads, columns),
        (false, false) => table(threads, now).render_for(ui)?,
    };
    let hints = hints_for(session, threads).into_iter().map(|(what, hint)| {
        let line = Line::default().mark(style::WARN, format!("{what}:"));
        line.mark(style::PLAIN, format!(" {hint}"))
            .render(sections.hint_columns)
    });
    Ok([head, body].into_iter().chain(hints).collect::<Vec<_>>().join("\n"))
}

/// Formats the slots in use and the limit: `3/12 slots`. Empty for a closed session.
fn slots(session: &Session, threads: &[Thread]) -> String {
    let limit = session.limits.as_ref().and_then(|limits| limits.max_threads);
    let Some(limit) = limit.filter(|_| !session.closed) else {
        return String::new();
    };
    let is_active = |thread: &&Thread| {
        thread.depth > 0 && matches!(ui::status_of(thread), StatusKind::PendingInit | StatusKind::Running)
    };
    format!("{}/{limit} slots", threads.iter().filter(is_active).count())
}

/// Returns the reasons why threads of the session are blocked, without duplicates, each with a hint.
fn hints_for(session: &Session, threads: &[Thread]) -> BTreeSet<(&'static str, &'static str)> {
    let of_status = threads.iter().filter_map(|thread| {
        let kind = ui::status_of(thread);
        Some((names::status_kind(kind), hints::for_status(kind)?))
    });
    let of_conditions = threads
        .iter()
        .flat_map(|thread| &thread.conditions)
        .filter_map(|condition| {
            let kind = condition.kind();
            Some((names::condition_kind(kind), hints::for_condition(kind)?))
        });
    let paused = (session.paused && !session.closed).then_some(("paused", hints::PAUSED));
    of_status.chain(of_conditions).chain(paused).collect()
}

fn conditions(thread: &Thread) -> String {
    let kinds = thread.conditions.iter().map(|condition| condition.kind());
    let named = kinds.filter(|kind| *kind != ConditionKind::Unspecified);
    named.map(names::condition_kind).collect::<Vec<_>>().join(" ")
}

fn table(threads: &[Thread], now: SystemTime) -> Table<17> {
    let mut table = Table::new([
        "THREAD",
        "PARENT",
        "ALIAS",
        "ROLE",
        "STATUS",
        "CONDITIONS",
        "SINCE",
        "ELAPSED",
        "TURNS",
        "TOKENS",
        "COST",
        "CONTEXT",
        "MODEL",
        "RUNNER",
        "DIRECTORY",
        "TASK",
        "ACTIVITY",
    ])
    .wide(&["PARENT", "ELAPSED", "TURNS", "RUNNER", "DIRECTORY"])
    .optional(&[
        "CONTEXT",
        "MODEL",
        "COST",
        "TOKENS",
        "SINCE",
        "TASK",
        "CONDITIONS",
        "ALIAS",
    ]);
    for thread in threads {
        let kind = ui::status_of(thread);
        let status = thread.status.as_ref();
        let usage = thread.usage.unwrap_or_default();
        table.row([
            Cell::plain(ids::short(&thread.thread_id)),
            Cell::new(style::DIM, ids::short(&thread.parent_thread_id)),
            Cell::new(style::NAME, &thread.alias),
            Cell::new(style::NAME, ui::role(thread)),
            Cell::new(style::of_status(kind), names::status_kind(kind)),
            Cell::new(style::WARN, conditions(thread)),
            Cell::plain(time::age(status.and_then(|status| status.since.as_ref()), now)),
            Cell::plain(time::age(thread.create_time.as_ref(), now)),
            Cell::plain(usage.turns.to_string()),
            Cell::plain(ui::tokens(&usage)),
            Cell::plain(ui::cost(&usage)),
            Cell::plain(
                thread
                    .context_left_percent
                    .map(|left| format!("{left}%"))
                    .unwrap_or_default(),
            ),
            Cell::plain(&thread.model),
            Cell::plain(&thread.runner_id),
            Cell::plain(&thread.working_directory),
            Cell::plain(&thread.label),
            Cell::new(style::DIM, ui::doing(thread)),
        ]);
    }
    table
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use troupe_proto::supervisor::v1::{Condition, Status};

    use super::*;
    use crate::output::OutputArgs;

    fn text_of(session: &Session, threads: &[Thread], as_tree: bool) -> String {
        let sections = Sections {
            listed: Cow::Borrowed(&[]),
            as_tree,
            hint_columns: usize::MAX,
            now: SystemTime::UNIX_EPOCH,
        };
        let ui = Ui::new(&OutputArgs::default());
        ui::plain(&section(session, threads, &sections, &ui).unwrap())
    }

    #[test]
    fn blocked_threads_have_one_hint_per_cause() {
        let held_up = |id: &str, status: StatusKind, condition: ConditionKind| Thread {
            thread_id: id.to_owned(),
            agent_type: "worker".to_owned(),
            depth: 1,
            status: Some(Status {
                kind: status.into(),
                ..Status::default()
            }),
            conditions: vec![Condition {
                kind: condition.into(),
                ..Condition::default()
            }],
            ..Thread::default()
        };
        let threads = [
            held_up("00000001", StatusKind::Running, ConditionKind::Stalled),
            held_up("00000002", StatusKind::Running, ConditionKind::Stalled),
            held_up("00000003", StatusKind::AwaitingApproval, ConditionKind::Closing),
        ];
        let session = Session {
            paused: true,
            ..Session::default()
        };
        let text = text_of(&session, &threads, false);
        assert_eq!(text.matches("RUNNING  ").count(), 2, "{text}");
        let hints: Vec<_> = text.lines().filter_map(|line| line.split_once(": ")).collect();
        let about: Vec<_> = hints.iter().map(|(what, _)| *what).collect();
        assert_eq!(about, ["AWAITING_APPROVAL", "STALLED", "paused"], "{text}");
        assert!(hints.iter().all(|(_, hint)| hint.contains("`troupe ")), "{text}");
        assert!(text.contains("STALLED  ") && text.contains("CLOSING"), "{text}");
        assert!(text_of(&session, &[], true).contains("includes closed ones"));
    }
}
