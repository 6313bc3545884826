//! Waits do not deadlock the queue: a thread that waits for a queued descendant lends its slot until the wait is over.

use supervisor_core::{
    ids::ThreadId,
    rules::limits::{active, has_free_slot},
    settings::RestartPolicy,
    status::StatusKind::{Completed, PendingInit, Queued, Running},
};

use crate::world::{World, operator, send, settled};

/// Returns a session with this number of slots. Laws are not checked, because more threads than slots may be active for
/// a while.
fn world(max_threads: u32) -> World {
    let (mut world, _) = World::with_settings(|settings| {
        settings.limits.max_threads = max_threads;
        settings.limits.max_depth = 9;
        settings.restart_policy = RestartPolicy::OnLost;
    });
    world.lawful = false;
    world
}

/// Returns a parent that holds the only slot, and its queued child.
fn parent_and_queued_child() -> (World, ThreadId, ThreadId) {
    let mut world = world(1);
    let parent = world.spawn_running(world.root());
    let child = world.enqueue(parent);
    (world, parent, child)
}

#[test]
fn waiting_parent_lends_its_slot() {
    let (mut world, parent, child) = parent_and_queued_child();
    let wait = world.wait(parent, &[child]);
    assert_eq!((world.status(parent), world.status(child)), (Running, PendingInit));
    assert_eq!(active(&world.session), 1, "the parent does not count");
    assert!(!has_free_slot(&world.session), "the child has the slot");
    world.begin(child);
    world.end(child, settled(Completed));
    world.end_wait(wait);
    assert_eq!(active(&world.session), 1);
}

#[test]
fn chain_of_waits_does_not_deadlock() {
    let (mut world, parent, child) = parent_and_queued_child();
    world.wait(parent, &[child]);
    world.begin(child);
    let grandchild = world.enqueue(child);
    world.wait(child, &[grandchild]);
    assert_eq!(world.status(grandchild), PendingInit);
    assert_eq!(active(&world.session), 1);
}

#[test]
fn earlier_queued_threads_precede_the_child() {
    let mut world = world(1);
    let parent = world.spawn_running(world.root());
    let first = world.enqueue(world.root());
    let child = world.enqueue(parent);
    world.wait(parent, &[child]);
    assert_eq!((world.status(first), world.status(child)), (PendingInit, Queued));
    world.begin(first);
    world.end(first, settled(Completed));
    assert_eq!(world.status(child), PendingInit);
}

#[test]
fn ended_wait_admits_no_thread_above_the_limit() {
    let (mut world, parent, child) = parent_and_queued_child();
    let wait = world.wait(parent, &[child]);
    world.begin(child);
    let next = world.enqueue(world.root());
    world.end_wait(wait);
    assert_eq!(
        active(&world.session),
        2,
        "the parent counts again, and its child still runs"
    );
    world.end(child, settled(Completed));
    assert_eq!((active(&world.session), world.status(next)), (1, Queued));
    world.end(parent, settled(Completed));
    assert_eq!(world.status(next), PendingInit);
}

#[test]
fn wait_without_queued_descendant_lends_no_slot() {
    // A wait for a child that has a slot, even when the child continues with input that arrived in the meantime.
    let mut world = world(2);
    let parent = world.spawn_running(world.root());
    let child = world.spawn_running(parent);
    let queued = world.enqueue(world.root());
    world.wait(parent, &[child]);
    world.run(&send(operator(), child));
    assert_eq!(world.end(child, settled(Completed)), ["TurnEnded", "ThreadAdmitted"]);
    assert_eq!((active(&world.session), world.status(queued)), (2, Queued));
    // A wait for the thread itself, and for the descendant of another thread.
    world.wait(parent, &[parent, queued]);
    assert_eq!(world.status(queued), Queued);
}

#[test]
fn wait_of_earlier_attempt_lends_no_slot() {
    let (mut world, parent, child) = parent_and_queued_child();
    world.wait(parent, &[child]);
    world.lose(parent);
    assert_eq!(active(&world.session), 2, "the waiting program has ended");
}

#[test]
fn waits_do_not_change_the_state() {
    let mut world = world(1);
    let parent = world.spawn_running(world.root());
    let before = world.session.clone();
    let child = world.enqueue(parent);
    let enqueued = world.session.clone();
    world.wait(parent, &[child]);
    assert!(
        World::replay(&world.log) == world.session,
        "the log alone gives the same"
    );
    assert!(before != enqueued);
    let mut waiting = enqueued.clone();
    waiting.waits = world.session.waits.clone();
    assert!(waiting == enqueued);
    assert_eq!(active(&World::replay(&world.log)), 2, "no wait survives a restart");
}
