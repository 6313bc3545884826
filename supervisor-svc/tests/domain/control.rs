//! Permissions between threads. Input, interrupts, notes and listings in each state.

use std::collections::BTreeSet;

use supervisor_core::{
    command::{Command, Report},
    effect::PendingEffect,
    ids::{Generation, InputNumber, RunnerId, ThreadId, Turn},
    principal::Caller,
    rejection::Rejection,
    rules::{
        authority,
        input::{GivenInput, required},
        limits::{MAX_PENDING_INPUT_BYTES, MAX_PENDING_INPUTS},
        list::{ListScope, Listing, list},
    },
    settings::{OnLimit, Urgency},
    status::{
        Status,
        StatusKind::{self, AwaitingApproval, Completed, Errored, Interrupted, PendingInit, Queued, Running, Shutdown},
    },
};

use crate::world::{
    NO_SLOT_OF_ONE, NOTHING, OUTSIDE, PAUSED, STALE_TOKEN, World, close, deny, interrupt, is_closed, is_closing,
    no_tool, not_found, note, operator, resume, run_root, send, send_with, settings, settled, spawning, thread_id,
};

/// Returns every command on a thread, with the tool that it needs.
fn verbs(world: &mut World, caller: &Caller, target: ThreadId) -> Vec<(&'static str, Command)> {
    let mut spawn = world.wanted(target);
    spawn.caller = caller.clone();
    vec![
        ("spawn_agent", spawning(spawn)),
        ("send_input", send(caller.clone(), target)),
        ("send_input", interrupt(caller.clone(), target)),
        ("close_agent", close(caller.clone(), target)),
        ("resume_agent", resume(caller.clone(), target)),
        ("set_thread_note", note(caller.clone(), target, "busy")),
    ]
}

// ---- authority ----

#[test]
fn operator_gets_not_found_for_unknown_thread() {
    let (mut world, _) = World::with_slots(1);
    let missing = thread_id(999);
    for (_, command) in verbs(&mut world, &operator(), missing) {
        assert_eq!(world.rejection(&command), not_found(missing));
    }
}

#[test]
fn thread_gets_same_error_for_foreign_and_unknown() {
    let (mut world, root) = World::with_slots(4);
    let own = world.spawn(root);
    let sibling = world.spawn(root);
    let nephew = world.spawn(sibling);
    let caller = world.caller(own);
    for target in [root, sibling, nephew, thread_id(999)] {
        for (tool, command) in verbs(&mut world, &caller, target) {
            let expected = if tool == "close_agent" {
                "Not permitted to close agents outside your subtree."
            } else {
                OUTSIDE
            };
            assert_eq!(world.rejection(&command), expected, "{tool}");
        }
    }
}

#[test]
fn thread_may_act_on_itself_and_descendants() {
    let (mut world, root) = World::with_slots(4);
    let own = world.spawn(root);
    let child = world.spawn(own);
    let caller = world.caller(own);
    for target in [own, child] {
        assert_eq!(world.run(&note(caller.clone(), target, "busy")), ["NoteSet"]);
        assert_eq!(world.run(&send(caller.clone(), target)), ["InputQueued"]);
    }
    assert_eq!(world.run(&close(caller, own)), ["CloseRequested"]);
}

#[test]
fn call_without_its_tool_is_rejected() {
    let (mut world, root) = World::with_slots(4);
    let own = world.spawn_with(root, |own| {
        own.role_layers = [deny("role \"worker\"", &["*"])].into();
    });
    let caller = world.caller(own);
    for (tool, command) in verbs(&mut world, &caller, own) {
        assert_eq!(world.rejection(&command), no_tool(tool));
    }
    for (method, tool) in [("WaitAgents", "wait"), ("ListActiveAgents", "list_active_agents")] {
        let refused = authority::authorize(&world.session, &caller, method, own).unwrap_err();
        assert_eq!(refused.to_string(), no_tool(tool));
    }
    assert!(
        authority::authorize(&world.session, &caller, "GetThread", own).is_ok(),
        "the method needs no tool"
    );
}

