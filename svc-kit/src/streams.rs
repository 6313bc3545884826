//! Limits on open streams. A call counts as in flight until its response begins. Afterwards a stream uses memory for as
//! long as the client reads it, so each caller has a separate limit on streams. The response body holds the slot until
//! it is dropped.
//!
//! Health and reflection stream without authentication. Their callers are counted by address in a separate pool, so
//! that they cannot use up the slots of authenticated callers.

use std::{
    collections::HashSet,
    future::ready,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use prost::{DecodeError, Message as _};
use prost_types::{FileDescriptorSet, MethodDescriptorProto};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Status, body::Body};
use tower::{Layer, Service};

use crate::{
    auth::OPEN_STREAMS,
    call::overloaded,
    held::keep,
    identity::Principal,
    peer::Peer,
    serve::ServeLimits,
    share::{Place, Shares},
};

/// The layer that creates [`StreamShare`]. It runs after authentication.
#[derive(Clone, Debug)]
pub(crate) struct StreamLayer(Arc<Streams>);

/// The open streams by owner.
#[derive(Debug)]
struct Streams {
    methods: HashSet<String>,
    limits: ServeLimits,
    shares: Arc<Shares<Owner>>,
    /// The slots for all unauthenticated streams together.
    strangers: Arc<Semaphore>,
}

/// The owner of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Caller(Principal),
    /// An unauthenticated caller by address. `None` if the address is unknown.
    Stranger(Option<IpAddr>),
}

/// The slot of an open stream, released on drop.
#[derive(Debug)]
struct Taken {
    _share: Place<Owner>,
    _among_strangers: Option<OwnedSemaphorePermit>,
}

impl StreamLayer {
    /// Creates a layer that limits the streaming methods in the descriptors and the open methods.
    ///
    /// # Errors
    ///
    /// The descriptors cannot be decoded.
    pub(crate) fn new(descriptor_set: &[u8], limits: ServeLimits) -> Result<Self, DecodeError> {
        let strangers = limits.max_open_streams_of_strangers.min(Semaphore::MAX_PERMITS);
        Ok(Self(Arc::new(Streams {
            methods: methods(descriptor_set, MethodDescriptorProto::server_streaming)?,
            limits,
            shares: Arc::default(),
            strangers: Arc::new(Semaphore::new(strangers)),
        })))
    }
}

/// Returns the full paths of the methods for which `streams` is true, and of the open streaming methods.
///
/// # Errors
///
/// The descriptors cannot be decoded.
pub(crate) fn methods(
    descriptor_set: &[u8],
    streams: impl Fn(&MethodDescriptorProto) -> bool,
) -> Result<HashSet<String>, DecodeError> {
    let set = FileDescriptorSet::decode(descriptor_set)?;
    let mut paths: HashSet<String> = OPEN_STREAMS.iter().map(|path| (*path).to_owned()).collect();
    for file in &set.file {
        for service in &file.service {
            let streams = service.method.iter().filter(|method| streams(method));
            paths.extend(streams.map(|method| format!("/{}.{}/{}", file.package(), service.name(), method.name())));
        }
    }
    Ok(paths)
}

impl Streams {
    /// Takes a slot for the response to this call. Returns `None` if it needs none.
    fn admit<B>(&self, request: &Request<B>) -> Result<Option<Taken>, Status> {
        if !self.methods.contains(request.uri().path()) {
            return Ok(None);
        }
        let Some(caller) = request.extensions().get::<Principal>() else {
            let peer = request.extensions().get::<Peer>();
            let address = peer.and_then(|peer| peer.address).map(|address| address.ip());
            return self.admit_stranger(address).map(Some);
        };
        let (limit, max) = match caller {
            Principal::Thread(_) => ("max_open_streams_per_thread", self.limits.max_open_streams_per_thread),
            Principal::Operator { .. } | Principal::Runner { .. } | Principal::Service { .. } => {
                ("max_open_streams_per_caller", self.limits.max_open_streams_per_caller)
            }
        };
        let share = self.shares.take(&Owner::Caller(caller.clone()), max);
        share
            .map(|share| {
                Some(Taken {
                    _share: share,
                    _among_strangers: None,
                })
            })
            .ok_or_else(|| overloaded("you have too many open streams", limit, max))
    }

    fn admit_stranger(&self, address: Option<IpAddr>) -> Result<Taken, Status> {
        let owner = Owner::Stranger(address.map(|ip| ip.to_canonical()));
        let (max, total) = (
            self.limits.max_open_streams_per_stranger,
            self.limits.max_open_streams_of_strangers,
        );
        let share = self.shares.take(&owner, max).ok_or_else(|| {
            let text = "there are too many open streams from your address";
            overloaded(text, "max_open_streams_per_stranger", max)
        })?;
        let among = Arc::clone(&self.strangers).try_acquire_owned().map_err(|_| {
            let text = "there are too many open streams of callers without a name";
            overloaded(text, "max_open_streams_of_strangers", total)
        })?;
        Ok(Taken {
            _share: share,
            _among_strangers: Some(among),
        })
    }
}

