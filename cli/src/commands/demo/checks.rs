//! The claims of the demo. Each claim is checked against the observed events, never against the requests that were
//! sent.

use std::collections::HashMap;

use serde_json::{Value, json};
use troupe_proto::{
    common::v1::{Sandbox, Scope},
    registry::v1::Agent,
    supervisor::v1::{Event, StatusKind, Thread, event::Kind},
};

use super::{environment::Seen, project};
use crate::{
    error::Error,
    ui::{self, style},
};

/// The supervisor's error for a spawn below the maximum depth.
const TOO_DEEP: &str = "Agent depth limit reached. Solve the task yourself.";
/// The supervisor's error for a spawn by a worker.
const NOT_A_WORKERS: &str = r#"tool "spawn_agent" is not allowed for agent_type "worker""#;

/// The thread ids of the demo's agents.
#[derive(Clone, Debug, Default)]
pub(super) struct Cast {
    /// The root thread.
    pub(super) root: String,
    /// The orchestrator that spawns an explorer.
    pub(super) finder: String,
    /// The orchestrator that spawns an orchestrator.
    pub(super) delegator: String,
    /// The worker thread.
    pub(super) worker: String,
    /// The reviewer that was running when the session was closed.
    pub(super) holder: String,
}

/// Evidence from unary calls, in addition to the event stream.
#[derive(Debug)]
pub(super) struct Evidence<'a> {
    /// The thread ids of the agents.
    pub(super) cast: &'a Cast,
    /// The explorer as the registry lists it for the project.
    pub(super) explorer: Option<&'a Agent>,
    /// The error of an operator's spawn below the maximum depth.
    pub(super) operator_refusal: Option<&'a Error>,
    /// The threads as the supervisor listed them at the end.
    pub(super) listed: &'a [Thread],
}

/// A checked claim.
#[derive(Debug)]
pub(super) struct Check {
    name: &'static str,
    /// The contradicting observation. `None` if the claim holds.
    against: Option<String>,
}

impl Check {
    /// Returns whether the claim holds.
    pub(super) const fn holds(&self) -> bool {
        self.against.is_none()
    }

    /// Formats the claim with its check mark.
    pub(super) fn to_text(&self) -> String {
        match &self.against {
            None => format!("{} {}", style::paint(style::GOOD, "✓"), self.name),
            Some(against) => {
                let against = crate::sanitize::line(against);
                format!(
                    "{} {}: {}",
                    style::paint(style::BAD, "✗"),
                    self.name,
                    style::paint(style::DIM, against)
                )
            }
        }
    }

    /// Returns the claim as JSON.
    pub(super) fn to_json(&self) -> Value {
        json!({ "check": self.name, "observed": self.holds(), "against": self.against })
    }
}

/// Checks all claims of the demo.
pub(super) fn all(seen: &Seen, evidence: &Evidence<'_>) -> Vec<Check> {
    let facts = Facts { seen, evidence };
    let claims: [(&'static str, Verdict); 12] = [
        (
            "the project's explorer overrides the embedded one",
            facts.project_override(),
        ),
        ("the events have no gap", facts.no_gap()),
        ("every agent ran a turn on the runner", facts.all_ran()),
        (
            "an orchestrator spawned an explorer and waited for it",
            facts.waited_for_explorer(),
        ),
        (
            "the explorer was the project's, and read-only",
            facts.explorer_is_the_projects(),
        ),
        (
            "a grandchild was rejected at the depth limit",
            facts.grandchild_refused(),
        ),
        (
            "an operator was rejected at the depth limit too",
            facts.operator_refused(),
        ),
        ("the worker's role did not allow a spawn", facts.worker_refused()),
        (
            "the reviewer was running when the root was closed",
            facts.holder_ran_until_closed(),
        ),
        ("the whole tree was fenced before the first stop", facts.fence_first()),
        ("the cascade closed leaf first, without force", facts.leaf_first()),
        (
            "the watched state equals the listed state",
            facts.watched_equals_listed(),
        ),
    ];
    let check = |(name, verdict): (&'static str, Verdict)| Check {
        name,
        against: verdict.err(),
    };
    claims.into_iter().map(check).collect()
}

/// The result of a check. The error describes the observation that contradicts the claim.
type Verdict = Result<(), String>;

fn ensure(holds: bool, against: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(against()) }
}

struct Facts<'a> {
    seen: &'a Seen,
    evidence: &'a Evidence<'a>,
}

