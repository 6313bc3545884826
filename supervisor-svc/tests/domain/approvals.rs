//! Approvals: which spawns wait for an operator, which commands such a thread rejects, and the effect of each decision.

use std::time::Duration;

use supervisor_core::{
    command::Command,
    decide::tick,
    event::{ApprovalDecision, ApprovalKind, ConditionKind, Edge, EdgeKind, Event, Scope, ThreadEvent},
    ids::{ApprovalId, EdgeId, ThreadId},
    principal::Actor,
    rules::{
        approval::{APPROVAL_TIMEOUT, tool_subject, without_arguments},
        limits,
    },
    settings::{ApprovalTimeoutAction, EdgeManagement, Limits, OnLimit, Settings},
    state::approval::{Approval, RepeatedCall, Verdict},
    status::{
        Status,
        StatusKind::{AwaitingApproval, Completed, PendingInit, Queued, Running, Shutdown},
    },
    time::REQUESTS_REMEMBERED,
};
use tool_policy::{Layer, MatchMode};
use uuid::Uuid;

use crate::world::{
    NOTHING, World, close, decision, graph_template, interrupt, note, operator, resume, role_of, send, settled,
    spawning,
};

/// Returns a session with changed settings, and a thread of a graph template in it.
fn with_lead(scope: Scope, edges: EdgeManagement, change: impl FnOnce(&mut Settings)) -> (World, ThreadId) {
    let (mut world, root) = World::with_settings(|settings| {
        settings.limits.max_depth = 4;
        settings.limits.max_threads = 9;
        change(settings);
    });
    let lead = world.spawn_with(root, |lead| {
        role_of(lead).agent_type = String::from("lead");
        role_of(lead).source = Some(graph_template(scope));
        lead.spawned.edge_management = edges;
    });
    (world, lead)
}

/// Returns a session with this number of slots, and a running lead whose spawns all need an approval.
fn asking(max_threads: u32) -> (World, ThreadId) {
    with_lead(Scope::Project, EdgeManagement::All, |settings| {
        settings.limits.max_threads = max_threads;
    })
}

/// Spawns a thread that waits for an operator.
fn ask(world: &mut World, lead: ThreadId) -> (ThreadId, ApprovalId) {
    let spawn = world.wanted_by(lead);
    let (id, approval) = (spawn.id, spawn.approval);
    let events = world.run(&spawning(spawn));
    assert_eq!(events, ["ThreadSpawned", "ApprovalRequested"]);
    (id, approval)
}

fn approval(world: &World, id: ApprovalId) -> &Approval {
    &world.session.approvals[&id]
}

fn decided(world: &World, id: ApprovalId) -> Option<ApprovalDecision> {
    approval(world, id).verdict.as_ref().map(|verdict| verdict.decision)
}

fn reason_of(world: &World, id: ThreadId) -> String {
    match &world.thread(id).status {
        Status::Shutdown { reason, .. } => reason.clone(),
        other => panic!("{other:?} is not an end"),
    }
}

fn never_approved(id: ThreadId) -> String {
    format!("the spawn of agent with id {id} was never approved; spawn it again")
}

fn resume_needs_operator(id: ThreadId) -> String {
    format!(
        "what you spawn needs an operator's approval, and a resume cannot wait for one; ask an operator to resume agent \
         with id {id}, or spawn another one"
    )
}

// ---- calls that need an approval ----

#[test]
fn untrusted_graph_template_spawn_awaits_approval() {
    for (scope, edges, approve_orchestrators, expected) in [
        (Scope::System, EdgeManagement::All, false, PendingInit),
        (Scope::User, EdgeManagement::All, false, PendingInit),
        (Scope::Project, EdgeManagement::All, false, AwaitingApproval),
        (Scope::System, EdgeManagement::SelfOnly, false, AwaitingApproval),
        (Scope::Project, EdgeManagement::SelfOnly, false, AwaitingApproval),
        (Scope::System, EdgeManagement::All, true, AwaitingApproval),
        (Scope::User, EdgeManagement::All, true, AwaitingApproval),
        (Scope::Project, EdgeManagement::All, true, AwaitingApproval),
    ] {
        let (mut world, lead) = with_lead(scope, edges, |settings| {
            settings.approve_orchestrators = approve_orchestrators;
        });
        let child = world.spawn_by(lead);
        assert_eq!(
            world.status(child),
            expected,
            "{scope:?} {edges:?} {approve_orchestrators}"
        );
    }
}

