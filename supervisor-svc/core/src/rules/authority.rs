//! Authority checks of every RPC: the token's freshness, the subtree guard and the tool policy, in this order.

use std::sync::Arc;

use crate::{
    ids::ThreadId,
    principal::Caller,
    rejection::{GuardedVerb, Rejection},
    state::{session::Session, thread::Thread},
    status::StatusKind,
};

/// Checks that `caller` may call `method` on `target`, and returns the target.
///
/// # Errors
/// [`Rejection::StaleToken`], [`Rejection::OutsideSubtree`] or [`Rejection::ToolDenied`]. [`Rejection::ThreadNotFound`]
/// is returned to operators only, because a thread must not learn which threads exist outside its subtree.
pub fn authorize<'s>(
    session: &'s Session,
    caller: &Caller,
    method: &str,
    target: ThreadId,
) -> Result<&'s Arc<Thread>, Rejection> {
    let found = session.thread(target);
    match caller {
        Caller::Operator { .. } => found.ok_or_else(|| Rejection::ThreadNotFound(target.to_string())),
        Caller::Thread { .. } => {
            let own = fresh(session, caller)?;
            let target = found
                .filter(|thread| session.is_within(thread.id, own.id))
                .ok_or(Rejection::OutsideSubtree(verb(method)))?;
            tools(&own, method)?;
            Ok(target)
        }
    }
}

/// Returns the calling thread if its token is valid. The token of a thread is not usable until its spawn is approved,
/// because the caller that requested the spawn can already hold the token.
///
/// # Errors
/// [`Rejection::StaleToken`], also for operators, because they have no thread. [`Rejection::NotPermitted`] before the
/// approval.
pub fn fresh(session: &Session, caller: &Caller) -> Result<Arc<Thread>, Rejection> {
    match caller {
        Caller::Operator { .. } => Err(Rejection::StaleToken),
        Caller::Thread { id, generation } => match session.thread(*id) {
            Some(thread) if thread.generation != *generation => Err(Rejection::StaleToken),
            Some(thread) => match thread.status.kind() {
                StatusKind::AwaitingApproval => Err(Rejection::NotPermitted(format!(
                    "agent with id {id} waits for an operator's approval; its token becomes valid when the approval is granted"
                ))),
                StatusKind::Shutdown => Err(Rejection::StaleToken),
                StatusKind::Queued
                | StatusKind::PendingInit
                | StatusKind::Running
                | StatusKind::Completed
                | StatusKind::Errored
                | StatusKind::Interrupted => Ok(Arc::clone(thread)),
            },
            None => Err(Rejection::StaleToken),
        },
    }
}

/// Checks that the tool of an RPC is in a thread's effective policy.
///
/// # Errors
/// [`Rejection::ToolDenied`] with the tool's and the role's name.
pub fn tools(thread: &Thread, method: &str) -> Result<(), Rejection> {
    thread
        .effective
        .allows_rpc(method)
        .map_err(|refused| Rejection::ToolDenied {
            tool: refused.tool.to_owned(),
            agent_type: thread.spawned.role.agent_type.clone(),
        })
}

/// Returns the action of a method, which selects the text of a rejection.
#[must_use]
pub fn verb(method: &str) -> GuardedVerb {
    if method == "CloseAgent" {
        GuardedVerb::Close
    } else {
        GuardedVerb::Act
    }
}
