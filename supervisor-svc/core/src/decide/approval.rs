//! Decisions on approvals: by an operator, by expiry, or because the subject no longer exists.

use std::collections::BTreeSet;

use super::{condition, edge};
use crate::{
    event::{ApprovalDecision, ApprovalKind, ConditionKind, Event, ThreadEvent},
    ids::{ApprovalId, ThreadId},
    principal::Actor,
    rejection::Rejection,
    state::{
        approval::{Approval, Verdict},
        session::Session,
    },
    time::UnixMillis,
};

/// Maximum number of approvals that expire in one tick. The next tick follows immediately.
const MAX_EXPIRIES_PER_TICK: usize = 128;

/// Applies an operator's decision. A decision is final. A second decision is rejected with the first outcome. A
/// decision after the deadline is rejected even if the expiry is not recorded yet. If the subject no longer exists, a
/// granted approval becomes moot.
pub(super) fn resolve(
    session: &Session,
    id: ApprovalId,
    grant: bool,
    by: &Actor,
    reason: &str,
    now: UnixMillis,
) -> Result<Vec<Event>, Rejection> {
    let approval = session.approvals.get(&id).ok_or_else(|| Rejection::Missing {
        what: "approval",
        id: id.to_string(),
    })?;
    let too_late = || approval.is_overdue(now).then(|| expiry(approval));
    if let Some(Verdict { decision, by, .. }) = approval.verdict.clone().or_else(too_late) {
        let decision = decision.as_str();
        return Err(Rejection::IllegalState(format!(
            "approval {id} was decided before: {decision} by {by}; a decision is final"
        )));
    }
    let decision = if !grant {
        ApprovalDecision::Denied
    } else if approval
        .edge
        .as_ref()
        .is_some_and(|edge| edge::make(session, edge).is_err())
    {
        ApprovalDecision::Moot
    } else {
        ApprovalDecision::Granted
    };
    let verdict = Verdict {
        decision,
        by: by.clone(),
        reason: reason.to_owned(),
    };
    Ok(decided(session, [(&**approval, verdict)]))
}

/// Returns the earliest deadline of all pending approvals.
pub(super) fn deadline(session: &Session) -> Option<UnixMillis> {
    session.pending_approvals().next()?.deadline
}

/// Expires the approvals whose deadline has passed. An expired approval counts as denied.
pub(super) fn expired(session: &Session, now: UnixMillis) -> Vec<Event> {
    let late = session
        .pending_approvals()
        .take_while(|approval| approval.is_overdue(now))
        .take(MAX_EXPIRIES_PER_TICK);
    decided(session, late.map(|approval| (&**approval, expiry(approval))))
}

fn expiry(approval: &Approval) -> Verdict {
    let deadline = approval.deadline.unwrap_or(approval.requested);
    let waited = deadline.since(approval.requested).as_secs();
    by_service(ApprovalDecision::Expired, format!("no decision within {waited} s"))
}

/// Makes approvals moot whose thread is closed or closing, or whose turn is over.
pub(super) fn moot(session: &Session) -> Vec<Event> {
    let gone = session.moot.iter().filter_map(|id| session.approvals.get(id));
    decided(
        session,
        gone.map(|approval| {
            let is_closing = session.is_closing(approval.thread);
            let is_open = session
                .thread(approval.thread)
                .is_some_and(|thread| thread.status.kind().is_open());
            let reason = if is_open && !is_closing {
                "the turn of the call has ended"
            } else {
                "the agent is closed"
            };
            let reason = String::from(reason);
            (&**approval, by_service(ApprovalDecision::Moot, reason))
        }),
    )
}

/// Makes the approval of a cancelled group moot. Folding the decision cancels the group.
pub(super) fn withdraw(session: &Session, id: ApprovalId, reason: &str) -> Vec<Event> {
    let approval = session.approvals.get(&id);
    let verdict = by_service(ApprovalDecision::Moot, reason.to_owned());
    decided(session, approval.map(|approval| (&**approval, verdict)))
}

fn by_service(decision: ApprovalDecision, reason: String) -> Verdict {
    Verdict {
        decision,
        by: Actor::Service,
        reason,
    }
}

/// Returns the decisions, each followed by its consequences in the same append. Folding a granted spawn adds its thread
/// to the queue.
fn decided<'s>(session: &'s Session, verdicts: impl IntoIterator<Item = (&'s Approval, Verdict)>) -> Vec<Event> {
    use ApprovalDecision as D;
    use ApprovalKind as K;
    let mut events = Vec::new();
    let mut done = BTreeSet::new();
    for (approval, verdict) in verdicts {
        done.insert(approval.id);
        let follows = match (approval.kind, verdict.decision) {
            (K::Spawn, D::Denied | D::Expired) => Some(Event::Thread(
                approval.thread,
                ThreadEvent::Closed {
                    forced: false,
                    reason: closing_reason(&verdict),
                },
            )),
            (K::Edge, D::Granted) => {
                let edge = approval.edge.as_ref();
                edge.and_then(|edge| edge::make(session, edge).ok().flatten())
            }
            (K::Tool, D::Granted | D::Denied | D::Expired | D::Moot) => last_tool_call(session, approval.thread, &done),
            // Folding the decision starts the group, or cancels it.
            (K::Group, D::Granted | D::Denied | D::Expired | D::Moot)
            | (K::Spawn, D::Granted | D::Moot)
            | (K::Edge, D::Denied | D::Expired | D::Moot) => None,
        };
        events.push(Event::Thread(
            approval.thread,
            ThreadEvent::ApprovalResolved {
                approval: approval.id,
                decision: verdict.decision,
                by: verdict.by,
                reason: verdict.reason,
            },
        ));
        events.extend(follows);
    }
    events
}

fn closing_reason(verdict: &Verdict) -> String {
    let Verdict { decision, by, reason } = verdict;
    let how = match decision {
        ApprovalDecision::Expired => String::from("expired"),
        ApprovalDecision::Granted | ApprovalDecision::Denied | ApprovalDecision::Moot => {
            format!("was {} by {by}", decision.as_str())
        }
    };
    if reason.is_empty() {
        format!("the spawn's approval {how}")
    } else {
        format!("the spawn's approval {how}: {reason}")
    }
}

/// Returns the event that clears AWAITING_TOOL_APPROVAL if no other tool call of the thread is pending.
fn last_tool_call(session: &Session, thread: ThreadId, done: &BTreeSet<ApprovalId>) -> Option<Event> {
    let kind = ConditionKind::AwaitingToolApproval;
    let holds = session.thread(thread)?.conditions.contains_key(&kind);
    let another_waits = session
        .pending_approvals()
        .any(|other| other.kind == ApprovalKind::Tool && other.thread == thread && !done.contains(&other.id));
    (holds && !another_waits).then(|| condition::changed(thread, kind, false, String::new()))
}