#[test]
fn spawn_without_edge_management_is_rejected() {
    for scope in [Scope::Project, Scope::System] {
        let (mut world, lead) = with_lead(scope, EdgeManagement::None, |_| {});
        let spawn = world.wanted_by(lead);
        assert_eq!(
            world.rejection(&spawning(spawn)),
            "edgeManagement capability is disabled: role_template \"lead\" may not spawn; its template must declare \
             edge_management_all or edge_management_self, and its spawn must not remove that capability"
        );
    }
}

#[test]
fn spawn_is_rejected_if_session_disables_edge_management() {
    let (mut world, lead) = with_lead(Scope::System, EdgeManagement::All, |_| {});
    let narrow = |world: &mut World, edges| world.update(|change| change.edge_management = Some(edges));
    narrow(&mut world, EdgeManagement::None);
    let spawn = spawning(world.wanted_by(lead));
    assert_eq!(
        world.rejection(&spawn),
        "edgeManagement capability is disabled: role_template \"lead\" may not spawn; the session lets no thread manage edges"
    );

    narrow(&mut world, EdgeManagement::SelfOnly);
    ask(&mut world, lead);

    // A thread keeps the edge management of its spawn. A narrower setting of the session limits the thread only until
    // the setting is widened again.
    let mut spawn = world.wanted_by(lead);
    role_of(&mut spawn).source = Some(graph_template(Scope::System));
    spawn.spawned.edge_management = EdgeManagement::All;
    let child = world.spawn_as(spawn);
    assert_eq!(world.thread(child).spawned.edge_management, EdgeManagement::All);
    narrow(&mut world, EdgeManagement::All);
    let free = world.spawn_by(lead);
    assert_eq!(world.status(free), PendingInit);
}

#[test]
fn named_orchestrators_spawn_without_approval() {
    for (names, edges, expected) in [
        (&["lead"][..], EdgeManagement::All, PendingInit),
        (&["other", "lead"], EdgeManagement::SelfOnly, PendingInit),
        (&["Lead", "lea", "lead "], EdgeManagement::All, AwaitingApproval),
        (&[], EdgeManagement::All, AwaitingApproval),
    ] {
        let (mut world, lead) = with_lead(Scope::Project, edges, |settings| {
            settings.orchestrators = names.iter().map(|&name| name.to_owned()).collect();
        });
        let child = world.spawn_by(lead);
        assert_eq!(world.status(child), expected, "{names:?} {edges:?}");

        // A change applies to the next spawn. A named role still needs an approval if all orchestrators do.
        world.update(|change| change.orchestrators = Some(Vec::new()));
        ask(&mut world, lead);
    }
    let (mut world, lead) = with_lead(Scope::Project, EdgeManagement::All, |settings| {
        settings.orchestrators = vec![String::from("lead")];
        settings.approve_orchestrators = true;
    });
    ask(&mut world, lead);
}

#[test]
fn operator_and_plain_thread_spawn_without_approval() {
    let (mut world, lead) = with_lead(Scope::Project, EdgeManagement::None, |_| {});
    let below_lead = world.spawn(lead);
    assert_eq!(world.status(below_lead), PendingInit, "an operator requested the spawn");

    let root = world.root();
    let mut spawn = world.wanted_by(root);
    role_of(&mut spawn).source = Some(graph_template(Scope::Project));
    let by_root = world.spawn_as(spawn);
    assert_eq!(world.status(by_root), PendingInit, "no graph template binds the root");
}

/// Returns a session that requires an approval for every call of these tools, and its root.
fn with_approve_tools(tools: &[&str]) -> (World, ThreadId) {
    World::with_settings(|settings| settings.approve_tools = tools.iter().map(|&tool| tool.to_owned()).collect())
}

#[test]
fn spawn_awaits_approval_if_the_session_lists_the_tool() {
    for (tools, expected) in [
        (&["spawn_agent"][..], AwaitingApproval),
        // Another name of the same tool.
        (&["spawn_node"], AwaitingApproval),
        (&["*"], AwaitingApproval),
        (&["send_*", "exec_command"], PendingInit),
        (&[], PendingInit),
    ] {
        let (mut world, root) = with_approve_tools(tools);
        let by_thread = world.spawn_by(root);
        assert_eq!(world.status(by_thread), expected, "{tools:?}");
        let by_operator = world.spawn(root);
        assert_eq!(world.status(by_operator), PendingInit, "{tools:?}");
    }
}

