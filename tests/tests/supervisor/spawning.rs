//! Spawning: permissions, settings of the child, limits of the tree, and recorded events.

use std::fs;

use supervisor_core::{
    event::{Event, ThreadEvent},
    ids::{Sequence, SessionId},
};
use supervisor_log::{
    codec::decode_record,
    store::{DATABASE, EventStore as _, SqliteStore},
};
use tonic::Code;
use tonic_types::StatusExt as _;
use troupe_proto::{
    common::v1::{BlockKind, Sandbox, Scope, ValueOrigin},
    fault::{metadata_of, retry_after},
    reason::Reason,
    supervisor::v1::{CreateSessionRequest, ListSessionsRequest, OnLimit, SpawnAgentRequest, StatusKind, event::Kind},
};
use troupe_tests::{
    events::{about, names},
    pair::Pair,
    refusal::{not_permitted, refused},
    runner::{Runner, text},
    tree::{Spawned, kind},
};

use crate::started;

/// Number of concurrent spawns.
const AT_ONCE: usize = 8;
const TOO_DEEP: &str = "Agent depth limit reached. Solve the task yourself.";

/// Returns the text of a role without restrictions.
fn role(description: &str) -> String {
    format!("---\ndescription: {description}\n---\nYou look around.\n")
}

fn queued(request: SpawnAgentRequest) -> SpawnAgentRequest {
    SpawnAgentRequest {
        on_limit: OnLimit::Queue.into(),
        ..request
    }
}

