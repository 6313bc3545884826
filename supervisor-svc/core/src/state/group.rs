//! The state of a group: many spawns from one template, with one outcome. Folded from the group's events and from those
//! of its threads.
//!
//! Invariant: `pending`, `running` and the counts are functions of `items`, and `deadlines` has running items only.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};

use crate::{
    event::Artifact,
    group::{GroupLimits, GroupOutcome, GroupSpec, ItemOutcome, Join, OnFailure},
    ids::{ApprovalId, ThreadId},
    resource::Resource,
    settings::Usage,
    time::UnixMillis,
};

/// The state of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemState {
    /// The item has not started, or waits for a retry.
    Pending,
    /// The item has a thread.
    Running,
    /// The item succeeded.
    Succeeded,
    /// Its last attempt failed, and no retry was left.
    Failed,
    /// The item was cancelled, before or after it started.
    Cancelled,
}

/// One item of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The state.
    pub state: ItemState,
    /// The number of attempts so far.
    pub attempts: u32,
    /// The thread of the latest attempt.
    pub thread: Option<ThreadId>,
    /// Why the item failed, was cancelled or is tried again. Otherwise empty.
    pub reason: Arc<str>,
}

/// The stage of a group.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupStage {
    /// An operator must approve the group.
    AwaitingApproval(ApprovalId),
    /// Items start and run.
    Running,
    /// The outcome is certain. No item starts, and the running threads are being closed.
    Ending(GroupOutcome, String),
    /// Every item has ended, and the parent has received mail.
    Ended(GroupOutcome, String),
}

/// A group, folded from its events.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The properties that its creation fixed. Its `limits` are the initial limits.
    pub spec: Arc<GroupSpec>,
    /// The thread that receives the outcome, and the parent of the items' threads.
    pub parent: ThreadId,
    /// The settings that can change.
    pub limits: GroupLimits,
    /// The stage.
    pub stage: GroupStage,
    /// The items, by index.
    pub items: Vector<Item>,
    /// When it was created.
    pub created: UnixMillis,
    /// When its last event was recorded.
    pub updated: UnixMillis,
    /// The usage of all attempts at all items.
    pub usage: Usage,
    /// The table of the results, once the group has ended.
    pub table: Option<Artifact>,
    pending: OrdSet<u32>,
    running: OrdMap<u32, ThreadId>,
    deadlines: OrdSet<(UnixMillis, u32)>,
    succeeded: u32,
    failed: u32,
    cancelled: u32,
}

impl Group {
    /// Creates a group whose items are all pending.
    #[must_use]
    pub fn new(spec: Arc<GroupSpec>, parent: ThreadId, stage: GroupStage, created: UnixMillis) -> Self {
        let new = Item {
            state: ItemState::Pending,
            attempts: 0,
            thread: None,
            reason: Arc::default(),
        };
        let items = std::iter::repeat_n(new, spec.item_count as usize).collect();
        let limits = spec.limits;
        let mut group = Self::restored(spec, parent, stage, created, items);
        group.limits = limits;
        group
    }

    /// Creates a group from its stored parts. The caller sets the other fields.
    #[must_use]
    pub fn restored(
        spec: Arc<GroupSpec>,
        parent: ThreadId,
        stage: GroupStage,
        created: UnixMillis,
        items: Vector<Item>,
    ) -> Self {
        let mut group = Self {
            limits: spec.limits,
            spec,
            parent,
            stage,
            items: Vector::new(),
            created,
            updated: created,
            usage: Usage::default(),
            table: None,
            pending: OrdSet::new(),
            running: OrdMap::new(),
            deadlines: OrdSet::new(),
            succeeded: 0,
            failed: 0,
            cancelled: 0,
        };
        for (index, item) in (0_u32..).zip(&items) {
            group.count(index, item, true);
        }
        group.items = items;
        group
    }

