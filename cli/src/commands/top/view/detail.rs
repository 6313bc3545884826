//! Draws the details of the selected row.

use ratatui::{
    layout::Rect,
    style::{Modifier, Style},
    text::{Line as Styled, Span, StyledGrapheme},
};
use troupe_proto::supervisor::v1::{ConditionKind, StatusKind};
use unicode_width::UnicodeWidthStr as _;

use super::{
    super::{
        detail::{INDENT, Tab},
        layout::Focus,
        rate::sparkline,
        state::{self, DetailExtent, State, Target},
    },
    Canvas,
    list::elapsed,
    styled,
};
use crate::{
    commands::{agents, batch, show},
    hints, ids, names,
    ui::{self, Line, style},
};

/// Draws the line between the list and the details.
pub(super) fn draw_border(state: &State, detail: Rect, canvas: &mut Canvas<'_>) {
    let color = if state.focus == Focus::Detail {
        style::NAME
    } else {
        style::DIM
    };
    if detail.x > 0 {
        let line = style::paint(color, "│").to_string();
        for y in detail.y..detail.bottom() {
            canvas.line(Rect::new(detail.x - 1, y, 1, 1), &line, Modifier::empty());
        }
    } else {
        let line = style::paint(color, "─".repeat(usize::from(detail.width))).to_string();
        canvas.line(Rect::new(0, detail.y - 1, detail.width, 1), &line, Modifier::empty());
    }
}

/// Draws the details of the selected row. Returns their extent.
pub(super) fn draw(state: &State, area: Rect, canvas: &mut Canvas<'_>) -> DetailExtent {
    let head = head(state, usize::from(area.width));
    for (y, line) in (area.y..area.bottom()).zip(&head) {
        canvas.line(Rect { y, height: 1, ..area }, line, Modifier::empty());
    }
    let used = u16::try_from(head.len()).unwrap_or(u16::MAX).min(area.height);
    let body = Rect::new(area.x, area.y + used, area.width, area.height - used);
    let lines = lines(state, usize::from(area.width));
    let extent = DetailExtent {
        lines: lines.len(),
        height: usize::from(body.height),
    };
    canvas.lines(body, lines.iter().skip(state.detail_top(extent)));
    extent
}

/// Returns the lines above the details: the thread, its conditions with their remedies, and the tabs.
fn head(state: &State, columns: usize) -> Vec<String> {
    let Target::Thread(_, thread) = state.target() else {
        return Vec::new();
    };
    let kind = ui::status_of(thread);
    let status = thread.status.clone().unwrap_or_default();
    let title = Line::default()
        .mark(style::of_status(kind), format!("{} ", style::mark_of_status(kind)))
        .mark(style::NAME, state::name(thread))
        .word(
            style::DIM,
            if thread.alias.is_empty() {
                ""
            } else {
                ids::short(&thread.thread_id)
            },
        )
        .word(style::of_status(kind), names::status_kind(kind))
        .word(style::DIM, elapsed(thread, state.now))
        .word(style::PLAIN, status.reason);
    let mut lines = vec![title.render(columns)];
    let task = Line::default()
        .mark(style::DIM, "task")
        .word(style::PLAIN, &thread.label);
    if !thread.label.is_empty() {
        lines.push(task.render(columns));
    }
    let usage = thread.usage.unwrap_or_default();
    let spent = ui::tokens(&usage);
    if !spent.is_empty() {
        let growth = state
            .model
            .tokens_of(&thread.thread_id)
            .map(|rate| sparkline(&rate.growth_at(state.now)));
        let context = thread.context_left_percent.map(|left| format!("{left}% context left"));
        let line = Line::default()
            .mark(style::DIM, "used")
            .word(style::PLAIN, format!("{spent} tokens"))
            .word(style::PLAIN, ui::cost(&usage))
            .word(style::PLAIN, format!("{} turns", usage.turns))
            .word(style::PLAIN, context.unwrap_or_default())
            .word(style::NAME, growth.unwrap_or_default());
        lines.push(line.render(columns));
    }
    for condition in &thread.conditions {
        let kind = condition.kind();
        let line = Line::default()
            .mark(style::WARN, names::condition_kind(kind))
            .word(style::PLAIN, &condition.reason);
        lines.push(line.render(columns));
        if let Some(remedy) = remedy(kind) {
            lines.push(Line::default().mark(style::DIM, format!("  {remedy}")).render(columns));
        }
    }
    if kind == StatusKind::AwaitingApproval {
        let remedy = "  `y` grants its spawn, `n` denies it";
        lines.push(Line::default().mark(style::DIM, remedy).render(columns));
    }
    let tabs = Tab::ALL.iter().fold(Line::default(), |line, (tab, name)| {
        if *tab == state.tab {
            line.mark(style::NAME, format!("[{name}]"))
        } else {
            line.mark(style::DIM, format!(" {name} "))
        }
    });
    lines.push(tabs.render(columns));
    lines
}

