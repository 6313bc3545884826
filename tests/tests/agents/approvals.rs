//! Approvals of the real programs' own tools, and the changes of their commands.

use serde_json::{Value, json};
use troupe_proto::supervisor::v1::{
    Approval, CreateSessionRequest, ListApprovalsRequest, ListArtifactsRequest, ResolveApprovalRequest,
};
use troupe_tests::{
    agents::{CLAUDE, CODEX, OPENCODE, are_wanted, message, settled, spawn, until},
    content,
    tree::Tree,
    within,
};

/// Returns a step in which the program runs a command in its own shell.
fn runs(program: &str, command: &str) -> Value {
    match program {
        CODEX => json!({"tool": "exec_command", "args": {"cmd": command}}),
        CLAUDE => json!({"tool": "Bash", "args": {"command": command, "description": "write"}}),
        _ => json!({"tool": "bash", "args": {"command": command, "description": "write"}}),
    }
}

/// Waits for the only pending approval and returns it.
async fn waiting(tree: &Tree) -> Approval {
    until("an approval", async || {
        let request = ListApprovalsRequest {
            session_id: tree.session.clone(),
            ..ListApprovalsRequest::default()
        };
        let listed = tree.client().list_approvals(request).await.unwrap().into_inner();
        listed.approvals.into_iter().next()
    })
    .await
}

async fn read(tree: &Tree, digest: &str) -> String {
    let bytes = content::read(&tree.client(), &tree.session, digest).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_long_command_needs_its_own_approval() {
    if !are_wanted("approvals") {
        return;
    }
    let lab = super::lab().await;
    lab.role(OPENCODE, OPENCODE, "");
    let tree = lab
        .tree(CreateSessionRequest {
            approve_tools: vec![String::from("exec_command")],
            ..CreateSessionRequest::default()
        })
        .await;
    for program in [CODEX, CLAUDE, OPENCODE] {
        let file = |number: u32| format!("{program}-{number}.txt");
        let commands = [1, 2].map(|number| format!("echo {} > {}", "x".repeat(400), file(number)));
        let steps = json!([runs(program, &commands[0]), runs(program, &commands[1]), {"text": "done"}]);
        let thread = spawn(&tree, program, &steps).await;
        let mut digests = Vec::new();
        for (number, command) in (1..).zip(&commands) {
            let approval = waiting(&tree).await;
            assert_eq!(approval.threads[0].thread_id, thread, "{program}");
            assert_eq!(approval.threads[1].thread_id, tree.root, "{program}");
            let whole = read(&tree, &approval.content.as_ref().unwrap().digest).await;
            let whole: Value = serde_json::from_str(&whole).unwrap();
            let arguments = whole["arguments"].as_object().unwrap();
            assert!(arguments.values().any(|shown| shown == command), "{program}: {whole}");
            assert!(!lab.project().join(file(number)).exists(), "{program} did not wait");
            digests.push(approval.call_sha256.clone());
            let decision = ResolveApprovalRequest {
                session_id: tree.session.clone(),
                approval_id: approval.approval_id,
                grant: true,
                ..ResolveApprovalRequest::default()
            };
            tree.client().resolve_approval(decision).await.unwrap();
        }
        assert_ne!(digests[0], digests[1], "{program}");
        assert_eq!(message(&settled(&tree, &thread).await), "done");

        let request = ListArtifactsRequest {
            thread_id: thread.clone(),
            ..ListArtifactsRequest::default()
        };
        let listed = within("the artifacts", tree.client().list_artifacts(request)).await;
        let listed = listed.unwrap().into_inner().artifacts;
        let diff = listed.iter().find(|artifact| artifact.name == "turn-1.diff");
        let diff = diff.unwrap_or_else(|| panic!("{program} has no diff: {listed:?}"));
        let text = read(&tree, &diff.content.as_ref().unwrap().digest).await;
        for number in [1, 2] {
            assert!(text.contains(&format!("+++ b/{}\n", file(number))), "{program}: {text}");
        }
    }
}
