//! What a refused call has to say.

use std::fmt::Debug;

use tonic::{Code, Status};
use troupe_proto::{fault::reason_of, reason::Reason};

/// The refusal that a call was answered with, for more looks at it.
///
/// # Panics
///
/// If the call went well, or code or reason are others, or the text lacks `text`.
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
