//! Invariants that hold after every append. They are computed from the threads and not from the indices.

use std::collections::BTreeSet;

use supervisor_core::{
    command::Command,
    decide::follow_ups,
    event::{ApprovalDecision, ApprovalKind, CloseCause, ConditionKind, Edge, Event, Recorded, Scope, ThreadEvent},
    evolve::evolve,
    ids::{EdgeId, InputNumber, ThreadId, Turn},
    principal::Caller,
    rules::{budget, graph::MAX_EDGES},
    settings::{Budget, EdgeManagement, SlotRelease},
    state::{
        approval::Approval,
        session::Session,
        thread::{LatestTurn, Thread},
    },
    status::{Settled, Status, StatusKind, Step},
};
use tool_policy::{Inheritance, Policy};

use crate::world::name;

/// Tool names with which permissions are always compared.
const TOOLS: [&str; 6] = [
    "spawn_agent",
    "send_input",
    "close_agent",
    "apply_patch",
    "web_search",
    "mcp__a",
];

/// Asserts the laws of one append: consecutive sequence numbers, non-decreasing time, legal steps only, and a state
/// that equals the fold of the appended events.
pub fn of_append(before: &Session, appended: &[Recorded], after: &Session, tools: &[String]) {
    let mut state = before.clone();
    for recorded in appended {
        assert_eq!(recorded.sequence, state.sequence.next(), "the log has a gap");
        assert!(recorded.time >= state.updated, "the log's time went back");
        let earlier = state.clone();
        evolve(&mut state, recorded);
        if let Event::Thread(id, event) = &recorded.event {
            step_is_legal(&earlier, *id, event, &state);
            assert_no_start_under_fence(&earlier, *id, event);
            assert_admission_in_queue_order(&earlier, *id, event);
            assert_handoff_has_edge(&earlier, event);
            assert_result_is_settled(*id, event, &state);
            assert_inputs_reach_one_turn(&earlier, *id, event, &state);
            if let ThreadEvent::Spawned(_) | ThreadEvent::Resumed(_) = event {
                permissions_only_shrink(&earlier, *id, &state, tools);
            }
        }
        others_keep_their_status(&earlier, recorded.event.thread(), &state);
    }
    assert!(state == *after, "the fold of the log is not the state");
}

/// Returns the step of an event in the table of STATE.md §2; `None` if the event is not a step.
fn step_of(before: &Session, event: &ThreadEvent) -> Option<Step> {
    match event {
        ThreadEvent::ApprovalResolved {
            approval,
            decision: ApprovalDecision::Granted,
            ..
        } => (before.approvals[approval].kind == ApprovalKind::Spawn).then_some(Step::Granted),
        ThreadEvent::Admitted => Some(Step::Admitted),
        ThreadEvent::Placed { .. } => Some(Step::Placed),
        ThreadEvent::TurnDispatched { .. } => Some(Step::Dispatched),
        ThreadEvent::TurnStarted { .. } => Some(Step::Started),
        ThreadEvent::TurnEnded { outcome, .. } => Some(Step::Ended(outcome.kind())),
        ThreadEvent::InputQueued { .. } => Some(Step::InputQueued),
        ThreadEvent::Closed { .. } => Some(Step::Closed),
        ThreadEvent::Resumed(resumed) => Some(Step::Resumed(resumed.settled.kind())),
        _ => None,
    }
}

fn step_is_legal(before: &Session, id: ThreadId, event: &ThreadEvent, after: &Session) {
    let now = after
        .thread(id)
        .expect("an event is about a thread that exists")
        .status
        .kind();
    let what = name_of(id, event);
    match (before.thread(id), event) {
        (None, ThreadEvent::Spawned(spawned)) => assert_eq!(now, spawned.first_status),
        (None, _) => panic!("{what} is about a thread that does not exist"),
        (Some(_), ThreadEvent::Spawned(_)) => panic!("{what} again"),
        (Some(thread), _) => match step_of(before, event) {
            Some(step) => {
                let from = thread.status.kind();
                assert_eq!(from.after(step), Some(now), "{what} leads from {from} to {now}");
            }
            None => assert_eq!(now, thread.status.kind(), "{what} is no step"),
        },
    }
    if let ThreadEvent::Closed { .. } = event {
        assert!(
            before.is_closing(id) || was_refused(before, id),
            "{what} without a fence or a denial"
        );
        let open_child = children(before, id).any(|child| child.status.kind().is_open());
        assert!(!open_child, "{what} before its children");
    }
}

