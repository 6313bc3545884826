//! Mail: recipients, acknowledgement, and wake-ups.

use std::{collections::BTreeSet, sync::Arc};

use supervisor_core::{
    command::Command,
    ids::{Sequence, ThreadId},
    principal::Caller,
    rules::mail::letter_in_log,
    settings::{Budget, WakePolicy},
    state::mailbox::{Body, Letter},
    status::StatusKind::{self, Completed, Errored, Interrupted, PendingInit, Shutdown},
};

use crate::{
    budgets::{give, tokens},
    world::{NOTHING, OUTSIDE, World, close, interrupt, is_closing, operator, resume, settled},
};

fn acknowledge(caller: Caller, target: ThreadId, up_to: u64) -> Command {
    Command::AcknowledgeMail {
        caller,
        target,
        up_to: Sequence::new(up_to),
    }
}

/// Returns the sequence numbers of a thread's letters.
fn letters(world: &World, id: ThreadId) -> Vec<u64> {
    world
        .thread(id)
        .mail
        .letters()
        .map(|letter| letter.sequence.get())
        .collect()
}

/// Returns a parent with this wake policy whose first turn is running.
fn parent_with(world: &mut World, policy: WakePolicy) -> ThreadId {
    let id = world.spawn_with(world.root(), |spawn| spawn.spawned.wake_policy = policy);
    world.begin(id);
    id
}

/// Runs another turn of a settled thread until it completes. Returns the events of the turn's end.
fn run_another_turn(world: &mut World, id: ThreadId) -> Vec<&'static str> {
    world.next_turn(id);
    world.end(id, settled(Completed))
}

// ---- acknowledging ----

#[test]
fn settle_notices_stay_until_acknowledged() {
    let (mut world, root) = World::with_slots(2);
    let (first, second) = (world.spawn_running(root), world.spawn_running(root));
    world.end(first, settled(Completed));
    let first_letter = world.session.sequence.get();
    world.end(second, settled(Errored));
    let second_letter = world.session.sequence.get();
    assert_eq!(letters(&world, root), [first_letter, second_letter]);

    assert_eq!(
        world.rejection(&acknowledge(operator(), root, second_letter + 1)),
        format!(
            "up_to_sequence {} is ahead of the newest mail, which is {second_letter}; acknowledge a number that ListMailbox returned",
            second_letter + 1
        )
    );
    assert_eq!(world.run(&acknowledge(operator(), root, first_letter - 1)), NOTHING);
    let own = world.caller(root);
    assert_eq!(world.run(&acknowledge(own, root, first_letter)), ["MailAcknowledged"]);
    assert_eq!(letters(&world, root), [second_letter]);
    assert_eq!(
        world.run(&acknowledge(operator(), root, second_letter)),
        ["MailAcknowledged"]
    );
    assert_eq!(letters(&world, root), [0; 0]);
    // Mail that was acknowledged can be acknowledged again. Mail that was never delivered still cannot.
    assert_eq!(world.run(&acknowledge(operator(), root, second_letter)), NOTHING);
    assert!(
        world
            .rejection(&acknowledge(operator(), root, second_letter + 1))
            .contains("is ahead of the newest mail")
    );
}

#[test]
fn mail_is_acknowledged_by_thread_or_ancestors_only() {
    let (mut world, root) = World::with_slots(4);
    let (parent, stranger) = (world.spawn(root), world.spawn(root));
    let child = world.spawn_running(parent);
    world.end(child, settled(Completed));
    let letter = world.session.sequence.get();
    for outsider in [child, stranger] {
        let caller = world.caller(outsider);
        assert_eq!(world.rejection(&acknowledge(caller, parent, letter)), OUTSIDE);
    }
    let above = world.caller(root);
    assert_eq!(world.run(&acknowledge(above, parent, letter)), ["MailAcknowledged"]);
}

#[test]
fn only_latest_settle_notice_of_a_child_is_kept() {
    let (mut world, root) = World::with_slots(1);
    let child = world.spawn_running(root);
    world.end(child, settled(Errored));
    run_another_turn(&mut world, child);
    let waiting: Vec<_> = world
        .thread(root)
        .mail
        .letters()
        .map(|letter| letter.body.clone())
        .collect();
    let [Body::Settled { child: about, status }] = waiting.as_slice() else {
        panic!("one letter, not {waiting:?}")
    };
    assert_eq!((*about, status.kind()), (child, Completed));
}

