//! Groups: which items start, how items and groups end, and whether the join stays consistent for any order of events.

use std::{sync::Arc, time::Duration};

use proptest::prelude::*;
use supervisor_core::{
    command::{Command, NewGroup},
    content::ContentRef,
    decide::group::MAX_OPEN_GROUPS,
    event::{Artifact, ConditionKind},
    group::{GroupLimits, GroupLimitsChange, GroupOutcome, GroupSpec, ItemRef, Join, OnFailure},
    ids::{ArtifactId, GroupId, ThreadId, Turn},
    principal::Caller,
    settings::Budget,
    state::group::{Group, GroupStage, ItemState},
    status::StatusKind::{self, Completed, Errored, Shutdown},
};
use uuid::Uuid;

use crate::{
    budgets::{bounded, tokens},
    world::{NOTHING, World, close, completed, decision, operator, settled, spawning, text},
};

const GROUP: GroupId = GroupId::from_uuid(Uuid::from_u128(900));

/// Returns the spec of a group of items.
fn spec(items: u32, max_concurrency: u32) -> GroupSpec {
    GroupSpec {
        id: GROUP,
        name: String::from("review"),
        creator: operator().actor(),
        plan: text("plan"),
        item_count: items,
        join: Join::All,
        on_failure: OnFailure::Continue,
        item_deadline: None,
        retries: 0,
        budget: Budget::default(),
        limits: GroupLimits {
            max_concurrency,
            tolerated_failures: 0,
            paused: false,
        },
    }
}

fn new(world: &mut World, spec: GroupSpec) -> NewGroup {
    NewGroup {
        caller: operator(),
        parent: world.root(),
        spec: Arc::new(spec),
        item_budget: Budget::default(),
        role: String::from("worker"),
        approval_above: None,
        approval: world.new_approval_id(),
    }
}

fn create(world: &mut World, spec: GroupSpec) {
    let new = new(world, spec);
    world.run(&Command::CreateGroup(Box::new(new)));
}

fn with_group(spec: GroupSpec) -> World {
    let (mut world, _) = World::with_slots(100);
    create(&mut world, spec);
    world
}

fn group(world: &World) -> &Group {
    world.session.group(GROUP).expect("the group exists")
}

fn startable(world: &World) -> Vec<u32> {
    group(world).startable().collect()
}

fn states(world: &World) -> Vec<ItemState> {
    group(world).items.iter().map(|item| item.state).collect()
}

fn spawn_of(world: &mut World, item: u32) -> Command {
    let mut spawn = world.wanted(world.root());
    spawn.spawned.item = Some(ItemRef { group: GROUP, item });
    spawning(spawn)
}

/// Spawns the thread of an item and starts its turn.
fn start(world: &mut World, item: u32) -> ThreadId {
    let command = spawn_of(world, item);
    let Command::Spawn(spawn) = &command else {
        panic!("it is a spawn")
    };
    let id = spawn.id;
    world.run(&command);
    world.begin(id);
    id
}

fn table() -> Artifact {
    Artifact {
        id: ArtifactId::from_uuid(Uuid::from_u128(901)),
        name: String::from("group-results.json"),
        kind: String::from("group-results"),
        media_type: String::from("application/json"),
        content: ContentRef { ..text("[]") },
        turn: Turn::ZERO,
    }
}

fn end(world: &mut World) -> Vec<&'static str> {
    world.run(&Command::EndGroup {
        group: GROUP,
        table: Box::new(table()),
    })
}

fn cancel() -> Command {
    Command::CancelGroup {
        caller: operator(),
        group: GROUP,
        reason: String::from("enough"),
    }
}

fn retry(caller: Caller) -> Command {
    Command::RetryGroup { caller, group: GROUP }
}

fn outcome(world: &World) -> Option<GroupOutcome> {
    match &group(world).stage {
        GroupStage::Ending(outcome, _) | GroupStage::Ended(outcome, _) => Some(*outcome),
        GroupStage::AwaitingApproval(_) | GroupStage::Running => None,
    }
}