/// Returns whether the thread waits for the approval of its spawn although that approval was denied or has expired.
fn was_refused(session: &Session, id: ThreadId) -> bool {
    let refused = |approval: &Approval| {
        let decision = approval.verdict.as_ref().map(|verdict| verdict.decision);
        approval.thread == id
            && approval.kind == ApprovalKind::Spawn
            && matches!(decision, Some(ApprovalDecision::Denied | ApprovalDecision::Expired))
    };
    let waits = |thread: &Thread| thread.status.kind() == StatusKind::AwaitingApproval;
    session.thread(id).is_some_and(|thread| waits(thread))
        && session.approvals.values().any(|approval| refused(approval))
}

/// Asserts that no result is still requested after a turn that completes without a repair turn, unless its agent asked
/// a question.
fn assert_result_is_settled(id: ThreadId, event: &ThreadEvent, after: &Session) {
    let ThreadEvent::TurnEnded {
        outcome: Settled::Completed { .. },
        result_repair: false,
        ..
    } = event
    else {
        return;
    };
    let thread = after.thread(id).expect("the turn's thread exists");
    let asks = thread.conditions.contains_key(&ConditionKind::AwaitingInput);
    assert!(
        thread.result_request.is_none() || asks || after.is_closing(id),
        "{id} completed without its requested result"
    );
}

/// Asserts that a thread keeps each input until the turn that received it ends, however often that turn starts again.
fn assert_inputs_reach_one_turn(before: &Session, id: ThreadId, event: &ThreadEvent, after: &Session) {
    let (Some(earlier), Some(now)) = (before.thread(id), after.thread(id)) else {
        return;
    };
    let pending: Vec<InputNumber> = earlier.pending_inputs.iter().map(|input| input.number).collect();
    let mut expected = match event {
        ThreadEvent::TurnEnded { .. } => pending.clone(),
        _ => kept_inputs(earlier),
    };
    if let ThreadEvent::InputQueued { number, .. } = event {
        assert_eq!(*number, earlier.last_input.next(), "the inputs of {id} have a gap");
        expected.push(*number);
    }
    if let ThreadEvent::TurnDispatched { inputs, .. } = event {
        let is_pending = inputs.iter().all(|number| pending.contains(number));
        assert!(is_pending, "a turn of {id} takes {inputs:?} of {pending:?}");
    }
    assert_eq!(
        kept_inputs(now),
        expected,
        "{} loses or repeats an input",
        name_of(id, event)
    );
}

/// Returns the numbers of the inputs that the thread's turn in flight received or that wait for a turn.
fn kept_inputs(thread: &Thread) -> Vec<InputNumber> {
    let in_flight = thread.turn.inputs();
    let inputs = in_flight.iter().chain(thread.pending_inputs.iter());
    let mut numbers: Vec<InputNumber> = inputs.map(|input| input.number).collect();
    numbers.sort();
    numbers
}

fn assert_no_start_under_fence(before: &Session, id: ThreadId, event: &ThreadEvent) {
    let subject = match event {
        ThreadEvent::Spawned(spawned) => spawned.parent,
        ThreadEvent::Admitted
        | ThreadEvent::Placed { .. }
        | ThreadEvent::InputQueued { .. }
        | ThreadEvent::TurnDispatched { .. }
        | ThreadEvent::TurnStarted { .. }
        | ThreadEvent::CloseRequested(_)
        | ThreadEvent::Resumed(_)
        | ThreadEvent::EdgeCreated(_)
        | ThreadEvent::EdgeDeleted(_)
        | ThreadEvent::HandoffSent(_)
        | ThreadEvent::ApprovalResolved {
            decision: ApprovalDecision::Granted,
            ..
        } => Some(id),
        _ => None,
    };
    if let Some(subject) = subject {
        assert!(!before.is_closing(subject), "{} under a fence", name_of(id, event));
    }
}

