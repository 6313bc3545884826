//! Results that match a schema, from the real programs.

use serde_json::json;
use troupe_proto::supervisor::v1::{SpawnAgentRequest, StatusKind};
use troupe_tests::{
    agents::{CLAUDE, CODEX, are_wanted, message, script, settled, spawn},
    events::{about, names},
    tree::{Spawned, kind},
};

use super::{ALL, children, lab, results, tree_of_all};

const SCHEMA: &str = r#"{
    "type": "object",
    "required": ["files"],
    "properties": {"files": {"type": "array", "items": {"type": "string"}}}
}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_program_reports_a_checked_result() {
    if !are_wanted("results") {
        return;
    }
    let lab = lab().await;
    let tree = tree_of_all(&lab).await;
    for program in ALL {
        let report = |files: serde_json::Value| json!({"tool": "report_result", "args": {"result": {"files": files}}});
        let steps = json!([
            {"text": "There is one file."},
            report(json!("a.rs")),
            report(json!(["a.rs"])),
            {"text": "done"},
        ]);
        let request = SpawnAgentRequest {
            message: Some(script(&steps)),
            result_schema: SCHEMA.to_owned(),
            ..tree.request(program)
        };
        let thread = Spawned::of(tree.try_spawn(request).await.unwrap()).id;
        let done = settled(&tree, &thread).await;
        assert_eq!(kind(&done), StatusKind::Completed, "{program}: {done:?}");
        let result = tree.thread(&thread).await.result.unwrap();
        let document: serde_json::Value = serde_json::from_str(&result.document_json).unwrap();
        assert_eq!(document, json!({"files": ["a.rs"]}), "{program}");
        let answers = results(&lab, program);
        let [rejected, accepted] = &answers[..] else {
            panic!("{program}: {answers:?}")
        };
        // Gemini CLI shortens the texts of errors.
        let errors = ["does not match its JSON Schema", "reported tool error"];
        assert!(
            errors.iter().any(|text| rejected.contains(text)),
            "{program}: {rejected}"
        );
        assert!(accepted.contains("reported"), "{program}: {accepted}");
        let ends = names(&about(&tree.log().await, &thread));
        let ends = ends.iter().filter(|name| name.as_str() == "TurnEnded").count();
        assert_eq!(ends, 2, "{program}: one turn and one repair turn");
    }
    tree.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn group_of_an_agent_runs_other_programs() {
    if !are_wanted("groups") {
        return;
    }
    let lab = lab().await;
    let tree = tree_of_all(&lab).await;
    for (lead, worker) in [(CLAUDE, CODEX), (CODEX, CLAUDE)] {
        let item = |key: &str| json!({"key": key, "variables": {"number": key}});
        let task = format!("Do {{number}}. {}", script(&json!([{"text": "done with it"}])));
        let steps = json!([
            {"tool": "spawn_group", "args": {
                "message": task, "agent_type": worker, "items": [item("1"), item("2")],
            }},
            {"text": "all done"},
        ]);
        let thread = spawn(&tree, lead, &steps).await;
        let done = settled(&tree, &thread).await;
        assert_eq!(message(&done), "all done", "{lead}: {done:?}");
        let answers = results(&lab, lead);
        let [answer] = &answers[..] else {
            panic!("{lead}: {answers:?}")
        };
        for part in ["succeeded", "done with it"] {
            assert!(answer.contains(part), "{lead}: {answer}");
        }
        let children = children(&tree, &thread).await;
        assert_eq!(children.len(), 2, "{lead}: one thread for each item");
    }
    tree.end().await;
}
