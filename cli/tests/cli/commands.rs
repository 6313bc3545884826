//! Tests of the commands for every RPC, output formats, ids, contexts, completion and the background process.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::support::up::{Up, Watching, fails, interrupt, run, stderr, stdout, succeeded, troupe, words};

#[test]
fn thread_verbs_work_on_aliases() {
    let up = Up::start();
    let (_, thread) = up.complete(&["worker", "Rest.", "--alias", "scout"]);

    let shown = up.text(&["show", "scout"]);
    assert!(shown.contains(&thread) && shown.contains("COMPLETED"), "{shown}");
    assert!(shown.contains("Rest."), "the task is displayed: {shown}");
    assert_eq!(
        up.succeeds(&["note", "scout", "on hold"])["thread"]["thread_note"],
        "on hold"
    );
    let interrupted = up.run(&["interrupt", "scout"]);
    assert!(!stderr(&interrupted).contains("panicked"), "{}", stderr(&interrupted));
    assert_eq!(
        up.succeeds(&["close", "scout", "--wait"])["thread"]["thread_id"],
        thread.as_str()
    );
    assert_eq!(
        up.succeeds(&["resume", "scout"])["thread"]["thread_id"],
        thread.as_str()
    );
    up.succeeds(&["thread", "send", "scout", "Go on."]);
    up.succeeds(&["thread", "wait", "scout"]);
    up.succeeds(&["thread", "focus", "scout"]);
    let (code, _) = up.json(&["show", "scuot"]);
    assert_eq!(code, Some(4));
    let unknown = stderr(&up.run(&["show", "scuot"]));
    assert!(unknown.contains("did you mean \"scout\"?"), "{unknown}");
}

#[test]
fn thread_has_prompts_tools_and_quota() {
    let up = Up::start();
    let (session, thread) = up.complete(&["worker", "First."]);
    up.succeeds(&["send", &thread, "Second."]);
    up.succeeds(&["wait", &thread]);

    let prompts = up.succeeds(&["prompts", "@last"]);
    assert_eq!(prompts["prompts"].as_array().map(Vec::len), Some(2), "{prompts}");
    let first = up.text(&["prompts", "show", &thread, "1"]);
    assert!(first.contains("First."), "{first}");
    let diff = up.text(&["prompts", "show", &thread, "2", "--diff", "1"]);
    assert!(diff.contains("+") && diff.contains("Second."), "{diff}");

    let denied = up.run(&["tools", "check", &thread, "spawn_agent"]);
    assert_eq!(denied.status.code(), Some(3), "{}", stdout(&denied));
    let spawnable = up.run(&["agents", "spawnable", &thread]);
    assert!(matches!(spawnable.status.code(), Some(0 | 3)), "{}", stderr(&spawnable));

    let quota = up.text(&["quota", &session]);
    assert!(quota.contains("active threads   0 of 12"), "{quota}");
    up.text(&["artifacts", "--session", &session]);
    assert_eq!(up.run(&["artifacts", "get", "none.md"]).status.code(), Some(4));
}

#[test]
fn session_takes_all_settings_and_is_pruned() {
    let up = Up::start();
    let created = up.succeeds(&words(
        "session create --planning --auto --sandbox read-only --deny-tool exec_* --approve-tool apply_patch \
         --max-threads 3 --session-tokens 5000 --restart on-lost --prompt-log hashes --retention 24h \
         --session-label team=core --policy-inheritance ceiling --slot-release close --session-edges self",
    ));
    let session = &created["session"];
    for (field, value) in [
        ("mode", "MODE_PLANNING"),
        ("orchestration", "ORCHESTRATION_AUTO"),
        ("restart_policy", "RESTART_POLICY_ON_LOST"),
        ("prompt_log", "PROMPT_LOG_HASHES"),
        ("policy_inheritance", "POLICY_INHERITANCE_CEILING"),
        ("slot_release", "SLOT_RELEASE_CLOSE"),
        ("edge_management", "EDGE_MANAGEMENT_SELF"),
        ("retention", "86400s"),
    ] {
        assert_eq!(session[field], value, "{field}: {session}");
    }
    assert_eq!(session["limits"]["max_threads"], 3);
    assert_eq!(session["budget"]["tokens"], 5000);
    assert_eq!(session["approve_tools"][0], "apply_patch");
    assert_eq!(session["tool_ceiling"]["deny_list"][0], "exec_*");
    let id = session["session_id"].as_str().unwrap();

    let listed = up.text(&["session", "list", "--label", "team=core", "--no-headers"]);
    assert_eq!(listed.lines().count(), 1, "{listed}");
    assert!(up.text(&["session", "list", "--label", "team=web", "-q"]).is_empty());
    let shown = up.text(&["session", "show", id]);
    assert!(shown.contains("labels") && shown.contains("team=core"), "{shown}");
    let updated = up.succeeds(&words("session update @last --max-threads 5 --mode implementation"));
    assert_eq!(updated["session"]["limits"]["max_threads"], 5);
    let budget = up.succeeds(&["session", "budget", id, "--turns", "7"]);
    assert_eq!(
        (
            &budget["session"]["budget"]["tokens"],
            &budget["session"]["budget"]["turns"]
        ),
        (&Value::from(5000), &Value::from(7)),
        "the token budget stays"
    );

    up.succeeds(&["session", "close", id, "--wait"]);
    let dry = up.text(&["session", "prune", "--dry-run", "-q"]);
    assert_eq!(dry.trim(), id);
    up.succeeds(&["session", "prune"]);
    assert_eq!(up.run(&["session", "show", id]).status.code(), Some(4));
}

