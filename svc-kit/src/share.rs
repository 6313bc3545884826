//! What one caller may take of a server: at most so many calls at once that have not begun to answer. Whoever begins calls
//! and does not go on with them keeps others from being served only up to here.

use std::{
    collections::{HashMap, hash_map::Entry},
    future::ready,
    hash::Hash,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use http::{Request, Response};
use tower::{Layer, Service};

use crate::{call::overloaded, identity::Principal};

/// How much of something each owner has; who has none of it is not there.
#[derive(Debug)]
pub(crate) struct Shares<K>(Mutex<HashMap<K, usize>>);

impl<K> Default for Shares<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash> Shares<K> {
    /// One more for this owner; `None` if it has `max` already.
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
    /// Whether nobody has anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// One of what an owner has, until it is dropped.
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

/// Puts [`Share`] behind the layer that finds the caller.
#[derive(Clone, Debug)]
pub(crate) struct ShareLayer {
    max: usize,
    calls: Arc<Shares<Principal>>,
}

impl ShareLayer {
    /// A layer that lets each caller have at most that many calls in flight.
    pub(crate) fn new(max: usize) -> Self {
        let calls = Arc::default();
        Self { max, calls }
    }
}

impl<S> Layer<S> for ShareLayer {
    type Service = Share<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let (max, calls) = (self.max, Arc::clone(&self.calls));
        Share { inner, max, calls }
    }
}

/// The service that [`ShareLayer`] makes.
#[derive(Clone, Debug)]
pub(crate) struct Share<S> {
    inner: S,
    max: usize,
    calls: Arc<Shares<Principal>>,
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
        // Health and reflection have no caller.
        let caller = request.extensions().get::<Principal>();
        let place = caller.map(|caller| self.calls.take(caller, self.max));
        if matches!(place, Some(None)) {
            let refusal = overloaded("you have too many calls in flight");
            return Box::pin(ready(Ok(refusal.into_http())));
        }
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

    use tokio::sync::Semaphore;
    use tonic::{Code, Status};
    use tower::{ServiceExt as _, service_fn};

    use super::*;

    #[tokio::test]
    async fn one_caller_does_not_take_the_places_of_others() {
        let open = Arc::new(Semaphore::new(0));
        let gate = Arc::clone(&open);
        let handler = service_fn(move |_: Request<()>| {
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await.unwrap().forget();
                Ok::<_, Infallible>(Response::new(()))
            }
        });
        let service = ShareLayer::new(2).layer(handler);
        let call = |name: &str| {
            let mut request = Request::new(());
            request
                .extensions_mut()
                .insert(Principal::Runner { name: name.to_owned() });
            tokio::spawn(service.clone().oneshot(request))
        };
        let code = |response: Response<()>| Status::from_header_map(response.headers()).map(|status| status.code());

        let held = [call("a"), call("a")];
        while service.calls.0.lock().unwrap().values().sum::<usize>() < held.len() {
            tokio::task::yield_now().await;
        }
        assert_eq!(code(call("a").await.unwrap().unwrap()), Some(Code::ResourceExhausted));
        let other = call("b");
        while service.calls.0.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        open.add_permits(3);
        for held in held.into_iter().chain([other]) {
            assert_eq!(code(held.await.unwrap().unwrap()), None);
        }
        assert!(service.calls.is_empty());
    }
}
