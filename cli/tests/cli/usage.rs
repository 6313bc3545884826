//! Tests of the `troupe` binary from a user's perspective: processes, standard output, exit codes.

use std::{ffi::OsStr, fs, net::TcpListener, os::unix::ffi::OsStrExt as _};

use serde_json::Value;

use crate::support::up::{Up, refused, run, stderr, stdout, succeeded, troupe, words};

#[test]
fn help_and_version_succeed() {
    let home = tempfile::tempdir().unwrap();
    let help = run(home.path(), &["--help"]);
    assert_eq!(help.status.code(), Some(0));
    let own = succeeded(&run(home.path(), &["spawn", "--help"]));
    assert!(own.contains("troupe spawn"), "{own}");
    assert!(
        !stdout(&help).contains("sample-agent"),
        "it is for runners, not for people"
    );
    let version = run(home.path(), &["--version"]);
    assert_eq!(stdout(&version), format!("troupe {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn invalid_usage_is_exit_code_2() {
    let home = tempfile::tempdir().unwrap();
    for arguments in [
        &["explode"][..],
        &[],
        &["spawn", "worker"],
        &["wait"],
        &["wait", "x", "--timeout", "soon"],
        &["wait", "x", "--timeout", "0"],
        &["spawn", "worker", "-m", "x", "--wait", "--timeout", "0"],
        &["spawn", "worker", "-m", "x", "--cwd", ".", "--no-cwd"],
        &["agents", "new", "auditor", "--cwd", "no/such"],
        &["close"],
        &["session", "pause"],
        &["session", "mode", "0000cc03"],
        &["session", "mode", "0000cc03", "IMPLEMENT"],
        &["session", "budget", "0000cc03"],
        &["session", "orchestration", "0000cc03", "manual"],
        &["session", "edges", "0000cc03", "own"],
        &["mcp", "--session", "0000aa01", "--keep"],
        &["mcp", "--thread", "b7497d16", "--cwd", "."],
        &["mcp", "--session", "0000aa01", "--no-cwd"],
        &["mcp", "--cwd", ".", "--no-cwd"],
        &["budget", "0000aa01"],
        &["approvals", "grant"],
        &["notify", "--kind", "everything"],
        &["ps", "--supervisor", "ftp://nowhere"],
        &["up", "--max-depth", "deep"],
    ] {
        let output = run(home.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{arguments:?}");
    }
    assert!(
        !home.path().join("no").exists(),
        "a directory that is misspelt is not made"
    );
    let bytes = OsStr::from_bytes(b"--\xff");
    let output = troupe(home.path()).arg("lint").arg(bytes).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[test]
fn errors_are_json_with_json_output() {
    let home = tempfile::tempdir().unwrap();
    for (arguments, code) in [
        // No service listens on port 1.
        (&["ps", "--supervisor", "http://127.0.0.1:1", "--output", "json"][..], 7),
        (&["explode", "--output=json"][..], 2),
    ] {
        let output = run(home.path(), arguments);
        assert_eq!(output.status.code(), Some(code));
        let error: Value = serde_json::from_slice(&output.stderr).unwrap();
        assert!(
            error["error"]["message"]
                .as_str()
                .is_some_and(|message| !message.is_empty()),
            "{error}"
        );
        assert_eq!(error["error"]["exit_code"], code);
    }
}

#[test]
fn unreachable_service_has_a_hint() {
    let home = tempfile::tempdir().unwrap();
    let output = run(home.path(), &["ps", "--supervisor", "http://127.0.0.1:1"]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(7));
    assert!(
        text.starts_with("error: cannot reach the supervisor at http://127.0.0.1:1"),
        "{text}"
    );
    assert!(text.contains("hint: `troupe up`"), "{text}");
    assert!(!text.contains('\u{1b}'), "colour on a pipe: {text:?}");
}

#[test]
fn runner_fails_if_admin_port_is_in_use() {
    let home = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = run(home.path(), &["run", "--admin-listen", &address]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let expected = format!("error: cannot start the admin port: cannot listen on {address}: the address is in use");
    assert!(text.contains(&expected), "{text}");
    assert!(
        text.contains("hint: pass another address with --admin-listen"),
        "{text}"
    );
}

#[test]
fn settings_are_shown_with_their_origins() {
    let home = tempfile::tempdir().unwrap();
    let output = troupe(home.path())
        .args(["up", "--max-depth", "5", "--print-config", "--output", "json"])
        .env("TROUPE_MAX_THREADS", "7")
        .output()
        .unwrap();
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let origin = |name: &str| {
        shown["settings"][name]["origin"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(
        [origin("max_depth"), origin("max_threads"), origin("max_open_threads")],
        ["flag", "environment", "default"]
    );
    assert!(!home.path().join(".local").exists(), "nothing is started");
}

#[test]
fn demo_observes_all_claims() {
    let home = tempfile::tempdir().unwrap();
    let output = run(home.path(), &["demo"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}\n{}", stderr(&output));
    assert!(text.contains('✓') && !text.contains('✗'), "{text}");
    assert!(!text.contains('\u{1b}'), "colour on a pipe");
    assert_eq!(
        fs::read_dir(home.path()).unwrap().count(),
        0,
        "it touches nothing of the user's"
    );
}

#[test]
fn new_role_passes_lint_and_broken_role_fails() {
    let home = tempfile::tempdir().unwrap();
    let repository = home.path().join("work");
    fs::create_dir_all(repository.join(".git")).unwrap();
    let at = |arguments: &[&str]| {
        troupe(home.path())
            .current_dir(&repository)
            .args(arguments)
            .output()
            .unwrap()
    };

    succeeded(&at(&["agents", "new", "auditor", "--persona", "strict", "--read-only"]));
    assert_eq!(
        at(&["agents", "new", "auditor"]).status.code(),
        Some(2),
        "nothing is overwritten"
    );
    let good = succeeded(&at(&["lint", "--strict"]));
    assert_eq!(good, "1 file checked: 0 errors, 0 warnings\n");

    fs::write(
        repository.join(".codex/.agents/odd.md"),
        "---\ndescription: d\ncolour: red\n---\nx\n",
    )
    .unwrap();
    assert_eq!(at(&["lint"]).status.code(), Some(0), "a warning is no error");
    let strict = at(&["lint", "--strict"]);
    assert_eq!(strict.status.code(), Some(1));
    assert!(
        stdout(&strict).starts_with(".codex/.agents/odd.md:3:1: warning: "),
        "{}",
        stdout(&strict)
    );
    assert!(
        strict.stderr.is_empty(),
        "the answer says it already: {}",
        stderr(&strict)
    );

    fs::write(
        repository.join(".codex/.agents/open.md"),
        "---\ndescription: d\nallow_lst: [a]\n---\nx\n",
    )
    .unwrap();
    let json = at(&["lint", "--output", "json"]);
    assert_eq!(json.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&report["errors"], &report["warnings"]),
        (&Value::from(1), &Value::from(1))
    );
    let sarif = at(&["lint", "--output", "sarif"]);
    let log: Value = serde_json::from_slice(&sarif.stdout).unwrap();
    assert_eq!(log["version"], "2.1.0");
    assert_eq!(log["runs"][0]["results"].as_array().map(Vec::len), Some(2));
    assert_eq!(at(&["agents", "--output", "sarif"]).status.code(), Some(2));
    assert_eq!(at(&["lint", "no/such/file.md"]).status.code(), Some(2));
}

#[test]
fn lint_corrects_files_and_lists_searched_directories() {
    let home = tempfile::tempdir().unwrap();
    let roles = home.path().join("work/.codex/.agents");
    let at = |arguments: &[&str]| {
        let mut command = troupe(home.path());
        command.current_dir(home.path().join("work")).arg("lint");
        command.args(arguments).output().unwrap()
    };
    fs::create_dir_all(home.path().join("work/.git")).unwrap();
    let nothing = succeeded(&at(&[]));
    assert!(nothing.contains("\n  ") && nothing.contains("work/.codex/.agents\n"));

    fs::create_dir_all(&roles).unwrap();
    let file = roles.join("auditor.md");
    let wrong = "---\ndescripton: Audits\nallow_lst: [exec_comand, wait]\nspawn_list: [reviewr]\ndeny_list: [*_patch]\n\
                 reasoning_effort: extreme\n---\nAudit.\n";
    fs::write(&file, wrong).unwrap();
    let found = at(&[]);
    assert_eq!(found.status.code(), Some(1));
    assert_eq!(fs::read_to_string(&file).unwrap(), wrong, "only --fix changes files");
    let found = stdout(&found);
    // One run reports all errors, each with its position and its rule.
    for line in [
        "auditor.md:2:1: warning: unknown key \"descripton\" in the frontmatter is ignored [unknown-key]",
        "auditor.md:3:1: error: unknown key \"allow_lst\"",
        "auditor.md:4:14: warning: spawn_list: no role \"reviewr\" exists [unknown-role]",
        "auditor.md:5:13: error: invalid YAML: ",
        "auditor.md:6:19: error: invalid YAML: ",
    ] {
        assert!(found.contains(line), "{line}: {found}");
    }

    // Roles of other checked projects and tools of the user's own program are known.
    let other = home.path().join("other/.codex/.agents");
    fs::create_dir_all(&other).unwrap();
    fs::create_dir_all(home.path().join("other/.git")).unwrap();
    fs::write(
        other.join("lead.md"),
        "---\ndescription: d\nallow_list: [deploy]\nspawn_list: [scout]\n---\nx\n",
    )
    .unwrap();
    fs::write(other.join("scout.md"), "---\ndescription: d\n---\nx\n").unwrap();
    let lead = other.join("lead.md").display().to_string();
    let own = file.display().to_string();
    let both = stdout(&at(&[&own, &lead, "--known-tool", "deploy"]));
    assert!(!both.contains("lead.md"), "{both}");
    assert!(stdout(&at(&[&lead])).contains("[unknown-tool]"));

    let corrected = at(&["--fix"]);
    assert_eq!(corrected.status.code(), Some(1), "one error needs a decision");
    let summary = "1 file corrected; 1 file checked: 1 error, 0 warnings\n";
    assert!(stdout(&corrected).ends_with(summary), "{}", stdout(&corrected));
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        "---\ndescription: Audits\nallow_list: [exec_command, wait]\nspawn_list: [reviewer]\ndeny_list: [\"*_patch\"]\n\
         reasoning_effort: extreme\n---\nAudit.\n"
    );
}

#[test]
fn role_shows_its_effective_tools() {
    let up = Up::start();
    let shown = up.succeeds(&["agents", "show", "explorer"]);
    assert_eq!(shown["agent"]["agent_type"], "explorer");
    let has = |list: &str, tool: &str| {
        let tools = shown["tools"][list].as_array().unwrap();
        tools.iter().any(|name| name == tool)
    };
    assert!(has("allowed", "read_file") && has("denied", "spawn_agent"), "{shown}");
    let text = stdout(&up.run(&["agents", "show", "reviewer"]));
    assert!(text.contains("prompt of reviewer: strict"), "{text}");
    let graph = up.run(&["resolve", "--graph", "orchestrator", "--mode", "planning", "--prompt"]);
    assert!(
        stdout(&graph).contains("edge_management_all") && stdout(&graph).contains("Mode: PLANNING"),
        "{}",
        stdout(&graph)
    );
}

#[test]
fn services_serve_the_commands() {
    let up = Up::start();
    assert!(up.data_dir().join("operator.token").exists());

    let resolved = up.succeeds(&["resolve", "worker", "--model", "m"]);
    assert_eq!(resolved["resolved"]["origins"]["model"], "VALUE_ORIGIN_EXPLICIT");

    let spawned = up.succeeds(&words("spawn worker -m Rest. --wait --timeout 30s"));
    assert_eq!(spawned["status"]["kind"], "STATUS_KIND_COMPLETED");
    let thread = spawned["thread"]["thread_id"].as_str().unwrap();
    let session = spawned["session_id"].as_str().unwrap();

    // The last characters of an id are sufficient.
    assert_eq!(
        up.succeeds(&["wait", &thread[thread.len() - 8..]])["statuses"][0]["thread_id"],
        thread
    );

    let routed = up.succeeds(&["spawn", "--route", "/use explorer and look", "--session", session]);
    assert_eq!(routed["thread"]["agent_type"], "explorer");
    assert_eq!(routed["route"]["agent_type"], "explorer");
    assert_eq!(routed["route"]["reason"], "requested via `/use explorer`");
    let shown = up.run(&["spawn", "--route", "/use explorer and look", "--session", session]);
    let shown = stderr(&shown);
    assert!(
        shown.contains("route   explorer requested via `/use explorer`"),
        "{shown}"
    );

    let closed = up.succeeds(&["close", "--session", session, "--wait"]);
    assert_eq!(closed["session"]["closed"], true);

    let watched = up.text(&["watch", session, "--after", "0"]);
    assert!(watched.contains("shut down"), "{watched}");

    up.text(&["doctor"]);
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn templates_are_uploaded_to_remote_registry() {
    let up = Up::start();
    let elsewhere = tempfile::tempdir().unwrap();
    let roles = elsewhere.path().join(".codex/.agents");
    fs::create_dir(elsewhere.path().join(".git")).unwrap();
    fs::create_dir_all(&roles).unwrap();
    fs::write(
        roles.join("clerk.md"),
        "---\ndescription: Files things.\n---\nYou file.\n",
    )
    .unwrap();
    let cwd = elsewhere.path().to_str().unwrap();

    refused(&up, &["agents", "clerk", "--cwd", cwd], 3, "CWD_OUTSIDE_ROOTS");
    let listed = up.succeeds(&["agents", "clerk", "--cwd", cwd, "--upload-workspace"]);
    assert_eq!(listed["agents"][0]["source"]["path"], "project:.codex/.agents/clerk.md");
    assert_eq!(
        up.succeeds(&["resolve", "clerk", "--cwd", cwd, "--upload-workspace=always"])["resolved"]["instructions"],
        "You file."
    );

    // An additional file creates a different bundle, which the registry does not have when the session is opened.
    fs::write(
        roles.join("scribe.md"),
        "---\ndescription: Writes things.\n---\nYou write.\n",
    )
    .unwrap();
    let spawn = format!("spawn scribe -m Rest. --cwd {cwd} --upload-workspace --wait");
    let spawned = up.succeeds(&words(&spawn));
    assert_eq!(spawned["status"]["kind"], "STATUS_KIND_COMPLETED");
    // The session stores its templates, so later calls need no directory.
    let session = spawned["session_id"].as_str().unwrap();
    up.succeeds(&["spawn", "clerk", "-m", "Rest.", "--session", session]);
    refused(
        &up,
        &["spawn", "nobody", "-m", "Rest.", "--session", session],
        4,
        "TEMPLATE_NOT_FOUND",
    );
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn project_directory_is_normalized_or_absent() {
    let up = Up::start();
    let project = up.home.path().join("work");
    fs::create_dir_all(project.join(".git")).unwrap();
    fs::create_dir_all(project.join("src")).unwrap();
    fs::create_dir_all(project.join(".codex/.agents")).unwrap();
    let role = "---\ndescription: Files things.\n---\nYou file.\n";
    fs::write(project.join(".codex/.agents/clerk.md"), role).unwrap();

    // The services reject a path that contains `..`.
    let listed = up.succeeds(&["agents", "clerk", "--cwd", "work/src/../src"]);
    assert_eq!(listed["agents"][0]["source"]["scope"], "SCOPE_PROJECT");
    refused(&up, &["agents", "clerk", "--no-cwd"], 4, "TEMPLATE_NOT_FOUND");

    let say = ["-m", "Say that you are done.", "--wait"];
    let way = ["spawn", "clerk", "--cwd", "work/src/.."];
    let spawned = up.succeeds(&[&way[..], &say].concat());
    let nowhere = ["spawn", "worker", "--no-cwd", "--upload-workspace"];
    let spawned_nowhere = up.succeeds(&[&nowhere[..], &say].concat());
    for (answer, ends) in [(&spawned, "/work"), (&spawned_nowhere, "")] {
        let (_, listed) = up.json(&["ps", "--session", answer["session_id"].as_str().unwrap()]);
        let session = &listed["sessions"][0];
        let cwd = session["cwd"].as_str().unwrap();
        assert!(cwd.ends_with(ends) && cwd.is_empty() == ends.is_empty(), "{session}");
        assert_eq!(session["workspace_digest"], "", "{session}");
    }
    let session = spawned["session_id"].as_str().unwrap();
    let wrong = up.run(&["spawn", "worker", "-m", "Rest.", "--session", session, "--no-cwd"]);
    assert_eq!(wrong.status.code(), Some(2), "a session has its project already");
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn agent_completes_if_its_message_is_truncated() {
    // The quota is sufficient for the input, but not for the prompt that repeats it or for the answer.
    let up = Up::start_with(&["--session-content-bytes", "100000"]);
    let words = "x".repeat(50_000);
    let spawned = up.succeeds(&["spawn", "-m", &format!("say: {words}"), "--wait", "--transcript", "off"]);
    assert_eq!(spawned["status"]["content"]["size"], words.len());
    assert_eq!(spawned["message"], spawned["status"]["message"]);
    assert_eq!(spawned["message_extent"], "not_kept");
    let kept = spawned["message"].as_str().unwrap();
    assert!(!kept.is_empty() && kept.len() < words.len() && words.starts_with(kept));

    let report = up.succeeds(&["store", "verify"]);
    assert_eq!(report["sound"], true);
    assert!(report["contents_left_out"].as_u64().unwrap() >= 2, "{report}");
    assert_eq!(up.stop(), Some(0));
}
