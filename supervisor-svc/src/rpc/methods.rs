//! The gRPC service: each method calls the function with its name.

use std::mem;

use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use troupe_proto::supervisor::v1::{self as pb, agent_supervisor_service_server::AgentSupervisorService};

use super::{
    approvals,
    call::{Call, Change},
    content, export, graph, groups, members, prompts, results, runners,
    service::SupervisorService,
    sessions, spawn, threads, tools, transcripts, wait, watch,
};

/// Implements the service. Each row has a method, its request, its answer, and the module of its function. A method
/// begins with [`Call::open`] or [`Call::change`].
macro_rules! methods {
    (
        open { $($open:ident($open_request:ident) -> $open_answer:ty = $open_module:ident;)+ }
        change { $($change:ident($change_request:ident) -> $change_answer:ty = $change_module:ident;)+ }
    ) => {
        $(impl Change for pb::$change_request {
            fn take_request_id(&mut self) -> String {
                mem::take(&mut self.request_id)
            }
        })+

        #[tonic::async_trait]
        impl AgentSupervisorService for SupervisorService {
            type WatchSessionsStream = ReceiverStream<Result<pb::WatchSessionsResponse, Status>>;
            type WatchThreadsStream = ReceiverStream<Result<pb::WatchThreadsResponse, Status>>;
            type WatchNotificationsStream = ReceiverStream<Result<pb::WatchNotificationsResponse, Status>>;
            type WatchTranscriptStream = ReceiverStream<Result<pb::WatchTranscriptResponse, Status>>;
            type ExportSessionStream = ReceiverStream<Result<pb::ExportSessionResponse, Status>>;
            type GetContentStream = ReceiverStream<Result<pb::GetContentResponse, Status>>;

            /// Never called: [`WatchMethod`](super::WatchMethod) serves the method.
            async fn watch_threads(
                &self,
                _: Request<pb::WatchThreadsRequest>,
            ) -> Result<Response<Self::WatchThreadsStream>, Status> {
                Err(Status::unimplemented("WatchThreads has a route of its own"))
            }

            async fn spawn_agent(
                &self,
                mut request: Request<pb::SpawnAgentRequest>,
            ) -> Result<Response<pb::SpawnAgentResponse>, Status> {
                // A retry may request the token although the first call did not.
                let return_token = mem::take(&mut request.get_mut().return_token);
                let (call, request) = Call::change(self, request)?;
                spawn::spawn_agent(&call, Box::new(request), return_token).await.map(Response::new)
            }

            $(async fn $open(&self, request: Request<pb::$open_request>) -> Result<Response<$open_answer>, Status> {
                let (call, request) = Call::open(self, request)?;
                $open_module::$open(call, request).await.map(Response::new)
            })+

            $(async fn $change(
                &self,
                request: Request<pb::$change_request>,
            ) -> Result<Response<$change_answer>, Status> {
                let (call, request) = Call::change(self, request)?;
                $change_module::$change(call, request).await.map(Response::new)
            })+
        }
    };
}

impl Change for pb::SpawnAgentRequest {
    fn take_request_id(&mut self) -> String {
        mem::take(&mut self.request_id)
    }
}

