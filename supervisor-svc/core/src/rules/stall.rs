//! Detection of stalled threads: consecutive turns with the same output or file changes, or a running turn without
//! reports. Prompts are not compared, because they are often equal for good reasons.

use crate::{
    event::{ConditionKind, OutputDigests},
    ids::Digest,
    settings::StallRule,
    state::{
        session::Session,
        thread::{Repeated, Repetition, Thread},
    },
    status::{Status, StatusKind},
};

/// Returns the runs of equal turns after a turn with this outcome. Only completed turns count. Any other outcome ends
/// both runs, and an unknown output or unknown changes end the respective run.
#[must_use]
pub fn repeated_after(before: Repeated, outcome: StatusKind, digests: OutputDigests) -> Repeated {
    let row = |before: Option<Repetition>, digest: Option<Digest>| {
        let digest = digest.filter(|_| outcome == StatusKind::Completed)?;
        let times = match before {
            Some(before) if before.digest == digest => before.times.saturating_add(1),
            Some(_) | None => 1,
        };
        Some(Repetition { digest, times })
    };
    Repeated {
        output: row(before.output, digests.output),
        diff: row(before.diff, digests.diff),
    }
}

/// Returns a human-readable reason for a stall if a run is as long as the rule requires.
#[must_use]
pub fn stalled_by(repeated: Repeated, rule: &StallRule) -> Option<&'static str> {
    let is_long = |row: Option<Repetition>| rule.repeats > 0 && row.is_some_and(|row| row.times >= rule.repeats);
    let rows = [("output", repeated.output), ("changes", repeated.diff)];
    rows.into_iter().find_map(|(name, row)| is_long(row).then_some(name))
}

/// Returns whether silence indicates a stall: the thread has a reachable runner, and waits neither for other threads
/// nor for an operator.
#[must_use]
pub fn is_report_expected(session: &Session, thread: &Thread) -> bool {
    thread.status == Status::Running
        && thread.holder().is_some()
        && !thread.conditions.contains_key(&ConditionKind::AwaitingToolApproval)
        && !session.waits.any_by(thread)
}

/// Returns whether the thread is stalled because of silence. The next report then ends the stall.
#[must_use]
pub fn is_by_silence(thread: &Thread, rule: &StallRule) -> bool {
    thread.conditions.contains_key(&ConditionKind::Stalled) && stalled_by(thread.repeated, rule).is_none()
}

/// Returns whether a stall has ended. A stall by silence ends when the turn ends. A stall by repetition ends when a
/// turn breaks the run, or when the thread closes.
#[must_use]
pub fn is_over(thread: &Thread, rule: &StallRule) -> bool {
    let repeats = thread.status.kind().is_open() && stalled_by(thread.repeated, rule).is_some();
    thread.status != Status::Running && !repeats
}
