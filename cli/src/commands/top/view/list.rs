//! Draws the list.

use std::time::SystemTime;

use anstyle::Style as Ansi;
use ratatui::{layout::Rect, style::Modifier};
use troupe_proto::supervisor::v1::{Approval, Budget, Group, StatusKind, Thread};
use unicode_width::UnicodeWidthStr as _;

use super::{
    super::{
        layout::Focus,
        model::{Followed, Link, tokens},
        rows::{Row, View},
        state::{self, Mode, State, Target},
    },
    Canvas,
};
use crate::{
    attention,
    commands::batch,
    ids, names, sanitize, time,
    ui::{self, Line, style},
};

/// Draws the heading and the rows.
pub(super) fn draw(state: &State, area: Rect, canvas: &mut Canvas<'_>) {
    let columns = usize::from(area.width);
    let head = Rect { height: 1, ..area };
    canvas.line(head, &list_head(state, columns), Modifier::empty());
    let body = Rect::new(area.x, area.y + 1, area.width, area.height.saturating_sub(1));
    if state.rows.is_empty() || matches!(state.rows.as_slice(), [Row::NeedsHeading(_)]) {
        let text = style::paint(style::DIM, empty_text(state)).to_string();
        canvas.line(
            Rect {
                height: body.height.min(1),
                ..body
            },
            &text,
            Modifier::empty(),
        );
        return;
    }
    let rows = state.rows.iter().enumerate().skip(state.top);
    for (y, (place, row)) in (body.y..body.bottom()).zip(rows) {
        let modifier = match (place == state.selected, state.focus) {
            (false, _) => Modifier::empty(),
            (true, Focus::List) => Modifier::REVERSED,
            (true, Focus::Detail) => Modifier::UNDERLINED,
        };
        let line = row_line(state, row, columns);
        canvas.line(Rect { y, height: 1, ..area }, &line, modifier);
    }
}

/// Returns the text that replaces a list without rows.
pub(super) fn empty_text(state: &State) -> &'static str {
    match state.options.view {
        _ if !state.model.is_synced() => "loading",
        View::Needs => "nothing waits for a person",
        View::Tree if !state.options.filter.is_empty() => "no thread matches the filter; Esc removes it",
        View::Tree => "no sessions; `:` and `spawn ROLE TASK` open one",
        View::Runners => "no runner is attached; `troupe run` starts one",
        View::Roles => "no roles",
    }
}

/// Returns the line above the rows: the view, the filter and the names of the columns.
pub(super) fn list_head(state: &State, columns: usize) -> String {
    let view = match state.options.view {
        View::Needs => "needs you",
        View::Tree => "sessions and threads",
        View::Runners => "runners",
        View::Roles => "roles",
    };
    let left = Line::default().mark(style::DIM, view);
    // While a filter is edited, the input line shows it.
    let left = if state.options.filter.is_empty() || matches!(state.mode, Mode::Line(_)) {
        left
    } else {
        left.word(style::WARN, format!("filter {}", state.options.filter.text()))
    };
    let right = match state.options.view {
        View::Needs | View::Tree => cells(columns, Column::heading),
        View::Runners | View::Roles => Line::default(),
    };
    beside(&left, &right, columns)
}

/// Formats two lines as one: `left` at the left edge, `right` at the right edge. Truncates `left` if necessary.
fn beside(left: &Line, right: &Line, columns: usize) -> String {
    let right = right.render(columns);
    let used = ui::plain(&right).width();
    let room = columns.saturating_sub(used + 1);
    let left = left.render(room);
    let gap = columns.saturating_sub(ui::plain(&left).width() + used);
    format!("{left}{}{right}", " ".repeat(gap))
}

/// A column of threads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Elapsed,
    Tokens,
    Cost,
    Context,
    Budget,
    Model,
    Runner,
}

impl Column {
    /// The columns in their order, each with the minimum width of the list at which the column is shown.
    const ALL: [(Self, usize); 7] = [
        (Self::Elapsed, 48),
        (Self::Tokens, 56),
        (Self::Context, 64),
        (Self::Cost, 76),
        (Self::Budget, 90),
        (Self::Model, 112),
        (Self::Runner, 130),
    ];

