//! Runner reports. Late, repeated and impossible reports change nothing, but are still acknowledged.

use super::{
    close, condition,
    result::{self, Verdict},
};
use crate::{
    command::Report,
    effect::{self, PendingEffect},
    event::{CloseCause, ConditionKind, Event, OutputDigests, ThreadEvent},
    ids::{Generation, ReportSequence, ThreadId, Turn},
    rules::{budget, cascade::CASCADE_DEADLINE, limits, stall},
    settings::{RestartPolicy, SlotRelease, Usage},
    state::{
        session::Session,
        thread::{LatestTurn, Thread},
    },
    status::{Settled, StatusKind, Step},
    time::UnixMillis,
};

/// Returns the events of a report if it belongs to the current attempt, is new, and is legal.
pub(super) fn apply(
    session: &Session,
    id: ThreadId,
    generation: Generation,
    sequence: ReportSequence,
    report: &Report,
    now: UnixMillis,
) -> Vec<Event> {
    let Some(thread) = session.thread(id) else {
        return Vec::new();
    };
    if thread.generation != generation || sequence <= thread.last_report {
        return Vec::new();
    }
    match report {
        Report::TurnStarted { turn } => turn_started(session, thread, *turn, sequence),
        Report::TurnEnded {
            turn,
            usage,
            price,
            runner_stopped: true,
            ..
        } if restarts_when_stopped(session, thread, *turn) => {
            let known = super::budget::record_usage(session, id, generation, usage, price.as_ref(), now);
            let lost = lose_runner(session, id, generation, "its runner was stopped", now);
            known.into_iter().chain(lost).collect()
        }
        Report::TurnEnded {
            turn,
            outcome,
            usage,
            price,
            digests,
            runner_stopped: _,
            result,
        } => {
            let verdict = match outcome {
                Settled::Completed { .. } => result::judge(session, thread, result.as_deref()),
                Settled::Errored { .. } | Settled::Interrupted { .. } => Verdict::None,
            };
            let outcome = match &verdict {
                Verdict::Failed(failed) => failed.clone(),
                Verdict::None | Verdict::Reported(_) | Verdict::Repair(_) => {
                    with_requested_reason(thread, *turn, outcome)
                }
            };
            let kind = outcome.kind();
            let ended = ThreadEvent::TurnEnded {
                turn: *turn,
                generation,
                outcome,
                usage: budget::at_turn_end(session, thread, usage, price.as_ref(), now),
                digests: Box::new(*digests),
                result_repair: matches!(verdict, Verdict::Repair(_)),
                report: sequence,
            };
            let ended = turn_ended(session, thread, *turn, kind, ended);
            if ended.is_empty() {
                return ended;
            }
            let (reported, repair) = match verdict {
                Verdict::Reported(event) => (Some(event), None),
                Verdict::Repair(event) => (None, Some(event)),
                Verdict::None | Verdict::Failed(_) => (None, None),
            };
            let mut events: Vec<Event> = reported.into_iter().chain(ended).collect();
            events.extend(repetition(session, thread, kind, *digests));
            // If slots are held until the thread closes, the repair turn keeps the thread's slot and does not wait in
            // the queue.
            let keeps_slot =
                session.settings.slot_release == SlotRelease::Close && session.holding().contains(&thread.id);
            let admitted = repair.is_some() && keeps_slot;
            events.extend(repair);
            events.extend(admitted.then_some(Event::Thread(id, ThreadEvent::Admitted)));
            events
        }
        Report::InputDelivered { number, turn } => {
            let runs = matches!(&thread.turn, LatestTurn::Running { turn: running, .. } if running == turn);
            let fenced = session.is_closing(id);
            if !runs || fenced || !thread.pending_inputs.iter().any(|input| input.number == *number) {
                return Vec::new();
            }
            vec![Event::Thread(
                id,
                ThreadEvent::InputDelivered {
                    number: *number,
                    turn: *turn,
                    generation,
                    report: sequence,
                },
            )]
        }
        Report::Stopped { detail } => stopped(session, thread, detail, sequence, now),
        Report::Artifact(_) if session.is_closing(id) => Vec::new(),
        Report::Artifact(artifact) if artifact.turn == Turn::ZERO || artifact.turn > thread.turn.number() => Vec::new(),
        Report::Artifact(artifact) => vec![Event::Thread(
            id,
            ThreadEvent::ArtifactRecorded {
                artifact: artifact.clone(),
                generation,
                report: sequence,
            },
        )],
        Report::PolicyGap(gap) => reported_condition(thread, ConditionKind::PolicyGap, gap),
        Report::ContextLost(reason) => reported_condition(thread, ConditionKind::ContextLost, reason),
    }
}

