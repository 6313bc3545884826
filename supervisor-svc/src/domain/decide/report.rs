//! What runners say. Late, repeated and impossible reports are void: they change nothing, and are acknowledged all the same.

use crate::domain::{
    command::Report,
    event::{ConditionKind, Event, ThreadEvent},
    ids::{Generation, ReportSequence, ThreadId, Turn},
    session::Session,
    settings::RestartPolicy,
    status::{Settled, StatusKind, Step},
    thread::{LatestTurn, Thread},
};

/// The events of a report, if it is of the present attempt, new, and legal.
pub(super) fn apply(
    session: &Session,
    id: ThreadId,
    generation: Generation,
    sequence: ReportSequence,
    report: &Report,
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
                usage: *usage,
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
        Report::Stopped { detail } => stopped(session, thread, detail, sequence),
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
    let mut events = and_next(session, thread, Event::Thread(thread.id, ended));
    if kind == StatusKind::Completed {
        events.extend(super::mail::read_by_turn(session, thread));
    }
    events
}

/// A turn's end, and the next turn's beginning if input came meanwhile: the slot that the one frees is the other's.
fn and_next(session: &Session, thread: &Thread, end: Event) -> Vec<Event> {
    let goes_on = !thread.pending_inputs.is_empty() && !session.is_closing(thread.id) && !session.paused;
    let next = goes_on.then_some(Event::Thread(thread.id, ThreadEvent::Admitted));
    [end].into_iter().chain(next).collect()
}

/// The program is gone. Under a fence that was asked for and the thread is closed; otherwise a turn that was under way failed.
fn stopped(session: &Session, thread: &Thread, detail: &str, report: ReportSequence) -> Vec<Event> {
    if session.is_closing(thread.id) {
        return super::close::finish(session, thread.id, false);
    }
    if thread.turn.is_undispatched() || !thread.status.kind().is_active() {
        return Vec::new();
    }
    let message = format!("the agent program ended before its turn did: {detail}");
    let end = ended(thread, Settled::Errored { message, content: None }, report);
    and_next(session, thread, end)
}

/// The attempt is over without a word of its runner: by policy the thread is placed anew or settled.
pub(super) fn lose_runner(session: &Session, id: ThreadId, generation: Generation, reason: &str) -> Vec<Event> {
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
        let end = ended(thread, Settled::Interrupted { reason }, ReportSequence::ZERO);
        return and_next(session, thread, end);
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
        (Some(_), false) => and_next(session, thread, failed(thread, reason)),
        (None, _) => Vec::new(),
    }
}

/// The dispatched turn cannot be started by anybody: the thread is settled.
pub(super) fn refuse_start(session: &Session, id: ThreadId, generation: Generation, message: &str) -> Vec<Event> {
    match session.thread(id) {
        Some(thread)
            if thread.generation == generation
                && thread.status.kind() == StatusKind::PendingInit
                && !thread.turn.is_undispatched() =>
        {
            and_next(session, thread, failed(thread, message))
        }
        Some(_) | None => Vec::new(),
    }
}

/// The latest turn failed, and no runner said so.
fn failed(thread: &Thread, message: &str) -> Event {
    let message = message.to_owned();
    ended(
        thread,
        Settled::Errored { message, content: None },
        ReportSequence::ZERO,
    )
}

fn ended(thread: &Thread, outcome: Settled, report: ReportSequence) -> Event {
    Event::Thread(
        thread.id,
        ThreadEvent::TurnEnded {
            turn: thread.turn.number(),
            generation: thread.generation,
            outcome,
            usage: thread.usage,
            output: None,
            report,
        },
    )
}
