//! Threads that get nowhere: their turns end with the same output or the same changes again and again, or nothing is heard of
//! a running one. Never judged by prompts, which are often equal for a good reason.

use super::{
    event::ConditionKind,
    ids::Digest,
    session::Session,
    settings::StallRule,
    status::{Status, StatusKind},
    thread::{Product, Repeated, Repetition, Thread},
};

/// What the latest turns have in common after one that ended like this. Only completed turns count; any other ends both rows,
/// and one whose output or changes nobody knows ends that row.
#[must_use]
pub fn repeated_after(before: Repeated, outcome: StatusKind, product: Product) -> Repeated {
    let row = |before: Option<Repetition>, digest: Option<Digest>| {
        let digest = digest.filter(|_| outcome == StatusKind::Completed)?;
        let times = match before {
            Some(before) if before.digest == digest => before.times.saturating_add(1),
            Some(_) | None => 1,
        };
        Some(Repetition { digest, times })
    };
    Repeated {
        output: row(before.output, product.output),
        diff: row(before.diff, product.diff),
    }
}

/// What makes a stall: the row that is as long as the rule has it, named for people.
#[must_use]
pub fn stalled_by(repeated: Repeated, rule: &StallRule) -> Option<&'static str> {
    let is_long = |row: Option<Repetition>| rule.repeats > 0 && row.is_some_and(|row| row.times >= rule.repeats);
    let rows = [("output", repeated.output), ("changes", repeated.diff)];
    rows.into_iter().find_map(|(name, row)| is_long(row).then_some(name))
}

/// Whether silence would be a sign: the thread has a runner to be heard through, and waits neither for others nor for an
/// operator.
#[must_use]
pub fn ought_to_be_heard(session: &Session, thread: &Thread) -> bool {
    thread.status == Status::Running
        && thread.holder().is_some()
        && !thread.conditions.contains_key(&ConditionKind::AwaitingToolApproval)
        && !session.waits.any_by(thread)
}

/// Whether it is silence that stalls the thread: then its next word is the end of it.
#[must_use]
pub fn is_by_silence(thread: &Thread, rule: &StallRule) -> bool {
    thread.conditions.contains_key(&ConditionKind::Stalled) && stalled_by(thread.repeated, rule).is_none()
}

/// Whether a stall would be over by now: by silence it ends with the turn, by repetition with something else.
#[must_use]
pub fn is_over(thread: &Thread, rule: &StallRule) -> bool {
    let repeats = thread.status.kind().is_open() && stalled_by(thread.repeated, rule).is_some();
    thread.status != Status::Running && !repeats
}
