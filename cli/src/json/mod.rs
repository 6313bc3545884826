//! Messages of the API as JSON, for `--output json`.
//!
//! The shape is a promise to scripts and is written out by hand: field names as in the protos, enum values by their
//! short names (null where unspecified), times as RFC 3339, durations as `"1.5s"`. Text stays as it was written; the
//! [`writer`] escapes what a terminal must not see.

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

/// A short name; null where the value is unspecified.
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

/// A message that may be absent.
fn optional<T>(value: Option<&T>, convert: impl FnOnce(&T) -> Value) -> Value {
    value.map_or(Value::Null, convert)
}

/// Messages in their order.
fn list<T>(values: &[T], convert: impl Fn(&T) -> Value) -> Value {
    values.iter().map(convert).collect()
}

/// Enum values in their order.
fn name_list<T>(values: impl Iterator<Item = T>, short: impl Fn(T) -> &'static str) -> Value {
    values.map(|value| name(short(value))).collect()
}
