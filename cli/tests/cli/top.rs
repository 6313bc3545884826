//! Tests of `troupe top` on a terminal, against a real pair with sample agents.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{
    screen::Screen,
    up::{Up, stdout, troupe},
};

/// Time without a change after which the screen counts as idle.
const QUIET: Duration = Duration::from_millis(2500);

/// Time for which the supervisor is down.
const OUTAGE: Duration = Duration::from_secs(4);

fn top(up: &Up, arguments: &[&str]) -> Command {
    up.command(&[&["top"], arguments].concat())
}

fn start(up: &Up) -> Screen {
    Screen::start(top(up, &[]), 120, 40)
}

fn thread(up: &Up, id: &str) -> Value {
    up.json(&["show", id]).1["thread"].clone()
}

#[test]
fn approval_is_shown_and_granted() {
    let up = Up::start();
    let mut screen = start(&up);
    screen.until("no sessions");
    let call = r#"{"tool_call":{"name":"read_file","args":{"path":"no-such-file"}}}"#;
    up.spawn(&["worker", call, "--approve-tool", "read_file"]);
    screen.until("⚑ 1 need you");
    screen.until("read_file");
    screen.press("ay", "GRANTED");
    screen.until_gone("need you");
    screen.until("✓ worker");
    screen.quit();
}

#[test]
fn keys_act_on_the_selected_thread() {
    let up = Up::start();
    let (_, id) = up.spawn(&["worker", "hold", "--alias", "scout"]);
    let mut screen = start(&up);
    screen.until("● worker  scout");
    // Ctrl+T selects the active thread, and its transcript is loaded.
    screen.press("\u{14}", "[transcript]");
    screen.until("» hold");
    screen.press("i", "interrupt worker scout?");
    screen.press("y", "1 thread interrupted");
    screen.until("‖ worker");
    screen.press("ssay: hello there\r", "sent input 2");
    screen.until("✓ worker  scout  hello there");
    screen.press("]", "[info]");
    screen.until("generation");
    for tab in ["[prompt]", "[mail]", "[files]", "[events]"] {
        screen.press("]", tab);
    }
    screen.until("completed");
    screen.press(":note % checked\r", "press any key to return to the screen");
    assert!(!screen.is_alternate(), "the command has the terminal");
    screen.press("\r", "[events]");
    assert_eq!(thread(&up, &id)["thread_note"], "checked");
    screen.press("b", &format!("budget {id} --tokens"));
    screen.press("5000\r", "press any key to return to the screen");
    screen.press("\r", "budget");
    assert_eq!(thread(&up, &id)["budget"]["tokens"], 5000);
    screen.press("p", "paused");
    screen.press("p", "resumed");
    screen.press("m", "to PLANNING?");
    screen.press("y", "planning");
    screen.press("x", "close worker scout?");
    screen.keys("y");
    screen.until_gone("✓ worker");
    screen.press("w", "■ worker");
    screen.press("\u{14}", "no thread is active");
    screen.quit();
    assert_eq!(thread(&up, &id)["status"]["kind"], "STATUS_KIND_SHUTDOWN");
}

#[test]
fn keys_move_the_selection() {
    let up = Up::start();
    let (_, lead) = up.spawn(&["orchestrator", "hold", "--alias", "lead"]);
    for alias in ["one", "two"] {
        up.spawn(&["worker", "hold", "--parent", &lead, "--alias", alias]);
    }
    let mut screen = start(&up);
    screen.until("two  holding");
    for (keys, row) in [
        ("g", "session"),
        ("j", "root"),
        ("\u{1b}[B", "lead"),
        ("k", "root"),
        ("\u{1b}[A", "session"),
        ("\u{1b}[6~", "two"),
        ("\u{1b}[5~", "session"),
        ("\u{6}", "two"),
        ("\u{2}", "session"),
        ("G", "two"),
        ("\u{1b}[H", "session"),
        ("\u{1b}[F", "two"),
        ("h", "lead"),
        ("h", "▸ ● orchestrator  lead  +2"),
        ("l", " ● orchestrator  lead  holding"),
        ("\u{1b}[D", "▸ ● orchestrator  lead  +2"),
        ("\u{1b}[C", " ● orchestrator  lead  holding"),
        (" ", "▸ ● orchestrator  lead  +2"),
        (" ", " ● orchestrator  lead  holding"),
    ] {
        screen.keys(keys);
        screen.until_selected(row);
    }
    for (keys, text) in [
        ("]", "[info]"),
        ("[", "[transcript]"),
        ("1", "needs you "),
        ("2", "sessions and threads"),
        ("f", "filter needs:me"),
        ("f", "filter s:running"),
        ("O", "ordered by tokens"),
        ("c", "copied 0"),
        ("?", "Previous row"),
    ] {
        screen.press(keys, text);
    }
    screen.keys("\u{1b}");
    screen.until_gone("Previous row");
    screen.press("\u{1b}OP", "Previous row");
    screen.keys("\u{1b}");
    screen.until_gone("Previous row");
    screen.keys("\u{1b}");
    screen.until_gone("filter s:running");
    // In the details, the keys that fold rows select a tab instead. `Enter` and `Tab` move the focus to the details,
    // `Esc` and `Tab` back to the list.
    for (enter, leave) in [("\r", "\u{1b}"), ("\t", "\t")] {
        screen.keys("gjj");
        screen.until_selected("lead");
        screen.keys(enter);
        screen.press("l", "[info]");
        screen.press("h", "[transcript]");
        screen.keys(leave);
        // While the details have the focus, the selected row is underlined.
        screen.until_selected("lead");
    }
    screen.press("o", "press any key to return to the screen");
    screen.press("\r", "sessions and threads");
    screen.quit();
}

