//! The filter language of lists of threads: terms that must all match.

use std::{collections::HashSet, str::FromStr};

use troupe_proto::supervisor::v1::{ConditionKind, Session, StatusKind, Thread};

use crate::{attention, names, suggest, ui};

/// The keys of terms.
const KEYS: [&str; 8] = ["s", "r", "a", "m", "on", "label", "needs", "over"];

/// Selects threads. Without a term, every thread matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    text: String,
    terms: Vec<Term>,
}

/// A term of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    /// Whether the term matches the threads for which the test fails.
    is_negated: bool,
    test: Test,
}

/// The test of a term. Texts are in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    /// The status begins with one of the texts.
    Status(Vec<String>),
    /// The role with its persona, such as `reviewer: strict`, contains one of the texts.
    Role(Vec<String>),
    /// The alias contains one of the texts.
    Alias(Vec<String>),
    /// The model contains one of the texts.
    Model(Vec<String>),
    /// The runner's id contains one of the texts.
    Runner(Vec<String>),
    /// The thread's label, or a label of its session as `key=value`, contains one of the texts.
    Label(Vec<String>),
    /// The thread waits for a person.
    NeedsPerson,
    /// The budget is spent.
    OverBudget,
    /// The id, the alias, the role with its persona, the label or the text of [`ui::doing`] contains the text.
    Text(String),
}

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let terms = words(text)?.iter().map(|word| term(word)).collect::<Result<_, _>>()?;
        Ok(Self {
            text: text.to_owned(),
            terms,
        })
    }
}

impl Filter {
    /// Returns the filter as it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether the filter has no term.
    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns the threads of a session that match, in the same order. With `ancestors`, the threads above them too.
    pub(crate) fn select(&self, session: &Session, threads: &[Thread], ancestors: bool) -> Vec<Thread> {
        let selected = self.selected(session, threads, ancestors);
        let is_selected = |thread: &&Thread| selected.contains(thread.thread_id.as_str());
        threads.iter().filter(is_selected).cloned().collect()
    }

    /// Returns the ids of the threads of a session that match. With `ancestors`, the threads above them too.
    pub(crate) fn selected<'a>(&self, session: &Session, threads: &'a [Thread], ancestors: bool) -> HashSet<&'a str> {
        let mut selected: HashSet<&str> = HashSet::new();
        // In reverse order, so that a child selects its parent before the loop reaches the parent.
        for thread in threads.iter().rev() {
            let id = thread.thread_id.as_str();
            if selected.contains(id) || self.matches(session, thread) {
                selected.insert(id);
                if ancestors {
                    selected.insert(&thread.parent_thread_id);
                }
            }
        }
        selected
    }

    /// Returns whether every term matches a thread of a session.
    fn matches(&self, session: &Session, thread: &Thread) -> bool {
        self.terms
            .iter()
            .all(|term| term.test.matches(session, thread) != term.is_negated)
    }
}

impl Test {
    fn matches(&self, session: &Session, thread: &Thread) -> bool {
        let contains = |value: &str, texts: &[String]| {
            let value = value.to_lowercase();
            texts.iter().any(|text| value.contains(text.as_str()))
        };
        match self {
            Self::Status(texts) => {
                let status = names::status_kind(ui::status_of(thread)).to_lowercase();
                texts.iter().any(|text| status.starts_with(text.as_str()))
            }
            Self::Role(texts) => contains(&ui::role(thread), texts),
            Self::Alias(texts) => contains(&thread.alias, texts),
            Self::Model(texts) => contains(&thread.model, texts),
            Self::Runner(texts) => contains(&thread.runner_id, texts),
            Self::Label(texts) => {
                let of_session = |(key, value)| contains(&format!("{key}={value}"), texts);
                contains(&thread.label, texts) || session.labels.iter().any(of_session)
            }
            Self::NeedsPerson => attention::reason(thread).is_some(),
            Self::OverBudget => has_condition(thread, ConditionKind::BudgetExhausted),
            Self::Text(text) => {
                let texts = std::slice::from_ref(text);
                contains(&thread.thread_id, texts)
                    || contains(&thread.alias, texts)
                    || contains(&ui::role(thread), texts)
                    || contains(&thread.label, texts)
                    || contains(&ui::doing(thread), texts)
            }
        }
    }
}

fn has_condition(thread: &Thread, kind: ConditionKind) -> bool {
    thread.conditions.iter().any(|condition| condition.kind() == kind)
}

/// Splits a filter at spaces outside of double quotes, and removes the quotes.
fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut is_quoted = false;
    for character in text.chars() {
        match character {
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            ' ' if !is_quoted => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    if is_quoted {
        return Err(format!("a double quote is not closed in {text}"));
    }
    words.extend(word);
    Ok(words)
}

fn term(word: &str) -> Result<Term, String> {
    let (is_negated, word) = match word.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, word),
    };
    let lower = word.to_lowercase();
    let test = match lower.split_once(':') {
        None if lower.is_empty() => return Err("a term is empty".to_owned()),
        None => Test::Text(lower),
        Some((key, value)) => keyed(key, value)?,
    };
    Ok(Term { is_negated, test })
}

