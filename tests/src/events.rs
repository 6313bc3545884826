//! Reading a session's log.

use std::collections::BTreeMap;

use troupe_proto::supervisor::v1::{ApprovalDecision, Event, StatusKind, TurnOutcome, event::Kind};

/// Returns the name of an event's kind, such as `ThreadSpawned`.
#[must_use]
pub fn name(event: &Event) -> String {
    let shown = format!("{:?}", event.kind.as_ref().unwrap());
    shown.split('(').next().unwrap_or_default().to_owned()
}

/// Returns the names of the events' kinds, in order.
pub fn names<'e>(events: impl IntoIterator<Item = &'e Event>) -> Vec<String> {
    events.into_iter().map(name).collect()
}

/// Returns the events of one thread.
#[must_use]
pub fn about(events: &[Event], thread: &str) -> Vec<Event> {
    events
        .iter()
        .filter(|event| event.thread_id == thread)
        .cloned()
        .collect()
}

/// Returns the closed threads, in the order of their closing.
#[must_use]
pub fn closed(events: &[Event]) -> Vec<&str> {
    events
        .iter()
        .filter(|event| matches!(event.kind, Some(Kind::ThreadClosed(_))))
        .map(|event| event.thread_id.as_str())
        .collect()
}

/// Checks that the sequences of a log count from 1 without a gap and that its times do not decrease.
///
/// # Panics
///
/// If the check fails.
#[track_caller]
pub fn assert_whole(events: &[Event]) {
    let numbers: Vec<u64> = events.iter().map(|event| event.sequence).collect();
    let expected: Vec<u64> = (1..).take(events.len()).collect();
    assert_eq!(numbers, expected, "the log has a gap");
    let times = events.iter().map(|event| {
        let time = event.time.as_ref().unwrap();
        (time.seconds, time.nanos)
    });
    assert!(times.is_sorted(), "the log's time goes back");
}

/// Returns the status of each thread, derived from the events alone.
///
/// # Panics
///
/// If an event is not a legal transition.
#[must_use]
pub fn statuses(events: &[Event]) -> BTreeMap<String, StatusKind> {
    let mut statuses = BTreeMap::new();
    for event in events {
        let kind = event.kind.as_ref().unwrap();
        let from = statuses.get(&event.thread_id).copied();
        if let Some((is_legal, to)) = step(from, kind) {
            assert!(is_legal, "illegal transition from {from:?} to {to:?}: {event:?}");
            statuses.insert(event.thread_id.clone(), to);
        }
    }
    statuses
}

/// Returns whether an event is legal in the current status, and the status after it; `None` if it changes no status.
fn step(from: Option<StatusKind>, kind: &Kind) -> Option<(bool, StatusKind)> {
    use StatusKind::{AwaitingApproval, Completed, Errored, Interrupted, PendingInit, Queued, Running, Shutdown};
    let present = from.unwrap_or(StatusKind::Unspecified);
    let is_settled = matches!(present, Completed | Errored | Interrupted);
    let is_active = matches!(present, PendingInit | Running);
    Some(match kind {
        Kind::ThreadSpawned(spawned) => (from.is_none(), spawned.first_status()),
        Kind::ThreadAdmitted(_) => (is_settled || present == Queued, PendingInit),
        Kind::ThreadPlaced(_) => (is_active, PendingInit),
        Kind::TurnDispatched(_) => (present == PendingInit, PendingInit),
        Kind::TurnStarted(_) => (present == PendingInit, Running),
        Kind::TurnEnded(ended) => {
            let to = match ended.outcome() {
                TurnOutcome::Completed => Completed,
                TurnOutcome::Errored => Errored,
                TurnOutcome::Interrupted => Interrupted,
                TurnOutcome::Unspecified => StatusKind::Unspecified,
            };
            (is_active || present == Queued, to)
        }
        Kind::InputQueued(_) if is_settled => (true, Queued),
        Kind::InputQueued(_) => (is_active || matches!(present, Queued | AwaitingApproval), present),
        Kind::ApprovalResolved(resolved)
            if present == AwaitingApproval && resolved.decision() == ApprovalDecision::Granted =>
        {
            (true, Queued)
        }
        Kind::ThreadClosed(_) => (from.is_some() && present != Shutdown, Shutdown),
        Kind::ThreadResumed(resumed) => (present == Shutdown, resumed.status.as_ref().unwrap().kind()),
        _ => return None,
    })
}
