//! Client of the registry, which is used for every spawn and for listing spawnable roles. All requests are pure reads
//! or can be repeated like reads, so they are retried if the connection failed.
//!
//! A registry drops uploaded workspace bundles when it restarts or needs the space. A session stores its own bundle. If
//! the registry does not hold the bundle of a session's request, this module uploads the bundle and repeats the request
//! ([`RegistryClient::with_workspace`]). No other module does this.

mod circuit;
mod pool;
pub mod resolution;
mod resolutions;
mod singleflight;
pub mod workspace;

use std::{
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use opentelemetry::metrics::Counter;
use svc_kit::{
    deadline::{self, Deadline},
    instruments::counter,
    lost,
    shown_token::ShownToken,
    trace_context::{self, TraceParent},
    traces::Traced,
};
use tokio::{
    net::lookup_host,
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
        Agent, DescribeSpawnToolRequest, DescribeSpawnToolResponse, GetWorkspaceRequest, GetWorkspaceResponse,
        ListAgentsRequest, ListAgentsResponse, PutWorkspaceRequest, PutWorkspaceResponse, ResolveSpawnRequest,
        ResolveSpawnResponse, RouteAgentRequest, RouteAgentResponse, ToolDescription, WorkspaceFile,
        agent_registry_service_client::AgentRegistryServiceClient,
    },
};

pub use self::pool::LookUp;
pub(crate) use self::pool::{CONNECTIONS, LOOK_UP_EVERY, MAX_REGISTRIES};
use self::{
    circuit::Circuit,
    pool::{Lease, Pool},
    resolution::Resolution,
    resolutions::{Known, Resolutions},
    singleflight::Singleflight,
    workspace::StoredWorkspace,
};
use crate::clock::Clock;
use troupe_client::{
    host::bare_host,
    tls::{self, ClientFiles},
};

/// Maximum time for a response, even if the caller's deadline is later.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Maximum time of a bundle upload, and of the wait for other uploads.
pub(crate) const TRANSFER_WITHIN: Duration = Duration::from_secs(60);

/// Maximum time to connect.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// Maximum delay before the last retry of a request. Many callers lose their connections at the same time, and the
/// delay spreads their retries.
const AGAIN_WITHIN: Duration = Duration::from_millis(100);

/// Interval of connection pings. Without pings, a connection whose peer vanished silently, with its machine or behind a
/// partitioned network, would lose requests until TCP stops retransmitting.
pub(crate) const PING_EVERY: Duration = Duration::from_secs(10);
/// Maximum time for the reply to a ping.
pub(crate) const PING_ANSWER: Duration = Duration::from_secs(5);

/// Number of agents per page of a listing. Multiplied by [`MAX_PAGES`], it exceeds the maximum size of a catalogue.
const PAGE_SIZE: i32 = 2_000;
/// Maximum number of pages of a listing.
const MAX_PAGES: usize = 64;

type Client = AgentRegistryServiceClient<Traced>;

/// A request to the registry.
trait Question: Clone + Send + Sync {
    type Answer: Send;

    /// Maximum time for a response, even if the caller's deadline is later.
    const WITHIN: Duration = ANSWER_WITHIN;

    fn send(
        client: Client,
        request: Request<Self>,
    ) -> impl Future<Output = Result<Response<Self::Answer>, Status>> + Send;

    /// Returns the digest of the workspace bundle that the request needs. Empty if it needs none.
    fn workspace_digest(&self) -> &str {
        ""
    }
}

macro_rules! questions {
    ($($request:ident = $method:ident -> $answer:ident;)*) => {
        $(impl Question for $request {
            type Answer = $answer;

            async fn send(mut client: Client, request: Request<Self>) -> Result<Response<$answer>, Status> {
                client.$method(request).await
            }

            fn workspace_digest(&self) -> &str {
                &self.workspace_digest
            }
        })*
    };
}

questions! {
    ResolveSpawnRequest = resolve_spawn -> ResolveSpawnResponse;
    ListAgentsRequest = list_agents -> ListAgentsResponse;
    RouteAgentRequest = route_agent -> RouteAgentResponse;
    DescribeSpawnToolRequest = describe_spawn_tool -> DescribeSpawnToolResponse;
}

impl Question for GetWorkspaceRequest {
    type Answer = GetWorkspaceResponse;
    const WITHIN: Duration = TRANSFER_WITHIN;

    async fn send(client: Client, request: Request<Self>) -> Result<Response<GetWorkspaceResponse>, Status> {
        let mut client = client.max_decoding_message_size(MAX_WORKSPACE_MESSAGE_BYTES);
        client.get_workspace(request).await
    }