/// Returns a thread's spawn request. The thread's token determines the session and the parent.
fn own_child(role: &str) -> SpawnAgentRequest {
    SpawnAgentRequest {
        agent_type: role.to_owned(),
        message: Some(String::from("the task")),
        return_token: true,
        ..SpawnAgentRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn root_spawns_orchestrator_that_spawns_explorer() {
    let (pair, tree) = started().await;
    let by_root = tree.by(pair.with_token(&tree.root_token));
    let orchestrator = by_root.spawn_with(own_child("orchestrator")).await;
    let by_parent = tree.by(pair.with_token(&orchestrator.token));
    let explorer = by_parent.spawn_with(own_child("explorer")).await;

    assert_eq!(orchestrator.thread.parent_thread_id, tree.root);
    assert_eq!(orchestrator.thread.depth, 1);
    assert_eq!(orchestrator.thread.sandbox(), Sandbox::WorkspaceWrite);
    assert_eq!(explorer.thread.parent_thread_id, orchestrator.id);
    assert_eq!((explorer.thread.depth, explorer.thread.generation), (2, 1));
    assert_eq!(kind(&explorer.thread), StatusKind::PendingInit);
    assert_eq!(explorer.thread.sandbox(), Sandbox::ReadOnly, "the role reads only");
    let source = explorer.thread.source.unwrap();
    assert_eq!(
        source.scope(),
        Scope::User,
        "the role was written to the home directory"
    );
    assert_eq!(source.digest.len(), 64);

    let log = tree.log().await;
    let spawned: Vec<(&str, String)> = log
        .iter()
        .filter(|event| matches!(event.kind, Some(Kind::ThreadSpawned(_))))
        .map(|event| (event.thread_id.as_str(), event.actor.clone()))
        .collect();
    assert_eq!(
        spawned,
        [
            (tree.root.as_str(), String::from("operator:tester")),
            (orchestrator.id.as_str(), format!("thread:{}", tree.root)),
            (explorer.id.as_str(), format!("thread:{}", orchestrator.id)),
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spawn_below_max_depth_is_rejected() {
    let (mut pair, tree) = started().await;
    let first = tree.spawn("orchestrator").await;
    let second = tree.spawn_under(&first.id, "orchestrator").await;
    let head = tree.head().await;

    let by_itself = pair.with_token(&second.token).spawn_agent(own_child("worker")).await;
    let status = refused(by_itself, Code::FailedPrecondition, Reason::DepthLimit, TOO_DEEP);
    assert_eq!(status.message(), TOO_DEEP);
    let facts = metadata_of(&status);
    assert_eq!((facts["depth"].as_str(), facts["max_depth"].as_str()), ("3", "2"));

    // The limit applies to operators too, and is checked before the call to the registry, which is stopped here.
    pair.stop_registry().await;
    let by_operator = tree.try_spawn(tree.request_under(&second.id, "worker")).await;
    refused(by_operator, Code::FailedPrecondition, Reason::DepthLimit, TOO_DEEP);
    assert_eq!(
        tree.head().await,
        head,
        "spawns rejected before the call to the registry are not recorded"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_threads_are_admitted_in_order() {
    let pair = Pair::start().await;
    let tree = pair.tree_of(1).await;
    let mut runner = Runner::attach(&pair, "r").await;
    let first = tree.spawn("worker").await;
    let mut waiting = Vec::new();
    for position in [1, 2] {
        let answer = tree.try_spawn(queued(tree.request("worker"))).await.unwrap();
        assert_eq!(answer.queue_position, position);
        let spawned = Spawned::of(answer);
        assert_eq!(kind(&spawned.thread), StatusKind::Queued);
        waiting.push(spawned.id);
    }

    let attempt = runner.run(&first.id).await;
    runner.complete(&attempt, "done").await;
    let next = runner.start().await;
    assert_eq!(next.thread_id, waiting[0], "threads are admitted in order");
    assert_eq!(tree.status(&waiting[0]).await, StatusKind::PendingInit);
    assert_eq!(tree.thread(&waiting[1]).await.queue_position, 1);

    // The slot is reused immediately: the admission is the next event after the settling.
    let log = tree.log().await;
    let mut kinds = log.iter().map(|event| &event.kind);
    let settled = kinds.position(|kind| matches!(kind, Some(Kind::TurnEnded(_)))).unwrap();
    assert!(matches!(log[settled + 1].kind, Some(Kind::ThreadAdmitted(_))));
    assert_eq!(log[settled + 1].thread_id, waiting[0]);

    let answer = tree.try_spawn(tree.request("worker")).await;
    refused(answer, Code::ResourceExhausted, Reason::ThreadLimit, "(max 1)");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_works_in_directory_of_its_parent() {
    let pair = Pair::start().await;
    let project = pair.project();
    let tree = pair.tree().await;
    let inside = format!("{project}/inside");
    std::fs::create_dir(&inside).unwrap();
    let mut root = pair.with_token(&tree.root_token);
    let in_directory = |directory: String| SpawnAgentRequest {
        working_directory: directory,
        ..own_child("orchestrator")
    };
    let answer = root.spawn_agent(in_directory(inside.clone())).await.unwrap();
    let child = Spawned::of(answer.into_inner());

    let mut parent = pair.with_token(&child.token);
    for elsewhere in [
        project.clone(),
        format!("{inside}/.."),
        format!("{inside}-too"),
        "/".to_owned(),
    ] {
        let answer = parent.spawn_agent(in_directory(elsewhere.clone())).await;
        not_permitted(answer, &elsewhere);
    }
    parent.spawn_agent(in_directory(inside)).await.unwrap();
    // An operator may choose any directory.
    let request = SpawnAgentRequest {
        working_directory: project,
        ..tree.request_under(&child.id, "worker")
    };
    tree.try_spawn(request).await.unwrap();
}

/// Returns the text of a role with this number of tools and this length of its description.
fn large_role(tools: usize, description: usize) -> String {
    let listed: String = (0..tools)
        .map(|number| format!("  - the_tool_number_{number:04}_with_a_long_name_to_it\n"))
        .collect();
    let description = "x".repeat(description);
    format!("---\ndescription: {description}\nallow_list:\n{listed}---\nYou look around.\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversized_role_is_rejected_with_its_size() {
    let (mut pair, tree) = started().await;
    pair.write_role("scout", &large_role(200, 17_000));
    let scout = tree.spawn("scout").await.thread;
    let layers = &scout.tool_policy.as_ref().unwrap().layers;
    assert!(layers.iter().any(|layer| layer.allow_list.len() == 200), "{layers:?}");
    assert_eq!(scout.grant, scout.tool_policy);
    let log = about(&tree.log().await, &scout.thread_id);
    let Some(Kind::ThreadSpawned(spawned)) = log[0].kind.clone() else {
        panic!("unexpected beginning: {log:?}");
    };
    assert_eq!(spawned.agent_description, "x".repeat(1_024));
    assert_eq!(
        (&spawned.tool_policy, &spawned.grant),
        (&scout.tool_policy, &scout.grant)
    );

    let tree = tree.after_restart(&mut pair).await;
    assert_eq!(tree.thread(&scout.thread_id).await.grant, scout.grant);
    assert_eq!(about(&tree.log().await, &scout.thread_id)[0], log[0]);

    pair.write_role("scout", &large_role(400, 10));
    let head = tree.head().await;
    let answer = tree.try_spawn(tree.request("scout")).await;
    let text = "nothing was done: the record of the agent's role has ";
    let status = refused(answer, Code::ResourceExhausted, Reason::LimitExceeded, text);
    assert!(status.message().contains("tool_policy"), "{status}");
    assert_eq!(tree.head().await, head);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edited_template_applies_to_next_spawn() {
    let (pair, tree) = started().await;
    let mut seen = Vec::new();
    for description in ["First.", "Other.", "A longer one."] {
        pair.write_role("scout", &role(description));
        let scout = tree.spawn("scout").await.thread;
        assert_eq!(
            scout.thread_note,
            format!("agent_type=scout; agent_description={description}")
        );
        let source = scout.source.unwrap();
        assert_eq!(source.scope(), Scope::Project);
        seen.push(source.digest);
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 3, "each spawn uses the template of its time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registry_rejection_is_one_event() {
    let (pair, tree) = started().await;
    let before = tree.log().await;
    let request = SpawnAgentRequest {
        request_id: String::from("again"),
        ..tree.request("scout")
    };
    let answer = tree.try_spawn(request.clone()).await;
    let text = "missing agent template: scout";
    let status = refused(answer, Code::NotFound, Reason::TemplateNotFound, text);
    let log = tree.log().await;
    assert_eq!(log.len(), before.len() + 1);
    let event = log.last().unwrap();
    let Some(Kind::SpawnFailed(failed)) = &event.kind else {
        panic!("{event:?}")
    };
    assert_eq!(event.thread_id, tree.root);
    assert_eq!(failed.agent_type, "scout");
    assert_eq!(failed.reason, "TEMPLATE_NOT_FOUND");
    assert_eq!(failed.message, status.message());
    assert_eq!(tree.threads().await.len(), 1, "there is no thread");

    // The id of a rejected request is free.
    pair.write_role("scout", &role("Looks around."));
    let spawned = tree.try_spawn(request).await.unwrap().thread.unwrap();
    assert_eq!(spawned.agent_type, "scout");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unavailable_registry_spawns_and_records_nothing() {
    let (mut pair, tree) = started().await;
    let head = tree.head().await;
    let request = SpawnAgentRequest {
        request_id: String::from("once"),
        ..tree.request("worker")
    };
    pair.stop_registry().await;
    let answer = tree.try_spawn(request.clone()).await;
    let text = "nothing was done, try again";
    let status = refused(answer, Code::Unavailable, Reason::RegistryUnavailable, text);
    assert!(retry_after(&status).is_some(), "the error contains a retry delay");
    assert_eq!(
        tree.head().await,
        head,
        "a spawn without a response of the registry is not recorded"
    );

    // A root with a role needs the registry as well. The failed call leaves no session.
    let rooted = CreateSessionRequest {
        message: Some(String::from("the task")),
        ..CreateSessionRequest::default()
    };
    let answer = tree.client().create_session(rooted).await;
    refused(answer, Code::Unavailable, Reason::RegistryUnavailable, "");
    let sessions = tree
        .client()
        .list_sessions(ListSessionsRequest::default())
        .await
        .unwrap();
    assert_eq!(sessions.into_inner().sessions.len(), 1);

    pair.start_registry().await;
    let spawned = tree.spawn_with(request).await;
    assert_eq!(names(&about(&tree.log().await, &spawned.id)), ["ThreadSpawned"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thread_without_note_gets_a_default_note() {
    let (pair, tree) = started().await;
    pair.write_role(
        "scout",
        "---\ndescription: Looks around.\nagent_names:\n  - name: fast\n    description: Looks once.\n---\n\
         You look around.\n\n<!-- agent_name: fast -->\nYou look once.\n",
    );
    for (agent_name, given, note) in [
        ("", None, "agent_type=scout; agent_description=Looks around."),
        (
            "fast",
            None,
            "agent_type=scout; agent_name=fast; agent_description=Looks around.",
        ),
        ("", Some(" "), ""),
        ("", Some("on the roof"), "on the roof"),
    ] {
        let spawned = tree
            .spawn_where("scout", |spawn| {
                spawn.agent_name = agent_name.to_owned();
                spawn.thread_note = given.map(str::to_owned);
            })
            .await
            .thread;
        assert_eq!(spawned.thread_note, note, "{agent_name:?} {given:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admission_records_its_cause() {
    let mut pair = Pair::alone(|_| {}).await;
    let tree = pair.tree_of(1).await;
    let first = tree.spawn("worker").await;
    let second = tree.spawn_with(queued(tree.request("worker"))).await;
    assert_eq!(kind(&second.thread), StatusKind::Queued);
    tree.close(&first.id).await;
    assert_eq!(tree.status(&second.id).await, StatusKind::PendingInit);

    let copy = tempfile::tempdir().unwrap();
    pair.restart_after(|data| {
        for file in fs::read_dir(data).unwrap() {
            let file = file.unwrap();
            if file.file_name().to_string_lossy().starts_with(DATABASE) {
                fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
            }
        }
    })
    .await;
    let store = SqliteStore::open(copy.path().join(DATABASE)).await.unwrap();
    let session: SessionId = tree.session.parse().unwrap();
    let (mut closed, mut admitted) = (None, None);
    for stored in store.read(session, Sequence::ZERO, 100).await.unwrap() {
        let recorded = decode_record(session, &stored.bytes).unwrap();
        match recorded.event {
            Event::Thread(id, ThreadEvent::Closed { .. }) if id.to_string() == first.id => {
                assert_eq!(recorded.metadata.cause, None, "a command caused it");
                closed = Some(recorded.sequence);
            }
            Event::Thread(id, ThreadEvent::Admitted) if id.to_string() == second.id => {
                admitted = Some(recorded.metadata.cause);
            }
            _ => {}
        }
    }
    assert!(closed.is_some());
    assert_eq!(admitted, Some(closed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_spawns_do_not_exceed_max_threads() {
    let pair = Pair::start().await;
    let tree = pair.tree_of(3).await;
    let (admitted, others): (Vec<_>, Vec<_>) = tree
        .try_spawn_concurrently(&tree.request("worker"), AT_ONCE)
        .await
        .into_iter()
        .partition(Result::is_ok);
    assert_eq!((admitted.len(), others.len()), (3, AT_ONCE - 3));
    for answer in others {
        let text = "agent thread limit reached (max 3)";
        let status = refused(answer, Code::ResourceExhausted, Reason::ThreadLimit, text);
        let quota = status.get_details_quota_failure().unwrap();
        assert_eq!(quota.violations[0].subject, "max_threads");
        for remedy in ["WaitAgents", "CloseAgent", "QUEUE"] {
            assert!(quota.violations[0].description.contains(remedy), "{quota:?}");
        }
    }
    assert_eq!(tree.quota("").await.active_threads, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quota_reports_the_use_of_each_limit() {
    let pair = Pair::start().await;
    let tree = pair.tree_of(1).await;
    tree.spawn("worker").await;
    tree.try_spawn(queued(tree.request("worker"))).await.unwrap();
    let quota = tree.quota("").await;
    assert_eq!(quota.limits.unwrap().max_threads, Some(1));
    assert_eq!((quota.active_threads, quota.queued_threads), (1, 1));
    assert_eq!((quota.open_threads, quota.total_threads), (3, 3));
    assert_eq!(quota.remaining_depth, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runner_receives_resolved_values_and_origins() {
    let pair = Pair::start().await;
    pair.write_role(
        "scout",
        "---\ndescription: Looks around.\nmodel: of-the-role\nreasoning_effort: low\nagent_names:\n  - name: fast\n    \
         description: Looks once.\n    model: of-the-persona\n---\nYou look around.\n\n<!-- agent_name: fast -->\n\
         You look once.\n",
    );
    let tree = pair.tree().await;
    let mut runner = Runner::attach(&pair, "r").await;
    let scout = tree
        .spawn_where("scout", |spawn| {
            spawn.agent_name = String::from("fast");
            spawn.reasoning_effort = String::from("high");
        })
        .await;
    let start = runner.start_of(&scout.id).await;
    let resolved = start.resolved.unwrap();
    assert_eq!((&*resolved.agent_type, &*resolved.agent_name), ("scout", "fast"));
    assert_eq!(
        (&*resolved.model, &*resolved.reasoning_effort),
        ("of-the-persona", "high")
    );
    assert_eq!(
        (&scout.thread.model, &scout.thread.source),
        (&resolved.model, &resolved.source)
    );
    for (field, origin) in [
        ("model", ValueOrigin::Persona),
        ("reasoning_effort", ValueOrigin::Explicit),
    ] {
        assert_eq!(resolved.origins[field], i32::from(origin), "{field}");
    }
    let turn = start.turn.unwrap();
    let role = text(&turn, BlockKind::Role);
    assert!(role.contains("You look once."), "{role}");
}