#[test]
fn token_is_stale_after_its_attempt_ends() {
    let (mut world, own) = World::with_thread_in(Running);
    let first = world.caller(own);
    assert!(authority::fresh(&world.session, &first).is_ok());
    assert_eq!(
        authority::fresh(&world.session, &operator()),
        Err(Rejection::StaleToken)
    );

    world.close(own);
    let while_closed = world.caller(own);
    for caller in [&first, &while_closed] {
        for (_, command) in verbs(&mut world, caller, own) {
            assert_eq!(world.rejection(&command), STALE_TOKEN);
        }
    }
    world.run(&resume(operator(), own));
    for (caller, good) in [(first, false), (while_closed, false), (world.caller(own), true)] {
        assert_eq!(authority::fresh(&world.session, &caller).is_ok(), good, "{caller:?}");
    }
    let unknown = Caller::Thread {
        id: thread_id(999),
        generation: Generation::new(1),
    };
    assert_eq!(authority::fresh(&world.session, &unknown), Err(Rejection::StaleToken));
}

// ---- input ----

#[test]
fn input_is_a_message_or_items() {
    const BOTH: &str = "Provide either message or items, but not both";
    const EMPTY: &str = "Empty message can't be sent to an agent";
    let items = |texts: &[&str]| -> Vec<String> { texts.iter().map(|text| (*text).to_owned()).collect() };
    for (message, given, expected) in [
        (Some("a"), items(&["b"]), Err(BOTH)),
        (Some(""), items(&["b"]), Err(BOTH)),
        (None, items(&[]), Err("Provide one of: message or items")),
        (Some(""), items(&[]), Err(EMPTY)),
        (Some(" \n\t"), items(&[]), Err(EMPTY)),
        (Some(" a "), items(&[]), Ok(items(&["text: a "]))),
        (None, items(&["b", "c"]), Ok(items(&["b", "c"]))),
    ] {
        let given = GivenInput {
            message: message.map(str::to_owned),
            items: given,
        };
        let taken = required(given.clone(), |message| format!("text:{message}"));
        assert_eq!(
            taken.map_err(|rejection| rejection.to_string()),
            expected.map_err(str::to_owned),
            "{given:?}"
        );
    }
}

#[test]
fn input_to_unsettled_thread_is_queued() {
    for kind in [Queued, AwaitingApproval, PendingInit, Running] {
        let (mut world, id) = World::with_thread_in(kind);
        let waited = world.waiting_inputs(id).len();
        assert_eq!(world.run(&send(operator(), id)), ["InputQueued"], "{kind}");
        assert_eq!(world.status(id), kind);
        assert_eq!(world.waiting_inputs(id).len(), waited + 1);
    }
}

#[test]
fn input_to_settled_thread_starts_turn_if_slot_is_free() {
    for kind in [Completed, Errored, Interrupted] {
        let (mut world, id) = World::with_thread_in(kind);
        assert_eq!(world.run(&send(operator(), id)), ["InputQueued", "ThreadAdmitted"]);
        assert_eq!(world.status(id), PendingInit);
        assert_eq!(world.waiting_inputs(id), [2]);
        world.begin(id);
        assert_eq!(world.thread(id).turn.number(), Turn::new(2));
        assert_eq!(world.waiting_inputs(id), [] as [u32; 0]);

        let (mut world, id) = World::with_thread_in(kind);
        world.spawn(world.root());
        assert_eq!(world.rejection(&send(operator(), id)), NO_SLOT_OF_ONE);
        let queued = send_with(operator(), id, Urgency::Wait, OnLimit::Queue);
        assert_eq!(world.run(&queued), ["InputQueued"]);
        assert_eq!((world.status(id), world.session.queue_position(id)), (Queued, Some(1)));
    }
}

#[test]
fn input_is_rejected_where_no_turn_may_start() {
    let (mut world, id) = World::with_thread_in(Shutdown);
    assert_eq!(world.rejection(&send(operator(), id)), is_closed(id));

    let (mut world, id) = World::with_thread_in(Running);
    let root = world.root();
    assert_eq!(
        world.rejection(&send(operator(), root)),
        format!("agent with id {root} is RUNNING; it cannot take input: its client executes it itself")
    );
    world.pause(true);
    assert_eq!(world.rejection(&send(operator(), id)), PAUSED);
    world.pause(false);
    world.run(&close(operator(), id));
    assert_eq!(world.rejection(&send(operator(), id)), is_closing(id));
}

#[test]
fn queued_inputs_are_limited() {
    let (mut world, id) = World::with_thread_in(Running);
    for _ in 0..MAX_PENDING_INPUTS {
        world.run(&send(operator(), id));
    }
    assert_eq!(
        world.rejection(&send(operator(), id)),
        format!("agent with id {id} has 64 inputs waiting; wait until it has read them")
    );
}

