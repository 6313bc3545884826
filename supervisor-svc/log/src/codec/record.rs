//! Records of the log: an event with its metadata, as bytes.

use std::cmp::Ordering;

use bytes::Bytes;
use prost::Message;
use supervisor_core::{
    event::{EventMetadata, Recorded},
    ids::{Sequence, SessionId, ThreadId},
};
use troupe_proto::{store::v1 as store, supervisor::v1::event::Kind};

use super::{
    error::{malformed, newer, required},
    event,
    parts::{non_empty, shared_text, stored_actor, stored_private, stored_time, text_bytes, time_to_pb, utf8, uuid},
};
use crate::store::limits::MAX_RECORD_BYTES;

pub use super::error::{DecodeError, EncodeError};

/// The version of the format.
pub const VERSION: u32 = 2;

/// The part of a record or a snapshot that is the same in every version, so that a newer version is always recognized.
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Versioned {
    #[prost(uint32, tag = "1")]
    version: u32,
}

/// Encodes the record of an event.
///
/// # Errors
/// [`EncodeError::TooLarge`]. For a spawn, [`EncodeError::RoleTooLarge`].
pub fn encode_record(session: SessionId, recorded: &Recorded) -> Result<Bytes, EncodeError> {
    let record = store::Record {
        version: VERSION,
        header: Some(header(session, recorded)),
        event: Some(event::event_to_store(&recorded.event)),
        private: non_empty(event::private(&recorded.event)),
    };
    let bytes = record.encoded_len();
    if bytes > MAX_RECORD_BYTES {
        return Err(too_large(&record, bytes));
    }
    Ok(record.encode_to_vec().into())
}

/// Returns the error for a record of excessive size. The size of a spawn depends on its template, which the template's
/// author can change.
fn too_large(record: &store::Record, bytes: usize) -> EncodeError {
    let kind = record.event.as_ref().and_then(|event| event.kind.as_ref());
    let Some(Kind::ThreadSpawned(spawned)) = kind else {
        return EncodeError::TooLarge { bytes };
    };
    EncodeError::RoleTooLarge {
        bytes,
        tool_policy: spawned.tool_policy.as_ref().map_or(0, Message::encoded_len),
        grant: spawned.grant.as_ref().map_or(0, Message::encoded_len),
        spawn_list: spawned.spawn_list.iter().map(String::len).sum(),
        template: spawned.source.as_ref().map_or(0, Message::encoded_len),
    }
}

fn header(session: SessionId, recorded: &Recorded) -> store::Header {
    let metadata = &recorded.metadata;
    let thread = recorded.event.thread();
    store::Header {
        session: Bytes::copy_from_slice(session.as_uuid().as_bytes()),
        sequence: recorded.sequence.get(),
        time: Some(time_to_pb(recorded.time)),
        thread: thread.map_or_else(Bytes::new, |id| Bytes::copy_from_slice(id.as_uuid().as_bytes())),
        actor: metadata.actor.to_string().into(),
        request_id: metadata.request_id.as_deref().map(text_bytes),
        traceparent: metadata.traceparent.as_deref().map(text_bytes),
        cause: metadata.cause.map(Sequence::get),
        tenant: String::new(),
        contents_left_out: metadata.contents_left_out,
    }
}

/// Decodes a record of this session.
///
/// # Errors
/// [`DecodeError::UpgradeRequired`] if a newer release wrote the record: another version, a kind of event or a value
/// that this release does not know. [`DecodeError::Malformed`] if the record is invalid in every release.
pub fn decode_record(session: SessionId, bytes: &Bytes) -> Result<Recorded, DecodeError> {
    // Decodes in place: the record is large, and decoding it dominates the activation of a session.
    let mut record = store::Record::default();
    let merged = record.merge(bytes.clone());
    // A record of a newer version may not decode as this version, so its version is read separately.
    let version = if merged.is_ok() {
        record.version
    } else {
        version_of(bytes)?
    };
    check_version(version, VERSION, "record")?;
    merged.map_err(|error| unreadable(&error))?;
    let header = required(record.header, "the header")?;
    let of = SessionId::from_uuid(uuid(&header.session, "the session's id")?);
    if of != session {
        return Err(malformed(format!("the record belongs to session {of}")));
    }
    if !header.tenant.is_empty() {
        return Err(newer("a record of a tenant"));
    }
    let thread = if header.thread.is_empty() {
        None
    } else {
        Some(ThreadId::from_uuid(uuid(&header.thread, "the thread's id")?))
    };
    let kind = required(record.event, "the event")?
        .kind
        .ok_or_else(|| newer("the kind of the event"))?;
    Ok(Recorded {
        sequence: Sequence::new(header.sequence),
        time: stored_time(header.time, "the time")?,
        metadata: EventMetadata {
            actor: stored_actor(utf8(&header.actor, "the actor")?)?,
            request_id: shared_text(header.request_id, "the request's id")?,
            traceparent: shared_text(header.traceparent, "the trace context")?,
            cause: header.cause.map(Sequence::new),
            contents_left_out: header.contents_left_out,
        },
        event: event::event_from_pb(thread, kind, stored_private(record.private))?,
    })
}

/// Checks the version of a record or a snapshot.
pub(super) fn check_version(found: u32, supported: u32, what: &str) -> Result<(), DecodeError> {
    match found.cmp(&supported) {
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(newer(format!("version {found} of {what}s"))),
        Ordering::Less => Err(malformed(format!("a {what} of version {found}"))),
    }
}

/// Returns the version of a record or a snapshot.
pub(super) fn version_of(bytes: &[u8]) -> Result<u32, DecodeError> {
    let Versioned { version } = Versioned::decode(bytes).map_err(|error| unreadable(&error))?;
    Ok(version)
}

pub(super) fn unreadable(error: &prost::DecodeError) -> DecodeError {
    malformed(error.to_string())
}
