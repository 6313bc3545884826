//! `troupe approvals`: lists pending approvals and decides them.

use std::time::SystemTime;

use serde_json::{Value, json};
use troupe_client::Supervisor;
use troupe_proto::supervisor::v1::{Approval, ApprovalDecision, ResolveApprovalRequest};

use crate::{
    content,
    context::Context,
    error::{Error, Result},
    ids, json, listing, names, sanitize, time,
    ui::{Line, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe approvals
  troupe approvals --session 0000cc03 --all
  troupe approvals show 0000dd04
  troupe approvals grant 0000dd04
  troupe approvals deny 0000dd04 --reason 'not in this session'

An approval without a decision is denied after the approval timeout of its session [default: 10m].";

/// The arguments of `approvals`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(crate) struct Args {
    /// The action.
    #[command(subcommand)]
    action: Option<Action>,
    /// The approvals to list.
    #[command(flatten)]
    list: List,
}

/// A decision.
#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Show everything that an approval covers
    #[command(after_help = "Example: troupe approvals show 0000dd04")]
    Show(Named),
    /// Grant an approval
    #[command(after_help = "Example: troupe approvals grant 0000dd04")]
    Grant(Decision),
    /// Deny an approval; only the call that it covers fails
    #[command(after_help = "Example: troupe approvals deny 0000dd04 --reason 'not in this session'")]
    Deny(Decision),
}

/// The arguments of the listing.
#[derive(Debug, clap::Args)]
struct List {
    /// Session [default: all open sessions]
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Include decided approvals
    #[arg(long)]
    all: bool,
}

/// An approval.
#[derive(Debug, clap::Args)]
struct Named {
    /// Approval: an id, or the beginning or the end of one
    #[arg(value_name = "ID")]
    approval: String,
    /// Session of the approval [default: any open session]
    #[arg(long, value_name = "ID")]
    session: Option<String>,
}

/// The arguments of a decision.
#[derive(Debug, clap::Args)]
struct Decision {
    /// The approval.
    #[command(flatten)]
    named: Named,
    /// Reason; the agent receives it
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
}

/// Runs the action. Lists the approvals by default.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    match args.action {
        Some(Action::Grant(decision)) => decide(decision, true, context).await,
        Some(Action::Deny(decision)) => decide(decision, false, context).await,
        Some(Action::Show(named)) => show(named, context).await,
        None => list(args.list, context).await,
    }
}

async fn list(args: List, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let mut approvals = Vec::new();
    for session in ids::open_sessions(&mut supervisor, args.session.as_deref()).await? {
        approvals.extend(listing::approvals(&mut supervisor, &session, args.all).await?);
    }
    let mut calls = Vec::new();
    for approval in &approvals {
        // Calls of decided approvals are shown by `show` only.
        calls.push(match is_waiting(approval) {
            true => Call::of(&mut supervisor, approval).await?,
            false => None,
        });
    }
    let now = SystemTime::now();
    let shown = || approvals.iter().zip(&calls);
    context.ui.answer(
        || json!({ "approvals": shown().map(|(approval, call)| to_json(approval, call.as_ref())).collect::<Vec<_>>() }),
        || match approvals.as_slice() {
            [] => "no approvals are pending".to_owned(),
            _ => {
                let sections =
                    shown().map(|(approval, call)| section(approval, call.as_ref(), now, context.ui.columns()));
                sections.collect::<Vec<_>>().join("\n\n")
            }
        },
    )?;
    if approvals.iter().any(is_waiting) {
        context
            .ui
            .note("`troupe approvals grant ID` grants an approval, `troupe approvals deny ID` denies it");
    }
    Ok(())
}

async fn show(args: Named, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let approval = ids::approval(&mut supervisor, &args.approval, args.session.as_deref()).await?;
    let call = Call::of(&mut supervisor, &approval).await?;
    context.ui.answer(
        || json!({ "approval": to_json(&approval, call.as_ref()) }),
        || section(&approval, call.as_ref(), SystemTime::now(), context.ui.columns()),
    )
}

