//! Usage of turns: every call of the model is counted, a budget stops a running turn of each program, totals are kept,
//! and a turn that is interrupted by the end of the service continues later.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;
use troupe_proto::supervisor::v1::{
    Budget, ConditionKind, SpawnAgentRequest, StatusKind, Thread, UpdateThreadBudgetRequest, Usage,
};
use troupe_tests::{
    agents::{
        CLAUDE, CODEX, Lab, OPENCODE, are_wanted, message, script, send, settled, wait_for_process_end, wait_for_tail,
    },
    tree::{Tree, has, kind},
    within,
};

use super::{ALL, LASTING, lab, spawn, tree_of_all};

/// Number of model calls of a turn that is not stopped.
const CALLS: u64 = 12;
/// Input tokens of each model call.
const CALL: u64 = 30_000;
/// The cost budget in millionths of the currency. Each token costs one millionth.
const BUDGET: u64 = 50_000;
/// Maximum time from the call that spends the budget to the end of the turn, on a busy machine. It includes the
/// telemetry and the interrupt.
const STOPS_WITHIN: Duration = Duration::from_secs(120);

fn used(thread: &Thread) -> Usage {
    thread.usage.unwrap()
}

fn reason(thread: &Thread) -> &str {
    &thread.status.as_ref().unwrap().reason
}

/// Returns whether a condition says that a budget does not stop running turns of the thread.
fn is_usage_late(thread: &Thread) -> bool {
    let mut conditions = thread.conditions.iter();
    conditions.any(|condition| {
        condition
            .reason
            .contains("its usage is reported only at the end of a turn")
    })
}

/// Returns the steps of a turn with many calls of the model, each with a delay.
fn long_turn() -> Value {
    let step =
        json!({"shell": "echo on", "delay": 1, "usage": {"input": CALL, "cached": 0, "output": 10, "reasoning": 0}});
    let mut steps = vec![step; CALLS as usize];
    steps.push(json!({"text": "never said"}));
    json!(steps)
}

