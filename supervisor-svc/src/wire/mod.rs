//! Conversion between the domain and the API's messages. The domain does not depend on messages, and this module
//! contains no domain rules.
//!
//! - Encoding cannot fail: every domain value has a wire form.
//! - Decoding validates: a missing or unknown value is an error. Defaults apply only where the API's comments define
//!   them.
//! - The output of [`record`] and [`snapshot`] decodes to an equal value. If a message cannot distinguish two domain
//!   values, the record's private part does.
//! - Matches on the domain's enumerations are exhaustive, so that the compiler reports a new kind of event that is not
//!   handled here.

pub mod approval;
pub mod enums;
pub mod error;
pub mod event;
mod event_in;
mod event_out;
pub mod mail;
pub mod marked;
pub mod notify;
pub mod parts;
pub mod policy;
pub mod record;
pub mod resolved;
pub mod settings;
pub mod snapshot;
mod spawned;
pub mod status;
pub mod thread;

pub use self::{
    enums::WireEnum,
    error::{DecodeError, EncodeError, UnknownValue},
    event::{Sight, event_from_pb, event_to_pb},
    parts::content_of,
    record::{decode_record, encode_record},
    resolved::Resolution,
    snapshot::{decode_snapshot, encode_snapshot},
    thread::View,
};
