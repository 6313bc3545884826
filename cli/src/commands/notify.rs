//! `troupe notify`: prints one line per notification.

use anstyle::Style;
use clap::ValueEnum;
use serde_json::json;
use tonic::{Request, Status};
use troupe_proto::{
    fault,
    supervisor::v1::{Notification, NotificationKind, NotificationPolicy, WatchNotificationsRequest},
};

use crate::{
    client::Supervisor,
    context::Context,
    desktop::{self, Alert, Urgency},
    error::{Error, Result, is_transient},
    ids, json, names,
    patience::Patience,
    sanitize, time,
    ui::{Line, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe notify
  troupe notify 0000cc03 --kind approval-requested --kind stalled
  troupe notify --desktop --kind approval-requested
  troupe notify --after 0 --count 1 --output json

It begins with what was missed since it was last asked for under the same --client-id.";

/// The arguments of `notify`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The session: its id, or the end of it [default: the newest open session]
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// Only this kind (repeatable) [default: every kind]
    #[arg(long = "kind", value_enum, value_name = "KIND")]
    kinds: Vec<Kind>,
    /// Every notification after the event of this number; 0 from the beginning
    #[arg(long, value_name = "NUMBER")]
    after: Option<u64>,
    /// End after so many
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Who asks: what is wanted, and how far it was told, is kept under this name
    #[arg(long, value_name = "NAME", default_value = "troupe")]
    client_id: String,
    /// Raise a desktop notification for each; without a desktop, notify as --bell does
    #[arg(long)]
    desktop: bool,
    /// Notify by the terminal for each: the bell, and OSC 9 where the terminal knows it
    #[arg(long)]
    bell: bool,
}

/// A notification category.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A spawned agent completed a turn
    AgentTurnComplete,
    /// A spawned agent settled, in whatever way
    SubAgentComplete,
    /// Something waits for an operator
    ApprovalRequested,
    /// An agent repeats itself or is silent
    Stalled,
    /// A budget is spent
    BudgetExhausted,
    /// The runner of an agent cannot be reached
    RunnerLost,
}

impl From<Kind> for NotificationKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::AgentTurnComplete => Self::AgentTurnComplete,
            Kind::SubAgentComplete => Self::SubAgentComplete,
            Kind::ApprovalRequested => Self::ApprovalRequested,
            Kind::Stalled => Self::Stalled,
            Kind::BudgetExhausted => Self::BudgetExhausted,
            Kind::RunnerLost => Self::RunnerLost,
        }
    }
}

/// Follows the notifications until the requested number is reached. Reconnects after a disconnect.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let mut telling = Telling {
        request: WatchNotificationsRequest {
            session_id: ids::session_or_newest(&mut supervisor, args.session.as_deref()).await?,
            client_id: args.client_id,
            policy: Some(policy(&args.kinds)),
            after_sequence: args.after,
            ..WatchNotificationsRequest::default()
        },
        left: args.count,
        patience: Patience::new(),
        alert: args.desktop.then(Alert::desktop),
        rings: args.bell,
    };
    while telling.left != Some(0) {
        telling.patience.wait().await;
        match telling.tell(&mut supervisor, context).await? {
            // The stream ended as planned; reconnect.
            Ok(()) => telling.patience.grow(None),
            Err(status) if is_transient(&status) => {
                telling.patience.grow(fault::retry_after(&status));
                let why = sanitize::line(status.message());
                context.ui.note(style::paint(
                    style::WARN,
                    format_args!("connection lost ({why}); going on"),
                ));
            }
            Err(status) => return Err(Error::from(status)),
        }
    }
    Ok(())
}

fn policy(kinds: &[Kind]) -> NotificationPolicy {
    NotificationPolicy {
        all: kinds.is_empty(),
        kinds: kinds.iter().map(|kind| NotificationKind::from(*kind).into()).collect(),
        ..NotificationPolicy::default()
    }
}

