//! What runners say. Late, repeated and impossible reports are void: they change nothing, and are acknowledged all the same.

use crate::domain::{
    budget,
    command::Report,
    event::{ConditionKind, Event, ThreadEvent},
    ids::{Generation, ReportSequence, ThreadId, Turn},
    session::Session,
    settings::RestartPolicy,
    status::{Settled, StatusKind, Step},
    thread::{LatestTurn, Thread},
    time::UnixMillis,
};

/// The events of a report, if it is of the present attempt, new, and legal.
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
            outcome,
            usage,
            output,
        } => {
            let ended = ThreadEvent::TurnEnded {
                turn: *turn,
                generation,
                outcome: outcome.clone(),
                usage: budget::at_turn_end(thread, usage, now),
                output: *output,
                report: sequence,
            };
            turn_ended(session, thread, *turn, outcome.kind(), ended)
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
        Report::Artifact(artifact) => vec![Event::Thread(
            id,
            ThreadEvent::ArtifactRecorded {
                artifact: artifact.clone(),
                generation,
                report: sequence,
            },
        )],
        Report::PolicyGap(gap)
            if thread
                .conditions
                .get(&ConditionKind::PolicyGap)
                .is_some_and(|(_, known)| known == gap) =>
        {
            Vec::new()
        }
        Report::PolicyGap(gap) => vec![Event::Thread(
            id,
            ThreadEvent::ConditionChanged {
                kind: ConditionKind::PolicyGap,
                active: true,
                reason: gap.clone(),
            },
        )],
    }
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

/// The program is gone. Under a fence that was asked for and the thread is closed; otherwise a turn that was under way failed.
fn stopped(session: &Session, thread: &Thread, detail: &str, report: ReportSequence, now: UnixMillis) -> Vec<Event> {
    if session.is_closing(thread.id) {
        return super::close::finish(session, thread.id, false);
    }
    if thread.turn.is_undispatched() || !thread.status.kind().is_active() {
        return Vec::new();
    }
    let message = format!("the agent program ended before its turn did: {detail}");
    vec![ended(thread, Settled::Errored { message, content: None }, report, now)]
}

/// The attempt is over without a word of its runner: by policy the thread is placed anew or settled.
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
        return super::close::finish(session, id, true);
    }
    if thread.interrupt.is_some() && !thread.turn.is_undispatched() {
        // It was to be stopped, and it has stopped.
        let reason = reason.to_owned();
        return vec![ended(
            thread,
            Settled::Interrupted { reason },
            ReportSequence::ZERO,
            now,
        )];
    }
    let started = matches!(thread.turn, LatestTurn::Running { .. });
    let restart = !started || session.settings.restart_policy == RestartPolicy::OnLost;
    match (&thread.runner, restart) {
        // A turn that never started costs nothing to hand out again: a new attempt on the same runner's name fences the
        // old one, and the next dispatch may choose another.
        (Some(runner), true) => vec![Event::Thread(
            id,
            ThreadEvent::Placed {
                runner: runner.clone(),
                generation: generation.next(),
            },
        )],
        (Some(_), false) => vec![failed(thread, reason, now)],
        (None, _) => Vec::new(),
    }
}

/// The dispatched turn cannot be started by anybody: the thread is settled.
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
                && !thread.turn.is_undispatched() =>
        {
            vec![failed(thread, message, now)]
        }
        Some(_) | None => Vec::new(),
    }
}

/// The latest turn failed, and no runner said so.
fn failed(thread: &Thread, message: &str, now: UnixMillis) -> Event {
    let message = message.to_owned();
    ended(
        thread,
        Settled::Errored { message, content: None },
        ReportSequence::ZERO,
        now,
    )
}

fn ended(thread: &Thread, outcome: Settled, report: ReportSequence, now: UnixMillis) -> Event {
    Event::Thread(
        thread.id,
        ThreadEvent::TurnEnded {
            turn: thread.turn.number(),
            generation: thread.generation,
            outcome,
            usage: budget::at_turn_end(thread, &thread.usage, now),
            output: None,
            report,
        },
    )
}
