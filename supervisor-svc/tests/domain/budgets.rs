//! Budgets: reservation for children, the hard stop, and continuation after it.

use std::time::Duration;

use proptest::{collection::vec, option, prelude::*};
use supervisor_core::{
    command::{Command, Report, SettingsUpdate},
    decide::tick,
    event::{ConditionKind, Event, Recorded, Spawned, ThreadEvent},
    evolve::evolve,
    ids::{Generation, ThreadId},
    principal::Caller,
    resource::Resource,
    rules::budget,
    settings::{Budget, Currency, OnLimit, Price, Urgency, Usage},
    state::session::Session,
    status::StatusKind::{self, Completed, Interrupted, PendingInit, Queued, Running},
    time::UnixMillis,
};

use crate::world::{
    NOTHING, World, changed, client_root, close, ended_with, is_closed, operator, resume, send, send_with, settings,
    settled, spawning,
};

pub fn tokens(amount: u64) -> Budget {
    Budget {
        tokens: Some(amount),
        ..Budget::default()
    }
}

pub fn turns(amount: u32) -> Budget {
    Budget {
        turns: Some(amount),
        ..Budget::default()
    }
}

fn millis(amount: u64) -> Budget {
    Budget {
        wall_time: Some(Duration::from_millis(amount)),
        ..Budget::default()
    }
}

/// Returns a session with this budget and number of slots.
pub fn bounded(budget: Budget, max_threads: u32) -> World {
    let mut settings = settings();
    settings.budget = budget;
    settings.limits.max_threads = max_threads;
    let root = Spawned {
        budget,
        ..client_root()
    };
    World::open(settings, root)
}

fn budgeted_spawn(world: &mut World, parent: ThreadId, budget: Budget) -> Command {
    let mut spawn = world.wanted(parent);
    spawn.spawned.budget = budget;
    spawning(spawn)
}

/// Spawns a thread with a budget and starts its turn.
fn running_with(world: &mut World, parent: ThreadId, budget: Budget) -> ThreadId {
    let id = world.spawn_with(parent, |spawn| spawn.spawned.budget = budget);
    world.begin(id);
    id
}

/// Returns the report of the present attempt that it has used this number of tokens.
fn used(world: &World, id: ThreadId, amount: u64) -> Command {
    Command::RecordUsage {
        thread: id,
        generation: world.thread(id).generation,
        usage: usage(amount),
        price: None,
    }
}

fn usage(amount: u64) -> Usage {
    Usage {
        input_tokens: amount,
        ..Usage::default()
    }
}

pub fn give(caller: Caller, target: ThreadId, budget: Budget) -> Command {
    Command::UpdateBudget { caller, target, budget }
}

fn reason(world: &World, id: ThreadId) -> Option<&str> {
    let condition = world.thread(id).conditions.get(&ConditionKind::BudgetExhausted);
    condition.map(|(_, reason)| reason.as_str())
}

fn is_spent(id: ThreadId, what: &str) -> String {
    format!("the budget of agent {id} is spent ({what}); raise it with UpdateThreadBudget")
}

// ---- reservation ----

#[test]
fn child_budget_is_reserved_from_its_parents_budget() {
    let mut world = bounded(tokens(1_000), 9);
    let root = world.root();
    let lead = running_with(&mut world, root, tokens(600));
    let second = budgeted_spawn(&mut world, root, tokens(500));
    assert_eq!(
        world.rejection(&second),
        format!(
            "budget.tokens 500 is more than agent {root} has left: of 1000, 0 are spent and 600 reserved; ask for at most \
             400, leave it out to share that budget, or raise that budget with UpdateThreadBudget"
        )
    );
    // Spent amounts are no longer reserved.
    world.run(&used(&world, lead, 250));
    let second = budgeted_spawn(&mut world, root, tokens(401));
    assert!(
        world
            .rejection(&second)
            .contains("of 1000, 250 are spent and 350 reserved; ask for at most 400")
    );
    let third = budgeted_spawn(&mut world, root, tokens(400));
    world.run(&third);

    // Closing settles: the unspent part is free again.
    world.close(lead);
    let fourth = budgeted_spawn(&mut world, root, tokens(350));
    world.run(&fourth);
}

