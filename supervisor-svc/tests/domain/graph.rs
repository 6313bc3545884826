//! Edges and handoffs (CONTRACT.md §3.4): which callers may create an edge, which handoffs an edge permits, and which
//! of these changes a thread's next turn announces.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*};
use supervisor_core::{
    command::{Command, Spawn},
    content::ContentRef,
    event::{Edge, EdgeKind, Event, Expectation, Handoff, Scope, ThreadEvent},
    ids::{ApprovalId, EdgeId, Generation, HandoffId, Sequence, ThreadId},
    principal::Caller,
    rejection::Rejection,
    rules::{
        approval::APPROVAL_TIMEOUT,
        graph::{self, MAX_EDGES},
        mail::MAX_HANDOFFS,
        prompt::{Assignment, HandoffText, Incoming, shown_mail, task_block},
    },
    settings::{EdgeManagement, Settings},
    state::thread::Thread,
    status::StatusKind,
};
use uuid::Uuid;

use crate::world::{
    NOTHING, OUTSIDE, STALE_TOKEN, World, close, deny, graph_template, is_closed, is_closing, no_tool, not_found,
    operator, resume, role_of, settled, text, thread_id,
};

/// Returns a session with changed settings, and its threads: the root, its children `a` and `b`, and `c`, a child of
/// `a`.
fn family_with(change: impl FnOnce(&mut Settings), change_a: impl FnOnce(&mut Spawn)) -> (World, [ThreadId; 4]) {
    let (mut world, root) = World::with_settings(change);
    let a = world.spawn_with(root, change_a);
    let b = world.spawn(root);
    let c = world.spawn(a);
    (world, [root, a, b, c])
}

fn family() -> (World, [ThreadId; 4]) {
    family_with(|_| {}, |_| {})
}

/// Like [`family_with`]; `a` has a graph template.
fn graph_family(
    scope: Scope,
    management: EdgeManagement,
    change: impl FnOnce(&mut Settings),
) -> (World, [ThreadId; 4]) {
    family_with(change, |a| {
        a.spawned.edge_management = management;
        role_of(a).source = Some(graph_template(scope));
    })
}

fn edge(number: u128, from: ThreadId, to: ThreadId) -> Edge {
    Edge {
        id: EdgeId::from_uuid(Uuid::from_u128(number)),
        from,
        to,
        bidirectional: true,
        kind: EdgeKind::Handoff,
        label: String::new(),
    }
}

fn one_way(number: u128, from: ThreadId, to: ThreadId) -> Edge {
    Edge {
        bidirectional: false,
        ..edge(number, from, to)
    }
}

/// Returns the command that creates an edge. Its approval has the edge's number.
fn connect(caller: Caller, edge: &Edge) -> Command {
    Command::CreateEdge {
        caller,
        edge: edge.clone(),
        approval: ApprovalId::from_uuid(edge.id.as_uuid()),
    }
}

fn disconnect(caller: Caller, edge: EdgeId) -> Command {
    Command::DeleteEdge { caller, edge }
}

fn handoff(from: ThreadId, to: ThreadId) -> Handoff {
    Handoff {
        id: HandoffId::from_uuid(Uuid::from_u128(1)),
        from,
        to,
        message: text("take over"),
        structured: None,
        artifacts: Vec::new(),
        verdict: None,
        expectation: Expectation::None,
        reply_to: None,
        context_ref: String::new(),
    }
}

fn hand_off(caller: Caller, handoff: Handoff) -> Command {
    Command::SendHandoff {
        caller,
        handoff: Box::new(handoff),
    }
}

fn no_edge(from: ThreadId) -> String {
    format!("send_handoff requires an edge between {from} and the receiver. Create the edge first.")
}

/// Sends a handoff as its sender. Returns the text of the rejection.
fn try_handoff(world: &mut World, from: ThreadId, to: ThreadId) -> Result<(), String> {
    let command = hand_off(world.caller(from), handoff(from, to));
    world
        .carry_out(&command)
        .map(|_| ())
        .map_err(|rejection| rejection.to_string())
}

