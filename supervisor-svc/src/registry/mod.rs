//! The supervisor's way to the registry, asked for every spawn and for what may be spawned. All of these are pure reads,
//! or can be repeated like one, so they are retried where the connection, not the registry, failed.
//!
//! A registry forgets the bundles that clients upload: when it restarts, or when others need their room. A session
//! keeps its own, so where one of its questions meets a registry without it, the bundle is uploaded and the question
//! asked again, here and nowhere else ([`RegistryClient::with_workspace`]).

mod circuit;
mod pool;
mod resolutions;
mod rounds;

use std::{future::Future, sync::Arc, time::Duration};

use opentelemetry::metrics::Counter;
use svc_kit::{
    deadline::{self, Deadline},
    lost,
    metrics::counter,
    shown_token::ShownToken,
    tls::{self, ClientFiles},
    trace_context::{self, TraceParent},
    traces::Traced,
};
use tokio::{
    sync::{Mutex, MutexGuard},
    time::{sleep, timeout},
};
use tonic::{
    Code, Request, Response, Status,
    metadata::MetadataValue,
    transport::{Channel, Endpoint},
};
use troupe_proto::{
    MAX_WORKSPACE_MESSAGE_BYTES,
    fault::{Fault, reason_of},
    reason::Reason,
    registry::v1::{
        Agent, DescribeSpawnToolRequest, GetWorkspaceRequest, ListAgentsRequest, PutWorkspaceRequest,
        ResolveSpawnRequest, ResolveSpawnResponse, RouteAgentRequest, RouteAgentResponse, ToolDescription,
        WorkspaceFile, agent_registry_service_client::AgentRegistryServiceClient,
    },
};

pub(crate) use self::pool::CONNECTIONS;
use self::{
    circuit::Circuit,
    pool::{Lease, Pool},
    resolutions::{Known, Resolutions},
    rounds::Rounds,
};
use crate::{clock::Clock, wire::Resolution, workspace::KeptWorkspace};

/// How long an answer may take, whatever the caller would wait.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// How long a bundle may be on its way, and how long one waits until others are not.
pub(crate) const TRANSFER_WITHIN: Duration = Duration::from_secs(60);

/// How long connecting may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// How long a question waits at most until it is put for the last time: many lose their connections together, and are not to
/// come back together.
const AGAIN_WITHIN: Duration = Duration::from_millis(100);

/// A connection is pinged so often, and given up where the answer takes longer: one whose other end vanished without a
/// word, with its machine or behind a cut network, would otherwise swallow questions for as long as TCP sends again.
pub(crate) const PING_EVERY: Duration = Duration::from_secs(10);
pub(crate) const PING_ANSWER: Duration = Duration::from_secs(5);

/// How many agents a page of a listing has, and how many pages are read: more than a catalogue may hold.
const PAGE_SIZE: i32 = 2_000;
const MAX_PAGES: usize = 64;

type Client = AgentRegistryServiceClient<Traced>;

/// The registry, as the supervisor sees it.
#[derive(Clone, Debug)]
pub struct RegistryClient {
    pool: Pool,
    token: Option<ShownToken>,
    url: Arc<str>,
    /// What it answered to spawns.
    resolutions: Arc<Resolutions>,
    /// What spawns are asking it.
    rounds: Arc<Rounds>,
    /// One bundle is on its way at a time: what they need of memory is bounded, and after a restart of the registry the
    /// questions of one session upload its bundle once.
    transfers: Arc<Mutex<()>>,
    kept: Option<KeptWorkspace>,
    circuit: Circuit,
    clock: Clock,
    /// How often it did not answer.
    unanswered: Counter<u64>,
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub enum Unresolved {
    /// The registry answered: this question is wrong. The status is passed on.
    Verdict(Status),
    /// Nothing is known about the question: the registry is away or overloaded, or does not hold a workspace that the
    /// supervisor does not keep. The latter (WORKSPACE_UNKNOWN) is passed on, since whoever has it can upload it.
    Away(Status),
}

impl Unresolved {
    /// The status for a client.
    #[must_use]
    pub fn into_status(self) -> Status {
        match self {
            Self::Verdict(status) | Self::Away(status) => status,
        }
    }
}

impl RegistryClient {
    /// A client of the registry at `url`, `tls` for one over TLS. It connects when it is first needed, and again when a
    /// connection is lost.
    ///
    /// # Errors
    /// If `url` is no URL.
    pub fn new(
        url: &str,
        token: Option<ShownToken>,
        tls: &ClientFiles,
        clock: Clock,
    ) -> Result<Self, tonic::transport::Error> {
        let endpoint = Endpoint::from_shared(url.to_owned())?
            .connect_timeout(CONNECT_WITHIN)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_ANSWER)
            .keep_alive_while_idle(true);
        Ok(Self::over(tls::channels(&endpoint, tls), url.to_owned(), token, clock))
    }

