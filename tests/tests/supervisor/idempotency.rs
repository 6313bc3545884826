//! A request with an id happens once: at once from many sides, again later, and again after a restart.

use std::{collections::BTreeSet, fmt::Debug, future::Future};

use tokio::task::JoinSet;
use tonic::Code;
use troupe_proto::{
    reason::Reason,
    supervisor::v1::{
        CloseAgentRequest, CloseSessionRequest, CreateSessionRequest, InterruptAgentRequest, ListSessionsRequest,
        ResumeAgentRequest, SendInputRequest, SetThreadNoteRequest, SpawnAgentRequest, StatusKind,
    },
};
use troupe_tests::{
    client::Supervisor,
    pair::Pair,
    refusal::refused,
    tree::{Tree, kind},
    within,
};

use crate::attached;

/// How many make the same request at once.
const AT_ONCE: usize = 8;

fn id() -> String {
    String::from("the id")
}

/// Makes a request at once from many sides, again, and again after a restart, and checks that all have one answer and that
/// the session's log grew by so many events, once.
async fn happens_once<T, F>(pair: &mut Pair, tree: &Tree, events: usize, call: impl Fn(Supervisor) -> F) -> T
where
    T: Clone + Debug + PartialEq + Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let before = tree.by(pair.operator()).log().await.len();
    let mut calls = JoinSet::new();
    for _ in 0..AT_ONCE {
        calls.spawn(call(pair.operator()));
    }
    let answers = within("every answer", calls.join_all()).await;
    let first = answers[0].clone();
    assert!(answers.iter().all(|answer| *answer == first), "{answers:?}");
    assert_eq!(call(pair.operator()).await, first, "a retry");
    let grown = tree.by(pair.operator()).log().await.len() - before;
    assert_eq!(grown, events, "the request has one effect");

    pair.restart().await;
    assert_eq!(call(pair.operator()).await, first, "a retry after a restart");
    let grown = tree.by(pair.operator()).log().await.len() - before;
    assert_eq!(grown, events, "the request has one effect over a restart");
    first
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn create_session_happens_once() {
    let mut pair = Pair::start().await;
    let request = CreateSessionRequest {
        request_id: id(),
        ..CreateSessionRequest::default()
    };
    let create = |mut client: Supervisor| {
        let request = request.clone();
        async move {
            let answer = client.create_session(request).await.unwrap().into_inner();
            let session = answer.session.unwrap();
            (session.session_id, session.root_thread_id, answer.thread_token)
        }
    };
    let mut calls = JoinSet::new();
    for _ in 0..AT_ONCE {
        calls.spawn(create(pair.operator()));
    }
    let answers = within("every answer", calls.join_all()).await;
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    pair.restart().await;
    assert_eq!(create(pair.operator()).await, answers[0]);
    let listed = pair
        .operator()
        .list_sessions(ListSessionsRequest::default())
        .await
        .unwrap();
    assert_eq!(listed.into_inner().sessions.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrently_created_session_works_at_once() {
    let pair = Pair::start().await;
    for round in 0..20 {
        let mut calls = JoinSet::new();
        for _ in 0..AT_ONCE {
            let mut client = pair.operator();
            calls.spawn(async move {
                let request = CreateSessionRequest {
                    request_id: format!("round {round}"),
                    ..CreateSessionRequest::default()
                };
                let session = client
                    .create_session(request)
                    .await
                    .unwrap()
                    .into_inner()
                    .session
                    .unwrap();
                // Each writer continues with its response, as a client does.
                let request = SetThreadNoteRequest {
                    thread_id: session.root_thread_id,
                    thread_note: String::from("mine"),
                    ..SetThreadNoteRequest::default()
                };
                client.set_thread_note(request).await.map(|_| session.session_id)
            });
        }
        let answers = within("every answer", calls.join_all()).await;
        let sessions: Result<BTreeSet<String>, _> = answers.into_iter().collect();
        assert_eq!(sessions.unwrap().len(), 1, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spawn_agent_happens_once() {
    let mut pair = Pair::start().await;
    let tree = pair.tree().await;
    let request = SpawnAgentRequest {
        request_id: id(),
        return_token: false,
        ..tree.request("worker")
    };
    let thread = happens_once(&mut pair, &tree, 1, |mut client| {
        let request = request.clone();
        async move {
            let answer = client.spawn_agent(request).await.unwrap().into_inner();
            answer.thread.unwrap().thread_id
        }
    })
    .await;

    // Asking for the token is no other request.
    let with_token = SpawnAgentRequest {
        return_token: true,
        ..request
    };
    let answer = pair.operator().spawn_agent(with_token).await.unwrap().into_inner();
    assert_eq!(answer.thread.unwrap().thread_id, thread);
    assert!(!answer.thread_token.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn send_input_happens_once() {
    let mut pair = Pair::start().await;
    let tree = pair.tree().await;
    let request = SendInputRequest {
        request_id: id(),
        thread_id: tree.spawn("worker").await.id,
        message: Some(String::from("more")),
        ..SendInputRequest::default()
    };
    let number = happens_once(&mut pair, &tree, 1, |mut client| {
        let request = request.clone();
        async move { client.send_input(request).await.unwrap().into_inner().input_number }
    })
    .await;
    assert_eq!(number, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupt_agent_happens_once() {
    let mut pair = Pair::start().await;
    let tree = pair.tree().await;
    let worker = tree.spawn("worker").await.id;
    let request = InterruptAgentRequest {
        request_id: id(),
        thread_id: worker.clone(),
        ..InterruptAgentRequest::default()
    };
    let status = happens_once(&mut pair, &tree, 1, |mut client| {
        let request = request.clone();
        async move {
            let answer = client.interrupt_agent(request).await.unwrap().into_inner();
            kind(&answer.thread.unwrap())
        }
    })
    .await;
    assert_eq!(status, StatusKind::Interrupted);

    // A retry that comes late does not hit the turn that was started since.
    let tree = tree.by(pair.operator());
    tree.send(&worker, "go on").await;
    tree.client().interrupt_agent(request).await.unwrap();
    assert_eq!(tree.status(&worker).await, StatusKind::PendingInit);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn set_thread_note_happens_once() {
    let mut pair = Pair::start().await;
    let tree = pair.tree().await;
    let worker = tree.spawn("worker").await.id;
    let request = SetThreadNoteRequest {
        request_id: id(),
        thread_id: worker.clone(),
        thread_note: String::from("first"),
        ..SetThreadNoteRequest::default()
    };
    happens_once(&mut pair, &tree, 1, |mut client| {
        let request = request.clone();
        async move {
            let answer = client.set_thread_note(request).await.unwrap().into_inner();
            answer.thread.unwrap().thread_note
        }
    })
    .await;

    // A retry that comes late does not undo what came since.
    let tree = tree.by(pair.operator());
    let second = SetThreadNoteRequest {
        request_id: String::from("another"),
        thread_note: String::from("second"),
        ..request.clone()
    };
    tree.client().set_thread_note(second).await.unwrap();
    tree.client().set_thread_note(request).await.unwrap();
    assert_eq!(tree.thread(&worker).await.thread_note, "second");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_agent_and_resume_agent_happen_once() {
    let mut pair = Pair::start().await;
    let tree = pair.tree().await;
    let worker = tree.spawn("worker").await.id;
    let close = CloseAgentRequest {
        request_id: id(),
        thread_id: worker.clone(),
        wait: true,
        ..CloseAgentRequest::default()
    };
    let before = happens_once(&mut pair, &tree, 2, |mut client| {
        let close = close.clone();
        async move {
            let answer = client.close_agent(close).await.unwrap().into_inner();
            answer.status_before.unwrap().kind()
        }
    })
    .await;
    assert_eq!(before, StatusKind::PendingInit, "as it was when it was first asked");

    let resume = ResumeAgentRequest {
        request_id: id(),
        thread_id: worker,
        ..ResumeAgentRequest::default()
    };
    let (generation, token) = happens_once(&mut pair, &tree, 1, |mut client| {
        let resume = resume.clone();
        async move {
            let answer = client.resume_agent(resume).await.unwrap().into_inner();
            (answer.thread.unwrap().generation, answer.thread_token)
        }
    })
    .await;
    assert!(generation > 1 && !token.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_returns_last_status_also_after_close() {
    let (_pair, tree, mut runner) = attached().await;
    let worker = tree.spawn("worker").await.id;
    let attempt = runner.run(&worker).await;
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
        assert_eq!(tree.status(&worker).await, status, "when that was answered");
        if status == StatusKind::Completed {
            runner.shutdown().await;
            runner.stop(&attempt).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_session_happens_once() {
    let mut pair = Pair::start().await;
    let tree = pair.tree().await;
    tree.spawn("worker").await;
    let request = CloseSessionRequest {
        request_id: id(),
        session_id: tree.session.clone(),
        wait: true,
        ..CloseSessionRequest::default()
    };
    // The fence, two threads, the session.
    let closed = happens_once(&mut pair, &tree, 4, |mut client| {
        let request = request.clone();
        async move {
            client
                .close_session(request)
                .await
                .unwrap()
                .into_inner()
                .session
                .unwrap()
                .closed
        }
    })
    .await;
    assert!(closed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_is_its_callers_and_its_methods_own() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_request_id_can_be_reused() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    let request = SpawnAgentRequest {
        request_id: id(),
        ..tree.request("scout")
    };
    refused(
        tree.try_spawn(request.clone()).await,
        Code::NotFound,
        Reason::TemplateNotFound,
        "missing agent template: scout",
    );
    pair.write_role("scout", "---\ndescription: Looks around.\n---\nYou look around.\n");
    let spawned = tree.try_spawn(request).await.unwrap().thread.unwrap();
    assert_eq!(spawned.agent_type, "scout");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_with_another_body_is_refused() {
    let mut pair = Pair::start().await;
    let tree = pair.tree().await;
    let worker = tree.spawn("worker").await.id;
    other_bodies_are_refused(&tree, &worker, Made::Now).await;
    pair.restart().await;
    let tree = tree.by(pair.operator());
    let head = tree.head().await;
    other_bodies_are_refused(&tree, &worker, Made::Before).await;
    assert_eq!(tree.head().await, head);
}

/// Whether the first of the two requests is still to be made.
#[derive(Clone, Copy, PartialEq)]
enum Made {
    Now,
    Before,
}

async fn other_bodies_are_refused(tree: &Tree, worker: &str, first: Made) {
    macro_rules! refuses {
        ($($method:ident: $one:expr, $other:expr;)+) => {$(
            if first == Made::Now {
                tree.client().$method($one).await.unwrap();
            }
            let answer = tree.client().$method($other).await;
            refused(answer, Code::AlreadyExists, Reason::RequestIdReused, "request_id \"the id\" was already used");
        )+};
    }
    let request_id = id();
    let thread_id = worker.to_owned();
    let create = CreateSessionRequest {
        request_id: request_id.clone(),
        ..CreateSessionRequest::default()
    };
    let spawn = SpawnAgentRequest {
        request_id: request_id.clone(),
        ..tree.request("worker")
    };
    let note = SetThreadNoteRequest {
        request_id: request_id.clone(),
        thread_id: thread_id.clone(),
        thread_note: String::from("noted"),
        ..SetThreadNoteRequest::default()
    };
    let send = SendInputRequest {
        request_id: request_id.clone(),
        thread_id: thread_id.clone(),
        message: Some(String::from("more")),
        ..SendInputRequest::default()
    };
    let interrupt = InterruptAgentRequest {
        request_id: request_id.clone(),
        thread_id: thread_id.clone(),
        ..InterruptAgentRequest::default()
    };
    let close = CloseAgentRequest {
        request_id: request_id.clone(),
        thread_id: thread_id.clone(),
        wait: true,
        ..CloseAgentRequest::default()
    };
    let other = || String::from("something else");
    refuses! {
        create_session: create.clone(), CreateSessionRequest { model: other(), ..create.clone() };
        spawn_agent: spawn.clone(), SpawnAgentRequest { label: other(), ..spawn.clone() };
        set_thread_note: note.clone(), SetThreadNoteRequest { thread_note: other(), ..note.clone() };
        send_input: send.clone(), SendInputRequest { message: Some(other()), ..send.clone() };
        interrupt_agent: interrupt.clone(), InterruptAgentRequest { reason: other(), ..interrupt.clone() };
        close_agent: close.clone(), CloseAgentRequest { reason: other(), ..close.clone() };
    }
}
