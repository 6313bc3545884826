//! Tools that work in a thread's directory: the runner's requests to the supervisor, and the effect of each verdict.

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use troupe_proto::{
    common::v1::{ResolvedSpawn, Sandbox},
    supervisor::v1::{ClosePolicy, StartThread, ToolVerdict, TurnOutcome},
};
use troupe_runner::{RunnerConfig, WorktreeCleanup};

use crate::{
    program::all_gone,
    supervisor::{Attached, THREAD, TestRunner, change, start, turn, verdict},
};

/// Returns a program that writes these lines, writes the same number of answers to `$DIR/answers`, and ends its turn.
fn program(lines: &[&str]) -> String {
    let mut script = "read -r turn\n".to_owned();
    for line in lines {
        assert!(!line.contains('\''), "{line} can be quoted");
        script += &format!("printf '%s\\n' '{line}'\n");
    }
    for _ in lines {
        script += "IFS= read -r line; printf '%s\\n' \"$line\" >> $DIR/answers\n";
    }
    script + "echo '{\"type\":\"turn_end\",\"outcome\":\"completed\"}'\nread -r line\n"
}

/// Returns a runner whose programs work in the directory `ws`.
async fn runner(script: &str, change: impl FnOnce(&mut RunnerConfig)) -> TestRunner {
    let runner = TestRunner::with(script, change).await;
    std::fs::create_dir(workspace(&runner)).unwrap();
    runner
}

fn workspace(runner: &TestRunner) -> PathBuf {
    runner.directory.path().join("ws")
}

fn start_in(runner: &TestRunner) -> StartThread {
    StartThread {
        working_directory: workspace(runner).to_str().unwrap().to_owned(),
        ..start()
    }
}

/// Allows the next permission request, which must have this tool and these arguments.
async fn allow(supervisor: &mut Attached, tool: &str, arguments_json: &str) {
    let question = supervisor.question().await;
    assert_eq!(
        (question.tool.as_str(), question.arguments_json.as_str()),
        (tool, arguments_json)
    );
    assert_eq!((question.thread_id.as_str(), question.generation), (THREAD, 1));
    supervisor.decide(&question, "").await;
}

