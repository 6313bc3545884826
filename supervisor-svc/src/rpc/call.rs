//! The context of a call: caller, session and request id.

use std::sync::Arc;

use prost::{Message, Name};
use sha2::{Digest as _, Sha256};
use supervisor_log::store::{Content, RequestKey};
use svc_kit::{
    deadline::Deadline,
    identity::{Forwarded, OperatorRole, Principal, ThreadPrincipal, principal_of},
    trace_context::TraceParent,
};
use tonic::{Code, Request, Status};
use troupe_proto::{fault::Fault, reason::Reason};

use super::{parse, service::SupervisorService};
use crate::{
    convert::{Redaction, status::refused},
    domain::{
        command::Command,
        ids::{Generation, SessionId, ThreadId},
        principal::Caller,
        rejection::Rejection,
        rules::authority,
        state::thread::Thread,
    },
    engine::{Done, Failure, Handle, Origin, Remember},
    use_cases::spawn::SpawnCaller,
};

/// Maximum length of a request id, in bytes.
pub(crate) const REQUEST_ID_BYTES: usize = 128;

/// A request with a request id, by which a retry is recognized.
pub(super) trait Change: Message + Name {
    /// Removes the request id from the request. The remaining fields are hashed.
    fn take_request_id(&mut self) -> String;
}

/// The context of a call.
pub(super) struct Call<'a> {
    pub service: &'a SupervisorService,
    /// Whether another supervisor forwards the call.
    pub is_forwarded: bool,
    /// The name of the RPC.
    pub method: &'static str,
    /// The request id. Empty if the request has no such field, or none is given.
    pub request_id: String,
    /// The digest of the request without its request id. Zero if there is no request id.
    pub digest: [u8; 32],
    pub caller: Caller,
    /// The session and thread of the caller's token, if a thread calls.
    pub token: Option<ThreadPrincipal>,
    pub scope: String,
    pub deadline: Option<Deadline>,
    pub trace: TraceParent,
    /// Which data is visible to the caller.
    pub redaction: Redaction,
}

impl<'a> Call<'a> {
    /// Splits a request into its message and the context that the outer layers stored in it.
    pub fn open<T: Name>(service: &'a SupervisorService, request: Request<T>) -> Result<(Self, T), Status> {
        let principal = principal_of(&request)?;
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
        let call = Self {
            service,
            is_forwarded: request.extensions().get::<Forwarded>().is_some(),
            // The name of a request is the method's name and `Request`.
            method: T::NAME.trim_end_matches("Request"),
            request_id: String::new(),
            digest: [0; 32],
            caller,
            token,
            scope: principal.scope_key(),
            deadline: Deadline::of(&request),
            trace: TraceParent::of(&request),
            redaction,
        };
        Ok((call, request.into_inner()))
    }

    /// Like [`Self::open`]. Moves the request id from the message to the context.
    pub fn change<T: Change>(service: &'a SupervisorService, request: Request<T>) -> Result<(Self, T), Status> {
        let (mut call, mut message) = Self::open(service, request)?;
        call.request_id = message.take_request_id();
        if !call.request_id.is_empty() {
            call.digest = Sha256::digest(message.encode_to_vec()).into();
        }
        Ok((call, message))
    }

    /// Returns how a retry of this request is recognised: by its request id and the remaining message. `None` without a
    /// request id. An invalid id is rejected here and not earlier, because permissions are checked first.
    pub fn remember(&self) -> Result<Option<Remember>, Status> {
        parse::text("request_id", &self.request_id, REQUEST_ID_BYTES)?;
        Ok((!self.request_id.is_empty()).then(|| Remember {
            key: RequestKey {
                scope: format!("{}|{}", self.scope, self.method),
                request_id: self.request_id.clone(),
            },
            hash: self.digest,
        }))
    }

    /// Returns the origin of a command of this call.
    pub fn origin(&self) -> Origin {
        Origin {
            actor: self.caller.actor(),
            request_id: (!self.request_id.is_empty()).then(|| Arc::from(self.request_id.as_str())),
            traceparent: Some(Arc::from(self.trace.as_str())),
        }
    }

