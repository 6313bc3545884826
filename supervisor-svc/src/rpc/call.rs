//! The context of a call: caller, session and request id.

use std::sync::Arc;

use prost::Message;
use sha2::{Digest as _, Sha256};
use supervisor_log::store::RequestKey;
use svc_kit::{
    deadline::Deadline,
    identity::{OperatorRole, Principal, ThreadPrincipal, principal_of},
    trace_context::TraceParent,
};
use tonic::{Code, Request, Status};
use troupe_proto::{fault::Fault, reason::Reason};

use super::{parse, service::SupervisorService};
use crate::{
    convert::{Redaction, status::refused},
    domain::{
        ids::{Generation, SessionId, ThreadId},
        principal::Caller,
        rejection::{GuardedVerb, Rejection},
        rules::authority,
        state::thread::Thread,
    },
    engine::{Failure, Handle, Origin, Remember},
};

/// The longest request id.
pub(crate) const REQUEST_ID_BYTES: usize = 128;

/// The context of a call.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub caller: Caller,
    /// The session and thread of the caller's token, if a thread calls.
    pub token: Option<ThreadPrincipal>,
    pub scope: String,
    pub deadline: Option<Deadline>,
    pub trace: TraceParent,
    /// Which data is visible to the caller.
    pub redaction: Redaction,
}

impl Call {
    /// Reads the context that the outer layers stored in the request.
    pub fn of<T>(request: &Request<T>) -> Result<Self, Status> {
        let principal = principal_of(request)?;
        let redaction = match principal {
            Principal::Operator {
                role: OperatorRole::Viewer,
                ..
            } => Redaction::Digests,
            Principal::Operator {
                role: OperatorRole::Admin,
                ..
            } => Redaction::Everything,
            Principal::Thread(_) | Principal::Runner { .. } | Principal::Service { .. } | Principal::Caller { .. } => {
                Redaction::Previews
            }
        };
        let (caller, token) = match principal {
            Principal::Operator { name, .. } => (Caller::Operator { name: name.clone() }, None),
            Principal::Thread(thread) => (
                Caller::Thread {
                    id: ThreadId::from_uuid(thread.thread),
                    generation: Generation::new(thread.generation),
                },
                Some(*thread),
            ),
            Principal::Runner { name, .. } | Principal::Service { name } | Principal::Caller { name } => {
                let text = format!("{} \"{name}\" may not call this method", principal.kind());
                return Err(Fault::new(Code::PermissionDenied, Reason::NotPermitted, text).into());
            }
        };
        Ok(Self {
            caller,
            token,
            scope: principal.scope_key(),
            deadline: Deadline::of(request),
            trace: TraceParent::of(request),
            redaction,
        })
    }

    /// For whom a command is carried out.
    pub fn origin(&self, request_id: &str) -> Origin {
        Origin {
            actor: self.caller.actor(),
            request_id: (!request_id.is_empty()).then(|| Arc::from(request_id)),
            traceparent: Some(Arc::from(self.trace.as_str())),
        }
    }

    /// How a retry of this request is recognised. `body` is the request without request_id and return_token.
    pub fn remember(&self, method: &str, request_id: &str, body: &impl Message) -> Result<Option<Remember>, Status> {
        parse::text("request_id", request_id, REQUEST_ID_BYTES)?;
        if request_id.is_empty() {
            return Ok(None);
        }
        Ok(Some(Remember {
            key: RequestKey {
                scope: format!("{}|{method}", self.scope),
                request_id: request_id.to_owned(),
            },
            hash: Sha256::digest(body.encode_to_vec()).into(),
        }))
    }

    /// Rejects a field that only operators may set.
    pub fn operators_only(&self, field: &'static str, is_set: bool) -> Result<(), Status> {
        match &self.caller {
            Caller::Thread { .. } if is_set => Err(refused(Rejection::OperatorsOnly { field })),
            Caller::Thread { .. } | Caller::Operator { .. } => Ok(()),
        }
    }
}

impl SupervisorService {
    /// The session that a call is about: that of the caller's token, the one it names, or that of the thread it names.
    pub(super) async fn session_for(
        &self,
        call: &Call,
        session_id: &str,
        thread: Option<ThreadId>,
        verb: GuardedVerb,
    ) -> Result<Handle, Status> {
        let named: Option<SessionId> = parse::optional_id("session_id", session_id)?;
        if let Some(token) = &call.token {
            let own = SessionId::from_uuid(token.session);
            // A token of a deleted session is treated as stale.
            let handle = self.directory.session(own).await.map_err(|failure| match failure {
                Failure::SessionNotFound(_) => svc_kit::auth::unauthenticated(),
                other => other.into(),
            })?;
            authority::fresh(&handle.state(), &call.caller).map_err(refused)?;
            if named.is_some_and(|named| named != own) {
                return Err(refused(Rejection::OutsideSubtree(verb)));
            }
            return Ok(handle);
        }
        let found = match (named, thread) {
            (Some(session), _) => self.directory.session(session).await.map(Some),
            (None, Some(thread)) => self.directory.session_of(thread).await,
            (None, None) => return Err(parse::bad("session_id", "give session_id or thread_id")),
        };
        found?.ok_or_else(|| {
            let id = thread.map(|thread| thread.to_string()).unwrap_or_default();
            refused(Rejection::ThreadNotFound(id))
        })
    }

    /// Returns a thread's token if the caller is an operator or the thread's parent. No other caller may act as the
    /// thread.
    pub(super) fn token_for(&self, call: &Call, thread: &Thread, handle: &Handle) -> Option<String> {
        let entitled = match call.caller {
            Caller::Operator { .. } => true,
            Caller::Thread { id, .. } => thread.spawned.parent == Some(id),
        };
        entitled.then(|| {
            self.keys.mint(&ThreadPrincipal {
                session: handle.id().as_uuid(),
                thread: thread.id.as_uuid(),
                generation: thread.generation.get(),
            })
        })
    }

    /// Returns the thread of a request that may omit it. The default is the caller's own thread, or the root for an
    /// operator.
    pub(super) fn thread_or_own(call: &Call, handle: &Handle, named: Option<ThreadId>) -> Result<ThreadId, Status> {
        named
            .or_else(|| call.caller.thread())
            .or_else(|| handle.state().root_id())
            .ok_or_else(|| refused(Rejection::ThreadNotFound(String::new())))
    }
}
