//! The palette, which assigns a meaning to each color. Streams without color support remove the colors.

use std::fmt;

use anstyle::{AnsiColor, Style};
use troupe_proto::supervisor::v1::{Session, StatusKind};

/// Plain text.
pub(crate) const PLAIN: Style = Style::new();
/// Column headings and section titles.
pub(crate) const HEADING: Style = Style::new().bold();
/// Secondary information.
pub(crate) const DIM: Style = Style::new().dimmed();
/// Names: roles, commands.
pub(crate) const NAME: Style = AnsiColor::Cyan.on_default();
/// Success.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// Work in progress.
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
/// Failure.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
/// The prefix of an error message.
pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();

/// Returns the color of a status.
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

/// Returns the mark of a status, one column wide.
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

/// Returns the state of a session with its color.
pub(crate) const fn session_state(session: &Session) -> (Style, &'static str) {
    match (session.closed, session.paused) {
        (true, _) => (DIM, "closed"),
        (false, true) => (WARN, "paused"),
        (false, false) => (GOOD, "open"),
    }
}

/// Applies a style to a text, for format strings. The caller has to sanitize model-written text.
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