/// Asserts that slots are taken in queue order: a thread takes a slot only if no earlier waiting thread can have it.
/// Under `slot_release = CLOSE` a settled thread already has its slot, and the root needs none.
fn assert_admission_in_queue_order(before: &Session, id: ThreadId, event: &ThreadEvent) {
    let first = before.queued().find(|queued| !before.is_closing(*queued));
    match event {
        ThreadEvent::Spawned(spawned)
            if spawned.first_status == StatusKind::PendingInit && spawned.parent.is_some() =>
        {
            assert_eq!(first, None, "{} overtook the queue", name_of(id, event));
        }
        ThreadEvent::Admitted if before.settings.slot_release == SlotRelease::Settle => {
            let thread = before.thread(id).expect("the thread exists before the event");
            if thread.status.kind() == StatusKind::Queued && thread.spawned.parent.is_some() {
                assert_eq!(first, Some(id), "{} overtook the queue", name_of(id, event));
            }
        }
        _ => {}
    }
}

/// Asserts CONTRACT.md §3.4: a parent and its child may communicate. All other threads need an edge in that direction.
fn assert_handoff_has_edge(before: &Session, event: &ThreadEvent) {
    let ThreadEvent::HandoffSent(handoff) = event else {
        return;
    };
    let (from, to) = (handoff.from, handoff.to);
    let is_child = |id, of| {
        let thread = before.thread(id).expect("both ends exist");
        thread.spawned.parent == Some(of)
    };
    let leads = |edge: &Edge| {
        let backwards = edge.bidirectional && (edge.to, edge.from) == (from, to);
        (edge.from, edge.to) == (from, to) || backwards
    };
    let leads_there = is_child(from, to) || is_child(to, from) || before.edges.values().any(|edge| leads(edge));
    assert!(leads_there, "a handoff went from {from} to {to} without an edge");
}

fn permissions_only_shrink(before: &Session, id: ThreadId, after: &Session, tools: &[String]) {
    let thread = after.thread(id).expect("it exists now");
    if let Some(parent) = parent(after, thread) {
        assert!(
            thread.sandbox <= parent.sandbox,
            "the sandbox of {id} is looser than its parent's"
        );
        let bound = match after.settings.policy_inheritance {
            Inheritance::Attenuate => &parent.grant,
            Inheritance::Ceiling => &after.ceiling,
        };
        assert_within(&thread.effective, bound, tools);
        assert_within(&thread.grant, bound, tools);
    }
    if let Some(earlier) = before.thread(id) {
        assert!(thread.sandbox <= earlier.sandbox, "the sandbox of {id} was loosened");
        assert_within(&thread.effective, &earlier.effective, tools);
        assert_within(&thread.grant, &earlier.grant, tools);
    }
}

/// Asserts that the second policy allows every tool that the first one allows.
pub fn assert_within(policy: &Policy, bound: &Policy, tools: &[String]) {
    for tool in TOOLS.into_iter().chain(tools.iter().map(String::as_str)) {
        assert!(
            !policy.allows(tool) || bound.allows(tool),
            "{tool} is allowed by {policy:?} but not by {bound:?}"
        );
    }
}

fn others_keep_their_status(before: &Session, about: Option<ThreadId>, after: &Session) {
    for thread in before.in_spawn_order().filter(|thread| Some(thread.id) != about) {
        let now = after.thread(thread.id).expect("threads never vanish");
        assert!(
            now.status == thread.status,
            "{} changed by an event of another",
            thread.id
        );
    }
}

