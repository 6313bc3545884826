//! `troupe show`: shows a session or a thread.

use std::time::SystemTime;

use clap_complete::ArgValueCompleter;
use serde_json::json;
use troupe_proto::{
    common::v1::{EdgeManagement, ToolPolicy},
    supervisor::v1::{GetThreadRequest, Limits, RollUp, Session, Thread, plan_step::State},
};

use crate::{
    complete,
    context::Context,
    error::{Error, Result},
    ids::{self, Target},
    json, listing, names,
    options::budget_in_words,
    time,
    ui::{self, Fields, Line, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe show @last
  troupe show scout
  troupe show 0000cc03 --output yaml";

/// The arguments of `show`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Session or thread: an id, the beginning or the end of one, an alias, or @last
    #[arg(value_name = "ID", add = ArgValueCompleter::new(complete::threads))]
    target: String,
}

/// Shows the session or the thread.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    match ids::target(&mut supervisor, &args.target).await? {
        Target::Session(session_id) => {
            let session = listing::session(&mut supervisor, session_id).await?;
            context.ui.page(
                || json!({ "session": json::message(&session) }),
                || session_fields(&session, SystemTime::now()),
            )
        }
        Target::Thread(thread_id) => {
            let request = GetThreadRequest {
                thread_id,
                ..GetThreadRequest::default()
            };
            let answer = supervisor.get_thread(request).await?.into_inner();
            let thread = answer.thread.as_ref().ok_or_else(Error::empty_answer)?;
            context
                .ui
                .page(|| json::message(&answer), || thread_fields(thread, SystemTime::now()))
        }
    }
}

/// Formats a session.
pub(super) fn session_fields(session: &Session, now: SystemTime) -> Fields {
    let (_, state) = style::session_state(session);
    let roll_up = session.roll_up.clone().unwrap_or_default();
    let edges = match session.edge_management() {
        EdgeManagement::Unspecified => String::new(),
        edges => names::edge_management(edges).to_owned(),
    };
    let ceiling = session.tool_ceiling.clone().unwrap_or_default();
    let usage = roll_up.usage.unwrap_or_default();
    let cost = match ui::cost(&usage) {
        cost if cost.is_empty() || cost == "unknown" => cost,
        cost => format!("{cost} ({})", session.currency),
    };
    let webhooks = session.webhooks.iter().map(|webhook| webhook.url.as_str());
    Fields::default()
        .field("session", &session.session_id)
        .field("state", state)
        .field("root thread", &session.root_thread_id)
        .field("directory", &session.cwd)
        .field("labels", ui::labels(&session.labels, ", "))
        .field("mode", names::mode(session.mode()))
        .field("orchestration", names::orchestration(session.orchestration()))
        .field("threads", thread_counts(&roll_up))
        .field("tokens", ui::tokens(&usage))
        .field("cost", cost)
        .field("budget", budget_in_words(session.budget.as_ref()))
        .field("limits", limits(session.limits.unwrap_or_default()))
        .field("edges", edges)
        .field("orchestrators", session.orchestrators.join(", "))
        .field("allowed tools", ceiling.allow_list.join(" "))
        .field("denied tools", ceiling.deny_list.join(" "))
        .field("approved tools", session.approve_tools.join(" "))
        .field("runner labels", ui::labels(&session.runner_labels, ", "))
        .field("webhooks", webhooks.collect::<Vec<_>>().join("\n"))
        .field(
            "retention",
            session.retention.map(|span| span.to_string()).unwrap_or_default(),
        )
        .field("age", time::age(session.create_time.as_ref(), now))
}

/// Formats the number of threads by status: `2 RUNNING, 1 COMPLETED`.
pub(super) fn thread_counts(roll_up: &RollUp) -> String {
    let counts = roll_up.threads.iter().filter(|count| count.count > 0);
    let counts = counts.map(|count| format!("{} {}", count.count, names::status_kind(count.kind())));
    counts.collect::<Vec<_>>().join(", ")
}

fn limits(limits: Limits) -> String {
    let named = [
        ("depth", limits.max_depth),
        ("active threads", limits.max_threads),
        ("open threads", limits.max_open_threads),
        ("total threads", limits.max_total_threads),
    ];
    let given = named
        .into_iter()
        .filter_map(|(name, limit)| Some(format!("{name} {}", limit?)));
    given.collect::<Vec<_>>().join(", ")
}