/// The complete tool call that an approval covers.
#[derive(Debug, serde::Deserialize, serde::Serialize)]
pub(super) struct Call {
    tool: String,
    arguments: Value,
    resolved_paths: Vec<String>,
}

impl Call {
    /// Reads the tool call of an approval. Returns `None` if the approval has no tool call or the caller may not read
    /// it.
    pub(super) async fn of(supervisor: &mut Supervisor, approval: &Approval) -> Result<Option<Self>> {
        let Some(content) = &approval.content else {
            return Ok(None);
        };
        let text = match content::text(supervisor, &approval.session_id, &content.digest).await {
            Ok(text) => text,
            // Viewers may read the digest only.
            Err(error) if error.reason() == Some("NOT_PERMITTED") => return Ok(None),
            Err(error) => return Err(error),
        };
        serde_json::from_str(&text).map(Some).map_err(|error| {
            Error::failure(format!(
                "the call of approval {} is unreadable: {error}",
                approval.approval_id
            ))
        })
    }

    /// Formats the complete call as lines.
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("tool: {}", self.tool)];
        match &self.arguments {
            Value::Object(arguments) => {
                for (name, value) in arguments {
                    match value {
                        Value::String(text) if text.contains('\n') => {
                            lines.push(format!("{name}:"));
                            lines.extend(text.lines().map(|line| format!("  {line}")));
                        }
                        Value::String(text) => lines.push(format!("{name}: {text}")),
                        other => lines.push(format!("{name}: {other}")),
                    }
                }
            }
            other => lines.push(format!("arguments: {other}")),
        }
        match self.resolved_paths.as_slice() {
            [] => lines.push("paths: not known".to_owned()),
            paths => lines.extend(paths.iter().map(|path| format!("path: {path}"))),
        }
        lines
    }
}

fn to_json(approval: &Approval, call: Option<&Call>) -> Value {
    let mut shown = json::message(approval);
    shown["call"] = json!(call);
    shown
}

/// Formats the threads of an approval: its subject, then the ancestors.
fn chain(approval: &Approval) -> String {
    let threads = approval.threads.iter().map(|thread| {
        let id = ids::short(&thread.thread_id);
        match thread.alias.as_str() {
            "" => format!("{} {id}", thread.agent_type),
            alias => format!("{} \"{alias}\" {id}", thread.agent_type),
        }
    });
    threads.collect::<Vec<_>>().join(" < ")
}

fn is_waiting(approval: &Approval) -> bool {
    approval.decision() == ApprovalDecision::Unspecified
}

/// Formats an approval: its short id, its state and its complete effect.
pub(super) fn section(approval: &Approval, call: Option<&Call>, now: SystemTime, columns: usize) -> String {
    let head = Line::default()
        .mark(style::HEADING, ids::short(&approval.approval_id))
        .word(style::NAME, names::approval_kind(approval.kind()))
        .word(style::DIM, format!("thread {}", ids::short(&approval.thread_id)));
    let head = if is_waiting(approval) {
        let asked = time::age(approval.create_time.as_ref(), now);
        let left = time::left(approval.deadline.as_ref(), now);
        head.word(style::WARN, "waits")
            .word(style::DIM, format!("asked {asked} ago, denied in {left}"))
    } else {
        head.word(style::PLAIN, names::approval_decision(approval.decision()))
            .word(style::DIM, format!("by {}", approval.decided_by))
            .word(style::DIM, &approval.reason)
    };
    let subject = sanitize::block(&approval.subject);
    let mut lines = vec![head.render(columns)];
    lines.extend(
        subject
            .lines()
            .map(|line| Line::default().mark(style::PLAIN, format!("  {line}")).render(columns)),
    );
    if !approval.threads.is_empty() {
        lines.push(format!(
            "  threads: {}",
            sanitize::block(&chain(approval)).replace('\n', " ")
        ));
    }
    for line in call.map(Call::lines).unwrap_or_default() {
        // A line of the call has no line break, so it cannot imitate another field. The line is never truncated.
        lines.push(format!("  {}", sanitize::block(&line).replace('\n', " ")));
    }
    if !approval.call_sha256.is_empty() {
        lines.push(format!("  sha256: {}", approval.call_sha256));
    }
    lines.join("\n")
}

