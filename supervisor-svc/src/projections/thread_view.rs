//! Threads as clients see them: the logged state, the latest telemetry and the availability of a runner.

use supervisor_core::{
    state::{session::Session, thread::Thread},
    status::StatusKind,
};
use troupe_proto::supervisor::v1 as pb;

use crate::{
    convert::{self, View},
    runners::{Need, RunnerHub, TelemetryBoard},
};

/// Builds the messages of threads. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ThreadView {
    telemetry: TelemetryBoard,
    hub: RunnerHub,
}

impl ThreadView {
    /// Creates a view with the values of these runners.
    #[must_use]
    pub const fn new(telemetry: TelemetryBoard, hub: RunnerHub) -> Self {
        Self { telemetry, hub }
    }

    /// Returns the message of a session's thread.
    #[must_use]
    pub fn show(&self, session: &Session, thread: &Thread, view: View) -> pb::Thread {
        let mut shown = convert::thread::thread(session, thread, view);
        convert::thread::add_telemetry(&mut shown, self.telemetry.of(session.id, thread.id).as_deref());
        view.redaction.tool_use(&mut shown.last_tool);
        let waits_for_runner = thread.status.kind() == StatusKind::PendingInit && thread.turn.awaits_dispatch();
        if waits_for_runner && let Some(reason) = self.hub.why_unplaceable(&Need::of(session, thread)) {
            shown.conditions.push(pb::Condition {
                kind: pb::ConditionKind::NoRunner.into(),
                since: shown.status.as_ref().and_then(|status| status.since),
                reason: reason.to_owned(),
            });
        }
        shown
    }
}
