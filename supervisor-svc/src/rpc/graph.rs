//! Edges, handoffs and mail.

use std::sync::Arc;

use serde_json::json;
use supervisor_log::{
    codec::parts::{edge_to_pb, handoff_to_pb},
    store::Content,
};
use tonic::Status;
use troupe_proto::supervisor::v1 as pb;

use super::{call::Call, page::Page, parse, service::SupervisorService};
use crate::{
    convert::{mail::letter_to_pb, status::refused},
    domain::{
        command::Command,
        content::{ContentRef, preview},
        event::{Edge, Handoff},
        ids::{EdgeId, HandoffId, Sequence, ThreadId},
        rejection::Rejection,
        rules::{authority, graph, input, mail::letter_in_log},
        state::{mailbox::Letter, session::Session, thread::Thread},
    },
    engine::{Done, Failure, read_log},
};

/// Maximum size of a handoff's message, and of its JSON value, in bytes.
pub(crate) const TEXT_BYTES: usize = 1_024 * 1_024;
/// Maximum number of artifacts of a handoff.
pub(crate) const ARTIFACTS: usize = 64;
/// Maximum length of a reference, to an artifact or to the subject of a handoff, in bytes.
pub(crate) const REFERENCE_BYTES: usize = 1_024;
/// Maximum total size of the types and references of a handoff's artifacts, in bytes. They are stored in one record.
pub(crate) const ARTIFACTS_BYTES: usize = 8 * 1_024;

pub(super) async fn create_edge(
    call: Call<'_>,
    request: pb::CreateEdgeRequest,
) -> Result<pb::CreateEdgeResponse, Status> {
    let ends = [
        parse::thread_name("from_thread_id", &request.from_thread_id)?,
        parse::thread_name("to_thread_id", &request.to_thread_id)?,
    ];
    let by_id: Option<ThreadId> = ends.iter().find_map(|name| name.parse().ok());
    let handle = call.session_for(&request.session_id, by_id).await?;
    let state = handle.state();
    let [from, to] = ends.map(|name| end(&state, &call, name));
    let (from, to) = (from.map_err(refused)?, to.map_err(refused)?);
    parse::line("label", request.label.trim(), parse::NAME_BYTES)?;
    let edge = Edge {
        id: call.service.clock().new_id(),
        from,
        to,
        bidirectional: !request.one_way,
        kind: parse::choice("kind", request.kind)?,
        label: request.label.trim().to_owned(),
    };
    let command = Command::CreateEdge {
        caller: call.caller.clone(),
        edge: edge.clone(),
        approval: call.service.clock().new_id(),
    };
    let done = call.execute(&handle, command, Vec::new()).await?;
    Ok(edge_response(&done, edge))
}

pub(super) async fn delete_edge(
    call: Call<'_>,
    request: pb::DeleteEdgeRequest,
) -> Result<pb::DeleteEdgeResponse, Status> {
    let edge: EdgeId = parse::id("edge_id", &request.edge_id)?;
    let handle = call.session_for(&request.session_id, None).await?;
    // A retry may find that the edge no longer exists, so only the caller's own permissions can be checked before
    // the retry is recognized.
    if let Some(own) = call.caller.thread() {
        authority::authorize(&handle.state(), &call.caller, call.method, own).map_err(refused)?;
    }
    let asked = call.approval_request(&handle, &request, || json!({"delete": request.edge_id}));
    call.await_approval(&handle, asked).await?;
    let command = Command::DeleteEdge {
        caller: call.caller.clone(),
        edge,
    };
    call.execute(&handle, command, Vec::new()).await?;
    Ok(pb::DeleteEdgeResponse {})
}

pub(super) async fn list_edges(
    call: Call<'_>,
    mut request: pb::ListEdgesRequest,
) -> Result<pb::ListEdgesResponse, Status> {
    let page = Page::of(&mut request, &call.scope)?;
    let (handle, around) = call.authorized_thread(&request.session_id, &request.thread_id).await?;
    let state = handle.state();
    let found = if request.thread_id.is_empty() {
        graph::edges_within(&state, around)
    } else {
        graph::edges_of(&state, around)
    };
    let entries = found.iter().map(|edge| (edge.id, edge));
    let (edges, next_page_token) = page.cut(entries, |edge| edge_to_pb(edge), None);
    Ok(pb::ListEdgesResponse { edges, next_page_token })
}

