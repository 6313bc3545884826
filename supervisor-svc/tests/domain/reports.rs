//! Runner reports: late, repeated and impossible reports have no effect. The work continues after a runner is lost.

use supervisor_core::{
    command::{Command, Report},
    event::{Artifact, ConditionKind, OutputDigests},
    ids::{ArtifactId, Generation, InputNumber, ReportSequence, RunnerId, ThreadId, Turn},
    settings::{OnLimit, RestartPolicy, Urgency, Usage},
    state::thread::LatestTurn,
    status::{
        Settled, Status,
        StatusKind::{self, AwaitingApproval, Completed, Errored, Interrupted, PendingInit, Queued, Running, Shutdown},
    },
};
use uuid::Uuid;

use crate::world::{
    NOTHING, World, close, dispatching, ended, interrupt, operator, resume, send, send_with, settled, stopped, text,
    thread_id,
};

fn started(turn: u32) -> Report {
    Report::TurnStarted { turn: Turn::new(turn) }
}

fn delivered(number: u32, turn: u32) -> Report {
    Report::InputDelivered {
        number: InputNumber::new(number),
        turn: Turn::new(turn),
    }
}

fn artifact_of(turn: u32) -> Report {
    Report::Artifact(Artifact {
        id: ArtifactId::from_uuid(Uuid::from_u128(1)),
        name: String::from("report.md"),
        kind: String::from("document"),
        media_type: String::from("text/markdown"),
        content: text("# Report"),
        turn: Turn::new(turn),
    })
}

fn said(thread: ThreadId, generation: u32, sequence: u64, report: Report) -> Command {
    Command::Report {
        thread,
        generation: Generation::new(generation),
        sequence: ReportSequence::new(sequence),
        report,
    }
}

/// Asserts that a command changes nothing unless the thread is in this state.
fn assert_void_unless(state: StatusKind, command: impl Fn(&World, ThreadId) -> Command) {
    for kind in StatusKind::ALL.into_iter().filter(|kind| *kind != state) {
        let (mut world, id) = World::with_thread_in(kind);
        let command = command(&world, id);
        assert_eq!(world.run(&command), NOTHING, "{kind}");
    }
}

// ---- ignored reports ----

#[test]
fn late_repeated_and_impossible_reports_change_nothing() {
    let (mut world, id) = World::with_thread_in(Running);
    world.run(&send(operator(), id));
    let done = || ended(1, settled(Completed));
    for (why, command) in [
        ("an earlier attempt", said(id, 0, 2, done())),
        ("a later attempt", said(id, 2, 2, done())),
        ("an earlier number", said(id, 1, 0, done())),
        ("a number that was used", said(id, 1, 1, done())),
        ("unknown thread", said(thread_id(999), 1, 2, done())),
        ("a turn before", said(id, 1, 2, ended(0, settled(Completed)))),
        ("a turn to come", said(id, 1, 2, ended(2, settled(Completed)))),
        ("it runs already", said(id, 1, 2, started(1))),
        ("the turn was not dispatched", said(id, 1, 2, started(2))),
        ("no such input", said(id, 1, 2, delivered(9, 1))),
        ("input of the turn itself", said(id, 1, 2, delivered(1, 1))),
        ("an artifact of a turn to come", said(id, 1, 2, artifact_of(2))),
        ("an artifact of no turn", said(id, 1, 2, artifact_of(0))),
    ] {
        assert_eq!(world.run(&command), NOTHING, "{why}");
    }
    assert_eq!(world.run(&said(id, 1, 2, done())), ["TurnEnded", "ThreadAdmitted"]);
}

#[test]
fn report_numbers_may_have_gaps() {
    let (mut world, id) = World::with_thread_in(Running);
    assert_eq!(world.run(&said(id, 1, 5, artifact_of(1))), ["ArtifactRecorded"]);
    assert_eq!(world.thread(id).last_report, ReportSequence::new(5));
    assert_eq!(world.run(&said(id, 1, 4, ended(1, settled(Completed)))), NOTHING);
    assert_eq!(world.run(&said(id, 1, 6, ended(1, settled(Completed)))), ["TurnEnded"]);
}

#[test]
fn reports_for_turn_before_dispatch_are_ignored() {
    for kind in [Queued, AwaitingApproval, PendingInit] {
        let (mut world, id) = World::with_thread_in(kind);
        for report in [
            started(0),
            started(1),
            ended(0, settled(Completed)),
            ended(1, settled(Completed)),
        ] {
            assert_eq!(world.report(id, report), NOTHING, "{kind}");
        }
    }
}

