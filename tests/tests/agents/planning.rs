//! PLANNING mode with the real programs: their commands run and can write only in docs/.

use std::{fs, path::Path};

use serde_json::{Value, json};
use troupe_proto::{
    common::v1::{Mode, Sandbox},
    supervisor::v1::{CreateSessionRequest, UpdateSessionRequest},
};
use troupe_tests::{
    agents::{CLAUDE, CODEX, Lab, are_wanted, send, spawn, until},
    tree::Tree,
    within,
};

use super::{ALL, assert_done, lab, results, tree_of_all};

async fn planning(lab: &Lab, sandbox: Sandbox) -> Tree {
    let request = CreateSessionRequest {
        mode: Mode::Planning.into(),
        sandbox: sandbox.into(),
        ..CreateSessionRequest::default()
    };
    lab.tree(request).await
}

async fn set_mode(tree: &Tree, mode: Mode) {
    let request = UpdateSessionRequest {
        session_id: tree.session.clone(),
        mode: Some(mode.into()),
        ..UpdateSessionRequest::default()
    };
    within("a change of mode", tree.client().update_session(request))
        .await
        .unwrap();
}

/// Returns a step with a command that prints a word, tries to write each path, and prints the written paths.
fn write_all(word: &str, paths: &[&str]) -> Value {
    let attempts: Vec<String> = paths
        .iter()
        .map(|path| {
            let parent = Path::new(path).parent().unwrap_or_else(|| Path::new("")).display();
            format!("mkdir -p ./{parent}; echo x > {path} && echo WROTE:{path}")
        })
        .collect();
    json!({"shell": format!("echo {word}; ({}) 2>&1; true", attempts.join("; "))})
}

/// Checks a program across two changes of mode. The conversation continues across both.
async fn program_writes_docs_only(lab: &Lab, program: &str, sandbox: Sandbox) {
    let tree = planning(lab, sandbox).await;
    let name = |path: &str| format!("{path}-{program}-{sandbox:?}");
    let (code, plan, role) = (name("code"), name("docs/plan/a"), name("docs/templates/role"));
    let outside = name("../outside");
    let steps = json!([write_all("first", &[&code, &plan, &role, &outside]), {"text": "done"}]);
    let thread = spawn(&tree, program, &steps).await;
    assert_done(&tree, &thread, program).await;
    let seen = results(lab, program);
    let is_written = |path: &str| lab.project().join(path).exists();
    assert!(is_written(&plan), "{program} {sandbox:?}: {seen:?}");
    for path in [&code, &role, &outside] {
        assert!(!is_written(path), "{program} {sandbox:?} wrote {path}: {seen:?}");
    }

    set_mode(&tree, Mode::Implementation).await;
    send(
        &tree,
        &thread,
        &json!([write_all("second", &[&code]), {"text": "done"}]),
    )
    .await;
    assert_done(&tree, &thread, program).await;
    let seen = results(lab, program);
    assert!(is_written(&code), "{program} {sandbox:?}: {seen:?}");
    assert!(
        seen.len() >= 2 && seen[0].contains("first"),
        "{program} {sandbox:?} does not remember: {seen:?}"
    );

    set_mode(&tree, Mode::Planning).await;
    let (late, revised) = (name("late"), name("docs/revised"));
    send(
        &tree,
        &thread,
        &json!([write_all("third", &[&late, &revised]), {"text": "done"}]),
    )
    .await;
    assert_done(&tree, &thread, program).await;
    let seen = results(lab, program);
    assert!(
        is_written(&revised) && !is_written(&late),
        "{program} {sandbox:?}: {seen:?}"
    );
    assert!(
        seen.len() >= 3 && seen[0].contains("first"),
        "{program} {sandbox:?} does not remember: {seen:?}"
    );
    tree.end().await;
    fs::remove_dir_all(lab.project().join("docs")).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planning_programs_write_docs_only() {
    if !are_wanted("PLANNING") {
        return;
    }
    let lab = lab().await;
    tree_of_all(&lab).await.end().await;
    for program in ALL {
        program_writes_docs_only(&lab, program, Sandbox::WorkspaceWrite).await;
    }
    program_writes_docs_only(&lab, CODEX, Sandbox::FullAccess).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planning_turn_stays_limited_after_change_of_mode() {
    if !are_wanted("a change of mode in a turn") {
        return;
    }
    let lab = lab().await;
    let tree = planning(&lab, Sandbox::WorkspaceWrite).await;
    for program in [CODEX, CLAUDE] {
        let begun = lab.project().join(format!("docs/{program}.begun"));
        let (go, late) = (format!("docs/{program}.go"), format!("{program}.late"));
        let wait = format!("touch {}; until test -e {go}; do sleep 0.1; done", begun.display());
        let steps = json!([{"shell": wait}, write_all("word", &[&late]), {"text": "done"}]);
        let thread = spawn(&tree, program, &steps).await;
        until("a command", async || begun.exists().then_some(())).await;
        set_mode(&tree, Mode::Implementation).await;
        fs::write(lab.project().join(go), "").unwrap();
        assert_done(&tree, &thread, program).await;
        let seen = results(&lab, program);
        assert!(!lab.project().join(&late).exists(), "{program}: {seen:?}");
        send(&tree, &thread, &json!([write_all("word", &[&late]), {"text": "done"}])).await;
        assert_done(&tree, &thread, program).await;
        assert!(lab.project().join(&late).exists(), "{program}");
        set_mode(&tree, Mode::Planning).await;
    }
}
