//! Close policies: a thread is stopped by the policy of its spawn unless the close overrides that policy. If several
//! closes affect a thread, the strictest policy applies.

use std::time::Duration;

use troupe_proto::supervisor::v1::{
    ClosePolicy, CloseSessionRequest, Event, ShutdownThread, SpawnAgentRequest, StatusKind, event::Kind,
};
use troupe_tests::{
    accepted,
    events::about,
    pair::Pair,
    runner::{Attempt, Runner},
    tree::Tree,
};

use crate::attached;

/// Default time within which a thread's program must end (see docs/limits.md).
const GRACE: Duration = Duration::from_secs(5);

/// Spawns a worker with this close policy below a thread and runs its first turn.
async fn working(tree: &Tree, runner: &mut Runner, parent: &str, policy: ClosePolicy) -> Attempt {
    let request = SpawnAgentRequest {
        close_policy: policy.into(),
        ..tree.request_under(parent, "worker")
    };
    let worker = tree.spawn_with(request).await;
    runner.run(&worker.id).await
}

/// Returns the next request to stop that thread. Requests for other threads are skipped, because they may be repeated.
async fn asked(runner: &mut Runner, attempt: &Attempt) -> ShutdownThread {
    loop {
        let asked = runner.shutdown().await;
        if asked.thread_id == attempt.thread {
            assert_eq!(asked.generation, attempt.generation);
            return asked;
        }
    }
}

fn grace(asked: &ShutdownThread) -> Duration {
    asked.grace.unwrap().try_into().unwrap()
}

/// Returns how a thread ended: the outcome of its last turn, and whether it was forced.
fn end(events: &[Event], thread: &str) -> (String, bool) {
    let mut message = String::new();
    for event in about(events, thread) {
        match event.kind {
            Some(Kind::TurnEnded(ended)) => message = ended.message,
            Some(Kind::ThreadClosed(closed)) => return (message, closed.forced),
            _ => {}
        }
    }
    panic!("{thread} was not closed")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_waits_for_turn_that_may_finish() {
    let (_pair, tree, mut runner) = attached().await;
    let worker = working(&tree, &mut runner, &tree.root, ClosePolicy::FinishTurn).await;
    assert_eq!(
        tree.thread(&worker.thread).await.close_policy(),
        ClosePolicy::FinishTurn
    );

    tree.begin_close(&worker.thread).await;
    let order = asked(&mut runner, &worker).await;
    assert_eq!(order.close_policy(), ClosePolicy::FinishTurn);
    let cascade = Duration::from_secs(30);
    assert!(
        grace(&order) > GRACE && grace(&order) <= cascade,
        "{order:?}: the cascade may take {cascade:?}"
    );
    assert_eq!(
        tree.status(&worker.thread).await,
        StatusKind::Running,
        "the turn continues"
    );

    runner.complete(&worker, "all of it").await;
    assert_eq!(
        tree.thread(&worker.thread).await.status.unwrap().message,
        "all of it",
        "the turn is recorded as completed"
    );
    runner.stop(&worker).await;
    assert_eq!(tree.status(&worker.thread).await, StatusKind::Shutdown);
    let log = tree.log().await;
    assert_eq!(end(&log, &worker.thread), (String::from("all of it"), false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_policy_overrides_policy_of_spawn() {
    let policies = [ClosePolicy::Terminate, ClosePolicy::FinishTurn, ClosePolicy::Kill];
    let pair = Pair::start().await;
    let mut runner = Runner::attach(&pair, "r").await;
    for said in [
        ClosePolicy::Unspecified,
        ClosePolicy::Terminate,
        ClosePolicy::FinishTurn,
        ClosePolicy::Kill,
    ] {
        let tree = pair.tree().await;
        let mut workers = Vec::new();
        for own in policies {
            workers.push((own, working(&tree, &mut runner, &tree.root, own).await));
        }
        let request = CloseSessionRequest {
            session_id: tree.session.clone(),
            close_policy: said.into(),
            ..CloseSessionRequest::default()
        };
        accepted("the answer to a close", tree.client().close_session(request)).await;
        // The requests for the newest threads come first.
        for (own, worker) in workers.iter().rev() {
            let order = runner.shutdown().await;
            assert_eq!(order.thread_id, worker.thread);
            let wanted = if said == ClosePolicy::Unspecified { *own } else { said };
            assert_eq!(order.close_policy(), wanted, "{own:?}, closed with {said:?}");
            assert_eq!(grace(&order).is_zero(), wanted == ClosePolicy::Kill, "{order:?}");
        }
        for (_, worker) in &workers {
            runner.stop(worker).await;
        }
    }
}
