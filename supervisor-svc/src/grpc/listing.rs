//! Listing sessions, whether they are in memory or not.

use tonic::{Request, Status};
use troupe_proto::supervisor::v1 as pb;

use super::{SupervisorService, call::Call, check, page::SessionPage};
use crate::session::Filter;

impl SupervisorService {
    pub(super) async fn all_sessions(
        &self,
        request: Request<pb::ListSessionsRequest>,
    ) -> Result<pb::ListSessionsResponse, Status> {
        let call = Call::of(&request)?;
        let mut request = request.into_inner();
        check::labels("labels", &request.labels)?;
        let mut page = SessionPage::of(&mut request, &call.scope)?;
        let filter = Filter {
            labels: request.labels,
            include_closed: request.include_closed,
        };
        let more = self.fill(&mut page, &filter).await?;
        let (sessions, next_page_token) = page.finish(more);
        let sessions = sessions.into_iter().map(|session| call.sight.session(session));
        Ok(pb::ListSessionsResponse {
            sessions: sessions.collect(),
            next_page_token,
        })
    }

    /// Fills a page. Answers whether there is a session for which it had no room.
    async fn fill(&self, page: &mut SessionPage, filter: &Filter) -> Result<bool, Status> {
        let mut before = page.last();
        loop {
            let (sessions, next) = self.directory.sessions_before(before).await?;
            for (id, session) in sessions {
                if filter.shows(&session) && !page.take(id, session) {
                    return Ok(true);
                }
            }
            if next.is_none() {
                return Ok(false);
            }
            before = next;
        }
    }
}
