//! Limits on calls that have not begun to respond. Each caller has a limit, and so has each class of callers: threads
//! cannot use up the slots of operators, runners and services. Methods that may block for minutes have separate pools.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    future::ready,
    hash::Hash,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use http::{Request, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use tower::{Layer, Service};

use crate::{call::overloaded, identity::Principal, serve::ServeLimits};

/// Counts items by owner. An owner without items has no entry.
#[derive(Debug)]
pub(crate) struct Shares<K>(Mutex<HashMap<K, usize>>);

impl<K> Default for Shares<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash> Shares<K> {
    /// Adds an item for this owner. Returns `None` if the owner already has `max` items.
    pub(crate) fn take(self: &Arc<Self>, owner: &K, max: usize) -> Option<Place<K>> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(owner) {
            Some(count) if *count >= max => return None,
            Some(count) => *count += 1,
            None => drop(taken.insert(owner.clone(), 1)),
        }
        Some(Place {
            shares: Arc::clone(self),
            owner: owner.clone(),
        })
    }
}

#[cfg(test)]
impl<K> Shares<K> {
    /// Returns whether no owner has an item.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// An item of an owner. Dropping it removes the item.
#[derive(Debug)]
pub(crate) struct Place<K: Clone + Eq + Hash> {
    shares: Arc<Shares<K>>,
    owner: K,
}

impl<K: Clone + Eq + Hash> Drop for Place<K> {
    fn drop(&mut self) {
        let mut taken = self.shares.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut count) = taken.entry(self.owner.clone()) {
            match *count.get() {
                0 | 1 => drop(count.remove()),
                _ => *count.get_mut() -= 1,
            }
        }
    }
}

/// The layer that creates [`Share`]. It runs after authentication.
#[derive(Clone, Debug)]
pub(crate) struct ShareLayer(Arc<Pools>);

/// The pools of a server.
#[derive(Debug)]
struct Pools {
    waiting: HashSet<&'static str>,
    calls: Classes,
    waits: Classes,
}

/// The pools for one kind of call.
#[derive(Debug)]
struct Classes {
    trusted: Pool,
    threads: Pool,
}

/// The slots for calls from one class of callers.
#[derive(Debug)]
struct Pool {
    per_caller: Bound,
    total: Bound,
    callers: Arc<Shares<Principal>>,
    places: Arc<Semaphore>,
}

/// A limit and its name in errors.
#[derive(Clone, Copy, Debug)]
struct Bound {
    name: &'static str,
    max: usize,
}

/// The slot of a call, released on drop.
#[derive(Debug)]
struct CallPlace {
    _of_caller: Place<Principal>,
    _of_all: OwnedSemaphorePermit,
}

impl Pool {
    fn new(per_caller: Bound, total: Bound) -> Self {
        Self {
            per_caller,
            total,
            callers: Arc::default(),
            places: Arc::new(Semaphore::new(total.max.min(Semaphore::MAX_PERMITS))),
        }
    }

    fn take(&self, caller: &Principal) -> Result<CallPlace, Status> {
        let of_caller = self.callers.take(caller, self.per_caller.max);
        let of_caller = of_caller.ok_or_else(|| {
            let text = "you have too many calls in flight";
            overloaded(text, self.per_caller.name, self.per_caller.max)
        })?;
        let of_all = Arc::clone(&self.places).try_acquire_owned();
        let of_all = of_all.map_err(|_| overloaded("too many calls are in flight", self.total.name, self.total.max))?;
        Ok(CallPlace {
            _of_caller: of_caller,
            _of_all: of_all,
        })
    }
}

/// Creates a pool from two fields of the limits.
macro_rules! pool {
    ($limits:ident.$per_caller:ident of $total:ident) => {
        Pool::new(
            Bound {
                name: stringify!($per_caller),
                max: $limits.$per_caller,
            },
            Bound {
                name: stringify!($total),
                max: $limits.$total,
            },
        )
    };
}