// ---- permitted handoffs ----

#[test]
fn tree_edges_join_parents_and_children_only() {
    let (mut world, [root, a, b, c]) = family();
    for (from, to) in [(root, a), (a, root), (root, b), (b, root), (a, c), (c, a)] {
        let command = hand_off(world.caller(from), handoff(from, to));
        assert_eq!(world.run(&command), ["HandoffSent"]);
        assert_eq!(world.thread(to).mail.len(), 1, "it is in the mailbox");
        let acknowledged = world.session.sequence;
        world.append(Event::Thread(to, ThreadEvent::MailAcknowledged(acknowledged)));
    }
    for (from, to) in [(a, b), (b, a), (root, c), (c, root), (b, c), (c, b), (a, a)] {
        assert_eq!(try_handoff(&mut world, from, to), Err(no_edge(from)));
    }
    let edges = graph::edges_within(&world.session, root);
    let ids: Vec<EdgeId> = edges.iter().map(|edge| edge.id).collect();
    let mut expected = [a, b, c].map(|child| EdgeId::from_uuid(child.as_uuid()));
    expected.sort();
    assert_eq!(ids, expected, "the id of a tree edge is the child's id");
}

#[test]
fn edge_permits_handoffs_in_its_directions() {
    let (mut world, [_, a, b, c]) = family();
    world.run(&connect(operator(), &one_way(1, a, b)));
    assert_eq!(try_handoff(&mut world, a, b), Ok(()));
    assert_eq!(try_handoff(&mut world, b, a), Err(no_edge(b)));
    let report = Edge {
        kind: EdgeKind::Report,
        ..edge(2, c, b)
    };
    world.run(&connect(operator(), &report));
    assert_eq!(try_handoff(&mut world, c, b), Ok(()));
    assert_eq!(
        try_handoff(&mut world, b, c),
        Ok(()),
        "the kind of an edge does not affect handoffs"
    );
}

#[test]
fn deleted_edge_permits_no_handoffs() {
    let (mut world, [_, a, b, _]) = family();
    let both = edge(1, a, b);
    assert_eq!(world.run(&connect(operator(), &both)), ["EdgeCreated"]);
    assert_eq!(try_handoff(&mut world, b, a), Ok(()));
    assert_eq!(world.run(&disconnect(operator(), both.id)), ["EdgeDeleted"]);
    assert_eq!(try_handoff(&mut world, b, a), Err(no_edge(b)));
    assert_eq!(
        world.rejection(&disconnect(operator(), both.id)),
        format!("edge {} not found", both.id)
    );
}

#[test]
fn tree_edge_cannot_be_deleted_and_ends_with_child() {
    let (mut world, [root, a, _, _]) = family();
    let id = EdgeId::from_uuid(a.as_uuid());
    assert_eq!(
        world.rejection(&disconnect(operator(), id)),
        format!("edge {id} connects agent {a} to its parent; it cannot be deleted, and ends when the agent is closed")
    );
    world.close(a);
    assert_eq!(graph::edge(&world.session, id), None);
    assert_eq!(try_handoff(&mut world, root, a), Err(is_closed(a)));
    world.run(&resume(operator(), a));
    assert_eq!(try_handoff(&mut world, root, a), Ok(()));
}

#[test]
fn created_edge_ends_when_either_thread_closes() {
    let (mut world, [root, a, b, c]) = family();
    world.run(&connect(operator(), &edge(1, a, b)));
    world.run(&connect(operator(), &edge(2, b, c)));
    world.run(&connect(operator(), &edge(3, root, c)));
    world.close(b);
    let left: Vec<EdgeId> = world.session.edges.keys().copied().collect();
    assert_eq!(left, [EdgeId::from_uuid(Uuid::from_u128(3))]);
    world.run(&resume(operator(), b));
    assert_eq!(try_handoff(&mut world, a, b), Err(no_edge(a)), "it does not come back");
}

