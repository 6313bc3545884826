//! Draws the last line, the help and the choice of a role.

use ratatui::{
    layout::{Position, Rect},
    style::Modifier,
    text::Line as Styled,
};
use troupe_proto::supervisor::v1::StatusKind;
use unicode_width::UnicodeWidthStr as _;

use super::{
    super::{
        keys::{self, Command},
        state::{Mode, Picker, State, Target},
    },
    Canvas,
    detail::wrap,
    styled,
};
use crate::{
    sanitize,
    ui::{self, Line, style},
};

/// Draws the keys.
pub(super) fn draw_help(top: usize, state: &State, canvas: &mut Canvas<'_>) {
    let height = u16::try_from(keys::BINDINGS.len())
        .unwrap_or(u16::MAX)
        .saturating_add(2);
    let inside = canvas.popup(" keys ", 68, height.min(state.size.1));
    let top = top.min(keys::BINDINGS.len().saturating_sub(usize::from(inside.height)));
    for (y, binding) in (inside.y..inside.bottom()).zip(keys::BINDINGS.iter().skip(top)) {
        let line = Line::default()
            .mark(style::NAME, format!(" {:<18} ", binding.names()))
            .mark(style::PLAIN, binding.help)
            .render(usize::from(inside.width));
        canvas.line(Rect { y, height: 1, ..inside }, &line, Modifier::empty());
    }
}

/// Draws the roles to choose from, and the properties of the marked role.
pub(super) fn draw_picker(picker: &Picker, state: &State, canvas: &mut Canvas<'_>) {
    let title = format!(" role of the new agent below {} ", picker.parent_name);
    let inside = canvas.popup(&title, state.size.0.min(100), state.size.1.saturating_sub(4));
    let Some(roles) = &picker.roles else {
        canvas.line(inside, "loading", Modifier::empty());
        return;
    };
    if roles.is_empty() {
        canvas.line(inside, "this thread may spawn no role", Modifier::empty());
        return;
    }
    let height = usize::from(inside.height / 2).max(1);
    let top = (picker.place + 1).saturating_sub(height);
    let columns = usize::from(inside.width);
    for (y, (place, role)) in (inside.y..).zip(roles.iter().enumerate().skip(top).take(height)) {
        let line = Line::default()
            .mark(style::NAME, sanitize::line(&role.agent_type))
            .word(style::PLAIN, &role.description)
            .render(columns);
        let modifier = if place == picker.place {
            Modifier::REVERSED
        } else {
            Modifier::empty()
        };
        canvas.line(Rect { y, height: 1, ..inside }, &line, modifier);
    }
    let below = Rect::new(
        inside.x,
        inside.y + inside.height / 2,
        inside.width,
        inside.height - inside.height / 2,
    );
    let marked = picker.marked().map(|role| role.agent_type.as_str());
    if let Some((role, resolved)) = &picker.resolved
        && marked == Some(role.as_str())
    {
        let lines = resolved.iter().flat_map(|line| styled(line));
        let lines: Vec<Styled<'static>> = lines.flat_map(|line| wrap(&line, columns, 2)).collect();
        canvas.lines(below, &lines);
    }
}

/// Draws the last line: the line of input, the question, the notice or the keys.
pub(super) fn draw(state: &State, area: Rect, canvas: &mut Canvas<'_>) -> Option<Position> {
    let columns = usize::from(area.width);
    let line = match (&state.mode, &state.notice) {
        (Mode::Line(line), _) => {
            let label = Line::default().mark(style::NAME, format!("{}: ", sanitize::line(&line.label)));
            let label = label.render(columns / 2);
            let start = ui::plain(&label).width();
            let error = sanitize::line(&line.error);
            let room = columns.saturating_sub(start + 1);
            let scroll = line.input.visual_scroll(room);
            let shown: String = skip_columns(line.input.value(), scroll);
            let text = format!("{label}{shown}");
            canvas.line(area, &text, Modifier::empty());
            if !error.is_empty() {
                let error = style::paint(style::BAD, format!("  {error}")).to_string();
                let used = u16::try_from(start + shown.width()).unwrap_or(u16::MAX);
                let rest = Rect::new(used, area.y, area.width.saturating_sub(used), area.height);
                canvas.line(rest, &error, Modifier::empty());
            }
            let column = start + line.input.visual_cursor().saturating_sub(scroll);
            return Some(Position::new(u16::try_from(column).unwrap_or(u16::MAX), area.y));
        }
        (Mode::Confirm { question, .. }, _) => Line::default()
            .mark(style::ERROR, sanitize::line(question))
            .word(style::PLAIN, "y yes")
            .word(style::PLAIN, "any other key no"),
        (_, Some(notice)) => {
            let color = if notice.is_error { style::BAD } else { style::GOOD };
            Line::default().mark(color, sanitize::line(&notice.text))
        }
        (Mode::Pick(_), None) => Line::default().mark(style::DIM, "↑ ↓ mark  Enter choose  Esc cancel"),
        (Mode::Help(_), None) => Line::default().mark(style::DIM, "↑ ↓ scroll  another key closes the help"),
        (Mode::Browse, None) => key_line(state),
    };
    canvas.line(area, &line.render(columns), Modifier::empty());
    None
}

/// Returns the text without its first columns.
fn skip_columns(text: &str, columns: usize) -> String {
    let mut left = columns;
    text.chars()
        .skip_while(|character| {
            let width = unicode_width::UnicodeWidthChar::width(*character).unwrap_or(0);
            let skips = left > 0;
            left = left.saturating_sub(width);
            skips
        })
        .collect()
}

/// Returns the line with the keys for the selected row.
fn key_line(state: &State) -> Line {
    let of_target: &[(Command, &str)] = match state.target() {
        Target::Approval(..) => &[
            (Command::Grant, "grant"),
            (Command::Deny, "deny"),
            (Command::DenyWithReason, "deny with reason"),
            (Command::NextNeed, "next"),
        ],
        Target::Thread(_, thread) if ui::status_of(thread) == StatusKind::Shutdown => {
            &[(Command::Resume, "reopen"), (Command::Pager, "pager")]
        }
        Target::Thread(..) => &[
            (Command::Send, "send"),
            (Command::Steer, "steer"),
            (Command::Interrupt, "interrupt"),
            (Command::Close, "close"),
            (Command::Budget, "budget"),
            (Command::Spawn, "spawn"),
        ],
        Target::Session(followed) if followed.session().paused => &[
            (Command::Pause, "resume"),
            (Command::Mode, "mode"),
            (Command::Close, "close"),
        ],
        Target::Session(_) => &[
            (Command::Pause, "pause"),
            (Command::Mode, "mode"),
            (Command::Close, "close"),
            (Command::Spawn, "spawn"),
            (Command::Export, "export"),
        ],
        Target::Group(..) | Target::Runner(_) | Target::Role(_) | Target::Nothing => &[],
    };
    // The most important keys come first, because a narrow screen truncates the line.
    let first: &[(Command, &str)] = &[(Command::Help, "help"), (Command::Quit, "quit")];
    let last: &[(Command, &str)] = &[
        (Command::OtherPane, "details"),
        (Command::NextTab, "tab"),
        (Command::Filter, "filter"),
    ];
    first
        .iter()
        .chain(of_target)
        .chain(last)
        .fold(Line::default(), |line, (command, what)| {
            let key = keys::key_of(*command);
            line.mark(style::NAME, key).mark(style::DIM, format!(" {what}  "))
        })
}
