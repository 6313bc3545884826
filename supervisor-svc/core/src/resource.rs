//! The resources that budgets limit, and their amounts in texts.

use std::{fmt, time::Duration};

use crate::{
    ids::ThreadId,
    settings::{Budget, Usage},
};

/// A resource that a budget limits. Amounts are whole numbers: tokens, turns, milliseconds, or millionths of a
/// currency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Input and output tokens.
    Tokens,
    /// Completed turns.
    Turns,
    /// Time spent in running turns.
    WallTime,
    /// Cost.
    Cost,
}

impl Resource {
    /// All resources, in the order in which they are checked.
    pub const ALL: [Self; 4] = [Self::Tokens, Self::Turns, Self::WallTime, Self::Cost];

    /// Returns the name of the field in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Turns => "turns",
            Self::WallTime => "wall_time",
            Self::Cost => "cost",
        }
    }

    /// Returns the budget's limit for this resource. `None` means unlimited.
    #[must_use]
    pub fn bound(self, budget: &Budget) -> Option<u64> {
        match self {
            Self::Tokens => budget.tokens,
            Self::Turns => budget.turns.map(u64::from),
            Self::WallTime => budget.wall_time.map(millis),
            Self::Cost => budget.cost,
        }
    }

    /// Returns the used amount of this resource.
    #[must_use]
    pub fn spent(self, usage: &Usage) -> u64 {
        match self {
            Self::Tokens => usage.tokens(),
            Self::Turns => u64::from(usage.turns),
            Self::WallTime => millis(usage.wall_time),
            Self::Cost => usage.cost,
        }
    }

    /// Returns the first resource whose limit the usage reaches.
    pub(crate) fn reached(budget: &Budget, spent: &Usage) -> Option<Self> {
        Self::ALL.into_iter().find(|resource| {
            resource
                .bound(budget)
                .is_some_and(|bound| resource.spent(spent) >= bound)
        })
    }

    /// Returns an amount of this resource in human-readable form.
    pub(crate) const fn amount(self, amount: u64) -> Amount {
        Amount { resource: self, amount }
    }
}

/// Returns millionths as a decimal number with at least two decimal places.
#[must_use]
pub fn decimal(millionths: u64) -> String {
    let text = format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000);
    let kept = text.trim_end_matches('0').len().max(text.len() - 4);
    text.get(..kept).unwrap_or(&text).to_owned()
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) struct Amount {
    resource: Resource,
    amount: u64,
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.resource {
            Resource::Tokens | Resource::Turns => self.amount.fmt(f),
            Resource::WallTime if self.amount.is_multiple_of(1_000) => write!(f, "{}s", self.amount / 1_000),
            Resource::WallTime => write!(f, "{}ms", self.amount),
            Resource::Cost => f.write_str(&decimal(self.amount)),
        }
    }
}

/// The reason why a budget cannot be carved: the limit of the ancestor and the amount that is left of that limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The ancestor that limits the resource.
    pub thread: ThreadId,
    /// The resource.
    pub resource: Resource,
    /// The requested amount.
    pub asked: u64,
    /// The available amount.
    pub left: u64,
    /// The limit for the ancestor and its descendants.
    pub bound: u64,
    /// The amount that the ancestor and its descendants spent.
    pub spent: u64,
    /// The unspent amount that is reserved for other descendants.
    pub reserved: u64,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |amount| self.resource.amount(amount);
        write!(
            f,
            "budget.{} {} is more than agent {} has left: of {}, {} are spent and {} reserved; ask for at most {}, leave \
             it out to share that budget, or raise that budget with UpdateThreadBudget",
            self.resource.as_str(),
            show(self.asked),
            self.thread,
            show(self.bound),
            show(self.spent),
            show(self.reserved),
            show(self.left),
        )
    }
}
