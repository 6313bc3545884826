//! Test of Ctrl-C for `troupe run`: one signal starts an orderly shutdown, a second one causes an immediate exit.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, Stdio},
};

use crate::support::up::{NO_RUNNER, Up, Watching, interrupt, troupe};

/// Sends SIGINT, and again once the process reports that it is stopping. Returns its exit code and its output.
fn interrupt_twice(mut process: Child) -> (Option<i32>, String) {
    let mut stderr = BufReader::new(process.stderr.take().unwrap());
    let mut said = String::new();
    interrupt(process.id());
    while !said.contains("a second Ctrl-C") {
        assert!(
            stderr.read_line(&mut said).unwrap() > 0,
            "the process ended too early: {said}"
        );
    }
    interrupt(process.id());
    stderr.read_to_string(&mut said).unwrap();
    (process.wait().unwrap().code(), said)
}

#[test]
fn second_signal_skips_the_drain_of_run() {
    let up = Up::start_with(&[NO_RUNNER]);
    let runner = troupe(up.home.path())
        .args(["run", "--supervisor", up.supervisor(), "--drain", "1h"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (session, _) = up.spawn(&["worker", "hold", "--no-cwd"]);
    Watching::start(&up, &["watch", &session, "--after", "0", "--output", "json"]).until("\"turn_started\"");
    let (code, said) = interrupt_twice(runner);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("stopped at the second signal"), "{said}");
}
