//! Conversion of values that occur in several messages.

use std::{str::FromStr, sync::Arc, time::Duration};

use bytes::Bytes;
use prost::Message;
use prost_types::Timestamp;
use supervisor_core::{
    content::ContentRef,
    event::{BlockKind, BlockRef, CallDetails, Dialect, Edge, EdgeKind, Expectation, Handoff, Scope, TemplateSource},
    ids::{Digest, ThreadId},
    principal::Actor,
    settings::{Budget, Limits, Usage},
    state::thread::ThreadResult,
    status::{Settled, StatusKind},
    time::UnixMillis,
};
use troupe_proto::{common::v1 as common, store::v1::Private, supervisor::v1 as pb};
use uuid::Uuid;

use super::{
    enums::WireEnum as _,
    error::{DecodeError, malformed, required},
};
use crate::store::Content;

const MILLIS_PER_SECOND: u64 = 1_000;
const NANOS_PER_MILLI: u64 = 1_000_000;
const NANOS_PER_SECOND: u32 = 1_000_000_000;

/// Converts a point in time to its message.
#[must_use]
pub fn time_to_pb(time: UnixMillis) -> Timestamp {
    Timestamp {
        seconds: i64::try_from(time.get() / MILLIS_PER_SECOND).unwrap_or(i64::MAX),
        nanos: i32::try_from((time.get() % MILLIS_PER_SECOND) * NANOS_PER_MILLI).unwrap_or_default(),
    }
}

/// Converts a timestamp from its message, truncated to milliseconds. Returns `None` for invalid timestamps and those
/// before 1970.
#[must_use]
pub fn time_from_pb(time: Timestamp) -> Option<UnixMillis> {
    let seconds = u64::try_from(time.seconds).ok()?;
    let nanos = u64::from(nanos(time.nanos)?);
    let millis = seconds
        .checked_mul(MILLIS_PER_SECOND)?
        .checked_add(nanos / NANOS_PER_MILLI)?;
    Some(UnixMillis::new(millis))
}

/// Converts a duration to its message. Durations above 292 billion years become 292 billion years.
#[must_use]
pub fn duration_to_pb(span: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        nanos: span.subsec_nanos().cast_signed(),
    }
}

/// Converts a duration from its message. Returns `None` for negative and invalid durations.
#[must_use]
pub fn duration_from_pb(span: prost_types::Duration) -> Option<Duration> {
    Some(Duration::new(u64::try_from(span.seconds).ok()?, nanos(span.nanos)?))
}

/// Parses an optional duration.
pub(super) fn span(span: Option<prost_types::Duration>, what: &str) -> Result<Option<Duration>, DecodeError> {
    span.map(|span| duration_from_pb(span).ok_or_else(|| malformed(format!("{what} is negative or out of range"))))
        .transpose()
}

fn nanos(nanos: i32) -> Option<u32> {
    u32::try_from(nanos).ok().filter(|nanos| *nanos < NANOS_PER_SECOND)
}

/// Converts a required time.
pub(super) fn stored_time(time: Option<Timestamp>, what: &str) -> Result<UnixMillis, DecodeError> {
    required(time.and_then(time_from_pb), what)
}

/// Converts an optional time.
pub(super) fn optional_time(time: Option<Timestamp>, what: &str) -> Result<Option<UnixMillis>, DecodeError> {
    time.map(|time| required(time_from_pb(time), what)).transpose()
}

/// Returns a private part, or `None` if it is empty.
pub(super) fn non_empty(private: Private) -> Option<Box<Private>> {
    (private != Private::default()).then(|| Box::new(private))
}

/// Restores the private part from the result of [`non_empty`].
pub(super) fn stored_private(private: Option<Box<Private>>) -> Private {
    private.map(|private| *private).unwrap_or_default()
}

/// Converts a text to the bytes of a record.
pub(super) fn text_bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Converts a text from the bytes of a record.
pub(super) fn utf8<'b>(bytes: &'b [u8], what: &str) -> Result<&'b str, DecodeError> {
    str::from_utf8(bytes).map_err(|_| malformed(format!("{what} is not UTF-8")))
}

/// Parses an optional text as a shared string.
pub(super) fn shared_text(bytes: Option<Bytes>, what: &str) -> Result<Option<Arc<str>>, DecodeError> {
    bytes.map(|bytes| utf8(&bytes, what).map(Arc::from)).transpose()
}

/// Parses a required id, digest or actor.
pub(super) fn stored_text<T: FromStr>(text: &str, what: &str) -> Result<T, DecodeError> {
    text.parse()
        .map_err(|_| malformed(format!("{what} is invalid: {text:?}")))
}

