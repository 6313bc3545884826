//! `troupe ps`: lists sessions and their threads, with hints for blocked threads.

use std::{collections::BTreeSet, time::SystemTime};

use serde_json::{Value, json};
use troupe_proto::supervisor::v1::{ConditionKind, GetSessionRequest, Session, StatusKind, Thread};

use crate::{
    context::Context,
    error::{Error, Result},
    hints, ids, json, listing, names, options, time,
    ui::{self, Cell, Line, Render, Table, Ui, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe ps
  troupe ps --tree --session 0000aa01
  troupe ps --closed --output wide
  troupe ps --columns thread,status,tokens --no-headers
  troupe ps --output jsonpath='$.sessions[*].threads[*].thread_id'

SESSION is an id, the beginning or the end of one, or @last.";

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
    /// Show threads as a tree
    #[arg(long)]
    tree: bool,
}

/// Lists the sessions and threads.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let sessions = match &args.session {
        Some(text) => {
            let session_id = ids::session(&mut supervisor, text).await?;
            let answer = supervisor
                .get_session(GetSessionRequest { session_id })
                .await?
                .into_inner();
            vec![
                answer
                    .session
                    .ok_or_else(|| Error::failure("the supervisor answered no session"))?,
            ]
        }
        None => listing::sessions_with(&mut supervisor, args.labels.into_iter().collect(), args.closed).await?,
    };
    let mut listed = Vec::with_capacity(sessions.len());
    // An unreadable session does not hide the other sessions.
    let mut unread = None;
    for session in sessions {
        match listing::threads(&mut supervisor, &session.session_id, args.closed).await {
            Ok(threads) => listed.push((session, threads)),
            Err(error) => {
                let doing = format!("the threads of session {}", session.session_id);
                unread = unread.or(Some(error.context(doing)));
            }
        }
    }
    if let Some(error) = unread.take_if(|_| listed.is_empty()) {
        return Err(error);
    }
    let now = SystemTime::now();
    context.ui.answer(
        || json!({ "sessions": listed.iter().map(|(session, threads)| to_json(session, threads)).collect::<Vec<_>>() }),
        || Sections {
            listed: &listed,
            as_tree: args.tree,
            now,
        },
    )?;
    if listed.is_empty() {
        context
            .ui
            .note("no sessions; `troupe spawn ROLE 'TASK'` opens one, `--closed` includes closed ones");
    }
    unread.map_or(Ok(()), Err)
}

fn to_json(session: &Session, threads: &[Thread]) -> Value {
    let mut value = json::message(session);
    value["threads"] = json::list(threads);
    value
}

/// The sessions and their threads.
struct Sections<'a> {
    listed: &'a [(Session, Vec<Thread>)],
    as_tree: bool,
    now: SystemTime,
}

impl Render for Sections<'_> {
    fn render_for(&self, ui: &Ui) -> Result<String> {
        let sections = self
            .listed
            .iter()
            .map(|(session, threads)| section(session, threads, self.as_tree, self.now, ui));
        Ok(sections.collect::<Result<Vec<_>>>()?.join("\n\n"))
    }
}

fn section(session: &Session, threads: &[Thread], as_tree: bool, now: SystemTime, ui: &Ui) -> Result<String> {
    let columns = ui.columns();
    let state = match (session.closed, session.paused) {
        (true, _) => "closed",
        (false, true) => "paused",
        (false, false) => "open",
    };
    let head = Line::default()
        .mark(style::HEADING, "session")
        .word(style::PLAIN, &session.session_id)
        .word(style::NAME, state)
        .word(style::PLAIN, &session.cwd)
        .word(style::DIM, time::age(session.create_time.as_ref(), now))
        .word(style::DIM, slots(session, threads))
        .word(style::NAME, labels(session))
        .render(columns);
    let body = match (threads.is_empty(), as_tree) {
        (true, _) => "no open threads; `--closed` includes closed ones".to_owned(),
        (false, true) => ui::tree(threads, columns),
        (false, false) => table(threads, now).render_for(ui)?,
    };
    // Never truncated: the hints contain commands to copy.
    let hints = hints_for(session, threads)
        .into_iter()
        .map(|(what, hint)| format!("{} {hint}", style::paint(style::WARN, format_args!("{what}:"))));
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

fn labels(session: &Session) -> String {
    let labels = session.labels.iter().map(|(key, value)| format!("{key}={value}"));
    labels.collect::<Vec<_>>().join(",")
}

/// Returns the reasons for which threads of the session are blocked, without duplicates, each with a hint.
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

fn table(threads: &[Thread], now: SystemTime) -> Table<16> {
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
        "CONTEXT",
        "MODEL",
        "RUNNER",
        "DIRECTORY",
        "TASK",
        "ACTIVITY",
    ])
    .wide(&["PARENT", "ELAPSED", "TURNS", "RUNNER", "DIRECTORY"])
    .optional(&["CONTEXT", "MODEL", "TOKENS", "SINCE", "TASK", "CONDITIONS", "ALIAS"]);
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

    fn ui() -> Ui {
        Ui::new(&OutputArgs::default())
    }

    #[test]
    fn session_is_a_heading_and_its_threads() {
        let session = Session {
            session_id: "01939c5a-0000-7000-8000-00000000aa01".to_owned(),
            cwd: "/p".to_owned(),
            ..Session::default()
        };
        let thread = Thread {
            thread_id: "01939c5a-0000-7000-8000-00000000bb02".to_owned(),
            agent_type: "worker".to_owned(),
            depth: 1,
            status: Some(Status {
                kind: StatusKind::Completed.into(),
                message: "did\nit".to_owned(),
                ..Status::default()
            }),
            ..Thread::default()
        };
        let now = SystemTime::UNIX_EPOCH;
        let text = ui::plain(&section(&session, std::slice::from_ref(&thread), false, now, &ui()).unwrap());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines.first(),
            Some(&"session  01939c5a-0000-7000-8000-00000000aa01  open  /p")
        );
        let row: Vec<_> = lines
            .last()
            .map(|line| line.split_whitespace().collect())
            .unwrap_or_default();
        assert_eq!(row, ["0000bb02", "worker", "COMPLETED", "did", "it"]);
        assert!(ui::plain(&section(&session, &[], true, now, &ui()).unwrap()).ends_with("includes closed ones"));
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
        let text = ui::plain(&section(&session, &threads, false, SystemTime::UNIX_EPOCH, &ui()).unwrap());
        assert_eq!(text.matches("RUNNING  ").count(), 2, "{text}");
        let hints: Vec<_> = text.lines().filter_map(|line| line.split_once(": ")).collect();
        let about: Vec<_> = hints.iter().map(|(what, _)| *what).collect();
        assert_eq!(about, ["AWAITING_APPROVAL", "STALLED", "paused"], "{text}");
        assert!(hints.iter().all(|(_, hint)| hint.contains("`troupe ")), "{text}");
        assert!(text.contains("STALLED  ") && text.contains("CLOSING"), "{text}");
    }
}
