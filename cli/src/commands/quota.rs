//! `troupe quota`: shows limits, slots and budgets in use.

use supervisor_core::resource::decimal;
use troupe_proto::supervisor::v1::{Budget, GetQuotaRequest, Quota, Usage};

use crate::{
    context::Context,
    error::{Error, Result},
    ids::{self, Target},
    json,
    ui::{self, Fields},
};

const AFTER_HELP: &str = "\
Examples:
  troupe quota
  troupe quota scout
  troupe quota 0000cc03 --output jsonpath=.quota.active_threads";

/// The arguments of `quota`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Session or thread [default: the current session]
    #[arg(value_name = "ID")]
    target: Option<String>,
}

/// Shows the quota of a session and of one of its threads.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let target = match &args.target {
        Some(text) => ids::target(&mut supervisor, text).await?,
        None => Target::Session(ids::session_or_current(&mut supervisor, None).await?),
    };
    let request = match target {
        Target::Session(session_id) => GetQuotaRequest {
            session_id,
            ..GetQuotaRequest::default()
        },
        Target::Thread(thread_id) => GetQuotaRequest {
            thread_id,
            ..GetQuotaRequest::default()
        },
    };
    let answer = supervisor.get_quota(request).await?.into_inner();
    let quota = answer.quota.as_ref().ok_or_else(Error::empty_answer)?;
    context.ui.page(|| json::message(&answer), || fields(quota))
}

fn fields(quota: &Quota) -> Fields {
    let limits = quota.limits.unwrap_or_default();
    let of = |used: u32, limit: Option<u32>| match limit {
        Some(limit) => format!("{used} of {limit}"),
        None => used.to_string(),
    };
    Fields::default()
        .field("active threads", of(quota.active_threads, limits.max_threads))
        .field("queued threads", quota.queued_threads.to_string())
        .field("open threads", of(quota.open_threads, limits.max_open_threads))
        .field("total threads", of(quota.total_threads, limits.max_total_threads))
        .field("remaining depth", quota.remaining_depth.to_string())
        .field("session budget", used(quota.usage.as_ref(), quota.budget.as_ref()))
        .field(
            "thread budget",
            used(quota.thread_usage.as_ref(), quota.thread_budget.as_ref()),
        )
}

/// Formats the usage with the limits of the budget: `12k of 500000 tokens, 3 turns`.
fn used(usage: Option<&Usage>, budget: Option<&Budget>) -> String {
    let usage = usage.copied().unwrap_or_default();
    let budget = budget.copied().unwrap_or_default();
    let tokens = match (ui::tokens(&usage), budget.tokens) {
        (used, 0) if used.is_empty() => String::new(),
        (used, 0) => format!("{used} tokens"),
        (used, bound) if used.is_empty() => format!("0 of {bound} tokens"),
        (used, bound) => format!("{used} of {bound} tokens"),
    };
    let turns = match budget.turns {
        0 => ui::count(usage.turns, "turn"),
        bound => format!("{} of {bound} turns", usage.turns),
    };
    let spent = usage.wall_time.map(|span| span.to_string());
    let time = match (spent, budget.wall_time) {
        (spent, Some(bound)) => format!("{} of {bound} in turns", spent.unwrap_or_else(|| "0s".to_owned())),
        (Some(spent), None) => format!("{spent} in turns"),
        (None, None) => String::new(),
    };
    let cost = match (ui::cost(&usage), budget.cost_micros) {
        (spent, 0) if spent.is_empty() => spent,
        (spent, 0) => format!("cost {spent}"),
        (spent, bound) => {
            let spent = if spent.is_empty() { "0.00" } else { &spent };
            format!("cost {spent} of {}", decimal(bound))
        }
    };
    let parts = [tokens, turns, time, cost].into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_shown_with_budget() {
        let usage = Usage {
            input_tokens: 12_000,
            turns: 3,
            ..Usage::default()
        };
        let budget = Budget {
            tokens: 500_000,
            ..Budget::default()
        };
        assert_eq!(
            used(Some(&usage), Some(&budget)),
            "12k of 500000 tokens, 3 turns, cost 0.00"
        );
        let unpriced = Usage {
            unpriced_tokens: 1,
            ..usage
        };
        let bounded = Budget {
            cost_micros: 2_000_000,
            ..Budget::default()
        };
        assert_eq!(
            used(Some(&unpriced), Some(&bounded)),
            "12k tokens, 3 turns, cost unknown of 2.00"
        );
        let partly = Usage {
            cost_micros: 12_345,
            ..unpriced
        };
        assert_eq!(
            used(Some(&partly), None),
            "12k tokens, 3 turns, cost 0.012345 + unknown"
        );
        assert_eq!(used(None, Some(&bounded)), "0 turns, cost 0.00 of 2.00");
        assert_eq!(used(None, None), "0 turns");
    }
}
