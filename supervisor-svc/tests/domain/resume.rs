//! ResumeAgent: the resumed threads, with at most the permissions that they had.

use supervisor_core::{
    event::{Event, Resumed, ThreadEvent},
    ids::{Generation, ThreadId},
    settings::{Limits, Sandbox},
    status::{
        Settled, Status,
        StatusKind::{self, Completed, Errored, Interrupted, PendingInit, Queued, Running, Shutdown},
    },
};
use tool_policy::Policy;

use crate::world::{
    NO_SLOT_OF_ONE, NOTHING, PAUSED, TOO_DEEP, World, deny, is_closed, operator, resume, send, settled,
};

#[test]
fn resumed_thread_keeps_its_settled_status() {
    for (kind, expected) in [
        (Completed, settled(Completed)),
        (Errored, settled(Errored)),
        (Interrupted, settled(Interrupted)),
        (Queued, closed_before_it_settled()),
        (PendingInit, closed_before_it_settled()),
        (Running, closed_before_it_settled()),
    ] {
        let (mut world, id) = World::with_thread_in(kind);
        world.close(id);
        assert_eq!(world.thread(id).generation, Generation::new(2));
        assert_eq!(world.run(&resume(operator(), id)), ["ThreadResumed"], "{kind}");
        let thread = world.thread(id);
        assert_eq!(thread.status, Status::Settled(expected.into()), "{kind}");
        assert_eq!(thread.generation, Generation::new(3));
        assert_eq!((&thread.runner, &thread.fence), (&None, &None));
        assert_eq!(world.run(&resume(operator(), id)), NOTHING, "it is open");
    }
}

fn closed_before_it_settled() -> Settled {
    Settled::Interrupted {
        reason: String::from("no longer needed"),
    }
}

#[test]
fn resume_of_open_thread_changes_nothing() {
    for kind in StatusKind::ALL.into_iter().filter(|kind| *kind != Shutdown) {
        let (mut world, id) = World::with_thread_in(kind);
        assert_eq!(world.run(&resume(operator(), id)), NOTHING, "{kind}");
    }
}

#[test]
fn resumed_thread_runs_next_turn() {
    let (mut world, id) = World::with_thread_in(Running);
    world.close(id);
    world.run(&resume(operator(), id));
    assert_eq!(world.run(&send(operator(), id)), ["InputQueued", "ThreadAdmitted"]);
    world.begin(id);
    assert_eq!(world.end(id, settled(Completed)), ["TurnEnded"]);
    assert_eq!(world.thread(id).total_usage().output_tokens, 10);
}

#[test]
fn resume_has_checks_like_a_spawn() {
    let (mut world, root) = World::with_slots(9);
    let lead = world.spawn(root);
    let helper = world.spawn(lead);
    world.close(lead);
    assert_eq!(world.rejection(&resume(operator(), helper)), is_closed(lead));
    world.run(&resume(operator(), lead));
    assert_eq!(world.status(helper), Shutdown, "descendants stay closed");

    world.pause(true);
    assert_eq!(world.rejection(&resume(operator(), helper)), PAUSED);
    world.pause(false);
    let shallow = Limits {
        max_depth: 1,
        ..Limits::default()
    };
    let narrow = Limits {
        max_open_threads: 2,
        ..Limits::default()
    };
    for (limits, expected) in [
        (shallow, TOO_DEEP),
        (
            narrow,
            "open agent thread limit reached (max 2); close agents that are done",
        ),
    ] {
        world.update(|change| change.limits = Some(limits));
        assert_eq!(world.rejection(&resume(operator(), helper)), expected);
    }
}

#[test]
fn resume_needs_slot_if_settled_threads_hold_slots() {
    let (mut world, root) = World::with_one_kept_slot();
    let first = world.spawn(root);
    world.close(first);
    world.spawn(root);
    assert_eq!(world.rejection(&resume(operator(), first)), NO_SLOT_OF_ONE);
}

/// Returns a closed thread without `web_search` below a parent that was resumed with these permissions.
fn below(grant: &Policy, sandbox: Sandbox) -> (World, ThreadId) {
    let (mut world, root) = World::with_slots(9);
    let lead = world.spawn(root);
    let helper = world.spawn_with(lead, |helper| {
        helper.role_layers = [deny("role \"worker\"", &["web_search"])].into();
        helper.spawned.sandbox = Sandbox::WorkspaceWrite;
    });
    world.close(lead);
    let resumed = Resumed {
        generation: world.thread(lead).generation.next(),
        settled: settled(Interrupted),
        effective: grant.clone(),
        grant: grant.clone(),
        sandbox,
    };
    world.append(Event::Thread(lead, ThreadEvent::Resumed(Box::new(resumed))));
    (world, helper)
}

#[test]
fn resume_narrows_permissions_to_the_parents_grant() {
    let narrower = Policy::compile(vec![deny("the session", &["apply_patch"])]).unwrap();
    let (mut world, helper) = below(&narrower, Sandbox::ReadOnly);
    world.run(&resume(operator(), helper));
    let thread = world.thread(helper);
    for (tool, allowed) in [("wait", true), ("web_search", false), ("apply_patch", false)] {
        assert_eq!(thread.effective.allows(tool), allowed, "{tool}");
        assert_eq!(thread.grant.allows(tool), allowed, "{tool}");
    }
    assert_eq!(thread.sandbox, Sandbox::ReadOnly);
    assert!(
        thread.spawned.effective.allows("apply_patch"),
        "the spawn's record stays as it is"
    );
}

#[test]
fn resume_never_widens_permissions() {
    let (mut world, helper) = below(&Policy::unrestricted(), Sandbox::FullAccess);
    let before = world.thread(helper).clone();
    world.run(&resume(operator(), helper));
    let thread = world.thread(helper);
    assert_eq!(
        (&thread.effective, &thread.grant, thread.sandbox),
        (&before.effective, &before.grant, Sandbox::WorkspaceWrite)
    );
    assert!(!thread.effective.allows("web_search"));
}
