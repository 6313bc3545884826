//! The real programs Codex, Claude Code, OpenCode and Gemini CLI as threads: trees of agents, denied tools, interrupted
//! and failed turns, a killed runner, and the end of all processes. A scripted stand-in replaces their model providers.
//!
//! These tests run only with `TROUPE_AGENTS=1`; see `tests/agents/README.md`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod approvals;
mod providers;

use std::{path::Path, time::Duration};

use serde_json::{Value, json};
use tokio::time::timeout;
use troupe_proto::{
    common::v1::Mode,
    supervisor::v1::{
        ConditionKind, CreateSessionRequest, Event, InterruptAgentRequest, ListArtifactsRequest, ListSessionsRequest,
        RestartPolicy, SendInputRequest, Session, StatusKind, TurnOutcome, event::Kind,
    },
};
use troupe_tests::{
    agents::{
        CLAUDE, CODEX, GEMINI, KEY, Lab, OPENCODE, are_wanted, message, processes, runs_tail, script, send, settled,
        spawn, until, wait_for_process_end, wait_for_tail,
    },
    content,
    events::{about, names},
    tree::{Tree, has, kind},
    within,
};

mod confinement;
mod landlock;
mod mcp;
mod planning;
mod programs;
mod results;
mod transcripts;
mod usage;

/// The directory for the files of the labs. It is not a directory for temporary files.
const UNDER: &str = env!("CARGO_TARGET_TMPDIR");
/// The four programs.
const ALL: [&str; 4] = [CODEX, CLAUDE, OPENCODE, GEMINI];
/// A command that does not end, with a child in another process group.
const LASTING: &str = "setsid tail -f /dev/null & tail -f /dev/null";
/// Maximum time for an agent to obey an interrupt before its runner escalates from a request to a signal and a kill.
const OBEYS_WITHIN: Duration = Duration::from_secs(2);

async fn lab() -> Lab {
    Lab::with_runner(Path::new(UNDER)).await
}

async fn tree(lab: &Lab) -> Tree {
    lab.tree(CreateSessionRequest::default()).await
}

/// Creates a session over a project with a role for each of the four programs.
async fn tree_of_all(lab: &Lab) -> Tree {
    for program in [OPENCODE, GEMINI] {
        lab.role(program, program, "");
    }
    tree(lab).await
}

/// Returns a step in which the program writes a file with its own tool.
fn writes(program: &str, lab: &Lab, name: &str) -> Value {
    match program {
        CODEX => json!({
            "tool": "apply_patch",
            "args": format!("*** Begin Patch\n*** Add File: {name}\n+written\n*** End Patch\n"),
        }),
        OPENCODE => json!({"tool": "write", "args": {"filePath": lab.project().join(name), "content": "written\n"}}),
        GEMINI => {
            json!({"tool": "write_file", "args": {"file_path": lab.project().join(name), "content": "written\n"}})
        }
        _ => json!({"tool": "Write", "args": {"file_path": lab.project().join(name), "content": "written\n"}}),
    }
}

/// Returns the names of the tools with which a program writes files.
fn writing_tools(program: &str) -> &'static [&'static str] {
    match program {
        CODEX => &["apply_patch"],
        _ => &["Edit", "Write", "NotebookEdit"],
    }
}

/// Returns the results of tool calls in a program's last request with results. OpenCode also sends requests for titles,
/// which have no results.
fn results(lab: &Lab, program: &str) -> Vec<String> {
    let asked = lab.stand_in.asked_by(program).into_iter();
    let mut results = asked.map(|asked| asked.results);
    results.rfind(|results| !results.is_empty()).unwrap_or_default()
}

/// Checks that a thread's turn completes with `done`.
async fn assert_done(tree: &Tree, thread: &str, role: &str) {
    let ended = settled(tree, thread).await;
    assert_eq!(
        (kind(&ended), message(&ended)),
        (StatusKind::Completed, "done"),
        "{role}: {ended:?}"
    );
}

async fn interrupt(tree: &Tree, thread: &str) {
    let request = InterruptAgentRequest {
        thread_id: thread.to_owned(),
        ..InterruptAgentRequest::default()
    };
    within("the answer to an interrupt", tree.client().interrupt_agent(request))
        .await
        .unwrap();
}

