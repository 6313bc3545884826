//! Resuming closed threads, with at most their previous permissions.

use super::spawn::{self, Wanted, WantedRole};
use crate::{
    event::{Event, Resumed, ThreadEvent},
    ids::ThreadId,
    principal::Caller,
    rejection::Rejection,
    rules::{approval, authority, budget, limits, start},
    settings::SlotRelease,
    state::session::Session,
    status::{Settled, Status},
    time::UnixMillis,
};

/// Opens a closed thread again. The thread keeps its recorded role and permissions, narrowed to those that a child of
/// its parent could receive now. Descendants stay closed. An open thread is unchanged. A thread whose spawn was never
/// approved cannot be resumed, because that would bypass the approval.
pub(super) fn resume(
    session: &Session,
    caller: &Caller,
    target: ThreadId,
    now: UnixMillis,
) -> Result<Vec<Event>, Rejection> {
    let thread = authority::authorize(session, caller, "ResumeAgent", target)?;
    let Status::Shutdown { before, .. } = &thread.status else {
        return Ok(Vec::new());
    };
    let Some(settled) = before else {
        return Err(Rejection::IllegalState(format!(
            "the spawn of agent with id {target} was never approved; spawn it again"
        )));
    };
    let Some(parent) = thread.spawned.parent.and_then(|parent| session.thread(parent)) else {
        return Err(Rejection::SessionClosed);
    };
    start::may_start_in(session, parent)?;
    limits::child_depth(session, parent)?;
    let wanted = Wanted {
        caller,
        parent: parent.id,
        role: WantedRole::of(&thread.spawned.role),
        alias: "",
    };
    spawn::gate(session, &wanted, parent)?;
    let asking = caller.thread().and_then(|id| session.thread(id));
    if asking.is_some_and(|asking| approval::forbids_resume(session, asking)) {
        return Err(Rejection::NotPermitted(format!(
            "what you spawn needs an operator's approval, and a resume cannot wait for one; ask an operator to resume agent \
             with id {target}, or spawn another one"
        )));
    }
    let mut events = super::evict::evict_for_child(session, parent.id, now)?;
    budget::carve(session, parent.id, Some(thread), &thread.budget).map_err(Rejection::OverBudget)?;
    // If a slot is held until the thread closes, a resumed thread needs a slot immediately.
    if session.settings.slot_release == SlotRelease::Close && !limits::has_free_slot(session) {
        return Err(limits::no_slot(session));
    }
    let source = match session.settings.policy_inheritance {
        tool_policy::Inheritance::Attenuate => &parent.grant,
        tool_policy::Inheritance::Ceiling => &session.ceiling,
    };
    events.push(Event::Thread(
        target,
        ThreadEvent::Resumed(Box::new(Resumed {
            generation: thread.generation.next(),
            settled: Settled::clone(settled),
            effective: thread.effective.intersect(source),
            grant: thread.grant.intersect(source),
            sandbox: thread.sandbox.min(parent.sandbox),
        })),
    ));
    Ok(events)
}
