//! Groups: creation, changes, the end of items and of the group.

use std::{sync::Arc, time::Duration};

use super::{
    approval::withdraw,
    close::{self, NewFence},
};
use crate::{
    command::NewGroup,
    content::{preview, truncate},
    event::{ApprovalKind, Artifact, CloseCause, ConditionKind, Event, ThreadEvent},
    group::{GroupLimits, GroupLimitsChange, GroupOutcome, GroupSpec, ItemOutcome, ItemRef},
    ids::{GroupId, ThreadId},
    principal::{Actor, Caller},
    rejection::Rejection,
    rules::{approval, authority, budget, cascade::CASCADE_DEADLINE, limits, start},
    settings::Budget,
    state::{
        group::{Group, GroupStage, ItemState},
        session::Session,
        thread::Thread,
    },
    status::{Settled, Status, StatusKind},
    time::UnixMillis,
};

/// Maximum number of groups of a session that have not ended.
pub const MAX_OPEN_GROUPS: usize = 32;

/// Checks a new group without creating it.
///
/// # Errors
/// The first check that fails.
pub fn check(session: &Session, new: &NewGroup) -> Result<(), Rejection> {
    let parent = authority::authorize(session, &new.caller, "CreateGroup", new.parent)?;
    start::may_start_in(session, parent)?;
    limits::child_depth(session, parent)?;
    may_open(session)?;
    if let Some(taken) = session.group_by_name(&new.spec.name) {
        let is_visible = |own| session.is_within(taken.parent, own);
        let id = match new.caller.thread().is_none_or(is_visible) {
            true => format!(": {}", taken.spec.id),
            false => String::new(),
        };
        return Err(Rejection::InvalidArgument {
            field: "name",
            message: format!(
                "the group \"{}\" exists already{id}; choose another name",
                new.spec.name
            ),
        });
    }
    let most = most_spent(&new.spec, &new.item_budget);
    budget::carve(session, new.parent, None, &most).map_err(Rejection::OverBudget)
}

fn may_open(session: &Session) -> Result<(), Rejection> {
    let open = session.open_groups().count();
    if open < MAX_OPEN_GROUPS {
        return Ok(());
    }
    Err(Rejection::LimitExceeded {
        limit: "open groups",
        message: format!("the session has {open} groups that have not ended; at most {MAX_OPEN_GROUPS} are allowed"),
    })
}

/// Returns the budget that the group can spend at most. A resource that neither the group nor its items limit is
/// unlimited.
#[must_use]
pub fn most_spent(spec: &GroupSpec, item: &Budget) -> Budget {
    let attempts = spec.item_count.saturating_mul(spec.retries.saturating_add(1));
    let all = Budget {
        tokens: item.tokens.map(|bound| bound.saturating_mul(u64::from(attempts))),
        turns: item.turns.map(|bound| bound.saturating_mul(attempts)),
        wall_time: item.wall_time.map(|bound| bound.saturating_mul(attempts)),
        cost: item.cost.map(|bound| bound.saturating_mul(u64::from(attempts))),
    };
    let own = &spec.budget;
    Budget {
        tokens: smaller_limit(own.tokens, all.tokens),
        turns: smaller_limit(own.turns, all.turns),
        wall_time: smaller_limit(own.wall_time, all.wall_time),
        cost: smaller_limit(own.cost, all.cost),
    }
}

fn smaller_limit<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (bound, None) | (None, bound) => bound,
    }
}

/// Creates a group. One approval covers all of its spawns.
pub(super) fn create(session: &Session, new: &NewGroup, now: UnixMillis) -> Result<Vec<Event>, Rejection> {
    check(session, new)?;
    let asking = new.caller.thread().and_then(|id| session.thread(id));
    let is_needed = |method| asking.is_some_and(|asking| approval::is_needed(session, asking, method));
    let must_ask = is_needed("SpawnAgent") || is_needed("CreateGroup");
    let is_large = new
        .approval_above
        .is_some_and(|above| counted_items(session, new) > above);
    let needs_approval = is_large || must_ask;
    let created = ThreadEvent::GroupCreated {
        spec: Arc::clone(&new.spec),
        approval: needs_approval.then_some(new.approval),
    };
    let request = needs_approval.then(|| ThreadEvent::ApprovalRequested {
        approval: new.approval,
        kind: ApprovalKind::Group,
        subject: subject(new),
        deadline: session.settings.approval_deadline(now),
        edge: None,
        call: None,
    });
    let events = [Some(created), request].into_iter().flatten();
    Ok(events.map(|event| Event::Thread(new.parent, event)).collect())
}