    fn workspace_digest(&self) -> &str {
        &self.workspace_digest
    }
}

impl Question for PutWorkspaceRequest {
    type Answer = PutWorkspaceResponse;
    const WITHIN: Duration = TRANSFER_WITHIN;

    async fn send(client: Client, request: Request<Self>) -> Result<Response<PutWorkspaceResponse>, Status> {
        let mut client = client.max_encoding_message_size(MAX_WORKSPACE_MESSAGE_BYTES);
        client.put_workspace(request).await
    }
}

/// The registry, as the supervisor sees it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RegistryClient {
    shared: Arc<Shared>,
    stored_workspace: Option<StoredWorkspace>,
}

/// The parts that all clones share.
#[derive(Debug)]
struct Shared {
    pool: Pool,
    token: Option<ShownToken>,
    url: Box<str>,
    /// Cached responses to spawn requests.
    resolutions: Resolutions,
    /// Spawn requests in flight.
    flights: Singleflight,
    /// Serializes bundle uploads. This bounds their memory, and after a restart of the registry the requests of one
    /// session upload its bundle only once.
    transfers: Mutex<()>,
    circuit: Circuit,
    clock: Clock,
    /// Number of unanswered requests.
    unanswered: Counter<u64>,
}

/// The reason why a request has no result.
#[derive(Clone, Debug)]
pub enum Unresolved {
    /// The registry rejected the request. The status is passed on.
    Verdict(Status),
    /// The request has no result: the registry is unavailable or overloaded, or it lacks a workspace that the
    /// supervisor does not store. The last case (WORKSPACE_UNKNOWN) is passed on to the caller, which can upload the
    /// workspace.
    Unavailable(Status),
}

impl Unresolved {
    /// Returns the status for a client.
    #[must_use]
    pub fn into_status(self) -> Status {
        match self {
            Self::Verdict(status) | Self::Unavailable(status) => status,
        }
    }
}

impl RegistryClient {
    /// Creates a client of the registry at `url`, or of the registries at the addresses of its host. `tls` is used if
    /// the URL requires it. The client connects when it is first needed, and again when a connection is lost. Must be
    /// called in a tokio runtime.
    ///
    /// # Errors
    /// If `url` is not a URL.
    pub fn new(
        url: &str,
        token: Option<ShownToken>,
        tls: &ClientFiles,
        clock: Clock,
    ) -> Result<Self, tonic::transport::Error> {
        let endpoint = endpoint(url.to_owned())?;
        let client = Self::over(tls::channels(&endpoint, tls), url.to_owned(), token, clock);
        if let Some(name) = HostName::of(&endpoint) {
            let (tls, host) = (tls.clone(), name.host.clone());
            let channel = move |address| tls::channel_to(&at(&endpoint, address), &tls, &host);
            tokio::spawn(client.shared.pool.follow(name, channel));
        }
        Ok(client)
    }

    /// Creates a client over the channels that `channel` returns; `url` only names the registry in logs and errors.
    #[must_use]
    pub fn over(channel: impl Fn() -> Channel, url: String, token: Option<ShownToken>, clock: Clock) -> Self {
        let shared = Shared {
            pool: Pool::of(channel),
            token,
            url: url.into(),
            resolutions: Resolutions::default(),
            flights: Singleflight::default(),
            transfers: Mutex::default(),
            circuit: Circuit::default(),
            clock,
            unanswered: counter(
                "troupe.registry.unanswered",
                "Requests that the registry did not answer",
            ),
        };
        Self {
            shared: Arc::new(shared),
            stored_workspace: None,
        }
    }

    /// Uses the addresses of a name as registries, over channels that `channel` returns.
    pub async fn look_up(&self, name: &impl LookUp, channel: impl Fn(SocketAddr) -> Channel) {
        self.shared.pool.refresh(name, channel).await;
    }

