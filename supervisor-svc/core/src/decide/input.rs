//! Input and interrupts.

use crate::{
    content::ContentRef,
    event::{Event, ThreadEvent},
    ids::{ReportSequence, ThreadId, Turn},
    principal::Caller,
    rejection::Rejection,
    rules::{authority, limits, start},
    settings::{OnLimit, Urgency},
    state::{session::Session, thread::Thread},
    status::{Settled, Status, Step},
};

/// An input and how it is sent.
pub(super) struct Sent<'a> {
    pub(super) input: &'a ContentRef,
    pub(super) urgency: Urgency,
    pub(super) on_limit: OnLimit,
    pub(super) result_repairs: Option<u32>,
}

/// Sends input to a thread. A settled thread starts a new turn. Any other open thread queues the input. A closed thread
/// rejects it.
pub(super) fn send(
    session: &Session,
    caller: &Caller,
    target: ThreadId,
    sent: &Sent<'_>,
) -> Result<Vec<Event>, Rejection> {
    let Sent {
        input,
        urgency,
        on_limit,
        result_repairs,
    } = *sent;
    let thread = authority::authorize(session, caller, "SendInput", target)?;
    start::may_start_in(session, thread)?;
    if thread.spawned.client_owned {
        return Err(Rejection::IllegalTransition {
            thread: thread.id,
            status: thread.status.kind(),
            wanted: "take input: its client executes it itself",
        });
    }
    if thread.pending_inputs.len() >= limits::MAX_PENDING_INPUTS {
        return Err(Rejection::TooMuchInput {
            thread: thread.id,
            waiting: u32::try_from(thread.pending_inputs.len()).unwrap_or(u32::MAX),
            newest: thread.last_input,
        });
    }
    let waiting: u64 = thread.pending_inputs.iter().map(|input| input.content.size).sum();
    if !thread.pending_inputs.is_empty() && waiting.saturating_add(input.size) > limits::MAX_PENDING_INPUT_BYTES {
        return Err(Rejection::LimitExceeded {
            limit: "waiting input",
            message: format!(
                "agent with id {} has {waiting} bytes of input waiting, and {} more would exceed {}; wait until it has read them",
                thread.id,
                input.size,
                limits::MAX_PENDING_INPUT_BYTES
            ),
        });
    }
    super::step(thread, Step::InputQueued, "take input")?;
    let was_settled = thread.status.kind().is_settled();
    let slot_is_free = limits::has_free_slot(session) || session.holding().contains(&thread.id);
    let takes_slot = was_settled && thread.spawned.parent.is_some();
    if takes_slot && !slot_is_free && on_limit == OnLimit::Refuse {
        return Err(limits::no_slot(session));
    }
    let mut events = Vec::new();
    if urgency == Urgency::Interrupt {
        events.extend(stop_dispatched_turn(thread, "new input"));
    }
    events.push(Event::Thread(
        thread.id,
        ThreadEvent::InputQueued {
            number: thread.last_input.next(),
            input: input.clone(),
            from: caller.actor(),
            steers: urgency == Urgency::Steer && is_under_way(thread),
            result_repairs,
        },
    ));
    if was_settled && (slot_is_free || !takes_slot) {
        events.push(Event::Thread(thread.id, ThreadEvent::Admitted));
    }
    Ok(events)
}

/// Stops the running turns of a subtree. Its threads stay open. A thread in AWAITING_APPROVAL has no turn to stop and
/// is unchanged. CloseAgent withdraws its spawn.
pub(super) fn interrupt(
    session: &Session,
    caller: &Caller,
    target: ThreadId,
    turn: Option<Turn>,
    only_this: bool,
    reason: &str,
) -> Result<Vec<Event>, Rejection> {
    let top = authority::authorize(session, caller, "InterruptAgent", target)?;
    if !top.status.kind().is_open() {
        return Err(Rejection::ThreadClosed(top.id));
    }
    if turn.is_some_and(|turn| turn != top.present_turn()) {
        return Ok(Vec::new());
    }
    let affected = if only_this { vec![top] } else { session.subtree(target) };
    Ok(affected
        .into_iter()
        .filter(|thread| !thread.spawned.client_owned && !session.is_closing(thread.id))
        .filter_map(|thread| stop(thread, reason))
        .collect())
}

/// Requests the stop of a dispatched turn. A turn that was not dispatched yet ends immediately.
pub(super) fn stop(thread: &Thread, reason: &str) -> Option<Event> {
    let waits = matches!(thread.status, Status::Queued | Status::PendingInit) && thread.turn.awaits_dispatch();
    if !waits {
        return stop_dispatched_turn(thread, reason);
    }
    let reason = reason.to_owned();
    Some(never_dispatched(thread, Settled::Interrupted { reason }))
}

/// Returns the end of a pending turn that was not dispatched.
pub(super) fn never_dispatched(thread: &Thread, outcome: Settled) -> Event {
    Event::Thread(
        thread.id,
        ThreadEvent::TurnEnded {
            turn: Turn::ZERO,
            generation: thread.generation,
            outcome,
            usage: thread.usage,
            digests: Box::default(),
            result_repair: false,
            report: ReportSequence::ZERO,
        },
    )
}

/// Returns whether a turn of the thread was dispatched to a runner and has not ended.
fn is_under_way(thread: &Thread) -> bool {
    thread.status.kind().is_active() && !thread.turn.awaits_dispatch()
}

/// Returns the stop request for a dispatched turn. The request stays pending until the turn ends, because the runner
/// may be starting the turn concurrently.
fn stop_dispatched_turn(thread: &Thread, reason: &str) -> Option<Event> {
    (is_under_way(thread) && thread.interrupt.is_none()).then(|| {
        Event::Thread(
            thread.id,
            ThreadEvent::InterruptRequested {
                turn: thread.turn.number(),
                reason: reason.to_owned(),
            },
        )
    })
}