fn keyed(key: &str, value: &str) -> Result<Test, String> {
    let texts: Vec<String> = value
        .split(',')
        .filter(|text| !text.is_empty())
        .map(ToOwned::to_owned)
        .collect();
    if texts.is_empty() {
        return Err(format!("\"{key}:\" needs a value"));
    }
    match key {
        "s" => status_texts(texts).map(Test::Status),
        "r" => Ok(Test::Role(texts)),
        "a" => Ok(Test::Alias(texts)),
        "m" => Ok(Test::Model(texts)),
        "on" => Ok(Test::Runner(texts)),
        "label" => Ok(Test::Label(texts)),
        "needs" if value == "me" => Ok(Test::NeedsPerson),
        "needs" => Err(format!("unknown value \"{value}\"; use needs:me")),
        "over" if value == "budget" => Ok(Test::OverBudget),
        "over" => Err(format!("unknown value \"{value}\"; use over:budget")),
        _ => Err(format!("unknown key \"{key}\"; the keys are {}", KEYS.join(", "))),
    }
}

/// Checks that each text is the beginning of a status.
fn status_texts(texts: Vec<String>) -> Result<Vec<String>, String> {
    let statuses: Vec<String> = STATUSES
        .map(|kind| names::status_kind(kind).to_lowercase())
        .into_iter()
        .collect();
    for text in &texts {
        if !statuses.iter().any(|status| status.starts_with(text.as_str())) {
            let meant = suggest::closest(text, statuses.iter().map(String::as_str));
            let remedy = meant.map_or_else(
                || format!("the statuses are {}", statuses.join(", ")),
                |meant| format!("did you mean \"{meant}\"?"),
            );
            return Err(format!("unknown status \"{text}\"; {remedy}"));
        }
    }
    Ok(texts)
}

const STATUSES: [StatusKind; 8] = [
    StatusKind::Queued,
    StatusKind::AwaitingApproval,
    StatusKind::PendingInit,
    StatusKind::Running,
    StatusKind::Completed,
    StatusKind::Errored,
    StatusKind::Interrupted,
    StatusKind::Shutdown,
];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use troupe_proto::supervisor::v1::{Condition, Status};

    use super::*;

    fn thread(id: &str, parent: &str, role: &str, kind: StatusKind) -> Thread {
        Thread {
            thread_id: id.to_owned(),
            parent_thread_id: parent.to_owned(),
            agent_type: role.to_owned(),
            depth: u32::from(!parent.is_empty()),
            status: Some(Status {
                kind: kind.into(),
                ..Status::default()
            }),
            ..Thread::default()
        }
    }

    fn tree() -> (Session, Vec<Thread>) {
        let mut worker = thread("2", "1", "worker", StatusKind::Running);
        worker.alias = "Ann".to_owned();
        worker.label = "Fix the parser".to_owned();
        worker.model = "gpt-5".to_owned();
        let mut reviewer = thread("3", "2", "reviewer", StatusKind::Running);
        reviewer.runner_id = "local".to_owned();
        reviewer.conditions.push(Condition {
            kind: ConditionKind::BudgetExhausted.into(),
            ..Condition::default()
        });
        let failed = thread("4", "1", "worker", StatusKind::Errored);
        let session = Session {
            labels: [("team".to_owned(), "Core".to_owned())].into(),
            ..Session::default()
        };
        let root = thread("1", "", "default", StatusKind::Completed);
        (session, vec![root, worker, reviewer, failed])
    }

    fn selected(filter: &str, ancestors: bool) -> String {
        let (session, threads) = tree();
        let filter: Filter = filter.parse().unwrap();
        let threads = filter.select(&session, &threads, ancestors);
        threads.iter().map(|thread| thread.thread_id.as_str()).collect()
    }

    #[test]
    fn terms_select_threads() {
        for (filter, expected) in [
            ("", "1234"),
            ("s:running", "23"),
            ("s:RUN,err", "234"),
            ("r:work", "24"),
            ("r:root", "1"),
            ("a:ann", "2"),
            ("m:gpt", "2"),
            ("on:local", "3"),
            ("label:parser", "2"),
            ("label:team=core", "1234"),
            ("needs:me", "34"),
            ("over:budget", "3"),
            ("s:running -over:budget", "2"),
            ("-r:worker", "13"),
            ("\"the parser\"", "2"),
            ("label:\"fix the\"", "2"),
            ("nothing", ""),
        ] {
            assert_eq!(selected(filter, false), expected, "{filter}");
        }
        assert_eq!(selected("over:budget", true), "123", "with the threads above");
    }

    #[test]
    fn bad_filters_are_rejected_with_a_remedy() {
        for (filter, expected) in [
            (
                "x:y",
                "unknown key \"x\"; the keys are s, r, a, m, on, label, needs, over",
            ),
            ("s:errors", "unknown status \"errors\"; did you mean \"errored\"?"),
            ("s:zzz", "unknown status \"zzz\"; the statuses are queued, "),
            ("r:", "\"r:\" needs a value"),
            ("needs:you", "use needs:me"),
            ("over:there", "use over:budget"),
            ("-", "a term is empty"),
            ("\"open", "a double quote is not closed in \"open"),
        ] {
            let error = filter.parse::<Filter>().unwrap_err();
            assert!(error.contains(expected), "{filter}: {error}");
        }
    }
}