#[test]
fn nearest_budget_limits_each_resource() {
    let mut world = bounded(turns(5), 9);
    let root = world.root();
    let lead = running_with(&mut world, root, tokens(100));
    let both = Budget {
        tokens: Some(60),
        turns: Some(4),
        wall_time: Some(Duration::from_secs(9)),
        cost: None,
    };
    let helper = budgeted_spawn(&mut world, lead, both);
    world.run(&helper);
    for (budget, field) in [(tokens(41), "budget.tokens 41"), (turns(2), "budget.turns 2")] {
        let more = budgeted_spawn(&mut world, lead, budget);
        assert!(world.rejection(&more).starts_with(field));
    }
    let shares = budgeted_spawn(&mut world, lead, Budget::default());
    world.run(&shares);
}

#[test]
fn resume_requires_space_for_the_remaining_budget() {
    let mut world = bounded(tokens(100), 9);
    let root = world.root();
    let first = running_with(&mut world, root, tokens(80));
    world.run(&used(&world, first, 30));
    world.close(first);
    let second = budgeted_spawn(&mut world, root, tokens(30));
    world.run(&second);
    assert!(
        world
            .rejection(&resume(operator(), first))
            .contains("budget.tokens 80 is more than")
    );
    world.run(&give(operator(), root, tokens(110)));
    assert_eq!(world.run(&resume(operator(), first)), ["ThreadResumed"]);
}

#[test]
fn only_ancestors_can_raise_a_budget() {
    let mut world = bounded(tokens(100), 9);
    let root = world.root();
    let lead = running_with(&mut world, root, tokens(50));
    let helper = running_with(&mut world, lead, tokens(20));
    let (by_lead, by_helper) = (world.caller(lead), world.caller(helper));
    for more in [tokens(21), Budget::default()] {
        assert_eq!(
            world.rejection(&give(by_helper.clone(), helper, more)),
            format!("agent {helper} may lower its own budget only; its parent or an operator can raise it")
        );
    }
    assert_eq!(world.run(&give(by_helper, helper, tokens(10))), ["BudgetUpdated"]);
    assert_eq!(world.run(&give(by_lead.clone(), helper, tokens(50))), ["BudgetUpdated"]);
    assert_eq!(world.run(&give(by_lead.clone(), helper, tokens(50))), NOTHING);
    assert!(
        world
            .rejection(&give(by_lead, helper, tokens(51)))
            .contains("ask for at most 50")
    );
    world.close(helper);
    assert_eq!(world.rejection(&give(operator(), helper, tokens(1))), is_closed(helper));
}

#[test]
fn session_budget_equals_root_budget() {
    let mut world = bounded(tokens(100), 9);
    let root = world.root();
    assert_eq!(world.run(&give(operator(), root, tokens(200))), ["BudgetUpdated"]);
    assert_eq!(world.session.settings.budget, tokens(200));
    let update = SettingsUpdate {
        change: changed(|change| change.budget = Some(tokens(300))),
        ..SettingsUpdate::default()
    };
    assert_eq!(world.run(&Command::UpdateSession(Box::new(update))), ["SessionUpdated"]);
    assert_eq!(world.thread(root).budget, tokens(300));
    assert_eq!(World::replay(&world.log), world.session);
}

// ---- the hard stop ----