/// Asserts CONTRACT.md §3.1 and §3.4 for a spawn. A thread of a graph template that spawns must manage edges, gives its
/// child no wider edge management, and needs an approval. Threads that the session accepts as orchestrators need no
/// approval: those of named templates, and those that manage all edges by a template from outside the project. If the
/// session requires an approval for the tool, every thread needs one. An operator never needs one.
pub fn of_gate(before: &Session, command: &Command, decided: &[Recorded]) {
    let Command::Spawn(spawn) = command else { return };
    let spawned = decided.iter().find_map(|recorded| match &recorded.event {
        Event::Thread(_, ThreadEvent::Spawned(spawned)) => Some(spawned),
        _ => None,
    });
    let spawned = spawned.expect("a spawn that was not refused made a thread");
    let asks = spawned.first_status == StatusKind::AwaitingApproval;
    let Some(caller) = spawn.caller.thread().and_then(|id| before.thread(id)) else {
        assert!(!asks, "an operator asked for an operator's approval");
        return;
    };
    let parent = spawned.parent.expect("a spawn has a parent");
    for above in before.lineage(parent).filter(|above| above.spawned.role.is_graph()) {
        assert!(
            spawned.edge_management <= above.spawned.edge_management,
            "a thread spawned more edge management than {} has",
            above.id
        );
    }
    let is_named = ["spawn_agent", "spawn_node"]
        .iter()
        .any(|tool| !before.approval_gate.allows(tool));
    if !caller.spawned.role.is_graph() {
        assert_eq!(asks, is_named, "no graph template binds {}", caller.id);
        return;
    }
    let managed = caller.spawned.edge_management.min(before.settings.edge_management);
    assert_ne!(managed, EdgeManagement::None);
    let scope = caller.spawned.role.source.as_ref().map(|source| source.scope);
    let is_named_one = before.settings.orchestrators.contains(&caller.spawned.role.agent_type);
    let is_orchestrator = is_named_one || (managed == EdgeManagement::All && scope != Some(Scope::Project));
    let exempt = is_orchestrator && !before.settings.approve_orchestrators;
    assert_eq!(asks, is_named || !exempt, "{} spawned", caller.id);
}

/// Asserts the laws of a state: the limits and budgets hold, no thread is an orphan, the indices match the threads,
/// each thread's turn matches its status, each thread that waits for an operator has an undecided approval, edges join
/// open threads, and no follow-up event is missing.
pub fn of_state(session: &Session) {
    limits_hold(session);
    approvals_fit(session);
    for thread in session.in_spawn_order() {
        is_no_orphan(session, thread);
        turn_fits(thread);
        budget_is_kept(session, thread);
    }
    indices_match_the_threads(session);
    edges_join_open_threads(session);
    assert!(follow_ups(session).is_empty(), "a follow-up event is missing");
    let root = session
        .root_id()
        .and_then(|root| session.thread(root))
        .expect("it has a root");
    assert_eq!(session.closed, root.status.kind() == StatusKind::Shutdown);
}

fn limits_hold(session: &Session) {
    let limits = &session.settings.limits;
    assert!(
        session.holding().len() <= limits.max_threads as usize,
        "too many hold a slot"
    );
    // An evicted thread is closing.
    let evicted = session
        .fenced()
        .filter(|(_, fence)| fence.cause == CloseCause::Eviction);
    assert!(
        session.open_count() - evicted.count() <= limits.max_open_threads as usize,
        "too many are open"
    );
    assert!(session.total() <= limits.max_total_threads as usize, "too many in all");
    for thread in session.in_spawn_order().filter(|thread| thread.status.kind().is_open()) {
        assert!(thread.spawned.depth <= limits.max_depth, "{} is too deep", thread.id);
    }
}

