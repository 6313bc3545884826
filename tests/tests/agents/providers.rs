//! Failing providers, settings that a program cannot apply, tools that are not offered, and conversations that outlive
//! their program.

use std::path::Path;

use serde_json::json;
use troupe_proto::supervisor::v1::{
    ConditionKind, CreateSessionRequest, Event, Limits, StatusKind, Thread, event::Kind,
};
use troupe_tests::{
    agents::{CLAUDE, CODEX, GEMINI, KEY, Lab, OPENCODE, are_wanted, message, processes, send, settled, spawn, until},
    events::about,
    tree::kind,
};

use super::{ALL, UNDER, interrupt, lab, results, tree_of_all};

/// Returns the reason of a thread's condition. It is empty if the thread does not have the condition.
fn reason(thread: &Thread, kind: ConditionKind) -> String {
    let mut conditions = thread.conditions.iter();
    let condition = conditions.find(|condition| condition.kind() == kind);
    condition.map(|condition| condition.reason.clone()).unwrap_or_default()
}

/// Returns the tool and the reason of each denial that was recorded for a thread.
fn denials(log: &[Event], thread: &str) -> Vec<(String, String)> {
    let events = about(log, thread).into_iter();
    let denials = events.filter_map(|event| match event.kind {
        Some(Kind::ToolDenied(denied)) => Some((denied.tool, denied.reason)),
        _ => None,
    });
    denials.collect()
}

/// Sends SIGKILL to a thread's program.
fn kill_program(thread: &str, program: &str) {
    let of_program = |line: &&String| line.contains(program) && !line.contains("bwrap");
    let lines = processes(thread);
    let pids = lines.iter().filter(of_program).filter_map(|line| line.split_once(' '));
    for (pid, _) in pids {
        // A child process may already have ended with its parent.
        let _ = std::process::Command::new("kill").args(["-KILL", pid]).status();
    }
}

