//! `troupe watch`: prints one line per event until the session or thread is closed.

use std::collections::HashMap;

use clap_complete::ArgValueCompleter;
use troupe_client::{
    Supervisor,
    follow::{Follow, ThreadWatch, Update},
};
use troupe_proto::supervisor::v1::{
    Approval, Group, StatusKind, WatchSessionsRequest, WatchThreadsRequest, WatchThreadsResponse, event::Kind,
    watch_threads_response::Message,
};

use crate::{
    commands::batch,
    complete,
    context::Context,
    error::Result,
    event_format,
    follow::AllSessions,
    ids::{self, Target},
    json, names, sanitize,
    session_view::SessionView,
    ui::{self, Line, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe watch                         the current session
  troupe watch scout --after 0         a thread and its descendants, from the beginning
  troupe watch --all                   all open sessions, including later ones
  troupe watch --output json | jq -c 'select(.event.turn_ended)'";

/// The arguments of `watch`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Session or thread [default: the current session]
    #[arg(value_name = "SESSION|THREAD", add = ArgValueCompleter::new(complete::threads))]
    target: Option<String>,
    /// Watch all open sessions, including sessions that open later, until Ctrl-C
    #[arg(long, conflicts_with_all = ["target", "after"])]
    all: bool,
    /// Start after the event with this number; 0 starts at the beginning [default: the present state, then new events]
    #[arg(long, value_name = "NUMBER")]
    after: Option<u64>,
    /// Include the output of the agents' programs
    #[arg(long)]
    with_output: bool,
}

/// Follows a session or thread until it is closed. Reconnects after a disconnect.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    if args.all {
        return run_all(supervisor, args.with_output, context).await;
    }
    let target = match &args.target {
        Some(text) => ids::target(&mut supervisor, text).await?,
        None => Target::Session(ids::session_or_current(&mut supervisor, None).await?),
    };
    let mut request = WatchThreadsRequest {
        after_sequence: args.after,
        include_closed: true,
        output: args.with_output,
        ..WatchThreadsRequest::default()
    };
    match &target {
        Target::Session(id) => request.session_id.clone_from(id),
        Target::Thread(id) => request.thread_id.clone_from(id),
    }
    let mut follow = Follow::new(supervisor, ThreadWatch::new(request));
    let mut view = SessionView::default();
    loop {
        match follow.next().await? {
            Update::Opened => {}
            Update::Lost { cause, after } => {
                let position = after.map_or_else(|| " from a snapshot".to_owned(), |after| format!(" after #{after}"));
                context.ui.lost(cause.message(), &position);
            }
            Update::Message(message) => {
                view.apply(&message);
                show(&message, &view, None, context)?;
                if is_over(&message, &view, &target) {
                    return Ok(());
                }
            }
        }
    }
}

/// Follows every open session until the process is interrupted.
async fn run_all(supervisor: Supervisor, output: bool, context: &Context) -> Result<()> {
    let mut all = AllSessions::new(supervisor, WatchSessionsRequest::default(), |session| {
        Some(ThreadWatch::new(WatchThreadsRequest {
            session_id: session.id.clone(),
            include_closed: true,
            output,
            ..WatchThreadsRequest::default()
        }))
    });
    let mut views: HashMap<String, SessionView> = HashMap::new();
    loop {
        let (id, message) = all.next_message(&context.ui).await?;
        let view = views.entry(id.clone()).or_default();
        view.apply(&message);
        show(&message, view, Some(&id), context)?;
        if is_over(&message, view, &Target::Session(id.clone())) {
            views.remove(&id);
        }
    }
}

