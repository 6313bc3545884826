//! Flags that several commands share.

use std::{path::PathBuf, time::Duration};

use clap::ValueEnum;
use troupe_proto::{common::v1::Mode, supervisor::v1::Budget};

use crate::{
    context,
    error::{Error, Result},
    time,
};

/// The project that a command is about, as far as there is one.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ProjectArgs {
    /// The project's directory: whose roles there are, and where agents work [default: the current directory]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// No directory: the registry's own roles, and an empty directory for each agent
    ///
    /// For a pair that does not see this disk, as one in a cluster: what lies here is neither named nor uploaded. The
    /// roles are those that the registry has for everybody, and the embedded ones.
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

/// The mode of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SessionMode {
    /// The repository is read-only except docs/
    Planning,
    /// Code may change
    Implementation,
}

impl From<SessionMode> for Mode {
    fn from(mode: SessionMode) -> Self {
        match mode {
            SessionMode::Planning => Self::Planning,
            SessionMode::Implementation => Self::Implementation,
        }
    }
}

/// A new budget in the place of the present one. What is not given is without bound.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(required = true, multiple = true)]
pub(crate) struct NewBudget {
    /// Tokens, read and written
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    tokens: Option<u64>,
    /// Turns
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    turns: Option<u32>,
    /// Time in running turns
    #[arg(long, value_name = "SPAN", value_parser = time::parse_some_duration)]
    time: Option<Duration>,
    /// No bound at all
    #[arg(long, conflicts_with_all = ["tokens", "turns", "time"])]
    unlimited: bool,
}

impl From<NewBudget> for Budget {
    fn from(budget: NewBudget) -> Self {
        given(budget.tokens, budget.turns, budget.time)
    }
}

/// The budget of an agent that is spawned.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct SpawnBudget {
    /// What the agent and those below it may spend: tokens, read and written
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    budget_tokens: Option<u64>,
    /// As many turns
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    budget_turns: Option<u32>,
    /// As much time in running turns
    #[arg(long, value_name = "SPAN", value_parser = time::parse_some_duration)]
    budget_time: Option<Duration>,
}

impl SpawnBudget {
    /// Returns the budget, or `None` if no limit is given.
    pub(crate) fn given(self) -> Option<Budget> {
        let budget = given(self.budget_tokens, self.budget_turns, self.budget_time);
        (budget != Budget::default()).then_some(budget)
    }
}

fn given(tokens: Option<u64>, turns: Option<u32>, time: Option<Duration>) -> Budget {
    Budget {
        tokens: tokens.unwrap_or_default(),
        turns: turns.unwrap_or_default(),
        wall_time: time.map(time::to_proto),
    }
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

    fn parse(arguments: &[&str]) -> Option<Budget> {
        let line = ["budget"].iter().chain(arguments);
        Line::try_parse_from(line).ok().map(|line| line.budget.into())
    }

    #[test]
    fn a_budget_has_a_bound_or_says_that_it_has_none() {
        let both = parse(&["--tokens", "1000", "--time", "90s"]).unwrap();
        assert_eq!((both.tokens, both.turns), (1000, 0));
        assert_eq!(budget_in_words(Some(&both)), "1000 tokens, 90s in turns");
        let none = parse(&["--unlimited"]).unwrap();
        assert_eq!(none, Budget::default());
        assert_eq!(budget_in_words(Some(&none)), "no bound");
        for wrong in [
            &["--unlimited", "--turns", "1"][..],
            &["--tokens", "0"],
            &["--time", "0"],
            &[],
        ] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_spawn_without_bounds_has_no_budget() {
        assert_eq!(SpawnBudget::default().given(), None);
        let bounded = SpawnBudget {
            budget_turns: Some(2),
            ..SpawnBudget::default()
        };
        assert_eq!(bounded.given().map(|budget| budget.turns), Some(2));
    }
}