    const fn width(self) -> usize {
        match self {
            Self::Elapsed => 5,
            Self::Tokens | Self::Cost => 6,
            Self::Context => 8,
            Self::Budget => 7,
            Self::Model => 16,
            Self::Runner => 12,
        }
    }

    fn heading(self) -> (Ansi, String) {
        let name = match self {
            Self::Elapsed => "time",
            Self::Tokens => "tokens",
            Self::Cost => "cost",
            Self::Context => "context",
            Self::Budget => "budget",
            Self::Model => "model",
            Self::Runner => "runner",
        };
        (style::DIM, name.to_owned())
    }

    fn cell(self, thread: &Thread, now: SystemTime) -> (Ansi, String) {
        let usage = thread.usage.unwrap_or_default();
        match self {
            Self::Elapsed => (style::DIM, elapsed(thread, now)),
            Self::Tokens => (style::PLAIN, ui::tokens(&usage)),
            Self::Cost => (style::PLAIN, ui::cost(&usage)),
            Self::Context => thread.context_left_percent.map_or_else(
                || (style::PLAIN, String::new()),
                |left| (context_color(left), format!("{} {left:>2}%", bar(left, 4))),
            ),
            Self::Budget => used_percent(thread).map_or_else(
                || (style::PLAIN, String::new()),
                |used| {
                    let color = match used {
                        0..80 => style::PLAIN,
                        80..100 => style::WARN,
                        _ => style::BAD,
                    };
                    (color, format!("{} {used:>2}%", bar(used, 3)))
                },
            ),
            Self::Model => {
                let effort = thread.reasoning_effort.as_str();
                let separator = if effort.is_empty() { "" } else { "·" };
                (style::DIM, format!("{}{separator}{effort}", thread.model))
            }
            Self::Runner => (style::DIM, thread.runner_id.clone()),
        }
    }
}

/// Returns the cells of the columns that are shown, each as wide as its column.
fn cells(columns: usize, cell: impl Fn(Column) -> (Ansi, String)) -> Line {
    let shown = Column::ALL.iter().filter(|(_, least)| columns >= *least);
    shown.fold(Line::default(), |line, (column, _)| {
        let (color, text) = cell(*column);
        let text = ui::clip(&sanitize::line(&text), column.width());
        let gap = column.width().saturating_sub(text.width());
        line.mark(style::PLAIN, " ".repeat(gap + 1)).mark(color, text)
    })
}

const fn context_color(left: u32) -> Ansi {
    match left {
        0..15 => style::BAD,
        15..30 => style::WARN,
        _ => style::GOOD,
    }
}

/// Draws a percentage as a bar.
fn bar(percent: u32, width: u32) -> String {
    let full = (percent.min(100) * width).div_ceil(100);
    (0..width).map(|place| if place < full { '█' } else { '░' }).collect()
}

/// Returns the used share of the budget of a thread and its descendants, in percent: the largest of the shares of
/// tokens, turns and cost. The time is not considered.
fn used_percent(thread: &Thread) -> Option<u32> {
    let budget = thread.budget.as_ref()?;
    let recorded = thread.subtree_usage.unwrap_or_default();
    let own = thread.usage.unwrap_or_default();
    // The usage of the thread itself includes its running turn. The recorded usage of the subtree does not.
    let percent = |used: u64, bound: u64| {
        let percent = used.saturating_mul(100).checked_div(bound)?;
        Some(u32::try_from(percent).unwrap_or(u32::MAX).min(999))
    };
    let Budget {
        tokens: token_bound,
        turns,
        cost_micros,
        ..
    } = *budget;
    [
        percent(tokens(&recorded).max(tokens(&own)), token_bound),
        percent(u64::from(recorded.turns.max(own.turns)), u64::from(turns)),
        percent(recorded.cost_micros.max(own.cost_micros), cost_micros),
    ]
    .into_iter()
    .flatten()
    .max()
}

