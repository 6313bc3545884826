//! Tests of the output on terminals of several widths, and in a pipe.
//!
//! The golden files in `transcripts/` contain commands and their output as a user sees them. After a change,
//! `TROUPE_WRITE_DOCS=1 cargo test -p troupe-cli --test cli terminal` updates the files.

use std::{env, fs, path::Path, process::Command};

use crate::support::{
    screen::Screen,
    up::{Up, Watching, stderr, stdout},
};

/// Rows of the emulated terminals. No output of the transcript is longer, so that no pager starts.
const ROWS: u16 = 60;

#[test]
fn no_truncate_prints_complete_lines() {
    let up = Up::start();
    up.complete(&[
        "worker",
        "Describe every directory of the project in one sentence, and name the largest file",
    ]);
    let lines = Screen::start(up.command(&["ps", "--no-truncate"]), 60, ROWS).finish().1;
    assert!(lines.replace('\n', "").contains("and name the largest"), "{lines}");
}

#[test]
fn long_text_is_shown_in_the_pager() {
    let up = Up::start();
    let page = |pager: &str, rows| {
        let mut shown = up.command(&["agents", "show", "reviewer"]);
        shown.env("TROUPE_PAGER", pager);
        Screen::start(shown, 80, rows)
    };
    let whole = stdout(&up.run(&["agents", "show", "reviewer"]));
    let last = whole.lines().rfind(|line| !line.is_empty()).unwrap();
    // The pager reads the text, and ends once the test opens the pipe.
    let pipe = up.home.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut screen = page(&format!("sed -n '1s/^/first: /p'; cat {}", pipe.display()), 10);
    screen.until("first: ");
    // Ctrl-C does not end the command before its pager.
    screen.interrupt();
    fs::write(&pipe, "the pager ends").unwrap();
    let (code, text) = screen.finish();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.ends_with("the pager ends"), "{text}");

    // The text is written without a pager if it fits the screen, and if the pager does not exist or is turned off.
    for (pager, rows) in [("false", 500), ("no-such-pager --flag", 10), ("", 10), ("cat", 10)] {
        let (code, text) = page(pager, rows).finish();
        assert_eq!(code, Some(0), "{pager}: {text}");
        assert!(text.contains(last), "{pager}: {text}");
    }
}

/// Replaces ids, paths, digests and times, which differ between runs, with texts of the same width.
struct Normaliser {
    names: Vec<(String, String)>,
}

impl Normaliser {
    fn new(home: &Path, ids: &[String]) -> Self {
        let home = home.display().to_string();
        let stable = format!("{:x<width$}", "/home/", width = home.len());
        let ids = ids.iter().enumerate().flat_map(|(number, id)| {
            let full = format!("01a00000-0000-7000-8000-{:012}", number + 1);
            let short = full[28..].to_owned();
            [(id.clone(), full), (id[28..].to_owned(), short)]
        });
        Self {
            names: ids.chain([(home, stable)]).collect(),
        }
    }

    fn apply(&self, text: &str) -> String {
        let text = self
            .names
            .iter()
            .fold(text.to_owned(), |text, (name, stable)| text.replace(name, stable));
        let words = text.split_inclusive([' ', '\n']).map(|word| {
            let (bare, end) = match word.strip_suffix([' ', '\n']) {
                Some(bare) => (bare, &word[bare.len()..]),
                None => (word, ""),
            };
            let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            // A digest may be truncated.
            let hex = bare.trim_end_matches('…');
            let is_digest = hex.len() >= 16 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
            let is_time = bare.len() == 8 && bare.split(':').filter(|part| digits(part)).count() == 3;
            let is_span = bare.len() == 2 && bare.strip_suffix('s').is_some_and(digits);
            match (is_digest, is_time, is_span) {
                (true, ..) => format!("{}{}{end}", "0".repeat(hex.len()), &bare[hex.len()..]),
                (_, true, _) => format!("00:00:00{end}"),
                (.., true) => format!("0s{end}"),
                _ => word.to_owned(),
            }
        });
        words.collect()
    }
}

/// The commands of the transcripts. They do not change the session.
const STEPS: &[&[&str]] = &[
    &["agents", "--no-cwd"],
    &["resolve", "explorer", "--agent-name", "deep", "--no-cwd"],
    &["ps"],
    &["ps", "--tree"],
    &["ps", "-o", "wide"],
    &["ps", "--columns", "thread,alias,status", "--no-headers"],
    &["ps", "-o", "name"],
    &["show", "scout"],
    &["show", "@last"],
    &["prompts", "scout"],
    &["tools", "scout"],
    &["artifacts", "list"],
    &["mail", "lead"],
    &["edges", "list"],
    &["runners"],
    &["approvals"],
    &["session", "list"],
    &["show", "nobody"],
    &["spawn", "explorr", "x", "--no-cwd"],
    &["spawn", "explorer", "Deeper.", "--parent", "scout"],
    &["wait", "lead", "--timeout", "10ms"],
    &["sesion", "list"],
];

/// Starts a session with a running agent and a completed one below it. Returns the ids.
fn tree(up: &Up) -> Vec<String> {
    let id = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let task = "Lead the search.\nhold";
    let (_, lead) = up.json(&["spawn", "orchestrator", "-m", task, "--no-cwd", "--alias", "lead"]);
    let session = id(&lead["session_id"]);
    // From here on, the lead's activity and its status, which is in the scout's prompt, no longer change.
    Watching::start(up, &["watch", &session, "-o", "json"]).until("\"holding\"");
    let scout = up.run(&[
        "spawn",
        "explorer",
        "Find the main function.",
        "--session",
        &session,
        "--parent",
        "lead",
        "--alias",
        "scout",
        "--wait",
    ]);
    assert!(scout.status.success(), "{}", stderr(&scout));
    let (_, listed) = up.json(&["ps", "--session", &session]);
    let threads = listed["sessions"][0]["threads"].as_array().unwrap();
    let threads = threads.iter().map(|thread| id(&thread["thread_id"]));
    std::iter::once(session).chain(threads).collect()
}

#[test]
fn session_output_matches_transcripts() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/transcripts");
    for (name, columns) in [("60", Some(60)), ("80", Some(80)), ("200", Some(200)), ("pipe", None)] {
        // After 10 s, the session's age has two digits, which changes the widths of the columns.
        let up = Up::start();
        let normaliser = Normaliser::new(up.home.path(), &tree(&up));
        let mut transcript = String::new();
        for arguments in STEPS {
            let (code, text) = match columns {
                Some(columns) => Screen::start(up.command(arguments), columns, ROWS).finish(),
                None => {
                    let output = up.command(arguments).output().unwrap();
                    (output.status.code(), stdout(&output) + &stderr(&output))
                }
            };
            let line = arguments.join(" ");
            let text = normaliser.apply(text.trim_end());
            let code = code.unwrap();
            transcript.push_str(&format!("$ troupe {line}\n{text}\n[{code}]\n\n"));
        }
        let path = directory.join(format!("{name}.txt"));
        if env::var_os("TROUPE_WRITE_DOCS").is_some() {
            fs::create_dir_all(&directory).unwrap();
            fs::write(&path, &transcript).unwrap();
        }
        let written = fs::read_to_string(&path).unwrap_or_default();
        let first = written
            .lines()
            .zip(transcript.lines())
            .find(|(one, other)| one != other);
        assert!(
            written == transcript,
            "{} differs from the output, first in {first:?}; write it again with TROUPE_WRITE_DOCS=1",
            path.display()
        );
    }
}
