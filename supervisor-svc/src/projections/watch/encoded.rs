//! Messages of a watch in the form in which they are sent. What many watchers get is encoded once and shared.

use std::sync::OnceLock;

use bytes::Bytes;
use prost::Message as _;
use supervisor_log::codec;
use troupe_proto::supervisor::v1::{self as pb, watch_threads_response::Message};

use crate::{convert::Sight, domain::{event::Recorded, ids::SessionId}};

/// The events of one append as messages, encoded on first use.
#[derive(Debug, Default)]
pub struct EncodedEvents {
    everything: OnceLock<Vec<Bytes>>,
    previews: OnceLock<Vec<Bytes>>,
    digests: OnceLock<Vec<Bytes>>,
}

impl EncodedEvents {
    /// Returns the messages, one for each of `events`. All calls must pass the same events.
    pub fn of(&self, session: SessionId, events: &[Recorded], sight: Sight) -> &[Bytes] {
        let encoded = match sight {
            Sight::Everything => &self.everything,
            Sight::Previews => &self.previews,
            Sight::Digests => &self.digests,
        };
        encoded.get_or_init(|| {
            let one = |recorded: &Recorded| event(session, recorded, sight);
            events.iter().map(one).collect()
        })
    }
}

/// An event as a message.
#[must_use]
pub fn event(session: SessionId, recorded: &Recorded, sight: Sight) -> Bytes {
    let event = sight.event(codec::event_to_pb(session, recorded));
    let message = pb::WatchThreadsResponse {
        sequence: recorded.sequence.get(),
        message: Some(Message::Event(event)),
    };
    message.encode_to_vec().into()
}
