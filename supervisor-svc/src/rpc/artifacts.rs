//! Handlers that list the artifacts of threads.

use std::sync::Arc;

use supervisor_log::store::MarkKind;
use tonic::{Request, Status};
use troupe_proto::supervisor::v1 as pb;

use super::{SupervisorService, call::Call, marks::Marks, page::Page, parse, status::refused};
use crate::{convert, domain::{event::Recorded, rejection::GuardedVerb, rules::authority}};

impl SupervisorService {
    pub(super) async fn artifacts(
        &self,
        request: Request<pb::ListArtifactsRequest>,
    ) -> Result<pb::ListArtifactsResponse, Status> {
        let call = Call::of(&request)?;
        let mut request = request.into_inner();
        let page = Page::of(&mut request, &call.scope)?;
        let named = check::optional_id("thread_id", &request.thread_id)?;
        let handle = self
            .session_for(&call, &request.session_id, named, GuardedVerb::Act)
            .await?;
        let around = Self::thread_or_own(&call, &handle, named)?;
        let state = handle.state();
        authority::authorize(&state, &call.caller, "ListArtifacts", around).map_err(refused)?;
        let marks = Marks {
            store: Arc::clone(&self.directory.context().store),
            session: handle.id(),
            kind: MarkKind::Artifact,
            thread: named,
        };
        let is_visible = |recorded: &Recorded| match (call.caller.thread(), recorded.event.thread()) {
            (Some(own), Some(thread)) => state.is_within(thread, own),
            (None, _) => true,
            (Some(_), None) => false,
        };
        let show = |recorded: &Recorded| wire::marked::artifact(recorded).filter(|_| is_visible(recorded));
        let (artifacts, next_page_token) = marks.page(&page, show).await?;
        Ok(pb::ListArtifactsResponse {
            artifacts,
            next_page_token,
        })
    }
}
