//! Closing of threads: the fence, the order, pending effects, and the end of the session.

use std::time::Duration;

use supervisor_core::{
    command::{Command, Report},
    effect::{PendingEffect, pending_effect},
    event::{CloseCause, Event, ThreadEvent},
    ids::{Generation, RunnerId, ThreadId, Turn},
    rules::cascade::{next_ready, ready_leaves},
    settings::{ClosePolicy, OnLimit, Urgency},
    status::{
        Settled, Status,
        StatusKind::{self, Completed, PendingInit, Queued, Shutdown},
    },
};

use crate::world::{
    NOTHING, World, close, dispatching, is_closed, is_closing, name, operator, resume, send, send_with, settled,
    spawning, stopped,
};

/// Returns a session with the running threads `top`, its children `older` and `newer`, and its sibling `beside`.
fn tree() -> (World, [ThreadId; 4]) {
    let (mut world, root) = World::with_slots(9);
    let top = world.spawn_running(root);
    let older = world.spawn_running(top);
    let beside = world.spawn_running(root);
    let newer = world.spawn_running(top);
    (world, [top, older, newer, beside])
}

/// Returns the closed threads in the order of the log.
fn closings(world: &World) -> Vec<ThreadId> {
    let closed = |event: &Event| match event {
        Event::Thread(id, ThreadEvent::Closed { .. }) => Some(*id),
        _ => None,
    };
    world
        .log
        .iter()
        .filter_map(|recorded| closed(&recorded.event))
        .collect()
}

#[test]
fn close_is_one_event_with_the_previous_status() {
    for kind in StatusKind::ALL {
        let (mut world, id) = World::with_thread_in(kind);
        let events = world.run(&close(operator(), id));
        if kind == Shutdown {
            assert_eq!(events, NOTHING);
            continue;
        }
        let (fence, moot) = events.split_first().unwrap();
        assert_eq!(*fence, "CloseRequested", "{kind}");
        if kind == StatusKind::AwaitingApproval {
            assert_eq!(moot, ["ApprovalResolved"], "there is nothing left to approve");
        } else {
            assert_eq!(moot, NOTHING, "{kind}");
        }
        let fence = world.session.fence_over(id).unwrap();
        assert_eq!((fence.status_before, fence.cause), (kind, CloseCause::Close));
        assert_eq!(fence.deadline.since(world.session.updated), Duration::from_secs(30));
        assert_eq!(world.status(id), kind, "it is closed later");
    }
}

#[test]
fn closing_again_changes_nothing() {
    let (mut world, [top, older, _, _]) = tree();
    assert_eq!(world.run(&close(operator(), top)), ["CloseRequested"]);
    for id in [top, older] {
        assert_eq!(
            world.run(&close(operator(), id)),
            NOTHING,
            "the fence over it is enough"
        );
    }
    world.wind_down();
    for id in [top, older] {
        assert_eq!(world.run(&close(operator(), id)), NOTHING);
    }
}

#[test]
fn close_above_closing_subtree_closes_both() {
    let (mut world, [top, older, newer, _]) = tree();
    world.run(&close(operator(), older));
    assert_eq!(world.run(&close(operator(), top)), ["CloseRequested"]);
    world.wind_down();
    for id in [top, older, newer] {
        assert_eq!(world.status(id), Shutdown);
    }
}

#[test]
fn fence_prevents_starts() {
    let (mut world, [top, older, newer, beside]) = tree();
    // Work in progress at the fence: a dispatched turn, an undispatched turn, a closed thread.
    let root = world.root();
    let handed_out = world.spawn(top);
    world.dispatch(handed_out);
    let starting = world.spawn(top);
    world.close(newer);
    let dispatch = world.dispatch_to(starting, &RunnerId::new("r0"));
    world.run(&close(operator(), top));

    for id in [top, older, handed_out] {
        let expected = is_closing(id);
        let spawn = world.wanted(id);
        assert_eq!(world.rejection(&spawning(spawn)), expected);
        assert_eq!(world.rejection(&send(operator(), id)), expected);
    }
    assert_eq!(world.rejection(&resume(operator(), newer)), is_closing(top));
    assert_eq!(world.run(&dispatching(dispatch)), NOTHING);
    let turn = Turn::new(1);
    assert_eq!(world.report(handed_out, Report::TurnStarted { turn }), NOTHING);
    assert_eq!(
        world.end(older, settled(Completed)),
        ["TurnEnded"],
        "running turns may end"
    );

    // The rest of the session continues.
    assert_eq!(world.run(&send(operator(), beside)), ["InputQueued"]);
    world.spawn(root);
}