#[test]
fn keys_deny_steer_and_reopen() {
    let up = Up::start();
    let mut screen = start(&up);
    screen.until("no sessions");
    let call = r#"{"tool_call":{"name":"read_file","args":{"path":"no-such-file"}}}"#;
    for (keys, cause) in [("an", ""), ("aenot now\r", "not now")] {
        let (_, id) = up.spawn(&["worker", call, "--approve-tool", "read_file"]);
        screen.until("⚑ 1 need you");
        screen.press(keys, "DENIED");
        screen.until_gone("need you");
        let (_, approvals) = up.json(&[
            "approvals",
            "--all",
            "--session",
            thread(&up, &id)["session_id"].as_str().unwrap(),
        ]);
        assert!(approvals.to_string().contains(cause), "{approvals}");
    }
    let (_, id) = up.spawn(&["worker", "hold", "--alias", "scout"]);
    screen.until("● worker  scout");
    screen.press("\u{14}", "[transcript]");
    screen.press("Sgo left\r", "sent input");
    screen.keys("xy");
    screen.until_gone("● worker  scout");
    screen.press("w", "■ worker  scout");
    screen.keys("/a:scout\r");
    screen.keys("G");
    screen.until_selected("■ worker  scout");
    screen.keys("R");
    screen.until_gone("■ worker  scout");
    screen.quit();
    assert_ne!(thread(&up, &id)["status"]["kind"], "STATUS_KIND_SHUTDOWN");
}

#[test]
fn agents_are_spawned_from_the_screen() {
    let up = Up::start();
    up.spawn(&["orchestrator", "hold", "--alias", "lead"]);
    let mut screen = start(&up);
    screen.until("● orchestrator  lead");
    screen.press("\u{14}", "[transcript]");
    screen.press("N", "role of the new agent below orchestrator lead");
    screen.until("ORIGIN");
    screen.press("\r", "task of");
    screen.press("say: I am new\r", "I am new");
    screen.press("E", "wrote troupe-");
    screen.press("3", "local  ATTACHED");
    screen.press("4", "bug-hunter");
    screen.quit();
}

#[test]
fn terminal_is_restored() {
    let up = Up::start();
    for name in ["q", "Ctrl-C", "SIGTERM", "SIGHUP"] {
        let mut screen = start(&up);
        screen.until("no sessions");
        assert!(screen.is_alternate() && !screen.has_cursor(), "{name}");
        match name {
            "q" => screen.keys("q"),
            "Ctrl-C" => screen.keys("\u{3}"),
            "SIGTERM" => screen.signal(Signal::TERM),
            _ => screen.signal(Signal::HUP),
        }
        assert_eq!(screen.until_end(), Some(0), "{name}");
        assert!(!screen.is_alternate() && screen.has_cursor(), "{name}");
    }
}

#[test]
fn suspended_screen_continues() {
    let up = Up::start();
    for suspend in ["key", "signal"] {
        let mut screen = start(&up);
        screen.until("no sessions");
        match suspend {
            "key" => screen.keys("\u{1a}"),
            _ => screen.signal(Signal::TSTP),
        }
        screen.until_stopped();
        screen.read_for(Duration::from_millis(10));
        assert!(!screen.is_alternate() && screen.has_cursor(), "{suspend}");
        screen.signal(Signal::CONT);
        screen.until("no sessions");
        assert!(screen.is_alternate());
        screen.quit();
    }
}

#[test]
fn idle_screen_writes_nothing() {
    let up = Up::start();
    up.spawn(&["worker", "say: done", "--wait"]);
    let (_, sessions) = up.json(&["ps"]);
    let session = sessions["sessions"][0]["session_id"].as_str().unwrap().to_owned();
    let mut screen = start(&up);
    screen.until("✓ worker");
    screen.press("h", "▸ session");
    up.json(&["close", "--session", &session, "--wait"]);
    screen.until("no sessions");
    while !screen.read_for(Duration::from_millis(500)).is_empty() {}
    let written = screen.read_for(QUIET);
    assert_eq!(written, b"", "{:?}", String::from_utf8_lossy(&written));
}