#[test]
fn items_start_up_to_the_concurrency() {
    let mut world = with_group(spec(5, 2));
    assert_eq!(startable(&world), [0, 1]);
    let first = start(&mut world, 0);
    assert_eq!(startable(&world), [1]);
    start(&mut world, 1);
    assert!(startable(&world).is_empty());
    for item in [0, 2, 9] {
        let again = spawn_of(&mut world, item);
        assert_eq!(
            world.rejection(&again),
            format!("item {item} of group {GROUP} may not start now")
        );
    }
    assert_eq!(
        world.end(first, settled(Completed)),
        ["TurnEnded", "GroupItemEnded", "CloseRequested"]
    );
    assert_eq!(startable(&world), [2]);
    world.wind_down();
    assert_eq!(world.status(first), Shutdown);
    assert_eq!(group(&world).count_of(ItemState::Succeeded), 1);
}

#[test]
fn group_ends_once_with_one_letter() {
    let mut world = with_group(spec(2, 2));
    for item in 0..2 {
        let thread = start(&mut world, item);
        world.end(thread, settled(Completed));
    }
    assert_eq!(outcome(&world), Some(GroupOutcome::Succeeded));
    assert!(world.thread(world.root()).mail.is_empty());
    assert_eq!(end(&mut world), ["ArtifactRecorded", "GroupEnded"]);
    assert_eq!(world.thread(world.root()).mail.len(), 1);
    assert_eq!(end(&mut world), NOTHING);
    assert!(group(&world).has_ended());
}

#[test]
fn failed_item_is_retried_then_fails() {
    let mut world = with_group(GroupSpec {
        retries: 1,
        ..spec(1, 1)
    });
    let first = start(&mut world, 0);
    world.end(first, settled(Errored));
    assert_eq!(states(&world), [ItemState::Pending]);
    assert_eq!(startable(&world), [0]);
    let second = start(&mut world, 0);
    assert_ne!(first, second);
    world.end(second, settled(Errored));
    assert_eq!(states(&world), [ItemState::Failed]);
    assert_eq!(group(&world).item(0).unwrap().attempts, 2);
    assert_eq!(outcome(&world), Some(GroupOutcome::Failed));
    world.wind_down();
    end(&mut world);

    world.run(&retry(operator()));
    assert_eq!(startable(&world), [0]);
    let third = start(&mut world, 0);
    world.end(third, settled(Completed));
    assert_eq!(outcome(&world), Some(GroupOutcome::Succeeded));
}

#[test]
fn quorum_cancels_the_rest() {
    let mut world = with_group(GroupSpec {
        join: Join::Quorum(1),
        ..spec(4, 2)
    });
    let (first, second) = (start(&mut world, 0), start(&mut world, 1));
    world.end(first, settled(Completed));
    let [succeeded, cancelled] = [ItemState::Succeeded, ItemState::Cancelled];
    assert_eq!(states(&world), [succeeded, ItemState::Running, cancelled, cancelled]);
    world.wind_down();
    assert_eq!(states(&world), [succeeded, cancelled, cancelled, cancelled]);
    assert_eq!(world.status(second), Shutdown);
    assert_eq!(outcome(&world), Some(GroupOutcome::Succeeded));
}

#[test]
fn failures_above_tolerance_cancel_the_rest_if_asked() {
    for (on_failure, ends) in [(OnFailure::CancelRest, true), (OnFailure::Continue, false)] {
        let mut spec = GroupSpec {
            on_failure,
            ..spec(3, 1)
        };
        spec.limits.tolerated_failures = 1;
        let mut world = with_group(spec);
        for item in 0..2 {
            let thread = start(&mut world, item);
            assert_eq!(outcome(&world), None);
            world.end(thread, settled(Errored));
        }
        assert_eq!(outcome(&world).is_some(), ends, "{on_failure:?}");
    }
}