/// Parses an optional id or digest. An empty text is `None`.
pub(super) fn stored_text_or_none<T: FromStr>(text: &str, what: &str) -> Result<Option<T>, DecodeError> {
    if text.is_empty() {
        return Ok(None);
    }
    stored_text(text, what).map(Some)
}

/// Formats an optional value. `None` is the empty text.
#[must_use]
pub fn text_or_empty<T: ToString>(value: Option<T>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

pub(super) fn stored_actor(text: &str) -> Result<Actor, DecodeError> {
    stored_text(text, "an actor")
}

/// Converts a content reference to its message.
#[must_use]
pub fn content_to_pb(content: &ContentRef) -> pb::ContentRef {
    pb::ContentRef {
        digest: content.digest.to_string(),
        size: content.size,
        preview: content.preview.clone(),
    }
}

/// Converts a thread's result to its message, without the document.
#[must_use]
pub fn result_to_pb(result: &ThreadResult) -> pb::ThreadResult {
    pb::ThreadResult {
        turn: result.turn.get(),
        content: Some(content_to_pb(&result.content)),
        document_json: String::new(),
    }
}

/// Converts a content reference from its message.
///
/// # Errors
/// If the digest is invalid.
pub fn content_from_pb(content: pb::ContentRef) -> Result<ContentRef, DecodeError> {
    Ok(ContentRef {
        digest: stored_text::<Digest>(&content.digest, "a content's digest")?,
        size: content.size,
        preview: content.preview,
    })
}

pub(super) fn stored_content(content: Option<pb::ContentRef>, what: &str) -> Result<ContentRef, DecodeError> {
    content_from_pb(required(content, what)?)
}

/// Converts the tool call that an approval covers. An empty digest means `None`.
pub(super) fn stored_call(
    digest: &str,
    content: Option<pb::ContentRef>,
) -> Result<Option<Box<CallDetails>>, DecodeError> {
    if digest.is_empty() {
        return Ok(None);
    }
    Ok(Some(Box::new(CallDetails {
        digest: stored_text(digest, "the digest of a call")?,
        content: stored_content(content, "the content of a call")?,
    })))
}

/// Converts usage to its message.
#[must_use]
pub fn usage_to_pb(usage: Usage) -> pb::Usage {
    pb::Usage {
        input_tokens: usage.input_tokens,
        cached_input_tokens: usage.cached_input_tokens,
        output_tokens: usage.output_tokens,
        turns: usage.turns,
        wall_time: Some(duration_to_pb(usage.wall_time)),
        cost_micros: usage.cost,
        unpriced_tokens: usage.unpriced_tokens,
    }
}

/// Converts usage from its message. A missing time is zero.
///
/// # Errors
/// If the time is negative.
pub fn usage_from_pb(usage: pb::Usage) -> Result<Usage, DecodeError> {
    Ok(Usage {
        input_tokens: usage.input_tokens,
        cached_input_tokens: usage.cached_input_tokens,
        output_tokens: usage.output_tokens,
        turns: usage.turns,
        wall_time: span(usage.wall_time, "the time of a usage")?.unwrap_or_default(),
        cost: usage.cost_micros,
        unpriced_tokens: usage.unpriced_tokens,
    })
}

pub(super) fn stored_usage(usage: Option<pb::Usage>) -> Result<Usage, DecodeError> {
    usage_from_pb(required(usage, "a usage")?)
}

/// Parses optional usage. Missing usage is zero.
pub(super) fn stored_spent(usage: Option<pb::Usage>) -> Result<Usage, DecodeError> {
    usage.map_or(Ok(Usage::default()), usage_from_pb)
}

/// Returns usage, or `None` if it is zero.
pub(super) fn spent(usage: Usage) -> Option<pb::Usage> {
    (usage != Usage::default()).then(|| usage_to_pb(usage))
}

/// Converts a budget to its message. In the message 0 means unlimited, so only the record's private part distinguishes
/// a limit of zero from no limit.
#[must_use]
pub fn budget_to_pb(budget: Budget) -> pb::Budget {
    pb::Budget {
        tokens: budget.tokens.unwrap_or_default(),
        turns: budget.turns.unwrap_or_default(),
        wall_time: budget.wall_time.map(duration_to_pb),
        cost_micros: budget.cost.unwrap_or_default(),
    }
}

/// Converts a budget, or returns `None` if it has no limit.
#[must_use]
pub fn bounded(budget: Budget) -> Option<pb::Budget> {
    (budget != Budget::default()).then(|| budget_to_pb(budget))
}

/// Parses a budget from a request. 0 means unlimited, as the API defines.
///
/// # Errors
/// If the time is negative.
pub fn budget_from_request(budget: pb::Budget) -> Result<Budget, DecodeError> {
    let budget = stored_budget(Some(budget), &Private::default())?;
    Ok(Budget {
        wall_time: budget.wall_time.filter(|span| !span.is_zero()),
        ..budget
    })
}

/// Returns the private part of a budget's record, which the message cannot represent.
pub(super) fn zero_bounds(budget: Budget) -> Private {
    Private {
        zero_tokens: budget.tokens == Some(0),
        zero_turns: budget.turns == Some(0),
        zero_cost: budget.cost == Some(0),
        ..Private::default()
    }
}

pub(super) fn stored_budget(budget: Option<pb::Budget>, private: &Private) -> Result<Budget, DecodeError> {
    let budget = required(budget, "a budget")?;
    Ok(Budget {
        tokens: (budget.tokens > 0 || private.zero_tokens).then_some(budget.tokens),
        turns: (budget.turns > 0 || private.zero_turns).then_some(budget.turns),
        wall_time: span(budget.wall_time, "the time of a budget")?,
        cost: (budget.cost_micros > 0 || private.zero_cost).then_some(budget.cost_micros),
    })
}

/// Converts the result of [`bounded`]: a missing budget has no limit.
pub(super) fn stored_bounds(budget: Option<pb::Budget>, private: &Private) -> Result<Budget, DecodeError> {
    budget.map_or(Ok(Budget::default()), |budget| stored_budget(Some(budget), private))
}

/// Converts limits to their message.
#[must_use]
pub const fn limits_to_pb(limits: Limits) -> pb::Limits {
    pb::Limits {
        max_depth: Some(limits.max_depth),
        max_threads: Some(limits.max_threads),
        max_open_threads: Some(limits.max_open_threads),
        max_total_threads: Some(limits.max_total_threads),
    }
}

/// Converts limits from a record. A record contains every limit, so a later change of defaults does not affect existing
/// sessions.
pub(super) fn stored_limits(limits: pb::Limits) -> Result<Limits, DecodeError> {
    Ok(Limits {
        max_depth: required(limits.max_depth, "max_depth")?,
        max_threads: required(limits.max_threads, "max_threads")?,
        max_open_threads: required(limits.max_open_threads, "max_open_threads")?,
        max_total_threads: required(limits.max_total_threads, "max_total_threads")?,
    })
}

/// Converts a template's source to its message.
#[must_use]
pub fn source_to_pb(source: &TemplateSource) -> common::TemplateSource {
    common::TemplateSource {
        scope: source.scope.number(),
        dialect: source.dialect.number(),
        path: source.path.clone(),
        digest: source.digest.clone(),
        shadowed: source.shadowed.clone(),
    }
}

/// Converts a template's source from its message.
///
/// # Errors
/// If the scope or the dialect is unknown.
pub fn source_from_pb(source: common::TemplateSource) -> Result<TemplateSource, DecodeError> {
    Ok(TemplateSource {
        scope: Scope::from_number(source.scope)?,
        dialect: Dialect::from_number(source.dialect)?,
        path: source.path,
        digest: source.digest,
        shadowed: source.shadowed,
    })
}

/// Converts a block of a prompt to its message.
#[must_use]
pub fn block_to_pb(block: &BlockRef) -> pb::BlockRef {
    pb::BlockRef {
        kind: block.kind.number(),
        content: Some(content_to_pb(&block.content)),
    }
}

pub(super) fn stored_block(block: pb::BlockRef) -> Result<BlockRef, DecodeError> {
    Ok(BlockRef {
        kind: BlockKind::from_number(block.kind)?,
        content: stored_content(block.content, "a block's content")?,
    })
}

/// Converts an edge to its message.
#[must_use]
pub fn edge_to_pb(edge: &Edge) -> pb::Edge {
    pb::Edge {
        edge_id: edge.id.to_string(),
        from_thread_id: edge.from.to_string(),
        to_thread_id: edge.to.to_string(),
        bidirectional: edge.bidirectional,
        kind: edge.kind.number(),
        label: edge.label.clone(),
    }
}

pub(super) fn stored_edge(edge: pb::Edge) -> Result<Edge, DecodeError> {
    Ok(Edge {
        id: stored_text(&edge.edge_id, "an edge's id")?,
        from: stored_text(&edge.from_thread_id, "an edge's sender")?,
        to: stored_text(&edge.to_thread_id, "an edge's receiver")?,
        bidirectional: edge.bidirectional,
        kind: EdgeKind::from_number(edge.kind)?,
        label: edge.label,
    })
}

/// Converts a handoff to its message.
#[must_use]
pub fn handoff_to_pb(handoff: &Handoff) -> pb::Handoff {
    let (ok, ok_reason) = match &handoff.verdict {
        Some((ok, reason)) => (Some(*ok), reason.clone()),
        None => (None, String::new()),
    };
    pb::Handoff {
        handoff_id: handoff.id.to_string(),
        from_thread_id: handoff.from.to_string(),
        to_thread_id: handoff.to.to_string(),
        message: Some(content_to_pb(&handoff.message)),
        structured: handoff.structured.as_ref().map(content_to_pb),
        artifacts: handoff
            .artifacts
            .iter()
            .map(|(kind, reference)| pb::ArtifactRef {
                r#type: kind.clone(),
                r#ref: reference.clone(),
            })
            .collect(),
        ok,
        ok_reason,
        expectation: handoff.expectation.number(),
        reply_to_thread_id: text_or_empty(handoff.reply_to),
        context_ref: handoff.context_ref.clone(),
    }
}

pub(super) fn stored_handoff(handoff: pb::Handoff) -> Result<Handoff, DecodeError> {
    Ok(Handoff {
        id: stored_text(&handoff.handoff_id, "a handoff's id")?,
        from: stored_text(&handoff.from_thread_id, "a handoff's sender")?,
        to: stored_text(&handoff.to_thread_id, "a handoff's receiver")?,
        message: stored_content(handoff.message, "a handoff's message")?,
        structured: handoff.structured.map(content_from_pb).transpose()?,
        artifacts: handoff
            .artifacts
            .into_iter()
            .map(|artifact| (artifact.r#type, artifact.r#ref))
            .collect(),
        verdict: handoff.ok.map(|ok| (ok, handoff.ok_reason)),
        expectation: Expectation::from_number(handoff.expectation)?,
        reply_to: stored_text_or_none(&handoff.reply_to_thread_id, "the receiver of the answer")?,
        context_ref: handoff.context_ref,
    })
}

/// Converts a settled thread's outcome to a status. The status does not distinguish an empty message from a missing
/// one. A record does so in its private part.
#[must_use]
pub fn settled_to_pb(settled: &Settled, since: Option<UnixMillis>) -> pb::Status {
    let status = pb::Status {
        kind: settled.kind().number(),
        since: since.map(time_to_pb),
        ..pb::Status::default()
    };
    match settled {
        Settled::Completed { message, content } => pb::Status {
            message: message.clone().unwrap_or_default(),
            content: content.as_ref().map(content_to_pb),
            ..status
        },
        Settled::Errored { message, content } => pb::Status {
            message: message.clone(),
            content: content.as_ref().map(content_to_pb),
            ..status
        },
        Settled::Interrupted { reason } => pb::Status {
            reason: reason.clone(),
            ..status
        },
    }
}

/// Returns the private part of a settled status's record, which the message cannot represent.
pub(super) fn empty_message(settled: &Settled) -> Private {
    let empty_message = match settled {
        Settled::Completed { message, .. } => message.as_deref() == Some(""),
        Settled::Errored { .. } | Settled::Interrupted { .. } => false,
    };
    Private {
        empty_message,
        ..Private::default()
    }
}

pub(super) fn stored_settled(kind: StatusKind, status: pb::Status, private: &Private) -> Result<Settled, DecodeError> {
    let content = status.content.map(content_from_pb).transpose()?;
    match kind {
        StatusKind::Completed => Ok(Settled::Completed {
            message: (!status.message.is_empty() || private.empty_message).then_some(status.message),
            content,
        }),
        StatusKind::Errored => Ok(Settled::Errored {
            message: status.message,
            content,
        }),
        StatusKind::Interrupted => Ok(Settled::Interrupted { reason: status.reason }),
        StatusKind::Queued
        | StatusKind::AwaitingApproval
        | StatusKind::PendingInit
        | StatusKind::Running
        | StatusKind::Shutdown => Err(malformed(format!("{kind} is not a settled status"))),
    }
}

/// Encodes a message as content without a preview.
#[must_use]
pub fn content_of(message: &impl Message) -> (ContentRef, Content) {
    let content = Content::new(message.encode_to_vec().into());
    (content.reference(String::new()), content)
}

pub(super) fn uuid(bytes: &[u8], what: &str) -> Result<Uuid, DecodeError> {
    Uuid::from_slice(bytes).map_err(|_| malformed(format!("{what} has {} bytes instead of 16", bytes.len())))
}

pub(super) fn id_bytes(id: ThreadId) -> Bytes {
    Bytes::copy_from_slice(id.as_uuid().as_bytes())
}

pub(super) fn stored_id(bytes: &[u8]) -> Result<ThreadId, DecodeError> {
    uuid(bytes, "a thread's id").map(ThreadId::from_uuid)
}
