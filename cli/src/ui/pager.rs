//! The pager, which shows a text that is longer than the terminal.

use std::{
    borrow::Cow,
    env,
    io::{self, IsTerminal as _, Write as _},
    process::{Command, Stdio},
};

use anstream::{AutoStream, ColorChoice, adapter::strip_str};

use super::width;

/// Names the pager of this program. It takes precedence over `PAGER`.
const OWN: &str = "TROUPE_PAGER";
/// The pager without a setting.
const DEFAULT: &str = "less";
/// Options for `less`: end if the text fits the screen, keep colors, and leave the text on the screen. A value that the
/// user has set applies instead.
const LESS: &str = "FRX";

/// Shows a text in the pager, if standard input and output are terminals and the text has more lines than the terminal.
/// Returns whether it was shown.
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
    page(&pager, &text).is_ok()
}

fn page(pager: &str, text: &str) -> io::Result<()> {
    let mut command = Command::new("sh");
    // `exec` in the shell fails before the pager reads anything if the program does not exist.
    command.args(["-c", &format!("command -v {pager} >/dev/null && exec {pager}")]);
    if env::var_os("LESS").is_none() {
        command.env("LESS", LESS);
    }
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    let written = child.stdin.take().map_or(Ok(()), |mut input| writeln!(input, "{text}"));
    let status = child.wait()?;
    match written {
        // The user left the pager before the end of the text.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe && status.success() => Ok(()),
        Err(error) => Err(error),
        Ok(()) if status.success() => Ok(()),
        Ok(()) => Err(io::Error::other("the pager failed")),
    }
}
