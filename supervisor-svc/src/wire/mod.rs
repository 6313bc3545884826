//! Between the domain and the API's messages. The domain names no message; nothing here decides anything.
//!
//! - What goes out cannot fail: every value of the domain has a form on the wire.
//! - What comes in is checked; a value that is missing or unknown is an error, never a guess. A default applies only where
//!   the API's comments say so.
//! - What [`record`] and [`snapshot`] write they read back equal. Where a message cannot tell two values of the domain apart, the record's
//!   private part does.
//! - Matches on the domain's enumerations name every value, so that a new kind of event cannot be forgotten here.

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
