//! Sessions and complete lists from the supervisor, across all pages.

use std::collections::BTreeMap;

use troupe_client::Supervisor;
use troupe_proto::supervisor::v1::{
    Approval, Artifact, Edge, GetSessionRequest, ListActiveAgentsRequest, ListApprovalsRequest, ListArtifactsRequest,
    ListEdgesRequest, ListMailboxRequest, ListPromptsRequest, ListRunnersRequest, ListScope, ListSessionsRequest,
    ListSpawnableAgentsRequest, Mail, Prompt, Runner, Session, SpawnableAgent, Thread,
};

use crate::error::{Error, Result};

/// Maximum page size of the supervisor.
const PAGE: i32 = 1000;

/// Fetches all pages of a list RPC: `every_page!(CLIENT.RPC(REQUEST).FIELD)`. `FIELD` of the response has the items.
macro_rules! every_page {
    ($supervisor:ident.$list:ident($request:expr).$items:ident) => {{
        let mut request = $request;
        let mut all = Vec::new();
        loop {
            request.page_size = PAGE;
            let page = $supervisor.$list(request.clone()).await?.into_inner();
            all.extend(page.$items);
            if page.next_page_token.is_empty() {
                return Ok(all);
            }
            request.page_token = page.next_page_token;
        }
    }};
}

/// Lists the sessions, newest first.
pub(crate) async fn sessions(supervisor: &mut Supervisor, include_closed: bool) -> Result<Vec<Session>> {
    sessions_with(supervisor, BTreeMap::new(), include_closed).await
}

/// Lists the sessions that have all of the labels, newest first.
pub(crate) async fn sessions_with(
    supervisor: &mut Supervisor,
    labels: BTreeMap<String, String>,
    include_closed: bool,
) -> Result<Vec<Session>> {
    let request = ListSessionsRequest {
        include_closed,
        labels,
        ..ListSessionsRequest::default()
    };
    every_page!(supervisor.list_sessions(request).sessions)
}

/// Reads a session.
pub(crate) async fn session(supervisor: &mut Supervisor, session_id: String) -> Result<Session> {
    let answer = supervisor
        .get_session(GetSessionRequest { session_id })
        .await?
        .into_inner();
    answer.session.ok_or_else(Error::empty_answer)
}

/// Lists the threads of a session in spawn order, the root first. An empty session id refers to the session of the
/// caller's thread.
pub(crate) async fn threads(supervisor: &mut Supervisor, session: &str, include_closed: bool) -> Result<Vec<Thread>> {
    let request = ListActiveAgentsRequest {
        session_id: session.to_owned(),
        scope: ListScope::All.into(),
        include_tree: true,
        include_closed,
        include_self: true,
        ..ListActiveAgentsRequest::default()
    };
    every_page!(supervisor.list_active_agents(request).threads)
}

/// Lists the approvals of a session, oldest first. An empty session id refers to the session of the caller's thread.
pub(crate) async fn approvals(
    supervisor: &mut Supervisor,
    session: &str,
    include_resolved: bool,
) -> Result<Vec<Approval>> {
    let request = ListApprovalsRequest {
        session_id: session.to_owned(),
        include_resolved,
        ..ListApprovalsRequest::default()
    };
    every_page!(supervisor.list_approvals(request).approvals)
}

/// Lists the edges of a session, or the edges of one of its threads, oldest first. An empty session id refers to the
/// session of the caller's thread.
pub(crate) async fn edges(supervisor: &mut Supervisor, session: &str, thread: Option<&str>) -> Result<Vec<Edge>> {
    let request = ListEdgesRequest {
        session_id: session.to_owned(),
        thread_id: thread.unwrap_or_default().to_owned(),
        ..ListEdgesRequest::default()
    };
    every_page!(supervisor.list_edges(request).edges)
}

/// Lists the stored prompts of a thread, oldest first.
pub(crate) async fn prompts(supervisor: &mut Supervisor, thread: &str) -> Result<Vec<Prompt>> {
    let request = ListPromptsRequest {
        thread_id: thread.to_owned(),
        ..ListPromptsRequest::default()
    };
    every_page!(supervisor.list_prompts(request).prompts)
}

/// Lists the artifacts of a session, or of one of its threads, oldest first.
pub(crate) async fn artifacts(supervisor: &mut Supervisor, session: &str, thread: &str) -> Result<Vec<Artifact>> {
    let request = ListArtifactsRequest {
        session_id: session.to_owned(),
        thread_id: thread.to_owned(),
        ..ListArtifactsRequest::default()
    };
    every_page!(supervisor.list_artifacts(request).artifacts)
}

/// Lists the roles that a thread may spawn, by name.
pub(crate) async fn spawnable(supervisor: &mut Supervisor, thread: &str) -> Result<Vec<SpawnableAgent>> {
    let request = ListSpawnableAgentsRequest {
        thread_id: thread.to_owned(),
        expanded: true,
        ..ListSpawnableAgentsRequest::default()
    };
    every_page!(supervisor.list_spawnable_agents(request).agents)
}

/// Lists the runners that the supervisor knows, by id.
pub(crate) async fn runners(supervisor: &mut Supervisor) -> Result<Vec<Runner>> {
    every_page!(supervisor.list_runners(ListRunnersRequest::default()).runners)
}

/// Lists the mail of a thread, oldest first.
pub(crate) async fn mail(supervisor: &mut Supervisor, thread: &str, include_acknowledged: bool) -> Result<Vec<Mail>> {
    let request = ListMailboxRequest {
        thread_id: thread.to_owned(),
        include_acknowledged,
        ..ListMailboxRequest::default()
    };
    every_page!(supervisor.list_mailbox(request).mail)
}
