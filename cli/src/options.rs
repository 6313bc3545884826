//! Flags that several commands share.

use std::{path::PathBuf, time::Duration};

use supervisor_core::resource::decimal;
use troupe_proto::supervisor::v1::Budget;

use crate::{
    context,
    error::{Error, Result},
    filter::Filter,
    message, time,
};

/// The result that an agent has to report.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Result")]
pub(crate) struct ResultArgs {
    /// JSON Schema file of the result that the agent must report
    ///
    /// A turn that ends without a valid result is followed by a repair turn that lists the errors.
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,
    /// Repair turns before the agent counts as failed, at most 3 [default: 1]
    #[arg(long, value_name = "NUMBER", requires = "schema")]
    pub(crate) repairs: Option<u32>,
}

impl ResultArgs {
    /// Returns the schema as sent to the supervisor. Empty without a schema file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    pub(crate) fn schema(&self) -> Result<String> {
        self.schema.as_deref().map_or(Ok(String::new()), message::read_file)
    }
}

/// The threads of a list.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct FilterArg {
    /// List only threads that match; a tree has the threads above them too
    #[arg(
        long,
        value_name = "FILTER",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    pub(crate) filter: Filter,
}

/// The project of a command.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ProjectArgs {
    /// Project directory, for roles and as the agents' working directory [default: the current directory]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Use no project directory: the registry's own roles, and an empty directory for each agent
    ///
    /// For services without access to this disk, such as services in a cluster. No path and no template of this machine
    /// is sent. The roles are those of the registry's home and the embedded ones.
    #[arg(long, conflicts_with = "cwd")]
    no_cwd: bool,
}

impl ProjectArgs {
    /// Returns the directory as sent to the services. Empty without a directory.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be determined or is not valid UTF-8.
    pub(crate) fn cwd(&self) -> Result<String> {
        if self.no_cwd {
            return Ok(String::new());
        }
        let directory = context::directory(self.cwd.as_deref())?.into_os_string().into_string();
        directory
            .map_err(|path| Error::usage(format!("the directory {path:?} is not valid UTF-8")).hint("pass --cwd DIR"))
    }

    /// Returns whether one of the flags is set.
    pub(crate) const fn is_given(&self) -> bool {
        self.no_cwd || self.cwd.is_some()
    }
}

/// Parses `KEY=VALUE`.
///
/// # Errors
///
/// Returns a message if the equals sign or the key is missing.
pub(crate) fn key_value(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}

/// Changes of a budget. Bounds that are not given do not change.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(required = true, multiple = true)]
pub(crate) struct NewBudget {
    /// Bound of input and output tokens
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    tokens: Option<u64>,
    /// Bound of turns
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    turns: Option<u32>,
    /// Bound of the time in running turns
    #[arg(long, value_name = "SPAN", value_parser = time::parse_some_duration)]
    time: Option<Duration>,
    /// Bound of the cost, in the session's currency
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    cost: Option<u64>,
    /// Remove all bounds, or all others if some are given
    #[arg(long)]
    unlimited: bool,
}

impl NewBudget {
    /// Returns the current budget with the changes.
    pub(crate) fn of(self, present: Option<&Budget>) -> Budget {
        let present = present.copied().filter(|_| !self.unlimited).unwrap_or_default();
        Budget {
            tokens: self.tokens.unwrap_or(present.tokens),
            turns: self.turns.unwrap_or(present.turns),
            wall_time: self.time.map(time::to_proto).or(present.wall_time),
            cost_micros: self.cost.unwrap_or(present.cost_micros),
        }
    }
}

/// The budget of an agent that is spawned.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct SpawnBudget {
    /// Budget of input and output tokens of the agent and its descendants
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    budget_tokens: Option<u64>,
    /// Turn budget of the agent and its descendants
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    budget_turns: Option<u32>,
    /// Time budget of the agent and its descendants, in running turns
    #[arg(long, value_name = "SPAN", value_parser = time::parse_some_duration)]
    budget_time: Option<Duration>,
    /// Cost budget of the agent and its descendants, in the session's currency
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    budget_cost: Option<u64>,
}

