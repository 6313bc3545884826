//! Content by digest, for authorized callers, and the list of artifacts. Knowing a digest grants no access.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use supervisor_log::{
    codec::record::decode_record,
    store::{MarkKind, ReadError},
};
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};
use troupe_proto::{fault::Fault, reason::Reason, supervisor::v1 as pb};

use super::{
    call::Call,
    page::Page,
    parse,
    service::{MAX_READS, SupervisorService},
};
use crate::{
    convert::{self, status::refused},
    domain::{
        content::truncate,
        event::{Event, PROMPT_ARTIFACT, Recorded, ThreadEvent},
        ids::{Digest, Sequence, SessionId, ThreadId},
        principal::Caller,
        rejection::Rejection,
        rules::{authority, reach},
        state::session::Session,
    },
    engine::{Failure, Handle},
};

/// Maximum size of a part, in bytes.
pub(crate) const PART_BYTES: usize = 256 * 1_024;
/// Maximum number of buffered parts per reader.
const WAITING_PARTS: usize = 4;
/// Maximum time for a reader to take a part.
pub(crate) const PART_WITHIN: Duration = Duration::from_secs(60);
/// Retry delay for a caller that was rejected because the maximum number of reads was in progress.
const RETRY_AFTER: Duration = Duration::from_secs(1);

type Parts = mpsc::Sender<Result<pb::GetContentResponse, Status>>;

pub(super) async fn get_content(
    call: Call<'_>,
    request: pb::GetContentRequest,
) -> Result<ReceiverStream<Result<pb::GetContentResponse, Status>>, Status> {
    let digest = digest(&request.digest)?;
    let handle = call.own_or_named(&request.session_id).await?;
    let read = Arc::clone(&call.service.reads)
        .try_acquire_owned()
        .map_err(|_| busy())?;
    let bytes = call.readable(&handle, digest).await?;
    // The additional slot is for the error of an early end.
    let (outbox, parts) = mpsc::channel(WAITING_PARTS + 1);
    tokio::spawn(async move {
        send(bytes, outbox).await;
        drop(read);
    });
    Ok(ReceiverStream::new(parts))
}

impl Call<'_> {
    /// Returns the bytes if the caller may read them.
    async fn readable(&self, handle: &Handle, digest: Digest) -> Result<Bytes, Status> {
        let session = handle.id();
        let (is_theirs, may_know) = match &self.caller {
            Caller::Thread { id, .. } => {
                let state = handle.state();
                authority::authorize(&state, &self.caller, self.method, *id).map_err(refused)?;
                (self.service.belongs_to(&state, *id, digest).await?, false)
            }
            Caller::Operator { .. } if self.redaction.has_texts() => (true, true),
            Caller::Operator { .. } => (self.service.is_artifact(session, digest).await?, true),
        };
        // For a thread, contents that do not belong to it do not exist.
        let store = self.service.directory.store();
        let found = if is_theirs || may_know {
            store.content(session, digest).await.map_err(Failure::from)?
        } else {
            None
        };
        if found.is_none()
            && let Some(long) = store.transcript_text(session, digest).await.map_err(Failure::from)?
            && may_read_transcript(self, handle, &long.threads)
        {
            return Ok(long.text);
        }
        let is_lost = found.is_none() && (is_theirs || may_know) && self.service.is_lost(handle, digest).await?;
        match found {
            Some(bytes) if is_theirs => Ok(bytes),
            Some(_) => {
                let text = "viewers read the contents of artifacts only; ask an operator for this one";
                Err(refused(Rejection::NotPermitted(text.to_owned())))
            }
            None if is_lost => {
                let text = format!(
                    "content {digest} is missing, and the log does not say that it was left out; \
                     `troupe store verify` says what else is damaged"
                );
                Err(Failure::Corrupt(text).into())
            }
            None => {
                let id = digest.to_string();
                Err(refused(Rejection::Missing { what: "content", id }))
            }
        }
    }
}

impl SupervisorService {
    /// Returns whether the content is lost: it should be stored and is not. This can only be determined for a last
    /// message that was not omitted for lack of space, and only while its record exists.
    async fn is_lost(&self, handle: &Handle, digest: Digest) -> Result<bool, Failure> {
        let Some(named_at) = reach::named_as_last_message(&handle.state(), digest) else {
            return Ok(false);
        };
        let before = Sequence::new(named_at.get().saturating_sub(1));
        let store = self.directory.store();
        let records = match store.read(handle.id(), before, 1).await {
            Err(ReadError::Compacted { .. }) => return Ok(false),
            read => read?,
        };
        let Some(record) = records.first().filter(|record| record.sequence == named_at) else {
            return Ok(false);
        };
        let recorded = decode_record(handle.id(), &record.bytes)?;
        Ok(!recorded.metadata.contents_left_out)
    }