    /// Returns the caller of a spawn.
    pub fn spawn_caller(&self) -> SpawnCaller<'_> {
        SpawnCaller {
            caller: &self.caller,
            deadline: self.deadline,
            trace: &self.trace,
            origin: self.origin(),
        }
    }

    /// Executes the command of this call.
    pub async fn execute(&self, handle: &Handle, command: Command, contents: Vec<Content>) -> Result<Done, Status> {
        let remember = self.remember()?;
        Ok(handle.execute(command, self.origin(), remember, contents).await?)
    }

    /// Rejects a field that only operators may set.
    pub fn operators_only(&self, field: &'static str, is_set: bool) -> Result<(), Status> {
        match &self.caller {
            Caller::Thread { .. } if is_set => Err(refused(Rejection::OperatorsOnly { field })),
            Caller::Thread { .. } | Caller::Operator { .. } => Ok(()),
        }
    }

    /// Returns the session of a call: the session of the caller's token, the session that the request names, or the
    /// session of the thread that the request names.
    pub async fn session_for(&self, session_id: &str, thread: Option<ThreadId>) -> Result<Handle, Status> {
        let named: Option<SessionId> = parse::optional_id("session_id", session_id)?;
        if let Some(token) = &self.token {
            let own = SessionId::from_uuid(token.session);
            // A token of a deleted session is treated as stale.
            let handle = self
                .service
                .directory
                .session(own)
                .await
                .map_err(|failure| match failure {
                    Failure::SessionNotFound(_) => svc_kit::auth::unauthenticated(),
                    other => other.into(),
                })?;
            authority::fresh(&handle.state(), &self.caller).map_err(refused)?;
            if named.is_some_and(|named| named != own) {
                return Err(refused(Rejection::OutsideSubtree(authority::verb(self.method))));
            }
            return Ok(handle);
        }
        let found = match (named, thread) {
            (Some(session), _) => self.service.directory.session(session).await.map(Some),
            (None, Some(thread)) => self.service.directory.session_of(thread).await,
            (None, None) => return Err(parse::bad("session_id", "give session_id or thread_id")),
        };
        found?.ok_or_else(|| {
            let id = thread.map(|thread| thread.to_string()).unwrap_or_default();
            refused(Rejection::ThreadNotFound(id))
        })
    }

    /// Returns the session of the caller's token. A caller without such a token must name the session.
    pub async fn own_or_named(&self, session_id: &str) -> Result<Handle, Status> {
        if self.token.is_none() {
            parse::session_id(session_id)?;
        }
        self.session_for(session_id, None).await
    }

    /// Returns a thread's token if the caller is an operator or the thread's parent. No other caller may act as the
    /// thread.
    pub fn token_for(&self, thread: &Thread, handle: &Handle) -> Option<String> {
        let entitled = match self.caller {
            Caller::Operator { .. } => true,
            Caller::Thread { id, .. } => thread.spawned.parent == Some(id),
        };
        entitled.then(|| {
            self.service.keys.mint(&ThreadPrincipal {
                session: handle.id().as_uuid(),
                thread: thread.id.as_uuid(),
                generation: thread.generation.get(),
            })
        })
    }

    /// Returns the thread of a request that may omit it. The default is the caller's own thread, or the root for an
    /// operator.
    pub fn thread_or_own(&self, handle: &Handle, named: Option<ThreadId>) -> Result<ThreadId, Status> {
        named
            .or_else(|| self.caller.thread())
            .or_else(|| handle.state().root_id())
            .ok_or_else(|| refused(Rejection::ThreadNotFound(String::new())))
    }

    /// Returns the session and the thread of a call, if the caller may use the method on the thread. See
    /// [`Self::thread_or_own`] for the default.
    pub async fn authorized_thread(&self, session_id: &str, thread_id: &str) -> Result<(Handle, ThreadId), Status> {
        let named = parse::optional_id("thread_id", thread_id)?;
        let handle = self.session_for(session_id, named).await?;
        let target = self.thread_or_own(&handle, named)?;
        authority::authorize(&handle.state(), &self.caller, self.method, target).map_err(refused)?;
        Ok((handle, target))
    }

    /// Like [`Self::authorized_thread`], for a request that must name the thread.
    pub async fn named_thread(&self, session_id: &str, thread_id: &str) -> Result<(Handle, ThreadId), Status> {
        parse::id::<ThreadId>("thread_id", thread_id)?;
        self.authorized_thread(session_id, thread_id).await
    }
}
