//! `troupe ps`: lists sessions and their threads, with hints for blocked threads.

use std::{collections::BTreeSet, time::SystemTime};

use serde_json::{Value, json};
use troupe_proto::supervisor::v1::{ConditionKind, GetSessionRequest, Session, Thread};

use crate::{
    context::Context,
    error::{Error, Result},
    hints, ids, json, listing, names, time,
    ui::{self, Cell, Line, Table, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe ps
  troupe ps --tree --session 0000aa01
  troupe ps --closed --output json | jq '.sessions[].threads[].status.kind'";

/// The arguments of `ps`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// One session only
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Closed sessions and threads too
    #[arg(long)]
    closed: bool,
    /// As a tree
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
        None => listing::sessions(&mut supervisor, args.closed).await?,
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
        || match listed.as_slice() {
            [] => "no sessions; `troupe spawn TYPE -m MESSAGE` opens one".to_owned(),
            listed => {
                let sections = listed
                    .iter()
                    .map(|(session, threads)| section(session, threads, args.tree, now));
                sections.collect::<Vec<_>>().join("\n\n")
            }
        },
    )?;
    unread.map_or(Ok(()), Err)
}

fn to_json(session: &Session, threads: &[Thread]) -> Value {
    let mut value = json::message(session);
    value["threads"] = json::list(threads);
    value
}

fn section(session: &Session, threads: &[Thread], as_tree: bool, now: SystemTime) -> String {
    let columns = ui::columns();
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
        .render(columns);
    let body = match (threads.is_empty(), as_tree) {
        (true, _) => "no open threads; `--closed` shows the others".to_owned(),
        (false, true) => ui::tree(threads, columns),
        (false, false) => table(threads, now).render(columns),
    };
    // Never truncated: the hints contain commands to copy.
    let hints = hints_for(session, threads)
        .into_iter()
        .map(|(what, hint)| format!("{} {hint}", style::paint(style::WARN, format_args!("{what}:"))));
    [head, body].into_iter().chain(hints).collect::<Vec<_>>().join("\n")
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

fn table(threads: &[Thread], now: SystemTime) -> Table<8> {
    let mut table = Table::new(["THREAD", "PARENT", "ROLE", "STATUS", "BESIDE", "SINCE", "MODEL", "WHAT"]);
    for thread in threads {
        let kind = ui::status_of(thread);
        let since = thread.status.as_ref().and_then(|status| status.since.as_ref());
        table.row([
            Cell::plain(ids::short(&thread.thread_id)),
            Cell::new(style::DIM, ids::short(&thread.parent_thread_id)),
            Cell::new(style::NAME, ui::role(thread)),
            Cell::new(style::of_status(kind), names::status_kind(kind)),
            Cell::new(style::WARN, conditions(thread)),
            Cell::plain(time::age(since, now)),
            Cell::plain(&thread.model),
            Cell::new(style::DIM, ui::doing(thread)),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use troupe_proto::supervisor::v1::{Condition, Status, StatusKind};

    use super::*;

    #[test]
    fn a_session_is_a_head_and_its_threads() {
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
        let text = ui::plain(&section(&session, std::slice::from_ref(&thread), false, now));
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
        assert!(ui::plain(&section(&session, &[], true, now)).ends_with("shows the others"));
    }

    #[test]
    fn what_holds_a_thread_up_is_shown_with_a_hint_once() {
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
        let text = ui::plain(&section(&session, &threads, false, SystemTime::UNIX_EPOCH));
        assert_eq!(text.matches("RUNNING  ").count(), 2, "{text}");
        let hints: Vec<_> = text.lines().filter_map(|line| line.split_once(": ")).collect();
        let about: Vec<_> = hints.iter().map(|(what, _)| *what).collect();
        assert_eq!(about, ["AWAITING_APPROVAL", "STALLED", "paused"], "{text}");
        assert!(hints.iter().all(|(_, hint)| hint.contains("`troupe ")), "{text}");
        assert!(text.contains("STALLED  ") && text.contains("CLOSING"), "{text}");
    }
}