#[test]
fn bytes_of_queued_input_are_limited() {
    let (mut world, id) = World::with_thread_in(Running);
    let sized = |size| {
        let mut command = send(operator(), id);
        if let Command::SendInput { input, .. } = &mut command {
            input.size = size;
        }
        command
    };
    // A single input may exceed the limit on the total size of waiting inputs.
    world.run(&sized(2 * MAX_PENDING_INPUT_BYTES));
    assert_eq!(
        world.rejection(&sized(1)),
        format!(
            "agent with id {id} has 1048576 bytes of input waiting, and 1 more would exceed 524288; wait until it has read them"
        )
    );
}

#[test]
fn pending_input_starts_next_turn_in_same_slot() {
    let (mut world, id) = World::with_thread_in(Running);
    let queued = world.enqueue(world.root());
    world.run(&send(operator(), id));
    assert_eq!(world.end(id, settled(Completed)), ["TurnEnded", "ThreadAdmitted"]);
    assert_eq!((world.status(id), world.status(queued)), (PendingInit, Queued));
    assert_eq!(world.waiting_inputs(id), [2]);
}

#[test]
fn steering_delivers_all_earlier_input_to_running_turn() {
    let (mut world, id) = World::with_thread_in(Running);
    let steer = send_with(operator(), id, Urgency::Steer, OnLimit::Refuse);
    let pending_input = |world: &World| match world.effect(id) {
        Some(PendingEffect::Steer { up_to, turn, .. }) => Some((up_to.get(), turn.get())),
        _ => None,
    };
    world.run(&send(operator(), id));
    assert_eq!(pending_input(&world), None, "queued input belongs to the next turn");
    assert_eq!(world.run(&steer), ["InputQueued"]);
    world.run(&send(operator(), id));
    assert_eq!(pending_input(&world), Some((3, 1)));

    let delivered = |number| Report::InputDelivered {
        number: InputNumber::new(number),
        turn: Turn::new(1),
    };
    assert_eq!(world.report(id, delivered(2)), ["InputDelivered"]);
    assert_eq!(pending_input(&world), Some((3, 1)));
    assert_eq!(world.report(id, delivered(3)), ["InputDelivered"]);
    assert_eq!((pending_input(&world), world.waiting_inputs(id)), (None, vec![4]));

    // If the program does not take the input, the next turn gets it, like any other input.
    world.run(&steer);
    assert_eq!(world.end(id, settled(Completed)), ["TurnEnded", "ThreadAdmitted"]);
    assert_eq!((pending_input(&world), world.waiting_inputs(id)), (None, vec![4, 5]));

    // A turn that is being stopped gets no more input.
    let (mut world, id) = World::with_thread_in(Running);
    world.run(&send_with(operator(), id, Urgency::Steer, OnLimit::Refuse));
    world.run(&interrupt(operator(), id));
    assert!(matches!(world.effect(id), Some(PendingEffect::Interrupt { .. })));
}

#[test]
fn input_with_interrupt_stops_the_turn_first() {
    let (mut world, id) = World::with_thread_in(Running);
    let command = send_with(operator(), id, Urgency::Interrupt, OnLimit::Refuse);
    assert_eq!(world.run(&command), ["InterruptRequested", "InputQueued"]);
    assert_eq!(world.run(&command), ["InputQueued"], "the stop is pending already");
    assert_eq!(world.end(id, settled(Interrupted)), ["TurnEnded", "ThreadAdmitted"]);
    assert_eq!(world.waiting_inputs(id), [2, 3]);

    for kind in [Completed, Errored, Interrupted] {
        let (mut world, id) = World::with_thread_in(kind);
        let command = send_with(operator(), id, Urgency::Interrupt, OnLimit::Refuse);
        assert_eq!(
            world.run(&command),
            ["InputQueued", "ThreadAdmitted"],
            "there is no turn to stop"
        );
    }
}

#[test]
fn input_with_interrupt_keeps_queue_positions() {
    // No turn runs, so there is nothing to stop.
    let (mut world, root) = World::with_slots(1);
    let starting = world.spawn(root);
    let queue = [world.enqueue(root), world.enqueue(root)];
    world.run(&send_with(operator(), queue[0], Urgency::Interrupt, OnLimit::Refuse));
    assert!(world.session.queued().eq(queue));
    world.run(&send_with(operator(), starting, Urgency::Interrupt, OnLimit::Refuse));
    assert_eq!(world.status(starting), PendingInit);
    assert!(world.session.queued().eq(queue));
}