async fn spawn_with_budget(tree: &Tree, role: &str, steps: &Value) -> String {
    let request = SpawnAgentRequest {
        message: Some(format!("Do it. {}", script(steps))),
        budget: Some(Budget {
            cost_micros: BUDGET,
            ..Budget::default()
        }),
        ..tree.request(role)
    };
    tree.try_spawn(request).await.unwrap().thread.unwrap().thread_id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cost_budget_stops_running_turn_of_every_program() {
    if !are_wanted("budgets") {
        return;
    }
    let lab = lab().await;
    let tree = tree_of_all(&lab).await;
    for program in ALL {
        let thread = spawn_with_budget(&tree, program, &long_turn()).await;
        let stopped = timeout(STOPS_WITHIN, settled(&tree, &thread))
            .await
            .expect("the turn stops");
        assert_eq!(
            kind(&stopped),
            StatusKind::Interrupted,
            "{program}: {}",
            message(&stopped)
        );
        assert!(
            reason(&stopped).contains("is spent: cost "),
            "{program}: {}",
            reason(&stopped)
        );
        assert!(has(&stopped, ConditionKind::BudgetExhausted), "{program}");
        assert!(!is_usage_late(&stopped), "{program}: {:?}", stopped.conditions);
        let spent = used(&stopped);
        // The usage includes the call that spends the budget, and calls before the program obeyed the interrupt.
        assert!(
            (BUDGET..BUDGET + 4 * CALL).contains(&spent.input_tokens),
            "{program} has used {spent:?}"
        );

        // With a larger budget the conversation continues, and its usage grows.
        let more = UpdateThreadBudgetRequest {
            thread_id: thread.clone(),
            budget: Some(Budget::default()),
            ..UpdateThreadBudgetRequest::default()
        };
        within("a budget", tree.client().update_thread_budget(more))
            .await
            .unwrap();
        send(&tree, &thread, &json!([{"text": "done after all"}])).await;
        let done = settled(&tree, &thread).await;
        assert_eq!(
            (kind(&done), message(&done)),
            (StatusKind::Completed, "done after all"),
            "{program}"
        );
        let total = used(&done);
        assert!(total.input_tokens > spent.input_tokens, "{program}");
        assert_eq!(total.unpriced_tokens, 0, "{program}");
        let tokens = total.input_tokens + total.output_tokens;
        if program == CLAUDE {
            assert!(
                total.cost_micros > tokens,
                "the program reports a higher cost: {total:?}"
            );
        } else {
            assert_eq!(total.cost_micros, tokens, "{program}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_model_call_counts_over_turns_close_and_resume() {
    if !are_wanted("usage of all calls") {
        return;
    }
    let lab = lab().await;
    let tree = tree_of_all(&lab).await;
    // The stand-in reports 1000 input tokens for the first step and 100 more for each further step. It reports 20
    // output tokens for every step.
    let steps = json!([{"shell": "echo one"}, {"shell": "echo two"}, {"text": "made"}]);
    for program in ALL {
        let thread = spawn(&tree, program, &steps).await;
        let done = settled(&tree, &thread).await;
        assert_eq!(message(&done), "made");
        assert!(!is_usage_late(&done), "{program}: {:?}", done.conditions);
        let first = used(&done);
        assert_eq!(
            (first.input_tokens, first.output_tokens, first.turns),
            (3300, 60, 1),
            "{program}"
        );
        send(&tree, &thread, &steps).await;
        let second = used(&settled(&tree, &thread).await);
        assert_eq!((second.output_tokens, second.turns), (120, 2), "{program}");
        assert_eq!(second.input_tokens, 2 * first.input_tokens, "{program}");

        tree.close(&thread).await;
        let closed = used(&tree.thread(&thread).await);
        assert_eq!((closed.input_tokens, closed.output_tokens), (6600, 120), "{program}");
    }
    let session = tree.now().await.roll_up.unwrap().usage.unwrap();
    assert_eq!(session.input_tokens, 4 * 6600);
}

/// Stops the service during a turn of each program, starts it again, and continues each conversation.
async fn stop_and_continue(lab: &mut Lab, programs: &[&str]) {
    let tree = tree_of_all(lab).await;
    let mut threads = Vec::new();
    for program in programs {
        let steps = json!([{"shell": "echo first"}, {"shell": LASTING}, {"text": "never said"}]);
        let thread = spawn(&tree, program, &steps).await;
        wait_for_tail(&thread).await;
        threads.push(thread);
    }
    lab.restart().await;
    let all: Vec<&str> = threads.iter().map(String::as_str).collect();
    wait_for_process_end(&all).await;
    let tree = tree.by(lab.client());
    for (thread, program) in threads.iter().zip(programs) {
        let stopped = tree.thread(thread).await;
        assert_eq!(
            kind(&stopped),
            StatusKind::Interrupted,
            "{program}: {}",
            message(&stopped)
        );
        assert_eq!(reason(&stopped), "the service was stopped", "{program}");
        let before = used(&stopped);
        send(&tree, thread, &json!([{"shell": "echo second"}, {"text": "we go on"}])).await;
        let done = settled(&tree, thread).await;
        assert_eq!(
            (kind(&done), message(&done)),
            (StatusKind::Completed, "we go on"),
            "{program}"
        );
        assert!(used(&done).input_tokens > before.input_tokens, "{program}");
        let asked = lab.stand_in.asked_by(program).pop().unwrap();
        assert!(asked.results[0].contains("first"), "{program} remembers: {asked:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turn_of_stopped_service_continues_after_restart() {
    if !are_wanted("a service that stops") {
        return;
    }
    let mut lab = lab().await;
    // Codex last: after 10 seconds it leaves a command in the background and continues its turn.
    stop_and_continue(&mut lab, &[OPENCODE, CLAUDE, CODEX]).await;
}