pub(super) async fn send_handoff(
    call: Call<'_>,
    request: pb::SendHandoffRequest,
) -> Result<pb::SendHandoffResponse, Status> {
    let receiver = parse::thread_name("to_thread_id", &request.to_thread_id)?;
    let named: Option<ThreadId> = parse::optional_id("from_thread_id", &request.from_thread_id)?;
    let from = named.or_else(|| call.caller.thread()).ok_or_else(|| {
        parse::bad(
            "from_thread_id",
            "from_thread_id is required: an operator has no thread",
        )
    })?;
    let handle = call.session_for(&request.session_id, Some(from)).await?;
    let state = handle.state();
    authority::authorize(&state, &call.caller, call.method, from).map_err(refused)?;
    let to = graph::find(&state, &call.caller, receiver).map_err(refused)?;
    let reply_to = reply_to(&state, &call, &request.reply_to_thread_id)?;
    let shown = || json!({"message": request.message, "to": request.to_thread_id});
    let asked = call.approval_request(&handle, &request, shown);
    let (handoff, contents) = take_handoff(call.service.clock().new_id(), request, from, to, reply_to)?;
    call.await_approval(&handle, asked).await?;
    let command = Command::SendHandoff {
        caller: call.caller.clone(),
        handoff: Box::new(handoff.clone()),
    };
    let done = call.execute(&handle, command, contents).await?;
    // When a retry arrives, the letter may already have been read and removed, so the response is built from the
    // request.
    let sent = Handoff {
        id: done.outcome.other.map_or(handoff.id, HandoffId::from_uuid),
        ..handoff
    };
    Ok(pb::SendHandoffResponse {
        handoff: Some(handoff_to_pb(&sent)),
    })
}

/// Returns one end of an edge if the caller may act on it.
fn end(session: &Session, call: &Call<'_>, name: &str) -> Result<ThreadId, Rejection> {
    let id = graph::find(session, &call.caller, name)?;
    authority::authorize(session, &call.caller, call.method, id).map(|thread| thread.id)
}

/// Returns the edge that the request for `wanted` created, or the approval that the edge waits for. If neither exists
/// any more, this is a retry of a request that succeeded, and the retry gets the original result.
fn edge_response(done: &Done, wanted: Edge) -> pb::CreateEdgeResponse {
    let id = done.outcome.other.map_or(wanted.id, EdgeId::from_uuid);
    let (edge, approval_id) = match (graph::edge(&done.session, id), graph::approval_of(&done.session, id)) {
        (Some(edge), _) => (Some(edge), String::new()),
        (None, Some(approval)) => (None, approval.id.to_string()),
        (None, None) => (Some(Arc::new(Edge { id, ..wanted })), String::new()),
    };
    pb::CreateEdgeResponse {
        edge: edge.as_deref().map(edge_to_pb),
        approval_id,
    }
}

/// Returns the thread that receives the reply, if the request names one.
fn reply_to(session: &Session, call: &Call<'_>, name: &str) -> Result<Option<ThreadId>, Status> {
    if name.trim().is_empty() {
        return Ok(None);
    }
    let name = parse::thread_name("reply_to_thread_id", name)?;
    Ok(Some(graph::find(session, &call.caller, name).map_err(refused)?))
}

/// Validates a handoff. Returns it with its contents.
fn take_handoff(
    id: HandoffId,
    request: pb::SendHandoffRequest,
    from: ThreadId,
    to: ThreadId,
    reply_to: Option<ThreadId>,
) -> Result<(Handoff, Vec<Content>), Status> {
    if request.message.trim().is_empty() {
        return Err(refused(input::BLANK));
    }
    let (message, content) = text("message", request.message)?;
    let mut contents = vec![content];
    let structured = if request.structured_json.trim().is_empty() {
        None
    } else {
        let (structured, content) = text("structured_json", request.structured_json)?;
        is_json(&content.bytes)?;
        contents.push(content);
        Some(structured)
    };
    parse::text("ok_reason", &request.ok_reason, parse::REASON_BYTES)?;
    if request.ok.is_none() && !request.ok_reason.is_empty() {
        return Err(parse::bad("ok_reason", "ok_reason explains ok; give ok too"));
    }
    parse::text("context_ref", &request.context_ref, REFERENCE_BYTES)?;
    let handoff = Handoff {
        id,
        from,
        to,
        message,
        structured,
        artifacts: take_artifacts(request.artifacts)?,
        verdict: request.ok.map(|ok| (ok, request.ok_reason)),
        expectation: parse::choice("expectation", request.expectation)?,
        reply_to,
        context_ref: request.context_ref,
    };
    Ok((handoff, contents))
}

