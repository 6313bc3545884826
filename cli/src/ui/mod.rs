//! The only module that writes to the terminal.
//!
//! Commands create text (with styles) or JSON values and pass them to this module. Colors are removed on a pipe, with
//! `NO_COLOR` and on a dumb terminal. Results go to standard output; all other messages go to standard error, so that
//! the result of `--output json` can be piped.

mod line;
mod live;
pub(crate) mod style;
mod table;
mod tree;
mod width;

use std::{
    fmt::Display,
    io::{self, IsTerminal as _, Write as _},
};

use anstream::{AutoStream, ColorChoice};
use serde_json::Value;

pub(crate) use self::{
    line::Line,
    live::Live,
    table::{Cell, Table},
    tree::{doing, role, status_of, tree},
    width::columns,
};
use crate::{
    error::{Error, Kind, Result},
    global::Output,
    json::writer,
};

/// The output of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ui {
    output: Output,
}

impl Ui {
    /// Creates an output with this format.
    pub(crate) const fn new(output: Output) -> Self {
        Self { output }
    }

    /// Returns whether the format is JSON.
    pub(crate) const fn is_json(self) -> bool {
        matches!(self.output, Output::Json)
    }

    /// Writes a result: the value as one line of JSON, or the text.
    pub(crate) fn answer(self, value: impl FnOnce() -> Value, text: impl FnOnce() -> String) -> Result<()> {
        if self.is_json() {
            self.json(&value())
        } else {
            self.line(text())
        }
    }

    /// Writes a JSON value on one line.
    pub(crate) fn json(self, value: &Value) -> Result<()> {
        self.line(writer::to_line(value)?)
    }

    /// Writes one or more lines of the result.
    pub(crate) fn line(self, text: impl Display) -> Result<()> {
        let mut out = anstream::stdout().lock();
        writeln!(out, "{text}")?;
        Ok(out.flush()?)
    }

    /// Writes a progress or warning message. Write errors are ignored.
    pub(crate) fn note(self, text: impl Display) {
        if matches!(self.output, Output::Text) {
            let _ = writeln!(anstream::stderr().lock(), "{text}");
        }
    }

    /// Writes an error with its reason and its hint.
    pub(crate) fn error(self, error: &Error) {
        if matches!(error.kind(), Kind::ClosedPipe | Kind::Answered) {
            return;
        }
        let mut err = anstream::stderr().lock();
        // There is no other output on which to report a failure.
        let _ = if self.is_json() {
            writer::to_line(&error.to_json()).and_then(|line| Ok(writeln!(err, "{line}")?))
        } else {
            writeln!(err, "{}", error_text(error)).map_err(Error::from)
        };
    }
}

/// Returns whether standard output is a terminal that supports color and cursor movement.
pub(crate) fn is_interactive() -> bool {
    let out = io::stdout();
    out.is_terminal() && AutoStream::choice(&out) != ColorChoice::Never
}

fn error_text(error: &Error) -> String {
    let mut text = format!("{} {}", style::paint(style::ERROR, "error:"), error.message());
    if let Some(reason) = error.reason() {
        text.push_str(&format!(" {}", style::paint(style::DIM, format_args!("({reason})"))));
    }
    if let Some(hint) = error.remedy() {
        text.push_str(&format!("\n{} {hint}", style::paint(style::NAME, " hint:")));
    }
    text
}

/// Returns the text without its styles, for tests.
#[cfg(test)]
pub(crate) fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_why_and_what_to_do() {
        let error = Error::failure("it broke").hint("mend it");
        assert_eq!(plain(&error_text(&error)), "error: it broke\n hint: mend it");
    }
}
