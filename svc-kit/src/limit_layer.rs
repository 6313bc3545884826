//! The layer that limits calls and streams of a server. It runs after authentication. A call holds its
//! [`CallPermit`](crate::call_limits::CallPermit) until the response begins, and its
//! [`StreamPermit`](crate::stream_limits::StreamPermit) until the response body is dropped.

use std::{
    future::ready,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use prost::DecodeError;
use tonic::body::Body;
use tower::{Layer, Service};

use crate::{call_limits::CallLimits, held::keep, serve_limits::ServeLimits, stream_limits::StreamLimits};

/// The layer that creates [`Limited`].
#[derive(Clone, Debug)]
pub(crate) struct LimitLayer(Arc<Limits>);

#[derive(Debug)]
struct Limits {
    calls: CallLimits,
    streams: StreamLimits,
}

impl LimitLayer {
    /// Creates the layer. `waiting` contains the full paths of the methods that may block.
    ///
    /// # Errors
    ///
    /// The descriptors cannot be decoded.
    pub(crate) fn new(
        descriptor_set: &[u8],
        limits: ServeLimits,
        waiting: impl IntoIterator<Item = &'static str>,
    ) -> Result<Self, DecodeError> {
        Ok(Self(Arc::new(Limits {
            calls: CallLimits::new(&limits, waiting),
            streams: StreamLimits::new(descriptor_set, limits)?,
        })))
    }
}

impl<S> Layer<S> for LimitLayer {
    type Service = Limited<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let limits = Arc::clone(&self.0);
        Limited { inner, limits }
    }
}

/// The service of [`LimitLayer`].
#[derive(Clone, Debug)]
pub(crate) struct Limited<S> {
    inner: S,
    limits: Arc<Limits>,
}

