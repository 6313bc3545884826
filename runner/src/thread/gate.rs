//! Asking the supervisor whether a tool may run. A question survives the stream that it was asked on; while the runner
//! is cut off, it waits.

use std::time::Duration;

use serde_json::Value;
use tokio::{sync::oneshot, time::timeout};
use troupe_proto::{
    reason::Reason,
    supervisor::v1::{ToolDecision, ToolRequest},
};
use uuid::Uuid;

use super::{News, Voice};
use crate::{questions::Question, tools::ToolFailure};

/// The longest arguments that can be asked for, in bytes of JSON.
const MAX_ARGUMENTS_BYTES: usize = 64 * 1024;
/// How long a decision may take: longer than an operator may take to approve.
const DECISION_LIMIT: Duration = Duration::from_secs(15 * 60);

impl Voice {
    /// Waits for leave to run a tool of that kind of program, which would write at these places.
    pub(super) async fn ask(
        &self,
        kind: &str,
        tool: &str,
        arguments: &Value,
        written: Vec<String>,
    ) -> Result<(), ToolFailure> {
        let arguments_json = arguments.to_string();
        if arguments_json.len() > MAX_ARGUMENTS_BYTES {
            let text = format!(
                "the arguments of {tool} have {} bytes; at most {MAX_ARGUMENTS_BYTES} are allowed",
                arguments_json.len()
            );
            return Err(ToolFailure::new(Reason::LimitExceeded, text));
        }
        let (answer, decision) = oneshot::channel();
        let request = ToolRequest {
            request_id: Uuid::now_v7().to_string(),
            thread_id: self.attempt.thread_id.clone(),
            generation: self.attempt.generation,
            tool: tool.to_owned(),
            arguments_json,
            runner_kind: kind.to_owned(),
            resolved_paths: written,
        };
        self.tell(News::Question(Question { request, answer })).await;
        match timeout(DECISION_LIMIT, decision).await {
            Ok(Ok(ToolDecision { allowed: true, .. })) => Ok(()),
            Ok(Ok(refused)) => Err(ToolFailure::new(Reason::ToolDenied, refused.reason)),
            Ok(Err(_)) => Err(ToolFailure::local("the thread is not wanted any more")),
            Err(_) => {
                let text = format!("the supervisor did not decide on {tool} within {DECISION_LIMIT:?}");
                Err(ToolFailure::new(Reason::DeadlineExceeded, text))
            }
        }
    }
}
