//! The gRPC service: each method calls the function with its name.

use futures::stream::BoxStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use troupe_proto::supervisor::v1::{self as pb, agent_supervisor_service_server::AgentSupervisorService};

use super::{
    approvals, content, export, graph, groups, members, prompts, results, runners, service::SupervisorService,
    sessions, spawn, threads, tools, transcripts, wait, watch,
};
use crate::projections::watch::BeginWatch as _;

type Reply<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl AgentSupervisorService for SupervisorService {
    type WatchSessionsStream = ReceiverStream<Result<pb::WatchSessionsResponse, Status>>;
    type WatchThreadsStream = BoxStream<'static, Result<pb::WatchThreadsResponse, Status>>;
    type WatchNotificationsStream = ReceiverStream<Result<pb::WatchNotificationsResponse, Status>>;
    type WatchTranscriptStream = ReceiverStream<Result<pb::WatchTranscriptResponse, Status>>;
    type ExportSessionStream = ReceiverStream<Result<pb::ExportSessionResponse, Status>>;
    type GetContentStream = ReceiverStream<Result<pb::GetContentResponse, Status>>;

    async fn create_session(&self, request: Request<pb::CreateSessionRequest>) -> Reply<pb::CreateSessionResponse> {
        sessions::create_session(self, request).await.map(Response::new)
    }

    async fn get_session(&self, request: Request<pb::GetSessionRequest>) -> Reply<pb::GetSessionResponse> {
        sessions::get_session(self, request).await.map(Response::new)
    }

    async fn list_sessions(&self, request: Request<pb::ListSessionsRequest>) -> Reply<pb::ListSessionsResponse> {
        sessions::list_sessions(self, request).await.map(Response::new)
    }

    async fn watch_sessions(&self, request: Request<pb::WatchSessionsRequest>) -> Reply<Self::WatchSessionsStream> {
        sessions::watch_sessions(self, request).await.map(Response::new)
    }

    async fn update_session(&self, request: Request<pb::UpdateSessionRequest>) -> Reply<pb::UpdateSessionResponse> {
        sessions::update_session(self, request).await.map(Response::new)
    }

    async fn close_session(&self, request: Request<pb::CloseSessionRequest>) -> Reply<pb::CloseSessionResponse> {
        sessions::close_session(self, request).await.map(Response::new)
    }

    async fn delete_session(&self, request: Request<pb::DeleteSessionRequest>) -> Reply<pb::DeleteSessionResponse> {
        sessions::delete_session(self, request).await.map(Response::new)
    }

    async fn spawn_agent(&self, request: Request<pb::SpawnAgentRequest>) -> Reply<pb::SpawnAgentResponse> {
        spawn::spawn_agent(self, request).await.map(Response::new)
    }

    async fn send_input(&self, request: Request<pb::SendInputRequest>) -> Reply<pb::SendInputResponse> {
        threads::send_input(self, request).await.map(Response::new)
    }

    async fn interrupt_agent(&self, request: Request<pb::InterruptAgentRequest>) -> Reply<pb::InterruptAgentResponse> {
        threads::interrupt_agent(self, request).await.map(Response::new)
    }

    async fn wait_agents(&self, request: Request<pb::WaitAgentsRequest>) -> Reply<pb::WaitAgentsResponse> {
        wait::wait_agents(self, request).await.map(Response::new)
    }

    async fn close_agent(&self, request: Request<pb::CloseAgentRequest>) -> Reply<pb::CloseAgentResponse> {
        threads::close_agent(self, request).await.map(Response::new)
    }

    async fn resume_agent(&self, request: Request<pb::ResumeAgentRequest>) -> Reply<pb::ResumeAgentResponse> {
        threads::resume_agent(self, request).await.map(Response::new)
    }

    async fn report_result(&self, request: Request<pb::ReportResultRequest>) -> Reply<pb::ReportResultResponse> {
        results::report_result(self, request).await.map(Response::new)
    }

    async fn ask_parent(&self, request: Request<pb::AskParentRequest>) -> Reply<pb::AskParentResponse> {
        results::ask_parent(self, request).await.map(Response::new)
    }

    async fn create_group(&self, request: Request<pb::CreateGroupRequest>) -> Reply<pb::CreateGroupResponse> {
        groups::create_group(self, request).await.map(Response::new)
    }

    async fn get_group(&self, request: Request<pb::GetGroupRequest>) -> Reply<pb::GetGroupResponse> {
        groups::get_group(self, request).await.map(Response::new)
    }

    async fn list_group_items(&self, request: Request<pb::ListGroupItemsRequest>) -> Reply<pb::ListGroupItemsResponse> {
        groups::list_group_items(self, request).await.map(Response::new)
    }

    async fn update_group(&self, request: Request<pb::UpdateGroupRequest>) -> Reply<pb::UpdateGroupResponse> {
        groups::update_group(self, request).await.map(Response::new)
    }

    async fn retry_group(&self, request: Request<pb::RetryGroupRequest>) -> Reply<pb::RetryGroupResponse> {
        groups::retry_group(self, request).await.map(Response::new)
    }

    async fn cancel_group(&self, request: Request<pb::CancelGroupRequest>) -> Reply<pb::CancelGroupResponse> {
        groups::cancel_group(self, request).await.map(Response::new)
    }

    async fn set_thread_note(&self, request: Request<pb::SetThreadNoteRequest>) -> Reply<pb::SetThreadNoteResponse> {
        threads::set_thread_note(self, request).await.map(Response::new)
    }

    async fn update_thread_budget(
        &self,
        request: Request<pb::UpdateThreadBudgetRequest>,
    ) -> Reply<pb::UpdateThreadBudgetResponse> {
        threads::update_thread_budget(self, request).await.map(Response::new)
    }

    async fn get_thread(&self, request: Request<pb::GetThreadRequest>) -> Reply<pb::GetThreadResponse> {
        threads::get_thread(self, request).await.map(Response::new)
    }

    async fn list_active_agents(
        &self,
        request: Request<pb::ListActiveAgentsRequest>,
    ) -> Reply<pb::ListActiveAgentsResponse> {
        threads::list_active_agents(self, request).await.map(Response::new)
    }

    async fn authorize_tool(&self, request: Request<pb::AuthorizeToolRequest>) -> Reply<pb::AuthorizeToolResponse> {
        tools::authorize_tool(self, request).await.map(Response::new)
    }

    async fn describe_tools(&self, request: Request<pb::DescribeToolsRequest>) -> Reply<pb::DescribeToolsResponse> {
        tools::describe_tools(self, request).await.map(Response::new)
    }

    async fn list_spawnable_agents(
        &self,
        request: Request<pb::ListSpawnableAgentsRequest>,
    ) -> Reply<pb::ListSpawnableAgentsResponse> {
        tools::list_spawnable_agents(self, request).await.map(Response::new)
    }

    async fn create_edge(&self, request: Request<pb::CreateEdgeRequest>) -> Reply<pb::CreateEdgeResponse> {
        graph::create_edge(self, request).await.map(Response::new)
    }

    async fn delete_edge(&self, request: Request<pb::DeleteEdgeRequest>) -> Reply<pb::DeleteEdgeResponse> {
        graph::delete_edge(self, request).await.map(Response::new)
    }

    async fn list_edges(&self, request: Request<pb::ListEdgesRequest>) -> Reply<pb::ListEdgesResponse> {
        graph::list_edges(self, request).await.map(Response::new)
    }

    async fn send_handoff(&self, request: Request<pb::SendHandoffRequest>) -> Reply<pb::SendHandoffResponse> {
        graph::send_handoff(self, request).await.map(Response::new)
    }

    async fn list_mailbox(&self, request: Request<pb::ListMailboxRequest>) -> Reply<pb::ListMailboxResponse> {
        graph::list_mailbox(self, request).await.map(Response::new)
    }

    async fn acknowledge_mailbox(
        &self,
        request: Request<pb::AcknowledgeMailboxRequest>,
    ) -> Reply<pb::AcknowledgeMailboxResponse> {
        graph::acknowledge_mailbox(self, request).await.map(Response::new)
    }

    async fn list_approvals(&self, request: Request<pb::ListApprovalsRequest>) -> Reply<pb::ListApprovalsResponse> {
        approvals::list_approvals(self, request).await.map(Response::new)
    }

    async fn resolve_approval(
        &self,
        request: Request<pb::ResolveApprovalRequest>,
    ) -> Reply<pb::ResolveApprovalResponse> {
        approvals::resolve_approval(self, request).await.map(Response::new)
    }

    async fn watch_threads(&self, request: Request<pb::WatchThreadsRequest>) -> Reply<Self::WatchThreadsStream> {
        self.begin_watch(request).await.map(watch::decoded).map(Response::new)
    }

    async fn watch_notifications(
        &self,
        request: Request<pb::WatchNotificationsRequest>,
    ) -> Reply<Self::WatchNotificationsStream> {
        watch::watch_notifications(self, request).await.map(Response::new)
    }

    async fn set_active_thread(
        &self,
        request: Request<pb::SetActiveThreadRequest>,
    ) -> Reply<pb::SetActiveThreadResponse> {
        watch::set_active_thread(self, request).await.map(Response::new)
    }

    async fn list_prompts(&self, request: Request<pb::ListPromptsRequest>) -> Reply<pb::ListPromptsResponse> {
        prompts::list_prompts(self, request).await.map(Response::new)
    }

    async fn get_prompt(&self, request: Request<pb::GetPromptRequest>) -> Reply<pb::GetPromptResponse> {
        prompts::get_prompt(self, request).await.map(Response::new)
    }

    async fn list_transcript(&self, request: Request<pb::ListTranscriptRequest>) -> Reply<pb::ListTranscriptResponse> {
        transcripts::list_transcript(self, request).await.map(Response::new)
    }

    async fn watch_transcript(
        &self,
        request: Request<pb::WatchTranscriptRequest>,
    ) -> Reply<Self::WatchTranscriptStream> {
        transcripts::watch_transcript(self, request).await.map(Response::new)
    }

    async fn append_transcript(
        &self,
        request: Request<pb::AppendTranscriptRequest>,
    ) -> Reply<pb::AppendTranscriptResponse> {
        transcripts::append_transcript(self, request).await.map(Response::new)
    }

    async fn list_runners(&self, request: Request<pb::ListRunnersRequest>) -> Reply<pb::ListRunnersResponse> {
        runners::list_runners(self, &request).map(Response::new)
    }

    async fn list_members(&self, request: Request<pb::ListMembersRequest>) -> Reply<pb::ListMembersResponse> {
        members::list_members(self, &request).await.map(Response::new)
    }

    async fn drain_member(&self, request: Request<pb::DrainMemberRequest>) -> Reply<pb::DrainMemberResponse> {
        members::drain_member(self, request).await.map(Response::new)
    }

    async fn move_session(&self, request: Request<pb::MoveSessionRequest>) -> Reply<pb::MoveSessionResponse> {
        members::move_session(self, request).await.map(Response::new)
    }

    async fn export_session(&self, request: Request<pb::ExportSessionRequest>) -> Reply<Self::ExportSessionStream> {
        export::export_session(self, request).await.map(Response::new)
    }

    async fn list_artifacts(&self, request: Request<pb::ListArtifactsRequest>) -> Reply<pb::ListArtifactsResponse> {
        content::list_artifacts(self, request).await.map(Response::new)
    }

    async fn get_content(&self, request: Request<pb::GetContentRequest>) -> Reply<Self::GetContentStream> {
        content::get_content(self, request).await.map(Response::new)
    }

    async fn get_quota(&self, request: Request<pb::GetQuotaRequest>) -> Reply<pb::GetQuotaResponse> {
        threads::get_quota(self, request).await.map(Response::new)
    }
}