#[test]
fn closing_thread_sends_and_receives_no_handoff() {
    let (mut world, [root, a, _, c]) = family();
    world.run(&connect(operator(), &edge(1, root, c)));
    let caller = world.caller(c);
    world.run(&close(operator(), a));
    assert_eq!(try_handoff(&mut world, root, c), Err(is_closing(c)));
    assert_eq!(world.rejection(&hand_off(caller, handoff(c, root))), is_closing(c));
    assert_eq!(world.rejection(&connect(operator(), &edge(2, root, a))), is_closing(a));
    let edge = EdgeId::from_uuid(Uuid::from_u128(1));
    // The edge concerns the root, which continues.
    assert_eq!(world.run(&disconnect(operator(), edge)), ["EdgeDeleted"]);
}

#[test]
fn full_mailbox_rejects_handoffs() {
    let (mut world, [root, a, _, _]) = family();
    world.lawful = false;
    for _ in 0..MAX_HANDOFFS {
        world.run(&hand_off(operator(), handoff(root, a)));
    }
    assert_eq!(
        try_handoff(&mut world, root, a),
        Err(format!(
            "agent with id {a} has 1000 handoffs waiting (max 1000); wait until it has read them"
        ))
    );
    let oldest = world.thread(a).mail.oldest().expect("there is mail");
    world.append(Event::Thread(a, ThreadEvent::MailAcknowledged(oldest)));
    assert_eq!(try_handoff(&mut world, root, a), Ok(()));
}

// ---- permission to send ----

#[test]
fn unknown_receiver_is_revealed_only_to_operators() {
    let (mut world, [_, a, b, _]) = family();
    let missing = thread_id(999);
    assert_eq!(
        world.rejection(&hand_off(operator(), handoff(a, missing))),
        not_found(missing)
    );
    assert_eq!(world.rejection(&hand_off(operator(), handoff(a, b))), no_edge(a));
    for stranger in [b, missing] {
        assert_eq!(try_handoff(&mut world, a, stranger), Err(no_edge(a)));
        let from_it = hand_off(world.caller(a), handoff(stranger, a));
        assert_eq!(world.rejection(&from_it), OUTSIDE);
    }
}

#[test]
fn reply_to_must_be_reachable_by_the_sender() {
    let (mut world, [root, a, b, c]) = family();
    let naming = |caller: Caller, reply_to| {
        let handoff = Handoff {
            reply_to: Some(reply_to),
            ..handoff(a, c)
        };
        hand_off(caller, handoff)
    };
    let own = world.caller(a);
    for known in [a, c, root] {
        assert_eq!(world.run(&naming(own.clone(), known)), ["HandoffSent"]);
    }
    let missing = thread_id(999);
    let told = world.rejection(&naming(own.clone(), missing));
    assert!(
        told.starts_with("reply_to_thread_id must name an agent of your subtree"),
        "{told}"
    );
    assert_eq!(
        world.rejection(&naming(own.clone(), b)),
        told,
        "the error does not reveal what exists"
    );
    assert_eq!(world.rejection(&naming(operator(), missing)), not_found(missing));
    assert_eq!(world.run(&naming(operator(), b)), ["HandoffSent"]);
    world.run(&connect(operator(), &one_way(1, b, a)));
    assert_eq!(world.run(&naming(own, b)), ["HandoffSent"], "an edge makes it known");
}

