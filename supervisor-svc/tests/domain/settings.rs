//! Session settings that can change: limits, pause, mode, and automatic orchestration.

use supervisor_core::{
    command::{Command, SettingsUpdate},
    event::{Event, SessionEvent, SettingsChange, Spawned},
    ids::ThreadId,
    rules::orchestration::{due, excerpt},
    settings::{Budget, EdgeManagement, Limits, LimitsChange, Mode, Orchestration, WakePolicy},
    status::StatusKind::{Completed, Errored, Interrupted, PendingInit, Queued, Running},
};

use crate::{
    budgets::{give, turns},
    world::{NOTHING, World, changed, completed, interrupt, operator, role, send, settled, text},
};

fn update(change: SettingsChange) -> Command {
    Command::UpdateSession(Box::new(SettingsUpdate {
        change,
        ..SettingsUpdate::default()
    }))
}

fn bound(change: impl FnOnce(&mut LimitsChange)) -> Command {
    let mut limits = LimitsChange::default();
    change(&mut limits);
    Command::UpdateSession(Box::new(SettingsUpdate {
        limits,
        ..SettingsUpdate::default()
    }))
}

fn slots(max_threads: u32) -> Command {
    bound(|limits| limits.max_threads = Some(max_threads))
}

fn pause(paused: bool) -> Command {
    update(changed(|change| change.paused = Some(paused)))
}

fn orchestrate(orchestration: Orchestration) -> Command {
    update(changed(|change| change.orchestration = Some(orchestration)))
}

// ---- changing ----

#[test]
fn unchanged_settings_record_no_event() {
    let (mut world, _) = World::with_slots(2);
    let present = SettingsChange {
        mode: Some(Mode::Implementation),
        budget: Some(Budget::default()),
        paused: Some(false),
        orchestration: Some(Orchestration::Interactive),
        edge_management: Some(EdgeManagement::All),
        orchestrators: Some(Vec::new()),
        webhooks: Some(Vec::new()),
        limits: None,
    };
    assert_eq!(world.run(&update(present.clone())), NOTHING);
    assert_eq!(world.run(&slots(2)), NOTHING);

    let planning = SettingsChange {
        mode: Some(Mode::Planning),
        ..present
    };
    assert_eq!(world.run(&update(planning)), ["SessionUpdated"]);
    let Event::Session(SessionEvent::Updated(recorded)) = &world.log.last().unwrap().event else {
        panic!("it is the last event");
    };
    assert_eq!(**recorded, changed(|change| change.mode = Some(Mode::Planning)));
    assert_eq!(world.session.settings.mode, Mode::Planning);
}

#[test]
fn limits_change_one_by_one() {
    let (mut world, _) = World::with_slots(2);
    world.run(&bound(|limits| limits.max_depth = Some(5)));
    let expected = Limits {
        max_depth: 5,
        max_threads: 2,
        ..Limits::default()
    };
    assert_eq!(world.session.settings.limits, expected);
}

#[test]
fn changed_slots_admit_queue_and_stop_no_thread() {
    let (mut world, root) = World::with_slots(1);
    let first = world.spawn_running(root);
    let queue = [world.enqueue(root), world.enqueue(root)];
    assert_eq!(
        world.run(&slots(3)),
        ["SessionUpdated", "ThreadAdmitted", "ThreadAdmitted"]
    );
    assert!(queue.iter().all(|id| world.status(*id) == PendingInit));

    // Three threads are active, and two are allowed. A thread whose turn ends releases its slot, even if it has input.
    world.lawful = false;
    assert_eq!(world.run(&slots(2)), ["SessionUpdated"]);
    world.run(&send(operator(), first));
    assert_eq!(world.end(first, settled(Completed)), ["TurnEnded"]);
    world.begin(queue[0]);
    assert_eq!(world.end(queue[0], settled(Completed)), ["TurnEnded", "ThreadAdmitted"]);
    assert_eq!(world.status(first), PendingInit);
}

#[test]
fn closed_session_rejects_changes() {
    let (mut world, root) = World::with_slots(1);
    world.close(root);
    assert_eq!(world.rejection(&pause(true)), "the session is closed");
}

// ---- pause ----

#[test]
fn unpausing_starts_pending_turns() {
    let (mut world, root) = World::with_slots(2);
    let runs = world.spawn_running(root);
    world.run(&send(operator(), runs));
    let starts = world.spawn(root);
    let waits = world.enqueue(root);
    world.run(&pause(true));
    assert_eq!(
        world.end(runs, settled(Completed)),
        ["TurnEnded"],
        "running turns finish"
    );
    assert!(!world.advance(starts), "no turn is dispatched");
    assert_eq!((world.status(runs), world.status(waits)), (Completed, Queued));

    // The thread whose turn ended with waiting input continues, and is admitted before the queue.
    assert_eq!(world.run(&pause(false)), ["SessionUpdated", "ThreadAdmitted"]);
    assert_eq!((world.status(runs), world.status(waits)), (PendingInit, Queued));
    assert!(world.advance(starts));
}