/// Asserts that each thread that waits for the approval of its spawn has exactly that pending approval, unless the
/// thread is closing, and that each pending approval is about an open thread.
fn approvals_fit(session: &Session) {
    let mut pending: Vec<_> = session
        .approvals
        .values()
        .filter(|approval| approval.verdict.is_none())
        .collect();
    for approval in &pending {
        let thread = session.thread(approval.thread).expect("it is about a thread");
        let is_there = thread.status.kind().is_open() && !session.is_closing(thread.id);
        assert!(is_there, "{approval:?} waits although its thread is closed or closing");
    }
    pending.sort_by_key(|approval| (approval.deadline, approval.id));
    assert!(session.pending_approvals().eq(pending.iter().copied()));
    for thread in session.in_spawn_order() {
        let waits = thread.status.kind() == StatusKind::AwaitingApproval;
        let of_its_spawn = |approval: &Approval| approval.thread == thread.id && approval.kind == ApprovalKind::Spawn;
        let asked = pending.iter().filter(|approval| of_its_spawn(approval)).count();
        assert_eq!(asked, usize::from(waits && !session.is_closing(thread.id)));
        assert!(
            !waits || thread.children.is_empty(),
            "{} has children too early",
            thread.id
        );
    }
}

fn is_no_orphan(session: &Session, thread: &Thread) {
    let id = thread.id;
    match parent(session, thread) {
        Some(parent) => {
            assert_eq!(thread.spawned.depth, parent.spawned.depth + 1);
            if thread.status.kind().is_open() {
                assert!(parent.status.kind().is_open(), "{id} is open and its parent is not");
            }
        }
        None => assert_eq!(
            (session.root_id(), thread.spawned.depth),
            (Some(id), 0),
            "{id} has no parent"
        ),
    }
    let is_child: Vec<ThreadId> = children(session, id).map(|child| child.id).collect();
    assert!(thread.children.iter().eq(&is_child), "the children of {id} are others");
    let open = children(session, id)
        .filter(|child| child.status.kind().is_open())
        .count();
    assert_eq!(thread.open_children as usize, open, "open children of {id}");
}

fn turn_fits(thread: &Thread) {
    let (id, kind) = (thread.id, thread.status.kind());
    let under_way = matches!(thread.turn, LatestTurn::Dispatched { .. } | LatestTurn::Running { .. });
    if let Some(marked) = thread.interrupt.as_ref().map(|interrupt| interrupt.turn) {
        let fits = under_way && marked == thread.turn.number();
        assert!(fits, "{id} is to stop turn {marked}, which is over: {:?}", thread.turn);
    }
    let runs = matches!(thread.turn, LatestTurn::Running { .. });
    match kind {
        StatusKind::Running => assert!(runs || thread.spawned.client_owned, "{id} is RUNNING without a turn"),
        StatusKind::PendingInit => assert!(
            !runs,
            "{id} is PENDING_INIT, and its last attempt's turn counts as running"
        ),
        StatusKind::Completed | StatusKind::Errored | StatusKind::Interrupted | StatusKind::Queued => {
            assert!(
                !matches!(thread.turn, LatestTurn::Dispatched { .. }),
                "{id} is {kind} with a dispatched turn"
            );
        }
        StatusKind::Shutdown => {
            assert!(thread.runner.is_none() && thread.fence.is_none() && thread.interrupt.is_none());
        }
        StatusKind::AwaitingApproval => assert!(thread.runner.is_none()),
    }
    let numbers: Vec<_> = thread.pending_inputs.iter().map(|input| input.number).collect();
    assert!(
        numbers.is_sorted_by(|a, b| a < b),
        "the inputs of {id} are out of order: {numbers:?}"
    );
    assert!(numbers.last().is_none_or(|last| *last <= thread.last_input));
}

