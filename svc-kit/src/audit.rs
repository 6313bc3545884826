//! The audit log: one line for each call that changed something, and for each that would have and was refused because of
//! who made it. Refusals are bounded, since whoever is refused may call as often as they like.

use std::net::SocketAddr;

use http::Request;
use tonic::Code;
use tracing::Level;

use crate::{
    bounded::Bounded, identity::Principal, logging::AUDIT, peer::Peer, rpc::code_name, trace_context::TraceParent,
};

/// How many refusals are written in 10 seconds; the next one that is written says how many were not.
const MAX_REFUSALS: u32 = 100;

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
#[derive(Debug)]
pub(crate) struct Audit {
    refusals: Bounded,
}

impl Default for Audit {
    fn default() -> Self {
        Self {
            refusals: Bounded::new(MAX_REFUSALS),
        }
    }
}

impl Audit {
    /// Writes how the call was answered. What failed for another reason than its caller changed nothing.
    pub(crate) fn write(&self, entry: &Entry, code: Code) {
        match code {
            Code::Ok => entry.write(code, None),
            Code::Unauthenticated | Code::PermissionDenied => {
                if let Some(passed_over) = self.refusals.admit() {
                    entry.write(code, (passed_over > 0).then_some(passed_over));
                }
            }
            _ => {}
        }
    }
}
