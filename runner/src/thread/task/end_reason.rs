//! The end of a program and of its thread.

use std::{path::Path, time::Duration};

use tokio_util::sync::CancellationToken;
use tracing::debug;
use troupe_proto::supervisor::v1::{ClosePolicy, ThreadStoppedReport};

use super::{EndReason, ThreadTask};
use crate::agent::{StopOrder, Stopped, TurnEnding};

impl ThreadTask {
    pub(super) fn program_gone(&mut self) {
        self.agent = None;
        self.has_prompt = false;
        self.usage.program_ended();
    }

    pub(super) async fn kill_program(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.stop(StopOrder::at_once()).await;
        }
        self.program_gone();
    }

    /// Stops the program and ends its turn. Returns the report of the stop, if the supervisor expects one.
    pub(super) async fn stop(&mut self, end_reason: EndReason) -> Option<ThreadStoppedReport> {
        let grace = match &end_reason {
            EndReason::Shutdown(order) if order.policy == ClosePolicy::Kill => Duration::ZERO,
            EndReason::Shutdown(order) => order.grace,
            EndReason::Abandoned => self.timing.stop_grace,
        };
        let stopped = self.stop_program(grace).await;
        self.program_gone();
        self.next_turn = None;
        match end_reason {
            EndReason::Shutdown(order) => {
                self.end_turn(TurnEnding::Interrupted, order.reason).await;
                Some(ThreadStoppedReport {
                    detail: stopped.detail,
                    killed: stopped.killed,
                })
            }
            EndReason::Abandoned => None,
        }
    }

    /// Stops the program. An order to kill the program is still obeyed during the stop.
    pub(super) async fn stop_program(&mut self, grace: Duration) -> Stopped {
        let Some(agent) = self.agent.take() else {
            return Stopped {
                detail: "the program was not running".to_owned(),
                killed: false,
            };
        };
        let kill = CancellationToken::new();
        let mut stopping = agent.stop(StopOrder {
            grace,
            kill: kill.clone(),
        });
        loop {
            tokio::select! {
                stopped = &mut stopping => return stopped,
                () = self.inbox.killed() => kill.cancel(),
            }
        }
    }
}

pub(super) async fn remove_scratch(scratch: &Path) {
    if let Err(error) = tokio::fs::remove_dir_all(scratch).await {
        debug!(path = %scratch.display(), %error, "a scratch directory was not removed");
    }
}
