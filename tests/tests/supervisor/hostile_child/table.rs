//! The table of a hostile child's calls: every method of both services on one target, with the expected error.

use tokio_stream::iter;
use tonic::{Code, Status};
use troupe_proto::{
    fault::reason_of,
    reason::Reason,
    registry::v1::{
        DescribeSpawnToolRequest, GetWorkspaceRequest, ListAgentsRequest, ListDiagnosticsRequest, PutWorkspaceRequest,
        ResolveSpawnRequest, RouteAgentRequest, WatchAgentsRequest,
    },
    supervisor::v1::{
        AcknowledgeMailboxRequest, AppendTranscriptRequest, AskParentRequest, AttachRequest, AuthorizeToolRequest,
        Budget, CancelGroupRequest, CloseAgentRequest, CloseSessionRequest, CreateEdgeRequest, CreateGroupRequest,
        CreateSessionRequest, DeleteEdgeRequest, DeleteSessionRequest, DescribeToolsRequest, DrainMemberRequest,
        ExportSessionRequest, GetContentRequest, GetGroupRequest, GetPromptRequest, GetQuotaRequest, GetSessionRequest,
        GetThreadRequest, InterruptAgentRequest, ListActiveAgentsRequest, ListApprovalsRequest, ListArtifactsRequest,
        ListEdgesRequest, ListGroupItemsRequest, ListMailboxRequest, ListMembersRequest, ListPromptsRequest,
        ListRunnersRequest, ListSessionsRequest, ListSpawnableAgentsRequest, ListTranscriptRequest, MoveSessionRequest,
        ReportResultRequest, ResolveApprovalRequest, ResumeAgentRequest, RetryGroupRequest, SendHandoffRequest,
        SendInputRequest, SetActiveThreadRequest, SetThreadNoteRequest, SpawnAgentRequest, UpdateGroupRequest,
        UpdateSessionRequest, UpdateThreadBudgetRequest, WaitAgentsRequest, WatchNotificationsRequest,
        WatchSessionsRequest, WatchThreadsRequest, WatchTranscriptRequest,
    },
};
use troupe_tests::{pair::Pair, within};

/// Code, reason, and beginning of the text.
pub(crate) type Refusal<'a> = (Code, Reason, &'a str);

pub(crate) const NO_ACTING: &str = "Not permitted to act on agents outside your subtree.";
const NO_CLOSING: &str = "Not permitted to close agents outside your subtree.";
/// The error for a missing, an invalid and a stale token.
pub(crate) const NO_TOKEN: Refusal<'static> = (
    Code::Unauthenticated,
    Reason::Unauthenticated,
    "missing, malformed or stale token",
);

/// The target of a call. An empty session means the session of the token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) session: &'a str,
    pub(crate) thread: &'a str,
}

/// Returns a target with a thread and without a session.
pub(crate) fn by_itself(thread: &str) -> Target<'_> {
    Target { session: "", thread }
}

/// The targets that a method permits to a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    /// None: the method is for operators and runners.
    Operators,
    /// None: the registry accepts no threads.
    Registry,
    /// The thread and its subtree.
    Subtree,
    /// The thread and its subtree, with the error text of CloseAgent.
    Closing,
    /// The thread's session.
    Session,
}

impl Rule {
    /// Returns the error for a thread with a valid token and a target that is not permitted.
    pub(crate) const fn refusal(self) -> Refusal<'static> {
        match self {
            Self::Operators => (
                Code::PermissionDenied,
                Reason::NotPermitted,
                "a caller of kind thread may not call",
            ),
            Self::Registry => NO_TOKEN,
            Self::Subtree | Self::Session => (Code::PermissionDenied, Reason::OutsideSubtree, NO_ACTING),
            Self::Closing => (Code::PermissionDenied, Reason::OutsideSubtree, NO_CLOSING),
        }
    }

    /// Returns the expected error for a thread whose token is rejected with `of_token` by every method that a thread
    /// may call.
    pub(crate) const fn refusal_or(self, of_token: Refusal<'_>) -> Refusal<'_> {
        match self {
            Self::Operators | Self::Registry => self.refusal(),
            Self::Subtree | Self::Closing | Self::Session => of_token,
        }
    }
}

/// A call of a method and its result.
#[derive(Debug)]
pub(crate) struct MethodCall {
    pub(crate) method: &'static str,
    pub(crate) rule: Rule,
    pub(crate) answer: Result<(), Status>,
}

impl MethodCall {
    pub(crate) fn is(&self, (code, reason, text): Refusal<'_>) -> bool {
        self.answer.as_ref().is_err_and(|status| {
            status.code() == code && reason_of(status) == Some(reason) && status.message().starts_with(text)
        })
    }
}

/// Returns the text and the details of an error. The bytes of the details are sorted, because metadata has no fixed
/// order.
pub(crate) fn words(status: &Status) -> (String, Vec<u8>) {
    let mut details = status.details().to_vec();
    details.sort_unstable();
    (status.message().to_owned(), details)
}

/// Makes each call and collects the responses. Missing fields have their defaults.
macro_rules! calls {
    ($told:ident, $rule:ident, $client:ident;
     $($method:ident($request:ident { $($field:ident: $value:expr),* });)+) => {$(
        let request = $request { $($field: $value,)* ..Default::default() };
        let answer = within(stringify!($method), $client.clone().$method(request)).await;
        $told.push(MethodCall { method: stringify!($method), rule: Rule::$rule, answer: answer.map(drop) });
    )+};
}

