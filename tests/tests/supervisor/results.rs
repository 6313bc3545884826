//! Results with a schema: reported by a tool or as the last message, repaired, returned, and limited in size.

use tonic::{Code, Status};
use troupe_proto::{
    reason::Reason,
    supervisor::v1::{
        AskParentRequest, ConditionKind, NotificationKind, NotificationPolicy, ReportResultRequest, SendInputRequest,
        SpawnAgentRequest, StatusKind, Thread, TurnOutcome, WatchNotificationsRequest,
    },
};
use troupe_tests::{
    client::Supervisor,
    content::read,
    pair::{Pair, VIEWER},
    refusal::{invalid, refused},
    runner::{Attempt, Runner},
    tree::{Spawned, Tree, has, input},
    within,
};

use crate::started;

const SCHEMA: &str = r#"{
    "type": "object",
    "required": ["files"],
    "properties": {"files": {"type": "array", "items": {"type": "string"}}},
    "additionalProperties": false
}"#;

fn with_schema(tree: &Tree, schema: &str, repairs: Option<u32>) -> SpawnAgentRequest {
    SpawnAgentRequest {
        result_schema: schema.to_owned(),
        result_repairs: repairs,
        return_token: true,
        ..tree.request("worker")
    }
}

/// Spawns a thread with a result schema and runs its first turn.
async fn asked(pair: &Pair, tree: &Tree, repairs: Option<u32>) -> (Runner, Attempt, Spawned) {
    let mut runner = Runner::attach(pair, "r").await;
    let spawned = tree.spawn_with(with_schema(tree, SCHEMA, repairs)).await;
    let attempt = runner.run(&spawned.id).await;
    (runner, attempt, spawned)
}

