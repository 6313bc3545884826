//! Exports of the command line, against their published schema.

use std::{collections::BTreeSet, fs, path::Path, str::from_utf8};

use serde_json::{Value, json};
use troupe_tests::process::{Home, Up};

/// Returns the published schema without permission for unknown fields, so that fields that the schema lacks are
/// detected.
fn strict_schema() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/export.schema.json");
    let mut schema: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    schema["additionalProperties"] = json!(false);
    let definitions = schema["$defs"].as_object_mut().unwrap().values_mut();
    for message in definitions.filter(|definition| definition["type"] == "object") {
        message["additionalProperties"] = json!(false);
    }
    schema
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exported_lines_match_the_published_schema() {
    let home = Home::default();
    let up = Up::start_with(&home, Up::WITH_RUNNER).await;
    let url = format!("http://{}", up.supervisor);
    let run = async |arguments: &[&str]| {
        let arguments = [arguments, &["--supervisor", &url]].concat();
        let output = home.run(&arguments).await;
        let errors = from_utf8(&output.stderr).unwrap();
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    };
    let note = json!({"tool_call": {"name": "set_thread_note", "args": {"note": "working"}}});
    let denied = json!({"tool_call": {"name": "read_file", "args": {"path": "../outside"}}});
    let task = format!("{note}\n{denied}\nsay: done");
    run(&["spawn", "worker", "-m", &task, "--wait", "--no-cwd"]).await;

    let exported = run(&["export", "-o", "jsonl"]).await;
    let validator = jsonschema::validator_for(&strict_schema()).unwrap();
    let mut kinds = BTreeSet::new();
    for line in exported.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let errors: Vec<String> = validator.iter_errors(&record).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{line}: {errors:?}");
        kinds.extend(record.as_object().unwrap().keys().cloned());
    }
    assert_eq!(
        kinds.iter().map(String::as_str).collect::<Vec<_>>(),
        ["entry", "event", "header", "prompt", "session", "thread"]
    );
    let other = json!({"header": {"format_version": 2}});
    assert!(!validator.is_valid(&other), "another version is not described");
}
