//! A request with an id has one effect, even if it is repeated concurrently, later, or after a restart.

use std::collections::BTreeSet;

use futures::{FutureExt as _, future::BoxFuture};
use tokio::task::JoinSet;
use tonic::{Code, Response, Status};
use troupe_proto::{
    reason::Reason,
    supervisor::v1::{
        CloseAgentRequest, CloseSessionRequest, CreateSessionRequest, InterruptAgentRequest, ListSessionsRequest,
        OnLimit, ResumeAgentRequest, SendInputRequest, SetThreadNoteRequest, SpawnAgentRequest, StatusKind,
    },
};
use troupe_tests::{
    client::Supervisor,
    pair::Pair,
    refusal::refused,
    tree::{Tree, input, kind},
    within,
};

use crate::{started, working};

/// Number of concurrent callers with the same request.
const AT_ONCE: usize = 8;

fn id() -> String {
    String::from("the id")
}

/// Makes a call. Returns the part of the response that a retry repeats.
type Call = Box<dyn Fn(Supervisor) -> BoxFuture<'static, Result<String, Status>>>;

/// A request with an id.
struct Write<'t> {
    /// The session whose log grows by `events` events.
    tree: &'t Tree,
    events: usize,
    call: Call,
    /// The call with the same id and another body.
    other: Call,
}

/// Returns the call of a method with a request.
macro_rules! call {
    ($method:ident, $request:expr, $part:expr) => {{
        let request = $request;
        Box::new(move |mut client: Supervisor| {
            let request = request.clone();
            async move {
                let answer = client.$method(request).await;
                answer
                    .map(Response::into_inner)
                    .map($part)
                    .map(|part| format!("{part:?}"))
            }
            .boxed()
        })
    }};
}

/// Returns writes. Each line has the session, the number of new events, the method with its request, a field with a
/// different value for the conflicting request, and the part of the response that a retry repeats.
macro_rules! writes {
    ($($tree:ident $events:literal: $method:ident($request:ident, $base:expr) { $($field:ident: $value:expr),* },
        $other:ident: $changed:expr => $part:expr;)+) => {
        vec![$({
            let request = $request { request_id: id(), $($field: $value,)* ..$base };
            let other = $request { $other: $changed, ..request.clone() };
            Write {
                tree: $tree,
                events: $events,
                call: call!($method, request, $part),
                other: call!($method, other, $part),
            }
        }),+]
    };
}