async fn decide(args: Decision, grant: bool, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let asked = ids::approval(&mut supervisor, &args.named.approval, args.named.session.as_deref()).await?;
    let request = ResolveApprovalRequest {
        request_id: troupe_client::request_id(),
        session_id: asked.session_id,
        approval_id: asked.approval_id,
        grant,
        reason: args.reason,
    };
    let answer = supervisor.resolve_approval(request).await?.into_inner();
    let decided = answer
        .approval
        .ok_or_else(|| Error::failure("the supervisor returned no approval"))?;
    context.ui.answer(
        || json!({ "approval": json::message(&decided) }),
        || section(&decided, None, SystemTime::now(), context.ui.columns()),
    )?;
    if grant && decided.decision() != ApprovalDecision::Granted {
        let decision = names::approval_decision(decided.decision());
        return Err(
            Error::failure(format!("approval {} is {decision}, not granted", decided.approval_id))
                .hint("its subject is closed; `troupe ps` lists the open threads"),
        );
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use std::time::Duration;

    use prost_types::Timestamp;
    use troupe_proto::supervisor::v1::{ApprovalKind, ApprovalThread};

    use super::*;
    use crate::ui;

    #[test]
    fn approval_section_shows_whole_tool_call() {
        let thread = |id: &str, agent_type: &str, alias: &str| ApprovalThread {
            thread_id: id.to_owned(),
            agent_type: agent_type.to_owned(),
            alias: alias.to_owned(),
        };
        let waiting = Approval {
            approval_id: "01939c5a-0000-7000-8000-00000000dd04".to_owned(),
            kind: ApprovalKind::Tool.into(),
            subject: "Tool call: exec_command {".to_owned(),
            call_sha256: "ab".repeat(32),
            threads: vec![thread("0000aa01", "worker", "Ann"), thread("0000aa00", "default", "")],
            ..Approval::default()
        };
        let end = format!("{}&& rm -r .", "x".repeat(1_000));
        let call = Call {
            tool: "exec_command".to_owned(),
            arguments: json!({"cmd": end, "patch": "one\ntwo\u{1b}[2J"}),
            resolved_paths: vec!["/w/a".to_owned()],
        };
        let text = ui::plain(&section(&waiting, Some(&call), SystemTime::UNIX_EPOCH, 80));
        for line in [
            "  threads: worker \"Ann\" 0000aa01 < default 0000aa00".to_owned(),
            format!("  cmd: {end}"),
            "    one".to_owned(),
            "    two[2J".to_owned(),
            "  path: /w/a".to_owned(),
            format!("  sha256: {}", "ab".repeat(32)),
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line:?} is not in {text}");
        }
    }

    #[test]
    fn approval_section_is_complete_and_safe() {
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
            ui::plain(&section(&waiting, None, now, 120)),
            "0000dd04  SPAWN  thread 0000aa01  waits  asked 2m ago, denied in 8m\n  \
             Spawn node: Docs[2J (planner)\n  asked by: lead"
        );
        let denied = Approval {
            decision: ApprovalDecision::Denied.into(),
            decided_by: "operator:local".to_owned(),
            reason: "not now".to_owned(),
            ..waiting
        };
        let text = ui::plain(&section(&denied, None, now, 120));
        assert!(
            text.starts_with("0000dd04  SPAWN  thread 0000aa01  DENIED  by operator:local  not now\n"),
            "{text}"
        );
    }
}