/// Formats a thread.
pub(super) fn thread_fields(thread: &Thread, now: SystemTime) -> Fields {
    let status = thread.status.clone().unwrap_or_default();
    let usage = thread.usage.unwrap_or_default();
    let since = time::age(status.since.as_ref(), now);
    let conditions = thread.conditions.iter().map(|condition| {
        let name = names::condition_kind(condition.kind());
        format!("{name} {}", condition.reason)
    });
    let plan = thread.plan.iter().map(|step| {
        let mark = match step.state() {
            State::Completed => "[x]",
            State::InProgress => "[>]",
            State::Pending | State::Unspecified => "[ ]",
        };
        format!("{mark} {}", step.step)
    });
    let tool = thread.last_tool.clone().unwrap_or_default();
    let source = thread.source.clone().unwrap_or_default();
    let result = thread.result.clone().unwrap_or_default();
    Fields::default()
        .field("thread", &thread.thread_id)
        .field("session", &thread.session_id)
        .field("parent", &thread.parent_thread_id)
        .field("role", ui::role(thread))
        .field("template", source.path)
        .field("alias", &thread.alias)
        .field("task", &thread.label)
        .field("note", &thread.thread_note)
        .field(
            "status",
            format!("{} {}", names::status_kind(status.kind()), status.reason),
        )
        .field("since", since)
        .field("conditions", conditions.collect::<Vec<_>>().join("\n"))
        .field("message", &status.message)
        .field("result", result.document_json)
        .field("activity", &thread.activity)
        .field("last tool", format!("{} {}", tool.name, tool.detail))
        .field("plan", plan.collect::<Vec<_>>().join("\n"))
        .field("model", with_origin(thread, "model", &thread.model))
        .field("provider", with_origin(thread, "provider", &thread.provider))
        .field(
            "effort",
            with_origin(thread, "reasoning_effort", &thread.reasoning_effort),
        )
        .field("tokens", ui::tokens(&usage))
        .field("cost", ui::cost(&usage))
        .field("turns", usage.turns.to_string())
        .field(
            "context left",
            thread
                .context_left_percent
                .map(|left| format!("{left}%"))
                .unwrap_or_default(),
        )
        .field("budget", budget_in_words(thread.budget.as_ref()))
        .field(
            "sandbox",
            with_origin(thread, "sandbox", names::sandbox(thread.sandbox())),
        )
        .field("tools", policy(thread.tool_policy.as_ref()))
        .field("may spawn", thread.spawn_list.join(" "))
        .field("directory", &thread.working_directory)
        .field("runner", &thread.runner_id)
        .field("generation", thread.generation.to_string())
        .field("age", time::age(thread.create_time.as_ref(), now))
}

/// Returns a value with its origin: `gpt-5.2 (role)`.
fn with_origin(thread: &Thread, field: &str, value: &str) -> String {
    match thread.get_origins(field) {
        Some(origin) if !value.is_empty() => {
            format!("{value} ({})", names::value_origin(origin).to_ascii_lowercase())
        }
        _ => value.to_owned(),
    }
}

/// Formats the layers of a policy, one per line. A tool is allowed if every layer allows it.
fn policy(policy: Option<&ToolPolicy>) -> String {
    let layers = policy.map(|policy| policy.layers.as_slice()).unwrap_or_default();
    let lines = layers
        .iter()
        .filter(|layer| !layer.allow_list.is_empty() || !layer.deny_list.is_empty())
        .map(|layer| {
            let mut line = format!("{}:", layer.origin);
            if !layer.allow_list.is_empty() {
                line.push_str(&format!(" allow {}", layer.allow_list.join(" ")));
            }
            if !layer.deny_list.is_empty() {
                line.push_str(&format!(" deny {}", layer.deny_list.join(" ")));
            }
            line
        });
    lines.collect::<Vec<_>>().join("\n")
}

/// Formats a thread as its id and its status.
pub(super) fn line(thread: &Thread) -> Line {
    let kind = ui::status_of(thread);
    Line::default()
        .mark(style::PLAIN, &*thread.thread_id)
        .word(style::of_status(kind), names::status_kind(kind))
}

#[cfg(test)]
mod tests {
    use troupe_proto::supervisor::v1::{PlanStep, Status, StatusKind};

    use super::*;

    #[test]
    fn thread_shows_its_plan_and_message() {
        let thread = Thread {
            thread_id: "t".to_owned(),
            agent_type: "worker".to_owned(),
            status: Some(Status {
                kind: StatusKind::Completed.into(),
                message: "one\ntwo".to_owned(),
                ..Status::default()
            }),
            plan: vec![PlanStep {
                step: "Look".to_owned(),
                state: State::Completed.into(),
            }],
            ..Thread::default()
        };
        let text = ui::plain(&thread_fields(&thread, SystemTime::UNIX_EPOCH).render());
        assert!(text.contains("message     one\n            two"), "{text}");
        assert!(text.contains("plan        [x] Look"), "{text}");
        assert!(!text.contains("alias"), "{text}");
    }
}
