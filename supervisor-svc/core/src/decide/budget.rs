//! Budget decisions: updating budgets, recording usage and stopping threads with an exhausted budget.

use super::condition;
use crate::{
    event::{ConditionKind, Event, ThreadEvent},
    ids::{Generation, ThreadId},
    principal::Caller,
    rejection::Rejection,
    rules::{authority, budget, start},
    settings::{Budget, Price, Usage},
    state::{session::Session, thread::Thread},
    time::UnixMillis,
};

/// Changes a thread's budget, which is carved from the budgets of its ancestors. Only ancestors and operators may raise
/// it.
pub(super) fn update(
    session: &Session,
    caller: &Caller,
    target: ThreadId,
    budget: Budget,
) -> Result<Vec<Event>, Rejection> {
    let thread = authority::authorize(session, caller, "UpdateThreadBudget", target)?;
    start::takes_part(session, thread)?;
    if caller.thread() == Some(target) && budget::is_raised(&thread.budget, &budget) {
        return Err(Rejection::NotPermitted(format!(
            "agent {target} may lower its own budget only; its parent or an operator can raise it"
        )));
    }
    if thread.budget == budget {
        return Ok(Vec::new());
    }
    if let Some(parent) = thread.spawned.parent {
        budget::carve(session, parent, Some(thread), &budget).map_err(Rejection::OverBudget)?;
    }
    Ok(vec![Event::Thread(target, ThreadEvent::BudgetUpdated(budget))])
}

/// Records the usage of a running turn, unless it is already recorded or belongs to another generation.
pub(super) fn record_usage(
    session: &Session,
    id: ThreadId,
    generation: Generation,
    reported: &Usage,
    price: Option<&Price>,
    now: UnixMillis,
) -> Vec<Event> {
    budget::thread_with_new_usage(session, id, generation, reported)
        .map(|thread| used(session, thread, reported, price, now))
        .into_iter()
        .collect()
}

/// Records the time of running turns below threads whose wall time budget is exhausted. [`enforce`] then stops these
/// turns.
pub(super) fn pass(session: &Session, now: UnixMillis) -> Vec<Event> {
    budget::overdue(session, now)
        .into_iter()
        .filter_map(|id| session.thread(id))
        .map(|thread| used(session, thread, &thread.usage, None, now))
        .collect()
}

fn used(session: &Session, thread: &Thread, reported: &Usage, price: Option<&Price>, now: UnixMillis) -> Event {
    Event::Thread(
        thread.id,
        ThreadEvent::UsageRecorded {
            generation: thread.generation,
            usage: budget::metered(session, thread, reported, price, now),
        },
    )
}

/// Marks threads with an exhausted budget, unmarks threads whose budget is no longer exhausted, and stops active turns
/// below an exhausted budget. Runs after each command until nothing changes. Costs nothing while no budget is
/// exhausted.
pub(super) fn enforce(session: &Session) -> Vec<Event> {
    let mut events = Vec::new();
    let mut has_exhausted_budget = false;
    for thread in session
        .at_their_budget()
        .filter(|thread| !session.is_closing(thread.id))
    {
        let spent = thread.exhausted_resource();
        has_exhausted_budget |= spent.is_some();
        let marked = thread.conditions.contains_key(&ConditionKind::BudgetExhausted);
        if spent.is_some() != marked {
            let reason = spent.map(|resource| budget::balance(thread, resource));
            let (kind, reason) = (ConditionKind::BudgetExhausted, reason.unwrap_or_default());
            events.push(condition::changed(thread.id, kind, spent.is_some(), reason));
        }
    }
    if has_exhausted_budget {
        events.extend(stops(session));
    }
    events
}

/// Returns the events that stop turns below an exhausted budget, running or pending. Checks the threads that hold a
/// slot, are queued, or need no slot.
fn stops(session: &Session) -> Vec<Event> {
    let root = session.root_id();
    let at_work = session
        .holding()
        .iter()
        .copied()
        .chain(session.queued())
        .filter(|id| Some(*id) != root)
        .chain(root);
    at_work
        .filter_map(|id| session.thread(id))
        .filter(|thread| !thread.spawned.client_owned && !session.is_closing(thread.id))
        .filter_map(|thread| {
            let (over, resource) = budget::exhausted_over(session, thread.id)?;
            let reason = format!(
                "the budget of agent {} is spent: {}",
                over.id,
                budget::balance(over, resource)
            );
            super::input::stop(thread, &reason)
        })
        .collect()
}