impl<S> Layer<S> for StreamLayer {
    type Service = StreamShare<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let streams = Arc::clone(&self.0);
        StreamShare { inner, streams }
    }
}

/// The service of [`StreamLayer`].
#[derive(Clone, Debug)]
pub(crate) struct StreamShare<S> {
    inner: S,
    streams: Arc<Streams>,
}

impl<S, B> Service<Request<B>> for StreamShare<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.streams.admit(&request) {
            Ok(None) => Box::pin(self.inner.call(request)),
            Ok(Some(taken)) => {
                let work = self.inner.call(request);
                Box::pin(async move { work.await.map(|answer| keep(answer, taken)) })
            }
            Err(refusal) => Box::pin(ready(Ok(refusal.into_http()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, net::SocketAddr};

    use http_body_util::Full;
    use prost::bytes::Bytes;
    use tower::{ServiceExt as _, service_fn};
    use troupe_proto::{
        FILE_DESCRIPTOR_SET,
        fault::{reason_of, retry_after},
        reason::Reason,
    };
    use uuid::Uuid;

    use super::*;
    use crate::identity::ThreadPrincipal;

    const WATCH: &str = "/troupe.supervisor.v1.AgentSupervisorService/WatchThreads";
    const GET: &str = "/troupe.supervisor.v1.AgentSupervisorService/GetThread";
    const HEALTH: &str = "/grpc.health.v1.Health/Watch";

    fn layer() -> StreamLayer {
        let limits = ServeLimits {
            max_open_streams_per_caller: 3,
            max_open_streams_per_thread: 2,
            max_open_streams_per_stranger: 2,
            max_open_streams_of_strangers: 3,
            ..ServeLimits::default()
        };
        StreamLayer::new(FILE_DESCRIPTOR_SET, limits).unwrap()
    }

    async fn call(layer: &StreamLayer, method: &str, caller: Option<Principal>, from: u8) -> Response<Body> {
        let handler = service_fn(|_: Request<()>| async {
            Ok::<_, Infallible>(Response::new(Body::new(Full::new(Bytes::from("x")))))
        });
        let mut request = Request::builder().uri(method).body(()).unwrap();
        if let Some(caller) = caller {
            request.extensions_mut().insert(caller);
        }
        request.extensions_mut().insert(Peer {
            address: Some(SocketAddr::from(([127, 0, 0, from], 1))),
            ..Peer::default()
        });
        layer.layer(handler).oneshot(request).await.unwrap()
    }

    fn is_refused(answer: &Response<Body>) -> bool {
        let refusal = Status::from_header_map(answer.headers());
        if let Some(refusal) = &refusal {
            assert_eq!(reason_of(refusal), Some(Reason::Overloaded));
            assert!(retry_after(refusal).is_some());
        }
        refusal.is_some()
    }

    #[tokio::test]
    async fn a_callers_streams_are_bounded_until_their_answers_are_gone() {
        let layer = layer();
        let thread = |thread: u128| {
            Principal::Thread(ThreadPrincipal {
                session: Uuid::from_u128(1),
                thread: Uuid::from_u128(thread),
                generation: 1,
            })
        };
        let runner = Principal::Runner { name: "box".to_owned() };
        for (caller, other, max) in [(thread(1), thread(2), 2), (runner, thread(3), 3)] {
            let mut open = Vec::new();
            for _ in 0..max {
                open.push(call(&layer, WATCH, Some(caller.clone()), 1).await);
            }
            assert!(!open.iter().any(is_refused));
            assert!(is_refused(&call(&layer, WATCH, Some(caller.clone()), 1).await));
            assert!(!is_refused(&call(&layer, GET, Some(caller.clone()), 1).await));
            assert!(!is_refused(&call(&layer, WATCH, Some(other), 1).await));
            open.pop();
            assert!(!is_refused(&call(&layer, WATCH, Some(caller), 1).await));
        }
        assert!(layer.0.shares.is_empty());
    }

    #[tokio::test]
    async fn strangers_have_a_share_by_their_address_and_one_together() {
        let layer = layer();
        let mut open = vec![call(&layer, HEALTH, None, 1).await, call(&layer, HEALTH, None, 1).await];
        assert!(!open.iter().any(is_refused));
        assert!(is_refused(&call(&layer, HEALTH, None, 1).await));
        open.push(call(&layer, HEALTH, None, 2).await);
        assert!(!open.iter().any(is_refused));
        assert!(is_refused(&call(&layer, HEALTH, None, 3).await));
        let runner = Principal::Runner { name: "box".to_owned() };
        assert!(!is_refused(&call(&layer, WATCH, Some(runner), 1).await));
        open.clear();
        assert!(!is_refused(&call(&layer, HEALTH, None, 3).await));
        assert!(layer.0.shares.is_empty());
    }

    #[test]
    fn methods_that_stream_are_known_and_no_others() {
        let methods = methods(FILE_DESCRIPTOR_SET, MethodDescriptorProto::server_streaming).unwrap();
        assert!(methods.contains(WATCH) && methods.contains(HEALTH));
        assert!(!methods.contains(GET));
    }
}
