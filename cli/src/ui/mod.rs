//! The only module that writes to the terminal.
//!
//! Commands create text (with styles) or JSON values and pass them to this module. Colors are removed on a pipe, with
//! `NO_COLOR` and on a dumb terminal. Results go to standard output; all other messages go to standard error, so that
//! the result of `--output json` can be piped.

mod fields;
mod line;
mod live;
mod pager;
pub(crate) mod style;
mod table;
mod tree;
mod width;

use std::{
    collections::BTreeMap,
    fmt::Display,
    io::{self, IsTerminal as _, Write as _},
    sync::Arc,
};

use anstream::{AutoStream, ColorChoice};
use serde_json::Value;

pub(crate) use self::{
    fields::Fields,
    line::Line,
    live::Live,
    table::{Cell, Table},
    tree::{activity, cost, doing, role, status_of, tokens, tree},
    width::clip,
};
use crate::{
    error::{Error, Kind, Result},
    json::writer,
    output::{self, Format, OutputArgs},
    sanitize,
};

/// The output of a command.
#[derive(Clone, Debug)]
pub(crate) struct Ui {
    options: Arc<OutputArgs>,
}

/// The text form of a result.
pub(crate) trait Render {
    /// Renders the result as lines without a final line break.
    fn render_for(&self, ui: &Ui) -> Result<String>;
}

impl Render for String {
    fn render_for(&self, _: &Ui) -> Result<String> {
        Ok(self.clone())
    }
}

impl Render for Fields {
    fn render_for(&self, _: &Ui) -> Result<String> {
        Ok(self.render())
    }
}

impl Render for Line {
    fn render_for(&self, ui: &Ui) -> Result<String> {
        Ok(self.render(ui.columns()))
    }
}

impl<const N: usize> Render for Table<N> {
    fn render_for(&self, ui: &Ui) -> Result<String> {
        self.render_with(&ui.options, ui.columns())
    }
}

impl Ui {
    /// Creates an output with these options.
    pub(crate) fn new(options: &OutputArgs) -> Self {
        Self {
            options: Arc::new(options.clone()),
        }
    }

    /// Returns whether the output is for people.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.options.format, Format::Table | Format::Wide) && !self.options.quiet
    }

    /// Returns the output format.
    pub(crate) fn format(&self) -> &Format {
        &self.options.format
    }

    /// Returns whether the format is JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.options.format == Format::Json
    }

    /// Returns the number of columns of the terminal. Unlimited if standard output is not a terminal.
    pub(crate) fn columns(&self) -> usize {
        if self.options.no_truncate {
            usize::MAX
        } else {
            width::columns()
        }
    }

    /// Writes a result: the text for people, or the value in the requested format.
    pub(crate) fn answer<R: Render>(&self, value: impl FnOnce() -> Value, text: impl FnOnce() -> R) -> Result<()> {
        if !self.is_text() {
            return self.value(&value());
        }
        let text = text().render_for(self)?;
        if text.is_empty() { Ok(()) } else { self.line(text) }
    }

    /// Writes a result that people read, in the pager if it is longer than the terminal. Otherwise like
    /// [`Self::answer`].
    pub(crate) fn page<R: Render>(&self, value: impl FnOnce() -> Value, text: impl FnOnce() -> R) -> Result<()> {
        if !self.is_text() {
            return self.value(&value());
        }
        self.show(&text())
    }

    /// Writes a text, in the pager if it is longer than the terminal.
    fn show(&self, text: &impl Render) -> Result<()> {
        let text = text.render_for(self)?;
        if text.is_empty() || pager::show(&text) {
            return Ok(());
        }
        self.line(text)
    }

    /// Writes a table, or `nothing` to standard error if it has no rows.
    pub(crate) fn table<const N: usize>(
        &self,
        value: impl FnOnce() -> Value,
        table: impl FnOnce() -> Table<N>,
        nothing: &str,
    ) -> Result<()> {
        if !self.is_text() {
            return self.value(&value());
        }
        let table = table();
        if table.is_empty() {
            self.note(nothing);
            return Ok(());
        }
        self.show(&table)
    }

    /// Writes a value in the requested structured format.
    pub(crate) fn value(&self, value: &Value) -> Result<()> {
        match &self.options.format {
            Format::Json => self.line(writer::to_line(value)?),
            Format::Yaml => {
                let text = serde_yaml::to_string(value)
                    .map_err(|error| Error::failure(format!("cannot write YAML: {error}")))?;
                self.line(format_args!("---\n{}", sanitize::block(text.trim_end())))
            }
            Format::JsonPath(path) => path.query(value).iter().try_for_each(|found| match found {
                Value::String(text) => self.line(sanitize::block(text)),
                other => self.line(writer::to_line(other)?),
            }),
            Format::Name => output::names(value)
                .into_iter()
                .try_for_each(|(kind, id)| self.line(format_args!("{kind}/{}", sanitize::line(&id)))),
            Format::Table | Format::Wide | Format::Sarif | Format::Markdown | Format::Html => output::names(value)
                .into_iter()
                .try_for_each(|(_, id)| self.line(sanitize::line(&id))),
        }
    }

    /// Returns a frame for a progress display, if the output is for people and standard output is a terminal that
    /// supports color and cursor movement.
    pub(crate) fn live(&self) -> Option<Live> {
        let out = io::stdout();
        let is_interactive = out.is_terminal() && AutoStream::choice(&out) != ColorChoice::Never;
        (self.is_text() && is_interactive).then(Live::default)
    }

    /// Writes one or more lines of the result.
    pub(crate) fn line(&self, text: impl Display) -> Result<()> {
        let mut out = anstream::stdout().lock();
        writeln!(out, "{text}")?;
        Ok(out.flush()?)
    }

    /// Writes a progress or warning message. Write errors are ignored.
    pub(crate) fn note(&self, text: impl Display) {
        if self.is_text() {
            let _ = writeln!(anstream::stderr().lock(), "{text}");
        }
    }

    /// Writes a warning.
    pub(crate) fn warn(&self, text: &str) {
        let mark = style::paint(style::WARN, "warning:");
        self.note(format_args!("{mark} {}", sanitize::line(text)));
    }

    /// Writes that a connection was lost and from which position the command continues.
    pub(crate) fn lost(&self, why: &str, position: &str) {
        self.note(style::paint(
            style::WARN,
            format_args!("connection lost ({}); reconnecting{position}", sanitize::line(why)),
        ));
    }

    /// Writes an error with its reason and its hint.
    pub(crate) fn error(&self, error: &Error) {
        if matches!(error.kind(), Kind::ClosedPipe | Kind::Reported | Kind::ReportedRefusal) {
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

/// Formats a number of things: `1 file`, `2 files`.
pub(crate) fn count(number: impl Display + PartialEq + From<u8>, one: &str) -> String {
    let ending = if number == 1_u8.into() { "" } else { "s" };
    format!("{number} {one}{ending}")
}

/// Formats labels as `KEY=VALUE` with a separator.
pub(crate) fn labels(labels: &BTreeMap<String, String>, separator: &str) -> String {
    let labels = labels.iter().map(|(key, value)| format!("{key}={value}"));
    labels.collect::<Vec<_>>().join(separator)
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

/// Returns the text without its styles.
pub(crate) fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}
