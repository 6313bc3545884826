//! Reading threads: one, a listing, a quota.

use std::sync::Arc;

use serde_json::json;
use tonic::{Request, Status};
use troupe_proto::supervisor::v1 as pb;

use super::{SupervisorService, agreement::asked, call::Call, page::Page, parse, status::refused};
use crate::{convert::{self, View}, domain::{rejection::GuardedVerb, rules::{authority, list::{Listing, list}}, state::thread::Thread}};

impl SupervisorService {
    pub(super) async fn read_thread(
        &self,
        request: Request<pb::GetThreadRequest>,
    ) -> Result<pb::GetThreadResponse, Status> {
        let call = Call::of(&request)?;
        let request = request.into_inner();
        // A thread that names none means itself; an operator has to name one.
        let thread_id = match call.caller.thread() {
            Some(own) if request.thread_id.is_empty() => own.to_string(),
            _ => request.thread_id,
        };
        let (handle, target) = self.target(&call, &request.session_id, &thread_id, "GetThread").await?;
        let state = handle.state();
        Ok(pb::GetThreadResponse {
            thread: Some(self.show_to(&call, &state, target)?),
            roll_up: state.thread(target).map(|top| wire::thread::roll_up_of(&state, top)),
        })
    }

    pub(super) async fn list(
        &self,
        request: Request<pb::ListActiveAgentsRequest>,
    ) -> Result<pb::ListActiveAgentsResponse, Status> {
        let call = Call::of(&request)?;
        let mut request = request.into_inner();
        let page = Page::of(&mut request, &call.scope)?;
        let named = check::optional_id("thread_id", &request.thread_id)?;
        let handle = self
            .session_for(&call, &request.session_id, named, GuardedVerb::Act)
            .await?;
        let around = Self::thread_or_own(&call, &handle, named)?;
        authority::authorize(&handle.state(), &call.caller, "ListActiveAgents", around).map_err(refused)?;
        let asked = asked(&call, &handle, "ListActiveAgents", "", &request, || json!({}));
        self.agreed(&call, &handle, asked).await?;
        let state = handle.state();
        let listing = Listing {
            around,
            visible: call.caller.thread().or(state.root_id()).unwrap_or(around),
            scope: check::choice("scope", request.scope)?,
            include_closed: request.include_closed,
            include_self: request.include_self,
            statuses: request
                .statuses
                .iter()
                .map(|kind| check::choice("statuses", *kind))
                .collect::<Result<_, _>>()?,
        };
        let found = list(&state, &listing);
        let view = View {
            tree: request.include_tree,
            sight: call.sight,
        };
        let entries = found.iter().map(|thread| (thread.spawn_sequence, thread));
        let show = |thread: &Arc<Thread>| self.directory.context().show(&state, thread, view);
        let (threads, next_page_token) = page.cut(entries, show, None);
        Ok(pb::ListActiveAgentsResponse {
            threads,
            next_page_token,
        })
    }

    pub(super) async fn quota(&self, request: Request<pb::GetQuotaRequest>) -> Result<pb::GetQuotaResponse, Status> {
        let call = Call::of(&request)?;
        let request = request.into_inner();
        let named = check::optional_id("thread_id", &request.thread_id)?;
        let handle = self
            .session_for(&call, &request.session_id, named, GuardedVerb::Act)
            .await?;
        let target = Self::thread_or_own(&call, &handle, named)?;
        let state = handle.state();
        let thread = authority::authorize(&state, &call.caller, "GetQuota", target).map_err(refused)?;
        Ok(pb::GetQuotaResponse {
            quota: Some(wire::thread::quota(&state, thread)),
        })
    }
}
