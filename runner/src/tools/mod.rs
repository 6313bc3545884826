//! Executes the supervisor's tools for agents, with the token of the calling thread. The supervisor rejects calls that
//! the thread is not permitted to make, and the agent receives its error text.

mod answers;
mod args;
mod node;

use std::{future::Future, time::Duration};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use svc_kit::{
    lost,
    trace_context::{self, TraceParent},
};
use tokio::time::{Instant, sleep};
use tonic::{Code, Request, Response, Status, transport::Channel};
use troupe_proto::{
    MAX_MESSAGE_BYTES,
    fault::{metadata_of, reason_of, retry_after},
    reason::Reason,
    supervisor::v1::{
        AppendTranscriptRequest, AskParentRequest, CloseAgentRequest, CreateEdgeRequest, CreateGroupRequest,
        DescribeToolsRequest, GetGroupRequest, GetThreadRequest, ListActiveAgentsRequest, ListGroupItemsRequest,
        ListScope, ListSpawnableAgentsRequest, ListTranscriptRequest, ReportResultRequest, ResumeAgentRequest,
        SendHandoffRequest, SendInputRequest, SetThreadNoteRequest, SpawnAgentRequest, Thread, ToolDescription,
        TranscriptEntry, WaitAgentsRequest, WaitMode, agent_supervisor_service_client::AgentSupervisorServiceClient,
    },
};
use uuid::Uuid;

use crate::{backoff, bearer::Bearer, redact::MAX_NAME_CHARS, text::one_line, tool_line::ToolCall};

/// Time limit of an ordinary call, including its retries.
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// Time limit for an operator's decision on a call. It is longer than the lifetime of an approval.
pub(crate) const DECISION_LIMIT: Duration = Duration::from_secs(7 * 24 * 60 * 60 + 5 * 60);
/// Time limit of a call that waits, in addition to the timeout of the wait.
const WAIT_MARGIN: Duration = Duration::from_secs(15);
/// Maximum retry delay that the supervisor may request.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);
/// Maximum number of pages of a list.
const MAX_PAGES: usize = 10;
/// Maximum number of a group's items in an answer. The group's artifact contains all of them.
const MAX_GROUP_ITEMS: i32 = 200;

type Client = AgentSupervisorServiceClient<Channel>;

/// The result of a tool call.
pub(crate) type ToolAnswer = Result<Value, ToolFailure>;

/// Returns an answer as JSON for the agent.
pub(crate) fn answer_text(answer: &ToolAnswer) -> String {
    match answer {
        Ok(value) => value.to_string(),
        Err(failure) => failure.to_json().to_string(),
    }
}

/// The verb in permission errors for all operations except closing.
const ACT_ON: &str = "act on";

/// The failure of a tool call, as text for the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToolFailure {
    text: String,
    /// The stable reason. `None`: the API defines none for this failure.
    reason: Option<Reason>,
    /// The tool's output before it failed. May be empty.
    output: String,
}

impl ToolFailure {
    pub(crate) fn new(reason: Reason, text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            reason: Some(reason),
            output: String::new(),
        }
    }

    /// Returns a failure on the runner's machine, for which the API defines no reason.
    pub(crate) fn local(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            reason: None,
            output: String::new(),
        }
    }

    /// Returns the text for the agent.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the stable reason. `None`: the API defines none for this failure.
    pub(crate) const fn reason(&self) -> Option<Reason> {
        self.reason
    }

    pub(crate) fn with_output(mut self, output: String) -> Self {
        self.output = output;
        self
    }

    pub(crate) fn unsupported(tool: &str) -> Self {
        Self::bad_arguments(format!("unsupported tool: {}", one_line(tool, MAX_NAME_CHARS)))
    }

    pub(crate) fn bad_arguments(text: impl Into<String>) -> Self {
        Self::new(Reason::InvalidArgument, text)
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut value = json!({"error": self.text});
        if let Some(reason) = self.reason {
            value["reason"] = reason.as_str().into();
        }
        if !self.output.is_empty() {
            value["output"] = self.output.as_str().into();
        }
        value
    }
}

