//! Messages of a watch in the form in which they are sent. They are encoded once for all watchers.

use bytes::Bytes;
use prost::Message as _;
use supervisor_log::codec::event_to_pb;
use troupe_proto::supervisor::v1::{self as pb, watch_threads_response::Message};

use crate::{
    convert::Redaction,
    domain::{
        event::Recorded,
        ids::{Sequence, SessionId},
    },
    engine::{Commit, ENCODINGS},
};

const _: () = assert!(Redaction::Digests.index() < ENCODINGS);

/// Returns the events of a commit as messages, in the same order. They are encoded on first use.
pub(super) fn events(commit: &Commit, session: SessionId, redaction: Redaction) -> &[Bytes] {
    commit.encoded(redaction.index(), |events| {
        events
            .iter()
            .map(|recorded| event(session, recorded, redaction))
            .collect()
    })
}

/// Encodes an event as a message.
pub(super) fn event(session: SessionId, recorded: &Recorded, redaction: Redaction) -> Bytes {
    let event = redaction.event(event_to_pb(session, recorded));
    encode(recorded.sequence, Message::Event(event))
}

/// Encodes a message. The sequence of telemetry and output is zero.
pub(super) fn encode(sequence: Sequence, message: Message) -> Bytes {
    let response = pb::WatchThreadsResponse {
        sequence: sequence.get(),
        message: Some(message),
    };
    response.encode_to_vec().into()
}