/// Returns the time since the thread has its status. For a settled thread, returns the time from its creation to its
/// end.
pub(super) fn elapsed(thread: &Thread, now: SystemTime) -> String {
    let since = thread.status.as_ref().and_then(|status| status.since);
    match ui::status_of(thread) {
        StatusKind::Queued | StatusKind::AwaitingApproval | StatusKind::PendingInit | StatusKind::Running => {
            time::age(since.as_ref(), now)
        }
        _ => match since.and_then(|since| SystemTime::try_from(since).ok()) {
            Some(end) => time::age(thread.create_time.as_ref(), end),
            None => String::new(),
        },
    }
}

/// Returns a row as a line.
pub(super) fn row_line(state: &State, row: &Row, columns: usize) -> String {
    match (row, state.target_of(row)) {
        (Row::NeedsHeading(count), _) => Line::default()
            .mark(style::WARN, format!("⚑ needs you ({count})"))
            .render(columns),
        (_, Target::Approval(_, approval)) => approval_line(approval, state.now, columns),
        (Row::Need { .. }, Target::Thread(_, thread)) => need_line(thread, state.now, columns),
        (Row::Thread { branch, folded, .. }, Target::Thread(followed, thread)) => {
            thread_line(followed, thread, branch, *folded, state.now, columns)
        }
        (Row::Session { is_folded, .. }, Target::Session(followed)) => {
            session_line(followed, *is_folded, state.now, columns)
        }
        (_, Target::Group(_, group)) => group_line(group, columns),
        (_, Target::Runner(runner)) => {
            let kinds: Vec<&str> = runner.kinds.iter().map(|kind| kind.kind.as_str()).collect();
            let capacity = match runner.capacity {
                0 => "no limit".to_owned(),
                capacity => format!("of {capacity}"),
            };
            let left = Line::default()
                .mark(style::NAME, sanitize::line(&runner.runner_id))
                .word(style::PLAIN, names::runner_state(runner.state()))
                .word(style::DIM, kinds.join(", "));
            let right = Line::default().mark(
                style::PLAIN,
                format!("{} programs {capacity}, {} working", runner.programs, runner.working),
            );
            beside(&left, &right, columns)
        }
        (_, Target::Role(role)) => Line::default()
            .mark(style::NAME, sanitize::line(&role.agent_type))
            .word(style::DIM, role.model())
            .word(style::PLAIN, &role.description)
            .render(columns),
        _ => String::new(),
    }
}

fn approval_line(approval: &Approval, now: SystemTime, columns: usize) -> String {
    let asker = approval.threads.first();
    let who = asker.map_or_else(String::new, |thread| match thread.alias.as_str() {
        "" => format!("{} {}", thread.agent_type, ids::short(&thread.thread_id)),
        alias => format!("{} {alias}", thread.agent_type),
    });
    let left = Line::default()
        .mark(style::WARN, "  ⚑ ")
        .mark(style::NAME, sanitize::line(&who))
        .word(style::PLAIN, approval.subject.lines().next().unwrap_or_default());
    let right = match &approval.deadline {
        Some(deadline) => format!("{} left", time::left(Some(deadline), now)),
        None => time::age(approval.create_time.as_ref(), now),
    };
    beside(&left, &Line::default().mark(style::WARN, right), columns)
}

fn need_line(thread: &Thread, now: SystemTime, columns: usize) -> String {
    let (what, why) = attention::reason(thread).unwrap_or_default();
    let kind = ui::status_of(thread);
    let left = Line::default()
        .mark(style::of_status(kind), format!("  {} ", style::mark_of_status(kind)))
        .mark(style::NAME, state::name(thread))
        .word(style::WARN, what)
        .word(style::PLAIN, why);
    let since = thread.status.as_ref().and_then(|status| status.since);
    let right = Line::default().mark(style::DIM, time::age(since.as_ref(), now));
    beside(&left, &right, columns)
}

