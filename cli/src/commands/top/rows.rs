//! The rows of the list: the approvals and threads that wait for a person, and the tree of sessions and threads.

use std::{cmp::Reverse, collections::HashSet, rc::Rc};

use troupe_proto::{
    registry::v1::Agent,
    supervisor::v1::{Runner, StatusKind, Thread},
};

use super::model::{Followed, Model, tokens};
use crate::{attention, filter::Filter, ui};

/// The content of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum View {
    /// The threads and approvals that wait for a person.
    Needs,
    /// The threads and approvals that wait for a person, and the tree of all sessions.
    #[default]
    Tree,
    /// The runners.
    Runners,
    /// The roles.
    Roles,
}

/// The order of sessions, and of threads with the same parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// In the order of their creation.
    #[default]
    Created,
    /// The most tokens first.
    Tokens,
    /// The latest change first.
    Changed,
}

impl Sort {
    /// Returns the next order.
    pub(super) const fn next(self) -> Self {
        match self {
            Self::Created => Self::Tokens,
            Self::Tokens => Self::Changed,
            Self::Changed => Self::Created,
        }
    }

    /// Returns the name of the order.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Created => "spawn order",
            Self::Tokens => "tokens",
            Self::Changed => "latest change",
        }
    }
}

/// The identity of a row, independent of its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// The heading of the list of waiting threads and approvals.
    NeedsHeading,
    /// A waiting approval.
    Approval(String),
    /// A thread in the list of waiting threads.
    Need(String),
    /// A session.
    Session(String),
    /// A thread in the tree.
    Thread(String),
    /// A group.
    Group(String),
    /// A runner.
    Runner(String),
    /// A role.
    Role(String),
}

/// A row. The numbers are indexes into the model, which are valid until its next change: `State::refresh` builds the
/// rows again before a key or a frame uses them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// The heading of the list of waiting threads and approvals, with their number.
    NeedsHeading(usize),
    /// A waiting approval of a session.
    Approval { session: usize, approval: usize },
    /// A waiting thread of a session.
    Need { session: usize, thread: usize },
    /// A session.
    Session { session: usize, is_folded: bool },
    /// A thread of a session in the tree, with the branches before it.
    Thread {
        session: usize,
        thread: usize,
        branch: Box<str>,
        /// The number of hidden threads below it.
        folded: usize,
    },
    /// A group of a session.
    Group { session: usize, group: usize },
    /// A runner.
    Runner(usize),
    /// A role.
    Role(usize),
}

/// The selection of rows.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) view: View,
    pub(super) filter: Filter,
    pub(super) sort: Sort,
    /// Whether closed threads and sessions are shown.
    pub(super) shows_closed: bool,
    /// The ids of sessions and threads whose descendants are hidden.
    pub(super) folded: HashSet<String>,
}

/// Builds the rows.
pub(super) fn build(model: &Model, runners: &[Runner], roles: &[Agent], options: &Options) -> Vec<Row> {
    match options.view {
        View::Runners => (0..runners.len()).map(Row::Runner).collect(),
        View::Roles => (0..roles.len()).map(Row::Role).collect(),
        View::Needs => needs(model, options),
        View::Tree => {
            let mut rows = needs(model, options);
            if rows.len() == 1 {
                rows.clear();
            }
            rows.extend(tree(model, options));
            rows
        }
    }
}

/// Returns the heading, then the approvals that wait for a person, then the threads that wait for a person. The oldest
/// approval and the oldest thread come first.
pub(super) fn needs(model: &Model, options: &Options) -> Vec<Row> {
    let mut approvals = Vec::new();
    let mut threads = Vec::new();
    for (session, followed) in open_sessions(model) {
        let view = &followed.view;
        let selected = selected(followed, options, false);
        let is_selected = |id: &str| selected.as_ref().is_none_or(|selected| selected.contains(id));
        let waiting: HashSet<&str> = view
            .approvals()
            .iter()
            .map(|approval| approval.thread_id.as_str())
            .collect();
        for (approval, waiting) in view.approvals().iter().enumerate() {
            // The filter selects the thread that makes the call or that the approval would spawn.
            if is_selected(&waiting.thread_id) {
                let since = waiting.create_time;
                approvals.push((since.map(order), Row::Approval { session, approval }));
            }
        }
        for (thread, waiting_thread) in view.threads().iter().enumerate() {
            let id = waiting_thread.thread_id.as_str();
            if attention::reason(waiting_thread).is_some() && is_selected(id) && !waiting.contains(id) {
                let since = waiting_thread.status.as_ref().and_then(|status| status.since);
                threads.push((since.map(order), Row::Need { session, thread }));
            }
        }
    }
    approvals.sort_by_key(|(since, _)| *since);
    threads.sort_by_key(|(since, _)| *since);
    let count = approvals.len() + threads.len();
    let rows = approvals.into_iter().chain(threads).map(|(_, row)| row);
    std::iter::once(Row::NeedsHeading(count)).chain(rows).collect()
}

