//! `troupe notify`: prints one line per notification.

use anstyle::Style;
use serde_json::json;
use troupe_client::follow::Follow;
use troupe_proto::supervisor::v1::{
    Notification, NotificationKind, NotificationPolicy, WatchNotificationsRequest, WatchSessionsRequest,
};

use crate::{
    choices,
    context::Context,
    desktop::{self, Alert, Urgency},
    error::Result,
    follow::{AllSessions, next_message},
    ids, json, names, time,
    ui::{Line, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe notify
  troupe notify 0000cc03 --kind approval-requested --kind stalled
  troupe notify --all --desktop --kind approval-requested
  troupe notify --after 0 --count 1 --output json

The output starts after the last notification that the same --client-id received.";

/// The arguments of `notify`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Session: an id, the beginning or the end of one, or @last [default: the current session]
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// Notifications of all open sessions, including sessions that open later
    #[arg(long, conflicts_with_all = ["session", "after"])]
    all: bool,
    /// Kind of notification; may be repeated [default: all kinds]
    #[arg(long = "kind", value_name = "KIND", value_parser = choices::notification_kind())]
    kinds: Vec<NotificationKind>,
    /// Start after the event with this number; 0 starts at the beginning
    #[arg(long, value_name = "NUMBER")]
    after: Option<u64>,
    /// End after this number of notifications
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Client ID; the service stores the filter and the position under this ID
    #[arg(long, value_name = "NAME", default_value = "troupe")]
    client_id: String,
    /// Raise desktop notifications; without a desktop, notify like --bell
    #[arg(long)]
    desktop: bool,
    /// Notify in the terminal: the bell, and OSC 9 if the terminal supports it
    #[arg(long)]
    bell: bool,
}

/// Follows the notifications until the requested number is reached. Reconnects after a disconnect.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let request = WatchNotificationsRequest {
        client_id: args.client_id,
        policy: Some(policy(&args.kinds)),
        after_sequence: args.after,
        ..WatchNotificationsRequest::default()
    };
    let mut output = Output {
        context,
        left: args.count,
        alert: args.desktop.then(Alert::desktop),
        rings: args.bell,
        names_sessions: args.all,
    };
    if args.all {
        let mut all = AllSessions::new(supervisor, WatchSessionsRequest::default(), |session| {
            Some(WatchNotificationsRequest {
                session_id: session.id.clone(),
                // All notifications of a session that opens later are new.
                after_sequence: session.is_new.then_some(0),
                ..request.clone()
            })
        });
        while output.left != Some(0) {
            let (_, response) = all.next_message(&context.ui).await?;
            output.show(&response.notification.unwrap_or_default()).await?;
        }
        return Ok(());
    }
    let session_id = ids::session_or_current(&mut supervisor, args.session.as_deref()).await?;
    let mut follow = Follow::new(supervisor, WatchNotificationsRequest { session_id, ..request });
    while output.left != Some(0) {
        let response = next_message(&mut follow, &context.ui).await?;
        output.show(&response.notification.unwrap_or_default()).await?;
    }
    Ok(())
}

fn policy(kinds: &[NotificationKind]) -> NotificationPolicy {
    NotificationPolicy {
        all: kinds.is_empty(),
        kinds: kinds.iter().map(|kind| (*kind).into()).collect(),
        ..NotificationPolicy::default()
    }
}

/// The output of `notify`.
struct Output<'a> {
    context: &'a Context,
    /// Remaining number of notifications. `None` without a limit.
    left: Option<u64>,
    /// The additional destination of each notification. `None` without one.
    alert: Option<Alert>,
    /// Whether each notification rings the terminal's bell.
    rings: bool,
    /// Whether each line begins with the session.
    names_sessions: bool,
}

impl Output<'_> {
    /// Writes and raises a notification.
    async fn show(&mut self, notification: &Notification) -> Result<()> {
        let ui = &self.context.ui;
        if ui.is_text() {
            ui.line(line(notification, self.names_sessions).render(ui.columns()))?;
        } else {
            ui.value(&json!({ "notification": json::message(notification) }))?;
        }
        self.raise(notification).await;
        self.left = self.left.map(|left| left.saturating_sub(1));
        Ok(())
    }

    /// Raises the notification on the desktop or in the terminal, as the flags request.
    async fn raise(&mut self, notification: &Notification) {
        let title = format!("troupe {}", kinds(notification));
        if self.rings {
            desktop::ring(&title, &notification.text);
        }
        match &mut self.alert {
            // `desktop::ring` has notified the terminal already.
            Some(Alert::Terminal) if self.rings => {}
            Some(alert) => {
                let urgency = if needs_action(notification) {
                    Urgency::Critical
                } else {
                    Urgency::Normal
                };
                alert.raise(urgency, &title, &notification.text, &self.context.ui).await;
            }
            None => {}
        }
    }
}

/// Returns the names of the notification's kinds.
fn kinds(notification: &Notification) -> String {
    let names = notification.kinds();
    let names = names.map(|kind| names::notification_kind(kind).to_ascii_lowercase().replace('_', "-"));
    names.collect::<Vec<_>>().join(" ")
}

/// Formats a notification as one line.
fn line(notification: &Notification, names_session: bool) -> Line {
    let session = match names_session {
        true => format!("{} ", ids::short(&notification.session_id)),
        false => String::new(),
    };
    Line::default()
        .mark(style::DIM, session)
        .mark(
            style::DIM,
            format!(
                "{} {:>4}",
                time::clock(notification.time.as_ref()),
                format!("#{}", notification.sequence)
            ),
        )
        .word(style::DIM, ids::short(&notification.thread_id))
        .word(style_of(notification), kinds(notification))
        .word(style::PLAIN, &notification.text)
}

/// Returns the style of a notification. Notifications that need action are highlighted.
fn style_of(notification: &Notification) -> Style {
    if needs_action(notification) {
        style::WARN
    } else {
        style::NAME
    }
}

/// Returns whether a person has to act.
fn needs_action(notification: &Notification) -> bool {
    notification.kinds().any(|kind| match kind {
        NotificationKind::ApprovalRequested
        | NotificationKind::Stalled
        | NotificationKind::BudgetExhausted
        | NotificationKind::RunnerLost
        | NotificationKind::InputRequested => true,
        NotificationKind::Unspecified | NotificationKind::AgentTurnComplete | NotificationKind::SubAgentComplete => {
            false
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_without_kinds_selects_all() {
        assert!(policy(&[]).all);
        let some = policy(&[NotificationKind::Stalled]);
        assert_eq!(
            (some.all, some.kinds),
            (false, vec![i32::from(NotificationKind::Stalled)])
        );
    }
}
