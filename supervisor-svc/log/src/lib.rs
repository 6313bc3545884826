//! The supervisor's log: a store of sessions' records, contents and snapshots, the codecs between these bytes and the
//! state of `supervisor-core`, and offline maintenance of a data directory.
//!
//! Dependencies point one way: `maintenance -> codec -> store`. The store does not interpret the bytes that it stores.
#![forbid(unsafe_code)]

pub mod codec;
pub mod maintenance;
pub mod store;