    /// Returns a client for the requests of a session that stores this bundle. If the registry does not hold the
    /// bundle, the client uploads it again, transparently to callers.
    #[must_use]
    pub fn with_workspace(&self, stored_workspace: Option<StoredWorkspace>) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            stored_workspace,
        }
    }

    /// Returns the files of a bundle that the registry holds.
    ///
    /// # Errors
    /// See [`Unresolved`].
    pub async fn workspace(
        &self,
        workspace_digest: String,
        deadline: Option<Deadline>,
        trace: &TraceParent,
    ) -> Result<Vec<WorkspaceFile>, Unresolved> {
        let _permit = self.transfer_permit(deadline).await?;
        let question = GetWorkspaceRequest { workspace_digest };
        Ok(self.ask(&question, deadline, trace).await?.files)
    }

    /// Resolves a spawn with a request that is sent after this call. Under load, identical concurrent spawns share one
    /// request, in the trace of the spawn that sent it.
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
        self.shared.flights.ask(question, deadline, ask).await
    }

    async fn resolve_alone(
        &self,
        mut question: ResolveSpawnRequest,
        deadline: Option<Deadline>,
        trace: &TraceParent,
    ) -> Result<Arc<Resolution>, Unresolved> {
        let known = self.shared.resolutions.get(&question);
        question.known_etag = known.as_ref().map(|known| known.etag.clone()).unwrap_or_default();
        let ResolveSpawnResponse { resolved, etag } = self.ask(&question, deadline, trace).await?;
        match (resolved, known) {
            (None, Some(known)) if known.etag == etag => Ok(known.resolution),
            (None, _) => Err(self.judge(Status::internal("the registry answered without a resolution"))),
            (Some(resolved), _) => {
                let resolution = Resolution::try_from(resolved)
                    .map(Arc::new)
                    .map_err(|error| self.judge(Status::internal(format!("its response is invalid: {error}"))))?;
                question.known_etag.clear();
                let known = Known {
                    etag,
                    resolution: Arc::clone(&resolution),
                };
                self.shared.resolutions.keep(question, known);
                Ok(resolution)
            }
        }
    }

    /// Returns the agent types that a request selects, from all pages, in order of name.
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
            let page = self.ask(&request, deadline, trace).await?;
            agents.extend(page.agents);
            if page.next_page_token.is_empty() {
                break;
            }
            request.page_token = page.next_page_token;
        }
        Ok(agents)
    }

    /// Returns the agent type to which a text is routed.
    ///
    /// # Errors
    /// See [`Unresolved`].
    pub async fn route(
        &self,
        request: RouteAgentRequest,
        deadline: Option<Deadline>,
        trace: &TraceParent,
    ) -> Result<RouteAgentResponse, Unresolved> {
        self.ask(&request, deadline, trace).await
    }

    /// Returns the supervisor's tools as they are offered to a model, with the roles of the catalogue.
    ///
    /// # Errors
    /// See [`Unresolved`].
    pub async fn tools(
        &self,
        request: DescribeSpawnToolRequest,
        deadline: Option<Deadline>,
        trace: &TraceParent,
    ) -> Result<Vec<ToolDescription>, Unresolved> {
        Ok(self.ask(&request, deadline, trace).await?.tools)
    }

    async fn ask<Q: Question>(
        &self,
        question: &Q,
        deadline: Option<Deadline>,
        trace: &TraceParent,
    ) -> Result<Q::Answer, Unresolved> {
        let lease = self.shared.pool.lease(question.workspace_digest());
        let answer = self.question(&lease, question, deadline, trace).await;
        match (answer, &self.stored_workspace) {
            (Err(status), Some(stored_workspace)) if is_unknown_workspace(&status) => {
                // Uploads the bundle to the same registry. The future is boxed because this case is rare and the future
                // is large.
                Box::pin(self.upload_and_ask(stored_workspace, &lease, question, deadline, trace)).await
            }
            (Err(status), None) if is_unknown_workspace(&status) => {
                let mut answer = Err(status);
                // The bundle may have been uploaded to any registry.
                for other in self.shared.pool.others(&lease) {
                    match Box::pin(self.question(&other, question, deadline, trace)).await {
                        Err(status) if is_unknown_workspace(&status) => {}
                        // This registry did not answer, and may have the bundle.
                        Err(status) if reason_of(&status).is_none() => answer = Err(status),
                        known => {
                            answer = known;
                            break;
                        }
                    }
                }
                answer.map_err(|status| self.judge(status))
            }
            (answer, _) => answer.map_err(|status| self.judge(status)),
        }
    }

    async fn upload_and_ask<Q: Question>(
        &self,
        stored_workspace: &StoredWorkspace,
        lease: &Lease,
        question: &Q,
        deadline: Option<Deadline>,
        trace: &TraceParent,
    ) -> Result<Q::Answer, Unresolved> {
        let _permit = self.transfer_permit(deadline).await?;
        // The previous holder of the lock may have uploaded the same bundle.
        match self.question(lease, question, deadline, trace).await {
            Err(status) if is_unknown_workspace(&status) => {}
            answer => return answer.map_err(|status| self.judge(status)),
        }
        self.upload_workspace(stored_workspace, lease, deadline, trace).await?;
        let answer = self.question(lease, question, deadline, trace).await;
        answer.map_err(|status| {
            // The workspace was dropped again. The caller can only retry.
            if is_unknown_workspace(&status) {
                self.away(&status)
            } else {
                self.judge(status)
            }
        })
    }

    async fn upload_workspace(
        &self,
        stored_workspace: &StoredWorkspace,
        lease: &Lease,
        deadline: Option<Deadline>,
        trace: &TraceParent,
    ) -> Result<(), Unresolved> {
        let bundle = stored_workspace
            .read()
            .await
            .map_err(|failure| Unresolved::Unavailable(failure.into()))?;
        // The registry may reject the upload for any reason, but that does not make the request itself invalid.
        let answer = self
            .attempt(lease, &bundle, deadline, trace)
            .await
            .map_err(|status| self.away(&status))?;
        let (expected, actual) = (stored_workspace.workspace_digest(), answer.workspace_digest);
        if actual.eq_ignore_ascii_case(expected) {
            tracing::info!(
                url = %self.shared.url,
                workspace = expected,
                "a session's workspace was uploaded again"
            );
            return Ok(());
        }
        let text = format!(
            "the registry at {} names the session's workspace {actual}, not {expected} as before; upload it and open a \
             new session",
            self.shared.url
        );
        let fault = Fault::new(Code::FailedPrecondition, Reason::WorkspaceUnknown, text)
            .with("workspace_digest", expected)
            .with("actual", actual);
        Err(Unresolved::Unavailable(fault.into()))
    }

    /// Waits until no other bundle is being transferred.
    async fn transfer_permit(&self, deadline: Option<Deadline>) -> Result<MutexGuard<'_, ()>, Unresolved> {
        timeout(
            deadline::within(deadline, TRANSFER_WITHIN),
            self.shared.transfers.lock(),
        )
        .await
        .map_err(|_| self.away(&Status::deadline_exceeded("other workspaces are being transferred")))
    }

    /// Sends a request, unless the circuit is open.
    async fn question<Q: Question>(
        &self,
        lease: &Lease,
        question: &Q,
        deadline: Option<Deadline>,
        trace: &TraceParent,
    ) -> Result<Q::Answer, Status> {
        let Some(passage) = self.shared.circuit.enter() else {
            return Err(self.unavailable("it did not answer several requests").into());
        };
        let answer = self.attempt(lease, question, deadline, trace).await;
        match &answer {
            Err(status) if reason_of(status).is_none() => {
                // An expired deadline of the caller says nothing about the registry.
                if deadline.is_none_or(|deadline| !deadline.remaining().is_zero()) {
                    passage.unanswered();
                }
            }
            Ok(_) | Err(_) => passage.answered(),
        }
        answer
    }

    /// Sends a request. If the connection is lost, retries at once over another connection, and after a short delay
    /// over the first one, which is reconnected.
    async fn attempt<Q: Question>(
        &self,
        lease: &Lease,
        question: &Q,
        deadline: Option<Deadline>,
        trace: &TraceParent,
    ) -> Result<Q::Answer, Status> {
        // Boxed because the futures around it would each reserve memory for it.
        let attempt =
            |lease: &Lease| Box::pin(Q::send(lease.client(), self.request(question.clone(), deadline, trace)));
        let mut answer = attempt(lease).await;
        if answer.as_ref().is_err_and(lost::in_transport) {
            answer = attempt(&self.shared.pool.lease_after(lease)).await;
        }
        // If a registry shut down, the second connection may have ended with the first. The first is reconnected by
        // now.
        if answer.as_ref().is_err_and(lost::in_transport) {
            let longest = deadline::within(deadline, AGAIN_WITHIN);
            sleep(self.shared.clock.random_part(longest)).await;
            answer = attempt(lease).await;
        }
        answer.map(Response::into_inner)
    }

    fn request<Q: Question>(&self, question: Q, deadline: Option<Deadline>, trace: &TraceParent) -> Request<Q> {
        let mut request = Request::new(question);
        deadline::limit(&mut request, deadline, Q::WITHIN);
        trace_context::inject(request.metadata_mut(), trace);
        if let Some(token) = &self.shared.token
            && let Ok(mut value) = MetadataValue::try_from(format!("Bearer {}", token.present().expose()))
        {
            value.set_sensitive(true);
            request.metadata_mut().insert("authorization", value);
        }
        request
    }

    fn judge(&self, status: Status) -> Unresolved {
        // A status without a reason does not come from a registry. It comes from an intermediary, or from a server
        // that lacks the method.
        let Some(reason) = reason_of(&status) else {
            return self.away(&status);
        };
        // The supervisor itself creates REGISTRY_UNAVAILABLE if it sent no request.
        if matches!(reason, Reason::WorkspaceUnknown | Reason::RegistryUnavailable) {
            return Unresolved::Unavailable(status);
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
        tracing::warn!(url = %self.shared.url, %status, "the registry did not answer");
        self.shared.unanswered.add(1, &[]);
        let fault = self.unavailable(status.message());
        Unresolved::Unavailable(fault.with("registry_code", status.code() as i32).into())
    }

    fn unavailable(&self, why: &str) -> Fault {
        let text = format!(
            "the registry at {} is not available ({why}); nothing was done, try again",
            self.shared.url
        );
        Fault::new(Code::Unavailable, Reason::RegistryUnavailable, text)
            .retry_after(self.shared.clock.jittered(circuit::PAUSE))
    }
}

