//! Every method of the service in one list; each hands over to where it is built.

use std::sync::Arc;

use svc_kit::thread_token::TokenKeys;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use troupe_proto::supervisor::v1::{self as pb, agent_supervisor_service_server::AgentSupervisorService};

use super::{WaitLimits, unbuilt};
use crate::{domain::settings::Limits, registry::RegistryClient, session::Directory, watch::WatchLimits};

/// What the service is told at its start.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// Defaults and maxima of sessions' limits.
    pub limits: Limits,
    /// Times of WaitAgents.
    pub wait: WaitLimits,
    /// Times of watches.
    pub watch: WatchLimits,
}

/// The service.
#[derive(Clone)]
pub struct SupervisorService {
    pub(super) directory: Directory,
    pub(super) registry: RegistryClient,
    pub(super) keys: Arc<TokenKeys>,
    pub(super) config: ServiceConfig,
    pub(super) draining: CancellationToken,
}

impl SupervisorService {
    /// The service over these sessions.
    #[must_use]
    pub fn new(
        directory: Directory,
        registry: RegistryClient,
        config: ServiceConfig,
        draining: CancellationToken,
    ) -> Self {
        Self {
            keys: Arc::clone(&directory.context().keys),
            directory,
            registry,
            config,
            draining,
        }
    }
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl AgentSupervisorService for SupervisorService {
    type WatchSessionsStream = ReceiverStream<Result<pb::WatchSessionsResponse, Status>>;
    type WatchThreadsStream = ReceiverStream<Result<pb::WatchThreadsResponse, Status>>;
    type WatchNotificationsStream = ReceiverStream<Result<pb::WatchNotificationsResponse, Status>>;
    type GetContentStream = ReceiverStream<Result<pb::GetContentResponse, Status>>;

    async fn create_session(&self, request: Request<pb::CreateSessionRequest>) -> Answer<pb::CreateSessionResponse> {
        self.create(request).await.map(Response::new)
    }

    async fn get_session(&self, request: Request<pb::GetSessionRequest>) -> Answer<pb::GetSessionResponse> {
        self.read_session(request).await.map(Response::new)
    }

    async fn list_sessions(&self, request: Request<pb::ListSessionsRequest>) -> Answer<pb::ListSessionsResponse> {
        self.all_sessions(request).await.map(Response::new)
    }

    async fn watch_sessions(&self, _: Request<pb::WatchSessionsRequest>) -> Answer<Self::WatchSessionsStream> {
        Err(unbuilt::method("WatchSessions"))
    }

    async fn update_session(&self, _: Request<pb::UpdateSessionRequest>) -> Answer<pb::UpdateSessionResponse> {
        Err(unbuilt::method("UpdateSession"))
    }

    async fn close_session(&self, request: Request<pb::CloseSessionRequest>) -> Answer<pb::CloseSessionResponse> {
        self.end_session(request).await.map(Response::new)
    }

    async fn delete_session(&self, _: Request<pb::DeleteSessionRequest>) -> Answer<pb::DeleteSessionResponse> {
        Err(unbuilt::method("DeleteSession"))
    }

    async fn spawn_agent(&self, request: Request<pb::SpawnAgentRequest>) -> Answer<pb::SpawnAgentResponse> {
        self.spawn(request).await.map(Response::new)
    }

    async fn send_input(&self, request: Request<pb::SendInputRequest>) -> Answer<pb::SendInputResponse> {
        self.send(request).await.map(Response::new)
    }

    async fn interrupt_agent(&self, request: Request<pb::InterruptAgentRequest>) -> Answer<pb::InterruptAgentResponse> {
        self.interrupt(request).await.map(Response::new)
    }

    async fn wait_agents(&self, request: Request<pb::WaitAgentsRequest>) -> Answer<pb::WaitAgentsResponse> {
        self.wait(request).await.map(Response::new)
    }

    async fn close_agent(&self, request: Request<pb::CloseAgentRequest>) -> Answer<pb::CloseAgentResponse> {
        self.close(request).await.map(Response::new)
    }

    async fn resume_agent(&self, request: Request<pb::ResumeAgentRequest>) -> Answer<pb::ResumeAgentResponse> {
        self.resume(request).await.map(Response::new)
    }

    async fn set_thread_note(&self, request: Request<pb::SetThreadNoteRequest>) -> Answer<pb::SetThreadNoteResponse> {
        self.set_note(request).await.map(Response::new)
    }

    async fn update_thread_budget(
        &self,
        _: Request<pb::UpdateThreadBudgetRequest>,
    ) -> Answer<pb::UpdateThreadBudgetResponse> {
        Err(unbuilt::method("UpdateThreadBudget"))
    }

    async fn get_thread(&self, request: Request<pb::GetThreadRequest>) -> Answer<pb::GetThreadResponse> {
        self.read_thread(request).await.map(Response::new)
    }

    async fn list_active_agents(
        &self,
        request: Request<pb::ListActiveAgentsRequest>,
    ) -> Answer<pb::ListActiveAgentsResponse> {
        self.list(request).await.map(Response::new)
    }

    async fn authorize_tool(&self, request: Request<pb::AuthorizeToolRequest>) -> Answer<pb::AuthorizeToolResponse> {
        self.authorize(request).await.map(Response::new)
    }

    async fn describe_tools(&self, request: Request<pb::DescribeToolsRequest>) -> Answer<pb::DescribeToolsResponse> {
        self.tools(request).await.map(Response::new)
    }

    async fn list_spawnable_agents(
        &self,
        request: Request<pb::ListSpawnableAgentsRequest>,
    ) -> Answer<pb::ListSpawnableAgentsResponse> {
        self.spawnable(request).await.map(Response::new)
    }

    async fn create_edge(&self, _: Request<pb::CreateEdgeRequest>) -> Answer<pb::CreateEdgeResponse> {
        Err(unbuilt::method("CreateEdge"))
    }

    async fn delete_edge(&self, _: Request<pb::DeleteEdgeRequest>) -> Answer<pb::DeleteEdgeResponse> {
        Err(unbuilt::method("DeleteEdge"))
    }

    async fn list_edges(&self, _: Request<pb::ListEdgesRequest>) -> Answer<pb::ListEdgesResponse> {
        Err(unbuilt::method("ListEdges"))
    }

    async fn send_handoff(&self, _: Request<pb::SendHandoffRequest>) -> Answer<pb::SendHandoffResponse> {
        Err(unbuilt::method("SendHandoff"))
    }

    async fn list_mailbox(&self, _: Request<pb::ListMailboxRequest>) -> Answer<pb::ListMailboxResponse> {
        Err(unbuilt::method("ListMailbox"))
    }

    async fn acknowledge_mailbox(
        &self,
        _: Request<pb::AcknowledgeMailboxRequest>,
    ) -> Answer<pb::AcknowledgeMailboxResponse> {
        Err(unbuilt::method("AcknowledgeMailbox"))
    }

    async fn list_approvals(&self, _: Request<pb::ListApprovalsRequest>) -> Answer<pb::ListApprovalsResponse> {
        Err(unbuilt::method("ListApprovals"))
    }

    async fn resolve_approval(&self, _: Request<pb::ResolveApprovalRequest>) -> Answer<pb::ResolveApprovalResponse> {
        Err(unbuilt::method("ResolveApproval"))
    }

    async fn watch_threads(&self, request: Request<pb::WatchThreadsRequest>) -> Answer<Self::WatchThreadsStream> {
        self.watch(request).await.map(Response::new)
    }

    async fn watch_notifications(
        &self,
        _: Request<pb::WatchNotificationsRequest>,
    ) -> Answer<Self::WatchNotificationsStream> {
        Err(unbuilt::method("WatchNotifications"))
    }

    async fn set_active_thread(&self, _: Request<pb::SetActiveThreadRequest>) -> Answer<pb::SetActiveThreadResponse> {
        Err(unbuilt::method("SetActiveThread"))
    }

    async fn list_prompts(&self, _: Request<pb::ListPromptsRequest>) -> Answer<pb::ListPromptsResponse> {
        Err(unbuilt::method("ListPrompts"))
    }

    async fn get_prompt(&self, _: Request<pb::GetPromptRequest>) -> Answer<pb::GetPromptResponse> {
        Err(unbuilt::method("GetPrompt"))
    }

    async fn list_artifacts(&self, _: Request<pb::ListArtifactsRequest>) -> Answer<pb::ListArtifactsResponse> {
        Err(unbuilt::method("ListArtifacts"))
    }

    async fn get_content(&self, _: Request<pb::GetContentRequest>) -> Answer<Self::GetContentStream> {
        Err(unbuilt::method("GetContent"))
    }

    async fn get_quota(&self, request: Request<pb::GetQuotaRequest>) -> Answer<pb::GetQuotaResponse> {
        self.quota(request).await.map(Response::new)
    }
}
