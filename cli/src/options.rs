//! Flags that several commands share.

use std::{path::PathBuf, time::Duration};

use troupe_proto::supervisor::v1::Budget;

use crate::{
    context,
    error::{Error, Result},
    time,
};

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
/// Returns a message without an equals sign or a key.
pub(crate) fn key_value(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}

/// Changes of a budget. Bounds that are not given stay as they are.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(required = true, multiple = true)]
pub(crate) struct NewBudget {
    /// Bound of tokens, read and written
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    tokens: Option<u64>,
    /// Bound of turns
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    turns: Option<u32>,
    /// Bound of the time in running turns
    #[arg(long, value_name = "SPAN", value_parser = time::parse_some_duration)]
    time: Option<Duration>,
    /// Remove all bounds, or all others if some are given
    #[arg(long)]
    unlimited: bool,
}

impl NewBudget {
    /// Returns the present budget with the changes.
    pub(crate) fn of(self, present: Option<&Budget>) -> Budget {
        let present = present.copied().filter(|_| !self.unlimited).unwrap_or_default();
        Budget {
            tokens: self.tokens.unwrap_or(present.tokens),
            turns: self.turns.unwrap_or(present.turns),
            wall_time: self.time.map(time::to_proto).or(present.wall_time),
        }
    }
}

/// The budget of an agent that is spawned.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct SpawnBudget {
    /// Token budget of the agent and its descendants, read and written
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    budget_tokens: Option<u64>,
    /// Turn budget of the agent and its descendants
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    budget_turns: Option<u32>,
    /// Time budget of the agent and its descendants, in running turns
    #[arg(long, value_name = "SPAN", value_parser = time::parse_some_duration)]
    budget_time: Option<Duration>,
}

impl SpawnBudget {
    /// Returns the budget, or `None` if no limit is given.
    pub(crate) fn given(self) -> Option<Budget> {
        bounds(self.budget_tokens, self.budget_turns, self.budget_time)
    }
}

/// Returns the budget with these bounds, or `None` without a bound.
pub(crate) fn bounds(tokens: Option<u64>, turns: Option<u32>, time: Option<Duration>) -> Option<Budget> {
    let budget = Budget {
        tokens: tokens.unwrap_or_default(),
        turns: turns.unwrap_or_default(),
        wall_time: time.map(time::to_proto),
    };
    (budget != Budget::default()).then_some(budget)
}

/// Formats a budget for people: `1000 tokens, 5 turns`.
pub(crate) fn budget_in_words(budget: Option<&Budget>) -> String {
    let budget = budget.copied().unwrap_or_default();
    let bounds = [
        (budget.tokens > 0).then(|| format!("{} tokens", budget.tokens)),
        (budget.turns > 0).then(|| format!("{} turns", budget.turns)),
        budget.wall_time.map(|span| format!("{span} in turns")),
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
    fn other_bounds_stay() {
        let first = parse(&["--tokens", "1000", "--time", "90s"]).unwrap().of(None);
        assert_eq!((first.tokens, first.turns), (1000, 0));
        assert_eq!(budget_in_words(Some(&first)), "1000 tokens, 90s in turns");
        let second = parse(&["--turns", "5"]).unwrap().of(Some(&first));
        assert_eq!(budget_in_words(Some(&second)), "1000 tokens, 5 turns, 90s in turns");
        let third = parse(&["--unlimited", "--turns", "1"]).unwrap().of(Some(&second));
        assert_eq!(budget_in_words(Some(&third)), "1 turns");
        let none = parse(&["--unlimited"]).unwrap().of(Some(&third));
        assert_eq!(budget_in_words(Some(&none)), "no bound");
        for wrong in [&["--tokens", "0"][..], &["--time", "0"], &[]] {
            assert!(parse(wrong).is_none(), "{wrong:?}");
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