/// Returns one write of each method. The closed session has a root and a worker.
async fn writes<'t>(tree: &'t Tree, closing: &'t Tree) -> Vec<Write<'t>> {
    let other = || String::from("something else");
    let worker = async || tree.spawn("worker").await.id;
    let closed = worker().await;
    tree.close(&closed).await;
    writes! {
        tree 0: create_session(CreateSessionRequest, Default::default()) {}, model: other() => |answer| {
            let session = answer.session.unwrap();
            (session.session_id, session.root_thread_id, answer.thread_token)
        };
        tree 1: spawn_agent(SpawnAgentRequest, tree.request("worker")) { return_token: false }, label: other()
            => |answer| answer.thread.unwrap().thread_id;
        tree 1: send_input(SendInputRequest, input(&worker().await, "more")) {}, message: Some(other())
            => |answer| answer.input_number;
        tree 1: interrupt_agent(InterruptAgentRequest, Default::default()) { thread_id: worker().await },
            reason: other() => |answer| kind(&answer.thread.unwrap());
        tree 1: set_thread_note(SetThreadNoteRequest, Default::default())
            { thread_id: worker().await, thread_note: String::from("noted") }, thread_note: other()
            => |answer| answer.thread.unwrap().thread_note;
        tree 2: close_agent(CloseAgentRequest, Default::default()) { thread_id: worker().await, wait: true },
            reason: other() => |answer| answer.status_before.unwrap().kind();
        tree 1: resume_agent(ResumeAgentRequest, Default::default()) { thread_id: closed },
            on_limit: OnLimit::Queue.into() => |answer| (answer.thread.unwrap().generation, answer.thread_token);
        // The events are the fence, two closed threads and the closed session.
        closing 4: close_session(CloseSessionRequest, Default::default())
            { session_id: closing.session.clone(), wait: true }, wait: false
            => |answer| answer.session.unwrap().closed;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_with_id_has_one_effect() {
    let mut pair = Pair::start().await;
    let (tree, closing) = (pair.tree().await, pair.tree().await);
    closing.spawn("worker").await;
    let writes = Box::pin(writes(&tree, &closing)).await;
    let reuse_is_refused = |answer| {
        let text = "request_id \"the id\" was already used";
        refused(answer, Code::AlreadyExists, Reason::RequestIdReused, text);
    };
    let mut answers = Vec::new();
    for write in &writes {
        let before = write.tree.log().await.len();
        let mut calls = JoinSet::new();
        for _ in 0..AT_ONCE {
            calls.spawn((write.call)(pair.operator()));
        }
        let mut all = within("every answer", calls.join_all()).await;
        all.push((write.call)(pair.operator()).await);
        let distinct: BTreeSet<String> = all.into_iter().map(Result::unwrap).collect();
        assert_eq!(distinct.len(), 1, "{distinct:?}");
        reuse_is_refused((write.other)(pair.operator()).await);
        let grown = write.tree.log().await.len() - before;
        assert_eq!(grown, write.events, "the request has one effect: {distinct:?}");
        answers.extend(distinct);
    }
    assert_eq!(answers[2..6], ["2", "Interrupted", "\"noted\"", "PendingInit"]);
    assert!(!answers[6].ends_with("\"\")") && answers[7] == "true", "{answers:?}");
    let heads = [tree.head().await, closing.head().await];

    pair.restart().await;
    for (write, answer) in writes.iter().zip(&answers) {
        let retried = (write.call)(pair.operator()).await.unwrap();
        assert_eq!(retried, *answer, "a retry after a restart");
        reuse_is_refused((write.other)(pair.operator()).await);
    }
    let [tree, closing] = [&tree, &closing].map(|tree| tree.by(pair.operator()));
    assert_eq!([tree.head().await, closing.head().await], heads);
    let all = ListSessionsRequest {
        include_closed: true,
        ..ListSessionsRequest::default()
    };
    let listed = pair.operator().list_sessions(all).await.unwrap();
    assert_eq!(listed.into_inner().sessions.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_retry_does_not_undo_later_changes() {
    let (_pair, tree) = started().await;
    let spawn = SpawnAgentRequest {
        request_id: id(),
        return_token: false,
        ..tree.request("worker")
    };
    let worker = tree.try_spawn(spawn.clone()).await.unwrap().thread.unwrap().thread_id;
    // A request that also asks for the token counts as the same request.
    let with_token = SpawnAgentRequest {
        return_token: true,
        ..spawn
    };
    let answer = tree.try_spawn(with_token).await.unwrap();
    assert_eq!(answer.thread.unwrap().thread_id, worker);
    assert!(!answer.thread_token.is_empty());

    let interrupt = InterruptAgentRequest {
        request_id: id(),
        thread_id: worker.clone(),
        ..InterruptAgentRequest::default()
    };
    tree.client().interrupt_agent(interrupt.clone()).await.unwrap();
    tree.send(&worker, "go on").await;
    tree.client().interrupt_agent(interrupt).await.unwrap();
    assert_eq!(tree.status(&worker).await, StatusKind::PendingInit);

    let note = SetThreadNoteRequest {
        request_id: id(),
        thread_id: worker.clone(),
        thread_note: String::from("first"),
        ..SetThreadNoteRequest::default()
    };
    tree.client().set_thread_note(note.clone()).await.unwrap();
    tree.note(&worker, "second").await;
    tree.client().set_thread_note(note).await.unwrap();
    assert_eq!(tree.thread(&worker).await.thread_note, "second");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrently_created_session_works_at_once() {
    let pair = Pair::start().await;
    for round in 0..20 {
        let mut calls = JoinSet::new();
        for _ in 0..AT_ONCE {
            let client = pair.operator();
            calls.spawn(async move {
                let request = CreateSessionRequest {
                    request_id: format!("round {round}"),
                    ..CreateSessionRequest::default()
                };
                let tree = Tree::open(client, request).await;
                // Each caller uses the session in its own response immediately, as a client does.
                tree.note(&tree.root, "mine").await;
                tree.session
            });
        }
        let answers = within("every answer", calls.join_all()).await;
        let sessions: BTreeSet<String> = answers.into_iter().collect();
        assert_eq!(sessions.len(), 1, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_returns_last_status_also_after_close() {
    let (_pair, tree, mut runner, worker, attempt) = working().await;
    runner.complete(&attempt, "it works").await;
    let close = CloseAgentRequest {
        request_id: id(),
        thread_id: worker.clone(),
        ..CloseAgentRequest::default()
    };
    for status in [StatusKind::Completed, StatusKind::Shutdown] {
        let answer = tree.client().close_agent(close.clone()).await.unwrap();
        let before = answer.into_inner().status_before.unwrap();
        assert_eq!((before.kind(), &*before.message), (StatusKind::Completed, "it works"));
        assert_eq!(tree.status(&worker).await, status, "the status is still the same");
        if status == StatusKind::Completed {
            runner.stop_as_asked(&attempt).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_ids_are_scoped_to_caller_and_method() {
    let (pair, tree) = started().await;
    let request = SpawnAgentRequest {
        request_id: id(),
        ..tree.request("worker")
    };
    let by_operator = tree.try_spawn(request.clone()).await.unwrap().thread.unwrap();
    let by_root = pair.with_token(&tree.root_token).spawn_agent(request).await.unwrap();
    let by_root = by_root.into_inner().thread.unwrap();
    assert_ne!(by_operator.thread_id, by_root.thread_id);
    let note = SetThreadNoteRequest {
        request_id: id(),
        thread_id: by_root.thread_id,
        thread_note: String::from("noted"),
        ..SetThreadNoteRequest::default()
    };
    tree.client().set_thread_note(note).await.unwrap();
}
