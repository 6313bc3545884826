//! Eviction: at the limit of open threads, a spawn or a resume closes the evictable threads that settled first.

use supervisor_core::{
    command::Command,
    event::{CloseCause, Event, ThreadEvent},
    ids::ThreadId,
    settings::{Limits, WakePolicy},
    status::{
        Status,
        StatusKind::{Completed, Interrupted, Shutdown},
    },
};

use crate::world::{World, interrupt, operator, resume, settled, spawning};

const NO_ROOM: &str = "open agent thread limit reached (max 3); close agents that are done";

/// Returns a session with a limit of three open threads, the root included.
fn crowded() -> (World, ThreadId) {
    World::with_settings(|settings| settings.limits.max_open_threads = 3)
}

fn spawn_completed(world: &mut World, parent: ThreadId) -> ThreadId {
    let id = world.spawn_running(parent);
    world.end(id, settled(Completed));
    id
}

fn one_more(world: &mut World) -> Command {
    let root = world.root();
    spawning(world.wanted(root))
}

fn is_evicted(world: &World, id: ThreadId) -> bool {
    let fence = world.thread(id).fence.as_ref();
    fence.is_some_and(|fence| fence.cause == CloseCause::Eviction)
}

#[test]
fn eviction_closes_the_longest_settled_thread() {
    let (mut world, root) = crowded();
    let (first, second) = (world.spawn_running(root), world.spawn_running(root));
    // The order of settling decides, not the order of spawning.
    world.end(second, settled(Completed));
    world.end(first, settled(Completed));
    let spawn = one_more(&mut world);
    assert_eq!(world.run(&spawn), ["CloseRequested", "ThreadSpawned"]);
    assert!(is_evicted(&world, second) && !is_evicted(&world, first));

    // The first evicted thread is still closing, so the next spawn evicts another one.
    let spawn = one_more(&mut world);
    assert_eq!(world.run(&spawn), ["CloseRequested", "ThreadSpawned"]);
    assert!(is_evicted(&world, first));
    let spawn = one_more(&mut world);
    assert_eq!(world.rejection(&spawn), NO_ROOM, "the other threads are active");

    world.wind_down();
    let Status::Shutdown { reason, .. } = &world.thread(second).status else {
        panic!("it is closed");
    };
    assert_eq!(
        reason,
        "EVICTED: it was settled, and the session has reached its limit of 3 open agents; ResumeAgent opens it again"
    );
}

#[test]
fn resuming_an_evicted_thread_evicts_another() {
    let (mut world, root) = crowded();
    let first = spawn_completed(&mut world, root);
    let second = spawn_completed(&mut world, root);
    let spawn = one_more(&mut world);
    world.run(&spawn);
    world.wind_down();
    assert_eq!(world.status(first), Shutdown);
    assert_eq!(
        world.run(&resume(operator(), first)),
        ["CloseRequested", "ThreadResumed"]
    );
    assert_eq!(world.status(first), Completed);
    assert!(is_evicted(&world, second));
}

#[test]
fn eviction_skips_threads_in_use() {
    // The parent of the new thread.
    let (mut world, root) = crowded();
    let parent = spawn_completed(&mut world, root);
    world.spawn(root);
    let child = spawning(world.wanted(parent));
    assert_eq!(world.rejection(&child), NO_ROOM);

    // A thread with an open child.
    let (mut world, root) = crowded();
    let parent = world.spawn_running(root);
    world.spawn(parent);
    world.end(parent, settled(Completed));
    let spawn = one_more(&mut world);
    assert_eq!(world.rejection(&spawn), NO_ROOM);

    // A thread with input that no turn has read.
    let (mut world, root) = crowded();
    world.spawn(root);
    let stopped = world.spawn(root);
    world.run(&interrupt(operator(), stopped));
    assert_eq!(
        (world.status(stopped), world.waiting_inputs(stopped)),
        (Interrupted, vec![1])
    );
    let spawn = one_more(&mut world);
    assert_eq!(world.rejection(&spawn), NO_ROOM);
}

#[test]
fn eviction_skips_threads_with_waking_mail() {
    for (wake_policy, goes) in [(WakePolicy::None, true), (WakePolicy::OnIdle, false)] {
        let (mut world, root) = crowded();
        let lead = world.spawn_with(root, |lead| lead.spawned.wake_policy = wake_policy);
        world.begin(lead);
        world.end(lead, settled(Completed));
        let helper = world.spawn(lead);
        world.close(helper);
        assert!(!world.thread(lead).mail.is_empty());
        world.spawn(root);
        let spawn = one_more(&mut world);
        assert_eq!(world.carry_out(&spawn).is_ok(), goes, "{wake_policy:?}");
    }
}

#[test]
fn eviction_requires_acknowledged_settle_notice() {
    let (mut world, root) = crowded();
    let lead = world.spawn_running(root);
    let helper = spawn_completed(&mut world, lead);
    let spawn = one_more(&mut world);
    assert_eq!(world.rejection(&spawn), NO_ROOM, "its parent does not know yet");

    let letter = world.thread(lead).mail.oldest().unwrap();
    world.append(Event::Thread(lead, ThreadEvent::MailAcknowledged(letter)));
    assert_eq!(world.run(&spawn), ["CloseRequested", "ThreadSpawned"]);
    assert!(is_evicted(&world, helper));
}

#[test]
fn lowered_limit_evicts_until_it_holds() {
    let (mut world, root) = World::with_slots(9);
    let threads: Vec<ThreadId> = (0..4).map(|_| spawn_completed(&mut world, root)).collect();
    world.lawful = false;
    let limits = Limits {
        max_open_threads: 3,
        ..Limits::default()
    };
    world.update(|change| change.limits = Some(limits));
    assert_eq!(world.session.open_count(), 5, "nothing is closed for the limit alone");
    let spawn = one_more(&mut world);
    assert_eq!(
        world.run(&spawn),
        ["CloseRequested", "CloseRequested", "CloseRequested", "ThreadSpawned"]
    );
    assert!(threads[..3].iter().all(|id| is_evicted(&world, *id)));
    assert!(!is_evicted(&world, threads[3]));
}