#[test]
fn spent_budget_stops_only_its_subtree() {
    let (mut world, root) = World::with_slots(9);
    let lead = running_with(&mut world, root, tokens(100));
    let helper = world.spawn_running(lead);
    let other = world.spawn_running(root);
    assert_eq!(world.run(&used(&world, lead, 60)), ["UsageRecorded"]);
    assert_eq!(
        world.run(&used(&world, helper, 40)),
        [
            "UsageRecorded",
            "ConditionChanged",
            "InterruptRequested",
            "InterruptRequested"
        ]
    );
    assert_eq!(reason(&world, lead), Some("tokens 100 of 100"));
    assert!(world.thread(lead).interrupt.is_some() && world.thread(helper).interrupt.is_some());
    assert!(world.thread(other).interrupt.is_none());

    for target in [lead, helper] {
        assert_eq!(world.rejection(&send(operator(), target)), is_spent(lead, "tokens"));
    }
    let spawn = budgeted_spawn(&mut world, lead, Budget::default());
    assert_eq!(world.rejection(&spawn), is_spent(lead, "tokens"));
    world.run(&send(operator(), other));

    // Usage in flight exceeds the budget further. The condition stays unchanged.
    assert_eq!(world.run(&used(&world, helper, 70)), ["UsageRecorded"]);
    assert_eq!(world.end(helper, settled(Interrupted)), ["TurnEnded"]);
    assert_eq!(world.thread(lead).subtree_usage.tokens(), 140);
    assert!(world.status(lead).is_open(), "nothing is closed");
}

#[test]
fn exhausted_budget_interrupts_pending_turns() {
    let mut world = bounded(tokens(10), 2);
    let root = world.root();
    let runs = world.spawn_running(root);
    let starts = world.spawn(root);
    let waits = world.enqueue(root);
    world.run(&used(&world, runs, 10));
    assert!(world.thread(runs).interrupt.is_some());
    for id in [starts, waits] {
        assert_eq!(world.status(id), Interrupted);
        assert_eq!(world.waiting_inputs(id), [1], "its input is not lost");
    }
    world.run(&give(operator(), root, tokens(100)));
    assert_eq!(world.status(waits), Interrupted, "it waits for its next input");
    world.run(&send(operator(), waits));
    assert_eq!(
        (world.status(waits), world.waiting_inputs(waits)),
        (PendingInit, vec![1, 2])
    );
}

#[test]
fn turn_budget_of_one_allows_one_turn() {
    let (mut world, root) = World::with_slots(9);
    let id = running_with(&mut world, root, turns(1));
    assert_eq!(world.end(id, settled(Completed)), ["TurnEnded", "ConditionChanged"]);
    assert_eq!(reason(&world, id), Some("turns 1 of 1"));
    assert_eq!(world.rejection(&send(operator(), id)), is_spent(id, "turns"));

    assert_eq!(
        world.run(&give(operator(), id, turns(2))),
        ["BudgetUpdated", "ConditionChanged"]
    );
    assert_eq!(reason(&world, id), None);
    world.next_turn(id);
    assert_eq!(world.end(id, settled(Completed)), ["TurnEnded", "ConditionChanged"]);
}

#[test]
fn raised_budget_starts_turn_for_waiting_input() {
    let (mut world, root) = World::with_slots(9);
    let id = running_with(&mut world, root, tokens(10));
    world.run(&send(operator(), id));
    world.run(&used(&world, id, 10));
    assert_eq!(world.end(id, settled(Interrupted)), ["TurnEnded"]);
    assert_eq!(
        world.run(&give(operator(), id, tokens(50))),
        ["BudgetUpdated", "ConditionChanged", "ThreadAdmitted"]
    );
    assert_eq!(world.waiting_inputs(id), [2]);
}

#[test]
fn budget_below_usage_interrupts_turn_at_once() {
    let (mut world, id) = World::with_thread_in(Running);
    world.run(&used(&world, id, 50));
    assert_eq!(
        world.run(&give(operator(), id, tokens(40))),
        ["BudgetUpdated", "ConditionChanged", "InterruptRequested"]
    );
    assert_eq!(reason(&world, id), Some("tokens 50 of 40"));
}

// ---- usage ----