impl<S, B> Service<Request<B>> for Limited<S>
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
        let call = self.limits.calls.admit(&request);
        let permits = call.and_then(|call| Ok((call, self.limits.streams.admit(&request)?)));
        let (call, stream) = match permits {
            Ok(permits) => permits,
            Err(status) => return Box::pin(ready(Ok(status.into_http()))),
        };
        let work = self.inner.call(request);
        Box::pin(async move {
            let response = work.await?;
            drop(call);
            Ok(match stream {
                Some(stream) => keep(response, stream),
                None => response,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, net::SocketAddr};

    use http_body_util::Full;
    use prost::bytes::Bytes;
    use prost_types::MethodDescriptorProto;
    use tokio::sync::Semaphore;
    use tonic::{Code, Status};
    use tower::{ServiceExt as _, service_fn};
    use troupe_proto::{
        FILE_DESCRIPTOR_SET,
        fault::{metadata_of, reason_of, retry_after},
        reason::Reason,
    };
    use uuid::Uuid;

    use super::*;
    use crate::{
        identity::{Principal, RunnerIds, ThreadPrincipal},
        peer::Peer,
        stream_limits,
    };

    const READ: &str = "/test.v1.Thing/Read";
    const WAIT: &str = "/test.v1.Thing/Wait";
    const LIMITS: ServeLimits = ServeLimits {
        max_calls_in_flight: 3,
        max_calls_per_caller: 2,
        max_calls_of_threads: 3,
        max_calls_per_thread: 2,
        max_waits: 3,
        max_waits_per_caller: 2,
        max_waits_of_threads: 3,
        max_waits_per_thread: 2,
        ..ServeLimits::DEFAULT
    };

    fn thread(number: u128) -> Principal {
        Principal::Thread(ThreadPrincipal {
            session: Uuid::from_u128(1),
            thread: Uuid::from_u128(number),
            generation: 1,
        })
    }

    fn runner(name: &str) -> Principal {
        Principal::Runner {
            name: name.to_owned(),
            ids: RunnerIds::Any,
        }
    }

    #[tokio::test]
    async fn calls_are_limited_by_caller_and_by_class() {
        let gate = Arc::new(Semaphore::new(0));
        let handler = {
            let gate = Arc::clone(&gate);
            service_fn(move |_: Request<()>| {
                let gate = Arc::clone(&gate);
                async move {
                    gate.acquire().await.unwrap().forget();
                    Ok::<_, Infallible>(Response::new(Body::empty()))
                }
            })
        };
        let layer = LimitLayer::new(FILE_DESCRIPTOR_SET, LIMITS, [WAIT]).unwrap();
        let service = layer.layer(handler);
        // The slot is taken when the call is made, before its future is polled.
        let call = |method: &str, caller: Option<Principal>| {
            let mut request = Request::builder().uri(method).body(()).unwrap();
            if let Some(caller) = caller {
                request.extensions_mut().insert(caller);
            }
            service.clone().call(request)
        };
        let rejected = async |method: &str, caller: Principal, limit: &str, max: usize| {
            let answer = call(method, Some(caller)).await.unwrap();
            let status = Status::from_header_map(answer.headers()).unwrap();
            assert_eq!(
                (status.code(), reason_of(&status)),
                (Code::ResourceExhausted, Some(Reason::Overloaded))
            );
            assert!(retry_after(&status).is_some() && status.message().contains(limit));
            assert_eq!(metadata_of(&status)["limit"], limit);
            assert_eq!(metadata_of(&status)["max"], max.to_string());
        };
        let mut held = Vec::new();
        for (method, names) in [
            (
                READ,
                [
                    "max_calls_per_thread",
                    "max_calls_of_threads",
                    "max_calls_per_caller",
                    "max_calls_in_flight",
                ],
            ),
            (
                WAIT,
                [
                    "max_waits_per_thread",
                    "max_waits_of_threads",
                    "max_waits_per_caller",
                    "max_waits",
                ],
            ),
        ] {
            held.extend([1, 1, 2].map(|number| call(method, Some(thread(number)))));
            rejected(method, thread(1), names[0], 2).await;
            rejected(method, thread(2), names[1], 3).await;
            held.extend(["a", "a", "b"].map(|name| call(method, Some(runner(name)))));
            rejected(method, runner("a"), names[2], 2).await;
            rejected(method, runner("b"), names[3], 3).await;
        }
        held.push(call("/grpc.health.v1.Health/Check", None));
        gate.add_permits(held.len());
        for answer in futures::future::join_all(held).await {
            assert!(Status::from_header_map(answer.unwrap().headers()).is_none());
        }
        assert!(layer.0.calls.is_idle());
    }

    const WATCH: &str = "/troupe.supervisor.v1.AgentSupervisorService/WatchThreads";
    const GET: &str = "/troupe.supervisor.v1.AgentSupervisorService/GetThread";
    const HEALTH: &str = "/grpc.health.v1.Health/Watch";

    fn stream_layer() -> LimitLayer {
        let limits = ServeLimits {
            max_open_streams_per_caller: 3,
            max_open_streams_per_thread: 2,
            max_open_streams_per_stranger: 2,
            max_open_streams_of_strangers: 3,
            ..ServeLimits::default()
        };
        LimitLayer::new(FILE_DESCRIPTOR_SET, limits, []).unwrap()
    }

    async fn call(layer: &LimitLayer, method: &str, caller: Option<Principal>, from: u8) -> Response<Body> {
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

    fn is_rejected(answer: &Response<Body>) -> bool {
        let status = Status::from_header_map(answer.headers());
        if let Some(status) = &status {
            assert_eq!(reason_of(status), Some(Reason::Overloaded));
            assert!(retry_after(status).is_some());
        }
        status.is_some()
    }

    #[tokio::test]
    async fn stream_slot_is_held_until_its_response_is_dropped() {
        let layer = stream_layer();
        for (caller, other, max) in [(thread(1), thread(2), 2), (runner("box"), thread(3), 3)] {
            let mut open = Vec::new();
            for _ in 0..max {
                open.push(call(&layer, WATCH, Some(caller.clone()), 1).await);
            }
            assert!(!open.iter().any(is_rejected));
            assert!(is_rejected(&call(&layer, WATCH, Some(caller.clone()), 1).await));
            assert!(!is_rejected(&call(&layer, GET, Some(caller.clone()), 1).await));
            assert!(!is_rejected(&call(&layer, WATCH, Some(other), 1).await));
            open.pop();
            assert!(!is_rejected(&call(&layer, WATCH, Some(caller), 1).await));
        }
        assert!(layer.0.streams.is_idle());
    }

    #[tokio::test]
    async fn unauthenticated_streams_are_limited_by_address_and_in_total() {
        let layer = stream_layer();
        let mut open = vec![call(&layer, HEALTH, None, 1).await, call(&layer, HEALTH, None, 1).await];
        assert!(!open.iter().any(is_rejected));
        assert!(is_rejected(&call(&layer, HEALTH, None, 1).await));
        open.push(call(&layer, HEALTH, None, 2).await);
        assert!(!open.iter().any(is_rejected));
        assert!(is_rejected(&call(&layer, HEALTH, None, 3).await));
        assert!(!is_rejected(&call(&layer, WATCH, Some(runner("box")), 1).await));
        open.clear();
        assert!(!is_rejected(&call(&layer, HEALTH, None, 3).await));
        assert!(layer.0.streams.is_idle());
    }

    #[test]
    fn streaming_methods_are_read_from_descriptors() {
        let methods = stream_limits::methods(FILE_DESCRIPTOR_SET, MethodDescriptorProto::server_streaming).unwrap();
        assert!(methods.contains(WATCH) && methods.contains(HEALTH));
        assert!(!methods.contains(GET));
    }
}
