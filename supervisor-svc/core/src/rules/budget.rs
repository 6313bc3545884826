//! Budgets: how much a thread and its descendants may spend. Every rule is a function of the state, without separate
//! counters. The spent amount is the subtree's usage. The reserved amount is the unspent part of the budgets of open
//! threads.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use crate::{
    ids::{Generation, ThreadId},
    resource::{Resource, Shortage},
    settings::{Budget, Currency, Price, Usage},
    state::{session::Session, thread::Thread},
    time::UnixMillis,
};

/// Maximum age of a running turn's recorded token usage while newer telemetry is available.
pub const CHECKPOINT: Duration = Duration::from_secs(30);

/// Returns the nearest thread, from this one upwards, with an exhausted budget. No work may start below it.
#[must_use]
pub fn exhausted_over(session: &Session, id: ThreadId) -> Option<(&Arc<Thread>, Resource)> {
    session
        .lineage(id)
        .find_map(|thread| thread.exhausted_resource().map(|resource| (thread, resource)))
}

/// Returns the spent amount of a limited resource, for example `tokens 1000 of 1000`.
#[must_use]
pub fn balance(thread: &Thread, resource: Resource) -> String {
    let spent = resource.amount(resource.spent(&thread.subtree_usage));
    let bound = resource.amount(resource.bound(&thread.budget).unwrap_or(u64::MAX));
    format!("{} {spent} of {bound}", resource.as_str())
}

/// Returns whether a budget allows more than another one for any resource.
#[must_use]
pub fn is_raised(from: &Budget, to: &Budget) -> bool {
    Resource::ALL
        .into_iter()
        .any(|resource| match (resource.bound(from), resource.bound(to)) {
            (Some(_), None) => true,
            (Some(from), Some(to)) => to > from,
            (None, Some(_) | None) => false,
        })
}

/// Checks for each resource that a budget fits into the remaining amount of the nearest limiting thread, from `above`
/// upwards. `of` is the thread that receives the budget, if it exists. Its past usage, its current reservation and the
/// reservations of its descendants do not count against the request.
///
/// # Errors
/// The first resource whose remaining amount is too small.
pub fn carve(session: &Session, above: ThreadId, of: Option<&Thread>, budget: &Budget) -> Result<(), Shortage> {
    for resource in Resource::ALL {
        let Some(asked) = resource.bound(budget) else { continue };
        let Some((over, bound)) = bounded(session, above, resource) else {
            continue;
        };
        let spent = resource.spent(&over.subtree_usage);
        let reserved = reserved(session, over.id, resource, of.map(|thread| thread.id));
        let own = of.map_or(0, |thread| resource.spent(&thread.subtree_usage));
        let left = own.saturating_add(bound.saturating_sub(spent).saturating_sub(reserved));
        if asked > left {
            return Err(Shortage {
                thread: over.id,
                resource,
                asked,
                left,
                bound,
                spent,
                reserved,
            });
        }
    }
    Ok(())
}

/// Returns the nearest thread, from this one upwards, that limits a resource.
fn bounded(session: &Session, id: ThreadId, resource: Resource) -> Option<(&Arc<Thread>, u64)> {
    session
        .lineage(id)
        .find_map(|thread| resource.bound(&thread.budget).map(|bound| (thread, bound)))
}

/// Returns the unspent part of all budgets of open threads that were carved from `over`, except those from `except`
/// downwards. The cost is proportional to the number of open threads with budgets and to their depth.
#[must_use]
pub fn reserved(session: &Session, over: ThreadId, resource: Resource, except: Option<ThreadId>) -> u64 {
    session
        .budgeted()
        .filter(|thread| except.is_none_or(|except| !session.is_within(thread.id, except)))
        .filter_map(|thread| {
            let bound = resource.bound(&thread.budget)?;
            let (from, _) = bounded(session, thread.spawned.parent?, resource)?;
            (from.id == over).then(|| bound.saturating_sub(resource.spent(&thread.subtree_usage)))
        })
        .fold(0, u64::saturating_add)
}

/// Returns the current usage of an attempt. Token usage comes from the runner and never decreases. The supervisor
/// counts turns and time itself, so a runner cannot hide them. The cost grows by the price of the additional tokens;
/// without a price, their cost is unknown. A higher cost that the program reports takes precedence.
#[must_use]
pub fn metered(session: &Session, thread: &Thread, reported: &Usage, price: Option<&Price>, now: UnixMillis) -> Usage {
    let known = &thread.usage;
    let more = reported.since(*known);
    let priced = known.cost.saturating_add(price.map_or(0, |price| price.of(&more)));
    let own = program_cost(session, reported);
    let is_priced = price.is_some() || own > known.cost;
    let unpriced = if is_priced { 0 } else { more.tokens() };
    Usage {
        input_tokens: reported.input_tokens.max(known.input_tokens),
        cached_input_tokens: reported.cached_input_tokens.max(known.cached_input_tokens),
        output_tokens: reported.output_tokens.max(known.output_tokens),
        turns: known.turns,
        wall_time: known.wall_time.saturating_add(running_time(thread, now)),
        cost: priced.max(own),
        unpriced_tokens: known.unpriced_tokens.saturating_add(unpriced),
    }
}