#[test]
fn close_notice_keeps_the_childs_settle_notice() {
    let (mut world, root) = World::with_slots(1);
    let child = world.spawn_running(root);
    world.end(child, settled(Errored));
    let kinds = |world: &World| -> Vec<StatusKind> {
        let letters = world.thread(root).mail.letters();
        let kind = |letter: &Arc<Letter>| match &letter.body {
            Body::Settled { status, .. } => status.kind(),
            Body::Handoff(_) | Body::GroupEnded { .. } => panic!("nothing else was sent"),
        };
        letters.map(kind).collect()
    };
    for _ in 0..3 {
        world.close(child);
        assert_eq!(kinds(&world), [Errored, Shutdown]);
        world.run(&resume(operator(), child));
    }
    let mail = &world.thread(root).mail;
    assert_eq!((mail.len(), mail.handoffs()), (2, 0));
    run_another_turn(&mut world, child);
    assert_eq!(kinds(&world), [Completed], "its newest word is the last one");
}

#[test]
fn completed_turn_acknowledges_its_mail() {
    let (mut world, _) = World::with_slots(4);
    let parent = parent_with(&mut world, WakePolicy::None);
    let (first, second) = (world.spawn_running(parent), world.spawn_running(parent));
    world.end(first, settled(Completed));
    let shown = world.session.sequence.get();
    assert_eq!(
        world.end(parent, settled(Completed)),
        ["TurnEnded"],
        "it was not shown the letter"
    );
    assert_eq!(letters(&world, parent), [shown]);

    // A failed turn may not have read the mail, so the next turn shows it again.
    for kind in [Errored, Interrupted] {
        world.next_turn(parent);
        assert_eq!(world.thread(parent).mail_shown.get(), shown);
        assert_eq!(world.end(parent, settled(kind)), ["TurnEnded"]);
        assert_eq!(letters(&world, parent), [shown], "after {kind}");
    }

    world.next_turn(parent);
    world.end(second, settled(Completed));
    let came_meanwhile = world.session.sequence.get();
    assert_eq!(world.end(parent, settled(Completed)), ["TurnEnded", "MailAcknowledged"]);
    assert_eq!(letters(&world, parent), [came_meanwhile]);
}

#[test]
fn fenced_thread_acknowledges_no_mail() {
    let (mut world, _) = World::with_slots(4);
    let parent = parent_with(&mut world, WakePolicy::None);
    let child = world.spawn_running(parent);
    world.end(child, settled(Completed));
    let letter = world.session.sequence.get();
    world.end(parent, settled(Completed));
    world.next_turn(parent);
    world.run(&close(operator(), parent));
    assert_eq!(
        world.rejection(&acknowledge(operator(), parent, letter)),
        is_closing(parent)
    );
    assert_eq!(world.end(parent, settled(Completed)), ["TurnEnded"]);
}

#[test]
fn cascade_sends_one_notice_to_the_parent_of_its_top() {
    let (mut world, root) = World::with_slots(4);
    let top = world.spawn_running(root);
    world.spawn_running(top);
    world.close(top);
    let mail: Vec<_> = world.thread(root).mail.letters().cloned().collect();
    let [letter] = mail.as_slice() else {
        panic!("one letter, not {mail:?}")
    };
    assert!(matches!(&letter.body, Body::Settled { child, status } if *child == top && status.kind() == Shutdown));
    assert_eq!(letters(&world, top), [0; 0]);
}

#[test]
fn mail_is_derived_from_the_log() {
    let (mut world, root) = World::with_slots(6);
    let top = world.spawn_running(root);
    let (first, second) = (world.spawn_running(top), world.spawn_running(top));
    world.end(first, settled(Completed));
    world.run(&close(operator(), second));
    world.end(second, settled(Interrupted));
    world.wind_down();
    world.run(&resume(operator(), second));
    run_another_turn(&mut world, second);
    world.run(&close(operator(), top));
    world.end(top, settled(Completed));
    world.wind_down();
    world.run(&resume(operator(), top));
    world.run(&resume(operator(), first));
    run_another_turn(&mut world, first);

    let threads: Vec<ThreadId> = world.session.in_spawn_order().map(|thread| thread.id).collect();
    let mut delivered = BTreeSet::new();
    let mut told = BTreeSet::new();
    for (place, recorded) in world.log.iter().enumerate() {
        let then = World::replay(&world.log[..=place]);
        for id in &threads {
            if then
                .thread(*id)
                .is_some_and(|thread| thread.mail.holds(recorded.sequence))
            {
                delivered.insert((*id, recorded.sequence));
            }
            if let Some(letter) = letter_in_log(&world.session, *id, recorded) {
                assert_eq!((letter.sequence, letter.time), (recorded.sequence, recorded.time));
                told.insert((*id, letter.sequence));
            }
        }
    }
    assert!(delivered.iter().any(|(id, _)| *id == root) && delivered.iter().any(|(id, _)| *id == top));
    assert_eq!(told, delivered);
}

// ---- waking ----