impl From<Status> for ToolFailure {
    fn from(status: Status) -> Self {
        // A status that does not come from the supervisor may have no message.
        let text = match status.message() {
            "" => status.code().description(),
            message => message,
        };
        Self {
            text: text.to_owned(),
            reason: reason_of(&status),
            output: String::new(),
        }
    }
}

/// Returns the schema of a tool's arguments. For an unreadable schema, returns one that permits any object, because
/// programs skip a tool without a schema.
pub(crate) fn schema(tool: &ToolDescription) -> Map<String, Value> {
    let mut schema: Map<String, Value> = serde_json::from_str(&tool.input_schema_json).unwrap_or_default();
    schema.entry("type").or_insert_with(|| "object".into());
    schema
}

/// The tools of one thread.
#[derive(Clone, Debug)]
pub(crate) struct Toolbox {
    client: Client,
    bearer: Option<Bearer>,
    thread_id: String,
    named: Named,
    /// The trace of the calls.
    trace: Option<TraceParent>,
}

/// The ids that calls contain. Both are empty with the thread's own token, and present with another caller's token.
#[derive(Clone, Debug, Default)]
struct Named {
    session_id: String,
    thread_id: String,
}

/// Calls an RPC of the supervisor through [`Toolbox::send`].
macro_rules! send {
    ($tools:ident.$method:ident($request:ident), $limit:expr) => {
        $tools.send(&$request, $limit, |mut client, request| async move {
            client.$method(request).await
        })
    };
}

impl Toolbox {
    /// Returns the tools of a thread. `bearer` is the thread's own token. Without it, the supervisor decides whether it
    /// accepts the calls.
    pub(crate) fn new(channel: Channel, bearer: Option<Bearer>, thread_id: String) -> Self {
        Self {
            client: Client::new(channel)
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
            bearer,
            thread_id,
            named: Named::default(),
            trace: None,
        }
    }

    /// Assigns further calls to that trace.
    pub(crate) fn trace(&mut self, trace: Option<TraceParent>) {
        self.trace = trace;
    }

    /// Returns the same tools for calls with an operator's token, which have to name the thread. The supervisor does
    /// not restrict an operator, so this toolbox itself restricts calls to the thread's subtree. The caller must first
    /// check [`Self::offered`].
    pub(crate) fn on_behalf(mut self, session_id: String) -> Self {
        self.named = Named {
            session_id,
            thread_id: self.thread_id.clone(),
        };
        self
    }

    /// Returns the thread that the token identifies.
    ///
    /// # Errors
    ///
    /// The supervisor rejects the token, or is not available.
    pub(crate) async fn own_thread(&self) -> Result<Thread, ToolFailure> {
        self.thread("").await
    }

    /// Returns a thread. Without an id, returns the thread that the token identifies.
    async fn thread(&self, id: &str) -> Result<Thread, ToolFailure> {
        let request = GetThreadRequest {
            session_id: self.named.session_id.clone(),
            thread_id: id.to_owned(),
        };
        let answer = send!(self.get_thread(request), CALL_LIMIT).await?;
        answer
            .thread
            .ok_or_else(|| ToolFailure::local("the supervisor did not return the thread"))
    }

    /// Checks that a call refers only to the thread and its descendants. With the thread's own token the supervisor
    /// enforces this as well. With an operator's token only this check enforces it. A thread's parent never changes, so
    /// the result stays valid. The error does not reveal whether a thread exists.
    async fn check_subtree(&self, verb: &str, ids: &[&str]) -> Result<(), ToolFailure> {
        let top = self.named.thread_id.as_str();
        // All threads are descendants of the root.
        if top.is_empty() || self.thread(top).await?.parent_thread_id.is_empty() {
            return Ok(());
        }
        for id in ids {
            if !self.is_below(id, top).await? {
                let text = format!("Not permitted to {verb} agents outside your subtree.");
                return Err(ToolFailure::new(Reason::OutsideSubtree, text));
            }
        }
        Ok(())
    }

