//! Tests of `troupe batch`: one agent for each row of a table.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::Stdio,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::up::{Up, fails, stderr, stdout, words};

const TABLE: &str = "key,path\none,a.rs\ntwo,\"b, c.rs\"\nthree,d.rs\n";

fn with_table(up: &Up) -> String {
    let table = up.home.path().join("files.csv");
    fs::write(&table, TABLE).unwrap();
    let schema = up.home.path().join("finding.json");
    fs::write(schema, r#"{"type": "object", "required": ["path"]}"#).unwrap();
    table.to_str().unwrap().to_owned()
}

#[test]
fn rows_become_agents_with_checked_results() {
    let up = Up::start();
    let table = with_table(&up);
    let flags = words("batch run --role worker --schema finding.json --limit 2 --results results.csv");
    let run = [&flags[..], &["--csv", &table, "-m", "say: {{\"path\": \"{path}\"}"]].concat();
    let dry = up.run(&[&run[..], &["--dry-run", "--budget-tokens", "500"]].concat());
    assert_eq!(dry.status.code(), Some(0), "{}", stderr(&dry));
    assert_eq!(
        stdout(&dry),
        "3 items can run, at most 1500 tokens; nothing was started\n"
    );
    assert!(stdout(&up.run(&["ps", "-q"])).is_empty(), "a dry run leaves no session");

    let answer = up.succeeds(&run);
    assert_eq!(answer["group"]["state"], "GROUP_STATE_SUCCEEDED");
    let results = fs::read_to_string(up.home.path().join("results.csv")).unwrap();
    let mut rows = csv::Reader::from_reader(results.as_bytes());
    let rows: Vec<csv::StringRecord> = rows.records().map(Result::unwrap).collect();
    let keys: Vec<&str> = rows.iter().map(|row| &row[0]).collect();
    assert_eq!(keys, ["one", "two", "three"]);
    let document: Value = serde_json::from_str(&rows[1][6]).unwrap();
    assert_eq!(document["path"], "b, c.rs");

    // Running the same command again shows the results.
    let again = up.run(&run);
    assert_eq!(again.status.code(), Some(0));
    let error = stderr(&again);
    assert!(error.contains("exists already; following it"), "{error}");
    let shown = stdout(&up.run(&["batch", "show", "files"]));
    assert!(
        shown.contains("SUCCEEDED") && shown.contains("3/3 succeeded"),
        "{shown}"
    );
    let items = up.text(&["batch", "items", "files", "--state", "succeeded"]);
    assert!(
        items.contains("two") && items.contains("{\"path\": \"b, c.rs\"}"),
        "{items}"
    );
    let none = up.run(&["batch", "show", "other"]);
    assert_eq!(none.status.code(), Some(4));
}

#[test]
fn interrupted_batch_continues_and_is_followed_again() {
    let up = Up::start();
    let table = with_table(&up);
    let run = [
        "batch", "run", "--csv", &table, "--role", "worker", "-m", "hold", "--limit", "2",
    ];
    let mut process = up
        .command(&run)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.starts_with("session "), "{first}");
    kill_process(Pid::from_child(&process), Signal::INT).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(130));
    let said: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(
        said.join("\n").contains("`troupe batch cancel files` cancels it"),
        "{said:?}"
    );

    let shown = up.text(&["batch", "show", "files"]);
    assert!(shown.contains("RUNNING"), "{shown}");
    let paused = up.succeeds(&["batch", "update", "files", "--pause", "--limit", "1"]);
    assert_eq!(paused["group"]["limits"]["paused"], true);
    up.succeeds(&["batch", "cancel", "files", "--reason", "enough"]);
    fails(&up.run(&run), 6, "the batch files is CANCELLED: enough");
    let retried = up.succeeds(&["batch", "retry", "files"]);
    assert_eq!(retried["group"]["pending"], 3);
}

#[test]
fn unusable_batches_are_rejected_before_a_session_opens() {
    let up = Up::start();
    let table = with_table(&up);
    let run = |more: &[&str]| up.run(&[&["batch", "run", "--csv", &table, "--role", "worker"], more].concat());
    for (arguments, code, text) in [
        (&["-m", "Review {pth}"][..], 1, "unknown placeholder \"{pth}\""),
        (&["-m", "x", "--key", "name"], 2, "has no column \"name\""),
        (&["-m", "x", "--schema", "files.csv"], 1, "result_schema cannot be used"),
        (&["-m", "x", "--quorum", "9"], 1, "quorum is 9; 1 to 3 are possible"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(text), "{}", stderr(&output));
    }
    assert!(up.text(&["ps", "-q"]).is_empty(), "a rejected batch leaves no session");
}
