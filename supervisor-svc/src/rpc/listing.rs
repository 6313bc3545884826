//! Listing sessions, whether they are in memory or not.

use tonic::{Request, Status};
use troupe_proto::supervisor::v1 as pb;

use super::{SupervisorService, call::Call, page::Page, parse};
use crate::{domain::ids::SessionId, projections::overview::Filter};

/// Maximum number of scans per call, regardless of how many sessions match. Together, the scans examine slightly more
/// sessions than the largest page has.
const LOOKS: usize = 8;

impl SupervisorService {
    pub(super) async fn all_sessions(
        &self,
        request: Request<pb::ListSessionsRequest>,
    ) -> Result<pb::ListSessionsResponse, Status> {
        let call = Call::of(&request)?;
        let mut request = request.into_inner();
        check::wanted_labels("labels", &request.labels)?;
        let page = Page::of(&mut request, &call.scope)?;
        let filter = Filter {
            labels: request.labels,
            include_closed: request.include_closed,
        };
        let (sessions, next_page_token) = self.fill(&page, &filter).await?;
        let sessions = sessions.into_iter().map(|session| call.sight.session(session));
        Ok(pb::ListSessionsResponse {
            sessions: sessions.collect(),
            next_page_token,
        })
    }

    /// Returns the sessions of a page, newest first, and the token of the next page. The page may be shorter than the
    /// maximum or empty, because sessions that a filter hides count towards the scan limit too.
    async fn fill(&self, page: &Page<SessionId>, filter: &Filter) -> Result<(Vec<pb::Session>, String), Status> {
        let mut draft = page.draft();
        let mut before = page.after().copied();
        for _ in 0..LOOKS {
            let (sessions, next) = self.directory.sessions_before(before).await?;
            for (id, session) in sessions {
                if filter.shows(&session) && !draft.take(id, session) {
                    return Ok(draft.finish(true));
                }
            }
            let Some(next) = next else {
                return Ok(draft.finish(false));
            };
            draft.pass(next);
            before = Some(next);
        }
        Ok(draft.finish(true))
    }
}