/// Applies a condition that the runner reports. An unchanged condition produces no event.
fn reported_condition(thread: &Thread, kind: ConditionKind, reason: &str) -> Vec<Event> {
    let is_known = |(_, known): &(_, String)| known == reason;
    if thread.conditions.get(&kind).is_some_and(is_known) {
        return Vec::new();
    }
    vec![condition::changed(thread.id, kind, true, reason.to_owned())]
}

fn turn_started(session: &Session, thread: &Thread, turn: Turn, report: ReportSequence) -> Vec<Event> {
    let is_due = matches!(&thread.turn, LatestTurn::Dispatched { turn: dispatched, .. } if *dispatched == turn);
    if !is_due || session.is_closing(thread.id) || super::step(thread, Step::Started, "start a turn").is_err() {
        return Vec::new();
    }
    vec![Event::Thread(
        thread.id,
        ThreadEvent::TurnStarted {
            turn,
            generation: thread.generation,
            report,
        },
    )]
}

/// Returns whether the restart policy restarts a turn on another runner after the old runner was stopped and
/// interrupted the turn.
fn restarts_when_stopped(session: &Session, thread: &Thread, turn: Turn) -> bool {
    let is_running = matches!(&thread.turn, LatestTurn::Running { turn: running, .. } if *running == turn);
    is_running
        && session.settings.restart_policy == RestartPolicy::OnLost
        && thread.interrupt.is_none()
        && !session.is_closing(thread.id)
}

/// Returns the outcome of a turn. An interrupted turn with a stop request gets the reason of the request.
fn with_requested_reason(thread: &Thread, turn: Turn, outcome: &Settled) -> Settled {
    match (outcome, &thread.interrupt) {
        (Settled::Interrupted { .. }, Some(interrupt)) if interrupt.turn == turn && !interrupt.reason.is_empty() => {
            Settled::Interrupted {
                reason: interrupt.reason.clone(),
            }
        }
        _ => outcome.clone(),
    }
}

fn turn_ended(session: &Session, thread: &Thread, turn: Turn, kind: StatusKind, ended: ThreadEvent) -> Vec<Event> {
    if !thread.has_under_way(turn) || super::step(thread, Step::Ended(kind), "end a turn").is_err() {
        return Vec::new();
    }
    let mut events = vec![Event::Thread(thread.id, ended)];
    if kind == StatusKind::Completed {
        events.extend(super::mail::read_by_turn(session, thread));
    }
    events
}

/// Returns the event that marks the thread as stalled if this turn completes a long enough run of equal turns.
fn repetition(session: &Session, thread: &Thread, outcome: StatusKind, digests: OutputDigests) -> Option<Event> {
    let rule = &session.settings.stall;
    let what = stall::stalled_by(stall::repeated_after(thread.repeated, outcome, digests), rule)?;
    let is_known =
        stall::stalled_by(thread.repeated, rule).is_some() && thread.conditions.contains_key(&ConditionKind::Stalled);
    (!is_known && !session.is_closing(thread.id)).then(|| {
        let reason = format!("its last {} turns had the same {what}", rule.repeats);
        condition::changed(thread.id, ConditionKind::Stalled, true, reason)
    })
}

/// Handles the end of the program. A thread that was asked to stop under a fence is closed. Otherwise the turn in
/// flight failed.
fn stopped(session: &Session, thread: &Thread, detail: &str, report: ReportSequence, now: UnixMillis) -> Vec<Event> {
    if session.is_closing(thread.id) {
        return close::finish(session, thread.id, false);
    }
    if thread.turn.awaits_dispatch() || !thread.status.kind().is_active() {
        return Vec::new();
    }
    let message = format!("the agent program ended before its turn did: {detail}");
    vec![ended(
        session,
        thread,
        Settled::Errored { message, content: None },
        report,
        now,
    )]
}

