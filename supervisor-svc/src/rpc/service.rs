//! Every method of the service in one list; each hands over to where it is built.

use std::sync::Arc;

use futures::stream::BoxStream;
use svc_kit::thread_token::TokenKeys;
use tokio::sync::Semaphore;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use troupe_proto::supervisor::v1::{self as pb, agent_supervisor_service_server::AgentSupervisorService};

use super::{WaitLimits, content::MAX_READS, inherited::Instructions, watch};
use crate::{clock::Clock, domain::settings::{Limits, StallRule}, engine::Directory, projections::{notifications::Clients, watch::{BeginWatch as _, WatchLimits}}, registry_client::RegistryClient};

/// Startup configuration of the service.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// Defaults and maxima of sessions' limits.
    pub limits: Limits,
    /// The stall rule for threads of new sessions.
    pub stall: StallRule,
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
    pub(super) clients: Clients,
    /// Cache of the instructions that parents pass to their children.
    pub(super) instructions: Arc<Instructions>,
    /// Room for contents that are being read.
    pub(super) reads: Arc<Semaphore>,
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
            reads: Arc::new(Semaphore::new(MAX_READS)),
            directory,
            registry,
            clients: Clients::default(),
            instructions: Arc::default(),
            config,
            draining,
        }
    }

    /// Returns the source of wall-clock time and new ids.
    pub(super) fn clock(&self) -> &Clock {
        &self.directory.context().clock
    }
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl AgentSupervisorService for SupervisorService {
    type WatchSessionsStream = ReceiverStream<Result<pb::WatchSessionsResponse, Status>>;
    type WatchThreadsStream = BoxStream<'static, Result<pb::WatchThreadsResponse, Status>>;
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

    async fn watch_sessions(&self, request: Request<pb::WatchSessionsRequest>) -> Answer<Self::WatchSessionsStream> {
        self.follow_sessions(request).await.map(Response::new)
    }

    async fn update_session(&self, request: Request<pb::UpdateSessionRequest>) -> Answer<pb::UpdateSessionResponse> {
        self.update(request).await.map(Response::new)
    }

    async fn close_session(&self, request: Request<pb::CloseSessionRequest>) -> Answer<pb::CloseSessionResponse> {
        self.end_session(request).await.map(Response::new)
    }

    async fn delete_session(&self, request: Request<pb::DeleteSessionRequest>) -> Answer<pb::DeleteSessionResponse> {
        self.delete(request).await.map(Response::new)
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
        request: Request<pb::UpdateThreadBudgetRequest>,
    ) -> Answer<pb::UpdateThreadBudgetResponse> {
        self.update_budget(request).await.map(Response::new)
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

    async fn create_edge(&self, request: Request<pb::CreateEdgeRequest>) -> Answer<pb::CreateEdgeResponse> {
        self.connect(request).await.map(Response::new)
    }

    async fn delete_edge(&self, request: Request<pb::DeleteEdgeRequest>) -> Answer<pb::DeleteEdgeResponse> {
        self.disconnect(request).await.map(Response::new)
    }

    async fn list_edges(&self, request: Request<pb::ListEdgesRequest>) -> Answer<pb::ListEdgesResponse> {
        self.edges(request).await.map(Response::new)
    }

    async fn send_handoff(&self, request: Request<pb::SendHandoffRequest>) -> Answer<pb::SendHandoffResponse> {
        self.hand_off(request).await.map(Response::new)
    }

    async fn list_mailbox(&self, request: Request<pb::ListMailboxRequest>) -> Answer<pb::ListMailboxResponse> {
        self.mailbox(request).await.map(Response::new)
    }

    async fn acknowledge_mailbox(
        &self,
        request: Request<pb::AcknowledgeMailboxRequest>,
    ) -> Answer<pb::AcknowledgeMailboxResponse> {
        self.acknowledge(request).await.map(Response::new)
    }

    async fn list_approvals(&self, request: Request<pb::ListApprovalsRequest>) -> Answer<pb::ListApprovalsResponse> {
        self.approvals(request).await.map(Response::new)
    }

    async fn resolve_approval(
        &self,
        request: Request<pb::ResolveApprovalRequest>,
    ) -> Answer<pb::ResolveApprovalResponse> {
        self.decide(request).await.map(Response::new)
    }

    async fn watch_threads(&self, request: Request<pb::WatchThreadsRequest>) -> Answer<Self::WatchThreadsStream> {
        self.begin_watch(request).await.map(watch::decoded).map(Response::new)
    }

    async fn watch_notifications(
        &self,
        request: Request<pb::WatchNotificationsRequest>,
    ) -> Answer<Self::WatchNotificationsStream> {
        self.notify(request).await.map(Response::new)
    }

    async fn set_active_thread(
        &self,
        request: Request<pb::SetActiveThreadRequest>,
    ) -> Answer<pb::SetActiveThreadResponse> {
        self.focus(request).await.map(Response::new)
    }

    async fn list_prompts(&self, request: Request<pb::ListPromptsRequest>) -> Answer<pb::ListPromptsResponse> {
        self.prompts(request).await.map(Response::new)
    }

    async fn get_prompt(&self, request: Request<pb::GetPromptRequest>) -> Answer<pb::GetPromptResponse> {
        self.prompt(request).await.map(Response::new)
    }

    async fn list_artifacts(&self, request: Request<pb::ListArtifactsRequest>) -> Answer<pb::ListArtifactsResponse> {
        self.artifacts(request).await.map(Response::new)
    }

    async fn get_content(&self, request: Request<pb::GetContentRequest>) -> Answer<Self::GetContentStream> {
        self.content(request).await.map(Response::new)
    }

    async fn get_quota(&self, request: Request<pb::GetQuotaRequest>) -> Answer<pb::GetQuotaResponse> {
        self.quota(request).await.map(Response::new)
    }
}