#[test]
fn edge_awaits_approval_if_the_session_lists_the_tool() {
    let (mut world, root) = with_approve_tools(&["create_edge"]);
    let (from, to) = (world.spawn(root), world.spawn(root));
    let mut create = |by_thread: bool, number: u128| {
        let caller = if by_thread { world.caller(root) } else { operator() };
        let edge = Edge {
            id: EdgeId::from_uuid(Uuid::from_u128(number)),
            from: if by_thread { from } else { to },
            to: if by_thread { to } else { from },
            bidirectional: false,
            kind: EdgeKind::Handoff,
            label: String::new(),
        };
        let approval = world.new_approval_id();
        let events = world.run(&Command::CreateEdge { caller, edge, approval });
        (approval, events)
    };
    assert_eq!(create(false, 1).1, ["EdgeCreated"]);
    let (asked, events) = create(true, 2);
    assert_eq!(events, ["ApprovalRequested"]);
    assert_eq!(world.run(&decision(asked, true)), ["ApprovalResolved", "EdgeCreated"]);
}

/// Without an approval of each resume, a thread that an operator closed could be reopened unnoticed.
#[test]
fn resume_does_not_bypass_spawn_approval() {
    for (tools, is_refused) in [
        (&["spawn_agent"][..], true),
        (&["spawn_agent", "resume_agent"], false),
        (&["resume_agent"], false),
    ] {
        let (mut world, root) = with_approve_tools(tools);
        let id = world.spawn(root);
        world.close(id);
        let command = resume(world.caller(root), id);
        if is_refused {
            assert_eq!(world.rejection(&command), resume_needs_operator(id));
        } else {
            assert!(!world.run(&command).is_empty(), "{tools:?}");
        }
    }
}

// ---- pending approvals ----

#[test]
fn arguments_can_be_removed_from_tool_call_subject() {
    let long = "x".repeat(1_000);
    for (tool, arguments, whole, seen) in [
        (
            "exec_command",
            "{\"cmd\": \"make\"}",
            "Tool call: exec_command {\"cmd\": \"make\"}",
            "Tool call: exec_command",
        ),
        ("wait", "", "Tool call: wait ", "Tool call: wait"),
        // Text from a model cannot imitate text from the service.
        ("a\ntool", "{}", "Tool call: a tool {}", "Tool call: a"),
        (" ", "{}", "Tool call:  {}", "Tool call: "),
        ("", "", "Tool call:  ", "Tool call: "),
    ] {
        let subject = tool_subject(tool, arguments);
        assert_eq!((subject.as_str(), without_arguments(&subject).as_str()), (whole, seen));
    }
    assert_eq!(
        tool_subject("wait", &long).chars().count(),
        "Tool call: wait ".len() + 160
    );
    assert_eq!(without_arguments(""), "", "a condition that ended");
}

#[test]
fn approval_subject_describes_the_spawn() {
    let (mut world, lead) = asking(3);
    let mut spawn = world.wanted_by(lead);
    role_of(&mut spawn).agent_type = String::from("planner");
    // Text from a model cannot imitate text from the service.
    spawn.spawned.label = String::from("Docs\n\tAgent");
    role_of(&mut spawn).source = Some(graph_template(Scope::System));
    spawn.role_layers = [Layer {
        origin: String::from("spawn"),
        mode: MatchMode::Glob,
        allow: ["read_*", "wait"].map(str::to_owned).into(),
        deny: vec![String::from("read_mcp_*")],
    }]
    .into();
    let (id, asked) = (spawn.id, spawn.approval);
    world.spawn_as(spawn);

    let shown = approval(&world, asked);
    assert_eq!(
        shown.subject,
        format!(
            "Spawn node: Docs Agent (planner)\nasked by: lead {lead}\ntemplate: system scope, sha256 {}\n\
             tools: wait, read_transcript, read_file\nsandbox: full access\nedge management: none",
            "0f".repeat(32)
        )
    );
    assert_eq!((shown.thread, shown.kind), (id, ApprovalKind::Spawn));
    assert_eq!(shown.deadline, Some(shown.requested.plus(APPROVAL_TIMEOUT)));
    assert_eq!((&shown.edge, &shown.verdict), (&None, &None));
    assert!(world.session.pending_approvals().eq([&world.session.approvals[&asked]]));
}

#[test]
fn unlabelled_thread_is_named_by_alias_or_role() {
    for (alias, expected) in [("Fox", "Spawn node: Fox (worker)"), ("", "Spawn node: worker (worker)")] {
        let (mut world, lead) = asking(3);
        let mut spawn = world.wanted_by(lead);
        spawn.spawned.alias = String::from(alias);
        let asked = spawn.approval;
        world.spawn_as(spawn);
        assert_eq!(approval(&world, asked).subject.lines().next(), Some(expected));
    }
}