    /// Returns whether the content is an artifact of some thread and reveals no prompt.
    async fn is_artifact(&self, session: SessionId, digest: Digest) -> Result<bool, Failure> {
        let is_it = |recorded: &Recorded| match &recorded.event {
            Event::Thread(_, ThreadEvent::ArtifactRecorded { artifact, .. }) => {
                artifact.content.digest == digest && artifact.kind != PROMPT_ARTIFACT
            }
            Event::Session(_) | Event::Thread(..) => false,
        };
        self.marks(session, MarkKind::Artifact, None).any(is_it).await
    }

    /// Returns whether the content belongs to a thread or a descendant. Checks the present state first, which is cheap,
    /// then the artifacts, prompts and handoffs in the log, at most [`SEARCHED`](super::marks::SEARCHED) of each.
    async fn belongs_to(&self, session: &Session, own: ThreadId, digest: Digest) -> Result<bool, Failure> {
        if reach::has_content(session, own, digest) {
            return Ok(true);
        }
        let is_it = |recorded: &Recorded| owner_of(recorded, digest).is_some_and(|owner| session.is_within(owner, own));
        for kind in [MarkKind::Artifact, MarkKind::Prompt, MarkKind::Mail] {
            if self.marks(session.id, kind, None).any(is_it).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns whether the caller may read texts of the transcript of one of these threads.
fn may_read_transcript(call: &Call<'_>, handle: &Handle, owners: &[ThreadId]) -> bool {
    match &call.caller {
        Caller::Thread { id, .. } => {
            let state = handle.state();
            owners.iter().any(|owner| state.is_within(*owner, *id))
        }
        Caller::Operator { .. } => call.redaction.has_texts(),
    }
}

/// Returns the thread to which a marked record gave the content; `None` if the record does not refer to the content.
fn owner_of(recorded: &Recorded, digest: Digest) -> Option<ThreadId> {
    let (has_it, owner) = match &recorded.event {
        Event::Thread(id, ThreadEvent::ArtifactRecorded { artifact, .. }) => (artifact.content.digest == digest, *id),
        Event::Thread(id, ThreadEvent::TurnDispatched { blocks, .. }) => {
            (blocks.iter().any(|block| block.content.digest == digest), *id)
        }
        Event::Thread(_, ThreadEvent::HandoffSent(handoff)) => {
            let structured = handoff.structured.as_ref();
            let has_it = handoff.message.digest == digest || structured.is_some_and(|json| json.digest == digest);
            (has_it, handoff.to)
        }
        // No other event is marked.
        Event::Session(_) | Event::Thread(..) => return None,
    };
    has_it.then_some(owner)
}

/// Sends the bytes in parts, at the pace of their reader.
async fn send(bytes: Bytes, outbox: Parts) {
    // A new channel has no free slot only if the reader has disconnected.
    let Ok(reserved) = outbox.clone().reserve_owned().await else {
        return;
    };
    let mut total_size = bytes.len() as u64;
    let mut rest = bytes;
    loop {
        let part = pb::GetContentResponse {
            data: rest.split_to(rest.len().min(PART_BYTES)),
            total_size: std::mem::take(&mut total_size),
        };
        match timeout(PART_WITHIN, outbox.send(Ok(part))).await {
            Ok(Ok(())) if rest.is_empty() => return,
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            Err(_) => {
                reserved.send(Err(slow()));
                return;
            }
        }
    }
}

fn digest(text: &str) -> Result<Digest, Status> {
    text.parse().map_err(|_| {
        let shown = truncate(text, 64);
        parse::bad(
            "digest",
            format!("invalid digest \"{shown}\"; expected a SHA-256 of 64 lower-case hexadecimal digits"),
        )
    })
}

fn busy() -> Status {
    let text = format!("{MAX_READS} contents are being read, which is the limit; try again in a moment");
    Fault::new(Code::ResourceExhausted, Reason::Overloaded, text)
        .with("max", MAX_READS)
        .retry_after(RETRY_AFTER)
        .into()
}

fn slow() -> Status {
    let text = format!(
        "no part was taken for {} s; read the content again",
        PART_WITHIN.as_secs()
    );
    Fault::new(Code::DeadlineExceeded, Reason::DeadlineExceeded, text).into()
}

pub(super) async fn list_artifacts(
    call: Call<'_>,
    mut request: pb::ListArtifactsRequest,
) -> Result<pb::ListArtifactsResponse, Status> {
    let page = Page::of(&mut request, &call.scope)?;
    let (handle, target) = call.authorized_thread(&request.session_id, &request.thread_id).await?;
    let state = handle.state();
    let named = (!request.thread_id.is_empty()).then_some(target);
    let marks = call.service.marks(handle.id(), MarkKind::Artifact, named);
    let is_visible = |recorded: &Recorded| match (call.caller.thread(), recorded.event.thread()) {
        (Some(own), Some(thread)) => state.is_within(thread, own),
        (None, _) => true,
        (Some(_), None) => false,
    };
    let show = |recorded: &Recorded| convert::marked::artifact(recorded).filter(|_| is_visible(recorded));
    let (artifacts, next_page_token) = marks.page(&page, show).await?;
    Ok(pb::ListArtifactsResponse {
        artifacts,
        next_page_token,
    })
}
