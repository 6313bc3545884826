//! Orchestrators that completed a turn. The session maintains an index of them.

use crate::{
    event::ConditionKind,
    settings::EdgeManagement,
    state::thread::Thread,
    status::{Status, StatusKind},
};

/// The lines with which an orchestrator ends the loop: the goal is reached, or no progress is possible.
const MARKS: [&str; 2] = ["TROUPE_COMPLETE", "TROUPE_STALLED"];

/// Returns the first line of a message that is a mark and therefore ends the loop. Surrounding blanks are ignored.
pub(crate) fn completion_mark(message: &str) -> Option<&str> {
    message.lines().map(str::trim).find(|line| MARKS.contains(line))
}

impl Thread {
    /// Returns whether the thread is an orchestrator that completed its turn without a mark, is not stalled and has no
    /// queued input. Such a thread waits for input or for an automatic turn. The result depends on this thread only, so
    /// the session can maintain an index of it.
    #[must_use]
    pub fn is_idle_orchestrator(&self) -> bool {
        self.is_orchestrator()
            && self.status.kind() == StatusKind::Completed
            && self.pending_inputs.is_empty()
            && !self.conditions.contains_key(&ConditionKind::Stalled)
            && matches!(&self.status, Status::Settled(settled) if completion_mark(settled.last_word()).is_none())
    }

    /// Returns whether the thread has a graph template and may manage all edges, or has the role `orchestrator`.
    fn is_orchestrator(&self) -> bool {
        let spawned = &self.spawned;
        (spawned.role.is_graph() && spawned.edge_management == EdgeManagement::All)
            || spawned.role.agent_type == "orchestrator"
    }
}
