//! Prompts: every sent prompt is stored, up to the maximum size of the session's content, and displayed only to
//! authorized callers.

use std::path::Path;

use serde_json::{Value, json};
use supervisor_core::ids::Digest;
use supervisor_log::maintenance;
use tonic::{Code, Status};
use troupe_proto::{
    common::v1::{BlockKind, PromptBlock},
    reason::Reason,
    supervisor::v1::{
        GetPromptRequest, GetPromptResponse, ListArtifactsRequest, ListPromptsRequest, ListPromptsResponse, Prompt,
        PromptExtent, PromptLog, PromptReport, SendInputRequest, SpawnAgentRequest, event::Kind,
        runner_report::Kind as Report,
    },
};
use troupe_tests::{
    client::Supervisor,
    content::read,
    pair::{Pair, VIEWER},
    refusal::{illegal_transition, invalid, not_found, not_permitted, refused},
    runner::Runner,
    tree::{Tree, input},
    within,
};

use crate::{attached, running, started, working};

async fn prompt(client: &Supervisor, thread: &str, turn: u32) -> Result<Prompt, Status> {
    Ok(compared(client, thread, turn, 0).await?.prompt.unwrap())
}

async fn compared(client: &Supervisor, thread: &str, turn: u32, with: u32) -> Result<GetPromptResponse, Status> {
    let request = GetPromptRequest {
        thread_id: thread.to_owned(),
        turn,
        diff_with_turn: with,
        ..GetPromptRequest::default()
    };
    let answer = within("a prompt", client.clone().get_prompt(request)).await?;
    Ok(answer.into_inner())
}

async fn page(client: &Supervisor, thread: &str, size: i32, token: &str) -> Result<ListPromptsResponse, Status> {
    let request = ListPromptsRequest {
        thread_id: thread.to_owned(),
        page_size: size,
        page_token: token.to_owned(),
        ..ListPromptsRequest::default()
    };
    let answer = within("a page of prompts", client.clone().list_prompts(request)).await?;
    Ok(answer.into_inner())
}

async fn tree_that_keeps(pair: &Pair, log: PromptLog) -> Tree {
    pair.tree_where(|session| session.prompt_log = log.into()).await
}

fn kinds(prompt: &Prompt) -> Vec<BlockKind> {
    prompt.blocks.iter().map(|block| block.kind()).collect()
}

fn block(prompt: &Prompt, kind: BlockKind) -> &PromptBlock {
    prompt.blocks.iter().find(|block| block.kind() == kind).unwrap()
}

/// Returns the SHA-256 of a prompt as an agent reads it.
fn sha256_of(blocks: &[PromptBlock]) -> String {
    let texts: Vec<&str> = blocks.iter().map(|block| block.text.as_str()).collect();
    Digest::of(texts.join("\n\n").as_bytes()).to_string()
}

/// Runs two turns of a thread. The first prompt has every kind of block, and the second prompt contains only changes.
/// Returns the thread, its runner and both prompts.
async fn two_turns(pair: &Pair, tree: &Tree) -> (String, Runner, Vec<PromptBlock>, Vec<PromptBlock>) {
    let mut runner = Runner::attach(pair, "r").await;
    let worker = tree
        .spawn_where("worker", |spawn| {
            spawn.custom_system_prompt = String::from("You are one of a kind.");
            spawn.r#override = String::from("Only today.");
        })
        .await
        .id;
    let start = runner.start_of(&worker).await;
    let attempt = runner.begin_start(&start).await;
    runner.complete(&attempt, "done").await;
    let request = SendInputRequest {
        r#override: String::from("Only tomorrow."),
        ..input(&worker, "and the tests")
    };
    tree.try_send(request).await.unwrap();
    let second = runner.turn_of(&attempt).await;
    assert_eq!(second.extent(), PromptExtent::Delta);
    (worker, runner, start.turn.unwrap().blocks, second.blocks)
}