/// Returns the keys that resolve a condition, or the hint for the condition.
const fn remedy(kind: ConditionKind) -> Option<&'static str> {
    match kind {
        ConditionKind::AwaitingToolApproval => Some("`y` grants the call, `n` denies it"),
        ConditionKind::AwaitingInput => Some("`s` answers the question"),
        ConditionKind::BudgetExhausted => Some("`b` raises the budget, then `s` continues the thread"),
        ConditionKind::Stalled => Some("`i` interrupts it, `s` gives it another instruction"),
        _ => hints::for_condition(kind),
    }
}

/// Returns the lines of the details, wrapped at the width.
fn lines(state: &State, columns: usize) -> Vec<Styled<'static>> {
    let (text, indent) = match (state.target(), state.loaded()) {
        (Target::Thread(..), _) if state.tab == Tab::Info => (info(state), 2),
        (_, Some([])) => (vec![style::paint(style::DIM, "nothing yet").to_string()], 0),
        (_, Some(lines)) => {
            let indent = if state.tab == Tab::Transcript { INDENT } else { 2 };
            (lines.to_vec(), indent)
        }
        (Target::Thread(..) | Target::Approval(..), None) => (vec![style::paint(style::DIM, "…").to_string()], 0),
        _ => (info(state), 2),
    };
    text.iter()
        .flat_map(|line| styled(line))
        .flat_map(|line| wrap(&line, columns, indent))
        .collect()
}

/// Returns the properties of the selected object.
fn info(state: &State) -> Vec<String> {
    let text = match state.target() {
        Target::Session(followed) => {
            let mut session = followed.session().clone();
            session.roll_up.clone_from(&followed.info.roll_up);
            show::session_fields(&session, state.now).render()
        }
        Target::Thread(_, thread) => show::thread_fields(thread, state.now).render(),
        Target::Group(_, group) => {
            let spec = group.spec.clone().unwrap_or_default();
            let limits = group.limits.unwrap_or_default();
            let estimate = group.estimated_usage.as_ref().map(ui::cost).unwrap_or_default();
            let usage = group.usage.unwrap_or_default();
            ui::Fields::default()
                .field("group", &spec.group_id)
                .field("name", &spec.name)
                .field("state", names::group_state(group.state()))
                .field("items", batch::counts(group))
                .field("at a time", limits.max_concurrency.to_string())
                .field("paused", if limits.paused { "yes" } else { "" })
                .field("tokens", ui::tokens(&usage))
                .field("cost", ui::cost(&usage))
                .field("estimated", estimate)
                .field("reason", &group.reason)
                .render()
        }
        Target::Role(role) => agents::section(role, usize::MAX),
        Target::Runner(runner) => ui::Fields::default()
            .field("runner", &runner.runner_id)
            .field("state", names::runner_state(runner.state()))
            .field("session", &runner.session_id)
            .field("labels", ui::labels(&runner.labels, "\n"))
            .render(),
        Target::Approval(..) | Target::Nothing => String::new(),
    };
    text.lines().map(ToOwned::to_owned).collect()
}

/// Breaks a line at the width, at spaces if possible. Further lines are indented.
pub(super) fn wrap(line: &Styled<'static>, columns: usize, indent: usize) -> Vec<Styled<'static>> {
    let indent = if indent < columns / 2 { indent } else { 0 };
    let graphemes: Vec<StyledGrapheme<'_>> = line.styled_graphemes(Style::default()).collect();
    let mut lines = Vec::new();
    let mut rest = graphemes.as_slice();
    loop {
        let room = columns.saturating_sub(if lines.is_empty() { 0 } else { indent }).max(1);
        let mut used = 0;
        let fits = rest
            .iter()
            .take_while(|grapheme| {
                used += grapheme.symbol.width();
                used <= room
            })
            .count()
            // At least one character per line, even if a wide character does not fit.
            .max(1);
        let (fit, after) = rest.split_at(fits.min(rest.len()));
        let space = fit.iter().rposition(|grapheme| grapheme.symbol == " ");
        let end = match space.filter(|space| !after.is_empty() && *space > fits / 2) {
            Some(space) => space + 1,
            None => fit.len(),
        };
        let (now, later) = rest.split_at(end);
        let spans = now
            .iter()
            .map(|grapheme| Span::styled(grapheme.symbol.to_owned(), grapheme.style));
        let margin = (!lines.is_empty()).then(|| Span::raw(" ".repeat(indent)));
        lines.push(margin.into_iter().chain(spans).collect());
        if later.is_empty() {
            return lines;
        }
        rest = later;
    }
}
