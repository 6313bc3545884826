//! What one caller may take of a server: at most so many calls at once that have not begun to answer. Whoever begins calls
//! and does not go on with them keeps others from being served only up to here.

use std::{
    collections::{HashMap, hash_map::Entry},
    future::ready,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use http::{Request, Response};
use tonic::Status;
use tower::{Layer, Service};

use crate::{call::overloaded, identity::Principal};

/// Puts [`Share`] behind the layer that finds the caller.
#[derive(Clone, Debug)]
pub(crate) struct ShareLayer(Arc<Shares>);

/// How many calls of each caller are in flight; who has none is not there.
#[derive(Debug)]
struct Shares {
    max: usize,
    taken: Mutex<HashMap<Principal, usize>>,
}

impl Shares {
    fn take(self: &Arc<Self>, caller: &Principal) -> Result<Place, Status> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(caller) {
            Some(count) if *count >= self.max => return Err(overloaded("you have too many calls in flight")),
            Some(count) => *count += 1,
            None => drop(taken.insert(caller.clone(), 1)),
        }
        Ok(Place {
            shares: Arc::clone(self),
            caller: caller.clone(),
        })
    }
}

/// A caller's place for one call, until it is dropped.
#[derive(Debug)]
struct Place {
    shares: Arc<Shares>,
    caller: Principal,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.shares.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut count) = taken.entry(self.caller.clone()) {
            match *count.get() {
                0 | 1 => drop(count.remove()),
                _ => *count.get_mut() -= 1,
            }
        }
    }
}

impl ShareLayer {
    /// A layer that lets each caller have at most that many calls in flight.
    pub(crate) fn new(max: usize) -> Self {
        let taken = Mutex::default();
        Self(Arc::new(Shares { max, taken }))
    }
}

impl<S> Layer<S> for ShareLayer {
    type Service = Share<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let shares = Arc::clone(&self.0);
        Share { inner, shares }
    }
}

/// The service that [`ShareLayer`] makes.
#[derive(Clone, Debug)]
pub(crate) struct Share<S> {
    inner: S,
    shares: Arc<Shares>,
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
        let place = request
            .extensions()
            .get::<Principal>()
            .map(|caller| self.shares.take(caller));
        match place.transpose() {
            Ok(place) => {
                let work = self.inner.call(request);
                Box::pin(async move {
                    let _place = place;
                    work.await
                })
            }
            Err(refusal) => Box::pin(ready(Ok(refusal.into_http()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tokio::sync::Semaphore;
    use tonic::Code;
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
        while service.shares.taken.lock().unwrap().values().sum::<usize>() < held.len() {
            tokio::task::yield_now().await;
        }
        assert_eq!(code(call("a").await.unwrap().unwrap()), Some(Code::ResourceExhausted));
        let other = call("b");
        while service.shares.taken.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        open.add_permits(3);
        for held in held.into_iter().chain([other]) {
            assert_eq!(code(held.await.unwrap().unwrap()), None);
        }
        assert!(service.shares.taken.lock().unwrap().is_empty());
    }
}