/// Asserts that a thread has the condition BUDGET_EXHAUSTED exactly if its budget is exhausted, and that it does not
/// continue under an exhausted budget, its own or that of an ancestor.
fn budget_is_kept(session: &Session, thread: &Thread) {
    let id = thread.id;
    if session.is_closing(id) || !thread.status.kind().is_open() {
        return;
    }
    let is_spent = thread.exhausted_resource().is_some();
    let is_marked = thread.conditions.contains_key(&ConditionKind::BudgetExhausted);
    assert_eq!(is_spent, is_marked, "the mark of {id} does not match its usage");
    if budget::exhausted_over(session, id).is_some() && !thread.spawned.client_owned {
        match thread.status.kind() {
            StatusKind::Queued => panic!("{id} waits for a turn that it may not have"),
            StatusKind::PendingInit | StatusKind::Running => {
                assert!(thread.interrupt.is_some(), "{id} continues with a spent budget");
            }
            StatusKind::AwaitingApproval
            | StatusKind::Completed
            | StatusKind::Errored
            | StatusKind::Interrupted
            | StatusKind::Shutdown => {}
        }
    }
}

fn indices_match_the_threads(session: &Session) {
    let ids = |chosen: &dyn Fn(&Thread) -> bool| -> BTreeSet<ThreadId> {
        let threads = session.in_spawn_order().filter(|thread| chosen(thread));
        threads.map(|thread| thread.id).collect()
    };
    assert_eq!(session.in_spawn_order().count(), session.total());
    assert!(
        session
            .in_spawn_order()
            .is_sorted_by_key(|thread| thread.spawn_sequence)
    );

    let holding: BTreeSet<ThreadId> = session.holding().iter().copied().collect();
    assert_eq!(holding, ids(&|thread| holds_slot(session, thread)));
    let starting: BTreeSet<ThreadId> = session.starting().collect();
    assert_eq!(starting, ids(&|thread| thread.status.kind() == StatusKind::PendingInit));
    let fenced: BTreeSet<ThreadId> = session.fenced().map(|(id, _)| id).collect();
    assert_eq!(
        fenced,
        ids(&|thread| thread.fence.is_some() && thread.status.kind().is_open())
    );

    let budgeted: BTreeSet<ThreadId> = session.budgeted().map(|thread| thread.id).collect();
    assert_eq!(
        budgeted,
        ids(&|thread| thread.status.kind().is_open() && thread.budget != Budget::default())
    );
    assert!(session.continuing().all(|thread| thread.continues));
    assert_eq!(
        session.continuing().count(),
        ids(&|thread| thread.continues && thread.status.kind().is_settled()).len()
    );

    let mut waiting: Vec<_> = session
        .in_spawn_order()
        .filter(|thread| thread.status.kind() == StatusKind::Queued)
        .map(|thread| (thread.status_sequence, thread.id))
        .collect();
    waiting.sort();
    assert!(
        session.queued().eq(waiting.iter().map(|(_, id)| *id)),
        "the queue is in another order"
    );
    for (position, (_, id)) in (1..).zip(waiting) {
        assert_eq!(session.queue_position(id), Some(position));
    }

    for kind in StatusKind::ALL {
        let counted = session
            .in_spawn_order()
            .filter(|thread| thread.status.kind() == kind)
            .count();
        assert_eq!(session.count(kind) as usize, counted, "{kind}");
    }
    assert_eq!(
        session.open_count(),
        ids(&|thread| thread.status.kind().is_open()).len()
    );
    for thread in session
        .in_spawn_order()
        .filter(|thread| !thread.spawned.alias.is_empty())
    {
        let found = session.thread_by_alias(&thread.spawned.alias.to_uppercase());
        // A thread that was never approved cannot be resumed and has no alias.
        let has_it = !matches!(&thread.status, Status::Shutdown { before: None, .. });
        assert_eq!(found == Some(thread.id), has_it, "the alias of {}", thread.id);
    }
}

fn edges_join_open_threads(session: &Session) {
    assert!(session.edges.len() <= MAX_EDGES, "too many edges");
    for edge in session.edges.values() {
        assert_ne!(edge.from, edge.to);
        for end in [edge.from, edge.to] {
            let thread = session.thread(end).expect("an edge ends in threads that exist");
            assert!(
                thread.status.kind().is_open(),
                "edge {} ends in a closed thread",
                edge.id
            );
        }
    }
    for thread in session.in_spawn_order() {
        let found: Vec<EdgeId> = session.created_edges_of(thread.id).map(|edge| edge.id).collect();
        let edges = session.edges.values();
        let expected = edges.filter(|edge| edge.from == thread.id || edge.to == thread.id);
        let expected: Vec<EdgeId> = expected.map(|edge| edge.id).collect();
        assert_eq!(found, expected, "edges of {}", thread.id);
    }
}

