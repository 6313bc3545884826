//! The authentication layer: rejects every call whose caller is unknown or may not call the method.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::{BoxFuture, Either, ready};
use http::{Request, Response, header::AUTHORIZATION};
use tonic::Status;
use tower::{Layer, Service};

use super::{Authenticator, Authority, Row, is_open, unauthenticated};
use crate::{
    audit::{Audit, Entry},
    identity::Forwarded,
    peer::Peer,
    rpc::code,
};

/// Path prefix of the methods that only members of a cluster may call. They are in no permission table, so other
/// callers get UNIMPLEMENTED.
const MEMBERS_ONLY: &str = "/troupe.cluster.v1.MemberService/";

/// Puts [`Auth`] in front of a server. A call is rejected if it has no [`Principal`](crate::identity::Principal), or if
/// its principal may not call the method.
#[derive(Clone, Debug)]
pub struct AuthLayer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    authenticator: Authenticator,
    authority: Authority,
    audit: Audit,
}

impl AuthLayer {
    /// Creates the layer of a service with this table.
    #[must_use]
    pub fn new(authenticator: Authenticator, table: &'static [Row]) -> Self {
        Self {
            shared: Arc::new(Shared {
                authenticator,
                authority: Authority::new(table),
                audit: Audit::default(),
            }),
        }
    }

    /// Returns the full paths of the methods that may block.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &'static str> {
        self.shared.authority.waiting()
    }

    /// Returns the full paths of the methods in the table.
    pub(crate) fn methods(&self) -> impl Iterator<Item = &'static str> {
        self.shared.authority.methods()
    }
}

impl<S> Layer<S> for AuthLayer {
    type Service = Auth<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Auth {
            inner,
            shared: Arc::clone(&self.shared),
        }
    }
}

/// The service that [`AuthLayer`] creates.
#[derive(Clone, Debug)]
pub struct Auth<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S, B, R> Service<Request<B>> for Auth<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    R: Default + Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Either<S::Future, BoxFuture<'static, Result<S::Response, S::Error>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let admitted = self.shared.admit(&mut request);
        let changing = self.shared.authority.changing(request.uri().path());
        // The member that forwards a call logs it.
        let is_forwarded = request.extensions().get::<Forwarded>().is_some();
        let changing = changing.filter(|_| !is_forwarded);
        let entry = changing.and_then(|method| Entry::of(method, &request));
        match (admitted, entry) {
            (Ok(()), None) => Either::Left(self.inner.call(request)),
            (Ok(()), Some(entry)) => {
                let (begun, work) = (self.shared.audit.begin(entry), self.inner.call(request));
                Either::Right(Box::pin(async move {
                    let answer = work.await;
                    if let Ok(response) = &answer {
                        begun.end(code(response.headers()));
                    }
                    answer
                }))
            }
            (Err(refusal), entry) => {
                if let Some(entry) = entry {
                    self.shared.audit.write(&entry, refusal.code());
                }
                Either::Right(Box::pin(ready(Ok(refusal.into_http()))))
            }
        }
    }
}

impl Shared {
    fn admit<B>(&self, request: &mut Request<B>) -> Result<(), Status> {
        if is_open(request.uri().path()) {
            return Ok(());
        }
        let unknown = Peer::default();
        let peer = request.extensions().get::<Peer>().unwrap_or(&unknown);
        let principal = self
            .authenticator
            .authenticate(request.headers(), peer)
            .ok_or_else(unauthenticated)?;
        peer.usage.mark_known();
        let is_forwarded = self.authenticator.is_forwarded(request.headers());
        // Handlers cannot log a header that they do not receive.
        request.headers_mut().remove(AUTHORIZATION);
        if is_forwarded {
            request.extensions_mut().insert(Forwarded);
        }
        let method = request.uri().path();
        let allowed = if is_forwarded && method.starts_with(MEMBERS_ONLY) {
            Ok(())
        } else {
            self.authority.check(method, &principal)
        };
        // The audit log also names rejected callers.
        request.extensions_mut().insert(principal);
        allowed
    }
}
