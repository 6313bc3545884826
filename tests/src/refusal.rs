//! Assertions about rejected calls.

use std::fmt::Debug;

use tonic::{Code, Status};
use troupe_proto::{fault::reason_of, reason::Reason};

/// Checks the error of a rejected call and returns it.
///
/// # Panics
///
/// If the call succeeded, if the code or the reason differs, or if the message does not contain `text`.
#[track_caller]
pub fn refused<T: Debug>(answer: Result<T, Status>, code: Code, reason: Reason, text: &str) -> Status {
    let status = match answer {
        Ok(answer) => panic!("expected {code:?} {reason:?} {text:?}, not {answer:?}"),
        Err(status) => status,
    };
    assert_eq!(
        (status.code(), reason_of(&status)),
        (code, Some(reason)),
        "expected {text:?}: {status:?}"
    );
    assert!(status.message().contains(text), "{:?} lacks {text:?}", status.message());
    status
}