/// Writes a message. `session` is the id of its session if several sessions are watched.
fn show(response: &WatchThreadsResponse, view: &SessionView, session: Option<&str>, context: &Context) -> Result<()> {
    if !context.ui.is_text() {
        return context.ui.value(&json::message(response));
    }
    let columns = context.ui.columns();
    let (session, room) = match session {
        Some(id) => {
            let prefix = format!("{} ", style::paint(style::DIM, ids::short(id)));
            (prefix, columns.saturating_sub(ids::SHORT + 1))
        }
        None => (String::new(), columns),
    };
    match &response.message {
        Some(Message::Snapshot(snapshot)) => {
            if snapshot.last {
                let at = format!("as of #{}", response.sequence);
                context.ui.line(format!(
                    "{session}{}\n{}",
                    style::paint(style::DIM, at),
                    ui::tree(view.threads(), columns)
                ))?;
            }
            // Approvals and groups come after the threads: in the last part of the snapshot or in earlier parts.
            snapshot
                .approvals
                .iter()
                .map(waiting_approval)
                .chain(snapshot.groups.iter().map(open_group))
                .try_for_each(|line| context.ui.line(format!("{session}{}", line.render(room))))
        }
        Some(Message::Event(event)) => {
            let line = event_format::line(event, view).render(room);
            context.ui.line(format!("{session}{line}"))
        }
        Some(Message::Output(output)) => {
            let id = ids::short(&output.thread_id).to_owned();
            let lines: Vec<String> = sanitize::block(&output.text)
                .lines()
                .map(|line| format!("{} {line}", style::paint(style::DIM, format_args!("{id} │"))))
                .collect();
            context.ui.line(lines.join("\n"))
        }
        Some(Message::Reset(reset)) => {
            context
                .ui
                .note(format!("the watch starts again: {}", sanitize::line(&reset.reason)));
            Ok(())
        }
        Some(Message::Telemetry(_) | Message::Bookmark(_)) | None => Ok(()),
    }
}

fn waiting_approval(approval: &Approval) -> Line {
    Line::default()
        .mark(style::WARN, "waits for approval")
        .word(style::DIM, ids::short(&approval.approval_id))
        .word(style::PLAIN, approval.subject.lines().next().unwrap_or_default())
}

fn open_group(group: &Group) -> Line {
    let spec = group.spec.clone().unwrap_or_default();
    Line::default()
        .mark(style::NAME, "group")
        .word(style::DIM, ids::short(&spec.group_id))
        .word(style::NAME, spec.name)
        .word(style::PLAIN, names::group_state(group.state()))
        .word(style::PLAIN, batch::counts(group))
}

/// Returns whether the target is closed.
fn is_over(response: &WatchThreadsResponse, view: &SessionView, target: &Target) -> bool {
    match (&response.message, target) {
        (Some(Message::Event(event)), Target::Session(_)) => matches!(event.kind, Some(Kind::SessionClosed(_))),
        (Some(Message::Event(event)), Target::Thread(id)) => {
            event.thread_id == *id && matches!(event.kind, Some(Kind::ThreadClosed(_)))
        }
        (Some(Message::Snapshot(snapshot)), target) => {
            snapshot.last
                && match target {
                    Target::Session(_) => view.is_closed(),
                    Target::Thread(id) => view
                        .thread(id)
                        .is_some_and(|thread| ui::status_of(thread) == StatusKind::Shutdown),
                }
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use troupe_proto::supervisor::v1::{Event, GroupSpec, GroupState, SessionClosed, ThreadClosed};

    use super::*;

    fn event(thread: &str, kind: Kind) -> WatchThreadsResponse {
        WatchThreadsResponse {
            sequence: 1,
            message: Some(Message::Event(Event {
                thread_id: thread.to_owned(),
                kind: Some(kind),
                ..Event::default()
            })),
        }
    }

    #[test]
    fn approvals_and_groups_follow_the_threads() {
        let approval = Approval {
            approval_id: "01939c5a-0000-7000-8000-00000000dd04".to_owned(),
            subject: "Tool call: exec_command\u{1b}[2J\nsecond line".to_owned(),
            ..Approval::default()
        };
        assert_eq!(
            ui::plain(&waiting_approval(&approval).render(80)),
            "waits for approval  0000dd04  Tool call: exec_command[2J"
        );
        let group = Group {
            spec: Some(GroupSpec {
                group_id: "01939c5a-0000-7000-8000-00000000ee05".to_owned(),
                name: "review".to_owned(),
                ..GroupSpec::default()
            }),
            state: GroupState::Running.into(),
            pending: 2,
            succeeded: 1,
            ..Group::default()
        };
        assert_eq!(
            ui::plain(&open_group(&group).render(80)),
            "group  0000ee05  review  RUNNING  1/3 succeeded"
        );
    }

    #[test]
    fn watch_ends_with_its_target() {
        let view = SessionView::default();
        let session = Target::Session("s".to_owned());
        let thread = Target::Thread("t".to_owned());
        let closed = || Kind::ThreadClosed(ThreadClosed::default());
        assert!(is_over(
            &event("", Kind::SessionClosed(SessionClosed {})),
            &view,
            &session
        ));
        assert!(!is_over(&event("t", closed()), &view, &session));
        assert!(is_over(&event("t", closed()), &view, &thread));
        assert!(!is_over(&event("other", closed()), &view, &thread));
    }
}