async fn report(client: &Supervisor, document: &str) -> Result<Thread, Status> {
    let request = ReportResultRequest {
        document_json: document.to_owned(),
        ..ReportResultRequest::default()
    };
    let answer = within("ReportResult", client.clone().report_result(request)).await?;
    Ok(answer.into_inner().thread.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reported_result_reaches_the_waiting_caller() {
    let (pair, tree) = started().await;
    let (mut runner, attempt, spawned) = asked(&pair, &tree, None).await;
    let agent = pair.with_token(&spawned.token);

    let tools = tree.by(agent.clone()).tools("").await;
    let names: Vec<String> = tools.into_iter().map(|tool| tool.name).collect();
    assert!(names.contains(&"report_result".to_owned()), "{names:?}");

    let problem = "- at /files: \"a\" is not of type \"array\"";
    for (document, reason, text) in [
        (r#"{"files": "a"}"#, Reason::ResultInvalid, problem),
        (" ", Reason::InvalidArgument, "document_json is required"),
    ] {
        refused(report(&agent, document).await, Code::InvalidArgument, reason, text);
    }

    let document = r#"{"files": ["a.rs", "b.rs"]}"#;
    let thread = report(&agent, document).await.unwrap();
    assert_eq!(thread.result.unwrap().turn, 1);
    runner.complete(&attempt, "done").await;
    let settled = tree.settled(&spawned.id).await;
    let result = settled.result.unwrap();
    assert_eq!(result.document_json, document);
    assert_eq!(settled.status.unwrap().kind(), StatusKind::Completed);
    let digest = result.content.unwrap().digest;
    let stored = read(&tree.client(), &tree.session, &digest).await.unwrap();
    assert_eq!(stored, document.as_bytes());

    let shown = tree.thread(&spawned.id).await.result.unwrap();
    assert_eq!(shown.document_json, document);
    let seen = tree.by(pair.with_token(VIEWER)).thread(&spawned.id).await;
    let seen = seen.result.unwrap();
    assert_eq!(
        (seen.document_json.as_str(), seen.content.unwrap().preview.as_str()),
        ("", "")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_last_message_is_repaired_once() {
    let (mut pair, tree) = started().await;
    let (mut runner, mut attempt, spawned) = asked(&pair, &tree, None).await;
    runner.complete(&attempt, "There are two files.").await;
    let turn = runner.next_turn(&mut attempt).await;
    assert_eq!(turn.turn, 2);
    let prompt: String = turn.blocks.iter().map(|block| block.text.as_str()).collect();
    for part in [
        "the result is not a JSON document",
        "report_result",
        "\"required\": [\"files\"]",
    ] {
        assert!(prompt.contains(part), "{prompt} lacks {part}");
    }
    runner.complete(&attempt, "```json\n{\"files\": []}\n```").await;
    let settled = tree.settled(&spawned.id).await;
    assert_eq!(settled.result.unwrap().document_json, "{\"files\": []}");

    // The state survives a restart.
    pair.restart().await;
    let thread = tree.by(pair.operator()).thread(&spawned.id).await;
    assert_eq!(thread.result.unwrap().turn, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn question_waits_for_input_and_is_notified() {
    let (pair, tree) = started().await;
    let request = WatchNotificationsRequest {
        session_id: tree.session.clone(),
        client_id: String::from("c"),
        policy: Some(NotificationPolicy {
            kinds: vec![NotificationKind::InputRequested.into()],
            ..NotificationPolicy::default()
        }),
        ..WatchNotificationsRequest::default()
    };
    let mut notes = tree.client().watch_notifications(request).await.unwrap().into_inner();
    let (mut runner, mut attempt, spawned) = asked(&pair, &tree, Some(0)).await;
    let agent = pair.with_token(&spawned.token);
    let ask = |question: &str| AskParentRequest {
        question: question.to_owned(),
        ..AskParentRequest::default()
    };
    let blank = within("AskParent", agent.clone().ask_parent(ask("\n"))).await;
    invalid(blank, "question is required");
    let answer = within("AskParent", agent.clone().ask_parent(ask("Which directory?"))).await;
    assert!(has(
        &answer.unwrap().into_inner().thread.unwrap(),
        ConditionKind::AwaitingInput
    ));
    let note = within("a notification", notes.message()).await.unwrap().unwrap();
    let note = note.notification.unwrap();
    assert!(note.text.ends_with("asks: Which directory?"), "{}", note.text);

    // A turn that ends with a question needs no result.
    runner.complete(&attempt, "I asked.").await;
    let settled = tree.settled(&spawned.id).await;
    assert_eq!(settled.status.unwrap().kind(), StatusKind::Completed);
    assert_eq!(settled.question, "Which directory?");
    let seen = tree.by(pair.with_token(VIEWER)).thread(&spawned.id).await;
    assert!(has(&seen, ConditionKind::AwaitingInput));
    assert!(!format!("{:?}", seen.conditions).contains("Which"));

    let thread = tree.send(&spawned.id, "In src/.").await;
    assert!(!has(&thread, ConditionKind::AwaitingInput));
    runner.next_turn(&mut attempt).await;
    runner.end(&attempt, TurnOutcome::Completed, "nothing").await;
    let failed = tree.settled(&spawned.id).await;
    assert_eq!(failed.result, None);
    let status = failed.status.unwrap();
    assert_eq!(status.kind(), StatusKind::Errored);
    assert!(status.message.starts_with("RESULT_INVALID: - "), "{}", status.message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusable_schemas_are_rejected() {
    let (_pair, tree) = started().await;
    for (schema, repairs, field, text) in [
        ("{", None, "result_schema", "it is not valid JSON"),
        (
            "{}",
            Some(4),
            "result_repairs",
            "result_repairs is 4; at most 3 are allowed",
        ),
        ("", Some(1), "result_repairs", "result_repairs needs a result_schema"),
    ] {
        let answer = tree.try_spawn(with_schema(&tree, schema, repairs)).await;
        let status = invalid(answer, text);
        assert_eq!(troupe_proto::fault::metadata_of(&status)["field"], field);
    }
    let steered = SendInputRequest {
        steer: true,
        result_schema: String::from("{}"),
        ..input(&tree.spawn("worker").await.id, "now")
    };
    invalid(tree.try_send(steered).await, "give steer or result_schema");
}