/// Spawns a thread. Returns its id and the text of its role.
async fn spawn_with_role(tree: &Tree, runner: &mut Runner, request: SpawnAgentRequest) -> (String, Option<String>) {
    let id = tree.spawn_with(request).await.id;
    let blocks = runner.start_of(&id).await.turn.unwrap().blocks;
    let role = blocks.into_iter().find(|block| block.kind() == BlockKind::Role);
    (id, role.map(|block| block.text))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_inherits_instructions_of_its_parent() {
    let pair = Pair::start().await;
    pair.write_role("lead", "---\ndescription: Leads.\n---\nLead them.\n");
    let agents = Path::new(&pair.project()).join(".codex/agents");
    std::fs::create_dir_all(&agents).unwrap();
    let scribe = "---\nname: scribe\ndescription: Writes.\n---\nWrite it down.\n";
    std::fs::write(agents.join("scribe.md"), scribe).unwrap();
    let tree = pair.tree().await;
    let mut runner = Runner::attach(&pair, "r").await;

    let (lead, text) = spawn_with_role(&tree, &mut runner, tree.request("lead")).await;
    assert_eq!(text.as_deref(), Some("Lead them."));
    let one_of_a_kind = SpawnAgentRequest {
        custom_system_prompt: String::from("You are one of a kind."),
        ..tree.request("lead")
    };
    let (special, _) = spawn_with_role(&tree, &mut runner, one_of_a_kind).await;
    for (parent, role, expected) in [
        // A root that its client executes has no role.
        (&tree.root, "", None),
        (&tree.root, "scribe", Some("Write it down.")),
        (&lead, "", Some("Lead them.")),
        (&lead, "default", Some("Lead them.")),
        (&lead, "scribe", Some("Lead them.\n\nWrite it down.")),
        (&lead, "lead", Some("Lead them.")),
        (&special, "", Some("You are one of a kind.")),
        (&special, "scribe", Some("You are one of a kind.\n\nWrite it down.")),
        (&special, "lead", Some("Lead them.")),
    ] {
        let (_, text) = spawn_with_role(&tree, &mut runner, tree.request_under(parent, role)).await;
        assert_eq!(text.as_deref(), expected, "{role:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn effective_prompt_is_stored_completely() {
    let (pair, tree) = started().await;
    let (worker, _runner, sent, changed) = two_turns(&pair, &tree).await;
    let client = tree.client();

    let first = prompt(&client, &worker, 1).await.unwrap();
    assert_eq!(first.blocks, sent, "as it was sent");
    assert_eq!((&first.thread_id, first.turn, first.generation), (&worker, 1, 1));
    assert_eq!(first.extent(), PromptExtent::Full);
    assert!(first.time.is_some());
    assert_eq!(first.sha256, sha256_of(&first.blocks));
    assert_eq!(block(&first, BlockKind::Role).text, "You are one of a kind.");
    assert_eq!(block(&first, BlockKind::Override).text, "Only today.");
    for block in &first.blocks {
        assert_eq!(block.sha256, Digest::of(block.text.as_bytes()).to_string());
    }

    let second = prompt(&client, &worker, 2).await.unwrap();
    assert_eq!(second.extent(), PromptExtent::Delta);
    assert_eq!(kinds(&second), kinds(&first), "values that were not resent count too");
    assert!(changed.iter().all(|block| second.blocks.contains(block)) && changed.len() < second.blocks.len());
    assert_eq!(second.sha256, sha256_of(&second.blocks));
    assert_ne!(second.sha256, first.sha256);

    let listed = page(&client, &worker, 0, "").await.unwrap();
    assert_eq!(listed.next_page_token, "");
    let without_texts = [first, second].map(|prompt| Prompt {
        blocks: prompt
            .blocks
            .iter()
            .map(|block| PromptBlock {
                text: String::new(),
                ..block.clone()
            })
            .collect(),
        ..prompt
    });
    assert_eq!(listed.prompts, without_texts);
    let one = page(&client, &worker, 1, "").await.unwrap();
    let of_another_list = ListArtifactsRequest {
        thread_id: worker.clone(),
        page_size: 1,
        page_token: one.next_page_token.clone(),
        ..ListArtifactsRequest::default()
    };
    let answer = client.clone().list_artifacts(of_another_list).await;
    invalid(answer, "start again without it");
    let other = page(&client, &worker, 1, &one.next_page_token).await.unwrap();
    assert_eq!([one.prompts, other.prompts].concat(), without_texts);
    assert_eq!(other.next_page_token, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objective_is_in_every_prompt() {
    let (_pair, tree, mut runner) = attached().await;
    let worker = tree
        .spawn_where("worker", |spawn| {
            spawn.objective = String::from("a clean build");
            spawn.definition_of_done = String::from("no warnings");
        })
        .await
        .id;
    let attempt = runner.run(&worker).await;
    runner.complete(&attempt, "done").await;
    tree.send(&worker, "go on").await;
    runner.turn_of(&attempt).await;

    for turn in [1, 2] {
        let kept = prompt(&tree.client(), &worker, turn).await.unwrap();
        let task = &block(&kept, BlockKind::Task).text;
        let assigned = "## Objective\n- a clean build\n\n## Definition of done\n- no warnings\n";
        assert!(task.contains(assigned), "turn {turn}: {task}");
        assert_eq!(
            task.contains("- the task\n"),
            turn == 1,
            "the input itself is given once: {task}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overrides_of_pending_inputs_share_one_block() {
    let (_pair, tree, mut runner, worker, attempt) = working().await;
    // Even the beginnings of all overrides are too large for one record.
    let last_words: Vec<String> = (0..64).map(|number| format!("{number} {}", "ä".repeat(300))).collect();
    for text in &last_words {
        let request = SendInputRequest {
            r#override: text.clone(),
            ..input(&worker, "more")
        };
        tree.try_send(request).await.unwrap();
    }
    runner.complete(&attempt, "done").await;
    let turn = runner.turn_of(&attempt).await;
    assert_eq!(turn.inputs.len(), last_words.len());
    let mut sent = turn.blocks.iter().filter(|block| block.kind() == BlockKind::Override);
    assert_eq!(sent.next().unwrap().text, last_words.join("\n\n"));
    assert!(sent.next().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompt_diff_contains_only_changed_blocks() {
    let (pair, tree) = started().await;
    let (worker, _runner, ..) = two_turns(&pair, &tree).await;
    let client = tree.client();

    let diff = compared(&client, &worker, 2, 1).await.unwrap().diff;
    for part in [
        "--- turn 1 task\n+++ turn 2 task\n@@ ",
        "--- turn 1 override\n+++ turn 2 override\n@@ ",
        "\n-Only today.\n",
        "\n+Only tomorrow.\n",
    ] {
        assert!(diff.contains(part), "{part:?} is not in {diff}");
    }
    assert!(
        diff.lines()
            .any(|line| line.starts_with('+') && line.contains("and the tests"))
    );
    assert!(
        !diff.contains("turn 1 system") && !diff.contains("turn 1 role"),
        "{diff}"
    );
    let back = compared(&client, &worker, 1, 2).await.unwrap().diff;
    assert!(back.contains("--- turn 2 override\n+++ turn 1 override\n") && back.contains("\n+Only today.\n"));
    assert_eq!(compared(&client, &worker, 2, 2).await.unwrap().diff, "");
    assert_eq!(compared(&client, &worker, 2, 0).await.unwrap().diff, "");

    let answer = compared(&client, &worker, 2, 3).await;
    not_found(answer, "prompt of turn 3 not found");
    not_found(prompt(&client, &worker, 3).await, "prompt of turn 3 not found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversized_prompts_are_readable_but_not_comparable() {
    let (_pair, tree, mut runner) = attached().await;
    let worker = tree
        .spawn_where("worker", |spawn| spawn.message = Some("x".repeat(600_000)))
        .await
        .id;
    let attempt = runner.run(&worker).await;
    runner.complete(&attempt, "done").await;
    tree.send(&worker, &"y".repeat(600_000)).await;
    runner.turn_of(&attempt).await;

    let client = tree.client();
    let task = |prompt: &Prompt| block(prompt, BlockKind::Task).text.len();
    assert!(task(&prompt(&client, &worker, 2).await.unwrap()) > 600_000);
    let answer = compared(&client, &worker, 2, 1).await;
    let text = "at most 1048576 are compared";
    refused(answer, Code::ResourceExhausted, Reason::LimitExceeded, text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompt_omitted_by_full_session_is_not_lost() {
    let mut pair = Pair::alone(|config| config.session_content_bytes = 400_000).await;
    let tree = pair.tree().await;
    let (mut runner, attempt) = running(&pair, &tree).await;
    // The session can store this text once, but not the prompt that repeats it.
    tree.send(&attempt.thread, &"x".repeat(250_000)).await;
    runner.complete(&attempt, "done").await;
    runner.turn_of(&attempt).await;

    let client = tree.client();
    let (first, second) = (
        prompt(&client, &attempt.thread, 1).await,
        prompt(&client, &attempt.thread, 2).await,
    );
    let (first, second) = (first.unwrap(), second.unwrap());
    assert!(!first.texts_left_out && second.texts_left_out);
    assert_eq!(block(&second, BlockKind::Task).text, "");
    let kept = block(&second, BlockKind::System);
    assert_eq!(kept, block(&first, BlockKind::System), "the session had it already");
    assert!(!kept.text.is_empty());
    let answer = compared(&client, &attempt.thread, 2, 1).await;
    let text = "the texts of the prompt of turn 2 were left out, since the session had no room for them";
    illegal_transition(answer, text);

    drop(runner);
    let mut report = None;
    let verify = |data: &Path| report = Some(maintenance::verify(data, &mut |_| {}).unwrap());
    pair.restart_after(verify).await;
    let report = report.unwrap();
    assert_eq!((report.is_sound(), report.left_out), (true, 1), "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_with_prompt_hashes_stores_no_texts() {
    let pair = Pair::start().await;
    let tree = tree_that_keeps(&pair, PromptLog::Hashes).await;
    let (worker, _runner, sent, _) = two_turns(&pair, &tree).await;
    let client = tree.client();

    let first = prompt(&client, &worker, 1).await.unwrap();
    assert_eq!(first.sha256, sha256_of(&sent));
    let sums = |blocks: &[PromptBlock]| -> Vec<String> { blocks.iter().map(|block| block.sha256.clone()).collect() };
    assert_eq!(sums(&first.blocks), sums(&sent));
    assert!(first.blocks.iter().all(|block| block.text.is_empty()));
    let task = block(&first, BlockKind::Task).sha256.clone();
    let answer = read(&client, &tree.session, &task).await;
    not_found(answer, &format!("content {task} not found"));
    let text = "open one with prompt_log FULL";
    let answer = compared(&client, &worker, 2, 1).await;
    illegal_transition(answer, text);
    for event in tree.log().await {
        if let Some(Kind::TurnDispatched(dispatched)) = event.kind {
            let mut contents = dispatched.blocks.into_iter().map(|block| block.content.unwrap());
            assert!(contents.all(|content| content.preview.is_empty() && content.size > 0));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_without_prompts_still_records_turns() {
    let pair = Pair::start().await;
    let tree = tree_that_keeps(&pair, PromptLog::Off).await;
    let (worker, _runner, sent, _) = two_turns(&pair, &tree).await;
    let client = tree.client();

    let listed = page(&client, &worker, 0, "").await.unwrap().prompts;
    assert_eq!(listed.iter().map(|prompt| prompt.turn).collect::<Vec<_>>(), [1, 2]);
    assert!(
        listed
            .iter()
            .all(|prompt| prompt.sha256.is_empty() && prompt.blocks.is_empty())
    );
    assert_eq!(prompt(&client, &worker, 1).await.unwrap(), listed[0]);
    for block in sent {
        let answer = read(&client, &tree.session, &block.sha256).await;
        not_found(answer, "not found");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn viewers_see_digests() {
    let (pair, tree) = started().await;
    let (worker, ..) = two_turns(&pair, &tree).await;
    let viewer = pair.with_token(VIEWER);

    let whole = prompt(&tree.client(), &worker, 1).await.unwrap();
    let seen = prompt(&viewer, &worker, 1).await.unwrap();
    assert_eq!((&seen.sha256, kinds(&seen)), (&whole.sha256, kinds(&whole)));
    for (seen, whole) in seen.blocks.iter().zip(&whole.blocks) {
        assert_eq!((seen.text.as_str(), &seen.sha256), ("", &whole.sha256));
        let answer = read(&viewer, &tree.session, &whole.sha256).await;
        let text = "viewers read the contents of artifacts only";
        not_permitted(answer, text);
    }
    let answer = compared(&viewer, &worker, 2, 1).await;
    not_permitted(answer, "viewers see digests of prompts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thread_reads_prompts_of_its_subtree() {
    let (pair, tree, mut runner) = attached().await;
    let a = tree.spawn("orchestrator").await;
    let child = tree.spawn_under(&a.id, "worker").await;
    let b = tree.spawn("orchestrator").await;
    for thread in [&a, &child, &b] {
        runner.run(&thread.id).await;
    }
    let (by_a, by_b) = (pair.with_token(&a.token), pair.with_token(&b.token));

    let of_child = prompt(&by_a, &child.id, 1).await.unwrap();
    assert_eq!(of_child, prompt(&tree.client(), &child.id, 1).await.unwrap());
    assert_eq!(prompt(&by_a, "", 1).await.unwrap().thread_id, a.id, "its own");
    assert_eq!(page(&by_a, &child.id, 0, "").await.unwrap().prompts.len(), 1);

    let task = block(&of_child, BlockKind::Task);
    assert_eq!(
        read(&by_a, &tree.session, &task.sha256).await.unwrap(),
        task.text.as_bytes()
    );
    assert_eq!(read(&by_a, "", &task.sha256).await.unwrap(), task.text.as_bytes());
    let answer = read(&by_b, "", &task.sha256).await;
    not_found(answer, &format!("content {} not found", task.sha256));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rendered_prompt_is_an_artifact() {
    let pair = Pair::start().await;
    let mut runner = Runner::attach(&pair, "r").await;
    let told = "the program's prompt";
    for (log, text) in [
        (PromptLog::Full, Some(json!(told))),
        (PromptLog::Hashes, Some(Value::Null)),
        (PromptLog::Off, None),
    ] {
        let tree = tree_that_keeps(&pair, log).await;
        let worker = tree.spawn("worker").await.id;
        let attempt = runner.run(&worker).await;
        let blocks = vec![PromptBlock {
            kind: BlockKind::Task.into(),
            text: told.to_owned(),
            sha256: String::from("not looked at"),
        }];
        runner
            .report(&attempt, Report::Prompt(PromptReport { turn: 1, blocks }))
            .await;

        let found = tree.artifacts(&worker).await;
        let Some(text) = text else {
            assert!(found.is_empty(), "{found:?}");
            continue;
        };
        let [kept] = &found[..] else {
            panic!("expected one artifact, not {found:?}");
        };
        assert_eq!(
            (kept.kind.as_str(), kept.media_type.as_str(), kept.turn),
            ("prompt", "application/json", 1)
        );
        let sum = &kept.content.as_ref().unwrap().digest;
        let bytes = read(&tree.client(), &tree.session, sum).await.unwrap();
        let shown: Value = serde_json::from_slice(&bytes).unwrap();
        let sha256 = Digest::of(told.as_bytes()).to_string();
        assert_eq!(
            shown,
            json!([{ "kind": "BLOCK_KIND_TASK", "sha256": sha256, "text": text }])
        );

        let viewer = pair.with_token(VIEWER);
        assert_eq!(tree.by(viewer.clone()).artifacts(&worker).await, found);
        let answer = read(&viewer, &tree.session, sum).await;
        not_permitted(answer, "viewers read the contents of artifacts only");
    }
}
