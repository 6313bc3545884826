//! Watches of threads, notifications, and the client's current view.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use prost::Message as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use troupe_proto::supervisor::{v1 as pb, v1::watch_threads_response::Message};

use super::{call::Call, parse};
use crate::{
    convert::{self, status::refused},
    domain::{
        ids::{Sequence, ThreadId},
        rejection::Rejection,
        rules::authority,
    },
    engine::{Failure, Handle},
    projections::{
        notifications::{self, Client, NotificationStream},
        watch::{Position, Scope, ThreadWatch, WatchLimits},
    },
};

/// Maximum number of unread messages before a watcher falls back to the log.
pub(crate) const OUTBOX: usize = 64;

/// The messages of one watch, encoded once for all watchers.
pub(super) type Messages = ReceiverStream<Result<Bytes, Status>>;

/// Returns the message stream of the requested watch.
pub(super) async fn begin_watch(call: Call<'_>, request: pb::WatchThreadsRequest) -> Result<Messages, Status> {
    let named: Option<ThreadId> = parse::optional_id("thread_id", &request.thread_id)?;
    parse::text("log_id", &request.log_id, 64)?;
    let handle = call.session_for(&request.session_id, named).await?;
    let top = named.or_else(|| call.caller.thread());
    if let Some(top) = top {
        authority::authorize(&handle.state(), &call.caller, call.method, top).map_err(refused)?;
    }
    let mut kinds = BTreeSet::new();
    for kind in &request.kinds {
        match pb::EventKind::try_from(*kind) {
            Ok(kind) if kind != pb::EventKind::Unspecified => kinds.insert(kind),
            Ok(_) | Err(_) => return Err(parse::bad("kinds", format!("{kind} is not a kind of event"))),
        };
    }
    let (outbox, messages) = mpsc::channel(OUTBOX);
    let log_id = call.service.directory.store().log_id().to_string();
    if request.after_sequence.is_some() && !request.log_id.is_empty() && request.log_id != log_id {
        let reason = format!("after_sequence counts in log {}, this is log {log_id}", request.log_id);
        // The send cannot fail for lack of capacity: the channel is new.
        let reset = pb::WatchThreadsResponse {
            sequence: 0,
            message: Some(Message::Reset(pb::Reset { reason })),
        };
        let _ = outbox.try_send(Ok(reset.encode_to_vec().into()));
        return Ok(ReceiverStream::new(messages));
    }
    let watch = ThreadWatch {
        sources: Arc::clone(&call.service.watches),
        handle,
        position: match request.after_sequence {
            None => Position::Snapshot {
                include_closed: request.include_closed,
            },
            Some(after) => Position::After(Sequence::new(after)),
        },
        scope: Scope {
            top,
            kinds,
            watcher: call.token,
            // Output is text like prompts, so viewers do not see it.
            output: request.output && call.redaction.has_texts(),
            redaction: call.redaction,
        },
        limits: WatchLimits {
            lifetime: call.service.clock().jittered(call.service.config.watch.lifetime),
            ..call.service.config.watch
        },
        draining: call.service.draining.clone(),
    };
    tokio::spawn(watch.run(outbox));
    Ok(ReceiverStream::new(messages))
}

pub(super) async fn watch_notifications(
    call: Call<'_>,
    request: pb::WatchNotificationsRequest,
) -> Result<ReceiverStream<Result<pb::WatchNotificationsResponse, Status>>, Status> {
    let (handle, client) = call.client_of(&request.session_id, &request.client_id).await?;
    let policy = request
        .policy
        .map(convert::notify::policy_from_pb)
        .transpose()
        .map_err(|error| parse::bad("policy", format!("policy: {error}")))?;
    let focus = displayed_thread(&handle, "active_thread_id", &request.active_thread_id)?;
    let head = handle.state().sequence;
    let after = request.after_sequence.map(Sequence::new);
    let store = Arc::clone(call.service.directory.store());
    let log = store.head(handle.id()).await.map_err(Failure::from)?;
    // Notifications that were compacted before the client received them are lost.
    let oldest = log.map_or(Sequence::ZERO, |log| log.oldest);
    if let Some(after) = after.filter(|after| *after > head) {
        return Err(refused(Rejection::AheadOfHead { after, oldest, head }));
    }
    let state = client
        .update(head, |state| {
            state.sequence = after.unwrap_or_else(|| state.sequence.max(oldest));
            state.attention.focus = focus.or(state.attention.focus);
            if let Some(policy) = policy {
                state.attention.policy = policy;
            }
        })
        .await?;
    let (outbox, messages) = mpsc::channel(notifications::OUTBOX);
    let stream = NotificationStream {
        store,
        handle,
        client,
        after: state.sequence,
        details: call.redaction.has_texts(),
        lifetime: call.service.clock().jittered(call.service.config.watch.lifetime),
        flush_timeout: call.service.config.watch.flush_timeout,
        draining: call.service.draining.clone(),
    };
    tokio::spawn(stream.run(outbox));
    Ok(ReceiverStream::new(messages))
}

pub(super) async fn set_active_thread(
    call: Call<'_>,
    request: pb::SetActiveThreadRequest,
) -> Result<pb::SetActiveThreadResponse, Status> {
    let (handle, client) = call.client_of(&request.session_id, &request.client_id).await?;
    let focus = displayed_thread(&handle, "thread_id", &request.thread_id)?;
    client
        .update(handle.state().sequence, |state| state.attention.focus = focus)
        .await?;
    Ok(pb::SetActiveThreadResponse {})
}

impl Call<'_> {
    /// Returns the session and the client of a call.
    async fn client_of(&self, session_id: &str, client_id: &str) -> Result<(Handle, Arc<Client>), Status> {
        parse::session_id(session_id)?;
        parse::text("client_id", client_id, parse::NAME_BYTES)?;
        if client_id.is_empty() {
            return Err(parse::bad(
                "client_id",
                "client_id is required; the client's policy and progress are stored under it",
            ));
        }
        let handle = self.session_for(session_id, None).await?;
        let store = self.service.directory.store();
        let client = self.service.clients.client(store, handle.id(), client_id);
        Ok((handle, client))
    }
}

/// Returns the thread that a client currently displays, if the request names one.
fn displayed_thread(handle: &Handle, field: &'static str, thread_id: &str) -> Result<Option<ThreadId>, Status> {
    let focus: Option<ThreadId> = parse::optional_id(field, thread_id)?;
    match focus {
        Some(id) if handle.state().thread(id).is_none() => Err(refused(Rejection::ThreadNotFound(id.to_string()))),
        Some(_) | None => Ok(focus),
    }
}
