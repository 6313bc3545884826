//! The AuthorizeTool handler. It runs before every tool call of an agent, so a permitted call only reads the published
//! state.

use serde::de::IgnoredAny;
use tonic::{Request, Status};
use troupe_proto::supervisor::v1 as pb;

use super::{SupervisorService, call::Call, parse, status::refused};
use crate::{domain::{ids::ThreadId, rejection::GuardedVerb, rules::{approval::{APPROVAL_TIMEOUT, DECIDED_WITHIN}, authority, authorize::MAX_PATHS}, state::session::Session}, use_cases::tool_decision::{self, ARGUMENTS_BYTES, AskedCall, KnownBy}};

impl SupervisorService {
    pub(super) async fn authorize(
        &self,
        request: Request<pb::AuthorizeToolRequest>,
    ) -> Result<pb::AuthorizeToolResponse, Status> {
        let call = Call::of(&request)?;
        let request = request.into_inner();
        check_call(&request)?;
        let named = check::optional_id("thread_id", &request.thread_id)?;
        let handle = self
            .session_for(&call, &request.session_id, named, GuardedVerb::Act)
            .await?;
        let target = Self::thread_or_own(&call, &handle, named)?;
        let state = handle.state();
        authority::authorize(&state, &call.caller, "AuthorizeTool", target).map_err(refused)?;
        let asked_for = match check::span("wait", request.wait)?.unwrap_or_default() {
            // A caller that waits for the full approval timeout receives the decision.
            long if long >= APPROVAL_TIMEOUT => DECIDED_WITHIN,
            short => short,
        };
        // A thread does not choose the kind that its own call is judged by.
        let runner_kind = match &call.token {
            Some(_) => String::new(),
            None => request.runner_kind,
        };
        let asked = AskedCall {
            confined: self.confines(&state, target, &runner_kind),
            docs_only: false,
            tool: request.tool,
            arguments: request.arguments_json,
            request: None,
            unredacted: None,
            omitted_bytes: 0,
            known_by: KnownBy::Content,
            runner_kind,
            paths: request.resolved_paths,
        };
        let decided = tool_calls::decide(
            self.directory.context(),
            &handle,
            target,
            &asked,
            call.origin(""),
            self.patience(call.deadline, asked_for),
        )
        .await?;
        let refused = decided.answer.refusal();
        Ok(pb::AuthorizeToolResponse {
            allowed: refused.is_none(),
            reason: refused.unwrap_or_default(),
            approval_id: decided.approval.map(|id| id.to_string()).unwrap_or_default(),
        })
    }

    /// Returns whether the thread's runner confines what it executes. Without a kind, the result is the confinement
    /// that all of the runner's kinds provide.
    fn confines(&self, state: &Session, id: ThreadId, kind: &str) -> bool {
        let runner = state.thread(id).and_then(|thread| thread.runner.as_ref());
        let Some((runner, thread)) = runner.zip(state.thread(id)) else {
            return false;
        };
        let kind = Some(kind).filter(|kind| !kind.is_empty());
        self.directory.context().runners.confines(runner, kind, thread.sandbox)
    }
}

fn check_call(request: &pb::AuthorizeToolRequest) -> Result<(), Status> {
    if request.tool.is_empty() {
        return Err(check::bad("tool", "tool is required"));
    }
    check::text("tool", &request.tool, check::REASON_BYTES)?;
    check::text("runner_kind", &request.runner_kind, check::NAME_BYTES)?;
    if request.arguments_json.len() > ARGUMENTS_BYTES {
        let text = format!(
            "arguments_json has {} bytes; at most {ARGUMENTS_BYTES} are allowed",
            request.arguments_json.len()
        );
        return Err(check::bad("arguments_json", text));
    }
    // A call without arguments may leave the field empty.
    if !request.arguments_json.is_empty()
        && let Err(error) = serde_json::from_str::<IgnoredAny>(&request.arguments_json)
    {
        let text = format!("arguments_json is not valid JSON: {error}; send the arguments as one JSON value");
        return Err(check::bad("arguments_json", text));
    }
    if request.resolved_paths.len() > MAX_PATHS {
        let text = format!(
            "{} resolved_paths; at most {MAX_PATHS} are allowed",
            request.resolved_paths.len()
        );
        return Err(check::bad("resolved_paths", text));
    }
    request
        .resolved_paths
        .iter()
        .try_for_each(|path| check::directory("resolved_paths", path))
}
