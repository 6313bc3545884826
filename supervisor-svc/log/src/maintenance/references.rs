//! The contents that an event refers to.

use std::iter::once;

use supervisor_core::{
    content::ContentRef,
    event::{Event, SessionEvent, ThreadEvent},
    status::Settled,
};

/// Returns the contents that are stored with an event regardless of the session's settings. A resume stores no content:
/// the event that ended the thread's last turn has stored the last message.
pub(super) fn required(event: &Event) -> Vec<&ContentRef> {
    match event {
        Event::Session(SessionEvent::Opened(settings)) => settings.workspace.iter().collect(),
        Event::Session(SessionEvent::Updated(_) | SessionEvent::Closed) => Vec::new(),
        Event::Thread(_, event) => match event {
            ThreadEvent::Spawned(spawned) => spawned.role.resolved.iter().chain(&spawned.input).collect(),
            ThreadEvent::InputQueued { input, .. } => vec![input],
            ThreadEvent::ResultReported { result, .. } => vec![result],
            ThreadEvent::TurnEnded { outcome, .. } => message(outcome).into_iter().collect(),
            ThreadEvent::ArtifactRecorded { artifact, .. } => vec![&artifact.content],
            ThreadEvent::GroupCreated { spec, .. } => vec![&spec.plan],
            ThreadEvent::GroupEnded { table, .. } => vec![&table.content],
            ThreadEvent::ApprovalRequested { call, .. } => call.iter().map(|call| &call.content).collect(),
            ThreadEvent::HandoffSent(handoff) => once(&handoff.message).chain(&handoff.structured).collect(),
            // `prompt_blocks` returns the blocks of a dispatched turn.
            ThreadEvent::TurnDispatched { .. }
            | ThreadEvent::SpawnFailed { .. }
            | ThreadEvent::Admitted
            | ThreadEvent::Placed { .. }
            | ThreadEvent::TurnStarted { .. }
            | ThreadEvent::InputDelivered { .. }
            | ThreadEvent::InterruptRequested { .. }
            | ThreadEvent::NoteSet(_)
            | ThreadEvent::ConditionChanged { .. }
            | ThreadEvent::UsageRecorded { .. }
            | ThreadEvent::BudgetUpdated(_)
            | ThreadEvent::ToolDenied { .. }
            | ThreadEvent::CloseRequested(_)
            | ThreadEvent::Closed { .. }
            | ThreadEvent::Resumed(_)
            | ThreadEvent::EdgeCreated(_)
            | ThreadEvent::EdgeDeleted(_)
            | ThreadEvent::MailAcknowledged(_)
            | ThreadEvent::GroupUpdated { .. }
            | ThreadEvent::GroupItemEnded { .. }
            | ThreadEvent::GroupEnding { .. }
            | ThreadEvent::GroupRetried(_)
            | ThreadEvent::ApprovalResolved { .. } => Vec::new(),
        },
    }
}

/// Returns the prompt blocks that an event refers to. They are stored only if the session's `prompt_log` is FULL.
pub(super) fn prompt_blocks(event: &Event) -> impl Iterator<Item = &ContentRef> {
    let blocks = match event {
        Event::Thread(_, ThreadEvent::TurnDispatched { blocks, .. }) => blocks.as_slice(),
        Event::Session(_) | Event::Thread(..) => &[],
    };
    blocks.iter().map(|block| &block.content)
}

fn message(settled: &Settled) -> Option<&ContentRef> {
    match settled {
        Settled::Completed { content, .. } | Settled::Errored { content, .. } => content.as_ref(),
        Settled::Interrupted { .. } => None,
    }
}
