//! Conversions from the store's types to column values, for all database engines.

use supervisor_core::time::UnixMillis;

use super::{
    batch::{CursorKey, RequestKey},
    limits::MAX_PAGE,
};

/// Converts a number to its column type. Numbers beyond the column's range saturate.
pub(super) fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a time to its column type.
pub(super) fn millis(time: UnixMillis) -> i64 {
    integer(time.get())
}

/// Returns the value of a page's LIMIT, at most [`MAX_PAGE`].
pub(super) fn page(limit: usize) -> i64 {
    bound(limit.min(MAX_PAGE))
}

/// Returns the value of a LIMIT.
pub(super) fn bound(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Returns the first possible scope and request id after a key: the key's own, with a NUL appended to the request id,
/// because no text sorts between the two. Without a key, both texts are empty, which sorts before all others.
pub(super) fn first_request(after: Option<&RequestKey>) -> (&str, String) {
    match after {
        Some(key) => (&key.scope, format!("{}\0", key.request_id)),
        None => ("", String::new()),
    }
}

/// Returns the session column of a cursor's key. Empty if the cursor belongs to no session.
pub(super) fn cursor_session(key: &CursorKey) -> Vec<u8> {
    key.session
        .map_or_else(Vec::new, |session| session.as_uuid().into_bytes().to_vec())
}
