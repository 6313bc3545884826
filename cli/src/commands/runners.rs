//! `troupe runners`: lists the runners that the supervisor knows.

use serde_json::json;
use troupe_proto::supervisor::v1::{Runner, RunnerState};

use crate::{
    context::Context,
    error::Result,
    json, listing, names,
    ui::{self, Cell, Table, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe runners
  troupe runners --output wide
  troupe runners --output json | jq -r '.runners[].runner_id'

A disconnected runner keeps its threads until its lease expires. `troupe run` starts a runner.";

/// The arguments of `runners`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {}

/// Lists the runners.
pub(crate) async fn run(_: Args, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let runners = listing::runners(&mut supervisor).await?;
    context.ui.table(
        || json!({ "runners": json::list(&runners) }),
        || table(&runners),
        "no runner is attached; `troupe run` starts one",
    )
}

fn table(runners: &[Runner]) -> Table<8> {
    let mut table = Table::new([
        "RUNNER", "STATE", "KINDS", "CAPACITY", "PROGRAMS", "WORKING", "LABELS", "SESSION",
    ])
    .wide(&["LABELS", "SESSION"]);
    for runner in runners {
        let kinds: Vec<&str> = runner.kinds.iter().map(|kind| kind.kind.as_str()).collect();
        let capacity = match runner.capacity {
            0 => "any".to_owned(),
            capacity => capacity.to_string(),
        };
        let style_of_state = match runner.state() {
            RunnerState::Attached => style::GOOD,
            RunnerState::Draining | RunnerState::Disconnected | RunnerState::Unspecified => style::WARN,
        };
        table.row([
            Cell::new(style::NAME, &runner.runner_id),
            Cell::new(style_of_state, names::runner_state(runner.state())),
            Cell::plain(kinds.join(",")),
            Cell::plain(capacity),
            Cell::plain(runner.programs.to_string()),
            Cell::plain(runner.working.to_string()),
            Cell::plain(ui::labels(&runner.labels, ",")),
            Cell::plain(&runner.session_id),
        ]);
    }
    table
}
