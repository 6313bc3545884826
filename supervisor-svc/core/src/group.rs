//! Values of groups that commands, events and the state share.

use std::{fmt, time::Duration};

use crate::{content::ContentRef, ids::GroupId, principal::Actor, settings::Budget};

/// The properties of a group that its creation fixes.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupSpec {
    /// Its id.
    pub id: GroupId,
    /// A name that is unique in the session. Empty means no name.
    pub name: String,
    /// The actor that created the group, whose permissions apply to each spawn.
    pub creator: Actor,
    /// The encoded template and items.
    pub plan: ContentRef,
    /// The number of items.
    pub item_count: u32,
    /// Which items must succeed.
    pub join: Join,
    /// The treatment of the other items after too many failures.
    pub on_failure: OnFailure,
    /// The time limit of an attempt at an item. `None`: unlimited.
    pub item_deadline: Option<Duration>,
    /// Maximum number of retries of a failed item.
    pub retries: u32,
    /// The budget of all items together.
    pub budget: Budget,
    /// The settings that can change.
    pub limits: GroupLimits,
}

/// The settings of a group that can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// Maximum number of items that run at a time.
    pub max_concurrency: u32,
    /// The number of failed items that do not make the group fail.
    pub tolerated_failures: u32,
    /// Whether no further item starts.
    pub paused: bool,
}

/// A change of a group's limits. A field that is `None` keeps its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupLimitsChange {
    /// The maximum number of items that run at a time.
    pub max_concurrency: Option<u32>,
    /// The number of tolerated failures.
    pub tolerated_failures: Option<u32>,
    /// Whether no further item starts.
    pub paused: Option<bool>,
}

/// Which items of a group must succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// All items, except the tolerated failures.
    All,
    /// This number of items. Then the others are cancelled.
    Quorum(u32),
}

/// The treatment of the other items after too many failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// The other items still run.
    Continue,
    /// The other items are cancelled.
    CancelRest,
}

/// The outcome of an attempt at an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemOutcome {
    /// The turn completed, with a valid result if one was requested.
    Succeeded,
    /// The turn did not complete, or has no valid result.
    Failed,
    /// The attempt failed, and the item is tried again.
    Retried,
    /// The item was cancelled because its group was ending.
    Cancelled,
}

/// The outcome of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupOutcome {
    /// Enough items succeeded.
    Succeeded,
    /// Too many items failed, or the budget was spent.
    Failed,
    /// The group was cancelled, or not approved.
    Cancelled,
}

impl fmt::Display for GroupOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
        })
    }
}

/// The thread of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemRef {
    /// The group.
    pub group: GroupId,
    /// The item's index in the group, from 0.
    pub item: u32,
}
