//! Stalled threads: repeated equal output, or silence.

use std::time::Duration;

use supervisor_core::{
    command::{Command, Report},
    event::{ConditionKind, OutputDigests},
    ids::{Digest, ThreadId},
    rules::stall::{is_report_expected, repeated_after, stalled_by},
    settings::{RestartPolicy, StallRule},
    state::thread::Repeated,
    status::StatusKind::{self, Completed, Errored, Interrupted, PendingInit, Running, Shutdown},
};

use crate::world::{NOTHING, World, ended, operator, resume, send, settled};

fn world_with(repeats: u32, restart_policy: RestartPolicy) -> (World, ThreadId) {
    let (mut world, root) = World::with_settings(|settings| {
        settings.stall.repeats = repeats;
        settings.stall.silence = Duration::from_secs(60);
        settings.restart_policy = restart_policy;
    });
    let id = world.spawn(root);
    (world, id)
}

/// Runs a turn that ends with this status and output. Returns the events of its end.
fn turn(world: &mut World, id: ThreadId, kind: StatusKind, output: Option<u8>) -> Vec<&'static str> {
    if world.status(id) != PendingInit {
        world.run(&send(operator(), id));
    }
    world.begin(id);
    end(world, id, kind, output)
}

fn end(world: &mut World, id: ThreadId, kind: StatusKind, output: Option<u8>) -> Vec<&'static str> {
    let number = world.thread(id).turn.number();
    let mut report = ended(number.get(), settled(kind));
    if let Report::TurnEnded { digests, .. } = &mut report {
        digests.output = output.map(digest);
    }
    world.report(id, report)
}

fn digest(byte: u8) -> Digest {
    Digest::from_bytes([byte; 32])
}

fn silence(world: &World, id: ThreadId, active: bool) -> Command {
    world.condition(id, ConditionKind::Stalled, active)
}

fn stalls(world: &World, id: ThreadId) -> bool {
    world.has_condition(id, ConditionKind::Stalled)
}

// ---- repetition ----

#[test]
fn consecutive_equal_outputs_are_a_stall() {
    let [one, two, none] = [Some(1), Some(2), None].map(|output| (Completed, output));
    for (repeats, turns, expected) in [
        (3, vec![one; 2], false),
        (3, vec![one; 3], true),
        (3, vec![one; 5], true),
        (2, vec![one; 2], true),
        (0, vec![one; 9], false),
        (3, vec![none; 9], false),
        // Any other outcome in between restarts the count.
        (2, vec![one, two, one], false),
        (2, vec![one, none, one], false),
        (2, vec![one, (Interrupted, Some(1)), one], false),
        (2, vec![(Errored, Some(1)); 9], false),
    ] {
        let (mut world, id) = world_with(repeats, RestartPolicy::Never);
        for (kind, output) in &turns {
            turn(&mut world, id, *kind, *output);
        }
        assert_eq!(stalls(&world, id), expected, "{repeats}: {turns:?}");
    }
}

#[test]
fn consecutive_equal_changes_are_a_stall() {
    let row = |diffs: &[Option<u8>]| {
        let mut repeated = Repeated::default();
        for (turn, diff) in (0..).zip(diffs) {
            let digests = OutputDigests {
                // The agent's output differs each time.
                output: Some(digest(turn)),
                diff: diff.map(digest),
            };
            repeated = repeated_after(repeated, Completed, digests);
        }
        stalled_by(repeated, &StallRule::default())
    };
    assert_eq!(row(&[Some(1), Some(1)]), None);
    assert_eq!(row(&[Some(1), Some(1), Some(1)]), Some("changes"));
    assert_eq!(row(&[Some(1), Some(2), Some(1), Some(2)]), None);
    assert_eq!(row(&[None; 9]), None, "turns without changes do not count");
    assert_eq!(row(&[Some(1), Some(1), None, Some(1)]), None);
}

#[test]
fn repetition_stall_is_recorded_once_until_output_differs() {
    let (mut world, id) = world_with(2, RestartPolicy::Never);
    turn(&mut world, id, Completed, Some(1));
    assert_eq!(
        turn(&mut world, id, Completed, Some(1)),
        ["TurnEnded", "ConditionChanged"]
    );
    let (_, reason) = world.thread(id).conditions.get(&ConditionKind::Stalled).unwrap();
    assert_eq!(reason, "its last 2 turns had the same output");
    assert_eq!(turn(&mut world, id, Completed, Some(1)), ["TurnEnded"], "it is known");
    // The end of silence does not end a repetition stall.
    let activity = silence(&world, id, false);
    assert_eq!(world.run(&activity), NOTHING);
    assert!(stalls(&world, id));
    turn(&mut world, id, Completed, Some(2));
    assert!(!stalls(&world, id));
}

