//! The pager, which shows a text that is longer than the terminal.

use std::{
    borrow::Cow,
    env,
    io::{self, IsTerminal as _, Write as _},
    process::{Command, Stdio},
};

use anstream::{AutoStream, ColorChoice, adapter::strip_str};
use tokio::signal::unix::{SignalKind, signal};

use super::width;

/// The environment variable with the pager of this program. It takes precedence over `PAGER`.
const OWN: &str = "TROUPE_PAGER";
/// The pager without a setting.
const DEFAULT: &str = "less";
/// Options for `less`: end if the text fits the screen, keep colors, and leave the text on the screen. A value that the
/// user has set applies instead.
const LESS: &str = "FRX";

/// Exit codes of a shell that cannot find the program, or cannot execute it.
const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;

/// Shows a text in the pager, if standard input and output are terminals and the text does not fit the terminal.
/// Returns whether the text was shown.
pub(super) fn show(text: &str) -> bool {
    let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    if !is_terminal || text.lines().count() < width::rows() {
        return false;
    }
    let pager = [OWN, "PAGER"].into_iter().find_map(|name| env::var(name).ok());
    let pager = pager.unwrap_or_else(|| DEFAULT.to_owned());
    if pager.trim().is_empty() || pager.trim() == "cat" {
        return false;
    }
    let text = match AutoStream::choice(&io::stdout()) {
        ColorChoice::Never => Cow::Owned(strip_str(text).to_string()),
        _ => Cow::Borrowed(text),
    };
    run(&pager, &text).is_ok()
}

fn run(pager: &str, text: &str) -> io::Result<()> {
    // Only the pager handles Ctrl-C. If this process ended first, pager and shell would compete for the terminal.
    let _ignored = signal(SignalKind::interrupt())?;
    let mut command = Command::new("sh");
    command.args(["-c", pager]).stdin(Stdio::piped());
    if env::var_os("LESS").is_none() {
        command.env("LESS", LESS);
    }
    let mut child = command.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // A failure means that the user left the pager before the end of the text.
        let _ = writeln!(input, "{text}");
    }
    match child.wait()?.code() {
        Some(NOT_FOUND | NOT_EXECUTABLE) => Err(io::Error::other("the pager cannot be started")),
        Some(_) | None => Ok(()),
    }
}
