//! Attempts: each placement on a runner is a new attempt. Also unreachable runners, and threads that lose too many
//! runners.

use std::time::Duration;

use supervisor_core::{
    command::{Command, Report},
    effect::PendingEffect,
    event::{CloseCause, ConditionKind},
    ids::{Generation, RunnerId, ThreadId},
    rules::{
        authority,
        limits::{MAX_RESTARTS_IN_WINDOW, RESTART_WINDOW},
    },
    settings::RestartPolicy,
    status::StatusKind::{self, Completed, Errored, PendingInit, Running, Shutdown},
};

use crate::world::{NOTHING, World, close, dispatching, operator, resume, send, settled, stopped};

fn under(restart_policy: RestartPolicy) -> (World, ThreadId) {
    World::with_settings(|settings| settings.restart_policy = restart_policy)
}

fn unreachable(world: &World, id: ThreadId, active: bool) -> Command {
    world.condition(id, ConditionKind::Unreachable, active)
}

fn is_unreachable(world: &World, id: ThreadId) -> bool {
    world.has_condition(id, ConditionKind::Unreachable)
}

// ---- attempts ----

#[test]
fn attempt_is_held_until_next_attempt_or_close() {
    let (mut world, root) = under(RestartPolicy::OnLost);
    let id = world.spawn(root);
    let runner = RunnerId::new("r0");
    let first = world.thread(id).generation;
    assert!(!world.thread(id).is_held_by(&runner, first), "no runner received it");
    world.begin(id);
    assert!(world.thread(id).is_held_by(&runner, first));
    assert!(!world.thread(id).is_held_by(&RunnerId::new("r1"), first));
    assert!(!world.thread(id).is_held_by(&runner, first.next()));

    world.lose(id);
    assert!(!world.thread(id).is_held_by(&runner, first), "it is void");
    world.begin(id);
    let second = world.thread(id).generation;
    assert!(world.thread(id).is_held_by(&runner, second));

    world.run(&close(operator(), id));
    assert!(
        world.thread(id).is_held_by(&runner, second),
        "its program receives a stop"
    );
    world.run(&Command::FinishClose {
        thread: id,
        forced: true,
    });
    assert_eq!(world.status(id), Shutdown);
    let closed = world.thread(id).generation;
    for generation in [first, second, closed] {
        assert!(!world.thread(id).is_held_by(&runner, generation), "{generation}");
    }
}

#[test]
fn each_placement_increments_the_generation() {
    for (policy, running) in [
        (RestartPolicy::Never, false),
        (RestartPolicy::OnLost, false),
        (RestartPolicy::OnLost, true),
    ] {
        for next in ["r0", "r1"] {
            let (mut world, root) = under(policy);
            let id = world.spawn(root);
            world.dispatch(id);
            let turn = world.thread(id).turn.number();
            if running {
                world.report(id, Report::TurnStarted { turn });
            }
            let (old_token, late) = (world.caller(id), world.says(id, Report::TurnStarted { turn }));
            world.lose(id);
            assert_eq!(world.lose(id), NOTHING, "no runner holds it, so none loses it");

            let dispatch = world.dispatch_to(id, &RunnerId::new(next));
            world.run(&dispatching(dispatch));
            let thread = world.thread(id);
            assert_eq!(thread.generation, Generation::new(2), "{policy:?}, running: {running}");
            assert_eq!(thread.holder(), Some(&RunnerId::new(next)));
            assert_eq!(world.run(&late), NOTHING, "a report of the old attempt");
            assert!(authority::fresh(&world.session, &old_token).is_err());
        }
    }
}

#[test]
fn released_program_increments_the_generation() {
    for next in ["r0", "r1"] {
        let (mut world, id) = World::with_thread_in(Completed);
        world.run(&send(operator(), id));
        // The thread's runner stopped the idle program in the meantime.
        let mut dispatch = world.dispatch_to(id, &RunnerId::new(next));
        dispatch.generation = world.thread(id).next_attempt();
        assert_eq!(world.run(&dispatching(dispatch)), ["ThreadPlaced", "TurnDispatched"]);
        assert_eq!(world.thread(id).generation, Generation::new(2));
    }
}

#[test]
fn new_runner_with_same_name_receives_no_stop() {
    let (mut world, root) = under(RestartPolicy::OnLost);
    let id = world.spawn_running(root);
    world.lose(id);
    world.run(&close(operator(), id));
    assert_eq!(world.effect(id), Some(PendingEffect::Close));
    world.wind_down();
    world.run(&resume(operator(), id));
    world.run(&send(operator(), id));
    assert_eq!(world.effect(id), Some(PendingEffect::Turn { last_runner: None }));
}

// ---- restarts ----

/// Loses the thread's runner and restarts the thread, as often as given. Each restart must succeed.
fn restart(world: &mut World, id: ThreadId, times: usize) {
    for _ in 0..times {
        assert_eq!(world.lose(id), ["ThreadPlaced"]);
        world.begin(id);
    }
}

