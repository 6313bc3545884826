//! The audit log: one line for each call that changed data or may have changed data, and one line for each call of a
//! method that changes data if the call was rejected because of its caller.
//!
//! The number of lines about failures is bounded, because callers can fail as often as they like. Unauthenticated
//! callers have a separate bound, so that they cannot suppress lines about authenticated callers.

use std::{net::SocketAddr, sync::Arc};

use http::Request;
use tonic::Code;
use tracing::Level;

use crate::{
    bounded::Bounded, identity::Principal, logging::AUDIT, peer::Peer, rpc::code_name, trace_context::TraceParent,
};

/// Maximum number of logged failures in 10 seconds, separately for unauthenticated and for all other callers. The next
/// line reports the number of omitted lines.
const MAX_FAILURES: u32 = 100;

/// The data of an audit line that is known before the call runs.
#[derive(Debug)]
pub struct Entry {
    method: &'static str,
    principal: Option<Principal>,
    peer: Option<SocketAddr>,
    trace: Option<TraceParent>,
}

impl Entry {
    /// Returns the entry of a call to `method` by `principal`, for a program without the authentication layer. Returns
    /// `None` if the audit log is disabled.
    #[must_use]
    pub fn new(method: &'static str, principal: Principal) -> Option<Self> {
        tracing::enabled!(target: AUDIT, Level::INFO).then(|| Self {
            method: method.trim_start_matches('/'),
            principal: Some(principal),
            peer: None,
            trace: None,
        })
    }

    /// Returns the entry of a call to `method`, after authentication. Returns `None` if the audit log is disabled.
    pub(crate) fn of<B>(method: &'static str, request: &Request<B>) -> Option<Self> {
        tracing::enabled!(target: AUDIT, Level::INFO).then(|| {
            let extensions = request.extensions();
            Self {
                method: method.trim_start_matches('/'),
                principal: extensions.get::<Principal>().cloned(),
                peer: extensions.get::<Peer>().and_then(|peer| peer.address),
                trace: extensions.get::<TraceParent>().cloned(),
            }
        })
    }

    fn write(&self, code: Code, passed_over: Option<u64>) {
        tracing::info!(
            target: AUDIT,
            principal = self.principal.as_ref().map(display),
            method = self.method,
            code = code_name(code),
            peer = self.peer.map(display),
            trace_id = self.trace.as_ref().map(TraceParent::trace_id),
            passed_over,
            "call"
        );
    }
}

/// Writer of audit entries.
#[derive(Clone, Debug)]
pub struct Audit(Arc<Bounds>);

#[derive(Debug)]
struct Bounds {
    strangers: Bounded,
    others: Bounded,
}

impl Default for Audit {
    fn default() -> Self {
        Self(Arc::new(Bounds {
            strangers: Bounded::new(MAX_FAILURES),
            others: Bounded::new(MAX_FAILURES),
        }))
    }
}

impl Audit {
    /// Starts tracking a call that is about to run.
    #[must_use]
    pub fn begin(&self, entry: Entry) -> Begun {
        Begun {
            audit: self.clone(),
            entry: Some(entry),
        }
    }

    /// Writes the outcome of a call. A success is always written. Two kinds of failures are rate-limited: failures
    /// after which the change may have happened, and rejections because of the caller. Other failures are omitted.
    pub(crate) fn write(&self, entry: &Entry, code: Code) {
        let failures = if entry.principal.is_some() {
            &self.0.others
        } else {
            &self.0.strangers
        };
        match code {
            Code::Ok => entry.write(code, None),
            Code::Unauthenticated
            | Code::PermissionDenied
            | Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Unavailable
            | Code::Unknown
            | Code::Internal => failures.write(|passed_over| entry.write(code, passed_over)),
            Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::ResourceExhausted
            | Code::FailedPrecondition
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::DataLoss => {}
        }
    }
}

/// A call in progress. If it is dropped because its client disconnected, the requested change may happen anyway.
#[derive(Debug)]
pub struct Begun {
    audit: Audit,
    entry: Option<Entry>,
}

impl Begun {
    /// Records that the call was answered with `code`.
    pub fn end(mut self, code: Code) {
        if let Some(entry) = self.entry.take() {
            self.audit.write(&entry, code);
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.audit.write(&entry, Code::Cancelled);
        }
    }
}
