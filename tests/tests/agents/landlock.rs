//! The four real programs without a working bubblewrap, confined by Landlock as in restricted pods.

use std::{
    env, fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};

use serde_json::{Value, json};
use tokio::process::Child;
use troupe_proto::{
    common::v1::{Mode, Sandbox},
    supervisor::v1::CreateSessionRequest,
};
use troupe_tests::{
    agents::{LAUNCHER_USER, Lab, are_wanted, spawn},
    tree::Tree,
};

use super::{ALL, UNDER, assert_done, results, writes};

const SECRET: &str = "secret-of-the-user";

/// Starts a runner with Landlock and a `bwrap` that fails.
fn runner(lab: &Lab, arguments: &[&Path]) -> Child {
    let bin = lab.home().join("bin");
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("bwrap"), "#!/bin/sh\necho 'no namespaces here' >&2\nexit 1\n").unwrap();
    fs::set_permissions(bin.join("bwrap"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([bin].into_iter().chain(env::split_paths(&path))).unwrap();
    lab.runner_command("landlock")
        .args(["--landlock", "--data-dir", "d"])
        .args(arguments)
        .env("PATH", path)
        .spawn()
        .unwrap()
}

/// Runs a turn of a role and checks that it completes with `done`.
async fn run(tree: &Tree, role: &str, steps: &Value) {
    let thread = spawn(tree, role, steps).await;
    assert_done(tree, &thread, role).await;
}

/// Returns a step with a shell command that tries to write each path and writes a report to a file in the working
/// directory.
fn attempt(program: &str, paths: &[&Path], report: &str) -> Value {
    let attempts: String = paths
        .iter()
        .map(|path| format!("echo {program} > {0} && echo WROTE {0}; ", path.display()))
        .collect();
    json!({"shell": format!("({attempts}) > {report} 2>&1; true")})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_are_confined_without_namespaces() {
    if !are_wanted("Landlock") {
        return;
    }
    let lab = Lab::without_runner(Path::new(UNDER)).await;
    let _runner = runner(&lab, &[]);
    assert_confined(&lab).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_of_a_launcher_are_confined() {
    if !are_wanted("the launcher") {
        return;
    }
    let lab = Lab::without_runner(Path::new(UNDER)).await;
    let (_launcher, socket) = lab.launcher().await;
    let _runner = runner(&lab, &[Path::new("--launcher"), &socket]);
    assert_confined(&lab).await;
    for program in ALL {
        let written = lab.project().join(format!("{program}.txt"));
        assert_eq!(fs::metadata(written).unwrap().uid(), LAUNCHER_USER, "{program}");
    }
}

async fn assert_confined(lab: &Lab) {
    let (project, home) = (lab.project(), lab.home());
    fs::create_dir_all(home.join(".ssh")).unwrap();
    for path in [home.join(".ssh/id"), project.join("../d/runner.token")] {
        fs::write(path, SECRET).unwrap();
    }
    let outside = home.join("outside");

    for program in ALL {
        lab.role(program, program, "");
        let reader = format!("{program}-reader");
        lab.role(&reader, program, "read_only: true\n");
        let tree = |mode: Mode| CreateSessionRequest {
            mode: mode.into(),
            sandbox: Sandbox::WorkspaceWrite.into(),
            ..CreateSessionRequest::default()
        };
        let implementation = lab.tree(tree(Mode::Implementation)).await;

        // READ_ONLY: neither commands nor tools of the program can write.
        let written = ["by-command.txt", "by-tool.txt"].map(|name| project.join(name));
        let steps = json!([
            {"shell": format!("echo x > {}", written[0].display())},
            writes(program, lab, "by-tool.txt"),
            {"text": "done"},
        ]);
        run(&implementation, &reader, &steps).await;
        for path in &written {
            assert!(
                !path.exists(),
                "{program} wrote {} in a read-only thread",
                path.display()
            );
        }

        // WORKSPACE_WRITE: the program can write only the workspace and cannot read secrets.
        let (inside, report) = (project.join(format!("{program}.txt")), format!("{program}.log"));
        let read = "cat ../home/.ssh/id ../d/runner.token";
        let steps = json!([
            attempt(program, &[&inside, &outside], &report),
            {"shell": format!("({read}) > {program}.seen 2>/dev/null; true")},
            {"text": "done"},
        ]);
        run(&implementation, program, &steps).await;
        let said = fs::read_to_string(project.join(&report)).unwrap_or_default() + &results(lab, program).join("; ");
        assert_eq!(
            fs::read_to_string(&inside).unwrap_or_default().trim(),
            program,
            "{said}"
        );
        assert!(!outside.exists(), "{program} wrote outside of its workspace: {said}");
        let seen = fs::read(project.join(format!("{program}.seen"))).unwrap();
        assert!(
            !String::from_utf8_lossy(&seen).contains(SECRET),
            "{program} reads a secret"
        );
        implementation.end().await;

        // PLANNING: the program can write only docs/.
        let planning = lab.tree(tree(Mode::Planning)).await;
        let (plan, code) = (project.join("docs/plan"), project.join("code"));
        let steps = json!([attempt(program, &[&plan, &code, &outside], "docs/report"), {"text": "done"}]);
        run(&planning, program, &steps).await;
        let said =
            fs::read_to_string(project.join("docs/report")).unwrap_or_default() + &results(lab, program).join("; ");
        assert_eq!(fs::read_to_string(&plan).unwrap_or_default().trim(), program, "{said}");
        assert!(
            !code.exists() && !outside.exists(),
            "{program} wrote code in PLANNING mode: {said}"
        );
        planning.end().await;
        fs::remove_dir_all(project.join("docs")).unwrap();
    }
}