#[test]
fn cancelled_group_leaves_no_running_thread() {
    let mut world = with_group(spec(5, 2));
    let threads = [start(&mut world, 0), start(&mut world, 1)];
    assert_eq!(
        world.run(&cancel()),
        ["GroupEnding", "CloseRequested", "CloseRequested"]
    );
    assert_eq!(world.run(&cancel()), NOTHING);
    world.wind_down();
    for thread in threads {
        assert_eq!(world.status(thread), Shutdown);
    }
    assert_eq!(group(&world).count_of(ItemState::Cancelled), 5);
    assert_eq!(outcome(&world), Some(GroupOutcome::Cancelled));
}

#[test]
fn closing_the_parent_cancels_the_group() {
    let mut world = with_group(spec(2, 1));
    start(&mut world, 0);
    world.run(&close(operator(), world.root()));
    world.wind_down();
    assert_eq!(group(&world).count_of(ItemState::Cancelled), 2);
    assert_eq!(end(&mut world), ["GroupEnded"]);
}

#[test]
fn item_past_its_deadline_is_closed_and_fails() {
    let mut world = with_group(GroupSpec {
        item_deadline: Some(Duration::from_secs(30)),
        ..spec(1, 1)
    });
    start(&mut world, 0);
    world.pass(Duration::from_secs(31));
    assert_eq!(world.run(&Command::Tick), ["CloseRequested"]);
    world.wind_down();
    assert_eq!(states(&world), [ItemState::Failed]);
    assert_eq!(
        group(&world).item(0).unwrap().reason.as_ref(),
        "the item did not end within 30 s"
    );
}

#[test]
fn question_fails_the_item() {
    let mut world = with_group(spec(1, 1));
    let thread = start(&mut world, 0);
    world.run(&Command::AskParent {
        caller: operator(),
        target: thread,
        question: String::from("which?"),
    });
    assert!(world.has_condition(thread, ConditionKind::AwaitingInput));
    world.end(thread, settled(Completed));
    assert_eq!(states(&world), [ItemState::Failed]);
    assert_eq!(group(&world).item(0).unwrap().reason.as_ref(), "which?");
}

#[test]
fn spent_group_budget_ends_the_group() {
    let mut world = with_group(GroupSpec {
        budget: tokens(10),
        ..spec(3, 1)
    });
    let thread = start(&mut world, 0);
    // Each turn in these tests reports 10 tokens.
    world.end(thread, settled(Completed));
    assert_eq!(outcome(&world), Some(GroupOutcome::Failed));
    assert_eq!(group(&world).count_of(ItemState::Cancelled), 2);
}

#[test]
fn group_above_the_session_budget_is_rejected() {
    let mut world = bounded(tokens(1_000), 10);
    let mut asked = new(&mut world, spec(11, 2));
    asked.item_budget.tokens = Some(100);
    let error = world.rejection(&Command::CreateGroup(Box::new(asked.clone())));
    assert!(error.contains("1100"), "{error}");
    asked.spec = Arc::new(spec(10, 2));
    assert_eq!(world.run(&Command::CreateGroup(Box::new(asked))), ["GroupCreated"]);
}

#[test]
fn approval_starts_or_cancels_the_group() {
    for grant in [true, false] {
        let (mut world, root) = World::with_slots(10);
        let mut asked = new(&mut world, spec(3, 3));
        asked.approval_above = Some(2);
        assert_eq!(
            world.run(&Command::CreateGroup(Box::new(asked.clone()))),
            ["GroupCreated", "ApprovalRequested"]
        );
        assert!(startable(&world).is_empty());
        world.run(&decision(asked.approval, grant));
        if grant {
            assert_eq!(startable(&world), [0, 1, 2]);
        } else {
            assert_eq!(outcome(&world), Some(GroupOutcome::Cancelled));
            assert_eq!(group(&world).count_of(ItemState::Cancelled), 3);
            end(&mut world);
            let error = world.rejection(&retry(world.caller(root)));
            assert_eq!(
                error,
                format!(
                    "group {GROUP} was cancelled before an item ran; create another one, or ask an operator to retry it"
                )
            );
            world.run(&retry(operator()));
            assert_eq!(startable(&world), [0, 1, 2]);
        }
    }
}