/// The state of a `notify` run.
struct Telling {
    request: WatchNotificationsRequest,
    /// Remaining number of notifications. `None` without a limit.
    left: Option<u64>,
    patience: Patience,
    /// Where each notification is additionally raised, if anywhere.
    alert: Option<Alert>,
    /// Whether the terminal raises the notification as well.
    rings: bool,
}

impl Telling {
    /// Prints the notifications of one stream until it ends or the requested number is reached. The outer error is an
    /// error of the terminal, the inner one an error of the stream.
    async fn tell(
        &mut self,
        supervisor: &mut Supervisor,
        context: &Context,
    ) -> Result<std::result::Result<(), Status>> {
        let mut stream = match supervisor.watch_notifications(Request::new(self.request.clone())).await {
            Ok(answer) => answer.into_inner(),
            Err(status) => return Ok(Err(status)),
        };
        while self.left != Some(0) {
            let notification = match stream.message().await {
                Ok(Some(response)) => response.notification.unwrap_or_default(),
                Ok(None) => break,
                Err(status) => return Ok(Err(status)),
            };
            if !context.ui.is_text() {
                context
                    .ui
                    .value(&json!({ "notification": json::message(&notification) }))?;
            } else {
                context.ui.line(line(&notification).render(context.ui.columns()))?;
            }
            self.raise(&notification, context).await;
            self.request.after_sequence = Some(notification.sequence);
            self.left = self.left.map(|left| left.saturating_sub(1));
            self.patience.reset();
        }
        Ok(Ok(()))
    }

    /// Raises the notification on the desktop or in the terminal, as the flags request.
    async fn raise(&mut self, notification: &Notification, context: &Context) {
        let title = format!("troupe {}", kinds(notification));
        if self.rings {
            desktop::ring(&title, &notification.text);
        }
        match &mut self.alert {
            // The terminal has been notified already.
            Some(Alert::Terminal) if self.rings => {}
            Some(alert) => {
                let urgency = if asks(notification) {
                    Urgency::Critical
                } else {
                    Urgency::Normal
                };
                alert.raise(urgency, &title, &notification.text, &context.ui).await;
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
fn line(notification: &Notification) -> Line {
    Line::default()
        .mark(
            style::DIM,
            format!(
                "{} {:>4}",
                time::clock(notification.time.as_ref()),
                format!("#{}", notification.sequence)
            ),
        )
        .word(style::DIM, ids::short(&notification.thread_id))
        .word(look(notification), kinds(notification))
        .word(style::PLAIN, &notification.text)
}

/// Returns the style of a notification. Those that need action are highlighted.
fn look(notification: &Notification) -> Style {
    if asks(notification) { style::WARN } else { style::NAME }
}

/// Returns whether a person has to act.
fn asks(notification: &Notification) -> bool {
    notification.kinds().any(|kind| match kind {
        NotificationKind::ApprovalRequested
        | NotificationKind::Stalled
        | NotificationKind::BudgetExhausted
        | NotificationKind::RunnerLost => true,
        NotificationKind::Unspecified | NotificationKind::AgentTurnComplete | NotificationKind::SubAgentComplete => {
            false
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui;

    #[test]
    fn a_notification_is_one_line() {
        let notification = Notification {
            sequence: 17,
            thread_id: "01939c5a-0000-7000-8000-00000000aa01".to_owned(),
            kinds: vec![
                NotificationKind::AgentTurnComplete.into(),
                NotificationKind::SubAgentComplete.into(),
            ],
            text: "agent parser (worker) completed: all\u{1b}[2J\npass".to_owned(),
            ..Notification::default()
        };
        assert_eq!(
            ui::plain(&line(&notification).render(120)),
            "--:--:--  #17  0000aa01  agent-turn-complete sub-agent-complete  \
             agent parser (worker) completed: all[2J pass"
        );
    }

    #[test]
    fn without_a_kind_everything_is_wanted() {
        assert!(policy(&[]).all);
        let some = policy(&[Kind::Stalled]);
        assert_eq!(
            (some.all, some.kinds),
            (false, vec![i32::from(NotificationKind::Stalled)])
        );
    }
}
