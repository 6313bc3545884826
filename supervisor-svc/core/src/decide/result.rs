//! Results that an input asks for, and questions to the parent.

use super::condition;
use crate::{
    command::ResultCheck,
    content::ContentRef,
    event::{ConditionKind, Event, ThreadEvent},
    ids::{ThreadId, Turn},
    principal::{Actor, Caller},
    rejection::Rejection,
    rules::authority,
    state::{session::Session, thread::Thread},
    status::{Settled, StatusKind},
};

/// The start of the error message of a thread that did not report the result that its input asks for.
pub const RESULT_INVALID: &str = "RESULT_INVALID: ";

/// Records a result that matches the schema of the thread's input. A later result of the same turn replaces it.
pub(super) fn report(
    session: &Session,
    caller: &Caller,
    target: ThreadId,
    result: &ContentRef,
) -> Result<Vec<Event>, Rejection> {
    let thread = running(session, caller, "ReportResult", target)?;
    if !wants_result(thread) {
        return Err(no_result_wanted(target));
    }
    Ok(vec![reported(thread, result)])
}

/// Returns the error for a result that no input asks for.
#[must_use]
pub fn no_result_wanted(thread: ThreadId) -> Rejection {
    Rejection::IllegalState(format!(
        "agent with id {thread} has no result to report, because its input has no result schema; \
         answer with your last message"
    ))
}

/// Returns whether the thread's running turn may report a result: a missing result, or a replacement of the turn's
/// earlier result.
#[must_use]
pub fn wants_result(thread: &Thread) -> bool {
    thread.result_request.is_some() || has_reported(thread, thread.turn.number())
}

fn has_reported(thread: &Thread, turn: Turn) -> bool {
    thread.result.as_ref().is_some_and(|result| result.turn == turn)
}

fn reported(thread: &Thread, result: &ContentRef) -> Event {
    Event::Thread(
        thread.id,
        ThreadEvent::ResultReported {
            turn: thread.turn.number(),
            result: result.clone(),
        },
    )
}

/// Records a question to the parent. The next input answers it.
pub(super) fn ask(
    session: &Session,
    caller: &Caller,
    target: ThreadId,
    question: &str,
) -> Result<Vec<Event>, Rejection> {
    let thread = running(session, caller, "AskParent", target)?;
    let kind = ConditionKind::AwaitingInput;
    Ok(vec![condition::changed(thread.id, kind, true, question.to_owned())])
}

/// Returns the target if an agent is working on one of its turns. The caller may be the thread itself, an ancestor or
/// an operator.
fn running<'s>(
    session: &'s Session,
    caller: &Caller,
    method: &'static str,
    target: ThreadId,
) -> Result<&'s Thread, Rejection> {
    let thread = authority::authorize(session, caller, method, target)?;
    if session.is_closing(target) {
        return Err(Rejection::ThreadClosing(target));
    }
    if thread.status.kind() != StatusKind::Running || !thread.runs_turn() {
        return Err(Rejection::IllegalTransition {
            thread: target,
            status: thread.status.kind(),
            wanted: "answer, because it has no turn",
        });
    }
    Ok(thread)
}

/// The consequence of a completed turn for the requested result.
pub(super) enum Verdict {
    /// No result is missing, or the thread asked its parent a question first.
    None,
    /// The last message is the result.
    Reported(Event),
    /// The result is missing or invalid. The event queues the repair turn.
    Repair(Event),
    /// The result is missing or invalid, and no repair turn is left.
    Failed(Settled),
}

/// Returns the consequence of a completed turn for the requested result. `check` is the check of the turn's last
/// message.
pub(super) fn judge(session: &Session, thread: &Thread, check: Option<&ResultCheck>) -> Verdict {
    let asks = thread.conditions.contains_key(&ConditionKind::AwaitingInput);
    let (Some(request), Some(check)) = (&thread.result_request, check) else {
        return Verdict::None;
    };
    match check {
        ResultCheck::Valid(result) => Verdict::Reported(reported(thread, result)),
        ResultCheck::Invalid { .. } if asks || session.is_closing(thread.id) => Verdict::None,
        ResultCheck::Invalid { errors, .. } if request.repairs_left == 0 => Verdict::Failed(Settled::Errored {
            message: format!("{RESULT_INVALID}{errors}"),
            content: None,
        }),
        ResultCheck::Invalid { repair, .. } => Verdict::Repair(Event::Thread(
            thread.id,
            ThreadEvent::InputQueued {
                number: thread.last_input.next(),
                input: repair.clone(),
                from: Actor::Service,
                steers: false,
                result_repairs: Some(request.repairs_left - 1),
            },
        )),
    }
}