#[test]
fn resized_screen_is_drawn_completely() {
    let up = Up::start();
    up.spawn(&["worker", "hold", "--alias", "scout"]);
    let mut screen = start(&up);
    screen.until("scout  holding");
    for step in 0..60 {
        screen.resize(20 + step * 2, 5 + step / 2);
    }
    // Only the last size has so many rows, so an input line in the last row shows that this size was drawn.
    let (columns, rows) = (160, 50);
    screen.resize(columns, rows);
    let mut others_after = |keys: &str| {
        screen.keys(keys);
        while !screen.row(rows - 1).contains("filter: scout") {
            screen.until("filter: scout");
            screen.read_for(Duration::from_millis(10));
        }
        (0..rows - 1).map(|row| screen.row(row)).collect::<Vec<_>>()
    };
    let shown = others_after("/scout");
    assert_eq!(shown, others_after("\r\u{c}/"));
    screen.keys("\r");
    screen.quit();
}

#[test]
fn restarted_supervisor_is_followed_again() {
    let mut up = Up::start();
    up.spawn(&["worker", "hold", "--alias", "scout"]);
    let mut screen = start(&up);
    screen.until("● worker  scout");
    up.kill();
    screen.until("reconnecting, as of");
    // During the outage, several attempts to connect fail, with growing delays.
    screen.read_for(OUTAGE);
    up.restart();
    screen.until_gone("reconnecting");
    screen.until("✗ worker  scout");
    up.spawn(&["explorer", "hold", "--alias", "second"]);
    screen.until("second");
    screen.quit();
}

#[test]
fn screen_is_printed_without_a_terminal() {
    let up = Up::start();
    up.spawn(&["worker", "say: done", "--alias", "scout", "--wait"]);
    for arguments in [&[][..], &["--once"], &["--filter", "a:scout"]] {
        let text = stdout(&top(&up, arguments).output().unwrap());
        assert!(text.contains("✓ worker  scout") && !text.contains('\u{1b}'), "{text}");
    }
    let mut dumb = top(&up, &[]);
    dumb.env("TERM", "dumb");
    let screen = Screen::start(dumb, 80, 24);
    let (code, text) = screen.finish();
    assert_eq!(code, Some(0));
    assert!(text.contains("scout"), "{text}");
    let (code, value) = up.json(&["top"]);
    assert_eq!(
        (code, &value["sessions"][0]["threads"][1]["alias"]),
        (Some(0), &"scout".into())
    );
    let refused = top(&up, &["--filter", "x:y"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn screen_ends_with_its_terminal() {
    let up = Up::start();
    let mut screen = start(&up);
    screen.until("no sessions");
    // Without a controlling terminal there is no SIGHUP.
    assert_eq!(screen.hang_up(), Some(0));
}

#[test]
fn demo_opens_the_screen() {
    let home = tempfile::tempdir().unwrap();
    let mut command = troupe(home.path());
    command.arg("demo").env("TROUPE_TOKEN", "of-another-pair");
    let mut screen = Screen::start(command, 120, 40);
    screen.until("sessions and threads");
    assert!(screen.is_alternate());
    screen.until("reviewer: strict");
    screen.press(":ps\r", "SINCE");
    screen.until("press any key to return to the screen");
    screen.press("\r", "sessions and threads");
    screen.press("q", "The root is closed");
    let (code, text) = screen.finish();
    assert_eq!(code, Some(0), "{text}");
}

/// A separate tmux server, which ends with its test.
struct Tmux(std::path::PathBuf);

impl Tmux {
    #[track_caller]
    fn run(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux").arg("-S").arg(&self.0).args(arguments).output();
        let output = output.expect("tmux is installed");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        stdout(&output)
    }

    #[track_caller]
    fn until(&self, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let shown = self.run(&["capture-pane", "-p"]);
            if shown.contains(text) {
                return;
            }
            assert!(Instant::now() < deadline, "{text:?} did not appear:\n{shown}");
        }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(&self.0).arg("kill-server").output();
    }
}

#[test]
fn screen_works_in_tmux() {
    let up = Up::start();
    up.spawn(&["worker", "hold", "--alias", "scout"]);
    let tmux = Tmux(up.home.path().join("tmux"));
    let command = format!(
        "HOME={} {} top --supervisor {} --registry {}; echo the screen ended",
        up.home.path().display(),
        env!("CARGO_BIN_EXE_troupe"),
        up.supervisor(),
        up.registry()
    );
    tmux.run(&[
        "-f",
        "/dev/null",
        "new-session",
        "-d",
        "-x",
        "100",
        "-y",
        "30",
        &format!("sh -c '{command}; cat'"),
    ]);
    tmux.until("● worker  scout  holding");
    tmux.run(&["send-keys", "C-t"]);
    tmux.until("» hold");
    tmux.run(&["resize-window", "-x", "80", "-y", "24"]);
    tmux.until("────────");
    tmux.run(&["send-keys", "q"]);
    tmux.until("the screen ended");
}
