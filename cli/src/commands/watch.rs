//! `troupe watch`: prints one line per event until the session or thread is closed.

use troupe_proto::supervisor::v1::{
    StatusKind, WatchThreadsRequest, WatchThreadsResponse, event::Kind, watch_threads_response::Message,
};

use crate::{
    context::Context,
    error::Result,
    follow::{Follow, News},
    ids::{self, Target},
    json, sanitize, story,
    threads::Picture,
    ui::{self, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe watch                         the newest open session
  troupe watch 0000aa01 --after 0      a thread and what is below it, from the beginning
  troupe watch --output json | jq -c 'select(.event.turn_ended)'";

/// The arguments of `watch`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// A session or a thread [default: the newest open session]
    #[arg(value_name = "SESSION|THREAD")]
    target: Option<String>,
    /// Every event after this number; 0 from the beginning. Without it: how things stand now, then what happens
    #[arg(long, value_name = "NUMBER")]
    after: Option<u64>,
    /// What the agents' programs write, too
    #[arg(long)]
    with_output: bool,
}

/// Follows a session or thread until it is closed. Reconnects after a disconnect.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let target = match &args.target {
        Some(text) => ids::target(&mut supervisor, text).await?,
        None => Target::Session(ids::session_or_newest(&mut supervisor, None).await?),
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
    let mut follow = Follow::new(supervisor, request);
    let mut picture = Picture::default();
    loop {
        match follow.next().await? {
            News::Lost { why, after } => {
                let position = after.map_or_else(|| "from a snapshot".to_owned(), |after| format!("after #{after}"));
                context.ui.note(style::paint(
                    style::WARN,
                    format_args!("connection lost ({why}); going on {position}"),
                ));
            }
            News::Message(message) => {
                picture.apply(&message);
                show(&message, &picture, context)?;
                if is_over(&message, &picture, &target) {
                    return Ok(());
                }
            }
        }
    }
}

fn show(response: &WatchThreadsResponse, picture: &Picture, context: &Context) -> Result<()> {
    if !context.ui.is_text() {
        return context.ui.value(&json::message(response));
    }
    match &response.message {
        Some(Message::Snapshot(snapshot)) if snapshot.last => {
            let at = format!("as of #{}", response.sequence);
            context.ui.line(format!(
                "{}\n{}",
                style::paint(style::DIM, at),
                ui::tree(picture.threads(), context.ui.columns())
            ))
        }
        Some(Message::Event(event)) => context
            .ui
            .line(story::line(event, picture).render(context.ui.columns())),
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
        Some(Message::Snapshot(_) | Message::Telemetry(_) | Message::Bookmark(_)) | None => Ok(()),
    }
}

/// Returns whether the target is closed.
fn is_over(response: &WatchThreadsResponse, picture: &Picture, target: &Target) -> bool {
    match (&response.message, target) {
        (Some(Message::Event(event)), Target::Session(_)) => matches!(event.kind, Some(Kind::SessionClosed(_))),
        (Some(Message::Event(event)), Target::Thread(id)) => {
            event.thread_id == *id && matches!(event.kind, Some(Kind::ThreadClosed(_)))
        }
        (Some(Message::Snapshot(snapshot)), target) => {
            snapshot.last
                && match target {
                    Target::Session(_) => picture.is_closed(),
                    Target::Thread(id) => picture
                        .thread(id)
                        .is_some_and(|thread| ui::status_of(thread) == StatusKind::Shutdown),
                }
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use troupe_proto::supervisor::v1::{Event, SessionClosed, ThreadClosed};

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
    fn it_ends_with_what_it_follows() {
        let picture = Picture::default();
        let session = Target::Session("s".to_owned());
        let thread = Target::Thread("t".to_owned());
        let closed = || Kind::ThreadClosed(ThreadClosed::default());
        assert!(is_over(
            &event("", Kind::SessionClosed(SessionClosed {})),
            &picture,
            &session
        ));
        assert!(!is_over(&event("t", closed()), &picture, &session));
        assert!(is_over(&event("t", closed()), &picture, &thread));
        assert!(!is_over(&event("other", closed()), &picture, &thread));
    }
}