#[test]
fn earlier_input_starts_no_turn_under_a_fence() {
    let (mut world, [top, _, _, _]) = tree();
    world.run(&send(operator(), top));
    world.run(&close(operator(), top));
    assert_eq!(world.end(top, settled(Completed)), ["TurnEnded"]);
}

#[test]
fn queued_thread_under_fence_is_not_admitted() {
    let (mut world, root) = World::with_slots(2);
    let top = world.spawn_running(root);
    let beside = world.spawn_running(root);
    let fenced = world.enqueue(top);
    let waiting = world.enqueue(root);
    world.run(&close(operator(), top));
    assert_eq!(world.end(beside, settled(Completed)), ["TurnEnded", "ThreadAdmitted"]);
    assert_eq!((world.status(fenced), world.status(waiting)), (Queued, PendingInit));
    world.wind_down();
    assert_eq!(world.status(fenced), Shutdown);
}

#[test]
fn fenced_queued_thread_does_not_reserve_a_slot() {
    let (mut world, root) = World::with_slots(2);
    // The top waits for a slot. It cannot be closed at once, because its child runs.
    let top = world.spawn_running(root);
    world.spawn_running(top);
    world.end(top, settled(Completed));
    let beside = world.spawn_running(root);
    world.run(&send_with(operator(), top, Urgency::Wait, OnLimit::Queue));
    assert_eq!(world.status(top), Queued);
    world.run(&close(operator(), top));
    world.end(beside, settled(Completed));
    let newcomer = world.spawn(root);
    assert_eq!(world.status(newcomer), PendingInit);
}

#[test]
fn leaves_close_before_parents_newest_first() {
    let (mut world, [top, older, newer, beside]) = tree();
    let root = world.root();
    assert_eq!(ready_leaves(&world.session, root), [newer, beside, older]);
    world.run(&close(operator(), top));
    assert_eq!(ready_leaves(&world.session, top), [newer, older]);
    assert_eq!(world.effect(top), None, "its children are open");

    world.run(&world.stop(newer).unwrap());
    assert_eq!(next_ready(&world.session, newer), None, "the other child is open");
    world.run(&world.stop(older).unwrap());
    assert_eq!(next_ready(&world.session, older), Some(top));
    world.run(&world.stop(top).unwrap());
    assert_eq!(next_ready(&world.session, top), None, "the root is not fenced");
    assert_eq!(closings(&world), [newer, older, top]);
    assert_eq!(world.session.fenced().count(), 0);
}

#[test]
fn thread_with_open_children_cannot_finish_closing() {
    let (mut world, [top, _, _, _]) = tree();
    world.run(&close(operator(), top));
    for forced in [false, true] {
        assert_eq!(world.run(&Command::FinishClose { thread: top, forced }), NOTHING);
    }
    assert_eq!(world.report(top, stopped()), NOTHING);
    assert_eq!(world.lose(top), NOTHING);
}

#[test]
fn thread_without_fence_cannot_finish_closing() {
    for kind in StatusKind::ALL {
        let (mut world, id) = World::with_thread_in(kind);
        for forced in [false, true] {
            assert_eq!(world.run(&Command::FinishClose { thread: id, forced }), NOTHING);
        }
    }
}

#[test]
fn pending_effect_in_each_state() {
    let runner = RunnerId::new("r0");
    let closes = Some(PendingEffect::Close);
    let stops = Some(stop(&runner, ClosePolicy::Terminate));
    for (kind, open, fenced) in [
        (Queued, &None, &closes),
        (StatusKind::AwaitingApproval, &None, &closes),
        (PendingInit, &Some(PendingEffect::Turn { last_runner: None }), &closes),
        (StatusKind::Running, &None, &stops),
        (Completed, &None, &stops),
        (StatusKind::Errored, &None, &stops),
        (StatusKind::Interrupted, &None, &stops),
        (Shutdown, &None, &None),
    ] {
        let (mut world, id) = World::with_thread_in(kind);
        assert_eq!(&world.effect(id), open, "{kind}");
        world.pause(true);
        assert_eq!(world.effect(id), None, "paused, {kind}");
        world.run(&close(operator(), id));
        assert_eq!(&world.effect(id), fenced, "fenced, {kind}");
    }

    let (mut world, id) = World::with_thread_in(PendingInit);
    world.dispatch(id);
    let start = PendingEffect::Start {
        runner: runner.clone(),
        turn: Turn::new(1),
    };
    assert_eq!(world.effect(id), Some(start.clone()));
    world.pause(true);
    assert_eq!(world.effect(id), Some(start), "dispatched turns continue");
    world.run(&close_with(id, Some(ClosePolicy::Kill)));
    assert_eq!(world.effect(id), Some(stop(&runner, ClosePolicy::Kill)));
}

