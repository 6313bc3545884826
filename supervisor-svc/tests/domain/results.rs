//! Results that an input requests, repair turns, and questions to the parent.

use supervisor_core::{
    command::{Command, Report, ResultCheck},
    event::{ConditionKind, Event, ThreadEvent},
    ids::ThreadId,
    principal::{Actor, Caller},
    status::{
        Settled, Status,
        StatusKind::{self, Completed, Errored, Interrupted, PendingInit, Queued, Running, Shutdown},
    },
};

use crate::world::{World, close, ended, operator, send, settled, text};

/// Returns a thread that runs a turn whose input has a result schema.
fn asked(repairs: u32) -> (World, ThreadId) {
    let (mut world, root) = World::with_slots(1);
    let id = world.spawn_with(root, |spawn| spawn.spawned.result_repairs = Some(repairs));
    world.begin(id);
    (world, id)
}

fn report(caller: Caller, target: ThreadId, document: &str) -> Command {
    Command::ReportResult {
        caller,
        target,
        result: text(document),
    }
}

fn ask(caller: Caller, target: ThreadId, question: &str) -> Command {
    Command::AskParent {
        caller,
        target,
        question: question.to_owned(),
    }
}

fn send_with_schema(target: ThreadId, repairs: u32) -> Command {
    let mut command = send(operator(), target);
    if let Command::SendInput { result_repairs, .. } = &mut command {
        *result_repairs = Some(repairs);
    }
    command
}

fn valid() -> ResultCheck {
    ResultCheck::Valid(text("{}"))
}

fn invalid() -> ResultCheck {
    ResultCheck::Invalid {
        errors: String::from("- at /a: no"),
        repair: text("repair it"),
    }
}

/// Ends the running turn with a check of its last message.
fn end_checked(world: &mut World, id: ThreadId, kind: StatusKind, check: ResultCheck) -> Vec<&'static str> {
    let turn = world.thread(id).turn.number().get();
    let mut report = ended(turn, settled(kind));
    if let Report::TurnEnded { result, .. } = &mut report {
        *result = Some(Box::new(check));
    }
    world.report(id, report)
}

fn result(world: &World, id: ThreadId) -> Option<(u32, String)> {
    let result = world.thread(id).result.clone()?;
    Some((result.turn.get(), result.content.preview.clone()))
}

fn question(world: &World, id: ThreadId) -> Option<&str> {
    let condition = world.thread(id).conditions.get(&ConditionKind::AwaitingInput)?;
    Some(&condition.1)
}

/// Returns the number of letters in the root's mailbox.
fn letters(world: &World) -> usize {
    world.thread(world.root()).mail.len()
}

#[test]
fn reported_result_belongs_to_the_thread() {
    let (mut world, id) = asked(1);
    let own = world.caller(id);
    assert_eq!(world.run(&report(own.clone(), id, "{\"a\": 1}")), ["ResultReported"]);
    assert_eq!(world.run(&report(own, id, "{\"a\": 2}")), ["ResultReported"]);
    assert_eq!(end_checked(&mut world, id, Completed, invalid()), ["TurnEnded"]);
    assert_eq!(result(&world, id), Some((1, String::from("{\"a\": 2}"))));

    // Input without a schema keeps the result. Input with a schema removes the result when its turn is dispatched.
    world.next_turn(id);
    world.end(id, settled(Completed));
    assert!(result(&world, id).is_some());
    world.run(&send_with_schema(id, 0));
    assert!(result(&world, id).is_some());
    world.begin(id);
    assert_eq!(result(&world, id), None);
}

#[test]
fn last_message_can_be_the_result() {
    let (mut world, id) = asked(1);
    assert_eq!(
        end_checked(&mut world, id, Completed, valid()),
        ["ResultReported", "TurnEnded"]
    );
    assert_eq!(result(&world, id), Some((1, String::from("{}"))));
    assert_eq!(world.status(id), Completed);
}

