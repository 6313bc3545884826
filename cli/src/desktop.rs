//! Notifications outside of the command's output: on the desktop or by the terminal.
//!
//! Programs are started with arguments, never through a shell. The text may come from a model, so it is sanitized
//! first.

use std::{
    env,
    ffi::OsString,
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use svc_kit::paths;
use tokio::{process::Command, time::timeout};

use crate::{
    sanitize,
    ui::{Ui, style},
};

/// Maximum time for a program to deliver a notification to the desktop.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of a title, in characters.
const MAX_TITLE: usize = 100;
/// Maximum length of a text, in characters.
const MAX_TEXT: usize = 400;
/// The script for `osascript`. The title and the text are its arguments.
const SCRIPT: &[&str] = &[
    "-e",
    "on run argv",
    "-e",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "-e",
    "end run",
];

/// The urgency of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// The notification is informational.
    Normal,
    /// A person has to act.
    Critical,
}

/// The destination of notifications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Alert {
    /// The desktop, through `notify-send`, which uses `org.freedesktop.Notifications` on D-Bus.
    NotifySend(PathBuf),
    /// The desktop of macOS, through `osascript`.
    AppleScript(PathBuf),
    /// The terminal, through OSC 9 and the bell.
    Terminal,
}

impl Alert {
    /// Returns the desktop of this machine, or the terminal if `PATH` has no program for the desktop.
    pub(crate) fn desktop() -> Self {
        let path = env::var_os("PATH").unwrap_or_default();
        if cfg!(target_os = "macos") {
            return paths::program_in(&path, Path::new("osascript")).map_or(Self::Terminal, Self::AppleScript);
        }
        paths::program_in(&path, Path::new("notify-send")).map_or(Self::Terminal, Self::NotifySend)
    }

    /// Raises a notification. If the desktop fails, this and all later notifications go to the terminal.
    pub(crate) async fn raise(&mut self, urgency: Urgency, title: &str, text: &str, ui: &Ui) {
        let (title, text) = (short(title, MAX_TITLE), short(text, MAX_TEXT));
        let started = match self {
            Self::NotifySend(program) => Some((program.clone(), notify_send(urgency, &title, &text))),
            Self::AppleScript(program) => Some((program.clone(), apple_script(&title, &text))),
            Self::Terminal => None,
        };
        if let Some((program, arguments)) = started {
            let Err(why) = run(&program, arguments).await else {
                return;
            };
            ui.note(format!(
                "{} {} {why}; notifications are sent to the terminal instead",
                style::paint(style::WARN, "no desktop:"),
                program.display()
            ));
            *self = Self::Terminal;
        }
        // Control sequences do not belong in a file that captures standard error.
        let mut err = io::stderr();
        if err.is_terminal() {
            let _ = write_to_terminal(&mut err, &title, &text);
        }
    }
}

/// Notifies through the terminal, even if standard error is not a terminal.
pub(crate) fn ring(title: &str, text: &str) {
    // The notification was also written to standard output, so it is not lost.
    let _ = write_to_terminal(&mut io::stderr(), &short(title, MAX_TITLE), &short(text, MAX_TEXT));
}

/// Writes OSC 9, which supporting terminals display as a notification, and the bell. The title begins with a letter,
/// because OSC 9 followed by a number is a different command.
fn write_to_terminal(out: &mut impl io::Write, title: &str, text: &str) -> io::Result<()> {
    write!(out, "\u{1b}]9;{title}: {text}\u{7}\u{7}")?;
    out.flush()
}

/// Returns the text on one line, without control characters, truncated to `max` characters.
fn short(text: &str, max: usize) -> String {
    let line = sanitize::line(text);
    if line.chars().count() <= max {
        return line;
    }
    let mut cut: String = line.chars().take(max.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

fn notify_send(urgency: Urgency, title: &str, text: &str) -> Vec<OsString> {
    let urgency = match urgency {
        Urgency::Normal => "--urgency=normal",
        Urgency::Critical => "--urgency=critical",
    };
    // A desktop may interpret the body as markup, and `notify-send` interprets backslashes in it.
    let body = text
        .replace('\\', "\\\\")
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    ["--app-name=troupe", urgency, "--", title, &body]
        .map(OsString::from)
        .into()
}

fn apple_script(title: &str, text: &str) -> Vec<OsString> {
    SCRIPT
        .iter()
        .copied()
        .chain([title, text])
        .map(OsString::from)
        .collect()
}

async fn run(program: &Path, arguments: Vec<OsString>) -> Result<(), String> {
    let ended = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .status();
    match timeout(TIMEOUT, ended).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("failed ({status})")),
        Ok(Err(error)) => Err(format!("cannot be run: {error}")),
        Err(_) => Err(format!("did not end within {TIMEOUT:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_escapes_are_neutralized() {
        let arguments = notify_send(Urgency::Critical, "troupe", r"<b>a & b</b> \n");
        assert_eq!(
            arguments,
            [
                "--app-name=troupe",
                "--urgency=critical",
                "--",
                "troupe",
                r"&lt;b&gt;a &amp; b&lt;/b&gt; \\n"
            ]
        );
        assert_eq!(apple_script("t", "-e x").last(), Some(&OsString::from("-e x")));
    }

    #[test]
    fn terminal_text_has_no_control_sequences() {
        let mut out = Vec::new();
        let text = short("done\u{7}\u{1b}]52;c;eA==\u{7}\nnext", MAX_TEXT);
        assert!(write_to_terminal(&mut out, "troupe stalled", &text).is_ok());
        assert_eq!(out, b"\x1b]9;troupe stalled: done]52;c;eA== next\x07\x07");
    }

    #[test]
    fn long_text_is_truncated() {
        assert_eq!(short("abcdef", 4), "abc…");
        assert_eq!(short("abcd", 4), "abcd");
    }
}
