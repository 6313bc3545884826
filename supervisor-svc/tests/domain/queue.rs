//! The queue for slots: threads are admitted in order, and no new thread overtakes the queue.

use supervisor_core::{
    command::Spawn,
    event::{Event, SessionEvent, ThreadEvent},
    ids::ThreadId,
    rules::limits::{admissible, has_free_slot},
    settings::{Limits, OnLimit, Urgency},
    status::StatusKind::{Completed, PendingInit, Queued},
};

use crate::world::{World, changed, close, operator, send, send_with, settled, spawning};

/// Returns the admitted threads in the order of the log.
fn admitted(world: &World) -> Vec<ThreadId> {
    let admitted = |event: &Event| match event {
        Event::Thread(id, ThreadEvent::Admitted) => Some(*id),
        _ => None,
    };
    world
        .log
        .iter()
        .filter_map(|recorded| admitted(&recorded.event))
        .collect()
}

#[test]
fn queued_threads_are_admitted_in_order() {
    let (mut world, root) = World::with_slots(1);
    let mut present = world.spawn(root);
    let queue: Vec<ThreadId> = (0..4).map(|_| world.enqueue(root)).collect();
    for (position, id) in (1..).zip(&queue) {
        assert_eq!(world.session.queue_position(*id), Some(position));
    }
    for next in &queue {
        world.begin(present);
        assert_eq!(world.end(present, settled(Completed)), ["TurnEnded", "ThreadAdmitted"]);
        assert_eq!(world.session.queue_position(*next), None);
        present = *next;
    }
    assert_eq!(admitted(&world), queue);
}

#[test]
fn settled_thread_queues_behind_waiting_threads() {
    let (mut world, root) = World::with_slots(1);
    let settled_one = world.spawn_running(root);
    world.end(settled_one, settled(Completed));
    let present = world.spawn_running(root);
    let waiting = world.enqueue(root);
    world.run(&send_with(operator(), settled_one, Urgency::Wait, OnLimit::Queue));
    assert!(world.session.queued().eq([waiting, settled_one]));
    world.end(present, settled(Completed));
    assert_eq!(admitted(&world), [waiting]);
}

/// Returns a session with a free slot and a thread that waits for one, before the automatic admission.
fn about_to_admit() -> (World, ThreadId, ThreadId) {
    let (mut world, root) = World::with_slots(1);
    let done = world.spawn_running(root);
    world.end(done, settled(Completed));
    world.spawn(root);
    let waiting = world.enqueue(root);
    let limits = Limits {
        max_threads: 2,
        ..Limits::default()
    };
    let change = changed(|change| change.limits = Some(limits));
    world.append(Event::Session(SessionEvent::Updated(Box::new(change))));
    assert_eq!(admissible(&world.session), [waiting]);
    (world, waiting, done)
}

#[test]
fn new_thread_does_not_overtake_queue() {
    let (world, ..) = about_to_admit();
    assert!(!has_free_slot(&world.session));

    for newcomer in [true, false] {
        let (mut world, waiting, done) = about_to_admit();
        world.lawful = false;
        let spawn = world.wanted(world.root());
        let refused = if newcomer {
            spawning(spawn.clone())
        } else {
            send(operator(), done)
        };
        assert_eq!(world.rejection(&refused), "agent thread limit reached (max 2)");
        let queued = if newcomer {
            spawning(Spawn {
                on_limit: OnLimit::Queue,
                ..spawn
            })
        } else {
            send_with(operator(), done, Urgency::Wait, OnLimit::Queue)
        };
        world.run(&queued);
        assert_eq!(admitted(&world), [waiting]);
        assert_eq!(world.session.queued().count(), 1);
    }
}

#[test]
fn pause_stops_admission_from_queue() {
    let (mut world, root) = World::with_slots(1);
    let present = world.spawn_running(root);
    let waiting = world.enqueue(root);
    world.pause(true);
    assert_eq!(
        world.end(present, settled(Completed)),
        ["TurnEnded"],
        "running turns finish"
    );
    assert_eq!(world.status(waiting), Queued);
    world.pause(false);
    assert_eq!(world.status(waiting), PendingInit);
}

#[test]
fn closed_thread_leaves_queue() {
    let (mut world, root) = World::with_slots(1);
    let present = world.spawn_running(root);
    let first = world.enqueue(root);
    let second = world.enqueue(root);
    world.close(first);
    assert_eq!(world.session.queue_position(second), Some(1));
    world.run(&close(operator(), present));
    world.wind_down();
    assert_eq!(admitted(&world), [second]);
}

#[test]
fn settled_thread_keeps_slot_that_closing_frees() {
    let (mut world, root) = World::with_one_kept_slot();
    let first = world.spawn_running(root);
    let waiting = world.enqueue(root);
    assert_eq!(world.end(first, settled(Completed)), ["TurnEnded"]);
    assert_eq!(world.status(waiting), Queued);
    // The first thread still has its slot, so it overtakes no thread.
    assert_eq!(world.run(&send(operator(), first)), ["InputQueued", "ThreadAdmitted"]);
    world.close(first);
    assert_eq!(world.status(waiting), PendingInit);
}
