//! The only place that writes to the terminal.
//!
//! Commands build text (with styles) or JSON values and hand them over. Colour is stripped where it is not wanted: on a
//! pipe, with `NO_COLOR`, on a dumb terminal. Answers go to standard output; everything about the way there goes to
//! standard error, so that `--output json` can be piped.

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
    args::Output,
    error::{Error, Kind, Result},
    json::writer,
};

/// Where a command says what it has to say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ui {
    output: Output,
}

impl Ui {
    /// A terminal that speaks this format.
    pub(crate) const fn new(output: Output) -> Self {
        Self { output }
    }

    /// Whether answers are JSON.
    pub(crate) const fn is_json(self) -> bool {
        matches!(self.output, Output::Json)
    }

    /// An answer: the value as one line of JSON, or what `text` makes of it.
    pub(crate) fn answer(self, value: impl FnOnce() -> Value, text: impl FnOnce() -> String) -> Result<()> {
        if self.is_json() {
            self.json(&value())
        } else {
            self.line(text())
        }
    }

    /// One JSON value on a line of its own.
    pub(crate) fn json(self, value: &Value) -> Result<()> {
        self.line(writer::to_line(value)?)
    }

    /// A line, or several, of the answer.
    pub(crate) fn line(self, text: impl Display) -> Result<()> {
        let mut out = anstream::stdout().lock();
        writeln!(out, "{text}")?;
        Ok(out.flush()?)
    }

    /// A line about the way to the answer. It is a courtesy, so nothing fails if it cannot be written.
    pub(crate) fn note(self, text: impl Display) {
        if matches!(self.output, Output::Text) {
            let _ = writeln!(anstream::stderr().lock(), "{text}");
        }
    }

    /// An error with its reason and what to do.
    pub(crate) fn error(self, error: &Error) {
        if matches!(error.kind(), Kind::ClosedPipe | Kind::Answered) {
            return;
        }
        let mut err = anstream::stderr().lock();
        // There is nowhere left to report a failure to.
        let _ = if self.is_json() {
            writer::to_line(&error.to_json()).and_then(|line| Ok(writeln!(err, "{line}")?))
        } else {
            writeln!(err, "{}", error_text(error)).map_err(Error::from)
        };
    }
}

/// Whether standard output is a terminal that takes colour and cursor movement.
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

/// The text without its styles, for tests that compare what a person reads.
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