    /// Returns whether the id belongs to `top` or to one of its descendants.
    async fn is_below(&self, id: &str, top: &str) -> Result<bool, ToolFailure> {
        let mut thread = match self.thread(id).await {
            Err(failure) if failure.reason == Some(Reason::ThreadNotFound) => return Ok(false),
            found => found?,
        };
        while thread.thread_id != top {
            if thread.parent_thread_id.is_empty() {
                return Ok(false);
            }
            thread = self.thread(&thread.parent_thread_id).await?;
        }
        Ok(true)
    }

    /// Returns the tools that the thread is offered.
    ///
    /// # Errors
    ///
    /// The supervisor cannot be queried.
    pub(crate) async fn offered(&self) -> Result<Vec<ToolDescription>, ToolFailure> {
        let request = DescribeToolsRequest {
            session_id: self.named.session_id.clone(),
            thread_id: self.named.thread_id.clone(),
        };
        let answer = send!(self.describe_tools(request), CALL_LIMIT).await?;
        Ok(answer.tools)
    }

    /// Appends entries to the thread's transcript.
    ///
    /// # Errors
    ///
    /// A runner executes the thread, or the supervisor is not available.
    pub(crate) async fn append_transcript(&self, batch: u64, entries: Vec<TranscriptEntry>) -> Result<(), ToolFailure> {
        let request = AppendTranscriptRequest {
            session_id: self.named.session_id.clone(),
            thread_id: self.named.thread_id.clone(),
            batch,
            entries,
        };
        send!(self.append_transcript(request), CALL_LIMIT).await?;
        Ok(())
    }

    /// Executes a call.
    pub(crate) async fn call(&self, call: ToolCall) -> ToolAnswer {
        let args = Value::Object(call.args);
        match call.name.as_str() {
            "spawn_agent" => {
                let args: args::SpawnAgent = read(args)?;
                self.spawn("agent_id", args.into_request(request_id())?).await
            }
            "spawn_node" => {
                let args: node::SpawnNode = read(args)?;
                self.spawn("nodeId", args.into_request(request_id())?).await
            }
            "list_agents" => self.list_agents(read(args)?).await,
            "list_active_agents" => self.list_active_agents(read(args)?).await,
            "read_transcript" => self.read_transcript(read(args)?).await,
            "send_input" => self.send_input(read(args)?).await,
            "wait" => self.wait(read(args)?).await,
            "close_agent" => self.close_agent(read(args)?).await,
            "resume_agent" => self.resume_agent(read(args)?).await,
            "set_thread_note" => self.set_thread_note(read(args)?).await,
            "create_edge" => self.create_edge(read(args)?).await,
            "send_handoff" => self.send_handoff(read(args)?).await,
            "spawn_group" => self.spawn_group(read(args)?).await,
            "report_result" => self.report_result(read(args)?).await,
            "ask_parent" => self.ask_parent(read(args)?).await,
            other => Err(ToolFailure::unsupported(other)),
        }
    }

    /// Spawns a thread. The answer contains the thread's id under `key`.
    async fn spawn(&self, key: &str, request: SpawnAgentRequest) -> ToolAnswer {
        let request = SpawnAgentRequest {
            session_id: self.named.session_id.clone(),
            parent_thread_id: self.named.thread_id.clone(),
            ..request
        };
        let answer = send!(self.spawn_agent(request), CALL_LIMIT).await?;
        Ok(answers::spawned(key, answer))
    }