#[test]
fn stale_token_and_missing_tool_are_checked_first() {
    let (mut world, [_, a, _, c]) = family_with(
        |_| {},
        |a| a.role_layers = [deny("role \"worker\"", &["send_handoff", "create_edge"])].into(),
    );
    let own = world.caller(a);
    assert_eq!(
        world.rejection(&hand_off(own.clone(), handoff(a, c))),
        no_tool("send_handoff")
    );
    let created = connect(own.clone(), &one_way(1, a, c));
    assert_eq!(world.rejection(&created), no_tool("create_edge"));
    world.run(&connect(operator(), &one_way(1, a, c)));
    let id = EdgeId::from_uuid(Uuid::from_u128(1));
    assert_eq!(world.rejection(&disconnect(own, id)), no_tool("create_edge"));

    let stale = Caller::Thread {
        id: a,
        generation: Generation::new(9),
    };
    for command in [
        hand_off(stale.clone(), handoff(a, c)),
        connect(stale.clone(), &edge(2, a, c)),
        disconnect(stale.clone(), id),
        disconnect(stale, EdgeId::from_uuid(Uuid::from_u128(9))),
    ] {
        assert_eq!(world.rejection(&command), STALE_TOKEN);
    }
}

// ---- permission to create edges ----

#[test]
fn thread_creates_edges_only_in_its_subtree() {
    let (mut world, [root, a, b, c]) = family();
    let own = world.caller(a);
    for other in [root, b, thread_id(999)] {
        for outside in [one_way(1, c, other), one_way(1, other, c)] {
            assert_eq!(world.rejection(&connect(own.clone(), &outside)), OUTSIDE);
        }
    }
    assert_eq!(world.run(&connect(own.clone(), &one_way(2, a, c))), ["EdgeCreated"]);
    assert_eq!(
        world.run(&disconnect(own.clone(), one_way(2, a, c).id)),
        ["EdgeDeleted"]
    );

    world.run(&connect(operator(), &edge(3, a, b)));
    for outside in [edge(3, a, b).id, edge(4, a, b).id, EdgeId::from_uuid(b.as_uuid())] {
        assert_eq!(world.rejection(&disconnect(own.clone(), outside)), OUTSIDE);
    }
}

#[test]
fn edge_requires_two_open_threads() {
    let (mut world, [_, a, b, _]) = family();
    let missing = thread_id(999);
    assert_eq!(
        world.rejection(&connect(operator(), &edge(1, a, missing))),
        not_found(missing)
    );
    assert_eq!(
        world.rejection(&connect(operator(), &edge(1, a, a))),
        format!("an edge connects two agents; both ends are {a}")
    );
    world.close(b);
    assert_eq!(world.rejection(&connect(operator(), &edge(1, a, b))), is_closed(b));
}

#[test]
fn equal_edge_returns_the_existing_edge() {
    let (mut world, [root, a, b, _]) = family();
    let first = edge(1, a, b);
    world.run(&connect(operator(), &first));
    let labelled = Edge {
        label: String::from("another label"),
        ..edge(2, a, b)
    };
    for again in [labelled, edge(2, b, a)] {
        assert_eq!(world.run(&connect(operator(), &again)), NOTHING);
        assert_eq!(graph::answer_to(&world.session, &operator(), &again), first.id);
    }
    let of_the_tree = edge(3, root, a);
    assert_eq!(world.run(&connect(operator(), &of_the_tree)), NOTHING);
    assert_eq!(
        graph::answer_to(&world.session, &operator(), &of_the_tree),
        EdgeId::from_uuid(a.as_uuid())
    );
    let report = Edge {
        kind: EdgeKind::Report,
        ..edge(6, a, b)
    };
    for other in [one_way(4, a, b), one_way(5, b, a), report] {
        assert_eq!(graph::answer_to(&world.session, &operator(), &other), other.id);
        assert_eq!(world.run(&connect(operator(), &other)), ["EdgeCreated"]);
    }
}