impl Facts<'_> {
    fn threads(&self) -> &[Thread] {
        self.seen.view.threads()
    }

    /// Returns all threads except the root.
    fn agents(&self) -> impl Iterator<Item = &Thread> {
        self.threads().iter().filter(|thread| thread.depth > 0)
    }

    fn child_of(&self, parent: &str) -> Result<&Thread, String> {
        let mut children = self.threads().iter().filter(|thread| thread.parent_thread_id == parent);
        match (children.next(), children.next()) {
            (Some(only), None) => Ok(only),
            (None, _) => Err("it has no child".to_owned()),
            (Some(_), Some(_)) => Err("it has several children".to_owned()),
        }
    }

    /// Returns the sequence number of the thread's first event for which `is_it` holds.
    fn first(&self, thread: &str, is_it: impl Fn(&Kind) -> bool) -> Option<u64> {
        let about = |event: &&Event| event.thread_id == thread && event.kind.as_ref().is_some_and(&is_it);
        self.seen.events.iter().find(about).map(|event| event.sequence)
    }

    fn turn_ended(&self, thread: &str) -> Option<u64> {
        self.first(thread, |kind| matches!(kind, Kind::TurnEnded(_)))
    }

    fn last_words(&self, thread: &str) -> String {
        let words = self.seen.events.iter().rev().find_map(|event| match &event.kind {
            Some(Kind::TurnEnded(ended)) if event.thread_id == thread => Some(ended.message.clone()),
            _ => None,
        });
        words.unwrap_or_default()
    }

    fn closings(&self) -> HashMap<&str, (u64, bool)> {
        let closing = |event: &'_ Event| match &event.kind {
            Some(Kind::ThreadClosed(closed)) => Some((event.sequence, closed.forced)),
            _ => None,
        };
        self.seen
            .events
            .iter()
            .filter_map(|event| closing(event).map(|closed| (event.thread_id.as_str(), closed)))
            .collect()
    }

    fn project_override(&self) -> Verdict {
        let explorer = self.evidence.explorer.ok_or("the registry does not list it")?;
        let source = explorer.source.as_ref().ok_or("its source is not told")?;
        ensure(source.scope() == Scope::Project, || {
            format!("it comes from {}", source.path)
        })?;
        ensure(!source.shadowed.is_empty(), || "it hides nothing".to_owned())?;
        ensure(explorer.model() == project::EXPLORER_MODEL, || {
            format!("its model is {}", explorer.model())
        })
    }

    fn no_gap(&self) -> Verdict {
        for (expected, event) in (1_u64..).zip(&self.seen.events) {
            ensure(event.sequence == expected, || {
                format!("#{} came where #{expected} was due", event.sequence)
            })?;
        }
        ensure(!self.seen.events.is_empty(), || "no event was seen".to_owned())
    }

    fn all_ran(&self) -> Verdict {
        ensure(self.agents().count() == 6, || {
            format!("there were {} agents, not 6", self.agents().count())
        })?;
        for agent in self.agents() {
            let id = &agent.thread_id;
            let placed = self.first(
                id,
                |kind| matches!(kind, Kind::ThreadPlaced(placed) if !placed.runner_id.is_empty()),
            );
            let started = self.first(id, |kind| matches!(kind, Kind::TurnStarted(_)));
            ensure(placed.is_some() && placed < started, || {
                format!("{} {id} did not run", agent.agent_type)
            })?;
        }
        Ok(())
    }

    fn waited_for_explorer(&self) -> Verdict {
        let finder = &self.evidence.cast.finder;
        let explorer = self.child_of(finder)?;
        ensure(explorer.agent_type == "explorer", || {
            format!("it spawned {}", explorer.agent_type)
        })?;
        let by = format!("thread:{finder}");
        let spawned_by =
            self.seen.events.iter().find(|event| {
                event.thread_id == explorer.thread_id && matches!(event.kind, Some(Kind::ThreadSpawned(_)))
            });
        ensure(spawned_by.is_some_and(|event| event.actor == by), || {
            "another thread spawned it".to_owned()
        })?;
        let (first, second) = (self.turn_ended(&explorer.thread_id), self.turn_ended(finder));
        ensure(first.is_some() && first < second, || "it did not wait".to_owned())
    }

    fn explorer_is_the_projects(&self) -> Verdict {
        let explorer = self.child_of(&self.evidence.cast.finder)?;
        let scope = explorer.source.as_ref().map(|source| source.scope());
        ensure(scope == Some(Scope::Project), || {
            format!("its template is {:?}", explorer.source)
        })?;
        ensure(explorer.model == project::EXPLORER_MODEL, || {
            format!("its model is {}", explorer.model)
        })?;
        ensure(explorer.sandbox() == Sandbox::ReadOnly, || {
            format!("its sandbox is {:?}", explorer.sandbox())
        })
    }

    fn grandchild_refused(&self) -> Verdict {
        let grandchild = self.child_of(&self.evidence.cast.delegator)?;
        ensure(grandchild.depth == 2, || {
            format!("it stood at depth {}", grandchild.depth)
        })?;
        let words = self.last_words(&grandchild.thread_id);
        ensure(words.contains(TOO_DEEP), || format!("its last words were {words:?}"))?;
        let deepest = self.threads().iter().map(|thread| thread.depth).max();
        ensure(deepest == Some(2), || format!("a thread has depth {deepest:?}"))
    }

    fn operator_refused(&self) -> Verdict {
        let refusal = self.evidence.operator_refusal.ok_or("the spawn was not refused")?;
        ensure(refusal.message() == TOO_DEEP && refusal.code() == 3, || {
            format!("{} ({:?})", refusal.message(), refusal.reason())
        })
    }

    fn worker_refused(&self) -> Verdict {
        let worker = &self.evidence.cast.worker;
        let words = self.last_words(worker);
        ensure(words.contains(NOT_A_WORKERS), || {
            format!("its last words were {words:?}")
        })?;
        ensure(self.child_of(worker).is_err(), || "it has a child".to_owned())
    }

    fn holder_ran_until_closed(&self) -> Verdict {
        let cast = self.evidence.cast;
        let fence = self.first(&cast.root, |kind| matches!(kind, Kind::CloseRequested(_)));
        let started = self.first(&cast.holder, |kind| matches!(kind, Kind::TurnStarted(_)));
        ensure(started.is_some() && started < fence, || {
            "it was not running yet".to_owned()
        })?;
        match self.turn_ended(&cast.holder) {
            Some(ended) if Some(ended) < fence => Err("it had ended before".to_owned()),
            _ => Ok(()),
        }
    }

    fn fence_first(&self) -> Verdict {
        let fence = self.first(&self.evidence.cast.root, |kind| matches!(kind, Kind::CloseRequested(_)));
        let fence = fence.ok_or("the root was never fenced")?;
        let early = self.closings().into_values().find(|(closed, _)| *closed < fence);
        ensure(early.is_none(), || format!("a thread was closed before #{fence}"))
    }

    fn leaf_first(&self) -> Verdict {
        let closings = self.closings();
        for thread in self.threads() {
            let id = thread.thread_id.as_str();
            let (closed, forced) = closings.get(id).ok_or_else(|| format!("{id} was not closed"))?;
            ensure(!forced, || format!("{id} was forced"))?;
            if let Some((parent, _)) = closings.get(thread.parent_thread_id.as_str()) {
                ensure(closed < parent, || format!("{id} was closed after its parent"))?;
            }
        }
        ensure(!closings.is_empty(), || "no thread was closed".to_owned())
    }

    fn watched_equals_listed(&self) -> Verdict {
        let status = |thread: &Thread| (thread.thread_id.clone(), ui::status_of(thread));
        let seen: HashMap<String, StatusKind> = self.threads().iter().map(status).collect();
        let listed: HashMap<String, StatusKind> = self.evidence.listed.iter().map(status).collect();
        ensure(seen == listed, || format!("seen {seen:?}, listed {listed:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn against(seen: &Seen) -> Vec<&'static str> {
        let cast = Cast::default();
        let evidence = Evidence {
            cast: &cast,
            explorer: None,
            operator_refusal: None,
            listed: &[],
        };
        let checks = all(seen, &evidence);
        checks
            .iter()
            .filter(|check| !check.holds())
            .map(|check| check.name)
            .collect()
    }

    #[test]
    fn checks_fail_without_events() {
        // Without events, only the last of the claims holds, because it compares two empty lists.
        assert_eq!(against(&Seen::default()).len(), 11);
    }

    #[test]
    fn sequence_gap_is_detected() {
        let event = |sequence| Event {
            sequence,
            ..Event::default()
        };
        let with = |sequences: &[u64]| Seen {
            events: sequences.iter().copied().map(event).collect(),
            ..Seen::default()
        };
        assert!(!against(&with(&[1, 2, 3])).contains(&"the events have no gap"));
        assert!(against(&with(&[1, 3])).contains(&"the events have no gap"));
        assert!(against(&with(&[2, 3])).contains(&"the events have no gap"));
    }

    #[test]
    fn failed_check_shows_its_evidence() {
        let check = Check {
            name: "it works",
            against: Some("it\u{1b}[2J does not".to_owned()),
        };
        assert_eq!(ui::plain(&check.to_text()), "✗ it works: it[2J does not");
        assert_eq!(check.to_json()["observed"], false);
    }
}