#[test]
fn restart_intensity_closes_the_subtree() {
    let (mut world, root) = under(RestartPolicy::OnLost);
    let id = world.spawn_running(root);
    let child = world.spawn_running(id);
    restart(&mut world, id, MAX_RESTARTS_IN_WINDOW);
    assert_eq!(world.lose(id), ["CloseRequested"]);
    let fence = world.thread(id).fence.clone().unwrap();
    assert_eq!((fence.cause, fence.status_before), (CloseCause::Intensity, Running));
    assert_eq!(
        fence.reason,
        "restart intensity exceeded: 3 restarts within 600 s, and then runner r0 was lost"
    );
    assert!(world.session.is_closing(child));
    world.wind_down();
    for id in [id, child] {
        assert_eq!(world.status(id), Shutdown);
    }
}

#[test]
fn old_restarts_do_not_count() {
    let (mut world, root) = under(RestartPolicy::OnLost);
    let id = world.spawn_running(root);
    restart(&mut world, id, MAX_RESTARTS_IN_WINDOW);
    world.pass(RESTART_WINDOW);
    restart(&mut world, id, MAX_RESTARTS_IN_WINDOW);
    world.pass(RESTART_WINDOW / 2);
    assert_eq!(world.lose(id), ["CloseRequested"]);
}

#[test]
fn only_started_turns_count_as_restarts() {
    let (mut world, root) = under(RestartPolicy::OnLost);
    let id = world.spawn(root);
    for _ in 0..3 * MAX_RESTARTS_IN_WINDOW {
        world.dispatch(id);
        assert_eq!(world.lose(id), ["ThreadPlaced"]);
        assert!(!world.thread(id).repeats_turn);
        world.pass(Duration::from_secs(1));
    }
    world.begin(id);
    restart(&mut world, id, MAX_RESTARTS_IN_WINDOW);
}

#[test]
fn turn_repeats_lost_turn_until_it_starts_or_ends() {
    let (mut world, root) = under(RestartPolicy::OnLost);
    let id = world.spawn_running(root);
    world.lose(id);
    world.dispatch(id);
    assert!(world.thread(id).repeats_turn);
    world.lose(id);
    assert!(world.thread(id).repeats_turn, "the second attempt did not start");
    world.begin(id);
    assert!(!world.thread(id).repeats_turn);
    world.lose(id);
    world.dispatch(id);
    world.end(id, settled(Errored));
    assert!(!world.thread(id).repeats_turn, "its inputs are consumed");
}

// ---- unreachable runners ----

#[test]
fn only_dispatched_turns_can_be_unreachable() {
    for kind in StatusKind::ALL {
        let (mut world, id) = World::with_thread_in(kind);
        let expected: &[&str] = if kind == Running { &["ConditionChanged"] } else { &[] };
        let command = unreachable(&world, id, true);
        assert_eq!(world.run(&command), expected, "{kind}");
        assert_eq!(world.run(&command), NOTHING, "{kind}: it is known");
        let command = unreachable(&world, id, false);
        assert_eq!(world.run(&command), expected, "{kind}");
        assert!(!is_unreachable(&world, id));
    }
    let (mut world, id) = World::with_thread_in(PendingInit);
    world.dispatch(id);
    let command = unreachable(&world, id, true);
    assert_eq!(world.run(&command), ["ConditionChanged"], "it was dispatched");

    let (mut world, _) = World::with_thread_in(Running);
    let command = unreachable(&world, world.root(), true);
    assert_eq!(world.run(&command), NOTHING, "its client executes it");
}

#[test]
fn unreachable_ends_with_its_attempt_or_turn() {
    let unreachable_under = |policy| {
        let (mut world, root) = under(policy);
        let id = world.spawn_running(root);
        let command = unreachable(&world, id, true);
        world.run(&command);
        assert!(is_unreachable(&world, id));
        (world, id)
    };
    let (mut world, id) = unreachable_under(RestartPolicy::OnLost);
    let late = unreachable(&world, id, true);
    world.lose(id);
    assert_eq!((world.status(id), is_unreachable(&world, id)), (PendingInit, false));
    world.begin(id);
    assert_eq!(world.run(&late), NOTHING, "of an earlier attempt");

    let (mut world, id) = unreachable_under(RestartPolicy::Never);
    world.lose(id);
    assert_eq!((world.status(id), is_unreachable(&world, id)), (Errored, false));

    let (mut world, id) = unreachable_under(RestartPolicy::Never);
    world.end(id, settled(Completed));
    assert!(!is_unreachable(&world, id));

    let (mut world, id) = unreachable_under(RestartPolicy::Never);
    world.run(&close(operator(), id));
    world.report(id, stopped());
    assert_eq!((world.status(id), is_unreachable(&world, id)), (Shutdown, false));
}

#[test]
fn derived_conditions_are_not_recorded() {
    for kind in [ConditionKind::Closing, ConditionKind::NoRunner] {
        let (mut world, id) = World::with_thread_in(Running);
        assert_eq!(world.run(&world.condition(id, kind, true)), NOTHING, "{kind:?}");
    }
}