#[test]
fn edges_of_a_session_are_limited() {
    let (mut world, root) = World::with_slots(30);
    world.lawful = false;
    let threads: Vec<ThreadId> = (0..30).map(|_| world.spawn(root)).collect();
    let pairs = threads
        .iter()
        .flat_map(|from| threads.iter().map(move |to| (*from, *to)));
    let mut wanted = pairs
        .filter(|(from, to)| from != to)
        .flat_map(|(from, to)| [EdgeKind::Handoff, EdgeKind::Report].map(|kind| (from, to, kind)))
        .zip(1..)
        .map(|((from, to, kind), number)| Edge {
            kind,
            ..one_way(number, from, to)
        });
    let first = wanted.next().expect("there are pairs");
    world.run(&connect(operator(), &first));
    for edge in wanted.by_ref().take(MAX_EDGES - 1) {
        world.run(&connect(operator(), &edge));
    }
    let last = connect(operator(), &wanted.next().expect("there are more pairs than edges"));
    assert_eq!(
        world.rejection(&last),
        "edge limit reached (max 1000); delete edges that are no longer needed"
    );
    assert_eq!(world.run(&connect(operator(), &first)), NOTHING, "the edge exists");
    world.run(&disconnect(operator(), first.id));
    assert_eq!(world.run(&last), ["EdgeCreated"]);
}

#[test]
fn edge_management_binds_graph_threads() {
    const DISABLED: &str = "edgeManagement capability is disabled";
    const OWN_ONLY: &str = "edgeManagement=self only allows edges that include the calling node";
    for (management, own, below) in [
        (EdgeManagement::None, Some(DISABLED), Some(DISABLED)),
        (EdgeManagement::SelfOnly, None, Some(OWN_ONLY)),
        (EdgeManagement::All, None, None),
    ] {
        let (mut world, [_, a, _, c]) = graph_family(Scope::System, management, |_| {});
        let d = world.spawn(a);
        let caller = world.caller(a);
        for (wanted, rejection) in [(one_way(1, a, c), own), (one_way(2, c, d), below)] {
            let told = |result: Result<usize, Rejection>| result.err().map(|rejection| rejection.to_string());
            let created = told(world.carry_out(&connect(caller.clone(), &wanted)));
            assert_eq!(created.as_deref(), rejection, "{management:?}");
            world.run(&connect(operator(), &wanted));
            let deleted = told(world.carry_out(&disconnect(caller.clone(), wanted.id)));
            assert_eq!(deleted.as_deref(), rejection, "{management:?}");
        }
    }
}

#[test]
fn session_edge_management_applies_to_next_decision() {
    use EdgeManagement::{All, SelfOnly};
    let (mut world, [_, a, _, c]) = graph_family(Scope::System, All, |settings| {
        settings.edge_management = EdgeManagement::None;
    });
    let d = world.spawn(a);
    let caller = world.caller(a);
    let (own, below) = (one_way(1, a, c), one_way(2, c, d));
    let shown =
        |world: &World, edges: &str| told(world, a, &BTreeMap::new()).contains(&format!("edgeManagement={edges}\n"));
    assert!(shown(&world, "none"));
    assert_eq!(
        world.rejection(&connect(caller.clone(), &own)),
        "edgeManagement capability is disabled"
    );

    world.update(|change| change.edge_management = Some(SelfOnly));
    assert!(shown(&world, "self"));
    assert_eq!(
        world.rejection(&connect(caller.clone(), &below)),
        "edgeManagement=self only allows edges that include the calling node"
    );
    // A caller that may not manage every edge is not an orchestrator.
    assert_eq!(world.run(&connect(caller.clone(), &own)), ["ApprovalRequested"]);

    world.update(|change| change.edge_management = Some(All));
    assert!(shown(&world, "all"));
    assert_eq!(world.run(&connect(caller, &below)), ["EdgeCreated"]);
}