#[test]
fn unchanged_usage_is_ignored() {
    let (mut world, root) = World::with_slots(9);
    let id = world.spawn_running(root);
    world.run(&used(&world, id, 50));
    let late = Command::RecordUsage {
        thread: id,
        generation: Generation::new(0),
        usage: usage(90),
        price: None,
    };
    for command in [used(&world, id, 50), used(&world, id, 49), late, used(&world, root, 90)] {
        assert_eq!(world.run(&command), NOTHING, "{command:?}");
    }
    // The end of the turn reports less than telemetry did. The higher, known value stays.
    world.end(id, settled(Completed));
    assert_eq!(world.thread(id).usage.input_tokens, 50);
    assert_eq!(world.thread(id).usage.turns, 1);
    assert_eq!(world.run(&used(&world, id, 90)), NOTHING, "no turn runs");
}

#[test]
fn telemetry_is_recorded_at_a_spent_budget_or_interval() {
    let (mut world, root) = World::with_slots(9);
    let lead = running_with(&mut world, root, tokens(100));
    let id = world.spawn_running(lead);
    let (session, generation, begun) = (&world.session, world.thread(id).generation, world.thread(id).metered);
    let is_due = |amount, after: Duration| {
        budget::is_checkpoint_due(session, id, generation, &usage(amount), None, begun.plus(after))
    };
    let soon = Duration::from_secs(1);
    assert!(!is_due(99, soon));
    assert!(is_due(100, soon));
    assert!(is_due(1, budget::CHECKPOINT));
    assert!(!is_due(0, budget::CHECKPOINT), "there is nothing new");
    assert!(!budget::is_checkpoint_due(
        session,
        id,
        generation.next(),
        &usage(100),
        None,
        begun.plus(soon)
    ));
}

// ---- cost ----

/// In millionths: 2 for an input token, 0.5 for a cached input token, 10 for an output token.
const PRICE: Price = Price {
    input: 2_000_000,
    cached_input: 500_000,
    output: 10_000_000,
};

fn priced(world: &World, id: ThreadId, usage: Usage, price: Option<Price>) -> Command {
    Command::RecordUsage {
        thread: id,
        generation: world.thread(id).generation,
        usage,
        price,
    }
}

/// Ends the thread's turn with this usage in the program's report.
fn end_priced(world: &mut World, id: ThreadId, usage: Usage, price: Option<Price>) {
    let mut report = ended_with(world.thread(id).turn.number().get(), settled(Completed), usage);
    if let Report::TurnEnded { price: present, .. } = &mut report {
        *present = price;
    }
    world.report(id, report);
}

#[test]
fn price_of_each_kind_of_token_counts() {
    let usage = Usage {
        input_tokens: 100,
        cached_input_tokens: 60,
        output_tokens: 7,
        ..Usage::default()
    };
    assert_eq!(PRICE.of(&usage), 40 * 2 + 60 / 2 + 7 * 10);
    let one = Usage {
        input_tokens: 1,
        cached_input_tokens: 1,
        ..Usage::default()
    };
    assert_eq!(PRICE.of(&one), 1, "a part of a millionth counts as one");
    let extreme = Usage {
        input_tokens: u64::MAX,
        output_tokens: u64::MAX,
        ..Usage::default()
    };
    assert_eq!(PRICE.of(&extreme), u64::MAX);
}

#[test]
fn cost_budget_of_an_ancestor_stops_the_turn() {
    let (mut world, root) = World::with_slots(9);
    let bound = Budget {
        cost: Some(200),
        ..Budget::default()
    };
    let lead = running_with(&mut world, root, bound);
    let id = world.spawn_running(lead);
    world.run(&priced(&world, id, usage(99), Some(PRICE)));
    assert_eq!(world.thread(lead).subtree_usage.cost, 198);
    assert_eq!(reason(&world, lead), None);
    world.run(&priced(&world, id, usage(100), Some(PRICE)));
    assert_eq!(reason(&world, lead), Some("cost 0.0002 of 0.0002"));
}

