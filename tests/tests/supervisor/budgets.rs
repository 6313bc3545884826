//! Budgets: the hard stop by tokens, turns, time and cost, changes of a budget, and the remaining budget for children.

use std::sync::Arc;

use supervisor_svc::PriceList;
use tonic::Code;
use troupe_proto::{
    reason::Reason,
    supervisor::v1::{
        Budget, ConditionKind, Event, SpawnAgentRequest, StatusKind, Telemetry, Thread, TurnOutcome,
        UpdateThreadBudgetRequest, UpdateThreadBudgetResponse, Usage, attach_request::Message, event::Kind,
    },
};
use troupe_tests::{
    client::Supervisor,
    pair::Pair,
    refusal::{not_permitted, refused},
    runner::{Attempt, Runner},
    tree::{Spawned, Tree, condition, has, input, kind},
    within,
};

use crate::attached;

fn tokens(tokens: u64) -> Budget {
    Budget {
        tokens,
        ..Budget::default()
    }
}

fn request(tree: &Tree, budget: Budget) -> SpawnAgentRequest {
    SpawnAgentRequest {
        budget: Some(budget),
        ..tree.request("worker")
    }
}

async fn spawn(tree: &Tree, budget: Budget) -> Spawned {
    tree.spawn_with(request(tree, budget)).await
}

async fn give(
    mut client: Supervisor,
    thread: &str,
    budget: Budget,
) -> Result<UpdateThreadBudgetResponse, tonic::Status> {
    let request = UpdateThreadBudgetRequest {
        thread_id: thread.to_owned(),
        budget: Some(budget),
        ..UpdateThreadBudgetRequest::default()
    };
    let answer = within("the answer to a budget", client.update_thread_budget(request)).await;
    answer.map(tonic::Response::into_inner)
}

/// Sends telemetry with the tokens that an attempt has used so far.
async fn send_usage(runner: &Runner, attempt: &Attempt, tokens: u64) {
    let usage = Usage {
        input_tokens: tokens,
        ..Usage::default()
    };
    runner
        .say(Message::Telemetry(Telemetry {
            thread_id: attempt.thread.clone(),
            generation: attempt.generation,
            usage: Some(usage),
            ..Telemetry::default()
        }))
        .await;
}

fn why(thread: &Thread) -> &str {
    let spent = condition(thread, ConditionKind::BudgetExhausted);
    &spent.expect("its budget is spent").reason
}