#[test]
fn awaiting_approval_is_open_and_holds_no_slot() {
    let (mut world, lead) = asking(1);
    let (id, _) = ask(&mut world, lead);
    assert_eq!(limits::active(&world.session), 1, "the lead's");
    assert_eq!(world.session.queue_position(id), None);
    assert_eq!(world.session.open_count(), 3);
    assert_eq!(world.session.count(AwaitingApproval), 1);
}

#[test]
fn awaiting_approval_counts_toward_open_limit() {
    let (mut world, lead) = asking(3);
    ask(&mut world, lead);
    let limits = Limits {
        max_open_threads: 3,
        ..Limits::default()
    };
    world.update(|change| change.limits = Some(limits));
    let spawn = world.wanted_by(lead);
    assert_eq!(
        world.rejection(&spawning(spawn)),
        "open agent thread limit reached (max 3); close agents that are done"
    );
}

#[test]
fn thread_awaiting_approval_rejects_all_commands() {
    let (mut world, lead) = asking(3);
    let (id, asked) = ask(&mut world, lead);
    let caller = world.caller(id);
    for command in [
        spawning(world.wanted_by(id)),
        send(caller.clone(), id),
        note(caller.clone(), id, "busy"),
        close(caller.clone(), id),
    ] {
        assert_eq!(
            world.rejection(&command),
            format!(
                "agent with id {id} waits for an operator's approval; its token becomes valid when the approval is granted"
            )
        );
    }
    let spawn = world.wanted(id);
    assert_eq!(
        world.rejection(&spawning(spawn)),
        format!("agent with id {id} is AWAITING_APPROVAL; it cannot have children before its own spawn is approved")
    );

    world.run(&decision(asked, true));
    assert_eq!(world.run(&note(caller, id, "busy")), ["NoteSet"], "the same token");
    world.spawn(id);
}

// ---- granted ----

#[test]
fn granted_thread_starts_if_a_slot_is_free() {
    let (mut world, lead) = asking(2);
    let (id, asked) = ask(&mut world, lead);
    world.run(&send(operator(), id));
    assert_eq!(world.run(&interrupt(operator(), id)), NOTHING, "it has no turn");
    assert_eq!(
        world.run(&decision(asked, true)),
        ["ApprovalResolved", "ThreadAdmitted"]
    );
    assert_eq!(world.status(id), PendingInit);
    assert_eq!(world.waiting_inputs(id), [1, 2]);
    assert_eq!(decided(&world, asked), Some(ApprovalDecision::Granted));
    assert_eq!(world.session.pending_approvals().count(), 0);
    world.begin(id);
    assert_eq!(world.status(id), Running);
}

#[test]
fn granted_thread_queues_without_a_free_slot() {
    for on_limit in [OnLimit::Refuse, OnLimit::Queue] {
        let (mut world, lead) = asking(1);
        let mut spawn = world.wanted_by(lead);
        spawn.on_limit = on_limit;
        let asked = spawn.approval;
        let id = world.spawn_as(spawn);
        assert_eq!(world.run(&decision(asked, true)), ["ApprovalResolved"]);
        assert_eq!(world.status(id), Queued);
        world.begin(lead);
        assert_eq!(world.end(lead, settled(Completed)), ["TurnEnded", "ThreadAdmitted"]);
        assert_eq!(world.status(id), PendingInit);
    }
}

#[test]
fn granted_threads_queue_in_order_of_decisions() {
    let (mut world, lead) = asking(1);
    let (first, ask_first) = ask(&mut world, lead);
    let (second, ask_second) = ask(&mut world, lead);
    let root = world.root();
    let queued = world.enqueue(root);
    world.run(&decision(ask_second, true));
    world.run(&decision(ask_first, true));
    assert!(world.session.queued().eq([queued, second, first]));
}

#[test]
fn paused_session_does_not_start_granted_thread() {
    let (mut world, lead) = asking(2);
    let (id, asked) = ask(&mut world, lead);
    world.pause(true);
    assert_eq!(world.run(&decision(asked, true)), ["ApprovalResolved"]);
    assert_eq!(world.status(id), Queued);
    world.pause(false);
    assert_eq!(world.status(id), PendingInit);
}

// ---- denied, expired, moot ----

