//! `troupe runners`: lists the runners that hold threads.

use std::collections::BTreeMap;

use serde_json::json;
use troupe_proto::supervisor::v1::{ConditionKind, StatusKind, Thread};

use crate::{
    context::Context,
    error::Result,
    listing,
    ui::{self, Cell, Table, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe runners
  troupe runners --output json

A runner is listed while it holds open threads. `troupe run` starts a runner.";

/// The arguments of `runners`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {}

/// The threads of one runner.
#[derive(Debug, Default)]
struct Held {
    threads: usize,
    running: usize,
    unreachable: usize,
    waiting: usize,
}

/// Lists the runners of all open sessions.
pub(crate) async fn run(_: Args, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let mut runners: BTreeMap<String, Held> = BTreeMap::new();
    for session in listing::sessions(&mut supervisor, false).await? {
        for thread in listing::threads(&mut supervisor, &session.session_id, false).await? {
            add(&mut runners, &thread);
        }
    }
    let without = runners.remove("").map(|held| held.waiting).unwrap_or_default();
    if without > 0 {
        context
            .ui
            .note(format!("{without} threads wait for a runner; `troupe run` starts one"));
    }
    context.ui.table(
        || {
            let runners = runners.iter().map(|(id, held)| {
                json!({
                    "runner_id": id,
                    "threads": held.threads,
                    "running": held.running,
                    "unreachable": held.unreachable,
                })
            });
            json!({ "runners": runners.collect::<Vec<_>>(), "waiting_threads": without })
        },
        || table(&runners),
        "no runner holds threads",
    )
}

fn add(runners: &mut BTreeMap<String, Held>, thread: &Thread) {
    let held = runners.entry(thread.runner_id.clone()).or_default();
    let has = |kind: ConditionKind| thread.conditions.iter().any(|condition| condition.kind() == kind);
    held.threads += 1;
    held.running += usize::from(ui::status_of(thread) == StatusKind::Running);
    held.unreachable += usize::from(has(ConditionKind::Unreachable));
    held.waiting += usize::from(has(ConditionKind::NoRunner));
}

fn table(runners: &BTreeMap<String, Held>) -> Table<4> {
    let mut table = Table::new(["RUNNER", "THREADS", "RUNNING", "UNREACHABLE"]);
    for (id, held) in runners {
        table.row([
            Cell::new(style::NAME, id),
            Cell::plain(held.threads.to_string()),
            Cell::plain(held.running.to_string()),
            Cell::new(style::WARN, held.unreachable.to_string()),
        ]);
    }
    table
}