/// Calls every method of both services with a token on a target.
#[allow(clippy::needless_update, reason = "some requests have no other fields")]
pub(crate) async fn every_method(pair: &Pair, token: &str, on: Target<'_>) -> Vec<MethodCall> {
    let (agents, registry) = (pair.with_token(token), pair.registry(token));
    let session = || on.session.to_owned();
    let thread = || on.thread.to_owned();
    let text = || String::from("text");
    let unbounded = || Some(Budget::default());
    let mut told = Vec::new();
    calls! { told, Operators, agents;
        create_session(CreateSessionRequest {});
        list_sessions(ListSessionsRequest {});
        list_runners(ListRunnersRequest {});
        list_members(ListMembersRequest {});
        drain_member(DrainMemberRequest { name: text() });
        move_session(MoveSessionRequest { session_id: session() });
        watch_sessions(WatchSessionsRequest {});
        export_session(ExportSessionRequest { session_id: session() });
        update_session(UpdateSessionRequest { session_id: session(), paused: Some(true) });
        close_session(CloseSessionRequest { session_id: session() });
        delete_session(DeleteSessionRequest { session_id: session() });
        resolve_approval(ResolveApprovalRequest { session_id: session(), approval_id: thread(), grant: true });
        watch_notifications(WatchNotificationsRequest { session_id: session(), client_id: text() });
        set_active_thread(SetActiveThreadRequest { session_id: session(), client_id: text(), thread_id: thread() });
    }
    let attached = pair.runners(token).attach(iter([AttachRequest::default()])).await;
    told.push(MethodCall {
        method: "attach",
        rule: Rule::Operators,
        answer: attached.map(drop),
    });
    calls! { told, Registry, registry;
        list_agents(ListAgentsRequest {});
        resolve_spawn(ResolveSpawnRequest {});
        route_agent(RouteAgentRequest {});
        put_workspace(PutWorkspaceRequest {});
        get_workspace(GetWorkspaceRequest {});
        list_diagnostics(ListDiagnosticsRequest {});
        watch_agents(WatchAgentsRequest {});
        describe_spawn_tool(DescribeSpawnToolRequest {});
    }
    calls! { told, Subtree, agents;
        get_thread(GetThreadRequest { session_id: session(), thread_id: thread() });
        get_quota(GetQuotaRequest { session_id: session(), thread_id: thread() });
        describe_tools(DescribeToolsRequest { session_id: session(), thread_id: thread() });
        list_active_agents(ListActiveAgentsRequest { session_id: session(), thread_id: thread() });
        list_spawnable_agents(ListSpawnableAgentsRequest { session_id: session(), thread_id: thread() });
        list_edges(ListEdgesRequest { session_id: session(), thread_id: thread() });
        list_mailbox(ListMailboxRequest { session_id: session(), thread_id: thread() });
        list_prompts(ListPromptsRequest { session_id: session(), thread_id: thread() });
        get_prompt(GetPromptRequest { session_id: session(), thread_id: thread(), turn: 1 });
        list_transcript(ListTranscriptRequest { session_id: session(), thread_id: thread() });
        watch_transcript(WatchTranscriptRequest { session_id: session(), thread_id: thread() });
        append_transcript(AppendTranscriptRequest { session_id: session(), thread_id: thread(), batch: 1 });
        list_artifacts(ListArtifactsRequest { session_id: session(), thread_id: thread() });
        watch_threads(WatchThreadsRequest { session_id: session(), thread_id: thread() });
        wait_agents(WaitAgentsRequest { session_id: session(), thread_ids: vec![thread()] });
        authorize_tool(AuthorizeToolRequest { session_id: session(), thread_id: thread(), tool: text() });
        spawn_agent(SpawnAgentRequest { session_id: session(), parent_thread_id: thread(), message: Some(text()) });
        send_input(SendInputRequest { session_id: session(), thread_id: thread(), message: Some(text()) });
        interrupt_agent(InterruptAgentRequest { session_id: session(), thread_id: thread() });
        resume_agent(ResumeAgentRequest { session_id: session(), thread_id: thread() });
        report_result(ReportResultRequest { session_id: session(), thread_id: thread(), document_json: text() });
        ask_parent(AskParentRequest { session_id: session(), thread_id: thread(), question: text() });
        create_group(CreateGroupRequest { session_id: session(), parent_thread_id: thread() });
        set_thread_note(SetThreadNoteRequest { session_id: session(), thread_id: thread(), thread_note: text() });
        update_thread_budget(UpdateThreadBudgetRequest {
            session_id: session(), thread_id: thread(), budget: unbounded()
        });
        // The edge to a thread's parent has the thread's id.
        delete_edge(DeleteEdgeRequest { session_id: session(), edge_id: thread() });
        create_edge(CreateEdgeRequest { session_id: session(), from_thread_id: thread(), to_thread_id: thread() });
        send_handoff(SendHandoffRequest {
            session_id: session(), from_thread_id: thread(), to_thread_id: thread(), message: text()
        });
        acknowledge_mailbox(AcknowledgeMailboxRequest { session_id: session(), thread_id: thread() });
    }
    calls! { told, Closing, agents;
        close_agent(CloseAgentRequest { session_id: session(), thread_id: thread() });
    }
    calls! { told, Session, agents;
        get_session(GetSessionRequest { session_id: session() });
        list_approvals(ListApprovalsRequest { session_id: session() });
        get_content(GetContentRequest { session_id: session(), digest: "0".repeat(64) });
        get_group(GetGroupRequest { session_id: session(), group_id: thread() });
        list_group_items(ListGroupItemsRequest { session_id: session(), group_id: thread() });
        update_group(UpdateGroupRequest { session_id: session(), group_id: thread() });
        retry_group(RetryGroupRequest { session_id: session(), group_id: thread() });
        cancel_group(CancelGroupRequest { session_id: session(), group_id: thread() });
    }
    told
}
