//! Whole lists: every page of what the supervisor knows.

use troupe_proto::supervisor::v1::{ListActiveAgentsRequest, ListScope, ListSessionsRequest, Session, Thread};

use crate::{client::Supervisor, error::Result};

/// The largest page that the supervisor gives.
const PAGE: i32 = 1000;

/// The sessions, newest first.
pub(crate) async fn sessions(supervisor: &mut Supervisor, include_closed: bool) -> Result<Vec<Session>> {
    let mut all = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListSessionsRequest {
            page_size: PAGE,
            page_token,
            include_closed,
            ..ListSessionsRequest::default()
        };
        let page = supervisor.list_sessions(request).await?.into_inner();
        all.extend(page.sessions);
        if page.next_page_token.is_empty() {
            return Ok(all);
        }
        page_token = page.next_page_token;
    }
}

/// The threads of a session in spawn order, the root first. An empty session means that of the caller's own thread.
pub(crate) async fn threads(supervisor: &mut Supervisor, session: &str, include_closed: bool) -> Result<Vec<Thread>> {
    let mut all = Vec::new();
    let mut page_token = String::new();
    loop {
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
        all.extend(page.threads);
        if page.next_page_token.is_empty() {
            return Ok(all);
        }
        page_token = page.next_page_token;
    }
}