    /// A client over channels of the caller's making; `url` only names the registry in logs and errors.
    #[must_use]
    pub fn over(channel: impl Fn() -> Channel, url: String, token: Option<ShownToken>, clock: Clock) -> Self {
        Self {
            pool: Pool::of(channel),
            token,
            url: url.into(),
            resolutions: Arc::default(),
            rounds: Arc::default(),
            transfers: Arc::default(),
            kept: None,
            circuit: Circuit::default(),
            clock,
            unanswered: counter(
                "troupe.registry.unanswered",
                "Questions that the registry did not answer",
            ),
        }
    }

    /// The same registry for the questions of a session that keeps this bundle. It is uploaded again where the registry
    /// does not hold it, and nobody who asks hears of that.
    #[must_use]
    pub fn with_workspace(&self, kept: Option<KeptWorkspace>) -> Self {
        Self { kept, ..self.clone() }
    }

    /// The files of a bundle that the registry holds.
    ///
    /// # Errors
    /// See [`Unresolved`].
    pub async fn workspace(
        &self,
        workspace_digest: String,
        deadline: Option<Deadline>,
        trace: &TraceParent,
    ) -> Result<Vec<WorkspaceFile>, Unresolved> {
        let _turn = self.turn(deadline).await?;
        let question = GetWorkspaceRequest { workspace_digest };
        let get = |client: Client, request: Request<GetWorkspaceRequest>| async move {
            let mut client = client.max_decoding_message_size(MAX_WORKSPACE_MESSAGE_BYTES);
            client.get_workspace(request).await
        };
        let place = self.pool.lease(None);
        let answer = self
            .attempt(&place, &question, TRANSFER_WITHIN, deadline, trace, &get)
            .await;
        answer.map(|answer| answer.files).map_err(|status| self.judge(status))
    }

    /// What a spawn would get, as the registry answers a question that is put from now on. Under load spawns that ask the
    /// same share one, in the trace of the spawn that put it.
    ///
    /// # Errors
    /// See [`Unresolved`].
    pub async fn resolve(
        &self,
        question: &ResolveSpawnRequest,
        deadline: Option<Deadline>,
        trace: &TraceParent,
    ) -> Result<Arc<Resolution>, Unresolved> {
        let ask = || self.resolve_alone(question.clone(), deadline, trace);
        self.rounds.ask(question, deadline, ask).await
    }

    async fn resolve_alone(
        &self,
        mut question: ResolveSpawnRequest,
        deadline: Option<Deadline>,
        trace: &TraceParent,
    ) -> Result<Arc<Resolution>, Unresolved> {
        let known = self.resolutions.get(&question);
        question.known_etag = known.as_ref().map(|known| known.etag.clone()).unwrap_or_default();
        let ResolveSpawnResponse { resolved, etag } = self
            .ask(&question, deadline, trace, |mut client, request| async move {
                client.resolve_spawn(request).await
            })
            .await?;
        match (resolved, known) {
            (None, Some(known)) if known.etag == etag => Ok(known.resolution),
            (None, _) => Err(self.judge(Status::internal("the registry answered without a resolution"))),
            (Some(resolved), _) => {
                let resolution = Resolution::try_from(resolved)
                    .map(Arc::new)
                    .map_err(|error| self.judge(Status::internal(format!("its answer makes no sense: {error}"))))?;
                question.known_etag.clear();
                let known = Known {
                    etag,
                    resolution: Arc::clone(&resolution),
                };
                self.resolutions.keep(question, known);
                Ok(resolution)
            }
        }
    }