/// Returns the ids of the threads that the filter selects, or `None` without a filter.
fn selected<'a>(followed: &'a Followed, options: &Options, ancestors: bool) -> Option<HashSet<&'a str>> {
    let select = || {
        options
            .filter
            .selected(followed.session(), followed.view.threads(), ancestors)
    };
    (!options.filter.is_empty()).then(select)
}

fn order(time: prost_types::Timestamp) -> (i64, i32) {
    (time.seconds, time.nanos)
}

fn open_sessions(model: &Model) -> impl Iterator<Item = (usize, &Followed)> {
    model
        .sessions()
        .iter()
        .enumerate()
        .filter(|(_, followed)| !followed.is_closed())
}

fn tree(model: &Model, options: &Options) -> Vec<Row> {
    let mut sessions: Vec<(usize, &Followed)> = model
        .sessions()
        .iter()
        .enumerate()
        .filter(|(_, followed)| options.shows_closed || !followed.is_closed())
        .collect();
    match options.sort {
        // The newest session first.
        Sort::Created => sessions.reverse(),
        Sort::Tokens => sessions.sort_by_key(|(_, followed)| Reverse(tokens(&followed.spent()))),
        Sort::Changed => sessions.sort_by_key(|(_, followed)| Reverse(followed.info.update_time.map(order))),
    }
    let mut rows = Vec::new();
    for (session, followed) in sessions {
        session_rows(session, followed, options, &mut rows);
    }
    rows
}

fn session_rows(session: usize, followed: &Followed, options: &Options, rows: &mut Vec<Row>) {
    let threads = followed.view.threads();
    let selected = selected(followed, options, true);
    if selected.as_ref().is_some_and(HashSet::is_empty) {
        return;
    }
    let is_folded = options.folded.contains(&followed.info.session_id);
    rows.push(Row::Session { session, is_folded });
    if is_folded {
        return;
    }
    let is_shown = |thread: &Thread| {
        (options.shows_closed || ui::status_of(thread) != StatusKind::Shutdown)
            && selected
                .as_ref()
                .is_none_or(|selected| selected.contains(thread.thread_id.as_str()))
    };
    let shown: Vec<bool> = threads.iter().map(is_shown).collect();
    let mut children = vec![Vec::new(); threads.len()];
    let mut tops = Vec::new();
    for (place, thread) in threads.iter().enumerate().filter(|(place, _)| shown[*place]) {
        match followed.view.place(&thread.parent_thread_id) {
            Some(parent) if parent != place && shown[parent] => children[parent].push(place),
            _ => tops.push(place),
        }
    }
    for siblings in children.iter_mut().chain([&mut tops]) {
        sort(siblings, threads, options.sort);
    }
    let groups = followed.view.groups().iter().enumerate();
    rows.extend(groups.map(|(group, _)| Row::Group { session, group }));
    // An explicit stack: a deep tree must not overflow the call stack.
    let none: Rc<str> = Rc::from("");
    let mut stack: Vec<(usize, Rc<str>, &str)> = tops.iter().rev().map(|top| (*top, Rc::clone(&none), "")).collect();
    while let Some((place, indent, branch)) = stack.pop() {
        let (thread, own) = (&threads[place], &children[place]);
        let is_folded = !own.is_empty() && options.folded.contains(&thread.thread_id);
        rows.push(Row::Thread {
            session,
            thread: place,
            branch: [&indent, branch].concat().into(),
            folded: if is_folded { below(place, &children) } else { 0 },
        });
        if is_folded {
            continue;
        }
        let indent = match branch {
            "" => indent,
            "└─ " => [&indent, "   "].concat().into(),
            _ => [&indent, "│  "].concat().into(),
        };
        for (index, child) in own.iter().enumerate().rev() {
            let branch = if index + 1 == own.len() { "└─ " } else { "├─ " };
            stack.push((*child, Rc::clone(&indent), branch));
        }
    }
}

/// Counts the threads below a thread.
fn below(place: usize, children: &[Vec<usize>]) -> usize {
    let mut count = 0;
    let mut stack = vec![place];
    while let Some(place) = stack.pop() {
        let own = children.get(place).map(Vec::as_slice).unwrap_or_default();
        count += own.len();
        stack.extend(own);
    }
    count
}

fn sort(siblings: &mut [usize], threads: &[Thread], sort: Sort) {
    let thread = |place: &usize| threads.get(*place);
    match sort {
        // The indexes are in spawn order.
        Sort::Created => {}
        Sort::Tokens => siblings.sort_by_key(|place| {
            let usage = thread(place).and_then(|thread| thread.usage);
            Reverse(usage.as_ref().map(tokens))
        }),
        Sort::Changed => {
            siblings.sort_by_key(|place| Reverse(thread(place).and_then(|thread| thread.update_time).map(order)));
        }
    }
}