/// Starts a pair whose supervisor has a price for the models `priced*`: two millionths for an input token.
async fn pair_with_prices() -> Pair {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        file.path(),
        "currency: EUR\nmodels: [{model: 'priced*', input: 2, output: 10}]\n",
    )
    .unwrap();
    let prices = Arc::new(PriceList::read(file.path()).unwrap());
    let pair = Pair::with(move |config| config.prices = Arc::clone(&prices)).await;
    for (role, model) in [("accountant", "priced-1"), ("stranger", "other")] {
        pair.write_role(
            role,
            &format!("---\ndescription: Counts\nmodel: {model}\n---\nCount.\n"),
        );
    }
    pair
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cost_budget_stops_turn_by_telemetry() {
    let pair = pair_with_prices().await;
    let tree = pair.tree().await;
    let mut runner = Runner::attach(&pair, "r").await;
    let bound = Budget {
        cost_micros: 2_000,
        ..Budget::default()
    };
    let asked = |role: &str| SpawnAgentRequest {
        agent_type: role.to_owned(),
        ..request(&tree, bound)
    };
    let spawned = tree.try_spawn(asked("accountant")).await.unwrap();
    assert!(spawned.warnings.is_empty(), "{:?}", spawned.warnings);
    let worker = Spawned::of(spawned).id;
    let attempt = runner.run(&worker).await;
    send_usage(&runner, &attempt, 999).await;
    send_usage(&runner, &attempt, 1_000).await;
    assert_eq!(runner.interrupt_of(&attempt).await.turn, 1);
    let thread = tree.thread(&worker).await;
    assert_eq!(why(&thread), "cost 0.002 of 0.002");
    runner.end(&attempt, TurnOutcome::Interrupted, "").await;
    let quota = tree.quota(&worker).await;
    let used = quota.thread_usage.unwrap();
    assert_eq!((used.cost_micros, used.unpriced_tokens), (2_000, 0));
    assert_eq!(quota.usage.unwrap().cost_micros, 2_000, "the session's sum");

    let spawned = tree.try_spawn(asked("stranger")).await.unwrap();
    assert_eq!(
        spawned.warnings,
        ["the model \"other\" has no price, so the cost budget counts only what its program reports"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_budget_stops_turn_by_telemetry() {
    let (mut pair, tree, mut runner) = attached().await;
    let worker = spawn(&tree, tokens(1_000)).await.id;
    let attempt = runner.run(&worker).await;

    send_usage(&runner, &attempt, 600).await;
    send_usage(&runner, &attempt, 1_000).await;
    assert_eq!(runner.interrupt_of(&attempt).await.turn, 1);
    let thread = tree.thread(&worker).await;
    assert_eq!(
        (kind(&thread), why(&thread)),
        (StatusKind::Running, "tokens 1000 of 1000")
    );
    runner.end(&attempt, TurnOutcome::Interrupted, "").await;
    assert_eq!(
        tree.event_names(&worker).await,
        [
            "ThreadSpawned",
            "ThreadPlaced",
            "TurnDispatched",
            "TurnStarted",
            "UsageRecorded",
            "ConditionChanged",
            "InterruptRequested",
            "TurnEnded"
        ],
        "600 tokens cause no event"
    );
    let answer = tree.try_send(input(&worker, "go on")).await;
    let text = "raise it with UpdateThreadBudget";
    refused(answer, Code::ResourceExhausted, Reason::BudgetExhausted, text);

    let two_turns = Budget {
        turns: 2,
        ..tokens(5_000)
    };
    let raised = give(tree.client(), &worker, two_turns).await.unwrap();
    let thread = raised.thread.unwrap();
    assert_eq!(thread.budget, Some(two_turns));
    assert!(!has(&thread, ConditionKind::BudgetExhausted));
    assert_eq!(kind(&tree.send(&worker, "go on").await), StatusKind::PendingInit);
    let turn = runner.turn_of(&attempt).await;
    let second = Attempt {
        turn: turn.turn,
        ..attempt
    };
    runner.begin(&second).await;
    runner.complete(&second, "done").await;
    assert_eq!(tree.status(&worker).await, StatusKind::Completed);

    let tree = tree.after_restart(&mut pair).await;
    let spent = tree.quota(&worker).await.thread_usage.unwrap();
    assert_eq!((spent.input_tokens, spent.turns), (1_000, 2));
    assert_eq!(why(&tree.thread(&worker).await), "turns 2 of 2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wall_time_budget_stops_turn_of_silent_runner() {
    let (_pair, tree, mut runner) = attached().await;
    let short = Budget {
        wall_time: Some(prost_types::Duration {
            seconds: 0,
            nanos: 50_000_000,
        }),
        ..Budget::default()
    };
    let worker = spawn(&tree, short).await.id;
    let attempt = runner.run(&worker).await;
    assert_eq!(runner.interrupt_of(&attempt).await.turn, 1);
    assert!(why(&tree.thread(&worker).await).starts_with("wall_time "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_budget_limits_its_threads() {
    let pair = Pair::start().await;
    let tree = pair.tree_where(|session| session.budget = Some(tokens(1_000))).await;
    assert_eq!(tree.now().await.budget, Some(tokens(1_000)));
    let worker = spawn(&tree, tokens(600)).await;
    let too_much = || request(&tree, tokens(401));
    let answer = tree.try_spawn(too_much()).await;
    let text = "ask for at most 400";
    refused(answer, Code::InvalidArgument, Reason::LimitExceeded, text);
    tree.try_spawn(request(&tree, tokens(400))).await.unwrap();

    let of_worker = tree.quota(&worker.id).await;
    assert_eq!(
        (of_worker.budget, of_worker.thread_budget),
        (Some(tokens(1_000)), Some(tokens(600)))
    );
    assert_eq!((of_worker.active_threads, of_worker.queued_threads), (2, 0));

    let by_worker = pair.with_token(&worker.token);
    let answer = give(by_worker.clone(), &worker.id, tokens(601)).await;
    not_permitted(answer, "may lower its own budget only");
    give(by_worker, &worker.id, tokens(500)).await.unwrap();
    let is_change = |event: &Event| matches!(event.kind, Some(Kind::BudgetUpdated(_)));
    let log = tree.log().await;
    let change = log.iter().find(|event| is_change(event)).unwrap();
    assert_eq!(change.actor, format!("thread:{}", worker.id));

    // The unspent part is free again.
    tree.close(&worker.id).await;
    tree.try_spawn(request(&tree, tokens(600))).await.unwrap();
}