#[test]
fn thread_with_next_turn_at_once_can_stall() {
    let (mut world, id) = world_with(2, RestartPolicy::Never);
    turn(&mut world, id, Completed, Some(1));
    world.next_turn(id);
    world.run(&send(operator(), id));
    assert_eq!(
        end(&mut world, id, Completed, Some(1)),
        ["TurnEnded", "ConditionChanged", "ThreadAdmitted"]
    );
    assert!(stalls(&world, id));
}

#[test]
fn closed_thread_is_not_stalled() {
    let (mut world, id) = world_with(2, RestartPolicy::Never);
    turn(&mut world, id, Completed, Some(1));
    turn(&mut world, id, Completed, Some(1));
    world.close(id);
    assert_eq!((world.status(id), stalls(&world, id)), (Shutdown, false));
    world.run(&resume(operator(), id));
    assert_eq!(
        turn(&mut world, id, Completed, Some(1)),
        ["TurnEnded", "ConditionChanged"],
        "it continues as before"
    );
}

// ---- silence ----

#[test]
fn silence_is_recorded_for_running_turns_only() {
    for kind in StatusKind::ALL {
        let (mut world, id) = World::with_thread_in(kind);
        let expected: &[&str] = if kind == Running { &["ConditionChanged"] } else { &[] };
        let command = silence(&world, id, true);
        assert_eq!(world.run(&command), expected, "{kind}");
        assert_eq!(world.run(&command), NOTHING, "{kind}: it is known");
    }
    let (mut world, _) = World::with_thread_in(Running);
    let command = silence(&world, world.root(), true);
    assert_eq!(world.run(&command), NOTHING, "its client executes it");
}

#[test]
fn silence_ends_with_message_turn_or_attempt() {
    let silent = || {
        let (mut world, id) = world_with(3, RestartPolicy::OnLost);
        world.begin(id);
        let command = silence(&world, id, true);
        assert_eq!(world.run(&command), ["ConditionChanged"]);
        (world, id)
    };
    let (mut world, id) = silent();
    let activity = silence(&world, id, false);
    assert_eq!(world.run(&activity), ["ConditionChanged"]);
    assert!(!stalls(&world, id));

    let (mut world, id) = silent();
    end(&mut world, id, Completed, Some(1));
    assert!(!stalls(&world, id));

    let (mut world, id) = silent();
    world.lose(id);
    assert_eq!((world.status(id), stalls(&world, id)), (PendingInit, false));
}

#[test]
fn silence_stall_can_become_repetition_stall() {
    let (mut world, id) = world_with(2, RestartPolicy::Never);
    turn(&mut world, id, Completed, Some(1));
    world.next_turn(id);
    let command = silence(&world, id, true);
    world.run(&command);
    assert_eq!(
        end(&mut world, id, Completed, Some(1)),
        ["TurnEnded", "ConditionChanged"]
    );
    let (_, reason) = world.thread(id).conditions.get(&ConditionKind::Stalled).unwrap();
    assert_eq!(reason, "its last 2 turns had the same output");
}

#[test]
fn waiting_thread_may_be_silent() {
    let (mut world, id) = World::with_thread_in(Running);
    assert!(is_report_expected(&world.session, world.thread(id)));
    let wait = world.wait(id, &[id]);
    assert!(!is_report_expected(&world.session, world.thread(id)), "for others");
    world.end_wait(wait);
    assert!(is_report_expected(&world.session, world.thread(id)));
    world.run(&world.condition(id, ConditionKind::AwaitingToolApproval, true));
    assert!(!is_report_expected(&world.session, world.thread(id)), "for an operator");
}

// ---- the rule ----

#[test]
fn stall_rule_outside_bounds_is_rejected() {
    let rule = |repeats, seconds| StallRule {
        repeats,
        silence: Duration::from_secs(seconds),
    };
    for good in [rule(0, 0), rule(2, 1), StallRule::default(), rule(3, 86_400)] {
        assert_eq!(good.check(), Ok(()));
    }
    for (bad, text) in [
        (rule(1, 600), "stall_repeats is 1"),
        (rule(3, 86_401), "stall_after is 86401 s"),
    ] {
        assert!(bad.check().unwrap_err().starts_with(text));
    }
}
