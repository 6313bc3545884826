//! What threads may spend: changing it, writing down what was spent, and stopping those who spent it.

use crate::domain::{
    actor::Caller,
    authority,
    budget::{self, Resource},
    event::{ConditionKind, Event, ThreadEvent},
    ids::{Generation, ThreadId},
    refusal::Refusal,
    session::Session,
    settings::{Budget, Usage},
    thread::Thread,
    time::UnixMillis,
};

/// Gives a thread another budget, carved from those above it. Only those above it and operators may give it more.
pub(super) fn update(
    session: &Session,
    caller: &Caller,
    target: ThreadId,
    budget: Budget,
) -> Result<Vec<Event>, Refusal> {
    let thread = authority::authorize(session, caller, "UpdateThreadBudget", target)?;
    super::takes_part(session, thread)?;
    if caller.thread() == Some(target) && budget::is_raised(&thread.budget, &budget) {
        return Err(Refusal::NotPermitted(format!(
            "agent {target} may lower its own budget only; its parent or an operator can raise it"
        )));
    }
    if thread.budget == budget {
        return Ok(Vec::new());
    }
    if let Some(parent) = thread.spawned.parent {
        budget::carve(session, parent, Some(thread), &budget).map_err(Refusal::OverBudget)?;
    }
    Ok(vec![Event::Thread(target, ThreadEvent::BudgetUpdated(budget))])
}

/// Writes down what a running turn has used, unless that is known or of another attempt.
pub(super) fn record_usage(
    session: &Session,
    id: ThreadId,
    generation: Generation,
    reported: &Usage,
    now: UnixMillis,
) -> Vec<Event> {
    budget::news_of(session, id, generation, reported)
        .map(|thread| used(thread, reported, now))
        .into_iter()
        .collect()
}

/// Writes down the time of the running turns below those whose wall time is over; the stop follows from it.
pub(super) fn pass(session: &Session, now: UnixMillis) -> Vec<Event> {
    budget::overdue(session, now)
        .into_iter()
        .filter_map(|id| session.thread(id))
        .map(|thread| used(thread, &thread.usage, now))
        .collect()
}

fn used(thread: &Thread, reported: &Usage, now: UnixMillis) -> Event {
    Event::Thread(
        thread.id,
        ThreadEvent::UsageRecorded {
            generation: thread.generation,
            usage: budget::metered(thread, reported, now),
        },
    )
}

/// Marks the threads whose budget is spent, unmarks those who have room again, and stops what is at work below a spent
/// one. Follows by itself until it holds; costs nothing while no budget is spent.
pub(super) fn enforce(session: &Session) -> Vec<Event> {
    let mut events = Vec::new();
    let mut somebody_is_at_it = false;
    for thread in session
        .at_their_budget()
        .filter(|thread| !session.is_closing(thread.id))
    {
        let spent = budget::exhausted(thread);
        somebody_is_at_it |= spent.is_some();
        let marked = thread.conditions.contains_key(&ConditionKind::BudgetExhausted);
        if spent.is_some() != marked {
            events.push(mark(thread, spent));
        }
    }
    if somebody_is_at_it {
        events.extend(stops(session));
    }
    events
}

fn mark(thread: &Thread, spent: Option<Resource>) -> Event {
    Event::Thread(
        thread.id,
        ThreadEvent::ConditionChanged {
            kind: ConditionKind::BudgetExhausted,
            active: spent.is_some(),
            reason: spent
                .map(|resource| budget::balance(thread, resource))
                .unwrap_or_default(),
        },
    )
}

/// What stops the turns that run or wait below a spent budget. Looks at those who hold a slot, wait for one, or need none.
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
