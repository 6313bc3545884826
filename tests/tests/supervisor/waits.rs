//! WaitAgents: the settled threads, otherwise the first thread that settles; and the ways in which a wait ends before
//! any thread settles.

use std::time::Duration;

use tokio::task::JoinHandle;
use tonic::{Code, Request, Response, Status};
use troupe_proto::{
    fault::retry_after,
    reason::Reason,
    supervisor::v1::{
        OnLimit, SpawnAgentRequest, StatusKind, TurnOutcome, WaitAgentsRequest, WaitAgentsResponse, WaitMode,
        event::Kind,
    },
};
use troupe_tests::{
    UNKNOWN,
    client::Supervisor,
    pair::Pair,
    refusal::refused,
    runner::{Attempt, Runner},
    tree::{Spawned, Tree, kind},
    within,
};

use crate::{attached, started};

type Waiting = JoinHandle<Result<Response<WaitAgentsResponse>, Status>>;

fn wait_for(threads: &[&str]) -> WaitAgentsRequest {
    WaitAgentsRequest {
        thread_ids: threads.iter().map(|&id| id.to_owned()).collect(),
        ..WaitAgentsRequest::default()
    }
}

fn in_millis(millis: u64) -> Option<prost_types::Duration> {
    Duration::from_millis(millis).try_into().ok()
}

fn begin(mut client: Supervisor, request: WaitAgentsRequest) -> Waiting {
    tokio::spawn(async move { client.wait_agents(request).await })
}

async fn answered(waiting: Waiting) -> Result<WaitAgentsResponse, Status> {
    let answer = within("the answer to a wait", waiting).await.unwrap();
    answer.map(Response::into_inner)
}

async fn waited(client: &Supervisor, request: WaitAgentsRequest) -> WaitAgentsResponse {
    answered(begin(client.clone(), request)).await.unwrap()
}

/// Returns the settled threads, with their status and message.
fn settled_threads(answer: &WaitAgentsResponse) -> Vec<(&str, StatusKind, &str)> {
    let told = answer.statuses.iter().map(|told| {
        let status = told.status.as_ref().unwrap();
        (told.thread_id.as_str(), status.kind(), status.message.as_str())
    });
    told.collect()
}

/// A running thread with a running child and a queued child, in a session with two slots. As soon as the parent waits
/// for the queued child, it lends its slot to that child. This shows a test that the wait has begun.
struct TestSession {
    tree: Tree,
    runner: Runner,
    parent: Spawned,
    busy: Attempt,
    first: Attempt,
    queued: String,
}

impl TestSession {
    async fn start(pair: &Pair) -> Self {
        let tree = pair.tree_of(2).await;
        let mut runner = Runner::attach(pair, "r").await;
        let parent = tree.spawn("orchestrator").await;
        let busy = runner.run(&parent.id).await;
        let first = tree.spawn_under(&parent.id, "worker").await.id;
        let first = runner.run(&first).await;
        let request = SpawnAgentRequest {
            on_limit: OnLimit::Queue.into(),
            ..tree.request_under(&parent.id, "worker")
        };
        let queued = tree.spawn_with(request).await;
        assert_eq!(kind(&queued.thread), StatusKind::Queued);
        Self {
            tree,
            runner,
            parent,
            busy,
            first,
            queued: queued.id,
        }
    }