    /// Returns whether the group has ended.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        matches!(self.stage, GroupStage::Ended(..))
    }

    /// Returns the item with that index.
    #[must_use]
    pub fn item(&self, index: u32) -> Option<&Item> {
        self.items.get(index as usize)
    }

    /// Returns the items that may start now, in order, up to the maximum concurrency.
    pub fn startable(&self) -> impl Iterator<Item = u32> {
        let may_start = matches!(self.stage, GroupStage::Running) && !self.limits.paused;
        let free = if may_start {
            (self.limits.max_concurrency as usize).saturating_sub(self.running.len())
        } else {
            0
        };
        self.pending.iter().copied().take(free)
    }

    /// Returns whether the item may start.
    #[must_use]
    pub fn may_start(&self, index: u32) -> bool {
        self.startable().next().is_some() && self.pending.contains(&index)
    }

    /// Returns whether all items have ended and the group has not.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        matches!(self.stage, GroupStage::Ending(..)) && self.running.is_empty()
    }

    /// Returns the running items with their threads.
    pub fn running(&self) -> impl Iterator<Item = (u32, ThreadId)> {
        self.running.iter().map(|(index, thread)| (*index, *thread))
    }

    /// Returns the number of items with that state.
    #[must_use]
    pub fn count_of(&self, state: ItemState) -> u32 {
        let size = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        match state {
            ItemState::Pending => size(self.pending.len()),
            ItemState::Running => size(self.running.len()),
            ItemState::Succeeded => self.succeeded,
            ItemState::Failed => self.failed,
            ItemState::Cancelled => self.cancelled,
        }
    }

    /// Returns the outcome that follows from the items and the budget, with its reason. `None` while the outcome is
    /// undecided.
    #[must_use]
    pub fn verdict(&self) -> Option<(GroupOutcome, String)> {
        if let Some(resource) = Resource::reached(&self.spec.budget, &self.usage) {
            let spent = resource.amount(resource.spent(&self.usage));
            let reason = format!("the budget of the group is spent: {} {spent}", resource.as_str());
            return Some((GroupOutcome::Failed, reason));
        }
        let tolerated = self.limits.tolerated_failures;
        let count = self.spec.item_count;
        let failures = || format!("{} of {count} items failed, and {tolerated} may fail", self.failed);
        let is_over = self.pending.is_empty() && self.running.is_empty();
        match self.spec.join {
            Join::Quorum(wanted) if self.succeeded >= wanted => {
                Some((GroupOutcome::Succeeded, format!("a quorum of {wanted} succeeded")))
            }
            _ if self.failed > tolerated && self.spec.on_failure == OnFailure::CancelRest => {
                Some((GroupOutcome::Failed, failures()))
            }
            Join::Quorum(wanted) if is_over => {
                let reason = format!("{} of a quorum of {wanted} succeeded", self.succeeded);
                Some((GroupOutcome::Failed, reason))
            }
            Join::All if is_over && self.failed > tolerated => Some((GroupOutcome::Failed, failures())),
            Join::All if is_over => Some((
                GroupOutcome::Succeeded,
                format!("{} of {count} items succeeded", self.succeeded),
            )),
            Join::Quorum(_) | Join::All => None,
        }
    }

    /// Returns the deadlines of the running items.
    pub fn deadlines(&self) -> impl Iterator<Item = (u32, UnixMillis)> {
        self.deadlines.iter().map(|(time, index)| (*index, *time))
    }

    /// Sets the deadlines of running items, from a snapshot.
    pub fn restore_deadlines(&mut self, deadlines: Vec<(UnixMillis, u32)>) {
        self.deadlines = deadlines.into_iter().collect();
    }

    /// Returns the earliest deadline of a running item.
    #[must_use]
    pub fn next_deadline(&self) -> Option<UnixMillis> {
        self.deadlines.get_min().map(|(time, _)| *time)
    }

    /// Returns the running items whose deadline has passed.
    pub fn overdue(&self, now: UnixMillis) -> impl Iterator<Item = ThreadId> {
        let late = self.deadlines.iter().take_while(move |(time, _)| *time <= now);
        late.filter_map(|(_, index)| self.running.get(index).copied())
    }

    /// Starts an attempt at an item.
    pub(crate) fn start(&mut self, index: u32, thread: ThreadId, time: UnixMillis) {
        self.change(index, |item| {
            item.state = ItemState::Running;
            item.attempts += 1;
            item.thread = Some(thread);
            item.reason = Arc::default();
        });
        if let Some(limit) = self.spec.item_deadline {
            self.deadlines.insert((time.plus(limit), index));
        }
    }

    /// Ends an attempt at an item.
    pub(crate) fn end(&mut self, index: u32, outcome: ItemOutcome, reason: &str) {
        let was_running = self.running.contains_key(&index);
        self.change(index, |item| {
            item.state = match outcome {
                ItemOutcome::Succeeded => ItemState::Succeeded,
                ItemOutcome::Failed => ItemState::Failed,
                ItemOutcome::Retried => ItemState::Pending,
                ItemOutcome::Cancelled => ItemState::Cancelled,
            };
            item.reason = reason.into();
        });
        if was_running {
            let deadline = self.deadlines.iter().find(|(_, item)| *item == index).copied();
            deadline.map(|deadline| self.deadlines.remove(&deadline));
        }
    }

    /// Cancels all pending items.
    pub(crate) fn cancel_pending(&mut self, reason: &str) {
        let pending: Vec<u32> = self.pending.iter().copied().collect();
        for index in pending {
            self.end(index, ItemOutcome::Cancelled, reason);
        }
    }

    /// Makes all failed and cancelled items pending again.
    pub(crate) fn retry_failed(&mut self) {
        let again: Vec<u32> = (0_u32..)
            .zip(&self.items)
            .filter(|(_, item)| matches!(item.state, ItemState::Failed | ItemState::Cancelled))
            .map(|(index, _)| index)
            .collect();
        for index in again {
            self.change(index, |item| {
                item.state = ItemState::Pending;
                item.attempts = 0;
            });
        }
    }

    fn change(&mut self, index: u32, change: impl FnOnce(&mut Item)) {
        let Some(mut item) = self.item(index).cloned() else {
            return;
        };
        self.count(index, &item, false);
        change(&mut item);
        self.count(index, &item, true);
        self.items.set(index as usize, item);
    }

    /// Adds an item to the indices, or removes it.
    fn count(&mut self, index: u32, item: &Item, adds: bool) {
        let counter = match item.state {
            ItemState::Pending if adds => {
                self.pending.insert(index);
                return;
            }
            ItemState::Pending => {
                self.pending.remove(&index);
                return;
            }
            ItemState::Running => {
                match item.thread.filter(|_| adds) {
                    Some(thread) => self.running.insert(index, thread),
                    None => self.running.remove(&index),
                };
                return;
            }
            ItemState::Succeeded => &mut self.succeeded,
            ItemState::Failed => &mut self.failed,
            ItemState::Cancelled => &mut self.cancelled,
        };
        *counter = if adds { *counter + 1 } else { counter.saturating_sub(1) };
    }
}
