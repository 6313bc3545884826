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

/// Checks that a call was rejected with INVALID_ARGUMENT, as [`refused`].
#[track_caller]
pub fn invalid<T: Debug>(answer: Result<T, Status>, text: &str) -> Status {
    refused(answer, Code::InvalidArgument, Reason::InvalidArgument, text)
}

/// Checks that a call was rejected with NOT_PERMITTED, as [`refused`].
#[track_caller]
pub fn not_permitted<T: Debug>(answer: Result<T, Status>, text: &str) -> Status {
    refused(answer, Code::PermissionDenied, Reason::NotPermitted, text)
}

/// Checks that a call was rejected with OUTSIDE_SUBTREE, as [`refused`].
#[track_caller]
pub fn outside_subtree<T: Debug>(answer: Result<T, Status>, text: &str) -> Status {
    refused(answer, Code::PermissionDenied, Reason::OutsideSubtree, text)
}

/// Checks that a call was rejected with the reason NOT_FOUND, as [`refused`].
#[track_caller]
pub fn not_found<T: Debug>(answer: Result<T, Status>, text: &str) -> Status {
    refused(answer, Code::NotFound, Reason::NotFound, text)
}

/// Checks that a call was rejected with ILLEGAL_TRANSITION, as [`refused`].
#[track_caller]
pub fn illegal_transition<T: Debug>(answer: Result<T, Status>, text: &str) -> Status {
    refused(answer, Code::FailedPrecondition, Reason::IllegalTransition, text)
}
