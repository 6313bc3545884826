//! Deciding what waits for an operator: by an operator, by the passing of time, or because its subject is gone.

use std::collections::BTreeSet;

use super::edge;
use crate::domain::{
    actor::Actor,
    approval::{Approval, Verdict},
    event::{ApprovalDecision, ApprovalKind, ConditionKind, Event, ThreadEvent},
    ids::{ApprovalId, ThreadId},
    refusal::Refusal,
    session::Session,
    time::UnixMillis,
};

/// How many approvals one look at the clock lets expire; the next look follows at once.
const MAX_EXPIRIES_PER_TICK: usize = 128;

/// An operator's decision. It is final: a second one is refused and says how the first one went, and one that comes too late
/// is refused whether or not the end is recorded already. What is granted when its subject has gone becomes moot instead.
pub(super) fn resolve(
    session: &Session,
    id: ApprovalId,
    grant: bool,
    by: &Actor,
    reason: &str,
    now: UnixMillis,
) -> Result<Vec<Event>, Refusal> {
    let approval = session.approvals.get(&id).ok_or_else(|| Refusal::Missing {
        what: "approval",
        id: id.to_string(),
    })?;
    let too_late = || approval.is_overdue(now).then(|| expiry(approval));
    if let Some(Verdict { decision, by, .. }) = approval.verdict.clone().or_else(too_late) {
        let decision = decision.as_str();
        return Err(Refusal::IllegalState(format!(
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

/// The nearest deadline of what waits.
pub(super) fn deadline(session: &Session) -> Option<UnixMillis> {
    session.pending_approvals().next().map(|approval| approval.deadline)
}

/// Nobody decided in time, which means no.
pub(super) fn expired(session: &Session, now: UnixMillis) -> Vec<Event> {
    let late = session
        .pending_approvals()
        .take_while(|approval| approval.is_overdue(now))
        .take(MAX_EXPIRIES_PER_TICK);
    decided(session, late.map(|approval| (&**approval, expiry(approval))))
}

fn expiry(approval: &Approval) -> Verdict {
    let waited = approval.deadline.since(approval.requested).as_secs();
    by_service(ApprovalDecision::Expired, format!("nobody decided within {waited} s"))
}

/// What waits for an operator about threads that are closed or about to be, or for a turn that is over: nothing is left to
/// decide, so it is moot.
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
                "the turn that it was for is over"
            } else {
                "the agent that it is about is closed"
            };
            let reason = String::from(reason);
            (&**approval, by_service(ApprovalDecision::Moot, reason))
        }),
    )
}

fn by_service(decision: ApprovalDecision, reason: String) -> Verdict {
    Verdict {
        decision,
        by: Actor::Service,
        reason,
    }
}

/// The decisions, each with what follows from it in the same append. A granted spawn joins the queue by its fold.
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
            (K::Spawn, D::Granted | D::Moot) | (K::Edge, D::Denied | D::Expired | D::Moot) => None,
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

/// AWAITING_TOOL_APPROVAL ends with the last of the thread's calls that waited.
fn last_tool_call(session: &Session, thread: ThreadId, done: &BTreeSet<ApprovalId>) -> Option<Event> {
    let kind = ConditionKind::AwaitingToolApproval;
    let holds = session.thread(thread)?.conditions.contains_key(&kind);
    let another_waits = session
        .pending_approvals()
        .any(|other| other.kind == ApprovalKind::Tool && other.thread == thread && !done.contains(&other.id));
    (holds && !another_waits).then(|| {
        Event::Thread(
            thread,
            ThreadEvent::ConditionChanged {
                kind,
                active: false,
                reason: String::new(),
            },
        )
    })
}
