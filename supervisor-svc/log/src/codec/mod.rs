//! Conversion between the state of `supervisor-core` and protobuf messages: the records and snapshots of the log, and
//! the messages that the API shares with them.
//!
//! - Encoding cannot fail, except for a record above the size limit: every value has a wire form.
//! - Decoding validates: a missing or unknown value is an error. Defaults apply only where the API's comments define
//!   them.
//! - The output of [`record`] and [`snapshot`] decodes to an equal value. If a message cannot distinguish two values,
//!   the record's private part does.
//! - Matches on the core's enumerations are exhaustive, so that the compiler reports a new kind of event that is not
//!   handled here.

pub mod enums;
pub mod error;
pub mod event;
mod event_in;
mod event_out;
pub mod group;
pub mod parts;
pub mod policy;
pub mod record;
pub mod settings;
pub mod snapshot;
mod spawned;

pub use self::{
    enums::WireEnum,
    error::{DecodeError, EncodeError, UnknownValue},
    event::{event_from_pb, event_to_pb},
    parts::content_of,
    record::{decode_record, encode_record},
    snapshot::{decode_snapshot, encode_snapshot},
    spawned::{origins_from_pb, origins_to_pb},
};
