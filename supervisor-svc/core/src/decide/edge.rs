//! Creating and deleting edges.

use crate::{
    content::preview,
    event::{ApprovalKind, Edge, EdgeKind, Event, ThreadEvent},
    ids::{ApprovalId, EdgeId, ThreadId},
    principal::Caller,
    rejection::{GuardedVerb, Rejection},
    rules::{
        authority,
        graph::{self, MAX_EDGES},
        start,
    },
    state::session::Session,
    time::UnixMillis,
};

/// Creates the edge, or requests an approval if the caller needs one. Returns no events if an equal edge exists or is
/// pending, see [`graph::answer_to`].
pub(super) fn create(
    session: &Session,
    caller: &Caller,
    edge: &Edge,
    approval: ApprovalId,
    now: UnixMillis,
) -> Result<Vec<Event>, Rejection> {
    for end in [edge.from, edge.to] {
        authority::authorize(session, caller, "CreateEdge", end)?;
    }
    graph::may_manage(session, caller, edge)?;
    let Some(created) = make(session, edge)? else {
        return Ok(Vec::new());
    };
    let Some(asking) = graph::asking(session, caller) else {
        return Ok(vec![created]);
    };
    if graph::waiting_like(session, edge).is_some() {
        return Ok(Vec::new());
    }
    Ok(vec![Event::Thread(
        asking.id,
        ThreadEvent::ApprovalRequested {
            approval,
            kind: ApprovalKind::Edge,
            subject: subject(session, edge),
            deadline: session.settings.approval_deadline(now),
            edge: Some(edge.clone()),
            call: None,
        },
    )])
}

/// Returns the events that create an edge that needs no further approval. Returns no events if an equal edge exists.
///
/// # Errors
/// If both ends are the same thread, an end is closed or closing, or the session has the maximum number of edges.
pub(super) fn make(session: &Session, edge: &Edge) -> Result<Option<Event>, Rejection> {
    if edge.from == edge.to {
        return Err(Rejection::InvalidArgument {
            field: "to_thread_id",
            message: format!("an edge connects two agents; both ends are {}", edge.to),
        });
    }
    for end in [edge.from, edge.to] {
        let thread = session
            .thread(end)
            .ok_or_else(|| Rejection::ThreadNotFound(end.to_string()))?;
        start::takes_part(session, thread)?;
    }
    if graph::like(session, edge).is_some() {
        return Ok(None);
    }
    let waiting = graph::waiting(session).filter(|waiting| waiting.id != edge.id).count();
    if session.edges.len() + waiting >= MAX_EDGES {
        return Err(Rejection::LimitExceeded {
            limit: "max_edges",
            message: format!("edge limit reached (max {MAX_EDGES}); delete edges that are no longer needed"),
        });
    }
    Ok(Some(Event::Thread(edge.from, ThreadEvent::EdgeCreated(edge.clone()))))
}

/// Deletes a created edge.
pub(super) fn delete(session: &Session, caller: &Caller, id: EdgeId) -> Result<Vec<Event>, Rejection> {
    let Some(edge) = graph::edge(session, id) else {
        return Err(no_such_edge(session, caller, id));
    };
    for end in [edge.from, edge.to] {
        authority::authorize(session, caller, "DeleteEdge", end)?;
    }
    graph::may_manage(session, caller, &edge)?;
    if !session.edges.contains_key(&id) {
        return Err(Rejection::IllegalState(format!(
            "edge {id} connects agent {} to its parent; it cannot be deleted, and ends when the agent is closed",
            edge.to
        )));
    }
    // A fenced thread records only its own end, which also ends its edges.
    if session.is_closing(edge.from) {
        return Err(Rejection::ThreadClosing(edge.from));
    }
    Ok(vec![Event::Thread(edge.from, ThreadEvent::EdgeDeleted(id))])
}

/// Returns the error for an unknown edge. A thread receives the same error for an edge outside its subtree.
fn no_such_edge(session: &Session, caller: &Caller, id: EdgeId) -> Rejection {
    match caller {
        Caller::Operator { .. } => Rejection::Missing {
            what: "edge",
            id: id.to_string(),
        },
        Caller::Thread { .. } => match authority::fresh(session, caller) {
            Ok(_) => Rejection::OutsideSubtree(GuardedVerb::Act),
            Err(stale) => stale,
        },
    }
}

fn subject(session: &Session, edge: &Edge) -> String {
    // Flattened: text chosen by an agent must not imitate a line of the supervisor.
    let name = |id: ThreadId| {
        session
            .thread(id)
            .map_or_else(|| id.to_string(), |thread| preview(&thread.display_name()))
    };
    let kind = match edge.kind {
        EdgeKind::Handoff => "handoff",
        EdgeKind::Report => "report",
    };
    format!("Create edge: {} -> {} ({kind})", name(edge.from), name(edge.to))
}