#[test]
fn denied_thread_cannot_be_resumed() {
    let (mut world, lead) = asking(2);
    let (id, asked) = ask(&mut world, lead);
    assert_eq!(world.run(&decision(asked, false)), ["ApprovalResolved", "ThreadClosed"]);
    assert_eq!(world.status(id), Shutdown);
    assert_eq!(
        reason_of(&world, id),
        "the spawn's approval was denied by operator:ada: I said so"
    );
    assert_eq!(world.thread(lead).mail.len(), 1, "its parent is notified");
    for caller in [operator(), world.caller(lead)] {
        assert_eq!(world.rejection(&resume(caller, id)), never_approved(id));
    }
    let (again, _) = ask(&mut world, lead);
    assert_eq!(world.status(again), AwaitingApproval, "a denial drops that spawn only");
}

/// A denied thread can never be opened again, so its alias is free. A closed thread keeps its alias.
#[test]
fn denied_thread_releases_its_alias() {
    let (mut world, lead) = asking(2);
    let mut spawns = Vec::new();
    for alias in ["Fox", "fOX"] {
        let mut spawn = world.wanted_by(lead);
        spawn.spawned.alias = String::from(alias);
        spawns.push(spawn);
    }
    let (again, first) = (spawns.remove(1), spawns.remove(0));
    let asked = first.approval;
    let denied = world.spawn_as(first);
    assert_eq!(world.session.thread_by_alias("fox"), Some(denied));
    assert_eq!(
        world.rejection(&spawning(again.clone())),
        format!("alias \"fOX\" is already in use by agent {denied}; choose another")
    );

    world.run(&decision(asked, false));
    assert_eq!(world.session.thread_by_alias("fox"), None);
    let asked = again.approval;
    let again = world.spawn_as(again);
    world.run(&decision(asked, true));
    world.close(again);
    assert_eq!(world.session.thread_by_alias("fox"), Some(again));
    assert_eq!(World::replay(&world.log), world.session);
}

/// Otherwise a thread whose spawns need an approval could reopen a thread that an operator closed, without an approval
/// of the resume.
#[test]
fn resume_by_thread_with_approved_spawns_is_rejected() {
    let (mut world, lead) = asking(2);
    world.begin(lead);
    let (id, asked) = ask(&mut world, lead);
    world.run(&decision(asked, true));
    world.close(id);
    let caller = world.caller(lead);
    assert_eq!(world.rejection(&resume(caller, id)), resume_needs_operator(id));
    assert!(!world.run(&resume(operator(), id)).is_empty());
}

#[test]
fn undecided_approval_expires_at_its_deadline() {
    let (mut world, lead) = asking(2);
    world.begin(lead);
    assert_eq!(tick::next(&world.session), None);
    let (id, asked) = ask(&mut world, lead);
    world.end(lead, settled(Completed));
    assert!(world.session.is_at_work(), "it must stay active for the deadline");
    assert_eq!(tick::next(&world.session), approval(&world, asked).deadline);

    world.pass(APPROVAL_TIMEOUT - Duration::from_secs(1));
    assert_eq!(world.run(&Command::Tick), NOTHING);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.run(&Command::Tick), ["ApprovalResolved", "ThreadClosed"]);
    assert_eq!(decided(&world, asked), Some(ApprovalDecision::Expired));
    assert_eq!(
        reason_of(&world, id),
        "the spawn's approval expired: no decision within 600 s"
    );
    assert_eq!(tick::next(&world.session), None);
    assert!(!world.session.is_at_work());
}

#[test]
fn session_sets_time_for_decisions() {
    let day = Duration::from_secs(24 * 60 * 60);
    for (timeout, action, expires) in [
        (Duration::from_secs(90), ApprovalTimeoutAction::Deny, true),
        (Duration::from_secs(90), ApprovalTimeoutAction::Keep, false),
        (Duration::ZERO, ApprovalTimeoutAction::Deny, false),
    ] {
        let (mut world, lead) = with_lead(Scope::Project, EdgeManagement::All, |settings| {
            settings.approval_timeout = timeout;
            settings.on_approval_timeout = action;
        });
        let (_, asked) = ask(&mut world, lead);
        let waiting = approval(&world, asked);
        assert_eq!(waiting.deadline, expires.then(|| waiting.requested.plus(timeout)));
        assert_eq!(tick::next(&world.session), waiting.deadline);
        world.pass(if expires { timeout } else { day });
        world.run(&Command::Tick);
        let expected = expires.then_some(ApprovalDecision::Expired);
        assert_eq!(decided(&world, asked), expected, "{timeout:?} {action:?}");
        if !expires {
            assert!(!world.run(&decision(asked, true)).is_empty(), "it can still be decided");
            assert_eq!(decided(&world, asked), Some(ApprovalDecision::Granted));
        }
    }
}