/// Returns the usage as [`metered`] does, at the end of a dispatched turn, and counts that turn. A cost that the
/// program reports is the cost of the whole attempt and takes precedence.
#[must_use]
pub fn at_turn_end(
    session: &Session,
    thread: &Thread,
    reported: &Usage,
    price: Option<&Price>,
    now: UnixMillis,
) -> Usage {
    let usage = metered(session, thread, reported, price, now);
    let turns = usage.turns.saturating_add(1);
    match program_cost(session, reported) {
        0 => Usage { turns, ..usage },
        cost => Usage {
            turns,
            cost,
            unpriced_tokens: 0,
            ..usage
        },
    }
}

/// Returns the cost of an attempt as the program reports it. Programs report US dollars, so the result is 0 if the
/// session has another currency, or if the program reports no cost.
fn program_cost(session: &Session, reported: &Usage) -> u64 {
    if session.settings.currency == Currency::USD {
        reported.cost
    } else {
        0
    }
}

/// Returns the running time of the thread's turn since its time was last recorded. Zero if no turn runs.
#[must_use]
pub const fn running_time(thread: &Thread, now: UnixMillis) -> Duration {
    if thread.runs_turn() {
        now.since(thread.metered)
    } else {
        Duration::ZERO
    }
}

/// Returns the thread if this attempt runs a turn and has used more tokens than recorded.
#[must_use]
pub fn thread_with_new_usage<'s>(
    session: &'s Session,
    id: ThreadId,
    generation: Generation,
    reported: &Usage,
) -> Option<&'s Arc<Thread>> {
    session.thread(id).filter(|thread| {
        thread.generation == generation
            && thread.runs_turn()
            && (reported.input_tokens > thread.usage.input_tokens
                || reported.output_tokens > thread.usage.output_tokens)
    })
}

/// Returns whether usage that a runner reports during a turn must be recorded. This is the case if the usage exhausts a
/// budget, or if the recorded usage is at least [`CHECKPOINT`] old.
#[must_use]
pub fn is_checkpoint_due(
    session: &Session,
    id: ThreadId,
    generation: Generation,
    reported: &Usage,
    price: Option<&Price>,
    now: UnixMillis,
) -> bool {
    let Some(thread) = thread_with_new_usage(session, id, generation, reported) else {
        return false;
    };
    let more = metered(session, thread, reported, price, now).since(thread.usage);
    let spends_a_budget = session.lineage(id).any(|over| {
        over.exhausted_resource().is_none() && Resource::reached(&over.budget, &over.subtree_usage.plus(more)).is_some()
    });
    spends_a_budget || now.since(thread.metered) >= CHECKPOINT
}

/// Returns the earliest time at which running turns exhaust a wall time budget.
#[must_use]
pub fn next_deadline(session: &Session) -> Option<UnixMillis> {
    deadlines(session).into_values().min()
}

/// Returns the running turns below threads whose wall time budget is exhausted.
#[must_use]
pub fn overdue(session: &Session, now: UnixMillis) -> BTreeSet<ThreadId> {
    let over: BTreeSet<ThreadId> = deadlines(session)
        .into_iter()
        .filter(|(_, deadline)| *deadline <= now)
        .map(|(id, _)| id)
        .collect();
    if over.is_empty() {
        return over;
    }
    running(session)
        .filter(|thread| session.lineage(thread.id).any(|above| over.contains(&above.id)))
        .map(|thread| thread.id)
        .collect()
}

/// Returns the time at which each wall time budget is exhausted if the running turns continue, by the thread that has
/// the budget. Budgets without running turns below them are omitted. For n turns whose times were last recorded at
/// t1..tn, and `left` to spend, the time is (t1 + .. + tn + left) / n. The cost is proportional to the number of
/// running turns and their depth.
fn deadlines(session: &Session) -> BTreeMap<ThreadId, UnixMillis> {
    if session.budgeted().all(|thread| thread.budget.wall_time.is_none()) {
        return BTreeMap::new();
    }
    let mut clocks: BTreeMap<ThreadId, (u64, u64)> = BTreeMap::new();
    for thread in running(session) {
        let timed = session
            .lineage(thread.id)
            .filter(|above| above.budget.wall_time.is_some());
        for above in timed {
            let (turns, written) = clocks.entry(above.id).or_default();
            *turns += 1;
            *written = written.saturating_add(thread.metered.get());
        }
    }
    let deadline = |(id, (turns, written)): (ThreadId, (u64, u64))| {
        let thread = session.thread(id)?;
        // Exhausted and closing threads are already being stopped.
        if thread.exhausted_resource().is_some() || session.is_closing(id) {
            return None;
        }
        let bound = Resource::WallTime.bound(&thread.budget)?;
        let left = bound.saturating_sub(Resource::WallTime.spent(&thread.subtree_usage));
        Some((id, UnixMillis::new(written.saturating_add(left).div_ceil(turns))))
    };
    clocks.into_iter().filter_map(deadline).collect()
}

/// Returns the threads with a running turn. Candidates are the threads that hold a slot, and the root.
fn running(session: &Session) -> impl Iterator<Item = &Arc<Thread>> {
    session
        .holding()
        .iter()
        .copied()
        .chain(session.root_id())
        .filter_map(|id| session.thread(id))
        .filter(|thread| thread.runs_turn())
}