/// Returns the number of items that is compared with the approval threshold. If a thread creates the group, the number
/// includes the items of the other open groups that threads created. Otherwise a thread could avoid the approval by
/// splitting a large group into small ones.
fn counted_items(session: &Session, new: &NewGroup) -> u32 {
    let own = new.spec.item_count;
    if new.caller.thread().is_none() {
        return own;
    }
    let open = session
        .open_groups()
        .filter(|group| matches!(group.spec.creator, Actor::Thread(_)));
    open.fold(own, |sum, group| sum.saturating_add(group.spec.item_count))
}

fn subject(new: &NewGroup) -> String {
    let spec = &new.spec;
    format!(
        "Group: {} items of role {}\nasked by: {}\nname: {}\nat a time: {}\nretries: {}",
        spec.item_count,
        preview(&new.role),
        spec.creator,
        preview(&spec.name),
        spec.limits.max_concurrency,
        spec.retries
    )
}

/// Returns the group, if the caller may act on its parent.
///
/// # Errors
/// [`Rejection::Missing`], or the errors of [`authority::authorize`].
pub fn authorize<'s>(
    session: &'s Session,
    caller: &Caller,
    method: &'static str,
    id: GroupId,
) -> Result<&'s Arc<Group>, Rejection> {
    let missing = || Rejection::Missing {
        what: "group",
        id: id.to_string(),
    };
    let group = session.group(id).ok_or_else(missing)?;
    match authority::authorize(session, caller, method, group.parent) {
        Ok(_) => Ok(group),
        // A thread must not learn which groups exist outside its subtree.
        Err(Rejection::OutsideSubtree(_)) => Err(missing()),
        Err(rejection) => Err(rejection),
    }
}

/// Changes the limits of a group that has not ended.
pub(super) fn update(
    session: &Session,
    caller: &Caller,
    id: GroupId,
    change: GroupLimitsChange,
) -> Result<Vec<Event>, Rejection> {
    let group = authorize(session, caller, "UpdateGroup", id)?;
    if group.has_ended() {
        return Err(ended(id));
    }
    let limits = GroupLimits {
        max_concurrency: change.max_concurrency.unwrap_or(group.limits.max_concurrency),
        tolerated_failures: change.tolerated_failures.unwrap_or(group.limits.tolerated_failures),
        paused: change.paused.unwrap_or(group.limits.paused),
    };
    if group.limits == limits {
        return Ok(Vec::new());
    }
    Ok(vec![Event::Thread(
        group.parent,
        ThreadEvent::GroupUpdated { group: id, limits },
    )])
}

/// Cancels a group. Idempotent.
pub(super) fn cancel(session: &Session, caller: &Caller, id: GroupId, reason: &str) -> Result<Vec<Event>, Rejection> {
    let group = authorize(session, caller, "CancelGroup", id)?;
    match group.stage {
        GroupStage::Running => Ok(ending(session, group, GroupOutcome::Cancelled, reason)),
        GroupStage::AwaitingApproval(approval) => Ok(withdraw(session, approval, reason)),
        GroupStage::Ending(..) | GroupStage::Ended(..) => Ok(Vec::new()),
    }
}