    /// Lets the parent wait for both children. Returns when the wait has begun and the second child runs.
    async fn wait(&mut self, pair: &Pair) -> (Waiting, Attempt) {
        let request = wait_for(&[&self.first.thread, &self.queued]);
        let waiting = begin(pair.with_token(&self.parent.token), request);
        let second = self.runner.run(&self.queued).await;
        (waiting, second)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_settled_thread_ends_wait() {
    let pair = Pair::start().await;
    let mut test = TestSession::start(&pair).await;
    let (waiting, second) = test.wait(&pair).await;
    test.runner.complete(&second, "found it").await;
    let answer = answered(waiting).await.unwrap();
    assert_eq!(
        settled_threads(&answer),
        [(second.thread.as_str(), StatusKind::Completed, "found it")],
        "the other child is still running"
    );
    assert!(!answer.timed_out && answer.not_found_ids.is_empty());
    assert_eq!(test.tree.status(&test.first.thread).await, StatusKind::Running);

    // A wait also ends if a thread fails.
    test.runner.end(&test.first, TurnOutcome::Errored, "no such file").await;
    let answer = waited(&test.tree.client(), wait_for(&[&test.first.thread])).await;
    assert_eq!(
        settled_threads(&answer),
        [(test.first.thread.as_str(), StatusKind::Errored, "no such file")]
    );
    test.runner.complete(&test.busy, "done").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn already_settled_threads_end_the_wait_at_once() {
    let (_pair, tree, mut runner) = attached().await;
    let mut workers = Vec::new();
    for _ in 0..4 {
        workers.push(tree.run_worker(&mut runner).await);
    }
    runner.complete(&workers[0], "one").await;
    runner.end(&workers[2], TurnOutcome::Interrupted, "two").await;
    // Idle and closed also count as settled.
    runner.complete(&workers[3], "three").await;
    tree.close_with(&mut runner, &workers[3]).await;

    let ids: Vec<&str> = workers.iter().map(|worker| worker.thread.as_str()).collect();
    // A thread that is named twice is returned once.
    let answer = waited(&tree.client(), wait_for(&[ids[0], ids[1], ids[2], ids[3], ids[0]])).await;
    let mut settled: Vec<(&str, StatusKind)> = settled_threads(&answer)
        .iter()
        .map(|(id, kind, _)| (*id, *kind))
        .collect();
    settled.sort_unstable();
    let mut expected = [
        (ids[0], StatusKind::Completed),
        (ids[2], StatusKind::Interrupted),
        (ids[3], StatusKind::Shutdown),
    ];
    expected.sort_unstable();
    assert_eq!(settled, expected);
    assert!(!answer.timed_out);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_settled_together_are_returned_together() {
    let (_pair, tree) = started().await;
    // The threads have no runner, so an interrupt ends all of their pending turns in one append.
    let top = tree.spawn("orchestrator").await.id;
    let child = tree.spawn_under(&top, "worker").await.id;
    let head = tree.head().await;
    let waiting = begin(tree.client(), wait_for(&[&top, &child]));
    tree.interrupt(&top).await;
    let answer = answered(waiting).await.unwrap();
    let ended = tree
        .log()
        .await
        .into_iter()
        .filter(|event| event.sequence > head && matches!(event.kind, Some(Kind::TurnEnded(_))));
    assert_eq!(ended.count(), 2);
    let mut ids: Vec<&str> = settled_threads(&answer).iter().map(|(id, ..)| *id).collect();
    ids.sort_unstable();
    let mut expected = [top.as_str(), child.as_str()];
    expected.sort_unstable();
    assert_eq!(ids, expected);
}

/// The caller of the wait holds a slot that one of the awaited threads needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_for_all_ends_when_the_last_one_settles() {
    let pair = Pair::start().await;
    let mut test = TestSession::start(&pair).await;
    let all = WaitAgentsRequest {
        mode: WaitMode::All.into(),
        ..wait_for(&[&test.first.thread, &test.queued])
    };
    let mut short = WaitAgentsRequest {
        timeout: in_millis(1),
        ..all.clone()
    };
    short.thread_ids.push(UNKNOWN.to_owned());
    let waiting = begin(pair.with_token(&test.parent.token), all);
    let second = test.runner.run(&test.queued).await;
    test.runner.complete(&second, "found it").await;
    let client = test.tree.client();
    let early = waited(&client, short.clone()).await;
    assert_eq!(
        settled_threads(&early),
        [(second.thread.as_str(), StatusKind::Completed, "found it")]
    );
    assert!(early.timed_out && !waiting.is_finished());

    test.runner.complete(&test.first, "me too").await;
    let answer = answered(waiting).await.unwrap();
    assert_eq!((answer.statuses.len(), answer.timed_out), (2, false));
    let settled = waited(&client, short).await;
    assert_eq!(
        (settled.statuses.len(), settled.timed_out),
        (2, false),
        "unknown ids do not count"
    );
    assert_eq!(settled.not_found_ids, [UNKNOWN]);
}

/// A caller with a deadline receives a response before the deadline instead of an error. The response says that the
/// time is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_ends_before_callers_deadline() {
    /// Maximum number of attempts. The response has a tenth of a second to arrive, which a busy machine sometimes
    /// misses.
    const ATTEMPTS: usize = 10;
    let (_pair, tree) = started().await;
    let worker = tree.spawn("worker").await.id;
    for request in [
        wait_for(&[&worker]),
        WaitAgentsRequest {
            timeout: in_millis(60_000),
            ..wait_for(&[&worker])
        },
    ] {
        let mut answer = None;
        for _ in 0..ATTEMPTS {
            let mut call = Request::new(request.clone());
            call.set_timeout(Duration::from_millis(500));
            match within("an answer", tree.client().wait_agents(call)).await {
                Ok(waited) => {
                    answer = Some(waited.into_inner());
                    break;
                }
                Err(late) => assert!(
                    matches!(late.code(), Code::DeadlineExceeded | Code::Cancelled),
                    "{late:?}"
                ),
            }
        }
        let answer = answer.expect("an answer before the deadline");
        assert!(answer.timed_out && answer.statuses.is_empty(), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drain_ends_wait_that_can_be_repeated() {
    let mut pair = Pair::start().await;
    let mut test = TestSession::start(&pair).await;
    let (waiting, second) = test.wait(&pair).await;
    pair.restart().await;
    let answer = answered(waiting).await;
    let text = "the supervisor is shutting down";
    let status = refused(answer, Code::Unavailable, Reason::Draining, text);
    assert!(retry_after(&status).is_some());

    let held = [test.busy.clone(), test.first.clone(), second.clone()];
    let mut runner = test.runner.come_back(&pair, &held).await;
    let request = wait_for(&[&test.first.thread, &test.queued]);
    let waiting = begin(pair.with_token(&test.parent.token), request);
    runner.complete(&second, "found it").await;
    let answer = answered(waiting).await.unwrap();
    assert_eq!(
        settled_threads(&answer),
        [(second.thread.as_str(), StatusKind::Completed, "found it")]
    );
}
