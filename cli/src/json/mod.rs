//! API messages as JSON, for `--output json`.
//!
//! Scripts depend on the format, so it is written by hand: field names as in the protos, enum values by their short
//! names (null if unspecified), times as RFC 3339, durations as `"1.5s"`. Text is unchanged; the [`writer`] escapes
//! characters that are unsafe on a terminal.

mod attention;
mod common;
mod event;
mod graph;
mod registry;
mod session;
mod thread;
mod watch;
pub(crate) mod writer;

use prost_types::{Duration, Timestamp};
use serde_json::Value;

pub(crate) use self::{
    attention::{approval, notification},
    common::resolved,
    event::event,
    graph::{edge, handoff, mail},
    registry::{agent, diagnostic},
    session::session,
    thread::{status, thread},
    watch::watch_message,
};
use crate::names::UNSPECIFIED;

/// Converts a short name. Unspecified values are null.
fn name(short: &'static str) -> Value {
    if short == UNSPECIFIED {
        Value::Null
    } else {
        Value::from(short)
    }
}

/// A point in time.
fn time(value: Option<&Timestamp>) -> Value {
    value.map_or(Value::Null, |time| Value::from(time.to_string()))
}

/// A span of time.
fn duration(value: Option<&Duration>) -> Value {
    value.map_or(Value::Null, |span| Value::from(span.to_string()))
}

/// Converts an optional message. An absent message is null.
fn optional<T>(value: Option<&T>, convert: impl FnOnce(&T) -> Value) -> Value {
    value.map_or(Value::Null, convert)
}

/// Converts messages in order.
fn list<T>(values: &[T], convert: impl Fn(&T) -> Value) -> Value {
    values.iter().map(convert).collect()
}

/// Converts enum values in order.
fn name_list<T>(values: impl Iterator<Item = T>, short: impl Fn(T) -> &'static str) -> Value {
    values.map(|value| name(short(value))).collect()
}
