//! What a thread's token opens: its own thread and what is below it, and nothing about anything else.

use tonic::{Code, Status};
use troupe_proto::{
    reason::Reason,
    supervisor::v1::{
        AuthorizeToolRequest, CloseAgentRequest, DescribeToolsRequest, GetPromptRequest, GetQuotaRequest,
        GetThreadRequest, InterruptAgentRequest, ListActiveAgentsRequest, ListArtifactsRequest, ListPromptsRequest,
        ListSpawnableAgentsRequest, ResumeAgentRequest, SendInputRequest, SetThreadNoteRequest, SpawnAgentRequest,
        WaitAgentsRequest, WatchThreadsRequest,
    },
};
use troupe_tests::{
    UNKNOWN,
    client::Supervisor,
    pair::Pair,
    refusal::refused,
    tree::{Spawned, Tree},
};

const NO_CLOSING: &str = "Not permitted to close agents outside your subtree.";
const NO_ACTING: &str = "Not permitted to act on agents outside your subtree.";

/// A session with two branches: `a` has a child, `b` is its sibling.
struct Branches {
    tree: Tree,
    a: Spawned,
    child: Spawned,
    b: Spawned,
}

impl Branches {
    async fn of(pair: &Pair) -> Self {
        let tree = pair.tree().await;
        let a = tree.spawn("orchestrator").await;
        let child = tree.spawn_under(&a.id, "worker").await;
        let b = tree.spawn("orchestrator").await;
        Self { tree, a, child, b }
    }
}

/// Every verb that names a thread, tried on that one.
async fn every_verb(client: &Supervisor, target: &str) -> Vec<(&'static str, Result<(), Status>)> {
    let mut answers = Vec::new();
    macro_rules! attempt {
        ($($method:ident($request:ident { $field:ident: $value:expr $(, $other:ident: $given:expr)* });)+) => {$(
            let request = $request { $field: $value, $($other: $given,)* ..Default::default() };
            let answer = client.clone().$method(request).await.map(|_| ());
            answers.push((stringify!($method), answer));
        )+};
    }
    let target = || target.to_owned();
    let text = || Some(String::from("text"));
    attempt! {
        get_thread(GetThreadRequest { thread_id: target() });
        list_active_agents(ListActiveAgentsRequest { thread_id: target() });
        get_quota(GetQuotaRequest { thread_id: target() });
        list_prompts(ListPromptsRequest { thread_id: target() });
        get_prompt(GetPromptRequest { thread_id: target(), turn: 1 });
        list_artifacts(ListArtifactsRequest { thread_id: target() });
        describe_tools(DescribeToolsRequest { thread_id: target() });
        list_spawnable_agents(ListSpawnableAgentsRequest { thread_id: target() });
        authorize_tool(AuthorizeToolRequest { thread_id: target(), tool: String::from("exec_command") });
        watch_threads(WatchThreadsRequest { thread_id: target() });
        wait_agents(WaitAgentsRequest { thread_ids: vec![target()] });
        spawn_agent(SpawnAgentRequest { parent_thread_id: target(), message: text() });
        send_input(SendInputRequest { thread_id: target(), message: text() });
        interrupt_agent(InterruptAgentRequest { thread_id: target() });
        resume_agent(ResumeAgentRequest { thread_id: target() });
        set_thread_note(SetThreadNoteRequest { thread_id: target(), thread_note: String::from("mine") });
        close_agent(CloseAgentRequest { thread_id: target() });
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn target_outside_subtree_is_indistinguishable_from_unknown() {
    let pair = Pair::start().await;
    let Branches { tree, a, b, .. } = Branches::of(&pair).await;
    let other = pair.tree().await.spawn("worker").await;
    let head = tree.head().await;
    let client = pair.with_token(&a.token);

    let mut texts = Vec::new();
    for target in [UNKNOWN, &tree.root, &b.id, &other.id] {
        let mut told = Vec::new();
        for (method, answer) in every_verb(&client, target).await {
            let text = if method == "close_agent" { NO_CLOSING } else { NO_ACTING };
            let status = refused(answer, Code::PermissionDenied, Reason::OutsideSubtree, text);
            assert_eq!(status.message(), text, "{method} on {target}");
            told.push((method, status.details().to_vec()));
        }
        texts.push(told);
    }
    assert!(
        texts.iter().all(|told| *told == texts[0]),
        "details tell what exists and what does not"
    );
    assert_eq!(tree.head().await, head);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_session_looks_like_nothing_at_all() {
    let pair = Pair::start().await;
    let Branches { a, .. } = Branches::of(&pair).await;
    let other = pair.tree().await;
    let mut client = pair.with_token(&a.token);
    for session in [UNKNOWN, &other.session] {
        let request = GetThreadRequest {
            session_id: session.to_owned(),
            thread_id: a.id.clone(),
        };
        let status = refused(
            client.get_thread(request).await,
            Code::PermissionDenied,
            Reason::OutsideSubtree,
            NO_ACTING,
        );
        assert_eq!(status.message(), NO_ACTING);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_acts_on_itself_and_below_under_its_tools() {
    let pair = Pair::start().await;
    let Branches { a, child, .. } = Branches::of(&pair).await;
    let mut client = pair.with_token(&a.token);

    let everything = ListActiveAgentsRequest {
        include_self: true,
        ..ListActiveAgentsRequest::default()
    };
    let listed = client
        .list_active_agents(everything)
        .await
        .unwrap()
        .into_inner()
        .threads;
    let listed: Vec<&str> = listed.iter().map(|thread| thread.thread_id.as_str()).collect();
    assert_eq!(listed, [&a.id, &child.id], "ALL is its own subtree");
    for target in [&a.id, &child.id] {
        let request = SetThreadNoteRequest {
            thread_id: target.clone(),
            thread_note: String::from("mine"),
            ..SetThreadNoteRequest::default()
        };
        client.set_thread_note(request).await.unwrap();
    }

    // A worker may do less with itself: its role has no close_agent.
    let request = CloseAgentRequest {
        thread_id: child.id.clone(),
        ..CloseAgentRequest::default()
    };
    refused(
        pair.with_token(&child.token).close_agent(request.clone()).await,
        Code::PermissionDenied,
        Reason::ToolDenied,
        "tool \"close_agent\" is not allowed for agent_type \"worker\"",
    );
    client.close_agent(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_ends_with_its_attempt() {
    let pair = Pair::start().await;
    let Branches { tree, a, .. } = Branches::of(&pair).await;
    let stale = pair.with_token(&a.token);
    tree.close(&a.id).await;
    everything_is_unauthenticated(&stale, &a.id).await;

    let request = ResumeAgentRequest {
        thread_id: a.id.clone(),
        ..ResumeAgentRequest::default()
    };
    let resumed = tree.client().resume_agent(request).await.unwrap().into_inner();
    everything_is_unauthenticated(&stale, &a.id).await;
    let own = GetThreadRequest {
        thread_id: a.id.clone(),
        ..GetThreadRequest::default()
    };
    let thread = pair.with_token(&resumed.thread_token).get_thread(own).await.unwrap();
    assert!(thread.into_inner().thread.unwrap().generation > a.thread.generation);
}

/// On itself and on nothing: a stale token does not learn which.
async fn everything_is_unauthenticated(client: &Supervisor, own: &str) {
    for target in [own, UNKNOWN] {
        for (method, answer) in every_verb(client, target).await {
            let status = refused(
                answer,
                Code::Unauthenticated,
                Reason::Unauthenticated,
                "missing, malformed or stale token",
            );
            assert!(status.message().contains("authorization: Bearer TOKEN"), "{method}");
        }
    }
}
