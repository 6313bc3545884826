//! Handlers for notifications and for the client's current view.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status};
use troupe_proto::supervisor::v1 as pb;

use super::{SupervisorService, call::Call, parse, status::refused};
use crate::{convert, domain::{ids::{Sequence, ThreadId}, rejection::{GuardedVerb, Refusal}}, engine::{Failure, Handle}, projections::notifications::{Client, NotificationStream, OUTBOX}};

impl SupervisorService {
    pub(super) async fn notify(
        &self,
        request: Request<pb::WatchNotificationsRequest>,
    ) -> Result<ReceiverStream<Result<pb::WatchNotificationsResponse, Status>>, Status> {
        let call = Call::of(&request)?;
        let details = call.sight.has_texts();
        let request = request.into_inner();
        let (handle, client) = self.client_of(&call, &request.session_id, &request.client_id).await?;
        let policy = request
            .policy
            .map(wire::notify::policy_from_pb)
            .transpose()
            .map_err(|error| check::bad("policy", format!("policy: {error}")))?;
        let focus = looked_at(&handle, "active_thread_id", &request.active_thread_id)?;
        let head = handle.state().sequence;
        let after = request.after_sequence.map(Sequence::new);
        let store = Arc::clone(&self.directory.context().store);
        let log = store.head(handle.id()).await.map_err(Failure::from)?;
        // Notifications that were compacted before the client received them are lost.
        let oldest = log.map_or(Sequence::ZERO, |log| log.oldest);
        if let Some(after) = after.filter(|after| *after > head) {
            return Err(refused(Refusal::AheadOfHead { after, oldest, head }));
        }
        let kept = client
            .update(head, |kept| {
                kept.sequence = after.unwrap_or_else(|| kept.sequence.max(oldest));
                kept.attention.focus = focus.or(kept.attention.focus);
                if let Some(policy) = policy {
                    kept.attention.policy = policy;
                }
            })
            .await?;
        let (outbox, notifications) = mpsc::channel(OUTBOX);
        let stream = NotificationStream {
            store,
            handle,
            client,
            after: kept.sequence,
            details,
            lifetime: self.clock().jittered(self.config.watch.lifetime),
            last_word: self.config.watch.last_word,
            draining: self.draining.clone(),
        };
        tokio::spawn(stream.run(outbox));
        Ok(ReceiverStream::new(notifications))
    }

    pub(super) async fn focus(
        &self,
        request: Request<pb::SetActiveThreadRequest>,
    ) -> Result<pb::SetActiveThreadResponse, Status> {
        let call = Call::of(&request)?;
        let request = request.into_inner();
        let (handle, client) = self.client_of(&call, &request.session_id, &request.client_id).await?;
        let focus = looked_at(&handle, "thread_id", &request.thread_id)?;
        client
            .update(handle.state().sequence, |kept| kept.attention.focus = focus)
            .await?;
        Ok(pb::SetActiveThreadResponse {})
    }

    /// The session and the client of a call.
    async fn client_of(&self, call: &Call, session_id: &str, client_id: &str) -> Result<(Handle, Arc<Client>), Status> {
        check::session_id(session_id)?;
        check::text("client_id", client_id, check::NAME_BYTES)?;
        if client_id.is_empty() {
            return Err(check::bad(
                "client_id",
                "client_id is required; what you want is kept under it",
            ));
        }
        let handle = self.session_for(call, session_id, None, GuardedVerb::Act).await?;
        let store = &self.directory.context().store;
        let client = self.clients.client(store, handle.id(), client_id);
        Ok((handle, client))
    }
}

/// Returns the thread that a client currently displays, if the request names one.
fn looked_at(handle: &Handle, field: &'static str, thread_id: &str) -> Result<Option<ThreadId>, Status> {
    let focus: Option<ThreadId> = check::optional_id(field, thread_id)?;
    match focus {
        Some(id) if handle.state().thread(id).is_none() => Err(refused(Refusal::ThreadNotFound(id.to_string()))),
        Some(_) | None => Ok(focus),
    }
}