fn thread_line(
    followed: &Followed,
    thread: &Thread,
    branch: &str,
    folded: usize,
    now: SystemTime,
    columns: usize,
) -> String {
    let kind = ui::status_of(thread);
    let mark = if folded > 0 { "▸ " } else { "" };
    let mut left = Line::default()
        .mark(style::DIM, format!("  {branch}{mark}"))
        .mark(style::of_status(kind), format!("{} ", style::mark_of_status(kind)))
        .mark(style::NAME, sanitize::line(&ui::role(thread)))
        .word(style::NAME, &thread.alias);
    if let Some((what, _)) = attention::reason(thread) {
        left = left.word(style::WARN, what);
    }
    if folded > 0 {
        left = left.word(style::DIM, format!("+{folded}"));
    }
    let doing = match kind {
        StatusKind::Queued => queue_place(followed, thread),
        _ => ui::activity(thread),
    };
    let color = match kind {
        StatusKind::Running | StatusKind::Errored => style::PLAIN,
        _ => style::DIM,
    };
    // The note is not shown, because it repeats the role.
    let doing = if doing.is_empty() { thread.label.clone() } else { doing };
    let left = left.word(color, doing);
    beside(&left, &cells(columns, |column| column.cell(thread, now)), columns)
}

/// Returns the place in the queue of the session. Computes it from the threads, because events do not report a new
/// place when other threads leave the queue.
fn queue_place(followed: &Followed, thread: &Thread) -> String {
    let since = |thread: &Thread| {
        let since = thread
            .status
            .as_ref()
            .and_then(|status| status.since)
            .unwrap_or_default();
        (since.seconds, since.nanos)
    };
    let own = since(thread);
    let before = followed.view.threads().iter().filter(|other| {
        ui::status_of(other) == StatusKind::Queued
            && (since(other) < own || (since(other) == own && other.thread_id < thread.thread_id))
    });
    format!("place {} in the queue", before.count() + 1)
}

fn session_line(followed: &Followed, is_folded: bool, now: SystemTime, columns: usize) -> String {
    let session = followed.session();
    let state = match (followed.is_closed(), session.paused) {
        (true, _) => "closed",
        (false, true) => "paused",
        (false, false) => "",
    };
    let title = session.labels.get("title").or_else(|| session.labels.get("name"));
    let mut left = Line::default()
        .mark(style::DIM, if is_folded { "▸ " } else { "▾ " })
        .mark(style::HEADING, "session")
        .word(style::HEADING, ids::short(&session.session_id))
        .word(style::NAME, title.map(String::as_str).unwrap_or_default())
        .word(style::WARN, state);
    left = match followed.link {
        Link::Interrupted if !followed.is_closed() => left.word(style::ERROR, "reconnecting"),
        Link::Rejected => left.word(style::ERROR, "cannot be followed"),
        Link::New | Link::Live | Link::Interrupted => left,
    };
    let left = left
        .word(style::DIM, names::mode(session.mode()).to_ascii_lowercase())
        .word(style::PLAIN, &session.cwd);
    let usage = followed.spent();
    let right = cells(columns, |column| match column {
        Column::Elapsed if !followed.is_closed() => (style::DIM, time::age(session.create_time.as_ref(), now)),
        Column::Tokens => (style::PLAIN, ui::tokens(&usage)),
        Column::Cost => (style::PLAIN, ui::cost(&usage)),
        Column::Budget => match followed.view.threads().first() {
            Some(root) => Column::Budget.cell(root, now),
            None => (style::PLAIN, String::new()),
        },
        _ => (style::PLAIN, String::new()),
    });
    beside(&left, &right, columns)
}

fn group_line(group: &Group, columns: usize) -> String {
    let spec = group.spec.clone().unwrap_or_default();
    let total = group.pending + group.running + group.succeeded + group.failed + group.cancelled;
    let ended = group.succeeded + group.failed + group.cancelled;
    let percent = (ended.saturating_mul(100)).checked_div(total).unwrap_or_default();
    let left = Line::default()
        .mark(style::DIM, "  ")
        .mark(style::NAME, format!("group {}", sanitize::line(&spec.name)))
        .word(style::PLAIN, names::group_state(group.state()))
        .word(style::PLAIN, batch::counts(group));
    let right = Line::default().mark(style::GOOD, format!("{} {percent:>3}%", bar(percent, 10)));
    beside(&left, &right, columns)
}
