//! Draws the state. Pure: the same state gives the same frame.

mod detail;
mod footer;
mod list;

use ansi_to_tui::IntoText as _;
use anstyle::Style as Ansi;
use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
    style::{Color, Modifier, Style},
    text::Line as Styled,
};
use troupe_proto::supervisor::v1::Usage;
use unicode_width::UnicodeWidthStr as _;

use self::list::{list_head, row_line};
use super::{
    rate::sparkline,
    state::{DetailExtent, Mode, State},
};
use crate::{
    sanitize, time,
    ui::{self, Line, style},
};

/// The colors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Theme {
    /// For a dark background.
    #[default]
    Dark,
    /// For a light background.
    Light,
    /// No colors.
    None,
}

impl Theme {
    /// Returns a style in the colors of the theme.
    fn apply(self, style: Style) -> Style {
        match (self, style.fg) {
            (Self::Dark, _) | (Self::Light, None) => style,
            (Self::None, _) => Style {
                fg: None,
                bg: None,
                ..style
            },
            // Yellow, cyan and green are hard to read on white.
            (Self::Light, Some(Color::Yellow)) => style.fg(Color::Indexed(130)),
            (Self::Light, Some(Color::Cyan)) => style.fg(Color::Indexed(24)),
            (Self::Light, Some(Color::Green)) => style.fg(Color::Indexed(22)),
            (Self::Light, Some(_)) => style,
        }
    }
}

/// The properties of a drawn frame.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Drawn {
    /// The position of the cursor, if it is shown.
    pub(super) cursor: Option<Position>,
    /// The extent of the details.
    pub(super) detail: DetailExtent,
}

/// Draws the state.
pub(super) fn draw(state: &State, context: &str, theme: Theme, buffer: &mut Buffer) -> Drawn {
    let panes = state.panes();
    let mut extent = DetailExtent::default();
    let mut canvas = Canvas { buffer, theme };
    canvas.line(
        panes.header,
        &header(state, context, usize::from(panes.header.width)),
        Modifier::empty(),
    );
    if let Some(list) = panes.list {
        list::draw(state, list, &mut canvas);
    }
    if let Some(area) = panes.detail {
        if panes.list.is_some() {
            detail::draw_border(state, area, &mut canvas);
        }
        extent = detail::draw(state, area, &mut canvas);
    }
    match &state.mode {
        Mode::Help(top) => footer::draw_help(*top, state, &mut canvas),
        Mode::Pick(picker) => footer::draw_picker(picker, state, &mut canvas),
        Mode::Browse | Mode::Line(_) | Mode::Confirm { .. } => {}
    }
    Drawn {
        cursor: footer::draw(state, panes.footer, &mut canvas),
        detail: extent,
    }
}

/// Returns the header and all rows as text.
pub(super) fn printed(state: &State, context: &str, columns: usize) -> String {
    let rows = state.rows.iter().map(|row| row_line(state, row, columns));
    let empty_text = state.rows.is_empty().then(|| list::empty_text(state).to_owned());
    let lines: Vec<String> = [header(state, context, columns), list_head(state, columns)]
        .into_iter()
        .chain(rows)
        .chain(empty_text)
        .collect();
    lines.join("\n")
}

/// A buffer with a theme.
struct Canvas<'a> {
    buffer: &'a mut Buffer,
    theme: Theme,
}

impl Canvas<'_> {
    /// Draws a text with escape sequences of styles in the first line of an area.
    fn line(&mut self, area: Rect, text: &str, modifier: Modifier) {
        for line in styled(text).into_iter().take(1) {
            self.styled(area, &line, modifier);
        }
    }

    fn styled(&mut self, area: Rect, line: &Styled<'_>, modifier: Modifier) {
        let area = area.intersection(self.buffer.area);
        if area.is_empty() {
            return;
        }
        if !modifier.is_empty() {
            let row = Rect { height: 1, ..area };
            self.buffer.set_style(row, Style::new().add_modifier(modifier));
        }
        let mut x = area.x;
        for span in &line.spans {
            // The whole selected row has one style.
            let style = if modifier.contains(Modifier::REVERSED) {
                Style::new()
            } else {
                self.theme.apply(line.style.patch(span.style))
            };
            let room = usize::from(area.right().saturating_sub(x));
            (x, _) = self
                .buffer
                .set_stringn(x, area.y, &span.content, room, style.add_modifier(modifier));
        }
    }

    fn lines<'a>(&mut self, area: Rect, lines: impl IntoIterator<Item = &'a Styled<'a>>) {
        for (y, line) in (area.y..area.bottom()).zip(lines) {
            self.styled(Rect { y, height: 1, ..area }, line, Modifier::empty());
        }
    }

    /// Draws an empty box with a title. Returns its inside.
    fn popup(&mut self, title: &str, width: u16, height: u16) -> Rect {
        use ratatui::widgets::{Block, BorderType, Clear, Widget as _};
        let screen = self.buffer.area;
        let (width, height) = (width.min(screen.width), height.min(screen.height));
        let area = Rect::new((screen.width - width) / 2, (screen.height - height) / 2, width, height);
        Clear.render(area, self.buffer);
        let block = Block::bordered()
            .border_type(BorderType::Rounded)
            .title(title.to_owned());
        let inside = block.inner(area);
        block.render(area, self.buffer);
        inside
    }
}