impl ShareLayer {
    /// Creates a layer with pools of these sizes. `waiting` contains the full paths of the methods that may block.
    pub(crate) fn new(limits: &ServeLimits, waiting: impl IntoIterator<Item = &'static str>) -> Self {
        Self(Arc::new(Pools {
            waiting: waiting.into_iter().collect(),
            calls: Classes {
                trusted: pool!(limits.max_calls_per_caller of max_calls_in_flight),
                threads: pool!(limits.max_calls_per_thread of max_calls_of_threads),
            },
            waits: Classes {
                trusted: pool!(limits.max_waits_per_caller of max_waits),
                threads: pool!(limits.max_waits_per_thread of max_waits_of_threads),
            },
        }))
    }
}

impl<S> Layer<S> for ShareLayer {
    type Service = Share<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let pools = Arc::clone(&self.0);
        Share { inner, pools }
    }
}

/// The service of [`ShareLayer`].
#[derive(Clone, Debug)]
pub(crate) struct Share<S> {
    inner: S,
    pools: Arc<Pools>,
}

impl Pools {
    /// Takes a slot for this call. Returns `None` for health and reflection, which have no caller and need no slot.
    fn admit<B>(&self, request: &Request<B>) -> Result<Option<CallPlace>, Status> {
        let Some(caller) = request.extensions().get::<Principal>() else {
            return Ok(None);
        };
        let waits = self.waiting.contains(request.uri().path());
        let classes = if waits { &self.waits } else { &self.calls };
        let pool = match caller {
            Principal::Thread(_) => &classes.threads,
            Principal::Operator { .. } | Principal::Runner { .. } | Principal::Service { .. } => &classes.trusted,
        };
        pool.take(caller).map(Some)
    }
}

impl<S, B, R> Service<Request<B>> for Share<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    R: Default + Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let place = match self.pools.admit(&request) {
            Ok(place) => place,
            Err(refusal) => return Box::pin(ready(Ok(refusal.into_http()))),
        };
        let work = self.inner.call(request);
        Box::pin(async move {
            let _place = place;
            work.await
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tonic::Code;
    use tower::service_fn;
    use troupe_proto::{
        fault::{metadata_of, reason_of, retry_after},
        reason::Reason,
    };
    use uuid::Uuid;

    use super::*;
    use crate::identity::ThreadPrincipal;

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
        Principal::Runner { name: name.to_owned() }
    }

    #[tokio::test]
    async fn callers_and_their_classes_have_bounded_places() {
        let gate = Arc::new(Semaphore::new(0));
        let handler = {
            let gate = Arc::clone(&gate);
            service_fn(move |_: Request<()>| {
                let gate = Arc::clone(&gate);
                async move {
                    gate.acquire().await.unwrap().forget();
                    Ok::<_, Infallible>(Response::new(()))
                }
            })
        };
        let layer = ShareLayer::new(&LIMITS, [WAIT]);
        let service = layer.layer(handler);
        // The slot is taken when the call is made, before its future is polled.
        let call = |method: &str, caller: Option<Principal>| {
            let mut request = Request::builder().uri(method).body(()).unwrap();
            if let Some(caller) = caller {
                request.extensions_mut().insert(caller);
            }
            service.clone().call(request)
        };
        let refused = async |method: &str, caller: Principal, limit: &str, max: usize| {
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
            refused(method, thread(1), names[0], 2).await;
            refused(method, thread(2), names[1], 3).await;
            held.extend(["a", "a", "b"].map(|name| call(method, Some(runner(name)))));
            refused(method, runner("a"), names[2], 2).await;
            refused(method, runner("b"), names[3], 3).await;
        }
        held.push(call("/grpc.health.v1.Health/Check", None));
        gate.add_permits(held.len());
        for answer in futures::future::join_all(held).await {
            assert!(Status::from_header_map(answer.unwrap().headers()).is_none());
        }
        for classes in [&layer.0.calls, &layer.0.waits] {
            for pool in [&classes.trusted, &classes.threads] {
                assert!(pool.callers.is_empty());
                assert_eq!(pool.places.available_permits(), pool.total.max);
            }
        }
    }
}
