//! Complete lists from the supervisor, across all pages.

use std::collections::BTreeMap;

use troupe_client::Supervisor;
use troupe_proto::supervisor::v1::{
    Approval, Artifact, Edge, ListActiveAgentsRequest, ListApprovalsRequest, ListArtifactsRequest, ListEdgesRequest,
    ListMailboxRequest, ListPromptsRequest, ListRunnersRequest, ListScope, ListSessionsRequest,
    ListSpawnableAgentsRequest, Mail, Prompt, Runner, Session, SpawnableAgent, Thread,
};

use crate::error::Result;

/// Maximum page size of the supervisor.
const PAGE: i32 = 1000;

/// Fetches all pages of a list. `fetch` takes a page token and returns the page and the next token, which is empty
/// after the last page.
async fn every_page<T>(mut fetch: impl AsyncFnMut(String) -> Result<(Vec<T>, String)>) -> Result<Vec<T>> {
    let mut all = Vec::new();
    let mut page_token = String::new();
    loop {
        let (page, next) = fetch(page_token).await?;
        all.extend(page);
        if next.is_empty() {
            return Ok(all);
        }
        page_token = next;
    }
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
    every_page(async |page_token: String| -> Result<(Vec<Session>, String)> {
        let request = ListSessionsRequest {
            page_size: PAGE,
            page_token,
            include_closed,
            labels: labels.clone(),
        };
        let page = supervisor.list_sessions(request).await?.into_inner();
        Ok((page.sessions, page.next_page_token))
    })
    .await
}

/// Lists the threads of a session in spawn order, the root first. An empty session id refers to the session of the
/// caller's thread.
pub(crate) async fn threads(supervisor: &mut Supervisor, session: &str, include_closed: bool) -> Result<Vec<Thread>> {
    every_page(async |page_token: String| -> Result<(Vec<Thread>, String)> {
        let request = ListActiveAgentsRequest {
            session_id: session.to_owned(),
            scope: ListScope::All.into(),
            include_tree: true,
            include_closed,
            include_self: true,
            page_size: PAGE,
            page_token,
            ..ListActiveAgentsRequest::default()
        };
        let page = supervisor.list_active_agents(request).await?.into_inner();
        Ok((page.threads, page.next_page_token))
    })
    .await
}

/// Lists the approvals of a session, oldest first. An empty session id refers to the session of the caller's thread.
pub(crate) async fn approvals(
    supervisor: &mut Supervisor,
    session: &str,
    include_resolved: bool,
) -> Result<Vec<Approval>> {
    every_page(async |page_token: String| -> Result<(Vec<Approval>, String)> {
        let request = ListApprovalsRequest {
            session_id: session.to_owned(),
            include_resolved,
            page_size: PAGE,
            page_token,
        };
        let page = supervisor.list_approvals(request).await?.into_inner();
        Ok((page.approvals, page.next_page_token))
    })
    .await
}

/// Lists the edges of a session, or the edges of one of its threads, oldest first. An empty session id refers to the
/// session of the caller's thread.
pub(crate) async fn edges(supervisor: &mut Supervisor, session: &str, thread: Option<&str>) -> Result<Vec<Edge>> {
    every_page(async |page_token: String| -> Result<(Vec<Edge>, String)> {
        let request = ListEdgesRequest {
            session_id: session.to_owned(),
            thread_id: thread.unwrap_or_default().to_owned(),
            page_size: PAGE,
            page_token,
        };
        let page = supervisor.list_edges(request).await?.into_inner();
        Ok((page.edges, page.next_page_token))
    })
    .await
}

/// Lists the stored prompts of a thread, oldest first.
pub(crate) async fn prompts(supervisor: &mut Supervisor, thread: &str) -> Result<Vec<Prompt>> {
    every_page(async |page_token: String| -> Result<(Vec<Prompt>, String)> {
        let request = ListPromptsRequest {
            thread_id: thread.to_owned(),
            page_size: PAGE,
            page_token,
            ..ListPromptsRequest::default()
        };
        let page = supervisor.list_prompts(request).await?.into_inner();
        Ok((page.prompts, page.next_page_token))
    })
    .await
}

/// Lists the artifacts of a session, or of one of its threads, oldest first.
pub(crate) async fn artifacts(supervisor: &mut Supervisor, session: &str, thread: &str) -> Result<Vec<Artifact>> {
    every_page(async |page_token: String| -> Result<(Vec<Artifact>, String)> {
        let request = ListArtifactsRequest {
            session_id: session.to_owned(),
            thread_id: thread.to_owned(),
            page_size: PAGE,
            page_token,
        };
        let page = supervisor.list_artifacts(request).await?.into_inner();
        Ok((page.artifacts, page.next_page_token))
    })
    .await
}

/// Lists the roles that a thread may spawn, by name.
pub(crate) async fn spawnable(supervisor: &mut Supervisor, thread: &str) -> Result<Vec<SpawnableAgent>> {
    every_page(async |page_token: String| -> Result<(Vec<SpawnableAgent>, String)> {
        let request = ListSpawnableAgentsRequest {
            thread_id: thread.to_owned(),
            page_size: PAGE,
            page_token,
            expanded: true,
            ..ListSpawnableAgentsRequest::default()
        };
        let page = supervisor.list_spawnable_agents(request).await?.into_inner();
        Ok((page.agents, page.next_page_token))
    })
    .await
}

/// Lists the runners that the supervisor knows, by id.
pub(crate) async fn runners(supervisor: &mut Supervisor) -> Result<Vec<Runner>> {
    every_page(async |page_token: String| -> Result<(Vec<Runner>, String)> {
        let request = ListRunnersRequest {
            page_size: PAGE,
            page_token,
        };
        let page = supervisor.list_runners(request).await?.into_inner();
        Ok((page.runners, page.next_page_token))
    })
    .await
}

/// Lists the mail of a thread, oldest first.
pub(crate) async fn mail(supervisor: &mut Supervisor, thread: &str, include_acknowledged: bool) -> Result<Vec<Mail>> {
    every_page(async |page_token: String| -> Result<(Vec<Mail>, String)> {
        let request = ListMailboxRequest {
            thread_id: thread.to_owned(),
            include_acknowledged,
            page_size: PAGE,
            page_token,
            ..ListMailboxRequest::default()
        };
        let page = supervisor.list_mailbox(request).await?.into_inner();
        Ok((page.mail, page.next_page_token))
    })
    .await
}