#[test]
fn one_tick_expires_a_limited_number_of_approvals() {
    let (mut world, lead) = asking(2);
    world.lawful = false;
    for _ in 0..130 {
        ask(&mut world, lead);
    }
    world.pass(APPROVAL_TIMEOUT);
    for (closed, left) in [(128, true), (130, false), (130, false)] {
        world.run(&Command::Tick);
        assert_eq!(world.session.count(Shutdown), closed);
        assert_eq!(tick::next(&world.session).is_some(), left);
    }
}

#[test]
fn close_ends_pending_approvals() {
    for what in ["itself", "parent", "session"] {
        let (mut world, lead) = asking(2);
        let (id, asked) = ask(&mut world, lead);
        let top = match what {
            "itself" => id,
            "parent" => lead,
            _ => world.root(),
        };
        assert_eq!(
            world.run(&close(operator(), top)),
            ["CloseRequested", "ApprovalResolved"],
            "{what}"
        );
        assert_eq!(decided(&world, asked), Some(ApprovalDecision::Moot));
        assert_eq!(world.status(id), AwaitingApproval, "the cascade closes it");
        world.wind_down();
        assert_eq!(world.status(id), Shutdown);
        assert_eq!(reason_of(&world, id), "no longer needed");
        if what == "itself" {
            assert_eq!(world.rejection(&resume(operator(), id)), never_approved(id));
        }
    }
}

#[test]
fn every_kind_of_close_ends_pending_approvals() {
    let (mut world, lead) = asking(2);
    let (id, asked) = ask(&mut world, lead);
    let (_, other) = ask(&mut world, lead);
    world.append(Event::Thread(
        id,
        ThreadEvent::Closed {
            forced: false,
            reason: String::from("evicted"),
        },
    ));
    // Follow-up events are recorded with the next command.
    world.pause(false);
    assert_eq!(decided(&world, asked), Some(ApprovalDecision::Moot));
    assert_eq!(decided(&world, other), None);
}

#[test]
fn decided_approval_cannot_be_decided_again() {
    for (how, told) in [
        ("granted", "granted by operator:ada"),
        ("denied", "denied by operator:ada"),
        ("expired", "expired by service"),
        ("moot", "moot by service"),
    ] {
        let (mut world, lead) = asking(2);
        let (id, asked) = ask(&mut world, lead);
        let first = match how {
            "granted" => decision(asked, true),
            "denied" => decision(asked, false),
            "moot" => close(operator(), id),
            _ => {
                world.pass(APPROVAL_TIMEOUT);
                Command::Tick
            }
        };
        world.run(&first);
        for grant in [true, false] {
            assert_eq!(
                world.rejection(&decision(asked, grant)),
                format!("approval {asked} was decided before: {told}; a decision is final")
            );
        }
    }
}

#[test]
fn late_decision_is_rejected_before_expiry_is_recorded() {
    let (mut world, lead) = asking(2);
    let (_, asked) = ask(&mut world, lead);
    world.pass(APPROVAL_TIMEOUT);
    for grant in [true, false] {
        assert_eq!(
            world.rejection(&decision(asked, grant)),
            format!("approval {asked} was decided before: expired by service; a decision is final")
        );
    }
    assert_eq!(world.run(&Command::Tick), ["ApprovalResolved", "ThreadClosed"]);

    let (_, asked) = ask(&mut world, lead);
    world.pass(APPROVAL_TIMEOUT - Duration::from_secs(1));
    assert_eq!(world.run(&decision(asked, true))[0], "ApprovalResolved");
    assert_eq!(decided(&world, asked), Some(ApprovalDecision::Granted));
}

#[test]
fn decision_on_unknown_approval_is_rejected() {
    let (mut world, _) = World::with_slots(1);
    let nothing = world.new_approval_id();
    assert_eq!(
        world.rejection(&decision(nothing, true)),
        format!("approval {nothing} not found")
    );
}

// ---- edge management ----

/// Returns the edge management of a child whose template declares everything, below this chain of graph threads.
fn child_edge_management(chain: &[Option<EdgeManagement>], by_operator: bool) -> EdgeManagement {
    let (mut world, lead) = with_lead(Scope::System, EdgeManagement::All, |_| {});
    let mut parent = lead;
    for edges in chain {
        let mut spawn = world.wanted(parent);
        if let Some(edges) = edges {
            role_of(&mut spawn).source = Some(graph_template(Scope::System));
            spawn.spawned.edge_management = *edges;
        }
        parent = world.spawn_as(spawn);
    }
    let mut spawn = if by_operator {
        world.wanted(parent)
    } else {
        world.wanted_by(parent)
    };
    role_of(&mut spawn).source = Some(graph_template(Scope::System));
    spawn.spawned.edge_management = EdgeManagement::All;
    let child = world.spawn_as(spawn);
    world.thread(child).spawned.edge_management
}