    async fn list_agents(&self, args: args::ListAgents) -> ToolAnswer {
        let mut agents = Vec::new();
        let mut page_token = String::new();
        for _ in 0..MAX_PAGES {
            let request = ListSpawnableAgentsRequest {
                session_id: self.named.session_id.clone(),
                thread_id: self.named.thread_id.clone(),
                agent_type: args.agent_type.clone(),
                expanded: args.expanded,
                page_token,
                ..Default::default()
            };
            let page = send!(self.list_spawnable_agents(request), CALL_LIMIT).await?;
            agents.extend(page.agents);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        Ok(answers::roles(&agents))
    }

    async fn list_active_agents(&self, args: args::ListActiveAgents) -> ToolAnswer {
        let scope = match args.scope()? {
            // With an operator's token, `All` would mean the whole session. The thread may see only its descendants.
            ListScope::All if !self.named.thread_id.is_empty() => ListScope::Descendants,
            scope => scope,
        };
        let mut threads = Vec::new();
        let mut page_token = String::new();
        for _ in 0..MAX_PAGES {
            let request = ListActiveAgentsRequest {
                session_id: self.named.session_id.clone(),
                thread_id: self.named.thread_id.clone(),
                scope: scope.into(),
                include_closed: args.include_closed,
                page_token,
                ..Default::default()
            };
            let page = send!(self.list_active_agents(request), CALL_LIMIT).await?;
            threads.extend(page.threads);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        Ok(answers::threads(&threads, args.include_tree))
    }

    async fn read_transcript(&self, args: args::ReadTranscript) -> ToolAnswer {
        if let Some(id) = &args.id {
            self.check_subtree(ACT_ON, &[id.as_str()]).await?;
        }
        let request = args.into_request()?;
        let own = self.named.thread_id.clone();
        let request = ListTranscriptRequest {
            session_id: self.named.session_id.clone(),
            thread_id: Some(request.thread_id).filter(|id| !id.is_empty()).unwrap_or(own),
            ..request
        };
        let page = send!(self.list_transcript(request), CALL_LIMIT).await?;
        Ok(answers::transcript(&page))
    }

    async fn send_input(&self, args: args::SendInput) -> ToolAnswer {
        let request = SendInputRequest {
            session_id: self.named.session_id.clone(),
            ..args.into_request(request_id())?
        };
        self.check_subtree(ACT_ON, &[request.thread_id.as_str()]).await?;
        let answer = send!(self.send_input(request), CALL_LIMIT).await?;
        Ok(answers::input_sent(&answer))
    }

    async fn wait(&self, args: args::Wait) -> ToolAnswer {
        let timeout = args.timeout();
        let mode = if args.all { WaitMode::All } else { WaitMode::Any };
        let request = WaitAgentsRequest {
            session_id: self.named.session_id.clone(),
            thread_ids: args.ids,
            timeout: prost_types::Duration::try_from(timeout).ok(),
            mode: mode.into(),
        };
        let ids: Vec<&str> = request.thread_ids.iter().map(String::as_str).collect();
        self.check_subtree(ACT_ON, &ids).await?;
        let answer = send!(self.wait_agents(request), timeout + WAIT_MARGIN).await?;
        Ok(answers::waited(&answer))
    }

    async fn close_agent(&self, args: args::Target) -> ToolAnswer {
        let request = CloseAgentRequest {
            request_id: request_id(),
            session_id: self.named.session_id.clone(),
            thread_id: args.id,
            ..Default::default()
        };
        self.check_subtree("close", &[request.thread_id.as_str()]).await?;
        let answer = send!(self.close_agent(request), CALL_LIMIT).await?;
        Ok(json!({"status": answers::status(answer.status_before.as_ref())}))
    }

    async fn resume_agent(&self, args: args::Target) -> ToolAnswer {
        let request = ResumeAgentRequest {
            request_id: request_id(),
            session_id: self.named.session_id.clone(),
            thread_id: args.id,
            ..Default::default()
        };
        self.check_subtree(ACT_ON, &[request.thread_id.as_str()]).await?;
        let answer = send!(self.resume_agent(request), CALL_LIMIT).await?;
        let thread = answer.thread.unwrap_or_default();
        Ok(json!({"status": answers::status(thread.status.as_ref())}))
    }

    async fn set_thread_note(&self, args: args::SetThreadNote) -> ToolAnswer {
        let request = SetThreadNoteRequest {
            request_id: request_id(),
            session_id: self.named.session_id.clone(),
            thread_id: args.id.unwrap_or_else(|| self.thread_id.clone()),
            thread_note: args.note,
        };
        self.check_subtree(ACT_ON, &[request.thread_id.as_str()]).await?;
        let answer = send!(self.set_thread_note(request), CALL_LIMIT).await?;
        Ok(answers::noted(&answer.thread.unwrap_or_default()))
    }

    async fn create_edge(&self, args: args::CreateEdge) -> ToolAnswer {
        let request = CreateEdgeRequest {
            session_id: self.named.session_id.clone(),
            ..args.into_request(request_id())?
        };
        self.check_subtree(
            ACT_ON,
            &[request.from_thread_id.as_str(), request.to_thread_id.as_str()],
        )
        .await?;
        let answer = send!(self.create_edge(request), CALL_LIMIT).await?;
        Ok(answers::connected(answer))
    }

    async fn send_handoff(&self, args: args::SendHandoff) -> ToolAnswer {
        let request = SendHandoffRequest {
            session_id: self.named.session_id.clone(),
            from_thread_id: self.named.thread_id.clone(),
            ..args.into_request(request_id())?
        };
        let answer = send!(self.send_handoff(request), CALL_LIMIT).await?;
        Ok(json!({"handoff_id": answer.handoff.unwrap_or_default().handoff_id}))
    }

    /// Creates a group, waits for its end, and returns its items.
    async fn spawn_group(&self, args: args::SpawnGroup) -> ToolAnswer {
        let deadline = Instant::now() + args.wait();
        let request = CreateGroupRequest {
            session_id: self.named.session_id.clone(),
            parent_thread_id: self.named.thread_id.clone(),
            ..args.into_request(request_id())
        };
        let created = send!(self.create_group(request), CALL_LIMIT).await?;
        let mut group = created.group.unwrap_or_default();
        let group_id = group.spec.clone().unwrap_or_default().group_id;
        while !answers::has_ended(&group) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let request = GetGroupRequest {
                session_id: group.session_id.clone(),
                group_id: group_id.clone(),
                wait: prost_types::Duration::try_from(left).ok(),
                ..Default::default()
            };
            let answer = send!(self.get_group(request), left + WAIT_MARGIN).await?;
            group = answer.group.unwrap_or_default();
        }
        let mut items = Vec::new();
        if answers::has_ended(&group) {
            let request = ListGroupItemsRequest {
                session_id: group.session_id.clone(),
                group_id,
                page_size: MAX_GROUP_ITEMS,
                ..Default::default()
            };
            let page = send!(self.list_group_items(request), CALL_LIMIT).await?;
            items = page.items;
        }
        Ok(answers::group(&group, &items))
    }

    async fn report_result(&self, args: args::ReportResult) -> ToolAnswer {
        let request = ReportResultRequest {
            request_id: request_id(),
            session_id: self.named.session_id.clone(),
            thread_id: self.named.thread_id.clone(),
            document_json: args.result.to_string(),
        };
        send!(self.report_result(request), CALL_LIMIT).await?;
        Ok(json!({"reported": true}))
    }

    async fn ask_parent(&self, args: args::AskParent) -> ToolAnswer {
        let request = AskParentRequest {
            request_id: request_id(),
            session_id: self.named.session_id.clone(),
            thread_id: self.named.thread_id.clone(),
            question: args.question,
        };
        send!(self.ask_parent(request), CALL_LIMIT).await?;
        Ok(json!({"asked": true, "next": "End your turn now. The answer comes with your next input."}))
    }

    /// Calls the supervisor, and retries transient failures until `limit` has passed. Repeated reads do no harm, and
    /// changes have a request_id, so that a retry returns the first result. The limit restarts when the call waits for
    /// an operator's approval.
    async fn send<Q, A, F, R>(&self, message: &Q, limit: Duration, call: F) -> Result<A, ToolFailure>
    where
        Q: Clone,
        F: Fn(Client, Request<Q>) -> R,
        R: Future<Output = Result<Response<A>, Status>>,
    {
        let mut backoff = backoff::new();
        let called = Instant::now();
        let mut deadline = called + limit;
        loop {
            let mut request = Request::new(message.clone());
            request.set_timeout(deadline.saturating_duration_since(Instant::now()));
            if let Some(bearer) = &self.bearer {
                bearer.authorize(&mut request);
            }
            if let Some(trace) = &self.trace {
                trace_context::inject(request.metadata_mut(), trace);
            }
            match call(self.client.clone(), request).await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => {
                    let asked = retry_after(&status).unwrap_or_default().min(MAX_RETRY_DELAY);
                    let delay = backoff.next_delay().max(asked);
                    if awaits_approval(&status) && called.elapsed() < DECISION_LIMIT {
                        deadline = Instant::now() + delay + limit;
                    } else if !is_transient(&status) || Instant::now() + delay >= deadline {
                        return Err(status.into());
                    }
                    sleep(delay).await;
                }
            }
        }
    }
}