fn take_artifacts(artifacts: Vec<pb::ArtifactRef>) -> Result<Vec<(String, String)>, Status> {
    parse::count("artifacts", "artifacts", artifacts.len(), ARTIFACTS)?;
    for artifact in &artifacts {
        if artifact.r#type.trim().is_empty() || artifact.r#ref.trim().is_empty() {
            return Err(parse::bad("artifacts", "an artifact needs both type and ref"));
        }
        parse::text("artifacts", &artifact.r#type, parse::NAME_BYTES)?;
        parse::text("artifacts", &artifact.r#ref, REFERENCE_BYTES)?;
    }
    let bytes: usize = artifacts
        .iter()
        .map(|artifact| artifact.r#type.len() + artifact.r#ref.len())
        .sum();
    if bytes > ARTIFACTS_BYTES {
        return Err(parse::bad(
            "artifacts",
            format!("the artifacts have {bytes} bytes together; at most {ARTIFACTS_BYTES} are allowed"),
        ));
    }
    Ok(artifacts
        .into_iter()
        .map(|artifact| (artifact.r#type, artifact.r#ref))
        .collect())
}

/// Validates a text of a handoff. Returns it as content.
fn text(field: &'static str, text: String) -> Result<(ContentRef, Content), Status> {
    parse::size(field, field, text.len(), TEXT_BYTES)?;
    let preview = preview(&text);
    let content = Content::new(text.into());
    Ok((content.reference(preview), content))
}

fn is_json(bytes: &[u8]) -> Result<(), Status> {
    serde_json::from_slice::<serde_json::Value>(bytes)
        .map(|_| ())
        .map_err(|error| parse::bad("structured_json", format!("structured_json is not JSON: {error}")))
}

/// Maximum number of log pages that one page of read mail scans. Each has
/// [`MAX_PAGE`](supervisor_log::store::limits::MAX_PAGE) records.
const LOG_PAGES: usize = 8;

pub(super) async fn list_mailbox(
    call: Call<'_>,
    mut request: pb::ListMailboxRequest,
) -> Result<pb::ListMailboxResponse, Status> {
    let page = Page::<Sequence>::of(&mut request, &call.scope)?;
    let (handle, target) = call.authorized_thread(&request.session_id, &request.thread_id).await?;
    let state = handle.state();
    let thread = authority::authorize(&state, &call.caller, call.method, target).map_err(refused)?;
    let after = page.after().copied().unwrap_or_default();
    let (letters, rest) = if request.include_acknowledged {
        let after = after.max(thread.spawn_sequence);
        call.service.letters_in_log(&state, thread, after, page.size()).await?
    } else {
        let waiting = thread.mail.after(after).map(Arc::clone);
        (waiting.take(page.size() + 1).collect(), None)
    };
    let entries = letters.iter().map(|letter| (letter.sequence, letter));
    let show = |letter: &Arc<Letter>| letter_to_pb(letter, !thread.mail.holds(letter.sequence));
    let (mail, next_page_token) = page.cut(entries, show, rest);
    Ok(pb::ListMailboxResponse { mail, next_page_token })
}

pub(super) async fn acknowledge_mailbox(
    call: Call<'_>,
    request: pb::AcknowledgeMailboxRequest,
) -> Result<pb::AcknowledgeMailboxResponse, Status> {
    let (handle, target) = call.authorized_thread(&request.session_id, &request.thread_id).await?;
    let command = Command::AcknowledgeMail {
        caller: call.caller.clone(),
        target,
        up_to: Sequence::new(request.up_to_sequence),
    };
    let done = call.execute(&handle, command, Vec::new()).await?;
    let thread = done
        .session
        .thread(target)
        .ok_or_else(|| Rejection::ThreadNotFound(target.to_string()))
        .map_err(refused)?;
    Ok(pb::AcknowledgeMailboxResponse {
        remaining: u32::try_from(thread.mail.len()).unwrap_or(u32::MAX),
    })
}

impl SupervisorService {
    /// Returns a thread's letters in the log after a sequence number, and the position where the unread log begins.
    /// Returns more than `wanted` letters, or all letters of the scanned part. Compacted letters are included only if
    /// they are unread.
    async fn letters_in_log(
        &self,
        session: &Session,
        receiver: &Thread,
        after: Sequence,
        wanted: usize,
    ) -> Result<(Vec<Arc<Letter>>, Option<Sequence>), Failure> {
        let store = self.directory.store();
        let mut position = after;
        let mut letters = Vec::new();
        for _ in 0..LOG_PAGES {
            let events = match read_log(store.as_ref(), session.id, position, session.sequence).await {
                Err(Failure::Refused(Rejection::HistoryCompacted { oldest, .. })) => {
                    let waiting = receiver.mail.after(position);
                    letters.extend(waiting.take_while(|letter| letter.sequence <= oldest).map(Arc::clone));
                    position = oldest;
                    continue;
                }
                events => events?,
            };
            let Some(last) = events.last() else { break };
            position = last.sequence;
            let found = events
                .iter()
                .filter_map(|recorded| letter_in_log(session, receiver.id, recorded));
            letters.extend(found.map(Arc::new));
            if letters.len() > wanted {
                break;
            }
        }
        Ok((letters, (position < session.sequence).then_some(position)))
    }
}
