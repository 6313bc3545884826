//! Request coalescing for identical concurrent spawns. A spawn only shares a request that is sent after the spawn
//! arrived, so a shared response is never older than the response to its own request would be. Hundreds of callers that
//! need the same role cause only a few requests.

use std::{
    collections::HashMap,
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use svc_kit::{deadline::Deadline, lock::lock};
use tokio::{
    sync::{OnceCell, Semaphore},
    time::timeout,
};
use troupe_proto::{fault::reason_of, reason::Reason, registry::v1::ResolveSpawnRequest};

use super::{Unresolved, resolution::Resolution};

/// Number of identical requests in flight before further ones wait for each other. A few concurrent callers never
/// wait.
const MAX_IN_FLIGHT: usize = 2;

/// Maximum time that a round waits until an earlier request has ended: many times the latency of a healthy registry. If
/// the registry hangs, the round then sends its request anyway.
const SHARE_WITHIN: Duration = Duration::from_millis(100);

type Answer = Result<Arc<Resolution>, Unresolved>;

/// The shared response of a round. `None` if the round produced none; its callers then repeat the request.
type Response = OnceCell<Option<Answer>>;

/// The requests in flight.
#[derive(Debug, Default)]
pub(super) struct Singleflight(Mutex<HashMap<ResolveSpawnRequest, Arc<Flight>>>);

/// All callers of one request.
#[derive(Debug)]
struct Flight {
    /// Number of callers. It changes only under the lock of [`Singleflight`].
    participants: AtomicUsize,
    in_flight: Semaphore,
    /// The next round, whose request has not been sent yet. New callers may join it.
    open: Mutex<Arc<Response>>,
}

impl Default for Flight {
    fn default() -> Self {
        Self {
            participants: AtomicUsize::new(0),
            in_flight: Semaphore::new(MAX_IN_FLIGHT),
            open: Mutex::default(),
        }
    }
}

impl Flight {
    /// Closes the round to new callers.
    fn close(&self, round: &Arc<Response>) {
        let mut open = lock(&self.open);
        if Arc::ptr_eq(&open, round) {
            *open = Arc::default();
        }
    }
}

impl Singleflight {
    /// Shares a request with identical concurrent callers. `ask` sends the request before the given deadline, once per
    /// round, and once more if the sending caller is cancelled.
    ///
    /// # Errors
    /// See [`Unresolved`].
    pub async fn ask<F>(
        &self,
        question: &ResolveSpawnRequest,
        deadline: Option<Deadline>,
        ask: impl Fn() -> F,
    ) -> Result<Arc<Resolution>, Unresolved>
    where
        F: Future<Output = Answer>,
    {
        loop {
            let participant = self.join(question);
            let mut own = None;
            let turn = async {
                // Sends the request even if the permit was not acquired in time.
                let _permit = timeout(SHARE_WITHIN, participant.flight.in_flight.acquire()).await;
                participant.flight.close(&participant.round);
                // The future is boxed because each of the enclosing futures would contain a copy of it.
                let answer = Box::pin(ask()).await;
                if concerns_all(&answer, deadline) {
                    Some(answer)
                } else {
                    own = Some(answer);
                    None
                }
            };
            let shared = participant.round.get_or_init(|| turn).await.clone();
            if let Some(answer) = shared.or(own) {
                return answer;
            }
        }
    }

    fn join<'a>(&'a self, question: &'a ResolveSpawnRequest) -> Participant<'a> {
        let mut all = lock(&self.0);
        let flight = match all.get(question) {
            Some(flight) => Arc::clone(flight),
            None => Arc::clone(all.entry(question.clone()).or_default()),
        };
        flight.participants.fetch_add(1, Ordering::Relaxed);
        drop(all);
        let round = Arc::clone(&lock(&flight.open));
        Participant {
            flights: self,
            question,
            flight,
            round,
        }
    }
}

/// Returns whether the result applies to all callers of a round. It does not if the sending caller ran out of time, or
/// if its workspace could not be uploaded.
fn concerns_all(answer: &Answer, deadline: Option<Deadline>) -> bool {
    match answer {
        Ok(_) | Err(Unresolved::Verdict(_)) => true,
        Err(Unresolved::Unavailable(status)) => {
            reason_of(status) == Some(Reason::RegistryUnavailable)
                && deadline.is_none_or(|deadline| !deadline.remaining().is_zero())
        }
    }
}

/// A caller of a request. The last one to leave removes the request.
struct Participant<'a> {
    flights: &'a Singleflight,
    question: &'a ResolveSpawnRequest,
    flight: Arc<Flight>,
    round: Arc<Response>,
}