#[test]
fn wake_policy_selects_woken_threads() {
    for (policy, kind, wakes) in [
        (WakePolicy::None, Completed, false),
        (WakePolicy::None, Errored, false),
        (WakePolicy::OnIdle, Completed, true),
        (WakePolicy::OnIdle, Errored, false),
        (WakePolicy::OnIdle, Interrupted, false),
        (WakePolicy::Always, Completed, true),
        (WakePolicy::Always, Errored, true),
        (WakePolicy::Always, Interrupted, true),
    ] {
        let (mut world, _) = World::with_slots(3);
        let parent = parent_with(&mut world, policy);
        let child = world.spawn_running(parent);
        world.end(parent, settled(kind));
        let (happened, stands): (&[&str], StatusKind) = if wakes {
            (&["TurnEnded", "ThreadAdmitted"], PendingInit)
        } else {
            (&["TurnEnded"], kind)
        };
        assert_eq!(world.end(child, settled(Completed)), happened, "{policy:?} {kind}");
        assert_eq!(world.status(parent), stands, "{policy:?} {kind}");
    }
}

#[test]
fn mail_during_turn_wakes_thread_after_turn() {
    let (mut world, _) = World::with_slots(3);
    let parent = parent_with(&mut world, WakePolicy::OnIdle);
    let child = world.spawn_running(parent);
    assert_eq!(world.end(child, settled(Completed)), ["TurnEnded"]);
    assert_eq!(world.end(parent, settled(Completed)), ["TurnEnded", "ThreadAdmitted"]);
    // The turn has no input. It was started for the mail.
    world.begin(parent);
    assert_eq!(world.waiting_inputs(parent), [0; 0]);
    assert_eq!(world.end(parent, settled(Completed)), ["TurnEnded", "MailAcknowledged"]);
    assert_eq!(world.status(parent), Completed, "the same mail does not wake it again");
}

#[test]
fn mail_wakes_thread_once() {
    let (mut world, _) = World::with_slots(3);
    let parent = parent_with(&mut world, WakePolicy::Always);
    let child = world.spawn_running(parent);
    world.end(parent, settled(Completed));
    world.end(child, settled(Completed));
    world.begin(parent);
    assert_eq!(
        world.end(parent, settled(Errored)),
        ["TurnEnded"],
        "a failed turn is not repeated for the same mail"
    );
    assert_eq!(letters(&world, parent).len(), 1, "the next turn is shown it again");
    assert_eq!(
        run_another_turn(&mut world, child),
        ["TurnEnded", "ThreadAdmitted"],
        "new mail wakes the thread again"
    );

    // An interrupt before the dispatch also ends the turn for this mail.
    assert_eq!(world.run(&interrupt(operator(), parent)), ["TurnEnded"]);
    assert_eq!(world.status(parent), Interrupted);
}

#[test]
fn mail_wakes_thread_only_after_queued_threads() {
    let (mut world, root) = World::with_slots(2);
    let parent = parent_with(&mut world, WakePolicy::OnIdle);
    let child = world.spawn_running(parent);
    world.end(parent, settled(Completed));
    let other = world.spawn_running(root);
    let queued = world.enqueue(root);
    assert_eq!(world.end(child, settled(Completed)), ["TurnEnded", "ThreadAdmitted"]);
    assert_eq!((world.status(queued), world.status(parent)), (PendingInit, Completed));
    assert_eq!(world.end(other, settled(Completed)), ["TurnEnded", "ThreadAdmitted"]);
    assert_eq!(world.status(parent), PendingInit);
}

#[test]
fn mail_does_not_wake_threads_of_paused_session() {
    let (mut world, _) = World::with_slots(2);
    let parent = parent_with(&mut world, WakePolicy::OnIdle);
    let child = world.spawn_running(parent);
    world.end(parent, settled(Completed));
    world.pause(true);
    assert_eq!(world.end(child, settled(Completed)), ["TurnEnded"]);
    world.pause(false);
    assert_eq!(world.status(parent), PendingInit);
}

#[test]
fn mail_does_not_wake_thread_without_budget() {
    let (mut world, root) = World::with_slots(3);
    let parent = parent_with(&mut world, WakePolicy::Always);
    let child = world.spawn_running(parent);
    world.end(parent, settled(Completed));
    // The budget of an ancestor applies too. Each turn uses 10 tokens.
    world.run(&give(operator(), root, tokens(20)));
    assert_eq!(world.end(child, settled(Completed)), ["TurnEnded", "ConditionChanged"]);
    let raised = world.run(&give(operator(), root, Budget::default()));
    assert_eq!(raised.last(), Some(&"ThreadAdmitted"), "{raised:?}");
    assert_eq!(world.status(parent), PendingInit);
}