impl SpawnBudget {
    /// Returns the budget, or `None` if no limit is given.
    pub(crate) fn given(self) -> Option<Budget> {
        let budget = Budget {
            tokens: self.budget_tokens.unwrap_or_default(),
            turns: self.budget_turns.unwrap_or_default(),
            wall_time: self.budget_time.map(time::to_proto),
            cost_micros: self.budget_cost.unwrap_or_default(),
        };
        bounded(budget)
    }
}

/// Returns the budget, or `None` if the budget has no bound.
pub(crate) fn bounded(budget: Budget) -> Option<Budget> {
    (budget != Budget::default()).then_some(budget)
}

/// Parses an amount of money such as `2.50` to millionths.
///
/// # Errors
/// Returns a message if the text is not such a number, has more than six decimal places, is 0, or is too large.
pub(crate) fn amount(text: &str) -> std::result::Result<u64, String> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_valid = !whole.is_empty() && decimals.len() <= 6 && is_number(whole) && is_number(decimals);
    format!("{whole}{decimals:0<6}")
        .parse()
        .ok()
        .filter(|millionths| is_valid && *millionths > 0)
        .ok_or_else(|| "expected an amount above 0 with at most six decimal places, such as 2.50".to_owned())
}

/// Formats a budget for people: `1000 tokens, 5 turns`.
pub(crate) fn budget_in_words(budget: Option<&Budget>) -> String {
    let budget = budget.copied().unwrap_or_default();
    let bounds = [
        (budget.tokens > 0).then(|| format!("{} tokens", budget.tokens)),
        (budget.turns > 0).then(|| format!("{} turns", budget.turns)),
        budget.wall_time.map(|span| format!("{span} in turns")),
        (budget.cost_micros > 0).then(|| format!("{} of cost", decimal(budget.cost_micros))),
    ];
    let bounds: Vec<String> = bounds.into_iter().flatten().collect();
    if bounds.is_empty() {
        "no bound".to_owned()
    } else {
        bounds.join(", ")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        budget: NewBudget,
    }

    fn parse(arguments: &[&str]) -> Option<NewBudget> {
        let line = ["budget"].iter().chain(arguments);
        Line::try_parse_from(line).ok().map(|line| line.budget)
    }

    #[test]
    fn other_bounds_do_not_change() {
        let first = parse(&["--tokens", "1000", "--time", "90s"]).unwrap().of(None);
        assert_eq!((first.tokens, first.turns), (1000, 0));
        assert_eq!(budget_in_words(Some(&first)), "1000 tokens, 90s in turns");
        let second = parse(&["--turns", "5"]).unwrap().of(Some(&first));
        assert_eq!(budget_in_words(Some(&second)), "1000 tokens, 5 turns, 90s in turns");
        let costly = parse(&["--cost", "0.5"]).unwrap().of(Some(&first));
        assert_eq!(
            budget_in_words(Some(&costly)),
            "1000 tokens, 90s in turns, 0.50 of cost"
        );
        let third = parse(&["--unlimited", "--turns", "1"]).unwrap().of(Some(&second));
        assert_eq!(budget_in_words(Some(&third)), "1 turns");
        let none = parse(&["--unlimited"]).unwrap().of(Some(&third));
        assert_eq!(budget_in_words(Some(&none)), "no bound");
        for wrong in [&["--tokens", "0"][..], &["--time", "0"], &["--cost", "0.0"], &[]] {
            assert!(parse(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn amounts_are_decimal_numbers() {
        for (text, millionths) in [("2", 2_000_000), ("0.000001", 1), (".", 0), ("2.5", 2_500_000)] {
            assert_eq!(amount(text).unwrap_or_default(), millionths, "{text}");
        }
        for wrong in [
            "",
            "-1",
            "+1",
            "1e3",
            "1,5",
            "0",
            "0.0000001",
            "1.+5",
            "99999999999999999999",
        ] {
            assert!(amount(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn spawn_without_bounds_has_no_budget() {
        assert_eq!(SpawnBudget::default().given(), None);
        let bounded = SpawnBudget {
            budget_turns: Some(2),
            ..SpawnBudget::default()
        };
        assert_eq!(bounded.given().map(|budget| budget.turns), Some(2));
    }
}