#[test]
fn repeated_end_of_turn_is_ignored() {
    for kind in [Completed, Errored, Interrupted] {
        // The thread now waits for its next turn, in the queue or with a slot.
        let (mut world, id) = World::with_thread_in(kind);
        assert_eq!(world.report(id, ended(1, settled(Completed))), NOTHING);
        world.spawn(world.root());
        world.run(&send_with(operator(), id, Urgency::Wait, OnLimit::Queue));
        assert_eq!(world.report(id, ended(1, settled(Completed))), NOTHING);
        assert_eq!(world.status(id), Queued);

        let (mut world, id) = World::with_thread_in(kind);
        world.run(&send(operator(), id));
        assert_eq!(world.report(id, ended(1, settled(Completed))), NOTHING);
        assert_eq!(world.status(id), PendingInit);
    }
}

#[test]
fn turn_may_end_without_reported_start() {
    let (mut world, id) = World::with_thread_in(PendingInit);
    world.dispatch(id);
    assert_eq!(world.report(id, ended(1, settled(Errored))), ["TurnEnded"]);
    assert_eq!(world.status(id), Errored);
}

#[test]
fn input_is_delivered_within_a_running_turn_only() {
    let (mut world, id) = World::with_thread_in(Running);
    world.run(&send(operator(), id));
    assert_eq!(world.report(id, delivered(2, 2)), NOTHING, "another turn runs");
    assert_eq!(world.report(id, delivered(2, 1)), ["InputDelivered"]);
    assert_eq!(world.report(id, delivered(2, 1)), NOTHING, "it was delivered");
    assert_eq!(
        world.end(id, settled(Completed)),
        ["TurnEnded"],
        "nothing is left for a next turn"
    );

    let (mut world, id) = World::with_thread_in(Completed);
    world.run(&send(operator(), id));
    assert_eq!(
        world.report(id, delivered(2, 1)),
        NOTHING,
        "the turn is over; the input is the next one's"
    );
    assert_eq!(world.waiting_inputs(id), [2]);
}

#[test]
fn repeated_policy_gap_is_ignored() {
    let (mut world, id) = World::with_thread_in(Running);
    let gap = world.says(id, Report::PolicyGap(String::from("web_search cannot be denied")));
    assert_eq!(world.run(&gap), ["ConditionChanged"]);
    assert!(world.has_condition(id, ConditionKind::PolicyGap));
    assert_eq!(world.run(&gap), NOTHING);
}

#[test]
fn lost_context_condition_is_independent_of_a_gap() {
    let (mut world, id) = World::with_thread_in(Running);
    let lost = world.says(id, Report::ContextLost(String::from("no session")));
    assert_eq!(world.run(&lost), ["ConditionChanged"]);
    assert_eq!(world.run(&lost), NOTHING);
    let gap = world.says(id, Report::PolicyGap(String::from("web_search cannot be denied")));
    world.run(&gap);
    for kind in [ConditionKind::ContextLost, ConditionKind::PolicyGap] {
        assert!(world.has_condition(id, kind), "{kind:?}");
    }
}

// ---- the end of a program ----

#[test]
fn program_end_before_turn_end_fails_the_turn() {
    for running in [false, true] {
        let (mut world, id) = World::with_thread_in(PendingInit);
        world.dispatch(id);
        if running {
            world.report(id, started(1));
        }
        assert_eq!(world.report(id, stopped()), ["TurnEnded"]);
        let message = String::from("the agent program ended before its turn did: exit status 0");
        let failed = Settled::Errored { message, content: None };
        assert_eq!(world.thread(id).status, Status::Settled(failed.into()));
    }
    for kind in [Queued, PendingInit, Completed, Errored, Interrupted, Shutdown] {
        let (mut world, id) = World::with_thread_in(kind);
        assert_eq!(world.report(id, stopped()), NOTHING, "{kind}: no turn was under way");
    }
}

#[test]
fn repeated_stop_does_not_end_next_turn() {
    let (mut world, id) = World::with_thread_in(Running);
    let stop = world.says(id, stopped());
    assert_eq!(world.run(&stop), ["TurnEnded"]);
    world.run(&send(operator(), id));
    world.dispatch(id);
    // The acknowledgement was lost, so the runner repeats the report.
    assert_eq!(world.run(&stop), NOTHING);
    assert_eq!(world.status(id), PendingInit);
}

// ---- lost runners ----