#[test]
fn edge_of_non_orchestrator_awaits_approval() {
    for (approve_orchestrators, scope, management, asks) in [
        (false, Scope::System, EdgeManagement::All, false),
        (false, Scope::User, EdgeManagement::All, false),
        // A template of the project cannot make its threads orchestrators.
        (false, Scope::Project, EdgeManagement::All, true),
        (false, Scope::System, EdgeManagement::SelfOnly, true),
        (true, Scope::System, EdgeManagement::All, true),
    ] {
        let (mut world, [_, a, _, c]) = graph_family(scope, management, |settings| {
            settings.approve_orchestrators = approve_orchestrators;
        });
        let wanted = one_way(1, a, c);
        let caller = world.caller(a);
        let events = world.run(&connect(caller.clone(), &wanted));
        let expected = if asks { "ApprovalRequested" } else { "EdgeCreated" };
        assert_eq!(events, [expected], "{scope:?} {management:?}");
        assert_eq!(graph::edge(&world.session, wanted.id).is_some(), !asks);
        // A second request for the same edge uses the pending approval.
        let again = one_way(2, a, c);
        assert_eq!(graph::answer_to(&world.session, &caller, &again), wanted.id);
        assert_eq!(world.run(&connect(caller, &again)), NOTHING);
    }
}

#[test]
fn edge_approval_is_recorded_in_the_log() {
    let (mut world, [_, a, _, c]) = graph_family(Scope::Project, EdgeManagement::All, |_| {});
    let wanted = one_way(1, a, c);
    world.run(&connect(world.caller(a), &wanted));
    let recorded = world.log.last().expect("it was recorded");
    let requested = world.session.approvals.get(&ApprovalId::from_uuid(wanted.id.as_uuid()));
    let requested = requested.expect("the approval waits");
    assert_eq!(
        recorded.event.thread(),
        Some(a),
        "the event names the requesting thread"
    );
    assert_eq!(requested.edge.as_ref(), Some(&wanted));
    assert_eq!(requested.subject, "Create edge: worker -> worker (handoff)");
    assert_eq!(requested.deadline, Some(recorded.time.plus(APPROVAL_TIMEOUT)));
    assert_eq!(
        graph::approval_of(&world.session, wanted.id).map(|approval| approval.id),
        Some(requested.id)
    );
    assert!(World::replay(&world.log) == world.session);

    // An operator's request needs no approval and creates another edge.
    let now = one_way(2, a, c);
    assert_eq!(graph::answer_to(&world.session, &operator(), &now), now.id);
    assert_eq!(world.run(&connect(operator(), &now)), ["EdgeCreated"]);
}

// ---- names ----

#[test]
fn id_takes_precedence_over_alias() {
    let (mut world, [root, a, b, _]) = family();
    let pretender = world.spawn_with(root, |spawn| spawn.spawned.alias = a.to_string());
    let fox = world.spawn_with(root, |spawn| spawn.spawned.alias = String::from("Fox"));
    let find = |caller: &Caller, name: &str| graph::find(&world.session, caller, name);

    assert_ne!(pretender, a);
    for (name, found) in [(a.to_string(), a), (b.to_string(), b), (String::from("fOX"), fox)] {
        assert_eq!(find(&operator(), &name), Ok(found));
    }
    for name in ["wolf", &thread_id(999).to_string()] {
        assert_eq!(find(&operator(), name), Err(Rejection::ThreadNotFound(name.to_owned())));
        assert_eq!(
            find(&world.caller(a), name),
            Ok(ThreadId::NIL),
            "the decision rejects it later"
        );
    }
}

// ---- turn announcements ----

fn told(world: &World, id: ThreadId, texts: &BTreeMap<Sequence, HandoffText>) -> String {
    let incoming = Incoming {
        messages: &[String::from("go on\nwith it")],
        handoffs: texts,
    };
    let assignment = Assignment {
        objective: "find the leak",
        definition_of_done: "",
        result_schema: "",
    };
    task_block(&world.session, world.thread(id), assignment, incoming)
}

fn listed(thread: &Thread) -> String {
    let role = &thread.spawned.role.agent_type;
    format!(
        "worker ({}) alias=- role={role} status={}",
        thread.id,
        thread.status.kind()
    )
}