#[test]
fn output_formats_have_the_same_values() {
    let up = Up::start();
    let (session, thread) = up.complete(&[
        "worker",
        "Say: a rather long task, to see that nothing is cut",
        "--alias",
        "w",
    ]);
    let json = up.succeeds(&["show", "w"]);
    let yaml: Value = serde_yaml::from_str(up.text(&["show", "w", "-o", "yaml"]).trim_start_matches("---\n")).unwrap();
    assert_eq!(yaml, json);
    assert_eq!(up.text(&["show", "w", "-o", "name"]), format!("thread/{thread}\n"));
    assert_eq!(up.text(&["show", "w", "-q"]), format!("{thread}\n"));
    let path = "jsonpath={.sessions[*].session_id}";
    assert_eq!(up.text(&["ps", "-o", path]), format!("{session}\n"));
    assert_eq!(up.text(&["ps", "-q"]), format!("{session}\n"));
    let unknown = up.run(&["ps", "--columns", "colour"]);
    assert_eq!(unknown.status.code(), Some(2));
    let watched = up.text(&["session", "close", &session, "--wait"]);
    assert!(watched.contains("closed"), "{watched}");
    let log = up.text(&["watch", &session, "--after", "0"]);
    assert!(log.contains("Say: a rather long task"), "{log}");
}

#[test]
fn errors_suggest_names_and_commands() {
    let up = Up::start();
    fails(
        &up.run(&["spawn", "reveiwer", "Review."]),
        4,
        "did you mean \"reviewer\"?",
    );
    assert!(
        up.text(&["ps", "--closed", "-q"]).is_empty(),
        "a failed spawn leaves no session"
    );

    let (session, _) = up.complete(&["worker", "Rest."]);
    let open = stderr(&up.run(&["session", "delete", &session]));
    assert!(!open.contains("CloseSession"), "{open}");

    let https = up.supervisor().replace("http://", "https://");
    fails(
        &run(up.home.path(), &["ps", "--supervisor", &https]),
        7,
        "does not use TLS",
    );

    let failed = up.run(&["spawn", "worker", "fail: broken", "--wait", "--timeout", "30s"]);
    assert!(matches!(failed.status.code(), Some(0 | 6)), "{}", stderr(&failed));
    let timeout = up.run(&["spawn", "worker", "hold", "--wait", "--timeout", "1s"]);
    assert_eq!(timeout.status.code(), Some(5), "{}", stderr(&timeout));
}