/// Makes the failed and cancelled items of an ended group pending again.
pub(super) fn retry(session: &Session, caller: &Caller, id: GroupId) -> Result<Vec<Event>, Rejection> {
    let group = authorize(session, caller, "RetryGroup", id)?;
    let parent = authority::authorize(session, caller, "RetryGroup", group.parent)?;
    start::may_start_in(session, parent)?;
    if !group.has_ended() {
        return Err(Rejection::IllegalState(format!(
            "group {id} has not ended; wait for its end, or cancel it first"
        )));
    }
    if group.count_of(ItemState::Failed) + group.count_of(ItemState::Cancelled) == 0 {
        return Ok(Vec::new());
    }
    // The group may have been denied by an operator. Only an operator may start a denied group.
    let is_cancelled = matches!(group.stage, GroupStage::Ended(GroupOutcome::Cancelled, _));
    if caller.thread().is_some() && is_cancelled && group.items.iter().all(|item| item.thread.is_none()) {
        return Err(Rejection::IllegalState(format!(
            "group {id} was cancelled before an item ran; create another one, or ask an operator to retry it"
        )));
    }
    may_open(session)?;
    Ok(vec![Event::Thread(group.parent, ThreadEvent::GroupRetried(id))])
}

fn ended(id: GroupId) -> Rejection {
    Rejection::IllegalState(format!("group {id} has ended; retry it, or create another one"))
}

/// Checks that the item of a spawn may start.
///
/// # Errors
/// [`Rejection::IllegalState`] if the item may not start, for example because it was started before.
pub(super) fn may_start(session: &Session, parent: ThreadId, item: ItemRef) -> Result<(), Rejection> {
    let is_due = session
        .group(item.group)
        .is_some_and(|group| group.parent == parent && group.may_start(item.item));
    if is_due {
        Ok(())
    } else {
        Err(Rejection::IllegalState(format!(
            "item {} of group {} may not start now",
            item.item, item.group
        )))
    }
}

/// Ends an item that cannot be spawned.
pub(super) fn fail_item(session: &Session, item: ItemRef, reason: &str) -> Vec<Event> {
    let due = session.group(item.group).filter(|group| group.may_start(item.item));
    due.map(|group| item_ended(group, item.item, ItemOutcome::Failed, reason))
        .into_iter()
        .collect()
}

/// Ends a group whose items have all ended.
pub(super) fn end(session: &Session, id: GroupId, table: &Artifact) -> Vec<Event> {
    let Some(group) = session.group(id).filter(|group| group.is_complete()) else {
        return Vec::new();
    };
    let GroupStage::Ending(outcome, reason) = &group.stage else {
        return Vec::new();
    };
    let parent = session.thread(group.parent);
    let takes_artifact = |parent: &&Arc<Thread>| parent.status.kind().is_open() && !session.is_closing(parent.id);
    let artifact = parent
        .filter(takes_artifact)
        .map(|parent| ThreadEvent::ArtifactRecorded {
            artifact: Artifact {
                turn: parent.turn.number(),
                ..table.clone()
            },
            generation: parent.generation,
            report: parent.last_report,
        });
    let ended = ThreadEvent::GroupEnded {
        group: id,
        outcome: *outcome,
        reason: reason.clone(),
        table: Box::new(table.clone()),
    };
    let events = artifact.into_iter().chain([ended]);
    events.map(|event| Event::Thread(group.parent, event)).collect()
}

/// Closes the threads of items whose deadline has passed. The close ends the item.
pub(super) fn overdue(session: &Session, now: UnixMillis) -> Vec<Event> {
    let groups = session.open_groups().filter(|group| group.next_deadline().is_some());
    groups
        .flat_map(|group| group.overdue(now).map(move |thread| (group, thread)))
        .filter_map(|(group, thread)| {
            let limit = group.spec.item_deadline.unwrap_or(Duration::ZERO);
            let reason = format!("the item did not end within {} s", limit.as_secs());
            fence(session, thread, &reason, now)
        })
        .collect()
}

/// Returns the earliest deadline of all running items that are not being closed.
pub(super) fn next_deadline(session: &Session) -> Option<UnixMillis> {
    let groups = session.open_groups();
    groups.filter_map(|group| group.next_deadline()).min()
}