    /// The agent types that a question is about, all pages of them, in order of name.
    ///
    /// # Errors
    /// See [`Unresolved`].
    pub async fn agents(
        &self,
        mut request: ListAgentsRequest,
        deadline: Option<Deadline>,
        trace: &TraceParent,
    ) -> Result<Vec<Agent>, Unresolved> {
        let mut agents = Vec::new();
        request.page_size = PAGE_SIZE;
        for _ in 0..MAX_PAGES {
            let page = self
                .ask(&request, deadline, trace, |mut client, request| async move {
                    client.list_agents(request).await
                })
                .await?;
            agents.extend(page.agents);
            if page.next_page_token.is_empty() {
                break;
            }
            request.page_token = page.next_page_token;
        }
        Ok(agents)
    }

    /// The agent type that a text is routed to.
    ///
    /// # Errors
    /// See [`Unresolved`].
    pub async fn route(
        &self,
        request: RouteAgentRequest,
        deadline: Option<Deadline>,
        trace: &TraceParent,
    ) -> Result<RouteAgentResponse, Unresolved> {
        self.ask(&request, deadline, trace, |mut client, request| async move {
            client.route_agent(request).await
        })
        .await
    }

    /// The tools of the supervisor as a model is offered them, with the catalogue's roles.
    ///
    /// # Errors
    /// See [`Unresolved`].
    pub async fn tools(
        &self,
        request: DescribeSpawnToolRequest,
        deadline: Option<Deadline>,
        trace: &TraceParent,
    ) -> Result<Vec<ToolDescription>, Unresolved> {
        let answer = self
            .ask(&request, deadline, trace, |mut client, request| async move {
                client.describe_spawn_tool(request).await
            })
            .await?;
        Ok(answer.tools)
    }

    async fn ask<Q, A, F, R>(
        &self,
        question: &Q,
        deadline: Option<Deadline>,
        trace: &TraceParent,
        call: F,
    ) -> Result<A, Unresolved>
    where
        Q: Clone,
        F: Fn(Client, Request<Q>) -> R,
        R: Future<Output = Result<Response<A>, Status>>,
    {
        let place = self.pool.lease(None);
        let answer = self.question(&place, question, deadline, trace, &call).await;
        match (answer, &self.kept) {
            (Err(status), Some(kept)) if is_unknown_workspace(&status) => {
                // Over the same connection, behind which is the same registry. Boxed since it is rare, and large.
                Box::pin(self.bring_back_and_ask(kept, &place, question, deadline, trace, &call)).await
            }
            (answer, _) => answer.map_err(|status| self.judge(status)),
        }
    }

    async fn bring_back_and_ask<Q, A, F, R>(
        &self,
        kept: &KeptWorkspace,
        place: &Lease<'_>,
        question: &Q,
        deadline: Option<Deadline>,
        trace: &TraceParent,
        call: &F,
    ) -> Result<A, Unresolved>
    where
        Q: Clone,
        F: Fn(Client, Request<Q>) -> R,
        R: Future<Output = Result<Response<A>, Status>>,
    {
        let _turn = self.turn(deadline).await?;
        // Whoever had the turn before may have brought the same bundle back.
        match self.question(place, question, deadline, trace, call).await {
            Err(status) if is_unknown_workspace(&status) => {}
            answer => return answer.map_err(|status| self.judge(status)),
        }
        self.bring_back(kept, place, deadline, trace).await?;
        let answer = self.question(place, question, deadline, trace, call).await;
        answer.map_err(|status| {
            // Lost again already: the caller can do nothing about it but try again.
            if is_unknown_workspace(&status) {
                self.away(&status)
            } else {
                self.judge(status)
            }
        })
    }

    async fn bring_back(
        &self,
        kept: &KeptWorkspace,
        place: &Lease<'_>,
        deadline: Option<Deadline>,
        trace: &TraceParent,
    ) -> Result<(), Unresolved> {
        let bundle = kept.read().await.map_err(|failure| Unresolved::Away(failure.into()))?;
        let put = |client: Client, request: Request<PutWorkspaceRequest>| async move {
            let mut client = client.max_encoding_message_size(MAX_WORKSPACE_MESSAGE_BYTES);
            client.put_workspace(request).await
        };
        // Whatever the registry has against it, it is no verdict on the question.
        let answer = self
            .attempt(place, &bundle, TRANSFER_WITHIN, deadline, trace, &put)
            .await
            .map_err(|status| self.away(&status))?;
        let (expected, actual) = (kept.workspace_digest(), answer.workspace_digest);
        if actual.eq_ignore_ascii_case(expected) {
            tracing::info!(
                url = %self.url,
                workspace = expected,
                "a session's workspace was uploaded again"
            );
            return Ok(());
        }
        let text = format!(
            "the registry at {} names the session's workspace {actual}, not {expected} as before; upload it and open a \
             new session",
            self.url
        );
        let fault = Fault::new(Code::FailedPrecondition, Reason::WorkspaceUnknown, text)
            .with("workspace_digest", expected)
            .with("actual", actual);
        Err(Unresolved::Away(fault.into()))
    }