impl Drop for Participant<'_> {
    fn drop(&mut self) {
        let mut all = lock(&self.flights.0);
        if self.flight.participants.fetch_sub(1, Ordering::Relaxed) == 1 {
            all.remove(self.question);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::pin::pin;

    use futures::{future::join_all, poll};
    use tokio::time::{Instant, advance};
    use tonic::{Code, Status};
    use troupe_proto::fault::Fault;

    use super::*;

    /// A registry that responds on command, with the same response for all callers.
    struct Registry {
        asked: AtomicUsize,
        answers: Semaphore,
        answer: Unresolved,
    }

    impl Registry {
        fn that(answer: Unresolved) -> Self {
            Self {
                asked: AtomicUsize::new(0),
                answers: Semaphore::new(0),
                answer,
            }
        }

        async fn ask(&self) -> Answer {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.answers.acquire().await.unwrap().forget();
            Err(self.answer.clone())
        }

        fn asked(&self) -> usize {
            self.asked.load(Ordering::Relaxed)
        }
    }

    fn verdict() -> Unresolved {
        Unresolved::Verdict(Status::not_found("no such role"))
    }

    fn away() -> Unresolved {
        Unresolved::Unavailable(Fault::new(Code::Unavailable, Reason::RegistryUnavailable, "away").into())
    }

    fn question(agent_type: &str) -> ResolveSpawnRequest {
        ResolveSpawnRequest {
            agent_type: Some(agent_type.to_owned()),
            ..ResolveSpawnRequest::default()
        }
    }

    #[tokio::test]
    async fn concurrent_identical_requests_share_one_flight() {
        let (flights, registry, question) = (Singleflight::default(), Registry::that(verdict()), question("scribe"));
        let spawn = || flights.ask(&question, None, || registry.ask());
        let mut first = Box::pin(join_all((0..MAX_IN_FLIGHT).map(|_| spawn())));
        assert!(poll!(&mut first).is_pending());
        let mut together = Box::pin(join_all((0..20).map(|_| spawn())));
        assert!(poll!(&mut together).is_pending());
        assert_eq!(registry.asked(), MAX_IN_FLIGHT);

        registry.answers.add_permits(1);
        assert!(poll!(&mut first).is_pending());
        assert!(poll!(&mut together).is_pending());
        assert_eq!(registry.asked(), MAX_IN_FLIGHT + 1);
        // This caller arrived after the round's request was sent and must not share it: a response must not be older
        // than its caller.
        let mut late = Box::pin(spawn());
        assert!(poll!(&mut late).is_pending());

        registry.answers.add_permits(MAX_IN_FLIGHT + 1);
        let (first, together, late) = (first.await, together.await, late.await);
        assert_eq!(registry.asked(), MAX_IN_FLIGHT + 2);
        for answer in first.into_iter().chain(together).chain([late]) {
            assert!(matches!(answer, Err(Unresolved::Verdict(status)) if status.message() == "no such role"));
        }
        assert!(lock(&flights.0).is_empty());
    }

    #[tokio::test]
    async fn different_requests_do_not_wait() {
        let (flights, registry) = (Singleflight::default(), Registry::that(verdict()));
        let questions: Vec<_> = (0..20).map(|number| question(&number.to_string())).collect();
        let asking = questions
            .iter()
            .map(|question| flights.ask(question, None, || registry.ask()));
        assert!(poll!(pin!(join_all(asking))).is_pending());
        assert_eq!(registry.asked(), questions.len());
        assert!(lock(&flights.0).is_empty(), "all callers have left");
    }

    #[tokio::test]
    async fn cancelled_sender_is_replaced() {
        let (flights, registry, question) = (Singleflight::default(), Registry::that(verdict()), question("scribe"));
        let spawn = || flights.ask(&question, None, || registry.ask());
        let mut first = Box::pin(join_all((0..MAX_IN_FLIGHT).map(|_| spawn())));
        assert!(poll!(&mut first).is_pending());
        let (mut asking, mut waiting) = (Box::pin(spawn()), Box::pin(spawn()));
        assert!(poll!(&mut asking).is_pending() && poll!(&mut waiting).is_pending());
        registry.answers.add_permits(1);
        assert!(poll!(&mut first).is_pending() && poll!(&mut asking).is_pending());
        assert_eq!(registry.asked(), MAX_IN_FLIGHT + 1);

        drop(asking);
        assert!(poll!(&mut waiting).is_pending());
        assert_eq!(registry.asked(), MAX_IN_FLIGHT + 2);
        registry.answers.add_permits(MAX_IN_FLIGHT);
        assert!(matches!(waiting.await, Err(Unresolved::Verdict(_))));
    }

    #[tokio::test]
    async fn unavailable_registry_is_shared_but_missing_workspace_is_not() {
        for (reason, asked) in [(Reason::RegistryUnavailable, 1), (Reason::WorkspaceUnknown, 10)] {
            let (flights, question) = (Singleflight::default(), question("scribe"));
            let registry = Registry::that(Unresolved::Unavailable(
                Fault::new(Code::Unavailable, reason, "").into(),
            ));
            let spawn = || flights.ask(&question, None, || registry.ask());
            let mut first = Box::pin(join_all((0..MAX_IN_FLIGHT).map(|_| spawn())));
            assert!(poll!(&mut first).is_pending());
            let mut together = Box::pin(join_all((0..10).map(|_| spawn())));
            assert!(poll!(&mut together).is_pending());
            registry.answers.add_permits(MAX_IN_FLIGHT + asked);
            first.await;
            assert!(together.await.iter().all(Result::is_err));
            assert_eq!(registry.asked(), MAX_IN_FLIGHT + asked, "{reason:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn sender_without_time_is_replaced() {
        let (flights, question) = (Singleflight::default(), question("scribe"));
        let registry = Registry::that(away());
        let over = Some(Deadline { at: Instant::now() });
        let spawn = |deadline| flights.ask(&question, deadline, || registry.ask());
        let mut first = Box::pin(join_all((0..MAX_IN_FLIGHT).map(|_| spawn(None))));
        assert!(poll!(&mut first).is_pending());
        let mut together = Box::pin(join_all([over, None].map(spawn)));
        assert!(poll!(&mut together).is_pending());
        registry.answers.add_permits(MAX_IN_FLIGHT + 2);
        first.await;
        assert!(together.await.iter().all(Result::is_err));
        assert_eq!(registry.asked(), MAX_IN_FLIGHT + 2);
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_registry_does_not_block_other_callers() {
        let (flights, registry, question) = (Singleflight::default(), Registry::that(verdict()), question("scribe"));
        let spawn = || flights.ask(&question, None, || registry.ask());
        let mut hanging = Box::pin(join_all((0..MAX_IN_FLIGHT).map(|_| spawn())));
        assert!(poll!(&mut hanging).is_pending());
        let mut next = Box::pin(spawn());
        assert!(poll!(&mut next).is_pending());
        assert_eq!(registry.asked(), MAX_IN_FLIGHT);
        advance(SHARE_WITHIN + Duration::from_millis(1)).await;
        assert!(poll!(&mut next).is_pending());
        assert_eq!(registry.asked(), MAX_IN_FLIGHT + 1);
    }
}
