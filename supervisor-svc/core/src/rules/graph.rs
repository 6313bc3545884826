//! The communication graph. A handoff needs an edge: a created edge, or the implicit tree edge between a thread and its
//! parent. The tree edge has no event and exists while the thread is open. The kind of an edge is informational: every
//! kind carries handoffs.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    event::{Edge, EdgeKind},
    ids::{EdgeId, ThreadId},
    principal::Caller,
    rejection::Rejection,
    rules::approval,
    settings::EdgeManagement,
    state::{approval::Approval, session::Session, thread::Thread},
};

/// Maximum number of created edges of a session, including edges that wait for an approval. Tree edges do not count.
pub const MAX_EDGES: usize = 1_000;

/// Returns the edge with that id: a created edge, or the tree edge above the open thread with the same UUID.
#[must_use]
pub fn edge(session: &Session, id: EdgeId) -> Option<Arc<Edge>> {
    let created = session.edges.get(&id).cloned();
    created.or_else(|| tree_edge_above(session.thread(ThreadId::from_uuid(id.as_uuid()))?))
}

/// Returns the edges of a thread, ordered by id.
#[must_use]
pub fn edges_of(session: &Session, id: ThreadId) -> Vec<Arc<Edge>> {
    let Some(thread) = session.thread(id) else {
        return Vec::new();
    };
    let children = thread.children.iter().filter_map(|child| session.thread(*child));
    in_order(edges_at(session, thread).chain(children.filter_map(|child| tree_edge_above(child))))
}

/// Returns the edges of a thread and its descendants, ordered by id.
#[must_use]
pub fn edges_within(session: &Session, top: ThreadId) -> Vec<Arc<Edge>> {
    let threads = session.subtree(top).into_iter();
    in_order(threads.flat_map(|thread| edges_at(session, thread)))
}

/// Returns whether an edge permits a handoff in this direction.
#[must_use]
pub fn may_hand_off(session: &Session, from: ThreadId, to: ThreadId) -> bool {
    let is_child = |child, parent| {
        session
            .thread(child)
            .is_some_and(|thread| thread.spawned.parent == Some(parent))
    };
    let mut created = session.created_edges_of(from);
    is_child(from, to) || is_child(to, from) || created.any(|edge| connects(edge, from, to))
}

/// Returns an existing edge that connects the same threads in the same direction for the same purpose. Labels are
/// ignored.
#[must_use]
pub fn like(session: &Session, wanted: &Edge) -> Option<Arc<Edge>> {
    let ends = [wanted.from, wanted.to].into_iter();
    let of_the_tree = ends.filter_map(|end| tree_edge_above(session.thread(end)?));
    let created = session.created_edges_of(wanted.from).cloned();
    of_the_tree.chain(created).find(|edge| is_like(edge, wanted))
}

/// Returns the edges that wait for an approval.
pub fn waiting(session: &Session) -> impl Iterator<Item = &Edge> {
    let undecided = session.approvals.values().filter(|approval| approval.verdict.is_none());
    undecided.filter_map(|approval| approval.edge.as_ref())
}

/// Returns a pending edge that equals the requested one.
#[must_use]
pub fn waiting_like<'s>(session: &'s Session, wanted: &Edge) -> Option<&'s Edge> {
    waiting(session).find(|waiting| is_like(waiting, wanted))
}

/// Returns the approval in which an edge was requested.
#[must_use]
pub fn approval_of(session: &Session, edge: EdgeId) -> Option<&Arc<Approval>> {
    let asked_for = |approval: &&Arc<Approval>| approval.edge.as_ref().is_some_and(|asked| asked.id == edge);
    session.approvals.values().find(asked_for)
}

/// Returns the edge to return for a request: an equal edge that exists or is pending, otherwise the requested edge.
#[must_use]
pub fn answer_to(session: &Session, caller: &Caller, wanted: &Edge) -> EdgeId {
    if let Some(present) = like(session, wanted) {
        return present.id;
    }
    let waits = asking(session, caller).and_then(|_| waiting_like(session, wanted));
    waits.map_or(wanted.id, |edge| edge.id)
}

/// Returns the calling thread if edges that it creates require an approval.
#[must_use]
pub fn asking<'s>(session: &'s Session, caller: &Caller) -> Option<&'s Arc<Thread>> {
    let thread = session.thread(caller.thread()?)?;
    approval::is_needed(session, thread, "CreateEdge").then_some(thread)
}