#[test]
fn root_on_runner_takes_input_without_a_slot() {
    let mut world = World::open(settings(), run_root());
    let root = world.root();
    world.begin(root);
    world.end(root, settled(Completed));
    assert_eq!(world.run(&send(operator(), root)), ["InputQueued", "ThreadAdmitted"]);
    assert!(world.session.holding().is_empty());
}

// ---- interrupts ----

#[test]
fn interrupt_in_each_state() {
    for (kind, events, then) in [
        (Queued, &["TurnEnded"][..], Interrupted),
        (AwaitingApproval, &[], AwaitingApproval),
        (PendingInit, &["TurnEnded"], Interrupted),
        (Running, &["InterruptRequested"], Running),
        (Completed, &[], Completed),
        (Errored, &[], Errored),
        (Interrupted, &[], Interrupted),
    ] {
        let (mut world, id) = World::with_thread_in(kind);
        assert_eq!(world.run(&interrupt(operator(), id)), events, "{kind}");
        assert_eq!(world.status(id), then);
        assert_eq!(world.run(&interrupt(operator(), id)), NOTHING, "once is enough");
    }
    let (mut world, id) = World::with_thread_in(Shutdown);
    assert_eq!(world.rejection(&interrupt(operator(), id)), is_closed(id));
}

#[test]
fn interrupt_is_pending_until_the_turn_ends() {
    // The turn was dispatched, and the runner may be starting it at this moment.
    let (mut world, id) = World::with_thread_in(PendingInit);
    world.dispatch(id);
    assert_eq!(world.run(&interrupt(operator(), id)), ["InterruptRequested"]);
    let turn = Turn::new(1);
    world.run(&world.says(id, Report::TurnStarted { turn }));
    let runner = RunnerId::new("r0");
    assert_eq!(world.effect(id), Some(PendingEffect::Interrupt { runner, turn }));
    world.end(id, settled(Interrupted));
    assert_eq!(world.effect(id), None);
    assert_eq!(world.thread(id).interrupt, None);
}

#[test]
fn interrupt_ends_turn_before_dispatch() {
    for kind in [Completed, Errored, Interrupted] {
        let (mut world, id) = World::with_thread_in(kind);
        world.run(&send(operator(), id));
        assert_eq!(world.run(&interrupt(operator(), id)), ["TurnEnded"], "after {kind}");
        assert_eq!(world.status(id), Interrupted);

        // A turn that waits for a slot ends too.
        let (mut world, id) = World::with_thread_in(kind);
        world.spawn(world.root());
        world.run(&send_with(operator(), id, Urgency::Wait, OnLimit::Queue));
        assert_eq!(
            world.run(&interrupt(operator(), id)),
            ["TurnEnded"],
            "queued after {kind}"
        );
        assert_eq!(world.status(id), Interrupted);
    }

    // A turn whose runner was lost after the dispatch ends too.
    let (mut world, id) = World::with_thread_in(PendingInit);
    world.dispatch(id);
    world.lose(id);
    assert_eq!(world.run(&interrupt(operator(), id)), ["TurnEnded"]);
    assert_eq!(world.status(id), Interrupted);
    assert_eq!(world.waiting_inputs(id), [1]);
}

fn only_if(number: u32, target: ThreadId) -> Command {
    let mut command = interrupt(operator(), target);
    if let Command::Interrupt { turn, .. } = &mut command {
        *turn = Some(Turn::new(number));
    }
    command
}

#[test]
fn interrupt_of_another_turn_is_ignored() {
    let (mut world, id) = World::with_thread_in(Running);
    for turn in [0, 2] {
        assert_eq!(world.run(&only_if(turn, id)), NOTHING);
    }
    assert_eq!(world.run(&only_if(1, id)), ["InterruptRequested"]);
    world.end(id, settled(Interrupted));
    assert_eq!(world.run(&only_if(1, id)), NOTHING);

    // A retry of the interrupt does not affect the next turn, dispatched or not.
    world.run(&send(operator(), id));
    assert_eq!(
        world.run(&only_if(1, id)),
        NOTHING,
        "the next turn is not dispatched yet"
    );
    assert_eq!(world.status(id), PendingInit);
    world.begin(id);
    assert_eq!(world.run(&only_if(1, id)), NOTHING);
    assert_eq!(world.run(&only_if(2, id)), ["InterruptRequested"]);
}