#[test]
fn group_without_approval_can_be_cancelled() {
    let (mut world, _) = World::with_slots(10);
    let mut asked = new(&mut world, spec(3, 3));
    asked.approval_above = Some(2);
    world.run(&Command::CreateGroup(Box::new(asked.clone())));
    assert_eq!(world.run(&cancel()), ["ApprovalResolved"]);
    assert_eq!(outcome(&world), Some(GroupOutcome::Cancelled));
    assert_eq!(group(&world).count_of(ItemState::Cancelled), 3);
    let late = world.rejection(&decision(asked.approval, true));
    assert!(late.contains("was decided before: moot by"), "{late}");
}

#[test]
fn small_groups_of_thread_share_approval_limit() {
    let (mut world, root) = World::with_slots(10);
    let caller = world.caller(root);
    let mut group_of = |number: u128, items: u32| {
        let spec = GroupSpec {
            id: GroupId::from_uuid(Uuid::from_u128(number)),
            name: String::new(),
            creator: caller.actor(),
            ..spec(items, 1)
        };
        let asked = NewGroup {
            caller: caller.clone(),
            approval_above: Some(50),
            ..new(&mut world, spec)
        };
        world.run(&Command::CreateGroup(Box::new(asked)))
    };
    assert_eq!(group_of(1, 30), ["GroupCreated"]);
    assert_eq!(group_of(2, 20), ["GroupCreated"]);
    assert_eq!(group_of(3, 1), ["GroupCreated", "ApprovalRequested"]);
}

#[test]
fn open_group_limit_includes_retried_groups() {
    let mut world = with_group(spec(1, 1));
    let thread = start(&mut world, 0);
    world.end(thread, settled(Errored));
    world.wind_down();
    end(&mut world);
    for number in 0..MAX_OPEN_GROUPS {
        let more = GroupSpec {
            id: GroupId::from_uuid(Uuid::from_u128(1_000 + number as u128)),
            name: String::new(),
            ..spec(1, 1)
        };
        create(&mut world, more);
    }
    let error = world.rejection(&retry(operator()));
    assert_eq!(
        error,
        "the session has 32 groups that have not ended; at most 32 are allowed"
    );
}

#[test]
fn second_group_with_same_name_is_rejected() {
    let mut world = with_group(spec(1, 1));
    let again = new(&mut world, spec(1, 1));
    let error = world.rejection(&Command::CreateGroup(Box::new(again)));
    assert_eq!(
        error,
        format!("the group \"review\" exists already: {GROUP}; choose another name")
    );
}

/// A step in the history of a group.
#[derive(Clone, Debug)]
enum Step {
    Start,
    End { nth: usize, kind: StatusKind },
    Lose { nth: usize },
    Fail,
    Pause(bool),
    Concurrency(u32),
    Cancel,
    Retry,
    WindDown,
    EndGroup,
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![3 => Just(Completed), 2 => Just(Errored), 1 => Just(StatusKind::Interrupted)];
    prop_oneof![
        8 => Just(Step::Start),
        8 => (any::<usize>(), kind).prop_map(|(nth, kind)| Step::End { nth, kind }),
        1 => any::<usize>().prop_map(|nth| Step::Lose { nth }),
        1 => Just(Step::Fail),
        1 => any::<bool>().prop_map(Step::Pause),
        1 => (1..5_u32).prop_map(Step::Concurrency),
        1 => Just(Step::Cancel),
        1 => Just(Step::Retry),
        3 => Just(Step::WindDown),
        2 => Just(Step::EndGroup),
    ]
}

