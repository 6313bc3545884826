//! Threads that get nowhere: their turns end with the same output again and again, or nothing is heard of a running one. Never
//! judged by prompts, which are often equal for a good reason.

use super::{
    event::ConditionKind,
    ids::Digest,
    session::Session,
    settings::StallRule,
    status::{Status, StatusKind},
    thread::{Repeated, Thread},
};

/// The row of equal outputs after a turn that ended like this. Only completed turns count; any other, and one whose output
/// nobody knows, ends the row.
#[must_use]
pub fn row_after(before: Option<Repeated>, outcome: StatusKind, output: Option<Digest>) -> Option<Repeated> {
    let output = output.filter(|_| outcome == StatusKind::Completed)?;
    let times = match before {
        Some(before) if before.output == output => before.times.saturating_add(1),
        Some(_) | None => 1,
    };
    Some(Repeated { output, times })
}

/// Whether a row of equal outputs is as long as the rule has it.
#[must_use]
pub fn is_stall(row: Option<Repeated>, rule: &StallRule) -> bool {
    rule.repeats > 0 && row.is_some_and(|row| row.times >= rule.repeats)
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
    thread.conditions.contains_key(&ConditionKind::Stalled) && !is_stall(thread.repeated, rule)
}

/// Whether a stall would be over by now: by silence it ends with the turn, by repetition with another output.
#[must_use]
pub fn is_over(thread: &Thread, rule: &StallRule) -> bool {
    let repeats = thread.status.kind().is_open() && is_stall(thread.repeated, rule);
    thread.status != Status::Running && !repeats
}
