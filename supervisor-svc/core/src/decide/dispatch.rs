//! Dispatching turns to runners.

use crate::{
    command::Dispatch,
    effect::{self, PendingEffect},
    event::{Event, ThreadEvent},
    state::{session::Session, thread::Thread},
};

/// Records the placement, if it is new, and the dispatched turn. Returns no events if the turn is no longer pending, or
/// if new input arrived while the prompt was built. In the latter case, the prompt is built again.
pub(super) fn dispatch(session: &Session, dispatch: &Dispatch) -> Vec<Event> {
    let Some(thread) = session.thread(dispatch.thread) else {
        return Vec::new();
    };
    let is_pending = matches!(
        effect::pending_effect(session, thread.id),
        Some(PendingEffect::Turn { .. })
    );
    if !is_pending || !is_of_this_attempt(thread, dispatch) || !consumes_all(thread, dispatch) {
        return Vec::new();
    }
    let mut events = Vec::new();
    if thread.runner.as_ref() != Some(&dispatch.runner) || thread.generation != dispatch.generation {
        events.push(Event::Thread(
            thread.id,
            ThreadEvent::Placed {
                runner: dispatch.runner.clone(),
                generation: dispatch.generation,
            },
        ));
    }
    events.push(Event::Thread(
        thread.id,
        ThreadEvent::TurnDispatched {
            turn: thread.turn.number().next(),
            generation: dispatch.generation,
            inputs: dispatch.inputs.clone(),
            blocks: dispatch.blocks.clone(),
            whole: dispatch.whole,
            extent: dispatch.extent,
            mail_up_to: dispatch.mail_up_to,
        },
    ));
    events
}

/// Returns whether the dispatch belongs to the thread's attempt. The runner of an attempt may continue the attempt. Any
/// other placement starts the next attempt.
fn is_of_this_attempt(thread: &Thread, dispatch: &Dispatch) -> bool {
    let goes_on = thread.holder() == Some(&dispatch.runner) && dispatch.generation == thread.generation;
    goes_on || dispatch.generation == thread.next_attempt()
}

fn consumes_all(thread: &Thread, dispatch: &Dispatch) -> bool {
    thread
        .pending_inputs
        .iter()
        .map(|input| input.number)
        .eq(dispatch.inputs.iter().copied())
}