/// Parses text with escape sequences of styles. Agents' texts are sanitized, so they contain no such sequence.
fn styled(text: &str) -> Vec<Styled<'static>> {
    text.into_text()
        .map_or_else(|_| vec![Styled::raw(ui::plain(text))], |text| text.lines)
}

/// Returns the line above the list. On a narrow screen, the least important parts are left out.
fn header(state: &State, context: &str, columns: usize) -> String {
    let totals = state.model.totals();
    let mut parts: Vec<(u8, Ansi, String)> = vec![
        (0, style::HEADING, "troupe top".to_owned()),
        (6, style::NAME, sanitize::line(context)),
    ];
    if let Some(lost) = state.model.lost() {
        let at = time::clock(Some(&lost.since.into()));
        parts.push((1, style::ERROR, format!("reconnecting, as of {at}")));
        parts.push((8, style::DIM, sanitize::line(&lost.why)));
    } else if !state.model.is_synced() {
        parts.push((1, style::WARN, "loading".to_owned()));
    }
    if state.needs > 0 {
        parts.push((1, style::WARN, format!("⚑ {} need you", state.needs)));
    }
    parts.push((5, style::PLAIN, ui::count(totals.sessions, "session")));
    parts.push((4, style::PLAIN, ui::count(totals.threads, "thread")));
    parts.push((2, style::PLAIN, format!("{}/{} slots", totals.running, totals.slots)));
    for (count, what) in [
        (totals.queued, "queued"),
        (totals.approvals, "to approve"),
        (totals.stalled, "stalled"),
    ] {
        if count > 0 {
            parts.push((3, style::PLAIN, format!("{count} {what}")));
        }
    }
    if totals.tokens > 0 {
        let rate = state.model.tokens();
        let growth = rate.growth_at(state.now);
        let newest = growth.get(growth.len() - 8..).unwrap_or_default();
        parts.push((3, style::PLAIN, format!("{} tok", count(totals.tokens))));
        parts.push((7, style::NAME, sparkline(newest)));
        parts.push((4, style::DIM, format!("{}/min", count(rate.per_minute(state.now)))));
    }
    if totals.cost_micros > 0 {
        let per_hour = state.model.cost().per_hour(state.now);
        parts.push((3, style::PLAIN, format!("cost {}", money(totals.cost_micros))));
        parts.push((5, style::DIM, format!("{}/h", money(per_hour))));
    }
    let width = |parts: &[(u8, Ansi, String)]| parts.iter().map(|(_, _, text)| text.width() + 2).sum::<usize>();
    while width(&parts) > columns + 2
        && let Some((least, _)) = parts
            .iter()
            .enumerate()
            .max_by_key(|(_, (rank, ..))| *rank)
            .filter(|(_, (rank, ..))| *rank > 0)
    {
        parts.remove(least);
    }
    let line = parts
        .iter()
        .fold(Line::default(), |line, (_, color, text)| line.word(*color, text));
    line.render(columns)
}

/// Formats a number of tokens.
fn count(tokens: u64) -> String {
    let text = ui::tokens(&Usage {
        input_tokens: tokens,
        ..Usage::default()
    });
    if text.is_empty() { "0".to_owned() } else { text }
}

fn money(micros: u64) -> String {
    ui::cost(&Usage {
        input_tokens: 1,
        cost_micros: micros,
        ..Usage::default()
    })
}