    /// Waits until no other bundle is on its way.
    async fn turn(&self, deadline: Option<Deadline>) -> Result<MutexGuard<'_, ()>, Unresolved> {
        timeout(deadline::within(deadline, TRANSFER_WITHIN), self.transfers.lock())
            .await
            .map_err(|_| self.away(&Status::deadline_exceeded("other workspaces are being transferred")))
    }

    /// Asks, where it makes sense.
    async fn question<Q, A, F, R>(
        &self,
        place: &Lease<'_>,
        question: &Q,
        deadline: Option<Deadline>,
        trace: &TraceParent,
        call: &F,
    ) -> Result<A, Status>
    where
        Q: Clone,
        F: Fn(Client, Request<Q>) -> R,
        R: Future<Output = Result<Response<A>, Status>>,
    {
        let Some(passage) = self.circuit.enter() else {
            return Err(self.unavailable("it has not answered for a while").into());
        };
        let answer = self
            .attempt(place, question, ANSWER_WITHIN, deadline, trace, call)
            .await;
        match &answer {
            Err(status) if reason_of(status).is_none() => {
                // Of a caller who had no time it says nothing.
                if deadline.is_none_or(|deadline| !deadline.remaining().is_zero()) {
                    passage.unanswered();
                }
            }
            Ok(_) | Err(_) => passage.answered(),
        }
        answer
    }

    /// Asks once, and where the connection was lost at once over another one, and soon after that over the first, made anew.
    async fn attempt<Q, A, F, R>(
        &self,
        place: &Lease<'_>,
        question: &Q,
        within: Duration,
        deadline: Option<Deadline>,
        trace: &TraceParent,
        call: &F,
    ) -> Result<A, Status>
    where
        Q: Clone,
        F: Fn(Client, Request<Q>) -> R,
        R: Future<Output = Result<Response<A>, Status>>,
    {
        let attempt = |place: &Lease<'_>| call(place.client(), self.request(question.clone(), within, deadline, trace));
        let mut answer = attempt(place).await;
        if answer.as_ref().is_err_and(lost::in_transport) {
            answer = attempt(&self.pool.lease(Some(place))).await;
        }
        // Where a registry left, that one may have ended with the first, which is made anew by now.
        if answer.as_ref().is_err_and(lost::in_transport) {
            let longest = deadline::within(deadline, AGAIN_WITHIN);
            sleep(self.clock.part_of(longest)).await;
            answer = attempt(place).await;
        }
        answer.map(Response::into_inner)
    }

    fn request<Q>(&self, question: Q, within: Duration, deadline: Option<Deadline>, trace: &TraceParent) -> Request<Q> {
        let mut request = Request::new(question);
        deadline::limit(&mut request, deadline, within);
        trace_context::inject(request.metadata_mut(), trace);
        if let Some(token) = &self.token
            && let Ok(mut value) = MetadataValue::try_from(format!("Bearer {}", token.present().expose()))
        {
            value.set_sensitive(true);
            request.metadata_mut().insert("authorization", value);
        }
        request
    }

    fn judge(&self, status: Status) -> Unresolved {
        // What has no reason is no word of a registry's: of something on the way to it, or of one that lacks the method.
        let Some(reason) = reason_of(&status) else {
            return self.away(&status);
        };
        // The latter is our own word where it was not asked at all.
        if matches!(reason, Reason::WorkspaceUnknown | Reason::RegistryUnavailable) {
            return Unresolved::Away(status);
        }
        match status.code() {
            Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented => Unresolved::Verdict(status),
            Code::PermissionDenied if reason != Reason::NotPermitted => Unresolved::Verdict(status),
            Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::Aborted
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
            | Code::Unauthenticated => self.away(&status),
        }
    }

    fn away(&self, status: &Status) -> Unresolved {
        tracing::warn!(url = %self.url, %status, "the registry did not answer");
        self.unanswered.add(1, &[]);
        let fault = self.unavailable(status.message());
        Unresolved::Away(fault.with("registry_code", status.code() as i32).into())
    }

    fn unavailable(&self, why: &str) -> Fault {
        let text = format!(
            "the registry at {} is not available ({why}); nothing was done, try again",
            self.url
        );
        Fault::new(Code::Unavailable, Reason::RegistryUnavailable, text)
            .retry_after(self.clock.jittered(circuit::PAUSE))
    }
}