/// Returns the children of a thread.
async fn children(tree: &Tree, parent: &str) -> Vec<String> {
    let threads = tree.threads().await.into_iter();
    let children = threads.filter(|thread| thread.parent_thread_id == parent);
    children.map(|thread| thread.thread_id).collect()
}

// ---- the tree ----

async fn tree_of(parent_program: &str, child_program: &str) {
    let lab = lab().await;
    let writing = writing_tools(parent_program).join(", ");
    lab.role("lead", parent_program, &format!("deny_list: [{writing}]\n"));
    lab.role("scout", child_program, "read_only: true\ndeny_list: [spawn_agent]\n");
    let tree = tree(&lab).await;

    // The parent spawns a child. The child tries to write with a command and with a tool, and then answers.
    let answer = json!([
        {"shell": "echo written > by-command.txt"},
        writes(child_program, &lab, "by-tool.txt"),
        {"delay": 1, "text": "the answer is 42"},
    ]);
    let task = format!("Find it out. {}", script(&answer));
    let steps = json!([
        {"tool": "spawn_agent", "args": {"agent_type": "scout", "message": task}},
        {"text": "spawned"},
    ]);
    let parent = spawn(&tree, "lead", &steps).await;
    assert_eq!(message(&settled(&tree, &parent).await), "spawned");
    let child = children(&tree, &parent).await.pop().expect("a child");

    // The parent waits for the child.
    let steps =
        json!([{"tool": "wait", "args": {"ids": [child], "timeout_ms": 30_000}}, {"text": "the parent is done"}]);
    send(&tree, &parent, &steps).await;
    let parents = settled(&tree, &parent).await;
    assert_eq!(
        (kind(&parents), message(&parents)),
        (StatusKind::Completed, "the parent is done")
    );
    let child_state = tree.thread(&child).await;
    assert_eq!(
        (kind(&child_state), message(&child_state)),
        (StatusKind::Completed, "the answer is 42")
    );
    let waited = results(&lab, parent_program).pop().unwrap();
    assert!(
        waited.contains("the answer is 42") && waited.contains(&child),
        "{waited}"
    );

    // No model was offered a tool that the role denies, and the child could not write.
    let (of_parent, of_child) = (
        lab.stand_in.asked_by(parent_program),
        lab.stand_in.asked_by(child_program),
    );
    for asked in &of_parent {
        assert!(asked.offers("spawn_agent") && asked.offers("wait"), "{asked:?}");
        for tool in writing_tools(parent_program) {
            assert!(!asked.offers(tool), "{tool}: {asked:?}");
        }
    }
    assert!(of_child.len() >= 3, "{of_child:?}");
    for asked in &of_child {
        assert!(!asked.offers("spawn_agent"), "{asked:?}");
        for tool in writing_tools(child_program) {
            assert!(!asked.offers(tool), "{tool}: {asked:?}");
        }
    }
    for file in ["by-command.txt", "by-tool.txt"] {
        assert!(!lab.project().join(file).exists(), "the child wrote {file}");
    }

    // Closing the root ends all processes.
    assert!(!processes(&parent).is_empty() && !processes(&child).is_empty());
    tree.end().await;
    wait_for_process_end(&[&parent, &child]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_delegates_to_claude() {
    if are_wanted("a tree of codex and claude") {
        tree_of(CODEX, CLAUDE).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claude_delegates_to_codex() {
    if are_wanted("a tree of claude and codex") {
        tree_of(CLAUDE, CODEX).await;
    }
}

/// Checks a program that uses the Agent Client Protocol: it has Troupe's tools over MCP, leads a child of another
/// program, and is not offered tools that its role denies.
async fn assert_leads_claude(program: &str) {
    let lab = lab().await;
    lab.role("lead", program, "deny_list: [apply_patch]\n");
    lab.role("scout", CLAUDE, "read_only: true\n");
    lab.role("reader", program, "read_only: true\n");
    let tree = tree(&lab).await;
    let task = format!("Find it out. {}", script(&json!([{"text": "the answer is 42"}])));
    let steps = json!([
        {"shell": "echo by-lead > by-lead.txt"},
        {"tool": "spawn_agent", "args": {"agent_type": "scout", "message": task}},
        {"text": "spawned"},
    ]);
    let lead = spawn(&tree, "lead", &steps).await;
    assert_eq!(message(&settled(&tree, &lead).await), "spawned");
    let child = children(&tree, &lead).await.pop().expect("a child");
    assert_eq!(message(&settled(&tree, &child).await), "the answer is 42");
    assert!(lab.project().join("by-lead.txt").exists());
    for asked in lab.stand_in.asked_by(program) {
        // The program also requests a title, without any tools.
        assert!(asked.tools.is_empty() || asked.offers("spawn_agent"), "{asked:?}");
        for tool in ["edit", "write", "patch", "replace", "write_file"] {
            assert!(!asked.tools.iter().any(|name| name == tool), "{tool}: {asked:?}");
        }
    }

    // The next turn continues the conversation, and a read-only agent with this program cannot write.
    send(&tree, &lead, &json!([{"text": "again"}])).await;
    assert_eq!(message(&settled(&tree, &lead).await), "again");
    let reader = spawn(
        &tree,
        "reader",
        &json!([{"shell": "echo x > by-reader.txt"}, {"text": "read"}]),
    )
    .await;
    settled(&tree, &reader).await;
    assert!(!lab.project().join("by-reader.txt").exists());

    tree.end().await;
    wait_for_process_end(&[&lead, &child, &reader]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opencode_leads_claude() {
    if are_wanted("opencode") {
        assert_leads_claude(OPENCODE).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gemini_leads_claude() {
    if are_wanted("gemini") {
        assert_leads_claude(GEMINI).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_own_agent_leads_other_agents() {
    if !are_wanted("leading by a person's own agent") {
        return;
    }
    let lab = lab().await;
    for (own, led) in [(CLAUDE, CODEX), (CODEX, CLAUDE)] {
        let task = format!("Find it out. {}", script(&json!([{"text": "the answer is 42"}])));
        let go = lab.project().join(format!("{own}.go"));
        let steps = json!([
            {"tool": "spawn_agent", "args": {"agent_type": led, "message": task}},
            {"shell": format!("until test -e {}; do sleep 0.1; done", go.display())},
            {"tool": "list_active_agents", "args": {}},
            {"text": "they found it out"},
        ]);
        let prompt = format!("Have it found out. {}", script(&steps));
        let agent = tokio::spawn(lab.own_agent(own, &prompt).output());
        let session = until("its session", async || sessions(&lab).await.pop()).await;
        let tree = Tree::of(lab.client(), &session);
        let child = until("its child", async || {
            children(&tree, &session.root_thread_id).await.pop()
        })
        .await;
        assert_eq!(message(&settled(&tree, &child).await), "the answer is 42");
        std::fs::write(&go, "").unwrap();

        let output = within("its end", agent).await.unwrap().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("they found it out"),
            "{own}: {output:?}"
        );
        let results = results(&lab, own);
        assert!(results.last().unwrap().contains("completed"), "{own}: {results:?}");
        // The subprocesses of the program end together with the program.
        until("the end of its session", async || {
            sessions(&lab).await.is_empty().then_some(())
        })
        .await;
    }
}

/// Returns the open sessions.
async fn sessions(lab: &Lab) -> Vec<Session> {
    let listed = lab.client().list_sessions(ListSessionsRequest::default()).await;
    listed.unwrap().into_inner().sessions
}

// ---- permissions ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hook_rejects_offered_tool_that_is_not_allowed_now() {
    if !are_wanted("refusals of the hook") {
        return;
    }
    let lab = lab().await;
    let planning = CreateSessionRequest {
        mode: Mode::Planning.into(),
        ..CreateSessionRequest::default()
    };
    let tree = lab.tree(planning).await;
    for program in [CODEX, CLAUDE] {
        let steps =
            json!([writes(program, &lab, "code.txt"), writes(program, &lab, "docs/plan.txt"), {"text": "planned"}]);
        let thread = spawn(&tree, program, &steps).await;
        assert_eq!(message(&settled(&tree, &thread).await), "planned");
        let results = results(&lab, program);
        assert!(
            results[0].contains("write restricted to docs/ in PLANNING mode"),
            "{results:?}"
        );
        assert!(!lab.project().join("code.txt").exists(), "{program}");
        assert!(lab.project().join("docs/plan.txt").exists(), "{program}: {results:?}");
        std::fs::remove_file(lab.project().join("docs/plan.txt")).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_only_agent_cannot_write() {
    if !are_wanted("read-only agents") {
        return;
    }
    let lab = lab().await;
    let tree = tree(&lab).await;
    for program in [CODEX, CLAUDE] {
        lab.role("reader", program, "read_only: true\n");
        let steps = json!([
            {"shell": "echo written > by-command.txt"},
            writes(program, &lab, "by-tool.txt"),
            {"text": "I cannot"},
        ]);
        let thread = spawn(&tree, "reader", &steps).await;
        assert_eq!(message(&settled(&tree, &thread).await), "I cannot");
        for file in ["by-command.txt", "by-tool.txt"] {
            assert!(!lab.project().join(file).exists(), "{program} wrote {file}");
        }
    }
    // Codex has commands, which its sandbox restricts. Claude Code has no commands here.
    let [command, _] = &results(&lab, CODEX)[..] else {
        panic!()
    };
    assert!(command.contains("Read-only file system"), "{command}");
    assert!(lab.stand_in.asked_by(CLAUDE).iter().all(|asked| !asked.offers("Bash")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_see_no_credentials() {
    if !are_wanted("credentials out of reach") {
        return;
    }
    let lab = lab().await;
    let tree = tree_of_all(&lab).await;
    for program in ALL {
        // The output goes into a file, because the stand-in shortens results in its log.
        let command = format!("(env; cat ../d/operator.token; ls ../d/runner) > {program}.txt 2>&1; true");
        let thread = spawn(&tree, program, &json!([{"shell": command}, {"text": "seen"}])).await;
        assert_eq!(message(&settled(&tree, &thread).await), "seen");
        let seen = std::fs::read_to_string(lab.project().join(format!("{program}.txt"))).unwrap();
        assert!(seen.contains("TROUPE_THREAD_ID="), "{seen}");
        assert!(!seen.contains(KEY), "{program} shows its commands the provider's key");
        let token = std::fs::read_to_string(lab.project().join("../d/operator.token")).unwrap();
        assert!(!seen.contains(token.trim()), "{program} reads the operator's token");
    }
}

// ---- turns ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupt_ends_commands_and_keeps_conversation() {
    if !are_wanted("interrupts") {
        return;
    }
    let lab = lab().await;
    let tree = tree(&lab).await;
    for program in [CODEX, CLAUDE] {
        let steps = json!([{"shell": "echo first"}, {"shell": LASTING}, {"text": "never said"}]);
        let thread = spawn(&tree, program, &steps).await;
        wait_for_tail(&thread).await;
        interrupt(&tree, &thread).await;
        let ended = timeout(OBEYS_WITHIN, settled(&tree, &thread))
            .await
            .expect("the program obeys");
        assert_eq!(kind(&ended), StatusKind::Interrupted, "{program}");
        until("the end of the command", async || (!runs_tail(&thread)).then_some(())).await;
        assert!(
            !processes(&thread).is_empty(),
            "{program} itself waits for its next turn"
        );

        let before = lab.stand_in.asked_by(program).pop().unwrap();
        send(&tree, &thread, &json!([{"shell": "echo second"}, {"text": "we go on"}])).await;
        assert_eq!(message(&settled(&tree, &thread).await), "we go on");
        let after = lab.stand_in.asked_by(program).pop().unwrap();
        assert!(after.messages > before.messages, "{before:?} {after:?}");
        assert!(after.results[0].contains("first"), "{program} remembers: {after:?}");
        assert!(after.results.last().unwrap().contains("second"), "{after:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_turn_is_steered() {
    if !are_wanted("steering") {
        return;
    }
    let lab = lab().await;
    let tree = tree_of_all(&lab).await;
    for program in ALL {
        let go = lab.project().join(format!("{program}.go"));
        let wait = format!("until test -e {}; do sleep 0.1; done", go.display());
        let thread = spawn(&tree, program, &json!([{"shell": wait}, {"text": "the old way"}])).await;
        until("a request", async || lab.stand_in.asked_by(program).pop()).await;
        let request = SendInputRequest {
            thread_id: thread.clone(),
            message: Some(format!("Not so! {}", script(&json!([{"text": "the new way"}])))),
            steer: true,
            ..SendInputRequest::default()
        };
        tree.client().send_input(request).await.unwrap();
        let happened = async |name: &str| {
            let log = names(&about(&tree.log().await, &thread));
            log.iter().filter(|other| *other == name).count()
        };
        // Gemini CLI receives the input after its current message: in this turn, or in the next turn if the message is
        // late.
        if program != GEMINI {
            until("the input in the turn", async || {
                (happened("InputDelivered").await > 0).then_some(())
            })
            .await;
        }
        std::fs::write(&go, "").unwrap();
        until("the steered answer", async || {
            let ended = settled(&tree, &thread).await;
            assert_eq!(kind(&ended), StatusKind::Completed, "{program}: {}", message(&ended));
            (message(&ended) == "the new way").then_some(())
        })
        .await;
        if program != GEMINI {
            assert_eq!(happened("TurnEnded").await, 1, "{program}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupt_does_not_wait_for_model() {
    if !are_wanted("interrupts of a model that writes") {
        return;
    }
    let lab = lab().await;
    let tree = tree(&lab).await;
    for program in [CODEX, CLAUDE] {
        let thread = spawn(&tree, program, &json!([{"delay": 50, "text": "slowly"}])).await;
        until("a request", async || lab.stand_in.asked_by(program).pop()).await;
        interrupt(&tree, &thread).await;
        let ended = timeout(OBEYS_WITHIN, settled(&tree, &thread))
            .await
            .expect("the program obeys");
        assert_eq!(kind(&ended), StatusKind::Interrupted, "{program}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn provider_failure_fails_only_that_turn_with_its_text() {
    if !are_wanted("failures of a provider") {
        return;
    }
    let lab = lab().await;
    let tree = tree(&lab).await;
    for (program, words) in [
        // Codex has its own text for this error.
        (CODEX, "internalServerError"),
        (CLAUDE, "the kitchen is on fire"),
    ] {
        let steps = json!([{"error": 500, "message": "the kitchen is on fire"}]);
        let thread = spawn(&tree, program, &steps).await;
        let failed = settled(&tree, &thread).await;
        assert_eq!(kind(&failed), StatusKind::Errored, "{program}");
        assert!(message(&failed).contains(words), "{}", message(&failed));

        send(&tree, &thread, &json!([{"error": 400, "message": "bad soup"}])).await;
        let failed = settled(&tree, &thread).await;
        assert_eq!(kind(&failed), StatusKind::Errored, "{program}");
        assert!(message(&failed).contains("bad soup"), "{}", message(&failed));

        send(&tree, &thread, &json!([{"text": "fine again"}])).await;
        let fine = settled(&tree, &thread).await;
        assert_eq!((kind(&fine), message(&fine)), (StatusKind::Completed, "fine again"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_turn_are_an_artifact() {
    if !are_wanted("artifacts") {
        return;
    }
    let lab = lab().await;
    let tree = tree_of_all(&lab).await;
    for program in ALL {
        let thread = spawn(
            &tree,
            program,
            &json!([writes(program, &lab, program), {"text": "made"}]),
        )
        .await;
        assert_eq!(message(&settled(&tree, &thread).await), "made");
        let name = if program == GEMINI { "write_file" } else { "apply_patch" };
        // Telemetry may arrive later than the end of the turn.
        until("the last tool", async || {
            let last = tree.thread(&thread).await.last_tool;
            last.filter(|tool| tool.name == name)
        })
        .await;
        let request = ListArtifactsRequest {
            thread_id: thread.clone(),
            ..ListArtifactsRequest::default()
        };
        let listed = within("the artifacts", tree.client().list_artifacts(request)).await;
        let listed = listed.unwrap().into_inner().artifacts;
        let [diff] = &listed[..] else {
            panic!("{program}: {listed:?}")
        };
        assert_eq!(
            (diff.name.as_str(), diff.kind.as_str(), diff.turn),
            ("turn-1.diff", "diff", 1)
        );
        let digest = &diff.content.as_ref().unwrap().digest;
        let text = content::read(&tree.client(), &tree.session, digest).await.unwrap();
        let text = String::from_utf8(text).unwrap();
        let expected = format!("--- /dev/null\n+++ b/{program}\n@@ -0,0 +1 @@\n+written\n");
        assert!(text.contains(&expected), "{text}");
    }
}

// ---- the runner dies ----

fn is_unreachable(event: &Event) -> bool {
    matches!(&event.kind, Some(Kind::ConditionChanged(changed))
        if changed.active && changed.kind() == ConditionKind::Unreachable)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_runner_leaves_no_process_and_next_runner_continues() {
    if !are_wanted("a runner that is killed") {
        return;
    }
    let lab = Lab::without_runner(Path::new(UNDER)).await;
    let mut runner = lab.runner("r");
    let restarting = CreateSessionRequest {
        restart_policy: RestartPolicy::OnLost.into(),
        ..CreateSessionRequest::default()
    };
    let tree = lab.tree(restarting).await;
    let fleeting = lab.tree(CreateSessionRequest::default()).await;
    let mut threads = Vec::new();
    let mut lost = Vec::new();
    for program in [CODEX, CLAUDE] {
        let steps = json!([
            {"shell": format!("echo once >> {program}.txt; cat {program}.txt")},
            // Claude Code writes its transcript with a delay.
            {"delay": 1, "shell": format!("test $(wc -l < {program}.txt) -gt 1 || ({LASTING})")},
            {"text": "done after all"},
        ]);
        threads.push(spawn(&tree, program, &steps).await);
        lost.push(spawn(&fleeting, program, &json!([{"shell": LASTING}, {"text": "never said"}])).await);
    }
    let all: Vec<&str> = threads.iter().chain(&lost).map(String::as_str).collect();
    for thread in &all {
        wait_for_tail(thread).await;
    }

    // After SIGKILL the runner cannot clean up, but no process remains.
    runner.kill().await.unwrap();
    wait_for_process_end(&all).await;
    tree.watch_after(0).await.until(is_unreachable).await;
    assert!(has(&tree.thread(&threads[0]).await, ConditionKind::Unreachable));

    // The next runner with that name takes over the attempts that may continue. All others are settled.
    let _runner = lab.runner("r");
    for (thread, program) in threads.iter().zip([CODEX, CLAUDE]) {
        let done = settled(&tree, thread).await;
        assert_eq!(
            (kind(&done), message(&done)),
            (StatusKind::Completed, "done after all"),
            "{program}"
        );
        assert_eq!(done.generation, 2);
        assert!(!has(&done, ConditionKind::Unreachable));
        // The conversation is continued, so a request contains the results of the earlier calls too. A new
        // conversation would have only two results. The program decides whether the interrupted call has a result.
        let asked = lab.stand_in.asked_by(program).into_iter();
        let last = asked.max_by_key(|asked| asked.results.len()).expect("requests");
        assert!(last.results.len() >= 3 && last.results[0].contains("once"), "{last:?}");
        assert!(
            last.users.contains("An earlier attempt at this was interrupted."),
            "{last:?}"
        );
        let ends = tree.log().await;
        let ends = ends.iter().filter(|event| event.thread_id == *thread);
        let ends: Vec<TurnOutcome> = ends
            .filter_map(|event| match &event.kind {
                Some(Kind::TurnEnded(ended)) => Some(ended.outcome()),
                _ => None,
            })
            .collect();
        assert_eq!(ends, [TurnOutcome::Completed], "{program}");
    }
    for thread in &lost {
        let ended = settled(&fleeting, thread).await;
        assert_eq!(kind(&ended), StatusKind::Errored);
        assert!(
            message(&ended).contains("came back without the agent"),
            "{}",
            message(&ended)
        );
    }

    tree.end().await;
    fleeting.end().await;
    wait_for_process_end(&all).await;
}