methods! {
    open {
        get_session(GetSessionRequest) -> pb::GetSessionResponse = sessions;
        list_sessions(ListSessionsRequest) -> pb::ListSessionsResponse = sessions;
        watch_sessions(WatchSessionsRequest) -> Self::WatchSessionsStream = sessions;
        wait_agents(WaitAgentsRequest) -> pb::WaitAgentsResponse = wait;
        get_group(GetGroupRequest) -> pb::GetGroupResponse = groups;
        list_group_items(ListGroupItemsRequest) -> pb::ListGroupItemsResponse = groups;
        get_thread(GetThreadRequest) -> pb::GetThreadResponse = threads;
        list_active_agents(ListActiveAgentsRequest) -> pb::ListActiveAgentsResponse = threads;
        authorize_tool(AuthorizeToolRequest) -> pb::AuthorizeToolResponse = tools;
        describe_tools(DescribeToolsRequest) -> pb::DescribeToolsResponse = tools;
        list_spawnable_agents(ListSpawnableAgentsRequest) -> pb::ListSpawnableAgentsResponse = tools;
        list_edges(ListEdgesRequest) -> pb::ListEdgesResponse = graph;
        list_mailbox(ListMailboxRequest) -> pb::ListMailboxResponse = graph;
        list_approvals(ListApprovalsRequest) -> pb::ListApprovalsResponse = approvals;
        watch_notifications(WatchNotificationsRequest) -> Self::WatchNotificationsStream = watch;
        set_active_thread(SetActiveThreadRequest) -> pb::SetActiveThreadResponse = watch;
        list_prompts(ListPromptsRequest) -> pb::ListPromptsResponse = prompts;
        get_prompt(GetPromptRequest) -> pb::GetPromptResponse = prompts;
        list_transcript(ListTranscriptRequest) -> pb::ListTranscriptResponse = transcripts;
        watch_transcript(WatchTranscriptRequest) -> Self::WatchTranscriptStream = transcripts;
        append_transcript(AppendTranscriptRequest) -> pb::AppendTranscriptResponse = transcripts;
        list_runners(ListRunnersRequest) -> pb::ListRunnersResponse = runners;
        list_members(ListMembersRequest) -> pb::ListMembersResponse = members;
        drain_member(DrainMemberRequest) -> pb::DrainMemberResponse = members;
        move_session(MoveSessionRequest) -> pb::MoveSessionResponse = members;
        export_session(ExportSessionRequest) -> Self::ExportSessionStream = export;
        list_artifacts(ListArtifactsRequest) -> pb::ListArtifactsResponse = content;
        get_content(GetContentRequest) -> Self::GetContentStream = content;
        get_quota(GetQuotaRequest) -> pb::GetQuotaResponse = threads;
    }
    change {
        create_session(CreateSessionRequest) -> pb::CreateSessionResponse = sessions;
        update_session(UpdateSessionRequest) -> pb::UpdateSessionResponse = sessions;
        close_session(CloseSessionRequest) -> pb::CloseSessionResponse = sessions;
        delete_session(DeleteSessionRequest) -> pb::DeleteSessionResponse = sessions;
        send_input(SendInputRequest) -> pb::SendInputResponse = threads;
        interrupt_agent(InterruptAgentRequest) -> pb::InterruptAgentResponse = threads;
        close_agent(CloseAgentRequest) -> pb::CloseAgentResponse = threads;
        resume_agent(ResumeAgentRequest) -> pb::ResumeAgentResponse = threads;
        report_result(ReportResultRequest) -> pb::ReportResultResponse = results;
        ask_parent(AskParentRequest) -> pb::AskParentResponse = results;
        create_group(CreateGroupRequest) -> pb::CreateGroupResponse = groups;
        update_group(UpdateGroupRequest) -> pb::UpdateGroupResponse = groups;
        retry_group(RetryGroupRequest) -> pb::RetryGroupResponse = groups;
        cancel_group(CancelGroupRequest) -> pb::CancelGroupResponse = groups;
        set_thread_note(SetThreadNoteRequest) -> pb::SetThreadNoteResponse = threads;
        update_thread_budget(UpdateThreadBudgetRequest) -> pb::UpdateThreadBudgetResponse = threads;
        create_edge(CreateEdgeRequest) -> pb::CreateEdgeResponse = graph;
        delete_edge(DeleteEdgeRequest) -> pb::DeleteEdgeResponse = graph;
        send_handoff(SendHandoffRequest) -> pb::SendHandoffResponse = graph;
        acknowledge_mailbox(AcknowledgeMailboxRequest) -> pb::AcknowledgeMailboxResponse = graph;
        resolve_approval(ResolveApprovalRequest) -> pb::ResolveApprovalResponse = approvals;
    }
}