#[tokio::test]
async fn allowed_calls_run_in_line_order() {
    let runner = runner(
        &program(&[
            r#"{"tool_call":{"id":"1","name":"write_file","args":{"path":"docs/a.txt","content":"one two"}}}"#,
            r#"{"tool_call":{"id":"2","name":"command","args":{"cmd":"wc -w < a.txt | tr -d \" \"","cwd":"docs"}}}"#,
            r#"{"toolCall":{"id":"3","name":"list_files","args":{}}}"#,
            r#"{"tool_call":{"id":"4","name":"read_file","params":{"path":"docs/a.txt"}}}"#,
            r#"{"tool_call":{"name":"delete_file","args":{"path":"docs/a.txt"}}}"#,
        ]),
        |_| {},
    )
    .await;
    let mut supervisor = runner.started(start_in(&runner)).await;
    allow(
        &mut supervisor,
        "write_file",
        r#"{"content":"one two","path":"docs/a.txt"}"#,
    )
    .await;
    let cmd = r#"{"cmd":"wc -w < a.txt | tr -d \" \"","cwd":"docs"}"#;
    allow(&mut supervisor, "command", cmd).await;
    allow(&mut supervisor, "list_files", r#"{"path":"."}"#).await;
    allow(&mut supervisor, "read_file", r#"{"path":"docs/a.txt"}"#).await;
    allow(&mut supervisor, "delete_file", r#"{"path":"docs/a.txt"}"#).await;
    supervisor.turn_ended().await;
    let answers = runner.file("answers");
    let mut answers: Vec<_> = answers.lines().collect();
    answers.sort_unstable();
    let expected = [
        r#"{"id":"1","ok":true,"result":{"output":"wrote docs/a.txt"},"type":"tool_result"}"#,
        r#"{"id":"2","ok":true,"result":{"output":"2\n"},"type":"tool_result"}"#,
        r#"{"id":"3","ok":true,"result":{"entries":[{"name":"docs","type":"dir"}]},"type":"tool_result"}"#,
        r#"{"id":"4","ok":true,"result":{"output":"one two"},"type":"tool_result"}"#,
        r#"{"id":"call-1","ok":true,"result":{"output":"deleted docs/a.txt"},"type":"tool_result"}"#,
    ];
    assert_eq!(answers, expected);
    assert!(!workspace(&runner).join("docs/a.txt").exists());
    runner.shut_down().await.unwrap();
}

/// Returns whether bubblewrap works on this machine.
fn is_confined_here() -> bool {
    let trial = std::process::Command::new("bwrap")
        .args([
            "--bind",
            "/",
            "/",
            "--proc",
            "/proc",
            "--unshare-pid",
            "--die-with-parent",
            "true",
        ])
        .output();
    trial.is_ok_and(|output| output.status.success())
}

#[tokio::test]
async fn commands_do_not_see_hidden_paths() {
    let script = program(&[r#"{"tool_call":{"id":"1","name":"command","args":{"cmd":"cat ../secrets/token; true"}}}"#]);
    // The program itself also reads the file.
    let script = format!("cat $DIR/secrets/token > $DIR/seen 2>/dev/null\n{script}");
    let runner = runner(&script, |config| {
        let secrets = config.scratch.parent().unwrap().join("secrets");
        std::fs::create_dir(&secrets).unwrap();
        std::fs::write(secrets.join("token"), "a secret").unwrap();
        config.hidden = vec![secrets];
    })
    .await;
    let mut supervisor = runner.started(start_in(&runner)).await;
    supervisor.allow().await;
    supervisor.turn_ended().await;
    let seen = [
        runner.file("answers").contains("a secret"),
        runner.file("seen") == "a secret",
    ];
    // Without bubblewrap nothing can be hidden, and the runner warns at its start.
    let is_seen = !is_confined_here();
    assert_eq!(seen, [is_seen, is_seen]);
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn turn_changes_are_an_artifact() {
    let write = r#"{"tool_call":{"id":"1","name":"write_file","args":{"path":"a","content":"one"}}}"#;
    let other = r#"{"tool_call":{"id":"1","name":"write_file","args":{"path":"a","content":"two"}}}"#;
    let look = r#"{"tool_call":{"id":"1","name":"read_file","args":{"path":"a"}}}"#;
    let script: String = [write, write, other, look].map(|line| program(&[line])).concat();
    let runner = runner(&script.replace("read -r line\nread -r turn", "read -r turn"), |_| {}).await;
    let mut supervisor = runner.started(start_in(&runner)).await;
    // The second call writes the content that the file already has; the last call writes nothing.
    let changes = ["+one", "", "-one", ""];
    for (number, change) in (1..).zip(changes) {
        if number > 1 {
            supervisor.give_turn(turn(number)).await;
        }
        supervisor.allow().await;
        let diff = match change {
            "" => String::new(),
            _ => supervisor.diff().await,
        };
        assert!(
            diff.lines().any(|line| line == change) || diff == change,
            "{number}: {diff}"
        );
        let told_apart_by = supervisor.turn_ended().await.diff_sha256;
        assert_eq!(told_apart_by.is_empty(), diff.is_empty());
    }
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn changes_by_commands_are_in_turn_diff() {
    let command = r#"{"tool_call":{"id":"1","name":"command","args":{"cmd":"echo x > new.txt"}}}"#;
    // The program also writes a file directly, without permission.
    let script = program(&[command]).replace("read -r turn", "read -r turn\necho own > own.txt");
    let runner = runner(&script, |_| {}).await;
    let mut supervisor = runner.started(start_in(&runner)).await;
    supervisor.allow().await;
    let diff = supervisor.diff().await;
    for part in [
        "+++ b/new.txt\n@@ -0,0 +1 @@\n+x\n",
        "+++ b/own.txt\n@@ -0,0 +1 @@\n+own\n",
    ] {
        assert!(diff.contains(part), "{part:?} is not in {diff}");
    }
    assert!(!supervisor.turn_ended().await.diff_sha256.is_empty());
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn denied_calls_are_not_executed() {
    let runner = runner(
        &program(&[r#"{"tool_call":{"id":"1","name":"write_file","args":{"path":"src/a","content":"x"}}}"#]),
        |_| {},
    )
    .await;
    let mut supervisor = runner.started(start_in(&runner)).await;
    let question = supervisor.question().await;
    supervisor
        .decide(&question, "write restricted to docs/ in PLANNING mode")
        .await;
    supervisor.turn_ended().await;
    let error = r#""error":"write restricted to docs/ in PLANNING mode","reason":"TOOL_DENIED""#;
    assert!(runner.file("answers").contains(error), "{}", runner.file("answers"));
    assert!(!workspace(&runner).join("src").exists());
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn invalid_calls_are_refused_without_question() {
    let lines = [
        r#"{"tool_call":{"name":"read_file","args":{"path":"../secret"}}}"#,
        r#"{"tool_call":{"name":"read_file","args":{"path":"/etc/passwd"}}}"#,
        r#"{"tool_call":{"name":"read_file","args":{"path":"link"}}}"#,
        r#"{"tool_call":{"name":"write_file","args":{"path":"out/new","content":"x"}}}"#,
        r#"{"tool_call":{"name":"command","args":{"cmd":"ls","cwd":"out"}}}"#,
        r#"{"tool_call":{"name":"list_files","args":{"path":".."}}}"#,
        r#"{"tool_call":{"name":"delete_file","args":{"path":"out/secret"}}}"#,
        r#"{"tool_call":{"name":"command","args":{}}}"#,
        r#"{"tool_call":{"name":"apply_patch","args":{}}}"#,
    ];
    let runner = runner(&program(&lines), |_| {}).await;
    std::fs::write(runner.directory.path().join("secret"), "").unwrap();
    symlink("../secret", workspace(&runner).join("link")).unwrap();
    symlink("..", workspace(&runner).join("out")).unwrap();
    let mut supervisor = runner.started(start_in(&runner)).await;
    // The test answers no permission request, so a request would prevent the turn from ending.
    supervisor.turn_started().await;
    supervisor.turn_ended().await;
    let answers = runner.file("answers");
    for text in [
        "Path escapes repo root: ../secret",
        "Path escapes repo root: /etc/passwd",
        "Path escapes repo root: link",
        "Path escapes repo root: out/new",
        "Path escapes repo root: out\"",
        "Path escapes repo root: ..\"",
        "Path escapes repo root: out/secret",
        "command tool requires cmd",
        "unsupported tool: apply_patch",
    ] {
        assert!(answers.contains(text), "{text} is in {answers}");
    }
    assert!(runner.directory.path().join("secret").exists());
    assert!(!runner.directory.path().join("new").exists());
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn writes_in_read_only_thread_are_refused() {
    let runner = runner(
        &program(&[
            r#"{"tool_call":{"name":"write_file","args":{"path":"a","content":"x"}}}"#,
            r#"{"tool_call":{"name":"delete_file","args":{"path":"docs/a"}}}"#,
            r#"{"tool_call":{"name":"command","args":{"cmd":"touch a"}}}"#,
            r#"{"tool_call":{"name":"list_files","args":{}}}"#,
        ]),
        |config| change(config, |program| program.holds_read_only = true),
    )
    .await;
    let mut supervisor = runner.attached(Vec::new()).await;
    let mut read_only = start_in(&runner);
    read_only.resolved = Some(ResolvedSpawn {
        sandbox: Sandbox::ReadOnly.into(),
        ..Default::default()
    });
    supervisor.start(read_only).await;
    allow(&mut supervisor, "list_files", r#"{"path":"."}"#).await;
    supervisor.turn_ended().await;
    let answers = runner.file("answers");
    for text in [
        "writeCode capability is disabled",
        "writeDocs capability is disabled",
        "runCommands capability is disabled",
        r#""result":{"entries":[]}"#,
    ] {
        assert!(answers.contains(text), "{text} is in {answers}");
    }
    let entries = supervisor.transcript.iter().flat_map(|batch| &batch.entries);
    let calls = entries.filter_map(|entry| entry.tool_call.as_ref());
    let calls: Vec<_> = calls
        .map(|call| (call.native_tool.as_str(), call.verdict(), call.reason.as_str()))
        .collect();
    for (tool, verdict, reason) in [
        ("write_file", ToolVerdict::Denied, "writeCode capability is disabled"),
        ("delete_file", ToolVerdict::Denied, "writeDocs capability is disabled"),
        ("command", ToolVerdict::Denied, "runCommands capability is disabled"),
        ("list_files", ToolVerdict::Allowed, ""),
    ] {
        assert!(calls.contains(&(tool, verdict, reason)), "{tool} is in {calls:?}");
    }
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn command_ends_with_its_turn() {
    let line = r#"{"tool_call":{"name":"command","args":{"cmd":"echo $$ > pid; while :; do sleep 1; done"}}}"#;
    let script = format!(
        "read -r turn\nprintf '%s\\n' '{line}'\nuntil [ -s pid ]; do sleep 0.01; done\n\
         echo '{{\"type\":\"turn_end\",\"outcome\":\"completed\"}}'\nread -r line\n"
    );
    let runner = runner(&script, |_| {}).await;
    let mut supervisor = runner.started(start_in(&runner)).await;
    supervisor.allow().await;
    supervisor.diff().await;
    supervisor.turn_ended().await;
    let pid = read(&workspace(&runner).join("pid"));
    assert!(!pid.is_empty());
    all_gone(&[pid]).await;
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn command_time_is_limited() {
    let runner = runner(
        &program(&[r#"{"tool_call":{"name":"command","args":{"cmd":"sleep 1000"}}}"#]),
        |config| config.timing.command_limit = Duration::from_millis(200),
    )
    .await;
    let mut supervisor = runner.started(start_in(&runner)).await;
    allow(&mut supervisor, "command", r#"{"cmd":"sleep 1000","cwd":"."}"#).await;
    supervisor.turn_ended().await;
    let answer = runner.file("answers");
    assert!(answer.contains("Command timed out after 200ms: sleep 1000"), "{answer}");
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn arguments_under_alias_are_accepted_with_warning() {
    let script = r#"
        read -r turn
        echo '{"tool_call":{"name":"list_files","params":{"path":".."}}}'
        IFS= read -r line; printf '%s\n' "$line" >> $DIR/answers
        read -r line
        echo '{"type":"input_taken","number":2}'
        echo '{"type":"turn_end","outcome":"completed"}'
        read -r line
    "#;
    let runner = runner(script, |_| {}).await;
    let mut supervisor = runner.started(start_in(&runner)).await;
    supervisor.turn_started().await;
    supervisor.output("tool_call JSON used params; prefer args").await;
    supervisor.give_input(2, 1, "go on").await;
    assert_eq!(supervisor.acknowledged_report().await.report_sequence, 2);
    supervisor.turn_ended().await;
    assert!(runner.file("answers").contains("Path escapes repo root: .."));
    runner.shut_down().await.unwrap();
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

#[tokio::test]
async fn pending_question_is_resent_on_next_stream() {
    let runner = runner(
        &program(&[r#"{"tool_call":{"name":"write_file","args":{"path":"a","content":"x"}}}"#]),
        |_| {},
    )
    .await;
    let mut supervisor = runner.started(start_in(&runner)).await;
    let question = supervisor.question().await;
    drop(supervisor);

    let mut supervisor = runner.attached(vec![verdict(true, 1)]).await;
    assert_eq!(supervisor.question().await, question);
    supervisor.decide(&question, "").await;
    supervisor.diff().await;
    assert_eq!(supervisor.turn_ended().await.outcome(), TurnOutcome::Completed);
    assert_eq!(read(&workspace(&runner).join("a")), "x");
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn each_thread_has_its_own_worktree() {
    let runner = runner(
        &program(&[r#"{"tool_call":{"id":"1","name":"write_file","args":{"path":"docs/a","content":"x"}}}"#]),
        |config| config.worktrees = Some(WorktreeCleanup::Unchanged),
    )
    .await;
    let repository = repository(&runner);
    let mut supervisor = runner.started(start_in(&runner)).await;
    let question = supervisor.question().await;
    let judged = repository.canonicalize().unwrap().join("docs/a");
    assert_eq!(
        question.resolved_paths,
        [judged.to_str().unwrap()],
        "the path in the repository"
    );
    supervisor.decide(&question, "").await;
    assert!(
        supervisor
            .diff()
            .await
            .starts_with("diff --git a/docs/a b/docs/a\nnew file mode 100644\n")
    );
    supervisor.turn_ended().await;
    assert!(!repository.join("docs/a").exists());
    supervisor
        .close(ClosePolicy::Terminate, Duration::from_secs(3600))
        .await;
    supervisor.output("its work is kept in").await;
    supervisor.stopped().await;
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn worktree_lasts_as_long_as_thread() {
    let runner = runner(
        &program(&[r#"{"tool_call":{"id":"1","name":"write_file","args":{"path":"a","content":"x"}}}"#]),
        |config| config.worktrees = Some(WorktreeCleanup::Always),
    )
    .await;
    repository(&runner);
    let mut supervisor = runner.started(start_in(&runner)).await;
    supervisor.allow().await;
    supervisor.diff().await;
    supervisor.turn_ended().await;
    supervisor.stop_idle_program().await;
    supervisor.stopped().await;
    let worktree = runner
        .directory
        .path()
        .join("scratch/state")
        .join(THREAD)
        .join("worktree");
    assert_eq!(
        read(&worktree.join("a")),
        "x",
        "the next turn continues in the worktree"
    );
    runner.shut_down().await.unwrap();
}

/// Creates a repository in the thread's directory.
fn repository(runner: &TestRunner) -> PathBuf {
    let repository = workspace(runner);
    for args in [
        &["init", "--quiet"][..],
        &[
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@localhost",
            "commit",
            "--quiet",
            "--allow-empty",
            "-m",
            "m",
        ],
    ] {
        let git = std::process::Command::new("git")
            .arg("-C")
            .arg(&repository)
            .args(args)
            .status();
        assert!(git.unwrap().success());
    }
    repository
}
