//! `troupe mail`: lists the mail in a thread's mailbox.

use std::time::SystemTime;

use clap_complete::ArgValueCompleter;
use serde_json::json;
use troupe_proto::supervisor::v1::{AcknowledgeMailboxRequest, Handoff, Mail, ResponseExpectation, Status, mail::Body};

use crate::{
    complete,
    context::Context,
    error::Result,
    ids, json, listing, names, time,
    ui::{Cell, Table, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe mail 0000aa01
  troupe mail scout --acknowledge
  troupe mail 0000aa01 --all --output json | jq '.mail[].handoff.message'

An agent receives its mail with its next turn. The mail is acknowledged when the turn completes.";

/// The arguments of `mail`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Thread: an id, the beginning or the end of one, an alias, or @last
    #[arg(value_name = "ID", add = ArgValueCompleter::new(complete::threads))]
    thread: String,
    /// Include acknowledged mail
    #[arg(long)]
    all: bool,
    /// Acknowledge the listed mail, so that no turn receives it again
    #[arg(long)]
    acknowledge: bool,
}

/// Lists the mail.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let thread_id = ids::thread(&mut supervisor, &args.thread, None).await?;
    let mail = listing::mail(&mut supervisor, &thread_id, args.all).await?;
    context.ui.table(
        || json!({ "mail": json::list(&mail) }),
        || table(&mail, SystemTime::now()),
        "no unread mail; --all includes acknowledged mail",
    )?;
    // Acknowledged only after the mail is displayed.
    let newest = mail.iter().rfind(|mail| !mail.acknowledged).map(|mail| mail.sequence);
    if let Some(up_to_sequence) = newest.filter(|_| args.acknowledge) {
        let request = AcknowledgeMailboxRequest {
            request_id: troupe_client::request_id(),
            thread_id,
            up_to_sequence,
            ..AcknowledgeMailboxRequest::default()
        };
        supervisor.acknowledge_mailbox(request).await?;
        context.ui.note(format!("acknowledged up to #{up_to_sequence}"));
    }
    Ok(())
}

pub(super) fn table(mail: &[Mail], now: SystemTime) -> Table<5> {
    let mut table = Table::new(["MAIL", "AGE", "FROM", "ABOUT", "WHAT"]);
    for mail in mail {
        let (from, about, what) = match &mail.body {
            Some(Body::Handoff(handoff)) => (handoff.from_thread_id.as_str(), "HANDOFF", handoff_text(handoff)),
            Some(Body::Settled(child)) => {
                let status = child.status.as_ref();
                let kind = status.map(Status::kind).unwrap_or_default();
                let message = status.map(|status| status.message.clone()).unwrap_or_default();
                (child.thread_id.as_str(), names::status_kind(kind), message)
            }
            Some(Body::GroupEnded(ended)) => {
                let state = names::group_state(ended.outcome());
                (ended.group_id.as_str(), "GROUP", format!("{state} {}", ended.reason))
            }
            None => ("", "-", String::new()),
        };
        let look = if mail.acknowledged { style::DIM } else { style::PLAIN };
        table.row([
            Cell::new(look, format!("#{}", mail.sequence)),
            Cell::new(look, time::age(mail.time.as_ref(), now)),
            Cell::new(look, ids::short(from)),
            Cell::new(look, about),
            Cell::new(look, what),
        ]);
    }
    table
}

/// Returns the beginning of a handoff with its sender's annotations.
fn handoff_text(handoff: &Handoff) -> String {
    let ok = match handoff.ok {
        Some(true) => Some("ok".to_owned()),
        Some(false) => Some(format!("not ok {}", handoff.ok_reason)),
        None => None,
    };
    let answer = match handoff.expectation() {
        ResponseExpectation::Required => Some("answer required".to_owned()),
        ResponseExpectation::Optional => Some("answer welcome".to_owned()),
        ResponseExpectation::None | ResponseExpectation::Unspecified => None,
    };
    let preview = handoff.message.as_ref().map(|message| message.preview.clone());
    let parts: Vec<String> = [ok, answer, preview].into_iter().flatten().collect();
    parts.join("; ")
}