#[test]
fn task_is_read_from_a_file_and_from_standard_input() {
    let up = Up::start();
    let file = up.home.path().join("task.md");
    fs::write(&file, "say: from a file").unwrap();
    let answer = up.succeeds(&["spawn", "worker", "--file", file.to_str().unwrap(), "--wait"]);
    assert_eq!(answer["message"], "from a file");
    let mut process = up
        .command(&["spawn", "worker", "-", "--wait", "-o", "jsonpath=.message"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    process
        .stdin
        .take()
        .unwrap()
        .write_all(b"say: from standard input")
        .unwrap();
    let output = process.wait_with_output().unwrap();
    assert_eq!(stdout(&output), "from standard input\n");
}

#[test]
fn interrupted_wait_says_that_the_agent_continues() {
    let up = Up::start();
    let mut process = up
        .command(&["spawn", "worker", "hold", "--wait"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The thread's id is printed before the wait.
    let mut errors = BufReader::new(process.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("thread  ") {
        let mut line = String::new();
        assert_ne!(errors.read_line(&mut line).unwrap(), 0, "{said}");
        said.push_str(&line);
    }
    interrupt(process.id());
    std::io::Read::read_to_string(&mut errors, &mut said).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(130), "{said}");
    assert!(
        said.contains("the agent continues") && said.contains("troupe close"),
        "{said}"
    );
}

#[test]
fn filter_selects_the_listed_threads() {
    let up = Up::start();
    let (session, scout) = up.complete(&["worker", "Rest.", "--alias", "scout"]);
    up.complete(&["explorer", "Rest.", "--session", &session, "--alias", "second"]);
    let listed = |arguments: &[&str]| up.text(&[&["ps"], arguments].concat());
    let only = listed(&["--filter", "r:worker s:completed,running -a:second"]);
    assert!(only.contains("scout") && !only.contains("second"), "{only}");
    let tree = listed(&["--tree", "--filter", "a:scout"]);
    assert!(
        tree.contains("root") && tree.contains("scout") && !tree.contains("second"),
        "{tree}"
    );
    let found: Value = serde_json::from_str(&listed(&["--filter", &scout, "--output", "json"])).unwrap();
    assert_eq!(found["sessions"][0]["threads"].as_array().unwrap().len(), 1, "{found}");
    let none = up.run(&["ps", "--filter", "over:budget"]);
    assert_eq!(none.status.code(), Some(0));
    assert!(
        String::from_utf8_lossy(&none.stderr).contains("no thread matches"),
        "{none:?}"
    );
    let bad = up.run(&["ps", "--filter", "s:errors"]);
    assert_eq!(bad.status.code(), Some(2));
    let said = String::from_utf8_lossy(&bad.stderr);
    assert!(said.contains("did you mean \"errored\"?"), "{said}");
}

#[test]
fn watched_list_is_written_again_after_each_change() {
    let up = Up::start();
    let (session, _) = up.complete(&["worker", "Rest.", "--alias", "scout"]);
    let mut of_all = Watching::start(&up, &["ps", "--watch", "--output", "json"]);
    let mut of_one = Watching::start(&up, &["ps", "--watch", "--session", &session, "--output", "json"]);
    of_all.until("\"scout\"");
    of_one.until("\"scout\"");
    let (_, other) = up.complete(&["worker", "Rest.", "--alias", "second"]);
    let listed: Value = serde_json::from_str(&of_all.until("\"second\"")).unwrap();
    assert!(listed["sessions"].to_string().contains(&other), "{listed}");
    // The activity of an agent is not an event, but it changes the list.
    up.text(&["send", "second", "hold"]);
    of_all.until("\"holding\"");
    up.text(&["close", "scout", "--wait"]);
    // The list of one session contains no other session, and is not written again when other sessions change.
    let mut listed: Value = serde_json::from_str(&of_one.until("")).unwrap();
    while listed.to_string().contains("scout") {
        listed = serde_json::from_str(&of_one.until("")).unwrap();
    }
    let sessions: Vec<&Value> = listed["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["session_id"])
        .collect();
    assert_eq!(sessions, [session.as_str()]);
}

#[test]
fn watch_of_all_sessions_includes_new_sessions() {
    let up = Up::start();
    let (first, _) = up.complete(&["worker", "Rest.", "--alias", "scout"]);
    let mut all = Watching::start(&up, &["watch", "--all"]);
    assert!(all.until("as of #").starts_with(&first[first.len() - 8..]));
    all.until("scout");
    let (second, thread) = up.complete(&["worker", "Rest.", "--alias", "second"]);
    let snapshot = all.until("as of #");
    assert!(snapshot.starts_with(&second[second.len() - 8..]), "{snapshot}");
    up.succeeds(&["close", &thread, "--wait"]);
    let event = all.until("shut down");
    assert!(event.starts_with(&second[second.len() - 8..]), "{event}");
    // After a session was closed, the other sessions are still watched.
    up.text(&["session", "close", &second, "--wait"]);
    up.text(&["note", "scout", "on hold"]);
    all.until("on hold");
    let code = up.run(&["watch", "--all", "scout"]).status.code();
    assert_eq!(code, Some(2));
}

#[test]
fn notifications_of_all_sessions_are_shown() {
    let up = Up::start();
    let (first, thread) = up.complete(&["worker", "Rest.", "--alias", "scout"]);
    let client = ["--client-id", "a", "--output", "json", "--count"];
    // The service stores the position of the client, so the watch of all sessions starts with the second turn.
    up.succeeds(&[&["notify", &first, "--after", "0"][..], &client[..2], &["--count", "1"]].concat());
    up.succeeds(&["send", "scout", "-m", "Again."]);
    let mut all = Watching::start(&up, &[&["notify", "--all"][..], &client, &["2"]].concat());
    let session_of = |line: String| -> Value {
        let shown: Value = serde_json::from_str(&line).unwrap();
        shown["notification"]["session_id"].clone()
    };
    assert_eq!(session_of(all.until(&thread)), first.as_str());
    let (second, thread) = up.complete(&["worker", "Rest.", "--alias", "second"]);
    assert_eq!(session_of(all.until(&thread)), second.as_str());
    assert!(all.process.wait().unwrap().success(), "it ends after two notifications");
}

#[test]
fn context_supplies_the_connection() {
    let up = Up::start();
    let home = up.home.path();
    let (supervisor, registry) = (up.supervisor(), up.registry());
    let set = format!("context set local --server {supervisor} --server-registry {registry}");
    assert_eq!(run(home, &words(&set)).status.code(), Some(0));
    up.complete(&["worker", "Rest."]);
    let listed = run(home, &["ps", "-q"]);
    assert_eq!(stdout(&listed).lines().count(), 1, "{}", stderr(&listed));
    assert_eq!(run(home, &["agents", "-q"]).status.code(), Some(0));
    let list = stdout(&run(home, &["context", "list"]));
    assert!(list.contains("*        local"), "{list}");

    fails(&run(home, &["ps", "--context", "lcoal"]), 4, "did you mean \"local\"?");
    let other = ["context", "set", "other", "--server", "http://127.0.0.1:1"];
    assert_eq!(run(home, &other).status.code(), Some(0));
    assert_eq!(run(home, &["context", "use", "other"]).status.code(), Some(0));
    assert_eq!(run(home, &["ps"]).status.code(), Some(7));
    let chosen = troupe(home)
        .env("TROUPE_CONTEXT", "local")
        .args(["ps", "-q"])
        .output()
        .unwrap();
    assert_eq!(chosen.status.code(), Some(0), "{}", stderr(&chosen));
    assert_eq!(run(home, &["context", "delete", "other"]).status.code(), Some(0));

    // With the addresses as flags, no context is needed, so a malformed file is ignored.
    fs::write(home.join(".config/troupe/config.yaml"), "contexts: [").unwrap();
    assert_eq!(run(home, &["ps"]).status.code(), Some(2));
    up.text(&["ps"]);
}

#[test]
fn shells_complete_commands_and_aliases() {
    let up = Up::start();
    up.complete(&["worker", "Rest.", "--alias", "scout"]);
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout(&run(up.home.path(), &["completion", shell]));
        assert!(script.contains("TROUPE_COMPLETE"), "{shell}: {script}");
    }
    let complete = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_troupe"))
            .env_clear()
            .env("HOME", up.home.path())
            .env("TROUPE_COMPLETE", "fish")
            .env("TROUPE_SUPERVISOR_URL", up.supervisor())
            .env("TROUPE_REGISTRY_URL", up.registry())
            .args(["--", "troupe"])
            .args(words)
            .current_dir(up.home.path())
            .output()
            .unwrap();
        stdout(&output)
    };
    assert!(complete(&["sess"]).starts_with("session"), "{}", complete(&["sess"]));
    assert!(
        complete(&["show", "sc"]).starts_with("scout"),
        "{}",
        complete(&["show", "sc"])
    );
    assert!(
        complete(&["spawn", "bug"]).starts_with("bug"),
        "{}",
        complete(&["spawn", "bug"])
    );
    let pages = up.home.path().join("man");
    assert_eq!(
        run(up.home.path(), &["man", pages.to_str().unwrap()]).status.code(),
        Some(0)
    );
    assert!(pages.join("troupe.1").exists() && pages.join("troupe-spawn.1").exists());
}

#[test]
fn services_run_in_the_background() {
    let home = tempfile::tempdir().unwrap();
    let start = words("up -d --registry-listen 127.0.0.1:0 --supervisor-listen 127.0.0.1:0");
    let absent = run(home.path(), &["status"]);
    assert_eq!(absent.status.code(), Some(7), "{}", stderr(&absent));
    let started = succeeded(&run(home.path(), &start));
    assert!(started.contains("troupe down"), "{started}");
    let again = run(home.path(), &start);
    assert_eq!(again.status.code(), Some(1), "{}", stderr(&again));
    let status = run(home.path(), &["status", "-o", "json"]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["open_sessions"], 0, "{status}");
    let listed = run(home.path(), &["ps"]);
    assert_eq!(
        listed.status.code(),
        Some(0),
        "the services are found: {}",
        stderr(&listed)
    );
    succeeded(&run(home.path(), &["down"]));
    assert_eq!(run(home.path(), &["status"]).status.code(), Some(7));
    let none = run(home.path(), &["down"]);
    assert!(stdout(&none).contains("not running"), "{}", stdout(&none));
}

#[test]
fn registry_views_are_available() {
    let up = Up::start();
    let routed = up.succeeds(&["route", "Please let the reviewer look at the last commit"]);
    assert_eq!(routed["agent_type"], "reviewer", "{routed}");
    assert!(up.text(&["agents", "spawn-tool"]).contains("spawn_agent"));
    up.text(&["agents", "diagnostics"]);
    let digest = up.text(&["bundle", "put"]);
    up.text(&["bundle", "get", digest.trim()]);
}
