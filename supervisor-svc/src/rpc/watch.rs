//! The WatchThreads handler: validates where a watch begins and what it includes.

use std::collections::BTreeSet;

use futures::{StreamExt as _, stream::BoxStream};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status};
use troupe_proto::supervisor::v1::{self as pb, watch_threads_response::Message};

use super::{SupervisorService, call::Call, parse, status::refused};
use crate::{domain::{ids::{Sequence, ThreadId}, rejection::GuardedVerb, rules::authority}, projections::watch::{BeginWatch, Messages, Position, Scope, ThreadWatch, WatchLimits}};

/// Maximum number of unread messages before a watcher falls back to the log.
pub(super) const OUTBOX: usize = 64;

#[tonic::async_trait]
impl BeginWatch for SupervisorService {
    async fn begin_watch(&self, request: Request<pb::WatchThreadsRequest>) -> Result<Messages, Status> {
        let call = Call::of(&request)?;
        let request = request.into_inner();
        let named: Option<ThreadId> = check::optional_id("thread_id", &request.thread_id)?;
        check::text("log_id", &request.log_id, 64)?;
        let handle = self
            .session_for(&call, &request.session_id, named, GuardedVerb::Act)
            .await?;
        let top = named.or_else(|| call.caller.thread());
        if let Some(top) = top {
            authority::authorize(&handle.state(), &call.caller, "WatchThreads", top).map_err(refused)?;
        }
        let mut kinds = BTreeSet::new();
        for kind in &request.kinds {
            match pb::EventKind::try_from(*kind) {
                Ok(kind) if kind != pb::EventKind::Unspecified => kinds.insert(kind),
                Ok(_) | Err(_) => return Err(check::bad("kinds", format!("{kind} is no kind of event"))),
            };
        }
        let (outbox, messages) = mpsc::channel(OUTBOX);
        let log_id = self.directory.context().store.log_id().to_string();
        if request.after_sequence.is_some() && !request.log_id.is_empty() && request.log_id != log_id {
            let reason = format!("after_sequence counts in log {}, this is log {log_id}", request.log_id);
            // Room is certain: the channel is new.
            let reset = pb::WatchThreadsResponse {
                sequence: 0,
                message: Some(Message::Reset(pb::Reset { reason })),
            };
            let _ = outbox.try_send(Ok(reset.encode_to_vec().into()));
            return Ok(ReceiverStream::new(messages));
        }
        let watch = ThreadWatch {
            directory: self.directory.clone(),
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
                // Output is text like any prompt: viewers see none.
                output: request.output && call.sight.has_texts(),
                sight: call.sight,
            },
            limits: WatchLimits {
                lifetime: self.clock().jittered(self.config.watch.lifetime),
                ..self.config.watch
            },
            draining: self.draining.clone(),
        };
        tokio::spawn(watch.run(outbox));
        Ok(ReceiverStream::new(messages))
    }
}

/// The messages of a watch for callers in this process; over the network they go out as they are, see [`WatchMethod`].
///
/// [`WatchMethod`]: crate::projections::watch::WatchMethod
pub(super) fn decoded(messages: Messages) -> BoxStream<'static, Result<pb::WatchThreadsResponse, Status>> {
    messages
        .map(|message| {
            pb::WatchThreadsResponse::decode(message?)
                .map_err(|error| Status::internal(format!("a message of a watch is malformed: {error}")))
        })
        .boxed()
}