/// Checks that the caller's edge management covers an edge. Applies to graph threads only. Authority is checked
/// separately.
///
/// # Errors
/// [`Rejection::NotPermitted`].
pub fn may_manage(session: &Session, caller: &Caller, edge: &Edge) -> Result<(), Rejection> {
    let Some(thread) = graph_caller(session, caller) else {
        return Ok(());
    };
    let ends_in_it = [edge.from, edge.to].contains(&thread.id);
    match session.edge_management(thread) {
        EdgeManagement::None => Err(Rejection::NotPermitted(String::from(
            "edgeManagement capability is disabled",
        ))),
        EdgeManagement::SelfOnly if !ends_in_it => Err(Rejection::NotPermitted(String::from(
            "edgeManagement=self only allows edges that include the calling node",
        ))),
        EdgeManagement::SelfOnly | EdgeManagement::All => Ok(()),
    }
}

/// Returns the thread with that id, otherwise the thread with that alias. If neither exists, a calling thread receives
/// [`ThreadId::NIL`]. The decision handles this id like any thread that is invisible to the caller, after all earlier
/// checks. A caller therefore cannot distinguish an unknown name from an invisible thread.
///
/// # Errors
/// [`Rejection::ThreadNotFound`], for operators only.
pub fn find(session: &Session, caller: &Caller, name: &str) -> Result<ThreadId, Rejection> {
    let by_id: Option<ThreadId> = name.parse().ok();
    let found = by_id
        .filter(|id| session.thread(*id).is_some())
        .or_else(|| session.thread_by_alias(name));
    match (found, caller) {
        (Some(id), _) => Ok(id),
        (None, Caller::Operator { .. }) => Err(Rejection::ThreadNotFound(name.to_owned())),
        (None, Caller::Thread { .. }) => Ok(ThreadId::NIL),
    }
}

/// Returns whether the caller may name a thread as the receiver of the answer. An operator may name any thread. A
/// thread may name a thread in its subtree, or a thread that has an edge with the sender.
#[must_use]
pub fn may_be_answered(session: &Session, caller: &Caller, sender: ThreadId, other: ThreadId) -> bool {
    match caller {
        Caller::Operator { .. } => session.thread(other).is_some(),
        Caller::Thread { id, .. } => {
            session.is_within(other, *id)
                || may_hand_off(session, sender, other)
                || may_hand_off(session, other, sender)
        }
    }
}

/// Returns the error for a receiver without an edge. A calling thread receives the same error if the receiver does not
/// exist.
#[must_use]
pub fn no_edge(from: ThreadId) -> Rejection {
    Rejection::IllegalState(format!(
        "send_handoff requires an edge between {from} and the receiver. Create the edge first."
    ))
}

/// Returns the error for a thread that names an invisible or unknown receiver of the answer.
#[must_use]
pub fn unknown_reply_to(from: ThreadId) -> Rejection {
    Rejection::InvalidArgument {
        field: "reply_to_thread_id",
        message: format!(
            "reply_to_thread_id must name an agent of your subtree or one that {from} has an edge with; leave it out for an \
             answer to {from}"
        ),
    }
}

/// Returns the edge between an open thread and its parent.
fn tree_edge_above(thread: &Thread) -> Option<Arc<Edge>> {
    let parent = thread.spawned.parent.filter(|_| thread.status.kind().is_open())?;
    Some(Arc::new(Edge {
        id: EdgeId::from_uuid(thread.id.as_uuid()),
        from: parent,
        to: thread.id,
        bidirectional: true,
        kind: EdgeKind::Handoff,
        label: String::new(),
    }))
}

/// Returns the edges of a thread, except the tree edges to its children.
fn edges_at<'s>(session: &'s Session, thread: &'s Thread) -> impl Iterator<Item = Arc<Edge>> + 's {
    tree_edge_above(thread)
        .into_iter()
        .chain(session.created_edges_of(thread.id).cloned())
}

/// Returns each edge once, ordered by id.
fn in_order(edges: impl Iterator<Item = Arc<Edge>>) -> Vec<Arc<Edge>> {
    let sorted: BTreeMap<EdgeId, Arc<Edge>> = edges.map(|edge| (edge.id, edge)).collect();
    sorted.into_values().collect()
}

fn connects(edge: &Edge, from: ThreadId, to: ThreadId) -> bool {
    (edge.from, edge.to) == (from, to) || (edge.bidirectional && (edge.to, edge.from) == (from, to))
}

fn is_like(a: &Edge, b: &Edge) -> bool {
    let same_ends = (a.from, a.to) == (b.from, b.to) || (a.bidirectional && (a.from, a.to) == (b.to, b.from));
    same_ends && a.bidirectional == b.bidirectional && a.kind == b.kind
}

/// Returns the calling thread if it has a graph template.
fn graph_caller<'s>(session: &'s Session, caller: &Caller) -> Option<&'s Arc<Thread>> {
    session
        .thread(caller.thread()?)
        .filter(|thread| thread.spawned.role.is_graph())
}