#[test]
fn changed_price_applies_to_later_tokens() {
    let (mut world, id) = World::with_thread_in(Running);
    world.run(&priced(&world, id, usage(10), Some(PRICE)));
    world.run(&priced(&world, id, usage(30), None));
    let known = world.thread(id).usage;
    assert_eq!(
        (known.cost, known.unpriced_tokens),
        (20, 20),
        "tokens without a price are counted separately"
    );
    let dearer = Price {
        input: 3_000_000,
        ..PRICE
    };
    end_priced(&mut world, id, usage(40), Some(dearer));
    let known = world.thread(id).usage;
    assert_eq!((known.cost, known.unpriced_tokens), (50, 20));
}

#[test]
fn cost_reported_by_program_takes_precedence() {
    let (mut world, root) = World::with_slots(9);
    let id = world.spawn_running(root);
    world.run(&priced(&world, id, usage(10), Some(PRICE)));
    world.run(&priced(&world, id, usage(20), None));
    let told = Usage { cost: 7, ..usage(30) };
    end_priced(&mut world, id, told, Some(PRICE));
    let known = world.thread(id).usage;
    assert_eq!((known.cost, known.unpriced_tokens), (7, 0));
    let sum = world.thread(root).subtree_usage;
    assert_eq!((sum.cost, sum.unpriced_tokens, sum.input_tokens), (7, 0, 30));
}

#[test]
fn reported_dollars_are_ignored_in_other_currency() {
    let (mut world, root) = World::with_settings(|settings| settings.currency = Currency::parse("EUR").unwrap());
    let id = world.spawn_running(root);
    let told = Usage { cost: 7, ..usage(30) };
    end_priced(&mut world, id, told, None);
    let known = world.thread(id).usage;
    assert_eq!((known.cost, known.unpriced_tokens), (0, 30));
}

// ---- time ----

#[test]
fn concurrent_turns_share_wall_time_budget() {
    let (mut world, root) = World::with_slots(9);
    let lead = running_with(&mut world, root, millis(1_000));
    let begun = world.thread(lead).metered;
    assert_eq!(tick::next(&world.session), Some(begun.plus(Duration::from_secs(1))));
    let helper = world.spawn_running(lead);
    let later = world.thread(helper).metered.since(begun);
    // First one turn runs, then both: (begun + (begun + later) + 1 s) / 2.
    let expected = UnixMillis::new((2 * begun.get() + u64::try_from(later.as_millis()).unwrap() + 1_000).div_ceil(2));
    assert_eq!(tick::next(&world.session), Some(expected));
    world.spawn_running(root);
    assert_eq!(
        tick::next(&world.session),
        Some(expected),
        "turns outside the subtree do not count"
    );
}

#[test]
fn spent_wall_time_interrupts_turns() {
    let (mut world, root) = World::with_slots(9);
    let lead = running_with(&mut world, root, millis(100));
    world.spawn_running(lead);
    let stopped = loop {
        let events = world.run(&Command::Tick);
        if !events.is_empty() {
            break events;
        }
        assert!(world.thread(lead).subtree_usage.wall_time < Duration::from_millis(100));
    };
    assert_eq!(
        stopped,
        [
            "UsageRecorded",
            "UsageRecorded",
            "ConditionChanged",
            "InterruptRequested",
            "InterruptRequested"
        ]
    );
    assert!(world.thread(lead).subtree_usage.wall_time >= Duration::from_millis(100));
    assert_eq!(tick::next(&world.session), None, "they are being stopped");
    assert_eq!(world.run(&Command::Tick), NOTHING);
}

