//! The checks of agent programs by `up`, `run` and `doctor` before a thread needs them. The programs are scripts in
//! `PATH`.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf, process::Stdio};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};
use troupe_tests::{
    process::{Home, Up, stderr, terminate},
    within,
};

/// Installs a program that only prints its version.
fn install(home: &Home, name: &str, version: &str) {
    let path = bin(home).join(name);
    fs::create_dir_all(bin(home)).unwrap();
    fs::write(
        &path,
        format!("#!/bin/sh\n[ \"$1\" = --version ] && echo '{version}'\n"),
    )
    .unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn bin(home: &Home) -> PathBuf {
    home.path().join("bin")
}

/// Returns a `troupe` command whose `PATH` contains these programs and the programs of the system.
fn troupe(home: &Home, arguments: &[&str]) -> Command {
    let mut command = home.troupe(arguments);
    command.env("PATH", format!("{}:/usr/bin:/bin", bin(home).display()));
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_program_is_an_error_at_start() {
    let home = Home::default();
    let file = home.path().join("runner.yaml");
    fs::write(
        &file,
        "programs:\n- {kind: codex, command: /bin/sh}\n- {kind: acp, profile: opencode}\n",
    )
    .unwrap();
    for (arguments, name, install) in [
        (
            &["up", "--programs", "claude"][..],
            "claude",
            "npm install -g @anthropic-ai/claude-code",
        ),
        (&["run", "--programs", "codex"], "codex", "npm install -g @openai/codex"),
        (
            &["run", "--programs", file.to_str().unwrap()],
            "opencode",
            "npm install -g opencode-ai",
        ),
        (&["run", "--program", "no-such-agent"], "no-such-agent", "install it"),
    ] {
        let ended = within("an error", troupe(&home, arguments).output()).await.unwrap();
        assert_eq!(ended.status.code(), Some(1), "{arguments:?}");
        let said = stderr(&ended);
        let path = format!(
            "the program \"{name}\" is not in PATH \"{}:/usr/bin:/bin\"",
            bin(&home).display()
        );
        assert!(said.contains(&path) && said.contains(install), "{said}");
    }
    // Without a runner, no program is needed.
    let mut arguments = Up::ARGUMENTS.to_vec();
    arguments.extend(["--programs", "claude"]);
    Up::start_with(&home, &arguments).await.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn up_reports_each_program() {
    let home = Home::default();
    install(&home, "claude", "2.1.400 (Claude Code)");
    install(&home, "codex", "codex-cli 0.9.1");
    let file = home.path().join("runner.yaml");
    fs::write(
        &file,
        "programs:\n- {kind: claude}\n- {kind: codex, models: ['gpt-*']}\n",
    )
    .unwrap();
    let mut arguments = Up::WITH_RUNNER.to_vec();
    arguments.extend(["--programs", file.to_str().unwrap()]);

    let mut up = troupe(&home, &arguments)
        .args(["--output", "json"])
        .env("ANTHROPIC_API_KEY", "sk-of-nobody")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(up.stdout.take().unwrap()).lines();
    let line = within("the report that `up` is ready", output.next_line())
        .await
        .unwrap()
        .unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    let [claude, codex] = &ready["programs"].as_array().unwrap()[..] else {
        panic!("{ready}")
    };
    assert_eq!(claude["name"], "claude");
    assert_eq!(claude["version"], "2.1.400");
    assert_eq!(claude["path"], bin(&home).join("claude").to_str().unwrap());
    assert_eq!(claude["credentials"], "ANTHROPIC_API_KEY");
    assert!(!line.contains("sk-of-nobody"), "{line}");
    assert_eq!(codex["credentials"], Value::Null);
    let warnings = codex["warnings"].to_string();
    assert!(
        warnings.contains("codex 0.9.1 is not tested") && warnings.contains("codex login"),
        "{warnings}"
    );
    terminate(&up);
    within("the end of `up`", up.wait()).await.unwrap();

    let mut up = troupe(&home, &arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(up.stdout.take().unwrap()).lines();
    let mut said = String::new();
    while let Some(line) = within("a line of `up`", output.next_line()).await.unwrap() {
        if line.starts_with("Try:") {
            break;
        }
        said.push_str(&line);
        said.push('\n');
    }
    assert!(said.contains("claude 2.1.400 at "), "{said}");
    assert!(said.contains("warning: claude has no login"), "{said}");
    terminate(&up);
    within("the end of `up`", up.wait()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_checks_programs_and_runs_a_dry_turn_on_request() {
    let home = Home::default();
    install(&home, "claude", "2.1.400 (Claude Code)");
    let doctor = async |arguments: &[&str]| {
        let mut command = troupe(&home, &["doctor", "--output", "json"]);
        let output = within("a diagnosis", command.args(arguments).output()).await.unwrap();
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        let checks = said["checks"].as_array().unwrap().clone();
        checks
            .into_iter()
            .filter(|check| ["program", "programs", "dry turn"].contains(&check["name"].as_str().unwrap()))
            .collect::<Vec<_>>()
    };
    let checks = doctor(&[]).await;
    let found = checks
        .iter()
        .find(|check| check["program"]["name"] == "claude")
        .unwrap();
    assert_eq!(found["verdict"], "warning");
    assert_eq!(found["program"]["version"], "2.1.400");

    let [missing] = &doctor(&["--programs", "gemini"]).await[..] else {
        panic!("expected one program")
    };
    assert_eq!(missing["verdict"], "bad");
    assert!(
        missing["remedy"]
            .as_str()
            .unwrap()
            .contains("npm install -g @google/gemini-cli")
    );

    // A script is not an agent, so the turn fails with the name of the program.
    let checks = doctor(&["--dry-turn", "claude"]).await;
    let turn = checks.iter().find(|check| check["name"] == "dry turn").unwrap();
    assert_eq!(turn["verdict"], "bad", "{turn}");
    assert!(turn["seen"].as_str().unwrap().starts_with("claude: "), "{turn}");

    // The sample agent finds no directives in the prompt and ends its turn.
    let checks = doctor(&["--programs", "sample", "--dry-turn", "troupe"]).await;
    let turn = checks.iter().find(|check| check["name"] == "dry turn").unwrap();
    assert_eq!(turn["verdict"], "good", "{turn}");
    let checks = doctor(&["--programs", "sample", "--dry-turn", "claude"]).await;
    let turn = checks.iter().find(|check| check["name"] == "dry turn").unwrap();
    assert!(turn["seen"].as_str().unwrap().contains("unknown program"), "{turn}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_reports_each_program() {
    let home = Home::default();
    install(&home, "gemini", "0.61.7");
    let mut run = troupe(
        &home,
        &["run", "--programs", "gemini", "--supervisor", "http://127.0.0.1:9"],
    )
    .env("TROUPE_LOG", "off")
    .env("GEMINI_API_KEY", "sk-of-nobody")
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    let mut output = BufReader::new(run.stderr.take().unwrap()).lines();
    loop {
        let line = within("a line of `run`", output.next_line()).await.unwrap();
        let line = line.expect("the runner waits for its supervisor");
        if line.contains("gemini 0.61.7 at ") {
            assert!(
                line.contains("credentials: GEMINI_API_KEY") && !line.contains("sk-of-nobody"),
                "{line}"
            );
            break;
        }
    }
    run.kill().await.unwrap();
}