/// The host name of an endpoint.
#[derive(Debug)]
struct HostName {
    host: String,
    port: u16,
}

impl HostName {
    /// Returns `None` if the host is an address.
    fn of(endpoint: &Endpoint) -> Option<Self> {
        let uri = endpoint.uri();
        let host = bare_host(uri.host()?);
        let default_port = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        host.parse::<IpAddr>().is_err().then(|| Self {
            host: host.to_owned(),
            port: uri.port_u16().unwrap_or(default_port),
        })
    }
}

impl LookUp for HostName {
    async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        Ok(lookup_host((self.host.as_str(), self.port)).await?.collect())
    }
}

fn endpoint(url: String) -> Result<Endpoint, tonic::transport::Error> {
    Ok(Endpoint::from_shared(url)?
        .connect_timeout(CONNECT_WITHIN)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_ANSWER)
        .keep_alive_while_idle(true))
}

/// Returns the endpoint at one of the addresses of its host. Its requests still name the host.
fn at(named: &Endpoint, address: SocketAddr) -> Endpoint {
    let scheme = named.uri().scheme_str().unwrap_or("http");
    endpoint(format!("{scheme}://{address}")).map_or_else(|_| named.clone(), |at| at.origin(named.uri().clone()))
}

fn is_unknown_workspace(status: &Status) -> bool {
    reason_of(status) == Some(Reason::WorkspaceUnknown)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::time::Instant;
    use uuid::Uuid;

    use super::*;
    use crate::{clock::TimeSource, domain::time::UnixMillis};

    /// A clock whose random numbers all have the maximum value.
    struct Unlucky;

    impl TimeSource for Unlucky {
        fn now(&self) -> UnixMillis {
            UnixMillis::new(0)
        }

        fn new_uuid(&self) -> Uuid {
            Uuid::from_u128(999)
        }
    }

    /// A request whose connections are all lost. Stores the times at which it was sent.
    #[derive(Clone, Default)]
    struct LostQuestion(Arc<std::sync::Mutex<Vec<Instant>>>);

    impl Question for LostQuestion {
        type Answer = ();

        async fn send(_: Client, request: Request<Self>) -> Result<Response<()>, Status> {
            request.get_ref().0.lock().unwrap().push(Instant::now());
            Err(Status::from_error("the connection is lost".into()))
        }

        fn workspace_digest(&self) -> &str {
            ""
        }
    }

    /// Returns the times at which a request was sent whose connections are all lost.
    async fn asked_at(deadline: Option<Duration>) -> Vec<Duration> {
        let clock = Clock::new(Unlucky);
        let registry = RegistryClient::new("http://127.0.0.1:1", None, &ClientFiles::default(), clock).unwrap();
        let begun = Instant::now();
        let deadline = deadline.map(|left| Deadline { at: begun + left });
        let question = LostQuestion::default();
        let lease = registry.shared.pool.lease("");
        let answer = registry
            .attempt(&lease, &question, deadline, &TraceParent::root())
            .await;
        assert!(answer.is_err());
        let sent = question.0.lock().unwrap();
        sent.iter().map(|at| at.duration_since(begun)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn lost_request_is_retried_with_delay_before_last_retry() {
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
    async fn only_errors_of_the_request_are_verdicts() {
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
            // The supervisor's own token is invalid, which says nothing about the spawn.
            (
                fault(Code::PermissionDenied, Reason::NotPermitted),
                (false, Code::Unavailable, Some(Reason::RegistryUnavailable)),
            ),
            // The caller that has the workspace uploads it. Recording a failed spawn would be wrong.
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