/// Returns the ends of items whose threads have ended. If there are none, returns the ends of groups.
pub(super) fn follow_ups(session: &Session) -> Vec<Event> {
    let mut events: Vec<Event> = session
        .ended_items()
        .filter_map(|thread| Some((thread, thread.spawned.item?)))
        .flat_map(|(thread, item)| end_of_item(session, thread, item))
        .collect();
    if events.is_empty() {
        for group in session.open_groups() {
            events.extend(end_of_group(session, group));
        }
    }
    events
}

fn end_of_item(session: &Session, thread: &Thread, item: ItemRef) -> Vec<Event> {
    let Some(group) = session.group(item.group) else {
        return Vec::new();
    };
    let (failed, reason) = match &thread.status {
        Status::Settled(settled) => match &**settled {
            // The question of an item's thread is never answered, so the question counts as a failure.
            Settled::Completed { .. } => match thread.conditions.get(&ConditionKind::AwaitingInput) {
                Some((_, question)) => (true, question.as_str()),
                None => (false, ""),
            },
            Settled::Errored { message, .. } => (true, message.as_str()),
            Settled::Interrupted { reason } => (true, reason.as_str()),
        },
        Status::Shutdown { reason, .. } => (true, reason.as_str()),
        Status::Queued | Status::AwaitingApproval | Status::PendingInit | Status::Running => return Vec::new(),
    };
    let attempts = group.item(item.item).map_or(0, |item| item.attempts);
    let outcome = if !failed {
        ItemOutcome::Succeeded
    } else if !matches!(group.stage, GroupStage::Running) {
        ItemOutcome::Cancelled
    } else if attempts <= group.spec.retries && !session.is_closing(group.parent) {
        ItemOutcome::Retried
    } else {
        ItemOutcome::Failed
    };
    let close = fence(session, thread.id, "its item has ended", session.updated);
    [item_ended(group, item.item, outcome, reason)]
        .into_iter()
        .chain(close)
        .collect()
}

fn end_of_group(session: &Session, group: &Group) -> Vec<Event> {
    let parent_is_gone = session.is_closing(group.parent)
        || session
            .thread(group.parent)
            .is_none_or(|parent| parent.status.kind() == StatusKind::Shutdown);
    match &group.stage {
        GroupStage::Running if parent_is_gone => {
            ending(session, group, GroupOutcome::Cancelled, "its parent is closed")
        }
        GroupStage::Running => group
            .verdict()
            .map(|(outcome, reason): (_, String)| ending(session, group, outcome, &reason))
            .unwrap_or_default(),
        GroupStage::AwaitingApproval(_) | GroupStage::Ending(..) | GroupStage::Ended(..) => Vec::new(),
    }
}

fn ending(session: &Session, group: &Group, outcome: GroupOutcome, reason: &str) -> Vec<Event> {
    let ending = Event::Thread(
        group.parent,
        ThreadEvent::GroupEnding {
            group: group.spec.id,
            outcome,
            reason: reason.to_owned(),
        },
    );
    let running = group.running();
    let closes = running.filter_map(|(_, thread)| fence(session, thread, "its group ends", session.updated));
    [ending].into_iter().chain(closes).collect()
}

fn item_ended(group: &Group, item: u32, outcome: ItemOutcome, reason: &str) -> Event {
    Event::Thread(
        group.parent,
        ThreadEvent::GroupItemEnded {
            item: ItemRef {
                group: group.spec.id,
                item,
            },
            outcome,
            reason: truncate(reason, MAX_REASON_BYTES).to_owned(),
        },
    )
}

/// Maximum length of the reason of a failed item, in bytes. The status of the item's thread contains the whole message.
const MAX_REASON_BYTES: usize = 1_024;

/// Returns the event that closes an item's thread, unless it is closed or being closed.
fn fence(session: &Session, thread: ThreadId, reason: &str, now: UnixMillis) -> Option<Event> {
    let thread = session.thread(thread)?;
    let fence = NewFence {
        reason,
        cause: CloseCause::Group,
        deadline: now.plus(CASCADE_DEADLINE),
        policy: None,
    };
    (thread.status.kind().is_open() && !session.is_closing(thread.id)).then(|| close::fenced(thread, &fence))
}