#[test]
fn wall_time_is_counted_once() {
    let (mut world, id) = World::with_thread_in(Running);
    let begun = world.thread(id).metered;
    for amount in 1..5 {
        world.run(&used(&world, id, amount));
    }
    world.end(id, settled(Completed));
    let ran = world.session.updated.since(begun);
    assert_eq!(world.thread(id).usage.wall_time, ran);
    assert_eq!(world.session.usage().wall_time, ran);

    // The time of a turn that is lost with its attempt still counts as spent.
    world.next_turn(id);
    let begun = world.thread(id).metered;
    world.close(id);
    let lost = world.session.usage().wall_time.checked_sub(ran).unwrap();
    assert!(!lost.is_zero() && lost <= world.session.updated.since(begun));
}

// ---- properties ----

/// A number that selects a thread: the nth, modulo the number of threads.
type Nth = u8;

#[derive(Clone, Debug)]
enum Op {
    Spawn {
        parent: Nth,
        budget: Budget,
    },
    Advance(Nth),
    Use {
        target: Nth,
        amount: u64,
    },
    /// The runner is lost in any state of the thread.
    Lose(Nth),
    /// A turn ends with a report of less usage than was recorded.
    EndWithNothing(Nth),
    Send(Nth),
    Raise {
        target: Nth,
        by: u32,
    },
    Close(Nth),
    Resume(Nth),
    Pause(bool),
    Tick,
}

fn budgets() -> impl Strategy<Value = Budget> {
    (
        option::weighted(0.6, 1..200_u64),
        option::weighted(0.3, 1..4_u32),
        option::weighted(0.3, 1..300_u64),
    )
        .prop_map(|(tokens, turns, wall_time)| Budget {
            tokens,
            turns,
            wall_time: wall_time.map(Duration::from_millis),
            cost: None,
        })
}

fn ops() -> impl Strategy<Value = Op> {
    let nth = any::<Nth>;
    prop_oneof![
        5 => (nth(), budgets()).prop_map(|(parent, budget)| Op::Spawn { parent, budget }),
        12 => nth().prop_map(Op::Advance),
        5 => (nth(), 1..120_u64).prop_map(|(target, amount)| Op::Use { target, amount }),
        1 => nth().prop_map(Op::Lose),
        1 => nth().prop_map(Op::EndWithNothing),
        3 => nth().prop_map(Op::Send),
        2 => (nth(), 1..100_u32).prop_map(|(target, by)| Op::Raise { target, by }),
        1 => nth().prop_map(Op::Close),
        1 => nth().prop_map(Op::Resume),
        1 => any::<bool>().prop_map(Op::Pause),
        2 => Just(Op::Tick),
    ]
}

/// Returns the budget with every bound raised.
fn raised(budget: Budget, by: u32) -> Budget {
    Budget {
        tokens: budget.tokens.map(|tokens| tokens + u64::from(by)),
        turns: budget.turns.map(|turns| turns + by % 3),
        wall_time: budget.wall_time.map(|span| span + Duration::from_millis(u64::from(by))),
        cost: budget.cost.map(|cost| cost + u64::from(by)),
    }
}

fn perform(world: &mut World, op: &Op) {
    let command = match op {
        Op::Spawn { parent, budget } => {
            let mut spawn = world.wanted(world.nth(*parent).id);
            spawn.spawned.budget = *budget;
            spawn.on_limit = OnLimit::Queue;
            spawning(spawn)
        }
        Op::Advance(target) => {
            let id = world.nth(*target).id;
            world.advance(id);
            return;
        }
        Op::Use { target, amount } => {
            let thread = world.nth(*target);
            used(world, thread.id, thread.usage.input_tokens + amount)
        }
        Op::Lose(target) => world.loss(world.nth(*target).id),
        Op::EndWithNothing(target) => {
            let thread = world.nth(*target);
            let report = ended_with(thread.turn.number().get(), settled(Completed), Usage::default());
            world.says(thread.id, report)
        }
        Op::Send(target) => send_with(operator(), world.nth(*target).id, Urgency::Wait, OnLimit::Queue),
        Op::Raise { target, by } => {
            let thread = world.nth(*target);
            give(operator(), thread.id, raised(thread.budget, *by))
        }
        Op::Close(target) => {
            let thread = world.nth(*target);
            if thread.spawned.parent.is_some() && thread.status.kind().is_open() {
                let id = thread.id;
                world.run(&close(operator(), id));
                world.wind_down();
            }
            return;
        }
        Op::Resume(target) => resume(operator(), world.nth(*target).id),
        Op::Pause(paused) => {
            world.pause(*paused);
            return;
        }
        Op::Tick => Command::Tick,
    };
    // The command may be rejected.
    let _ = world.carry_out(&command);
}