#[test]
fn unpausing_does_not_restart_interrupted_thread() {
    let (mut world, root) = World::with_slots(1);
    world.spawn(root);
    let waits = world.enqueue(root);
    world.run(&interrupt(operator(), waits));
    world.run(&pause(true));
    assert_eq!(world.run(&pause(false)), ["SessionUpdated"]);
    assert_eq!(world.status(waits), Interrupted);
}

// ---- automatic orchestration ----

fn auto_turn(thread: ThreadId) -> Command {
    Command::AutoTurn {
        thread,
        input: text("go on"),
    }
}

/// Returns a session in AUTO with an orchestrator whose turn runs.
fn orchestrated(spawned: Spawned) -> (World, ThreadId) {
    let (mut world, root) = World::with_settings(|settings| settings.orchestration = Orchestration::Auto);
    let id = world.spawn_with(root, |spawn| {
        spawn.spawned = Spawned {
            parent: Some(root),
            input: Some(text("the goal")),
            ..spawned
        };
    });
    world.begin(id);
    (world, id)
}

#[test]
fn orchestrator_gets_one_turn_per_completed_turn() {
    let (mut world, id) = orchestrated(role("orchestrator"));
    assert!(due(&world.session).is_empty(), "its turn runs");
    for _ in 0..3 {
        world.end(id, completed(Some("one step further")));
        assert_eq!(due(&world.session), [id]);
        assert_eq!(World::replay(&world.log), world.session, "a restart keeps the state");
        assert_eq!(world.run(&auto_turn(id)), ["InputQueued", "ThreadAdmitted"]);
        assert_eq!(world.run(&auto_turn(id)), NOTHING, "once is enough");
        world.begin(id);
    }
}

#[test]
fn auto_loop_ends_at_mark_or_incomplete_turn() {
    for (outcome, goes_on) in [
        (completed(Some("done\nTROUPE_COMPLETE\n")), false),
        (completed(Some("  TROUPE_STALLED  \nI know no way")), false),
        (completed(Some("I shall say TROUPE_COMPLETE when it is done")), true),
        (completed(Some("")), true),
        (settled(Errored), false),
        (settled(Interrupted), false),
    ] {
        let (mut world, id) = orchestrated(role("orchestrator"));
        world.end(id, outcome.clone());
        assert_eq!(due(&world.session).contains(&id), goes_on, "{outcome:?}");
        assert_eq!(world.run(&auto_turn(id)).is_empty(), !goes_on);
    }
}

#[test]
fn excerpt_keeps_mark_from_end_of_text() {
    let long = format!("{}\nTROUPE_COMPLETE", "x".repeat(100));
    assert_eq!(excerpt(&long, 50), format!("{}\nTROUPE_COMPLETE", "x".repeat(34)));
    assert_eq!(excerpt(&"x".repeat(100), 50), "x".repeat(50));
    assert_eq!(excerpt("TROUPE_COMPLETE\nand more", 15), "TROUPE_COMPLETE");
}

#[test]
fn only_orchestrators_loop_and_only_in_auto() {
    let (mut world, id) = orchestrated(role("worker"));
    world.end(id, completed(Some("done")));
    assert!(due(&world.session).is_empty());

    let (mut world, id) = orchestrated(role("orchestrator"));
    world.run(&orchestrate(Orchestration::Interactive));
    world.end(id, completed(Some("more to do")));
    assert!(due(&world.session).is_empty());
    assert_eq!(world.run(&auto_turn(id)), NOTHING);
    world.run(&orchestrate(Orchestration::Auto));
    assert_eq!(due(&world.session), [id]);
}

#[test]
fn auto_loop_waits_for_descendants_and_mail() {
    // A descendant is running or waiting.
    let (mut world, id) = orchestrated(role("orchestrator"));
    let helper = world.spawn_running(id);
    world.end(id, completed(Some("I wait for the helper")));
    assert_eq!(world.status(helper), Running);
    assert!(due(&world.session).is_empty());
    world.end(helper, settled(Completed));
    assert!(!world.thread(id).mail.is_empty());
    assert_eq!(due(&world.session), [id], "the next turn shows how the helper settled");

    // The orchestrator already has mail that will wake it.
    let (mut world, id) = orchestrated(Spawned {
        wake_policy: WakePolicy::OnIdle,
        ..role("orchestrator")
    });
    let helper = world.spawn_running(id);
    world.end(helper, settled(Completed));
    world.end(id, completed(Some("let me see")));
    assert!(due(&world.session).is_empty());
}

#[test]
fn auto_loop_stops_at_pause_budget_and_close() {
    let (mut world, id) = orchestrated(role("orchestrator"));
    world.end(id, completed(Some("more to do")));
    world.run(&pause(true));
    assert!(due(&world.session).is_empty());
    world.run(&pause(false));
    world.run(&give(operator(), id, turns(1)));
    assert!(due(&world.session).is_empty(), "its budget is spent");
    world.run(&give(operator(), id, Budget::default()));
    world.run(&slots(1));
    world.spawn(world.root());
    assert!(due(&world.session).is_empty(), "no slot is free");
}