fn is_unknown_workspace(status: &Status) -> bool {
    reason_of(status) == Some(Reason::WorkspaceUnknown)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::future::ready;

    use tokio::time::Instant;
    use uuid::Uuid;

    use super::*;
    use crate::{clock::TimeSource, domain::time::UnixMillis};

    /// Every random number is the largest.
    struct Unlucky;

    impl TimeSource for Unlucky {
        fn now(&self) -> UnixMillis {
            UnixMillis::new(0)
        }

        fn new_uuid(&self) -> Uuid {
            Uuid::from_u128(999)
        }
    }

    /// When a question was put whose connections are all lost.
    async fn asked_at(deadline: Option<Duration>) -> Vec<Duration> {
        let clock = Clock::new(Unlucky);
        let registry = RegistryClient::new("http://127.0.0.1:1", None, &ClientFiles::default(), clock).unwrap();
        let (begun, asked) = (Instant::now(), std::sync::Mutex::new(Vec::new()));
        let deadline = deadline.map(|left| Deadline { at: begun + left });
        let lose = |_: Client, _: Request<()>| {
            asked.lock().unwrap().push(begun.elapsed());
            ready(Err::<Response<()>, _>(Status::from_error(
                "the connection is lost".into(),
            )))
        };
        let place = registry.pool.lease(None);
        let answer = registry
            .attempt(&place, &(), ANSWER_WITHIN, deadline, &TraceParent::root(), &lose)
            .await;
        assert!(answer.is_err());
        asked.into_inner().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_lost_is_asked_again_at_once_and_for_the_last_time_after_a_moment() {
        let patient = asked_at(None).await;
        assert_eq!(patient[..2], [Duration::ZERO; 2]);
        assert!(patient.len() == 3 && patient[2] > AGAIN_WITHIN / 2, "{patient:?}");

        let hurried = asked_at(Some(AGAIN_WITHIN / 10)).await;
        assert!(hurried.len() == 3 && hurried[2] < AGAIN_WITHIN / 2, "{hurried:?}");
    }

    fn judged(status: Status) -> (bool, Code, Option<Reason>) {
        let unresolved = RegistryClient::new("http://127.0.0.1:1", None, &ClientFiles::default(), Clock::system())
            .unwrap()
            .judge(status);
        let is_verdict = matches!(unresolved, Unresolved::Verdict(_));
        let status = unresolved.into_status();
        (is_verdict, status.code(), reason_of(&status))
    }

    #[tokio::test]
    async fn only_what_is_wrong_with_the_question_is_a_verdict() {
        let fault = |code, reason| Status::from(Fault::new(code, reason, "text"));
        for (status, expected) in [
            (
                fault(Code::NotFound, Reason::TemplateNotFound),
                (true, Code::NotFound, Some(Reason::TemplateNotFound)),
            ),
            (
                fault(Code::PermissionDenied, Reason::CwdOutsideRoots),
                (true, Code::PermissionDenied, Some(Reason::CwdOutsideRoots)),
            ),
            // The supervisor's own token is bad: nothing about the spawn.
            (
                fault(Code::PermissionDenied, Reason::NotPermitted),
                (false, Code::Unavailable, Some(Reason::RegistryUnavailable)),
            ),
            // Whoever has the workspace uploads it; a record of a failed spawn would be a lie.
            (
                fault(Code::FailedPrecondition, Reason::WorkspaceUnknown),
                (false, Code::FailedPrecondition, Some(Reason::WorkspaceUnknown)),
            ),
            (
                Status::unavailable("away"),
                (false, Code::Unavailable, Some(Reason::RegistryUnavailable)),
            ),
        ] {
            assert_eq!(judged(status), expected);
        }
    }
}