/// Returns a running thread in a session with this restart policy.
fn running_under(restart_policy: RestartPolicy) -> (World, ThreadId) {
    let (mut world, root) = World::with_settings(|settings| settings.restart_policy = restart_policy);
    let id = world.spawn_running(root);
    (world, id)
}

#[test]
fn unstarted_turn_is_dispatched_again() {
    for policy in [RestartPolicy::Never, RestartPolicy::OnLost] {
        let (mut world, _) = running_under(policy);
        let id = world.spawn(world.root());
        world.dispatch(id);
        let start = world.says(id, started(1));
        assert_eq!(world.waiting_inputs(id), [] as [u32; 0]);
        assert_eq!(world.lose(id), ["ThreadPlaced"]);
        assert_eq!((world.status(id), world.thread(id).generation.get()), (PendingInit, 2));
        assert_eq!(world.waiting_inputs(id), [1]);
        assert_eq!(world.run(&start), NOTHING, "the old attempt is fenced off");

        // The new attempt was not dispatched yet, so any runner may take it.
        let dispatch = world.dispatch_to(id, &RunnerId::new("r1"));
        assert_eq!(dispatch.generation, Generation::new(2));
        assert_eq!(world.run(&dispatching(dispatch)), ["ThreadPlaced", "TurnDispatched"]);
        assert_eq!(world.report(id, started(2)), ["TurnStarted"]);
    }
}

#[test]
fn running_turn_is_lost_or_restarted_with_its_runner() {
    let (mut world, id) = running_under(RestartPolicy::Never);
    let late = world.says(id, ended(1, settled(Completed)));
    assert_eq!(world.lose(id), ["TurnEnded"]);
    let message = String::from("runner r0 was lost");
    let failed = Settled::Errored { message, content: None };
    assert_eq!(world.thread(id).status, Status::Settled(failed.into()));
    assert_eq!(world.run(&late), NOTHING, "it was settled");

    let (mut world, id) = running_under(RestartPolicy::OnLost);
    world.run(&send(operator(), id));
    let late = world.says(id, ended(1, settled(Completed)));
    assert_eq!(world.lose(id), ["ThreadPlaced"]);
    assert_eq!((world.status(id), world.thread(id).generation.get()), (PendingInit, 2));
    assert_eq!(
        world.waiting_inputs(id),
        [1, 2],
        "without them the agent does not know its task"
    );
    assert_eq!(world.run(&late), NOTHING, "a returning runner is of an old attempt");
    world.begin(id);
    assert_eq!(world.thread(id).turn.number(), Turn::new(2));
    assert_eq!(world.end(id, settled(Completed)), ["TurnEnded"]);
}

/// Returns the report of a runner that interrupted the turn because the runner was stopped.
fn stopped_with_runner(used: u64) -> Report {
    Report::TurnEnded {
        price: None,
        turn: Turn::new(1),
        outcome: Settled::Interrupted {
            reason: String::from("the service was stopped"),
        },
        usage: Usage {
            input_tokens: used,
            ..Usage::default()
        },
        digests: OutputDigests::default(),
        runner_stopped: true,
        result: None,
    }
}

#[test]
fn stopped_runner_interrupts_turn_unless_policy_restarts_it() {
    let (mut world, id) = running_under(RestartPolicy::Never);
    assert_eq!(world.report(id, stopped_with_runner(70)), ["TurnEnded"]);
    let reason = String::from("the service was stopped");
    let stopped = Settled::Interrupted { reason };
    assert_eq!(world.thread(id).status, Status::Settled(stopped.into()));

    let (mut world, id) = running_under(RestartPolicy::OnLost);
    assert_eq!(
        world.report(id, stopped_with_runner(70)),
        ["UsageRecorded", "ThreadPlaced"]
    );
    let thread = world.thread(id);
    assert_eq!((thread.status.kind(), thread.generation.get()), (PendingInit, 2));
    assert_eq!(thread.total_usage().input_tokens, 70);
    world.begin(id);
    assert_eq!(world.end(id, settled(Completed)), ["TurnEnded"]);

    // A turn with a pending interrupt is not started again.
    let (mut world, id) = running_under(RestartPolicy::OnLost);
    world.run(&interrupt(operator(), id));
    assert_eq!(world.report(id, stopped_with_runner(0)), ["TurnEnded"]);
    assert_eq!(world.status(id), Interrupted);
}

