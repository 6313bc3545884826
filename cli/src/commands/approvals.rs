//! `troupe approvals`: what waits for an operator, and deciding it.

use std::time::SystemTime;

use serde_json::json;
use tonic::Request;
use troupe_proto::supervisor::v1::{Approval, ApprovalDecision, ResolveApprovalRequest};

use crate::{
    client,
    context::Context,
    error::{Error, Result},
    ids, json, listing, names, sanitize, time,
    ui::{self, Line, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe approvals
  troupe approvals --session 0000cc03 --all
  troupe approvals grant 0000dd04
  troupe approvals deny 0000dd04 --reason 'not in this session'

What nobody decides within 10 minutes is denied by itself.";

/// The arguments of `approvals`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(crate) struct Args {
    /// What to do instead of listing
    #[command(subcommand)]
    action: Option<Action>,
    /// What to list
    #[command(flatten)]
    list: List,
}

/// A decision.
#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Let it happen
    #[command(after_help = "Example: troupe approvals grant 0000dd04")]
    Grant(Decision),
    /// Drop that one call, and nothing else
    #[command(after_help = "Example: troupe approvals deny 0000dd04 --reason 'not in this session'")]
    Deny(Decision),
}

/// The arguments of the listing.
#[derive(Debug, clap::Args)]
struct List {
    /// One session only [default: every open one]
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// What was decided, too
    #[arg(long)]
    all: bool,
}

/// The arguments of a decision.
#[derive(Debug, clap::Args)]
struct Decision {
    /// The approval: its id, or the end of it
    #[arg(value_name = "ID")]
    approval: String,
    /// The session that it is in [default: any open one]
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Why; the agent is told
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
}

/// Decides; without an action, lists.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    match args.action {
        Some(Action::Grant(decision)) => decide(decision, true, context).await,
        Some(Action::Deny(decision)) => decide(decision, false, context).await,
        None => list(args.list, context).await,
    }
}

async fn list(args: List, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let mut approvals = Vec::new();
    for session in ids::open_sessions(&mut supervisor, args.session.as_deref()).await? {
        approvals.extend(listing::approvals(&mut supervisor, &session, args.all).await?);
    }
    let now = SystemTime::now();
    context.ui.answer(
        || json!({ "approvals": approvals.iter().map(json::approval).collect::<Vec<_>>() }),
        || match approvals.as_slice() {
            [] => "nothing waits for an operator".to_owned(),
            approvals => {
                let sections = approvals.iter().map(|approval| section(approval, now, ui::columns()));
                sections.collect::<Vec<_>>().join("\n\n")
            }
        },
    )?;
    if approvals.iter().any(is_waiting) {
        context
            .ui
            .note("`troupe approvals grant ID` lets it happen; `troupe approvals deny ID` does not");
    }
    Ok(())
}

fn is_waiting(approval: &Approval) -> bool {
    approval.decision() == ApprovalDecision::Unspecified
}

/// An approval: its end of an id, how it stands, and everything that it says would happen.
fn section(approval: &Approval, now: SystemTime, columns: usize) -> String {
    let head = Line::default()
        .mark(style::HEADING, ids::short(&approval.approval_id))
        .word(style::NAME, names::approval_kind(approval.kind()))
        .word(style::DIM, format!("thread {}", ids::short(&approval.thread_id)));
    let head = if is_waiting(approval) {
        let asked = time::age(approval.create_time.as_ref(), now);
        let left = time::left(approval.deadline.as_ref(), now);
        head.word(style::WARN, "waits")
            .word(style::DIM, format!("asked {asked} ago, denied by itself in {left}"))
    } else {
        head.word(style::PLAIN, names::approval_decision(approval.decision()))
            .word(style::DIM, format!("by {}", approval.decided_by))
            .word(style::DIM, &approval.reason)
    };
    let subject = sanitize::block(&approval.subject);
    let lines = subject
        .lines()
        .map(|line| Line::default().mark(style::PLAIN, format!("  {line}")).render(columns));
    std::iter::once(head.render(columns))
        .chain(lines)
        .collect::<Vec<_>>()
        .join("\n")
}

async fn decide(args: Decision, grant: bool, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let asked = ids::approval(&mut supervisor, &args.approval, args.session.as_deref()).await?;
    let request = ResolveApprovalRequest {
        request_id: client::request_id(),
        session_id: asked.session_id,
        approval_id: asked.approval_id,
        grant,
        reason: args.reason,
    };
    let answer = supervisor.resolve_approval(Request::new(request)).await?.into_inner();
    let decided = answer
        .approval
        .ok_or_else(|| Error::failure("the supervisor answered no approval"))?;
    context.ui.answer(
        || json!({ "approval": json::approval(&decided) }),
        || section(&decided, SystemTime::now(), ui::columns()),
    )?;
    if grant && decided.decision() != ApprovalDecision::Granted {
        let decision = names::approval_decision(decided.decision());
        return Err(
            Error::failure(format!("approval {} is {decision}, not granted", decided.approval_id))
                .hint("what it was about is gone; `troupe ps` shows what there is"),
        );
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use std::time::Duration;

    use clap::Parser as _;
    use prost_types::Timestamp;
    use troupe_proto::supervisor::v1::ApprovalKind;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn a_decision_names_what_it_decides() {
        let parse = |arguments: &[&str]| {
            let line = ["troupe", "approvals"].iter().chain(arguments);
            Cli::try_parse_from(line).map(|cli| cli.command)
        };
        let Ok(Command::Approvals(args)) = parse(&["deny", "0000dd04", "--reason", "no"]) else {
            panic!("not approvals");
        };
        assert!(matches!(args.action, Some(Action::Deny(decision)) if decision.reason == "no"));
        assert!(parse(&["grant"]).is_err());
        assert!(parse(&["--all"]).is_ok());
    }

    #[test]
    fn a_section_says_everything_and_obeys_nothing() {
        let at = |seconds| Some(Timestamp { seconds, nanos: 0 });
        let waiting = Approval {
            approval_id: "01939c5a-0000-7000-8000-00000000dd04".to_owned(),
            thread_id: "01939c5a-0000-7000-8000-00000000aa01".to_owned(),
            kind: ApprovalKind::Spawn.into(),
            subject: "Spawn node: Docs\u{1b}[2J (planner)\nasked by: lead".to_owned(),
            create_time: at(880),
            deadline: at(1_480),
            ..Approval::default()
        };
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        assert_eq!(
            ui::plain(&section(&waiting, now, 120)),
            "0000dd04  SPAWN  thread 0000aa01  waits  asked 2m ago, denied by itself in 8m\n  \
             Spawn node: Docs[2J (planner)\n  asked by: lead"
        );
        let denied = Approval {
            decision: ApprovalDecision::Denied.into(),
            decided_by: "operator:local".to_owned(),
            reason: "not now".to_owned(),
            ..waiting
        };
        let text = ui::plain(&section(&denied, now, 120));
        assert!(
            text.starts_with("0000dd04  SPAWN  thread 0000aa01  DENIED  by operator:local  not now\n"),
            "{text}"
        );
    }
}