#[test]
fn edge_management_only_shrinks_below_graph_threads() {
    use EdgeManagement::{All, SelfOnly};
    for (chain, by_operator, expected) in [
        (&[] as &[Option<EdgeManagement>], false, All),
        (&[Some(All)], false, All),
        (&[Some(SelfOnly)], false, SelfOnly),
        // A thread without a graph template in between does not widen the edge management.
        (&[Some(SelfOnly), None], false, SelfOnly),
        (&[Some(EdgeManagement::None), None], false, EdgeManagement::None),
        (&[None], false, All),
        (&[Some(SelfOnly)], true, All),
    ] {
        assert_eq!(
            child_edge_management(chain, by_operator),
            expected,
            "{chain:?} {by_operator}"
        );
    }
}

#[test]
fn capabilities_determine_edge_management() {
    for (names, expected) in [
        (&["edge_management_all"][..], EdgeManagement::All),
        (&["spawn_nodes"], EdgeManagement::All),
        (&["edge_management_self", "delegate"], EdgeManagement::SelfOnly),
        (&["edge_management_self", "spawn_nodes"], EdgeManagement::All),
        (&["delegate", "Edge_Management_All"], EdgeManagement::None),
        (&[], EdgeManagement::None),
    ] {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(EdgeManagement::of_capabilities(&names), expected, "{names:?}");
    }
}

#[test]
fn spawn_list_permits_agent_types_but_not_graph_templates() {
    let (mut world, root) = World::with_slots(4);
    let lead = world.spawn_with(root, |lead| role_of(lead).spawn_list = vec![String::from("reviewer")]);
    for is_graph in [false, true] {
        let mut spawn = world.wanted_by(lead);
        role_of(&mut spawn).agent_type = String::from("reviewer");
        role_of(&mut spawn).source = is_graph.then(|| graph_template(Scope::System));
        let command = spawning(spawn);
        if is_graph {
            assert_eq!(
                world.rejection(&command),
                "agent_type \"worker\" may not spawn \"reviewer\"; its spawn_list allows: reviewer"
            );
        } else {
            assert_eq!(world.run(&command), ["ThreadSpawned"]);
        }
    }
}

// ---- tools and edges ----

/// Returns a running thread with calls that wait for an operator.
fn with_calls(calls: usize) -> (World, ThreadId, Vec<ApprovalId>) {
    let (mut world, id) = World::with_thread_in(Running);
    let asked = (0..calls).map(|_| world.ask(id, ApprovalKind::Tool, None)).collect();
    world.append(Event::Thread(
        id,
        ThreadEvent::ConditionChanged {
            kind: ConditionKind::AwaitingToolApproval,
            active: true,
            reason: String::from("exec_command"),
        },
    ));
    (world, id, asked)
}

fn awaits_a_tool(world: &World, id: ThreadId) -> bool {
    world.has_condition(id, ConditionKind::AwaitingToolApproval)
}

#[test]
fn thread_awaits_tool_until_last_call_is_decided() {
    for grant in [true, false] {
        let (mut world, id, asked) = with_calls(2);
        assert_eq!(world.run(&decision(asked[0], grant)), ["ApprovalResolved"]);
        assert!(awaits_a_tool(&world, id));
        assert_eq!(
            world.run(&decision(asked[1], !grant)),
            ["ApprovalResolved", "ConditionChanged"]
        );
        assert!(!awaits_a_tool(&world, id));
        assert_eq!(world.status(id), Running, "a denial drops that call only");
    }

    let (mut world, id, _) = with_calls(2);
    world.pass(APPROVAL_TIMEOUT);
    assert_eq!(
        world.run(&Command::Tick),
        ["ApprovalResolved", "ApprovalResolved", "ConditionChanged"]
    );
    assert_eq!(world.status(id), Running);

    let (mut world, id, asked) = with_calls(1);
    assert_eq!(
        world.run(&close(operator(), id)),
        ["CloseRequested", "ApprovalResolved", "ConditionChanged"]
    );
    assert_eq!(decided(&world, asked[0]), Some(ApprovalDecision::Moot));
}