#[test]
fn task_block_order_is_fixed() {
    let (mut world, [_, a, b, c]) = family();
    world.run(&connect(operator(), &one_way(1, b, a)));
    let sent = Handoff {
        message: text("look at this"),
        structured: Some(text("{\"n\":1}")),
        artifacts: vec![(String::from("diff"), String::from("a.patch"))],
        verdict: Some((false, String::from("tests fail"))),
        expectation: Expectation::Required,
        reply_to: Some(c),
        context_ref: String::from("ticket"),
        ..handoff(b, a)
    };
    world.run(&hand_off(operator(), sent));
    world.begin(c);
    world.end(c, settled(StatusKind::Completed));

    let mut threads = [
        format!("default ({}) alias=- role=default status=RUNNING", world.root()),
        format!("{} (you)", listed(world.thread(a))),
        listed(world.thread(b)),
        listed(world.thread(c)),
    ];
    threads.sort();
    let mut edges = [
        format!("{} <-> {a} type=handoff", world.root()),
        format!("{a} <-> {c} type=handoff"),
        format!("{b} -> {a} type=handoff"),
    ];
    edges.sort();
    let expected = format!(
        "# Task\n\n## Objective\n- find the leak\n\n## Definition of done\n- none\n\n## Mode\n- IMPLEMENTATION\n\n\
         ## Edge management\n- edgeManagement=none\n\n## Workspace\n- /project\n\n## Known threads\n- {}\n\n\
         ## Known edges\n- {}\n\n## Messages\n- go on\n  with it\n\n## Handoffs\n\
         - from worker ({b}); not ok: tests fail; response=required to worker ({c}); context=ticket\n  look at this\n  \
         structured: {{\"n\":1}}\n  artifact: diff a.patch\n- worker ({c}) is COMPLETED: done",
        threads.join("\n- "),
        edges.join("\n- "),
    );
    assert_eq!(told(&world, a, &BTreeMap::new()), expected);
}

#[test]
fn edge_manager_prompt_lists_only_its_subtree() {
    for (management, sees) in [(EdgeManagement::SelfOnly, false), (EdgeManagement::All, true)] {
        let (mut world, [_, a, b, c]) = graph_family(Scope::System, management, |settings| {
            settings.limits.max_depth = 3;
        });
        let d = world.spawn(c);
        world.run(&connect(operator(), &one_way(1, c, d)));
        let told = told(&world, a, &BTreeMap::new());
        assert_eq!(told.contains(&listed(world.thread(d))), sees);
        assert_eq!(told.contains(&format!("{c} -> {d} type=handoff")), sees);
        assert!(!told.contains(&b.to_string()), "it has no edge with {b}");
    }
}

#[test]
fn task_lists_limited_threads_and_counts_the_rest() {
    let (mut world, root) = World::with_slots(300);
    world.lawful = false;
    for _ in 0..250 {
        world.spawn(root);
    }
    let told = told(&world, root, &BTreeMap::new());
    assert!(told.contains(&format!("({root}) alias=- role=default status=RUNNING (you)")));
    assert_eq!(told.matches(" role=worker ").count(), 199);
    // The root and 250 children; an edge to each child.
    assert_eq!(told.matches("- ... and 51 more\n").count(), 1);
    assert_eq!(told.matches("- ... and 50 more\n").count(), 1);
}

#[test]
fn long_text_is_truncated_with_a_marker() {
    let (mut world, [root, a, _, _]) = family();
    let long = ContentRef {
        size: 100_000,
        ..text("the beginning")
    };
    let sent = Handoff {
        message: long.clone(),
        ..handoff(root, a)
    };
    world.run(&hand_off(operator(), sent));
    let texts = BTreeMap::from([(
        world.session.sequence,
        HandoffText {
            message: String::from("more than the beginning"),
            structured: String::new(),
        },
    )]);
    let cut = format!(
        "more than the beginning\n  [cut; all 100000 bytes are content {}]",
        long.digest
    );
    assert!(told(&world, a, &texts).ends_with(&cut));
}

