//! The audit log: one line for each call that changed something or may have, and for each that would have and was refused
//! because of who made it. What failed is bounded, since whoever fails may call as often as they like; and strangers apart,
//! so that no refusal of somebody who is known is lost among theirs.

use std::{net::SocketAddr, sync::Arc};

use http::Request;
use tonic::Code;
use tracing::Level;

use crate::{
    bounded::Bounded, identity::Principal, logging::AUDIT, peer::Peer, rpc::code_name, trace_context::TraceParent,
};

/// How many failures are written in 10 seconds, of strangers and of all others; the next one that is written says how many
/// were not.
const MAX_FAILURES: u32 = 100;

/// What is known of a call before it is carried out.
#[derive(Debug)]
pub(crate) struct Entry {
    method: &'static str,
    principal: Option<Principal>,
    peer: Option<SocketAddr>,
    trace: Option<TraceParent>,
}

impl Entry {
    /// The entry of a call of that method, once it is known who calls; `None`: nobody reads the audit log.
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

/// Where entries are written.
#[derive(Clone, Debug)]
pub(crate) struct Audit(Arc<Bounds>);

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
    /// The entry of a call that is carried out now.
    pub(crate) fn begin(&self, entry: Entry) -> Begun {
        Begun {
            audit: self.clone(),
            entry: Some(entry),
        }
    }

    /// Writes how the call was answered. What is wrong with the call itself, or in the way of it, changed nothing.
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

/// A call that is carried out. One that nobody waits for any more is dropped: what it asked for may happen all the same.
#[derive(Debug)]
pub(crate) struct Begun {
    audit: Audit,
    entry: Option<Entry>,
}

impl Begun {
    /// It was answered.
    pub(crate) fn end(mut self, code: Code) {
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
