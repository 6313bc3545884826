//! The palette: which colour means what, in one place. Streams that want no colour strip it.

use std::fmt;

use anstyle::{AnsiColor, Style};
use troupe_proto::supervisor::v1::StatusKind;

/// Plain text.
pub(crate) const PLAIN: Style = Style::new();
/// What a table's column is called, what a section is about.
pub(crate) const HEADING: Style = Style::new().bold();
/// What is there but seldom looked at.
pub(crate) const DIM: Style = Style::new().dimmed();
/// Names: roles, commands.
pub(crate) const NAME: Style = AnsiColor::Cyan.on_default();
/// Something works.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// Something is under way.
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
/// Something does not work.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
/// The first word of an error.
pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();

/// The colour of a status.
pub(crate) const fn of_status(kind: StatusKind) -> Style {
    match kind {
        StatusKind::Unspecified => PLAIN,
        StatusKind::Queued | StatusKind::AwaitingApproval | StatusKind::PendingInit | StatusKind::Interrupted => WARN,
        StatusKind::Running => AnsiColor::Blue.on_default().bold(),
        StatusKind::Completed => GOOD,
        StatusKind::Errored => BAD,
        StatusKind::Shutdown => DIM,
    }
}

/// The mark of a status, one column wide.
pub(crate) const fn mark_of_status(kind: StatusKind) -> &'static str {
    match kind {
        StatusKind::Unspecified => "?",
        StatusKind::Queued => "…",
        StatusKind::AwaitingApproval => "?",
        StatusKind::PendingInit => "○",
        StatusKind::Running => "●",
        StatusKind::Completed => "✓",
        StatusKind::Errored => "✗",
        StatusKind::Interrupted => "‖",
        StatusKind::Shutdown => "■",
    }
}

/// A text in a style, for format strings. The text is sanitized by whoever got it from a model.
pub(crate) fn paint<T: fmt::Display>(style: Style, text: T) -> Painted<T> {
    Painted { style, text }
}

/// See [`paint`].
pub(crate) struct Painted<T> {
    style: Style,
    text: T,
}

impl<T: fmt::Display> fmt::Display for Painted<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{}{}", self.style.render(), self.text, self.style.render_reset())
    }
}
