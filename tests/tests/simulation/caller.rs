//! A caller of the supervisor with an operator's token. It retries until it gets a response, always with the same
//! request and therefore with the same request_id.

use std::{rc::Rc, time::Duration};

use svc_kit::trace_context::{self, TraceParent};
use tokio::time::{sleep, timeout};
use tonic::{Code, Request, Response, Status};
use troupe_proto::supervisor::v1::{CreateSessionRequest, Limits, RestartPolicy, Session};
use troupe_tests::{
    client::{self, Supervisor},
    pair::OPERATOR,
    rng::Rng,
};

use crate::{net, shared::SharedState};

/// Timeout of a call.
pub const ANSWER_WITHIN: Duration = Duration::from_millis(600);

/// A caller on its own host.
pub struct Caller {
    pub rng: Rng,
    pub shared: Rc<SharedState>,
    /// A client of each supervisor.
    clients: Vec<Supervisor>,
    /// The session that all callers of a simulation share; empty until it is open.
    pub session: Session,
}

impl Caller {
    /// Creates a caller and opens the session. All callers use the same request_id, so they get the same session.
    pub async fn with_session(name: &'static str, seed: u64, shared: Rc<SharedState>) -> Self {
        let supervisors = shared.plan.supervisors.iter();
        let clients = supervisors.map(|host| client::supervisor_over(net::channel(host), Some(OPERATOR)));
        let mut caller = Self {
            rng: Rng::new(seed, name),
            clients: clients.collect(),
            shared,
            session: Session::default(),
        };
        let request = the_session(seed);
        let opened = caller
            .insist(&request, |mut client, request| async move {
                client.create_session(request).await
            })
            .await;
        caller.session = opened.unwrap().session.unwrap();
        caller
    }

    /// Returns a client of any supervisor.
    pub fn any_client(&mut self) -> Supervisor {
        let index = self.rng.below(self.clients.len() as u64);
        self.clients[usize::try_from(index).unwrap()].clone()
    }

    /// Repeats a call until it succeeds or is rejected by a rule. Each attempt goes to any supervisor.
    pub async fn insist<Q: Clone, A, F>(
        &mut self,
        question: &Q,
        ask: impl Fn(Supervisor, Request<Q>) -> F,
    ) -> Result<A, Status>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        loop {
            let request = self.request(question.clone());
            match timeout(ANSWER_WITHIN, ask(self.any_client(), request)).await {
                Ok(Ok(answer)) => return Ok(answer.into_inner()),
                Ok(Err(status)) if is_refusal(&status) => return Err(status),
                Ok(Err(_)) | Err(_) => sleep(self.rng.millis(20..=100)).await,
            }
        }
    }

    /// Returns a request with a trace context that the seed determines, because the trace context is recorded in the
    /// log.
    fn request<Q>(&mut self, question: Q) -> Request<Q> {
        let mut request = Request::new(question);
        request.set_timeout(ANSWER_WITHIN);
        // An id of zeros is invalid.
        let (trace, span) = (self.rng.number() | 1, self.rng.number() | 1);
        let trace = TraceParent::parse(&format!("00-{trace:032x}-{span:016x}-01")).unwrap();
        trace_context::inject(request.metadata_mut(), &trace);
        request
    }
}

/// Returns the request for the session of a simulation.
fn the_session(seed: u64) -> CreateSessionRequest {
    let mut rng = Rng::new(seed, "session");
    let restart_policy = rng.pick(&[RestartPolicy::Never, RestartPolicy::OnLost]);
    CreateSessionRequest {
        request_id: String::from("the session"),
        cwd: String::from("/project"),
        limits: Some(Limits {
            max_threads: Some(rng.pick(&[2, 3, 4])),
            ..Limits::default()
        }),
        restart_policy: restart_policy.into(),
        ..CreateSessionRequest::default()
    }
}

/// Returns whether an error is a rejection of the request, which a retry would only repeat. Callers of a simulation
/// never send requests that are malformed, forbidden or about missing objects.
fn is_refusal(status: &Status) -> bool {
    match status.code() {
        Code::FailedPrecondition | Code::ResourceExhausted => true,
        Code::Unavailable
        | Code::DeadlineExceeded
        | Code::Cancelled
        | Code::Aborted
        | Code::Unknown
        | Code::Internal => false,
        Code::Ok
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::DataLoss
        | Code::Unauthenticated => panic!("unexpected error: {status}"),
    }
}