// ---- providers that fail ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_provider_is_shown_in_activity() {
    if !are_wanted("activity of a failing provider") {
        return;
    }
    let lab = lab().await;
    let tree = tree_of_all(&lab).await;
    for program in [CLAUDE, OPENCODE, GEMINI] {
        let thread = spawn(&tree, program, &json!([{"error": 429, "message": "slow down"}])).await;
        let activity = until("an activity that names the error", async || {
            let activity = tree.thread(&thread).await.activity;
            activity.starts_with("provider error 429, attempt ").then_some(activity)
        })
        .await;
        assert!(
            activity.ends_with(|last: char| last.is_ascii_digit()),
            "{program}: {activity}"
        );
        interrupt(&tree, &thread).await;
        settled(&tree, &thread).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_without_progress_end_the_turn() {
    if !are_wanted("the guard of the request rate") {
        return;
    }
    let lab = lab().await;
    let tree = tree_of_all(&lab).await;
    let thread = spawn(&tree, OPENCODE, &json!([{"garbage": true}])).await;
    let ended = settled(&tree, &thread).await;
    assert_eq!(kind(&ended), StatusKind::Errored);
    let text = message(&ended);
    assert!(text.starts_with("provider request rate: 40 requests in "), "{text}");
    assert!(
        lab.stand_in.asked_by(OPENCODE).len() < 60,
        "{OPENCODE} sends more requests"
    );
    // The conversation of the thread continues with another program.
    send(&tree, &thread, &json!([{"text": "fine again"}])).await;
    assert_eq!(message(&settled(&tree, &thread).await), "fine again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn program_has_no_key_or_address_of_its_provider() {
    if !are_wanted("keys that a proxy holds") {
        return;
    }
    let lab = lab().await;
    let tree = tree_of_all(&lab).await;
    for program in ALL {
        let thread = spawn(&tree, program, &json!([{"shell": "true"}, {"text": "done"}])).await;
        assert_eq!(message(&settled(&tree, &thread).await), "done", "{program}");
        // The program waits for its next turn.
        let lines = processes(&thread);
        assert!(!lines.is_empty(), "{program}");
        for line in lines {
            let pid = line.split(' ').next().unwrap();
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let environment = String::from_utf8_lossy(&environment);
            assert!(!environment.contains(KEY), "{line}: {environment}");
            let url = lab.stand_in.url.trim_end_matches('/');
            assert!(!environment.contains(url), "{line}: {environment}");
        }
    }
}

// ---- settings ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn effort_is_applied_or_a_condition_says_so() {
    if !are_wanted("efforts") {
        return;
    }
    let lab = lab().await;
    let tree = lab.tree(CreateSessionRequest::default()).await;
    for (program, effort, applied) in [
        (CODEX, "none", Ok("none")),
        (CODEX, "xhigh", Ok("xhigh")),
        (CLAUDE, "none", Ok("medium")),
        (CLAUDE, "minimal", Err("Claude Code")),
        (OPENCODE, "xhigh", Ok("xhigh")),
        (OPENCODE, "minimal", Ok("minimal")),
        (OPENCODE, "none", Ok("none")),
        (GEMINI, "low", Ok("1024")),
        (GEMINI, "xhigh", Err("Gemini CLI")),
    ] {
        let role = format!("{program}-{effort}");
        lab.role(&role, program, &format!("reasoning_effort: {effort}\n"));
        let thread = spawn(&tree, &role, &json!([{"text": "done"}])).await;
        let done = settled(&tree, &thread).await;
        assert_eq!(message(&done), "done", "{role}");
        // A request for a title offers no tools.
        let asked = lab
            .stand_in
            .asked_by(program)
            .into_iter()
            .rfind(|asked| !asked.tools.is_empty());
        let asked = asked.expect("a request");
        let gap = reason(&done, ConditionKind::PolicyGap);
        match applied {
            Ok(value) => assert_eq!((asked.effort.as_str(), gap.as_str()), (value, ""), "{role}"),
            Err(name) => {
                let expected = format!("reasoning_effort \"{effort}\" is not applied: {name} ");
                assert!(gap.contains(&expected), "{role}: {gap}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_with_only_read_tools_can_read() {
    if !are_wanted("a codex with read tools") {
        return;
    }
    let lab = lab().await;
    lab.role("reader", CODEX, "allow_list: [read_file, list_files]\n");
    std::fs::write(lab.project().join("a.txt"), "what it says\n").unwrap();
    let tree = lab.tree(CreateSessionRequest::default()).await;
    let steps = json!([
        {"tool": "read_file", "args": {"path": "a.txt"}},
        {"tool": "write_file", "args": {"path": "b.txt", "content": "x"}},
        {"text": "read"},
    ]);
    let thread = spawn(&tree, "reader", &steps).await;
    assert_eq!(message(&settled(&tree, &thread).await), "read");
    let results = results(&lab, CODEX);
    assert!(results[0].contains("what it says"), "{results:?}");
    assert!(!lab.project().join("b.txt").exists());
    for asked in lab.stand_in.asked_by(CODEX) {
        assert!(asked.offers("read_file") && asked.offers("list_files"), "{asked:?}");
        for tool in ["exec_command", "apply_patch", "write_file", "command", "delete_file"] {
            assert!(!asked.offers(tool), "{tool}: {asked:?}");
        }
    }
}

// ---- tools that are not offered ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denied_call_of_unoffered_tool_is_recorded() {
    if !are_wanted("denials of tools that are not offered") {
        return;
    }
    let lab = lab().await;
    let tree = lab.tree(CreateSessionRequest::default()).await;
    for program in ALL {
        let role = format!("{program}-quiet");
        lab.role(&role, program, "deny_list: [exec_command, write_stdin, spawn_agent]\n");
        let thread = spawn(
            &tree,
            &role,
            &json!([{"shell": "echo x > denied.txt"}, {"text": "so be it"}]),
        )
        .await;
        assert_eq!(message(&settled(&tree, &thread).await), "so be it", "{program}");
        let denied = until("a denial", async || denials(&tree.log().await, &thread).pop()).await;
        assert!(
            ["exec_command", "Bash", "bash", "run_shell_command"].contains(&denied.0.as_str()),
            "{program}: {denied:?}"
        );
        assert!(!lab.project().join("denied.txt").exists(), "{program}");
        for asked in lab.stand_in.asked_by(program) {
            for tool in ["exec_command", "write_stdin", "Bash", "spawn_agent"] {
                assert!(!asked.offers(tool), "{tool}: {asked:?}");
            }
        }

        // The next program resumes the conversation. Codex then sends no raw events.
        if program != CODEX {
            continue;
        }
        kill_program(&thread, program);
        // This turn fails if the runner sends it to the program before it detects that the program has ended.
        send(&tree, &thread, &json!([{"text": "still here"}])).await;
        settled(&tree, &thread).await;
        let steps = json!([
            {"tool": "spawn_agent", "args": {"agent_type": "codex", "message": "x"}},
            {"text": "so be it again"},
        ]);
        send(&tree, &thread, &steps).await;
        // The explanation of the denial may cause an additional response.
        settled(&tree, &thread).await;
        until("another denial", async || {
            let denials = denials(&tree.log().await, &thread);
            denials.into_iter().find(|(tool, _)| tool == "spawn_agent")
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spawn_at_max_depth_explains_rejection_to_model() {
    if !are_wanted("the depth limit") {
        return;
    }
    const REFUSAL: &str = "Agent depth limit reached. Solve the task yourself.";
    let lab = lab().await;
    for program in [OPENCODE, GEMINI] {
        lab.role(program, program, "");
    }
    let shallow = CreateSessionRequest {
        limits: Some(Limits {
            max_depth: Some(1),
            ..Limits::default()
        }),
        ..CreateSessionRequest::default()
    };
    let tree = lab.tree(shallow).await;
    for program in ALL {
        let mut steps = vec![
            json!({"tool": "spawn_agent", "args": {"agent_type": "codex", "message": "x"}}),
            json!({"shell": "sleep 1"}),
            json!({"text": "alone then"}),
        ];
        if program == GEMINI {
            // This program receives no messages during a prompt, so the explanation is a separate prompt.
            steps.insert(2, json!({"text": "the tool is missing"}));
        }
        let thread = spawn(&tree, program, &steps.into()).await;
        assert_eq!(message(&settled(&tree, &thread).await), "alone then", "{program}");
        let asked = lab.stand_in.asked_by(program);
        assert!(asked.iter().all(|asked| !asked.offers("spawn_agent")), "{program}");
        let last = asked
            .into_iter()
            .rfind(|asked| !asked.tools.is_empty())
            .expect("a request");
        let seen = last.results.concat() + &last.users;
        assert!(seen.contains(REFUSAL), "{program}: {last:?}");
        let denied = until("a denial", async || denials(&tree.log().await, &thread).pop()).await;
        assert_eq!(denied, ("spawn_agent".to_owned(), REFUSAL.to_owned()), "{program}");
    }
}

// ---- telemetry ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn context_left_of_claude_is_known_in_its_first_turn() {
    if !are_wanted("context left") {
        return;
    }
    let lab = lab().await;
    let tree = tree_of_all(&lab).await;
    let go = lab.project().join("go");
    let wait = format!("until test -e {}; do sleep 0.1; done", go.display());
    let thread = spawn(&tree, CLAUDE, &json!([{"shell": wait}, {"text": "done"}])).await;
    let left = until("the context left", async || {
        tree.thread(&thread).await.context_left_percent
    })
    .await;
    assert!((90..=100).contains(&left), "{left}");
    assert_eq!(kind(&tree.thread(&thread).await), StatusKind::Running);
    std::fs::write(&go, "").unwrap();
    settled(&tree, &thread).await;
}

// ---- conversations ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversation_continues_after_the_program_is_killed() {
    if !are_wanted("programs that are killed") {
        return;
    }
    let lab = lab().await;
    let tree = tree_of_all(&lab).await;
    for (program, name) in [
        (CODEX, "app-server"),
        (CLAUDE, "claude"),
        (OPENCODE, "opencode"),
        (GEMINI, "gemini"),
    ] {
        let thread = spawn(
            &tree,
            program,
            &json!([{"shell": "echo first-result"}, {"text": "noted"}]),
        )
        .await;
        assert_eq!(message(&settled(&tree, &thread).await), "noted", "{program}");
        let messages = || lab.stand_in.asked_by(program).iter().map(|asked| asked.messages).max();
        let before = messages();
        // The program is killed while the model responds, so that the turn fails.
        send(&tree, &thread, &json!([{"delay": 40, "text": "never said"}])).await;
        until("a request of the second turn", async || {
            (messages() > before).then_some(())
        })
        .await;
        kill_program(&thread, name);
        let ended = settled(&tree, &thread).await;
        assert_eq!(kind(&ended), StatusKind::Errored, "{program}");
        assert_eq!(message(&ended), "the program was killed by SIGKILL", "{program}");

        send(&tree, &thread, &json!([{"text": "still here"}])).await;
        let done = settled(&tree, &thread).await;
        assert_eq!(message(&done), "still here", "{program}");
        let mut asked = lab.stand_in.asked_by(program).into_iter();
        let last = asked.rfind(|asked| !asked.tools.is_empty()).expect("a request");
        assert!(
            last.results.iter().any(|result| result.contains("first-result")),
            "{program}: {last:?}"
        );
        assert_eq!(reason(&done, ConditionKind::ContextLost), "", "{program}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_conversation_is_a_condition() {
    if !are_wanted("conversations that are lost") {
        return;
    }
    let lab = Lab::without_runner(Path::new(UNDER)).await;
    let mut runner = lab.runner("r");
    let tree = tree_of_all(&lab).await;
    let thread = spawn(&tree, GEMINI, &json!([{"text": "noted"}])).await;
    assert_eq!(message(&settled(&tree, &thread).await), "noted");
    runner.kill().await.unwrap();
    // Deletes the program's files, as after the loss of a disk.
    let chats = lab.project().join("../s").join(&thread).join("gemini/.gemini/tmp");
    std::fs::remove_dir_all(&chats).unwrap();
    let _runner = lab.runner("r");
    send(&tree, &thread, &json!([{"text": "state your name"}])).await;
    let done = settled(&tree, &thread).await;
    assert_eq!(message(&done), "state your name");
    let lost = reason(&done, ConditionKind::ContextLost);
    assert!(lost.contains("does not remember the earlier conversation"), "{lost}");
}
