//! Decisions: a command and the current state produce events or a rejection. Deciding has no side effects.

mod approval;
mod auto;
mod budget;
mod close;
mod condition;
mod dispatch;
mod edge;
mod evict;
pub mod group;
mod handoff;
mod input;
mod mail;
mod note;
mod report;
pub mod result;
mod resume;
mod settings;
pub mod spawn;
pub mod tick;
mod tool;

use crate::{
    command::Command,
    event::{Event, SessionEvent, ThreadEvent},
    rejection::Rejection,
    rules::{limits, mail as mailbox},
    state::{session::Session, thread::Thread},
    status::{StatusKind, Step},
    time::UnixMillis,
};

/// Returns the events of `command` in the current state. An empty list means that the command has no effect: the state
/// is already as requested, or the command is no longer relevant.
///
/// # Errors
/// The first check that fails, in the order of CONTRACT 3.1. Nothing must be recorded in this case.
pub fn decide(session: &Session, command: &Command, now: UnixMillis) -> Result<Vec<Event>, Rejection> {
    match command {
        Command::Spawn(spawn) => spawn::spawn(session, spawn, now),
        // A fenced thread records only its end.
        Command::FailSpawn { parent, .. } if session.is_closing(*parent) => Ok(Vec::new()),
        Command::FailSpawn {
            parent,
            agent_type,
            agent_name,
            reason,
            message,
        } => Ok(vec![Event::Thread(
            *parent,
            ThreadEvent::SpawnFailed {
                agent_type: agent_type.clone(),
                agent_name: agent_name.clone(),
                reason: reason.clone(),
                message: message.clone(),
            },
        )]),
        Command::SendInput {
            caller,
            target,
            input,
            urgency,
            on_limit,
            result_repairs,
        } => {
            let sent = input::Sent {
                input,
                urgency: *urgency,
                on_limit: *on_limit,
                result_repairs: *result_repairs,
            };
            input::send(session, caller, *target, &sent)
        }
        Command::Interrupt {
            caller,
            target,
            turn,
            only_this,
            reason,
        } => input::interrupt(session, caller, *target, *turn, *only_this, reason),
        Command::Close {
            caller,
            target,
            reason,
            cause,
            within,
            policy,
        } => {
            let fence = close::NewFence {
                reason,
                cause: *cause,
                deadline: now.plus(*within),
                policy: *policy,
            };
            close::request(session, caller, *target, fence)
        }
        Command::Resume { caller, target } => resume::resume(session, caller, *target, now),
        Command::ReportResult { caller, target, result } => result::report(session, caller, *target, result),
        Command::AskParent {
            caller,
            target,
            question,
        } => result::ask(session, caller, *target, question),
        Command::SetNote { caller, target, note } => note::set(session, caller, *target, note),
        Command::Dispatch(dispatch) => Ok(dispatch::dispatch(session, dispatch)),
        Command::Report {
            thread,
            generation,
            sequence,
            report,
        } => Ok(report::apply(session, *thread, *generation, *sequence, report, now)),
        Command::LoseRunner {
            thread,
            generation,
            reason,
        } => Ok(report::lose_runner(session, *thread, *generation, reason, now)),
        Command::RefuseStart {
            thread,
            generation,
            message,
        } => Ok(report::refuse_start(session, *thread, *generation, message, now)),
        Command::RefuseTurn {
            thread,
            generation,
            message,
        } => Ok(report::refuse_turn(session, *thread, *generation, message)),
        Command::FinishClose { thread, forced } => Ok(close::finish(session, *thread, *forced)),
        Command::UpdateSession(update) => settings::update(session, update),
        Command::UpdateBudget { caller, target, budget } => budget::update(session, caller, *target, *budget),
        Command::CreateEdge { caller, edge, approval } => edge::create(session, caller, edge, *approval, now),
        Command::DeleteEdge { caller, edge } => edge::delete(session, caller, *edge),
        Command::SendHandoff { caller, handoff } => handoff::send(session, caller, handoff),
        Command::AcknowledgeMail { caller, target, up_to } => mail::acknowledge(session, caller, *target, *up_to),
        Command::CreateGroup(new) => group::create(session, new, now),
        Command::UpdateGroup { caller, group, change } => group::update(session, caller, *group, *change),
        Command::CancelGroup { caller, group, reason } => group::cancel(session, caller, *group, reason),
        Command::RetryGroup { caller, group } => group::retry(session, caller, *group),
        Command::FailItem { item, reason } => Ok(group::fail_item(session, *item, reason)),
        Command::EndGroup { group, table } => Ok(group::end(session, *group, table)),
        Command::ResolveApproval {
            approval,
            grant,
            by,
            reason,
        } => approval::resolve(session, *approval, *grant, by, reason, now),
        Command::RequestToolApproval {
            thread,
            approval,
            subject,
            call,
        } => tool::request_approval(session, *thread, *approval, subject, call, now),
        Command::DenyTool {
            thread,
            tool,
            reason,
            count,
        } => Ok(tool::deny(session, *thread, tool, reason, *count)),
        Command::SetCondition {
            thread,
            generation,
            kind,
            active,
            reason,
        } => Ok(condition::set(session, *thread, *generation, *kind, *active, reason)),
        Command::RecordUsage {
            thread,
            generation,
            usage,
            price,
        } => Ok(budget::record_usage(
            session,
            *thread,
            *generation,
            usage,
            price.as_ref(),
            now,
        )),
        Command::AutoTurn { thread, input } => Ok(auto::next_turn(session, *thread, input)),
        Command::Tick => Ok(tick::pass(session, now)),
    }
}

/// Returns the consequences of the current state. Exhausted budgets stop their subtrees, approvals of closing threads
/// become moot, items and groups end, queued threads are admitted, mail wakes threads, and the session ends with its
/// root. Called after the events of each command are folded, until it returns no events.
#[must_use]
pub fn follow_ups(session: &Session) -> Vec<Event> {
    let stops = budget::enforce(session);
    if !stops.is_empty() {
        // The stops are returned alone. Otherwise a turn could start in the same append that stops it.
        return stops;
    }
    let mut events = approval::moot(session);
    events.extend(group::follow_ups(session));
    let mut admitted = limits::admissible(session);
    if admitted.is_empty() {
        // Queued threads are admitted before mail wakes other threads. A thread can be both queued and woken by mail.
        admitted = mailbox::woken(session);
    }
    events.extend(admitted.into_iter().map(|id| Event::Thread(id, ThreadEvent::Admitted)));
    let root_is_closed = session
        .root()
        .is_some_and(|root| root.status.kind() == StatusKind::Shutdown);
    if root_is_closed && !session.closed {
        events.push(Event::Session(SessionEvent::Closed));
    }
    events
}

/// Checks a step against the transition table.
fn step(thread: &Thread, step: Step, wanted: &'static str) -> Result<StatusKind, Rejection> {
    let status = thread.status.kind();
    status.after(step).ok_or(Rejection::IllegalTransition {
        thread: thread.id,
        status,
        wanted,
    })
}