#[test]
fn interrupt_cascades_unless_limited_to_target() {
    let (mut world, root) = World::with_slots(4);
    let top = world.spawn_running(root);
    let child = world.spawn_running(top);
    let waiting = world.spawn(top);
    let beside = world.spawn_running(root);
    let only_this = Command::Interrupt {
        caller: operator(),
        target: top,
        turn: None,
        only_this: true,
        reason: String::from("enough"),
    };
    assert_eq!(world.run(&only_this), ["InterruptRequested"]);
    assert_eq!(
        world.run(&interrupt(operator(), top)),
        ["InterruptRequested", "TurnEnded"]
    );
    let interrupted = world.thread(child).interrupt.as_ref().map(|interrupt| interrupt.turn);
    assert_eq!(interrupted, Some(Turn::new(1)));
    assert_eq!(world.status(waiting), Interrupted);
    assert_eq!(world.thread(beside).interrupt, None);
    // The root's client executes the root itself, so only the threads below are stopped.
    assert_eq!(world.run(&interrupt(operator(), root)), ["InterruptRequested"]);
    assert_eq!(world.status(root), Running);
}

#[test]
fn interrupt_before_dispatch_frees_the_slot() {
    let (mut world, root) = World::with_slots(1);
    let first = world.spawn(root);
    let queued = world.enqueue(root);
    assert_eq!(
        world.run(&interrupt(operator(), first)),
        ["TurnEnded", "ThreadAdmitted"]
    );
    assert_eq!((world.status(first), world.status(queued)), (Interrupted, PendingInit));
    // The input waits for the next turn.
    assert_eq!(world.waiting_inputs(first), [1]);
}

// ---- notes ----

#[test]
fn note_is_trimmed_and_cleared_by_blank_text() {
    for kind in StatusKind::ALL {
        let (mut world, id) = World::with_thread_in(kind);
        assert_eq!(world.run(&note(operator(), id, "  on it\n")), ["NoteSet"]);
        assert_eq!(&*world.thread(id).note, "on it");
        assert_eq!(world.run(&note(operator(), id, "on it")), NOTHING);
        assert_eq!(world.run(&note(operator(), id, " \t")), ["NoteSet"]);
        assert_eq!(&*world.thread(id).note, "");
        assert_eq!(world.status(id), kind);
    }
}

// ---- listings ----

#[test]
fn listing_returns_its_scope_in_spawn_order() {
    let (mut world, root) = World::with_slots(9);
    let a = world.spawn(root);
    let b = world.spawn(root);
    let under_a = world.spawn_running(a);
    let closed = world.spawn(a);
    world.close(closed);
    let late = world.spawn(a);

    let everything = Listing {
        around: a,
        visible: root,
        scope: ListScope::All,
        include_closed: false,
        include_self: false,
        statuses: BTreeSet::new(),
    };
    let of = |scope| Listing {
        scope,
        ..everything.clone()
    };
    let with_closed = |scope| Listing {
        include_closed: true,
        ..of(scope)
    };
    let from_root = |scope| Listing {
        around: root,
        ..of(scope)
    };
    let own_only = Listing {
        visible: a,
        include_self: true,
        ..everything.clone()
    };
    let running = Listing {
        statuses: BTreeSet::from([Running]),
        ..everything.clone()
    };
    for (listing, expected) in [
        (of(ListScope::Children), vec![under_a, late]),
        (with_closed(ListScope::Children), vec![under_a, closed, late]),
        (from_root(ListScope::Children), vec![a, b]),
        (from_root(ListScope::Descendants), vec![a, b, under_a, late]),
        (of(ListScope::Descendants), vec![under_a, late]),
        (of(ListScope::All), vec![root, b, under_a, late]),
        (own_only, vec![a, under_a, late]),
        (running, vec![root, under_a]),
    ] {
        let found: Vec<ThreadId> = list(&world.session, &listing).iter().map(|thread| thread.id).collect();
        assert_eq!(found, expected, "{listing:?}");
    }
}

#[test]
fn settled_thread_has_status_and_message() {
    for kind in [Completed, Errored, Interrupted] {
        let (world, id) = World::with_thread_in(kind);
        assert_eq!(world.thread(id).status, Status::Settled(settled(kind).into()));
    }
}