#[test]
fn invalid_result_is_repaired_then_fails() {
    let (mut world, id) = asked(2);
    for turn in 1..3_u32 {
        assert_eq!(
            end_checked(&mut world, id, Completed, invalid()),
            ["TurnEnded", "InputQueued", "ThreadAdmitted"],
            "{turn}"
        );
        let repair = world.log.iter().rev().find_map(|recorded| match &recorded.event {
            Event::Thread(_, ThreadEvent::InputQueued { input, from, .. }) => {
                Some((input.preview.clone(), from.clone()))
            }
            _ => None,
        });
        assert_eq!(repair, Some((String::from("repair it"), Actor::Service)));
        assert_eq!(letters(&world), 0, "the parent is notified after the repair turn");
        world.begin(id);
    }
    assert_eq!(end_checked(&mut world, id, Completed, invalid()), ["TurnEnded"]);
    let Status::Settled(outcome) = &world.thread(id).status else {
        panic!("the thread is settled");
    };
    assert_eq!(
        **outcome,
        Settled::Errored {
            message: String::from("RESULT_INVALID: - at /a: no"),
            content: None
        }
    );
    assert_eq!(letters(&world), 1);

    // The result stays requested, so a later turn can still report it.
    world.next_turn(id);
    assert_eq!(
        end_checked(&mut world, id, Completed, valid()),
        ["ResultReported", "TurnEnded"]
    );
}

#[test]
fn failed_turn_is_not_repaired() {
    for kind in [Errored, Interrupted] {
        let (mut world, id) = asked(3);
        assert_eq!(end_checked(&mut world, id, kind, valid()), ["TurnEnded"], "{kind}");
        assert_eq!(world.status(id), kind);
        assert_eq!(result(&world, id), None);
    }
}

#[test]
fn repair_waits_behind_queued_threads() {
    let (mut world, id) = asked(1);
    let other = world.enqueue(world.root());
    assert_eq!(
        end_checked(&mut world, id, Completed, invalid()),
        ["TurnEnded", "InputQueued", "ThreadAdmitted"]
    );
    assert_eq!(world.status(id), Queued);
    assert!(world.thread(other).status.kind().is_active());
}

#[test]
fn repair_keeps_slot_that_closing_frees() {
    let (mut world, root) = World::with_one_kept_slot();
    let id = world.spawn_with(root, |spawn| spawn.spawned.result_repairs = Some(1));
    world.begin(id);
    let other = world.enqueue(root);
    assert_eq!(
        end_checked(&mut world, id, Completed, invalid()),
        ["TurnEnded", "InputQueued", "ThreadAdmitted"]
    );
    assert_eq!(world.status(id), PendingInit);
    assert_eq!(world.status(other), Queued);
}

#[test]
fn question_suspends_the_request_until_it_is_answered() {
    let (mut world, id) = asked(0);
    let own = world.caller(id);
    assert_eq!(world.run(&ask(own, id, "which?")), ["ConditionChanged"]);
    assert_eq!(end_checked(&mut world, id, Completed, invalid()), ["TurnEnded"]);
    assert_eq!(world.status(id), Completed);
    assert_eq!(question(&world, id), Some("which?"));

    world.run(&send(operator(), id));
    assert_eq!(question(&world, id), None);
    world.begin(id);
    assert_eq!(end_checked(&mut world, id, Completed, invalid()), ["TurnEnded"]);
    assert_eq!(world.status(id), Errored, "the result is still requested");
}

#[test]
fn report_and_question_need_a_running_turn() {
    for kind in [Queued, Completed, Shutdown] {
        let (mut world, id) = World::with_thread_in(kind);
        for command in [report(operator(), id, "{}"), ask(operator(), id, "which?")] {
            assert_eq!(
                world.rejection(&command),
                format!("agent with id {id} is {kind}; it cannot answer, because it has no turn")
            );
        }
    }
    let (mut world, id) = World::with_thread_in(Running);
    let error = world.rejection(&report(operator(), id, "{}"));
    assert!(error.contains("has no result to report"), "{error}");
}

#[test]
fn close_ends_request_and_question() {
    let (mut world, id) = asked(1);
    let own = world.caller(id);
    world.run(&ask(own, id, "which?"));
    world.run(&close(operator(), id));
    assert_eq!(end_checked(&mut world, id, Completed, invalid()), ["TurnEnded"]);
    world.wind_down();
    assert_eq!(world.thread(id).result_request, None);
    assert_eq!(question(&world, id), None);
}