/// Returns whether the failure may be transient.
fn is_transient(status: &Status) -> bool {
    status.code() == Code::Unavailable || lost::in_transport(status)
}

/// Returns whether the call is waiting for an operator's approval.
fn awaits_approval(status: &Status) -> bool {
    status.code() == Code::DeadlineExceeded && metadata_of(status).contains_key("approval_id")
}

/// Returns an id that all attempts of one call share.
fn request_id() -> String {
    Uuid::now_v7().to_string()
}

fn read<T: DeserializeOwned>(args: Value) -> Result<T, ToolFailure> {
    serde_json::from_value(args).map_err(|error| ToolFailure::bad_arguments(format!("bad arguments: {error}")))
}

#[cfg(test)]
mod tests {
    use troupe_proto::fault::Fault;

    use super::*;

    #[test]
    fn refusal_keeps_text_and_reason() {
        let text = "tool \"spawn_agent\" is not allowed for agent_type \"worker\"";
        let status = Status::from(Fault::new(Code::PermissionDenied, Reason::ToolDenied, text));
        assert_eq!(
            ToolFailure::from(status).to_json(),
            json!({"error": text, "reason": "TOOL_DENIED"})
        );
        let foreign = ToolFailure::from(Status::internal("lost"));
        assert_eq!(foreign.to_json(), json!({"error": "lost"}));
        let failure = foreign.with_output("so far".to_owned());
        assert_eq!(failure.to_json(), json!({"error": "lost", "output": "so far"}));
    }

    #[test]
    fn only_transient_failures_are_retried() {
        assert!(is_transient(&Status::unavailable("draining")));
        assert!(is_transient(&Status::from_error("connection reset".into())));
        assert!(!is_transient(&Status::cancelled("the session closes")));
        assert!(!is_transient(&Status::permission_denied("no")));
        assert!(!is_transient(&Status::deadline_exceeded("late")));
    }

    #[test]
    fn pending_approval_outlasts_call_deadline() {
        let waits = Fault::new(Code::DeadlineExceeded, Reason::DeadlineExceeded, "the call waits");
        assert!(awaits_approval(&waits.with("approval_id", "a").into()));
        assert!(!awaits_approval(&Status::deadline_exceeded("late")));
        assert!(!awaits_approval(&Status::permission_denied("no")));
    }
}