/// Checks that the outcome follows from the counts and the join.
fn assert_consistent(world: &World) {
    let group = group(world);
    let count = |state| group.items.iter().filter(|item| item.state == state).count() as u32;
    for state in [
        ItemState::Pending,
        ItemState::Running,
        ItemState::Succeeded,
        ItemState::Failed,
        ItemState::Cancelled,
    ] {
        assert_eq!(group.count_of(state), count(state), "{state:?}");
    }
    for (item, thread) in group.running() {
        let works_on = world.thread(thread).spawned.item;
        assert_eq!(works_on, Some(ItemRef { group: GROUP, item }));
    }
    match &group.stage {
        GroupStage::Running => assert_eq!(group.verdict(), None),
        GroupStage::AwaitingApproval(_) => {}
        GroupStage::Ending(..) | GroupStage::Ended(..) => assert_eq!(group.count_of(ItemState::Pending), 0),
    }
    if group.has_ended() {
        assert_eq!(group.count_of(ItemState::Running), 0);
    }
    if let Some(GroupOutcome::Succeeded) = outcome(world) {
        let enough = match group.spec.join {
            Join::All => group.count_of(ItemState::Failed) <= group.limits.tolerated_failures,
            Join::Quorum(wanted) => group.count_of(ItemState::Succeeded) >= wanted,
        };
        assert!(enough, "{group:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_order_leaves_the_join_consistent(
        steps in proptest::collection::vec(step(), 1..60),
        join in prop_oneof![Just(Join::All), (1..4_u32).prop_map(Join::Quorum)],
        on_failure in prop_oneof![Just(OnFailure::Continue), Just(OnFailure::CancelRest)],
        tolerated in 0..3_u32,
        retries in 0..2_u32,
    ) {
        let mut spec = GroupSpec { join, on_failure, retries, ..spec(6, 2) };
        spec.limits.tolerated_failures = tolerated;
        let mut world = with_group(spec);
        for step in steps {
            let running: Vec<(u32, ThreadId)> = group(&world).running().collect();
            let nth = |nth: usize| running.get(nth % running.len().max(1)).map(|(_, thread)| *thread);
            match step {
                Step::Start => {
                    let before = running.len() as u32;
                    if let Some(item) = startable(&world).first().copied() {
                        start(&mut world, item);
                        prop_assert!(before < group(&world).limits.max_concurrency);
                    }
                }
                Step::End { nth: number, kind } => {
                    if let Some(thread) = nth(number).filter(|thread| world.status(*thread) == StatusKind::Running) {
                        world.end(thread, settled(kind));
                    }
                }
                Step::Lose { nth: number } => {
                    if let Some(thread) = nth(number).filter(|thread| world.status(*thread) == StatusKind::Running) {
                        world.lose(thread);
                    }
                }
                Step::Fail => {
                    if let Some(item) = startable(&world).first().copied() {
                        let reason = String::from("no such role");
                        world.run(&Command::FailItem { item: ItemRef { group: GROUP, item }, reason });
                    }
                }
                Step::Pause(paused) => {
                    let change = GroupLimitsChange { paused: Some(paused), ..GroupLimitsChange::default() };
                    let _ = world.carry_out(&Command::UpdateGroup { caller: operator(), group: GROUP, change });
                }
                Step::Concurrency(wanted) => {
                    let change = GroupLimitsChange { max_concurrency: Some(wanted), ..GroupLimitsChange::default() };
                    let _ = world.carry_out(&Command::UpdateGroup { caller: operator(), group: GROUP, change });
                }
                Step::Cancel => {
                    let _ = world.carry_out(&cancel());
                }
                Step::Retry => {
                    let _ = world.carry_out(&retry(operator()));
                }
                Step::WindDown => world.wind_down(),
                Step::EndGroup => {
                    end(&mut world);
                }
            }
            assert_consistent(&world);
        }
    }
}

#[test]
fn item_with_empty_message_does_not_fail() {
    let mut world = with_group(spec(1, 1));
    let thread = start(&mut world, 0);
    world.end(thread, completed(None));
    assert_eq!(states(&world), [ItemState::Succeeded]);
}