/// Ends an attempt whose runner is lost. By policy, the thread is placed again or settled. A thread that exceeds the
/// restart intensity is closed.
pub(super) fn lose_runner(
    session: &Session,
    id: ThreadId,
    generation: Generation,
    reason: &str,
    now: UnixMillis,
) -> Vec<Event> {
    let Some(thread) = session.thread(id) else {
        return Vec::new();
    };
    if thread.generation != generation || !thread.status.kind().is_active() {
        return Vec::new();
    }
    if session.is_closing(id) {
        return close::finish(session, id, true);
    }
    // An attempt without a dispatched turn is not affected by the loss of its runner.
    let Some(runner) = thread.holder().filter(|_| !thread.turn.awaits_dispatch()) else {
        return Vec::new();
    };
    if thread.interrupt.is_some() {
        // The loss of the runner has ended the turn for which a stop was requested.
        let reason = reason.to_owned();
        return vec![ended(
            session,
            thread,
            Settled::Interrupted { reason },
            ReportSequence::ZERO,
            now,
        )];
    }
    let started = matches!(thread.turn, LatestTurn::Running { .. });
    match session.settings.restart_policy {
        RestartPolicy::Never if started => vec![failed(session, thread, reason, now)],
        RestartPolicy::OnLost if started && limits::restarts_are_spent(thread, now) => {
            vec![restarted_too_often(thread, reason, now)]
        }
        // A turn that never started can be dispatched again at no cost. The placement names the old runner but has a
        // new generation, which fences off that runner. No runner has the new generation yet, so the next runner takes
        // this generation without another increment.
        RestartPolicy::Never | RestartPolicy::OnLost => vec![Event::Thread(
            id,
            ThreadEvent::Placed {
                runner: runner.clone(),
                generation: generation.next(),
            },
        )],
    }
}

fn restarted_too_often(thread: &Thread, reason: &str, now: UnixMillis) -> Event {
    let reason = format!(
        "restart intensity exceeded: {} restarts within {} s, and then {reason}",
        limits::MAX_RESTARTS_IN_WINDOW,
        limits::RESTART_WINDOW.as_secs()
    );
    let fence = close::NewFence {
        reason: &reason,
        cause: CloseCause::Intensity,
        deadline: now.plus(CASCADE_DEADLINE),
        policy: None,
    };
    close::fenced(thread, &fence)
}

/// Settles the thread because no runner can start the dispatched turn.
pub(super) fn refuse_start(
    session: &Session,
    id: ThreadId,
    generation: Generation,
    message: &str,
    now: UnixMillis,
) -> Vec<Event> {
    match session.thread(id) {
        Some(thread)
            if thread.generation == generation
                && thread.status.kind() == StatusKind::PendingInit
                && !thread.turn.awaits_dispatch() =>
        {
            vec![failed(session, thread, message, now)]
        }
        Some(_) | None => Vec::new(),
    }
}

/// Settles the thread because the pending turn cannot be dispatched. Its input stays queued until new input arrives.
pub(super) fn refuse_turn(session: &Session, id: ThreadId, generation: Generation, message: &str) -> Vec<Event> {
    let is_pending = matches!(effect::pending_effect(session, id), Some(PendingEffect::Turn { .. }));
    let Some(thread) = session
        .thread(id)
        .filter(|thread| is_pending && thread.generation == generation)
    else {
        return Vec::new();
    };
    let message = message.to_owned();
    vec![super::input::never_dispatched(
        thread,
        Settled::Errored { message, content: None },
    )]
}

/// Returns the failure of the latest turn when no runner reported it.
fn failed(session: &Session, thread: &Thread, message: &str, now: UnixMillis) -> Event {
    let message = message.to_owned();
    ended(
        session,
        thread,
        Settled::Errored { message, content: None },
        ReportSequence::ZERO,
        now,
    )
}

fn ended(session: &Session, thread: &Thread, outcome: Settled, report: ReportSequence, now: UnixMillis) -> Event {
    let unreported = Usage {
        cost: 0,
        ..thread.usage
    };
    Event::Thread(
        thread.id,
        ThreadEvent::TurnEnded {
            turn: thread.turn.number(),
            generation: thread.generation,
            outcome,
            usage: budget::at_turn_end(session, thread, &unreported, None, now),
            digests: Box::default(),
            result_repair: false,
            report,
        },
    )
}