#[test]
fn decision_without_turns_answers_requesting_call_only() {
    use ApprovalDecision::{Denied, Expired, Granted, Moot};

    let (mut world, id) = World::with_thread_in(Running);
    let asked = world.ask(id, ApprovalKind::Tool, None);
    let waiting = approval(&world, asked).clone();
    let (early, late) = (waiting.requested, waiting.deadline.unwrap());
    for again in [
        RepeatedCall::SameId,
        RepeatedCall::UndeliveredDecision,
        RepeatedCall::DeliveredDecision,
    ] {
        assert!(
            waiting.answers(again, early) && waiting.answers(again, late),
            "{again:?}"
        );
    }
    assert!(!waiting.is_overdue(early) && waiting.is_overdue(late));

    for (decision, again, answers) in [
        (Granted, RepeatedCall::SameId, [true, true]),
        (Denied, RepeatedCall::SameId, [true, true]),
        (Granted, RepeatedCall::UndeliveredDecision, [true, false]),
        (Denied, RepeatedCall::UndeliveredDecision, [true, false]),
        (Granted, RepeatedCall::DeliveredDecision, [false, false]),
        (Denied, RepeatedCall::DeliveredDecision, [false, false]),
        (Expired, RepeatedCall::SameId, [false, false]),
        (Expired, RepeatedCall::UndeliveredDecision, [false, false]),
        (Moot, RepeatedCall::SameId, [false, false]),
    ] {
        let verdict = Verdict {
            decision,
            by: Actor::Service,
            reason: String::new(),
        };
        let decided = Approval {
            verdict: Some(verdict),
            ..waiting.clone()
        };
        let answered = [early, late].map(|now| decided.answers(again, now));
        assert_eq!(answered, answers, "{decision:?} {again:?}");
        let forgotten = waiting.requested.plus(REQUESTS_REMEMBERED);
        assert!(!decided.answers(again, forgotten), "{decision:?} {again:?}");
        assert!(!decided.is_overdue(late));
    }
}

/// After the turn, a grant would have no effect, and the thread no longer waits.
#[test]
fn tool_approvals_become_moot_when_the_turn_ends() {
    let (mut world, id, asked) = with_calls(2);
    let events = world.end(id, settled(Completed));
    assert!(!awaits_a_tool(&world, id), "{events:?}");
    for approval in asked {
        assert_eq!(decided(&world, approval), Some(ApprovalDecision::Moot));
    }
    assert_eq!(tick::next(&world.session), None);
}

/// Returns two running threads, and an edge from the first to the second that waits for an operator.
fn with_edge() -> (World, [ThreadId; 2], ApprovalId, EdgeId) {
    let (mut world, root) = World::with_slots(2);
    let (from, to) = (world.spawn_running(root), world.spawn_running(root));
    let id = EdgeId::from_uuid(Uuid::from_u128(77));
    let edge = Edge {
        id,
        from,
        to,
        bidirectional: false,
        kind: EdgeKind::Handoff,
        label: String::new(),
    };
    let asked = world.ask(from, ApprovalKind::Edge, Some(edge));
    (world, [from, to], asked, id)
}

#[test]
fn granted_edge_is_created_at_once() {
    let (mut world, [from, _], asked, edge) = with_edge();
    assert_eq!(world.run(&decision(asked, true)), ["ApprovalResolved", "EdgeCreated"]);
    assert_eq!(world.session.edges[&edge].from, from);
}

#[test]
fn edge_without_grant_is_dropped() {
    let (mut world, [from, _], asked, _) = with_edge();
    assert_eq!(world.run(&decision(asked, false)), ["ApprovalResolved"]);
    assert_eq!(world.status(from), Running);
    assert!(world.session.edges.is_empty());

    let (mut world, _, _, _) = with_edge();
    world.pass(APPROVAL_TIMEOUT);
    assert_eq!(world.run(&Command::Tick), ["ApprovalResolved"]);
    assert!(world.session.edges.is_empty());
}

#[test]
fn edge_to_closed_thread_cannot_be_granted() {
    for is_down in [false, true] {
        let (mut world, [_, to], asked, _) = with_edge();
        world.run(&close(operator(), to));
        if is_down {
            world.wind_down();
        }
        assert_eq!(decided(&world, asked), None, "the requester is still open");
        assert_eq!(world.run(&decision(asked, true)), ["ApprovalResolved"]);
        assert_eq!(decided(&world, asked), Some(ApprovalDecision::Moot));
        assert!(world.session.edges.is_empty());
    }
}

#[test]
fn session_keeps_the_latest_decisions() {
    let (mut world, id) = World::with_thread_in(Running);
    world.lawful = false;
    for _ in 0..1_100 {
        let asked = world.ask(id, ApprovalKind::Edge, None);
        world.run(&decision(asked, false));
    }
    assert_eq!(world.session.approvals.len(), 1_000);
    assert_eq!(World::replay(&world.log), world.session);
}