#[test]
fn interrupted_turn_is_not_restarted_after_runner_loss() {
    for (policy, running) in [
        (RestartPolicy::Never, false),
        (RestartPolicy::OnLost, false),
        (RestartPolicy::OnLost, true),
    ] {
        let (mut world, _) = running_under(policy);
        let id = world.spawn(world.root());
        world.dispatch(id);
        if running {
            world.report(id, started(1));
        }
        world.run(&interrupt(operator(), id));
        world.lose(id);
        assert!(
            matches!(world.status(id), Interrupted | Errored),
            "the thread is {}, as without the request",
            world.status(id)
        );
    }
}

#[test]
fn runner_loss_without_matching_attempt_is_ignored() {
    assert_void_unless(Running, World::loss);
    let (mut world, id) = World::with_thread_in(Running);
    let root = world.root();
    assert_eq!(world.lose(root), NOTHING, "its client executes it");
    for generation in [0, 2] {
        let command = Command::LoseRunner {
            thread: id,
            generation: Generation::new(generation),
            reason: String::from("lost"),
        };
        assert_eq!(world.run(&command), NOTHING, "another attempt");
    }
}

#[test]
fn reports_after_close_are_ignored() {
    let (mut world, id) = World::with_thread_in(Running);
    let late = world.says(id, ended(1, settled(Completed)));
    world.close(id);
    assert_eq!(world.run(&late), NOTHING);
    world.run(&resume(operator(), id));
    assert_eq!(world.run(&late), NOTHING);
}

// ---- turns that cannot start ----

#[test]
fn refused_start_settles_the_thread() {
    let refuse = |id, generation| Command::RefuseStart {
        thread: id,
        generation: Generation::new(generation),
        message: String::from("POLICY_NOT_ENFORCEABLE: web_search"),
    };
    let (mut world, id) = World::with_thread_in(PendingInit);
    world.dispatch(id);
    assert_eq!(world.run(&refuse(id, 2)), NOTHING);
    assert_eq!(world.run(&refuse(id, 1)), ["TurnEnded"]);
    assert_eq!(world.status(id), Errored);
    assert_void_unless(PendingInit, |world, id| refuse(id, world.thread(id).generation.get()));
}

#[test]
fn undispatchable_turn_settles_thread_until_next_input() {
    let refuse = |id, generation| Command::RefuseTurn {
        thread: id,
        generation: Generation::new(generation),
        message: String::from("the turn cannot be dispatched: it is too large"),
    };
    let (mut world, id) = World::with_thread_in(PendingInit);
    assert_eq!(world.run(&refuse(id, 2)), NOTHING, "another attempt");
    assert_eq!(world.run(&refuse(id, 1)), ["TurnEnded"]);
    assert_eq!(world.status(id), Errored);
    assert_eq!(world.effect(id), None, "it is not tried again by itself");
    world.run(&send(operator(), id));
    world.dispatch(id);
    assert_eq!(world.run(&refuse(id, 1)), NOTHING, "it was dispatched");

    // A report for a later turn does not count for the previous turn. Otherwise the thread would continue at once.
    let (mut world, id) = World::with_thread_in(Completed);
    world.run(&send(operator(), id));
    assert_eq!(world.run(&refuse(id, 1)), ["TurnEnded"]);
    assert_eq!(world.status(id), Errored);
    assert_eq!(world.effect(id), None);
    assert_void_unless(PendingInit, |world, id| refuse(id, world.thread(id).generation.get()));
}

#[test]
fn outdated_dispatch_is_ignored() {
    let r0 = RunnerId::new("r0");
    let (mut world, id) = World::with_thread_in(PendingInit);
    let early = world.dispatch_to(id, &r0);
    world.run(&send(operator(), id));
    assert_eq!(
        world.run(&dispatching(early)),
        NOTHING,
        "its prompt lacks the newest input"
    );
    let good = world.dispatch_to(id, &r0);
    world.pause(true);
    assert_eq!(world.run(&dispatching(good.clone())), NOTHING, "paused");
    world.pause(false);
    assert_eq!(
        world.run(&dispatching(good.clone())),
        ["ThreadPlaced", "TurnDispatched"]
    );
    assert_eq!(world.run(&dispatching(good)), NOTHING, "it was dispatched");
    assert!(matches!(&world.thread(id).turn, LatestTurn::Dispatched { inputs, .. } if inputs.len() == 2));

    assert_void_unless(PendingInit, |world, id| dispatching(world.dispatch_to(id, &r0)));
    let (mut world, id) = World::with_thread_in(PendingInit);
    let dispatch = world.dispatch_to(id, &r0);
    world.run(&close(operator(), id));
    assert_eq!(world.run(&dispatching(dispatch)), NOTHING, "fenced");
}