/// Asserts that no thread's usage has decreased, neither its own nor its subtree's.
fn usage_never_decreases(before: &Session, after: &Session) {
    for earlier in before.in_spawn_order() {
        let now = after.thread(earlier.id).unwrap();
        for (earlier, now) in [
            (earlier.subtree_usage, now.subtree_usage),
            (earlier.total_usage(), now.total_usage()),
        ] {
            assert_eq!(earlier.plus(now.since(earlier)), now, "it shrank from {earlier:?}");
        }
    }
}

/// Asserts that the usage of a session is the sum of the lifetime usage of its threads, closed ones included.
fn session_usage_is_the_sum_of_its_threads(session: &Session) {
    let sum = session
        .in_spawn_order()
        .fold(Usage::default(), |sum, thread| sum.plus(thread.total_usage()));
    assert_eq!(session.usage(), sum);
}

/// Asserts that reservations fit into the budget that they reduce. This holds while budgets are only raised.
fn reservations_fit(session: &Session) {
    for thread in session.budgeted() {
        for resource in Resource::ALL {
            if let Some(bound) = resource.bound(&thread.budget) {
                let reserved = budget::reserved(session, thread.id, resource, None);
                assert!(reserved <= bound, "{reserved} of {bound} {resource:?} are reserved");
            }
        }
    }
}

/// Asserts that a thread with an exhausted budget spawns nothing and is neither woken, admitted nor dispatched.
fn assert_exhausted_budget_prevents_start(before: &Session, appended: &[Recorded]) {
    let mut state = before.clone();
    for recorded in appended {
        if let Event::Thread(id, event) = &recorded.event {
            let starts_in = match event {
                ThreadEvent::Spawned(spawned) => spawned.parent,
                ThreadEvent::InputQueued { .. } | ThreadEvent::Admitted | ThreadEvent::TurnDispatched { .. } => {
                    Some(*id)
                }
                _ => None,
            };
            let spent = starts_in.and_then(|id| budget::exhausted_over(&state, id));
            assert!(spent.is_none(), "{event:?} below a spent budget");
        }
        evolve(&mut state, recorded);
    }
}

proptest! {
    #[test]
    fn budgets_hold_in_every_history(session_may in budgets(), script in vec(ops(), 0..80)) {
        let mut world = bounded(session_may, 3);
        for op in &script {
            let (before, from) = (world.session.clone(), world.log.len());
            perform(&mut world, op);
            usage_never_decreases(&before, &world.session);
            session_usage_is_the_sum_of_its_threads(&world.session);
            reservations_fit(&world.session);
            assert_exhausted_budget_prevents_start(&before, &world.log[from..]);
        }
        prop_assert!(World::replay(&world.log) == world.session);
    }

    #[test]
    fn spent_budget_leaves_no_thread_running(amount in 1..50_u64, threads in 1..6_usize) {
        let mut world = bounded(tokens(amount), 3);
        let root = world.root();
        let ids: Vec<ThreadId> = (0..threads)
            .map(|_| {
                world.spawn_with(root, |spawn| spawn.on_limit = OnLimit::Queue)
            })
            .collect();
        world.begin(ids[0]);
        world.run(&used(&world, ids[0], amount));
        while ids.iter().any(|id| world.advance(*id)) {}
        for id in ids {
            let kind: StatusKind = world.status(id);
            prop_assert!(!matches!(kind, Queued | PendingInit | Running), "{id} is {kind}");
        }
    }
}