/// Returns whether a thread holds a slot by CONTRACT.md §3.1: active threads do, and under `slot_release = CLOSE`
/// settled ones too. The root never holds one.
fn holds_slot(session: &Session, thread: &Thread) -> bool {
    let kind = thread.status.kind();
    let counts = match session.settings.slot_release {
        SlotRelease::Settle => matches!(kind, StatusKind::PendingInit | StatusKind::Running),
        SlotRelease::Close => match kind {
            StatusKind::PendingInit | StatusKind::Running => true,
            // A thread that settled before its first turn never took a slot that closing could free.
            StatusKind::Completed | StatusKind::Errored | StatusKind::Interrupted => thread.turn.number() > Turn::ZERO,
            StatusKind::Queued | StatusKind::AwaitingApproval | StatusKind::Shutdown => false,
        },
    };
    counts && thread.spawned.parent.is_some()
}

/// Asserts that a thread changes only itself and its descendants. The eviction that makes room for its child is an
/// exception: it may close any evictable thread.
pub fn of_authority(session: &Session, command: &Command, decided: &[Recorded]) {
    let caller = match command {
        Command::Spawn(spawn) => &spawn.caller,
        Command::SendInput { caller, .. }
        | Command::Interrupt { caller, .. }
        | Command::Close { caller, .. }
        | Command::Resume { caller, .. }
        | Command::SetNote { caller, .. }
        | Command::CreateEdge { caller, .. }
        | Command::DeleteEdge { caller, .. }
        | Command::SendHandoff { caller, .. }
        | Command::UpdateBudget { caller, .. } => caller,
        _ => return,
    };
    if let Caller::Thread { id: own, .. } = caller {
        let is_eviction = |event: &Event| matches!(event, Event::Thread(_, ThreadEvent::CloseRequested(fence)) if fence.cause == CloseCause::Eviction);
        for recorded in decided.iter().filter(|recorded| !is_eviction(&recorded.event)) {
            let about = recorded.event.thread().expect("threads change no session");
            assert!(session.is_within(about, *own), "{own} changed {about}");
        }
    }
}

/// Returns whether a command of the service must have no effect, because it refers to another attempt or repeats a
/// report.
pub fn is_void(before: &Session, command: &Command) -> bool {
    match command {
        Command::Report {
            thread,
            generation,
            sequence,
            ..
        } => before
            .thread(*thread)
            .is_none_or(|thread| thread.generation != *generation || *sequence <= thread.last_report),
        Command::LoseRunner { thread, generation, .. } | Command::RefuseStart { thread, generation, .. } => before
            .thread(*thread)
            .is_none_or(|thread| thread.generation != *generation),
        Command::Dispatch(dispatch) => before.thread(dispatch.thread).is_none_or(|thread| {
            dispatch.generation < thread.generation || dispatch.generation > thread.generation.next()
        }),
        Command::FinishClose { thread, .. } => !before.is_closing(*thread),
        _ => false,
    }
}

fn parent<'s>(session: &'s Session, thread: &Thread) -> Option<&'s Thread> {
    let parent = thread.spawned.parent?;
    Some(session.thread(parent).expect("a parent exists"))
}

fn children(session: &Session, id: ThreadId) -> impl Iterator<Item = &Thread> {
    session
        .in_spawn_order()
        .filter(move |thread| thread.spawned.parent == Some(id))
        .map(|thread| &**thread)
}

fn name_of(id: ThreadId, event: &ThreadEvent) -> String {
    format!("{} of {id}", name(&Event::Thread(id, event.clone())))
}