#[test]
fn mail_without_room_waits_for_the_next_task() {
    let (mut world, [root, a, _, _]) = family();
    for _ in 0..40 {
        let sent = Handoff {
            message: ContentRef {
                size: 1_000_000,
                ..text("a long one")
            },
            ..handoff(root, a)
        };
        world.run(&hand_off(operator(), sent));
    }
    let mut read = 0;
    while !world.thread(a).mail.is_empty() {
        let thread = world.thread(a);
        let shown = shown_mail(thread);
        let (number, last) = (shown.len(), shown.last().expect("one is always shown").sequence);
        let oldest = thread.mail.letters().take(number);
        assert!(shown.iter().copied().eq(oldest), "the oldest first");
        let left = thread.mail.len() - number;
        let rest = format!("- ... and {left} more, which come with your next task");
        assert_eq!(told(&world, a, &BTreeMap::new()).ends_with(&rest), left > 0);
        read += number;
        world.append(Event::Thread(a, ThreadEvent::MailAcknowledged(last)));
    }
    assert_eq!(read, 40);
}

// ---- properties ----

#[derive(Clone, Debug)]
enum Op {
    Connect {
        by: u8,
        from: u8,
        to: u8,
        bidirectional: bool,
    },
    Disconnect {
        by: u8,
        nth: u8,
    },
    HandOff {
        by: u8,
        from: u8,
        to: u8,
    },
    Close {
        nth: u8,
    },
    Resume {
        nth: u8,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let nth = any::<u8>;
    prop_oneof![
        4 => (nth(), nth(), nth(), any::<bool>())
            .prop_map(|(by, from, to, bidirectional)| Op::Connect { by, from, to, bidirectional }),
        2 => (nth(), nth()).prop_map(|(by, nth)| Op::Disconnect { by, nth }),
        6 => (nth(), nth(), nth()).prop_map(|(by, from, to)| Op::HandOff { by, from, to }),
        1 => nth().prop_map(|nth| Op::Close { nth }),
        1 => nth().prop_map(|nth| Op::Resume { nth }),
    ]
}

/// Returns the operator or one of the threads as a caller.
fn who(world: &World, number: u8) -> Caller {
    match number % 3 {
        0 => operator(),
        _ => world.caller(world.nth(number / 3).id),
    }
}

proptest! {
    // The laws hold after each step (see World::carry_out): a handoff needs an edge, and threads change nothing outside
    // their subtree. An operator's handoff succeeds where an edge exists.
    #[test]
    fn edge_laws_hold_in_every_history(ops in vec(op(), 0..60)) {
        let (mut world, [root, _, _, _]) = family();
        world.spawn(root);
        for (op, number) in ops.into_iter().zip(1_u128..) {
            match op {
                Op::Connect { by, from, to, bidirectional } => {
                    let (from, to) = (world.nth(from).id, world.nth(to).id);
                    let wanted = Edge { bidirectional, ..edge(number, from, to) };
                    let _ = world.carry_out(&connect(who(&world, by), &wanted));
                }
                Op::Disconnect { by, nth } => {
                    let edges = graph::edges_within(&world.session, root);
                    if let Some(edge) = edges.get(usize::from(nth) % edges.len().max(1)) {
                        let _ = world.carry_out(&disconnect(who(&world, by), edge.id));
                    }
                }
                Op::HandOff { by, from, to } => {
                    let (from, to) = (world.nth(from).id, world.nth(to).id);
                    let caller = who(&world, by);
                    let both_open = [from, to].iter().all(|id| world.status(*id) != StatusKind::Shutdown);
                    let may = both_open && graph::may_hand_off(&world.session, from, to);
                    let sent = world.carry_out(&hand_off(caller.clone(), handoff(from, to))).is_ok();
                    prop_assert!(may || !sent);
                    prop_assert!(sent || !may || caller != operator());
                }
                Op::Close { nth } => {
                    let id = world.nth(nth).id;
                    if id != root {
                        world.close(id);
                    }
                }
                Op::Resume { nth } => {
                    let _ = world.carry_out(&resume(operator(), world.nth(nth).id));
                }
            }
        }
        prop_assert!(World::replay(&world.log) == world.session);
    }
}
