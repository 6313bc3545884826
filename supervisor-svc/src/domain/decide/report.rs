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
            if !thread.pending_inputs.iter().any(|input| input.number == *number) {
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
        Report::Stopped { detail } => stopped(session, thread, detail),
        Report::Artifact(artifact) => vec![Event::Thread(
            id,
            ThreadEvent::ArtifactRecorded {
                artifact: artifact.clone(),
                generation,
                report: sequence,
            },
        )],
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
    let is_latest = thread.turn.number() == turn;
    if !is_latest || super::step(thread, Step::Ended(kind), "end a turn").is_err() {
        return Vec::new();
    }
    let mut events = vec![Event::Thread(thread.id, ended)];
    // Input that came during the turn starts the next one; the slot that this one frees is its own.
    if !thread.pending_inputs.is_empty() && !session.is_closing(thread.id) && !session.paused {
        events.push(Event::Thread(thread.id, ThreadEvent::Admitted));
    }
    events
}

/// The program is gone. Under a fence that was asked for and the thread is closed; otherwise a turn that was under way failed.
fn stopped(session: &Session, thread: &Thread, detail: &str) -> Vec<Event> {
    if session.is_closing(thread.id) {
        return super::close::finish(session, thread.id, false);
    }
    let under_way = match &thread.turn {
        LatestTurn::Dispatched { turn, .. } | LatestTurn::Running { turn } if thread.status.kind().is_active() => *turn,
        LatestTurn::None | LatestTurn::Dispatched { .. } | LatestTurn::Running { .. } | LatestTurn::Ended { .. } => {
            return Vec::new();
        }
    };
    vec![errored(
        thread,
        under_way,
        format!("the agent program ended before its turn did: {detail}"),
    )]
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
        (Some(_), false) => vec![errored(thread, thread.turn.number(), reason.to_owned())],
        (None, _) => Vec::new(),
    }
}

/// The dispatched turn cannot be started by anybody: the thread is settled.
pub(super) fn refuse_start(session: &Session, id: ThreadId, generation: Generation, message: &str) -> Vec<Event> {
    match session.thread(id) {
        Some(thread) if thread.generation == generation && thread.status.kind() == StatusKind::PendingInit => {
            vec![errored(thread, thread.turn.number(), message.to_owned())]
        }
        Some(_) | None => Vec::new(),
    }
}

fn errored(thread: &Thread, turn: Turn, message: String) -> Event {
    Event::Thread(
        thread.id,
        ThreadEvent::TurnEnded {
            turn,
            generation: thread.generation,
            outcome: Settled::Errored { message, content: None },
            usage: thread.usage,
            output: None,
            report: ReportSequence::ZERO,
        },
    )
}