fn close_with(target: ThreadId, policy: Option<ClosePolicy>) -> Command {
    let mut command = close(operator(), target);
    if let Command::Close { policy: present, .. } = &mut command {
        *present = policy;
    }
    command
}

fn stop(runner: &RunnerId, policy: ClosePolicy) -> PendingEffect {
    PendingEffect::Stop {
        runner: runner.clone(),
        generation: Generation::new(1),
        policy,
    }
}

#[test]
fn closed_event_has_forced_flag_and_reason() {
    for (command, expected) in [
        ("stopped", false),
        ("finished", false),
        ("forced", true),
        ("lost", true),
    ] {
        let (mut world, id) = World::with_thread_in(StatusKind::Running);
        world.run(&close(operator(), id));
        let events = match command {
            "stopped" => world.report(id, stopped()),
            "lost" => world.lose(id),
            other => world.run(&Command::FinishClose {
                thread: id,
                forced: other == "forced",
            }),
        };
        assert_eq!(events, ["ThreadClosed"], "{command}");
        let Event::Thread(_, ThreadEvent::Closed { forced, reason }) = &world.log.last().unwrap().event else {
            panic!("another event");
        };
        assert_eq!((*forced, reason.as_str()), (expected, "no longer needed"));
        let reason = String::from("no longer needed");
        let before = Some(Settled::Interrupted { reason: reason.clone() }.into());
        assert_eq!(world.thread(id).status, Status::Shutdown { reason, before });
        assert_eq!(world.thread(id).generation, Generation::new(2));
    }
}

#[test]
fn session_closes_with_its_root() {
    let (mut world, [_, _, _, beside]) = tree();
    let root = world.root();
    world.close(root);
    let names: Vec<_> = world.log.iter().map(|recorded| name(&recorded.event)).collect();
    assert_eq!(names.last(), Some(&"SessionClosed"));
    assert_eq!(names.iter().filter(|name| **name == "SessionClosed").count(), 1);
    assert_eq!(closings(&world).last(), Some(&root));
    assert_eq!(world.session.open_count(), 0);

    let spawn = world.wanted(root);
    for command in [spawning(spawn), send(operator(), root)] {
        assert_eq!(world.rejection(&command), is_closed(root));
    }
    assert_eq!(world.rejection(&resume(operator(), root)), "the session is closed");
    assert_eq!(world.rejection(&resume(operator(), beside)), is_closed(root));
    assert_eq!(world.run(&close(operator(), root)), NOTHING);
    assert_eq!(World::replay(&world.log), world.session);
}

#[test]
fn strictest_close_policy_on_the_path_applies() {
    use ClosePolicy::{FinishTurn, Kill, Terminate};
    for (own, below, above, expected) in [
        (FinishTurn, None, None, FinishTurn),
        (Kill, None, None, Kill),
        (Kill, Some(FinishTurn), None, FinishTurn),
        (FinishTurn, None, Some(Terminate), Terminate),
        (Terminate, Some(FinishTurn), Some(Terminate), Terminate),
        (Terminate, Some(FinishTurn), Some(Kill), Kill),
        (Terminate, Some(Kill), Some(FinishTurn), Kill),
    ] {
        let (mut world, root) = World::with_slots(9);
        let top = world.spawn_running(root);
        let id = world.spawn_with(top, |spawn| spawn.spawned.close_policy = own);
        world.begin(id);
        world.run(&close_with(id, below));
        world.run(&close_with(top, above));
        let wanted = Some(stop(&RunnerId::new("r0"), expected));
        assert_eq!(
            world.effect(id),
            wanted,
            "{own:?}, then {below:?}, then {above:?} above"
        );
        assert_eq!(
            pending_effect(&World::replay(&world.log), id),
            wanted,
            "after a restart"
        );
    }
}
