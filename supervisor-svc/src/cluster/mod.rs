//! Several supervisors over one log: membership, the lease, the forwarding of calls to the owner of a session, and the
//! planned move of sessions.
//!
//! Invariant: a supervisor answers from its memory only while its lease is valid. The fence of the log always protects
//! writes.

mod forward;
mod lease;
mod link;
mod member_service;
mod members;
mod metrics;
mod peers;
mod relay;
mod request_field;

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{
    StreamExt as _,
    future::{ready, try_join_all},
    stream::{self, BoxStream},
};
use supervisor_log::store::{Beat, Member, MemberId, MemberState, NewMember, ReadError};
use svc_kit::{
    auth::{Effect, Row},
    identity::{OperatorRole, Principal},
    stream_limits,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};
use tonic::{Code, Request, Status, Streaming, metadata::MetadataMap, transport::Channel};
use troupe_proto::{
    fault::Fault,
    reason::Reason,
    supervisor::v1::{self as pb, agent_supervisor_service_client::AgentSupervisorServiceClient},
};

pub use self::peers::PeerConnector;
pub(crate) use self::{forward::Forwarding, member_service::MemberGate, relay::RunnerRelay};
use self::{lease::Lease, link::Link, members::Observer, metrics::Metrics, peers::Peers};
use crate::{
    cluster_options::ClusterOptions,
    domain::ids::SessionId,
    engine::{Directory, Failure},
    runners::RunnerHub,
};

/// Time between two beats.
const BEAT_EVERY: Duration = Duration::from_secs(1);

/// The validity of a lease after a beat was sent. It ends a second before another member may remove this one.
const LEASE: Duration = Duration::from_secs(3);

const _: () = assert!(LEASE.as_millis() < members::DEAD_AFTER.as_millis());

/// The maximum number of sessions that are handed over concurrently.
const MOVES_AT_ONCE: usize = 64;

/// Maximum number of attempts to hand over a session while the members change.
const MOVE_TRIES: u32 = 3;

/// Time limit of a call to another member that the supervisor makes itself.
const CALL_WITHIN: Duration = Duration::from_secs(2);

/// Returns the session in a message about a change.
fn changed_session(answer: Result<pb::WatchSessionsResponse, Status>) -> Option<SessionId> {
    answer.ok()?.session?.session_id.parse().ok()
}

/// Returns the caller of the calls that a supervisor makes itself.
fn own_caller() -> Principal {
    Principal::Operator {
        name: String::from("cluster"),
        role: OperatorRole::Admin,
    }
}

/// This supervisor among the members of the cluster. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    shared: Arc<Shared>,
}

struct Shared {
    directory: Directory,
    hub: RunnerHub,
    settings: ClusterOptions,
    lease: Lease,
    peers: Peers,
    /// The members as of the last beat, this one included.
    members: watch::Sender<Arc<[Member]>>,
    state: Mutex<MemberState>,
    /// The methods that change data, by their full paths.
    changing: HashSet<&'static str>,
    /// The methods with one request and one response that do not wait, by their full paths.
    short: HashSet<&'static str>,
    metrics: Metrics,
}

impl Cluster {
    /// Creates a member that has not joined. `token` is the secret of the cluster, and `methods` are those of the
    /// service.
    pub fn new(
        directory: Directory,
        hub: RunnerHub,
        settings: ClusterOptions,
        connector: PeerConnector,
        token: &str,
        methods: &'static [Row],
    ) -> Self {
        let changing = methods.iter().filter(|row| row.effect == Effect::Changes);
        let streaming = stream_limits::methods(troupe_proto::FILE_DESCRIPTOR_SET, |method| {
            method.client_streaming() || method.server_streaming()
        });
        // Malformed descriptors are a defect of the build, and then no method counts as short.
        let is_unary = |row: &Row| {
            streaming
                .as_ref()
                .is_ok_and(|streaming| !streaming.contains(row.method))
        };
        let short = methods
            .iter()
            .filter(|row| row.effect != Effect::Waits && is_unary(row));
        let cluster = Self {
            shared: Arc::new(Shared {
                directory,
                hub,
                settings,
                lease: Lease::ended(),
                peers: Peers::new(connector, token),
                members: watch::Sender::new(Arc::from([])),
                state: Mutex::new(MemberState::Active),
                changing: changing.map(|row| row.method).collect(),
                short: short.map(|row| row.method).collect(),
                metrics: Metrics::new(),
            }),
        };
        metrics::observe(&cluster);
        cluster
    }

    /// Joins the cluster. `url` is that of the listener.
    ///
    /// # Errors
    /// The store's error.
    pub async fn join(&self, url: Option<String>) -> Result<(), ReadError> {
        let settings = &self.shared.settings;
        let address = settings.cluster_address.clone().or(url).unwrap_or_default();
        let authority = || address.split_once("://").map_or("", |(_, rest)| rest).to_owned();
        let member = NewMember {
            name: settings.member_name.clone().unwrap_or_else(authority),
            address: address.clone(),
            release: String::from(env!("CARGO_PKG_VERSION")),
        };
        tracing::info!(name = member.name, address, "joining the cluster");
        self.shared.directory.store().join(member).await?;
        let sent = Instant::now();
        if let Some(members) = self.beat().await? {
            self.shared.lease.renew(sent + LEASE);
            self.set_members(members);
        }
        Ok(())
    }

    /// Beats until this supervisor is removed from the cluster.
    pub async fn beat_until_removed(&self) {
        let mut observer = Observer::default();
        loop {
            let sent = Instant::now();
            match timeout(LEASE, self.beat()).await {
                Ok(Ok(Some(members))) => {
                    self.shared.lease.renew(sent + LEASE);
                    self.set_members(members);
                    self.observe(&mut observer, sent).await;
                }
                Ok(Ok(None)) => return,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "a beat failed");
                    observer.reset();
                }
                Err(elapsed) => {
                    tracing::warn!(%elapsed, "a beat failed");
                    observer.reset();
                }
            }
            sleep_until(sent + BEAT_EVERY).await;
        }
    }

    async fn beat(&self) -> Result<Option<Vec<Member>>, ReadError> {
        let beat = Beat {
            state: self.state(),
            sessions: self.shared.directory.loaded() as u64,
            runners: self.shared.hub.attached() as u64,
        };
        self.shared.directory.store().beat(beat).await
    }

    /// Removes members that no longer beat, and takes over their sessions.
    async fn observe(&self, observer: &mut Observer, now: Instant) {
        let members = self.members();
        let own = self.id();
        let others: Vec<&Member> = members.iter().filter(|member| member.id != own).collect();
        let mut observed = observer.observe(&others, now);
        for (member, beats) in observed.dead {
            match self.shared.directory.store().remove_member(member, beats).await {
                Ok(true) => {
                    let name = others.iter().find(|other| other.id == member);
                    let name = name.map_or("", |other| other.info.name.as_str());
                    tracing::warn!(name, %member, "a supervisor no longer beats; the others take its sessions over");
                    self.shared.metrics.removed.add(1, &[]);
                    observer.forget(member);
                    observed.gone.push(member);
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "a member was not removed"),
            }
        }
        if !observed.gone.is_empty() {
            let present = members.iter().filter(|member| !observed.gone.contains(&member.id));
            self.set_members(present.cloned().collect());
            self.shared.peers.forget(&observed.gone);
            self.shared.directory.activate_sessions_of_removed(&observed.gone);
        }
    }

    /// Returns whether a method changes data.
    fn changes_data(&self, method: &str) -> bool {
        self.shared.changing.contains(method)
    }

    /// Returns whether a method has one request and one response, and does not wait.
    fn is_short(&self, method: &str) -> bool {
        self.shared.short.contains(method)
    }

    /// Returns the id of this supervisor.
    #[must_use]
    pub fn id(&self) -> MemberId {
        self.shared.directory.store().member()
    }

    /// Returns the members as of the last beat.
    #[must_use]
    pub fn members(&self) -> Arc<[Member]> {
        Arc::clone(&self.shared.members.borrow())
    }

    /// Returns the other members.
    fn others(&self) -> Vec<Member> {
        let own = self.id();
        let members = self.members();
        members.iter().filter(|member| member.id != own).cloned().collect()
    }

    /// Returns whether a member hands its sessions over or has left the cluster.
    fn is_leaving_member(&self, id: MemberId) -> bool {
        let members = self.members();
        let member = members.iter().find(|member| member.id == id);
        member.is_none_or(|member| member.last.state == MemberState::Leaving)
    }

    fn set_members(&self, members: Vec<Member>) {
        self.shared.members.send_replace(members.into());
    }

    /// Waits until a member is no longer in the cluster.
    async fn member_is_gone(&self, id: MemberId) {
        let mut members = self.shared.members.subscribe();
        // The sender lives as long as this cluster.
        let _ = members
            .wait_for(|members| members.iter().all(|member| member.id != id))
            .await;
    }

    fn state(&self) -> MemberState {
        *self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the other active member that should take over a session. The choice depends on the session's id, so that
    /// sessions are spread over the members.
    pub fn other_for(&self, session: SessionId) -> Option<MemberId> {
        let others = self.others().into_iter();
        let active = others.filter(|member| member.last.state == MemberState::Active);
        active.map(|member| member.id).max_by_key(|member| {
            let mut hasher = DefaultHasher::new();
            (member, session).hash(&mut hasher);
            hasher.finish()
        })
    }

    fn member(&self, id: MemberId) -> Option<Member> {
        self.members().iter().find(|member| member.id == id).cloned()
    }

    fn channel(&self, member: MemberId) -> Option<Channel> {
        self.shared.peers.channel(&self.member(member)?)
    }

    fn link(&self, member: MemberId) -> Option<Link> {
        self.shared.peers.link(&self.member(member)?)
    }

    fn is_leaving(&self) -> bool {
        self.state() == MemberState::Leaving
    }

    /// Hands all sessions over to the other members and takes over no more sessions. If there is no other active
    /// member, this one stays active and keeps its sessions. It releases them when it leaves.
    ///
    /// Returns the number of sessions that it tried to hand over; `None` if there is no other active member.
    pub async fn drain(&self) -> Option<u64> {
        self.announce(MemberState::Leaving).await;
        if !self.has_active_peer() {
            self.announce(MemberState::Active).await;
            return None;
        }
        self.shared.directory.stop_loading();
        let sessions = self.shared.directory.sessions_in_memory();
        let count = sessions.len() as u64;
        let moves = stream::iter(sessions).for_each_concurrent(MOVES_AT_ONCE, |session| self.move_away(session));
        moves.await;
        tracing::info!(sessions = count, "drained");
        Some(count)
    }

    fn has_active_peer(&self) -> bool {
        let others = self.others();
        others.iter().any(|member| member.last.state == MemberState::Active)
    }

    /// Sets the state of this supervisor, publishes it to the other members, and reads their states.
    async fn announce(&self, state: MemberState) {
        *self.shared.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
        self.refresh().await;
    }

    /// Reads the present members, which may have changed since the last beat.
    pub async fn refresh(&self) {
        match self.beat().await {
            Ok(Some(members)) => self.set_members(members),
            // This supervisor was removed. The next beat of `beat_until_removed` shows that too.
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "the other supervisors do not know the new state of this one yet"),
        }
    }

    /// Hands a session over to any other member. If that member begins to leave at the same time, chooses another one.
    async fn move_away(&self, session: SessionId) {
        let mut tries = 0;
        loop {
            let Some(to) = self.other_for(session) else { return };
            tries += 1;
            match self.hand_over(session, to).await {
                Ok(()) => return,
                Err(Failure::Elsewhere { .. }) if tries < MOVE_TRIES => self.refresh().await,
                Err(failure) => {
                    tracing::warn!(%session, %failure, "a session was not handed over");
                    return;
                }
            }
        }
    }

    /// Drains another member.
    ///
    /// # Errors
    /// The status of the call.
    pub async fn drain_other(&self, member: MemberId, name: &str) -> Result<pb::DrainMemberResponse, Status> {
        let mut request = Request::new(pb::DrainMemberRequest { name: name.to_owned() });
        self.sign(&mut request, &own_caller());
        Ok(self.client(member)?.drain_member(request).await?.into_inner())
    }

    /// Hands a session over to a member, which activates it.
    ///
    /// # Errors
    /// [`Failure::Elsewhere`] if this supervisor does not own the session; otherwise the store's error.
    pub async fn hand_over(&self, session: SessionId, to: MemberId) -> Result<(), Failure> {
        self.shared.directory.hand_over(session, to).await?;
        self.shared.metrics.handed_over.add(1, &[]);
        // The new owner activates the session with the first call. Later calls and its next deadline would do so too.
        if let Err(status) = self.read(to, session).await {
            tracing::warn!(%session, %to, %status, "a session that was handed over is not active yet");
        }
        Ok(())
    }

    /// Reads a session from the member that owns it.
    ///
    /// # Errors
    /// The status of the call.
    pub async fn read(&self, owner: MemberId, session: SessionId) -> Result<pb::Session, Status> {
        let request = pb::GetSessionRequest {
            session_id: session.to_string(),
        };
        let mut request = Request::new(request);
        self.sign(&mut request, &own_caller());
        request.set_timeout(CALL_WITHIN);
        let response = self.client(owner)?.get_session(request).await?;
        let session = response.into_inner().session;
        session.ok_or_else(|| Status::internal("the session is missing in the answer"))
    }

    /// Checks that a member answers and has contact with the log.
    ///
    /// # Errors
    /// The status of the call.
    async fn reach(&self, member: MemberId) -> Result<(), Status> {
        let mut request = Request::new(pb::ListMembersRequest {});
        self.sign(&mut request, &own_caller());
        let mut client = self.client(member)?;
        let answered = timeout(CALL_WITHIN, client.list_members(request)).await;
        let answered = answered.unwrap_or_else(|_| Err(Status::unavailable("the supervisor does not answer")));
        answered.map(drop)
    }

    /// Returns a client for the calls that the supervisor makes itself.
    fn client(&self, member: MemberId) -> Result<AgentSupervisorServiceClient<Channel>, Status> {
        let gone = || Status::unavailable("the supervisor has left the cluster");
        let channel = self.channel(member).ok_or_else(gone)?;
        Ok(AgentSupervisorServiceClient::new(channel))
    }

    /// Adds the credentials with which a peer accepts a call on behalf of its caller.
    fn sign<T>(&self, request: &mut Request<T>, caller: &Principal) {
        let mut headers = request.metadata().clone().into_headers();
        self.shared.peers.sign(&mut headers, caller);
        *request.metadata_mut() = MetadataMap::from_headers(headers);
    }

    /// Follows the changes of sessions at the other members. Waits until a member that does not answer is removed. The
    /// stream ends when the set of members has changed, or when a member does not answer: changes may then be missing.
    ///
    /// # Errors
    /// UNAVAILABLE if a member does not answer and is not removed either.
    pub async fn changes_elsewhere(&self) -> Result<BoxStream<'static, SessionId>, Status> {
        let mut beats = self.shared.members.subscribe();
        let give_up = Instant::now() + members::REMOVED_WITHIN;
        let (others, watches) = loop {
            let others = self.others();
            let watches = others.iter().map(|member| self.watch(member.id));
            match try_join_all(watches).await {
                Ok(watches) => break (others, watches),
                Err(status) => {
                    tracing::debug!(%status, "a watch of sessions cannot follow another supervisor");
                    // If a beat succeeded during the calls, the wait ends at once.
                    if Instant::now() >= give_up || timeout_at(give_up, beats.changed()).await.is_err() {
                        let text = "another supervisor does not answer; watch the sessions again";
                        let fault = Fault::new(Code::Unavailable, Reason::SessionMoving, text);
                        return Err(fault.retry_after(BEAT_EVERY).into());
                    }
                }
            }
        };
        // The end of one watch ends the whole stream.
        let ids =
            |watch: Streaming<pb::WatchSessionsResponse>| watch.map(changed_session).chain(stream::once(ready(None)));
        let none = stream::pending().boxed();
        let watches = watches.into_iter().map(|watch| ids(watch).boxed());
        let all = stream::select_all(watches.chain([none]))
            .take_while(|id| ready(id.is_some()))
            .filter_map(ready);
        let cluster = self.clone();
        let mut known: Vec<MemberId> = others.iter().map(|member| member.id).collect();
        known.sort_unstable();
        let changed = async move {
            loop {
                sleep(BEAT_EVERY).await;
                let mut present: Vec<MemberId> = cluster.others().iter().map(|member| member.id).collect();
                present.sort_unstable();
                if present != known {
                    return;
                }
            }
        };
        Ok(all.take_until(changed).boxed())
    }

    async fn watch(&self, member: MemberId) -> Result<Streaming<pb::WatchSessionsResponse>, Status> {
        let mut request = Request::new(pb::WatchSessionsRequest::default());
        self.sign(&mut request, &own_caller());
        let mut client = self.client(member)?;
        let opened = timeout(CALL_WITHIN, client.watch_sessions(request)).await;
        let opened = opened.unwrap_or_else(|_| Err(Status::unavailable("the supervisor does not answer")));
        Ok(opened?.into_inner())
    }

    /// Leaves the cluster. Other supervisors can claim the remaining sessions at once.
    pub async fn leave(&self) {
        let store = self.shared.directory.store();
        // A beat between the two calls changes the number of beats, so the removal is tried several times.
        for _ in 0..3 {
            let Ok(Some(members)) = self.beat().await else { return };
            let own = members.iter().find(|member| member.id == self.id());
            let Some(own) = own else { return };
            match store.remove_member(own.id, own.beats).await {
                Ok(false) => {}
                Ok(true) => return,
                Err(error) => {
                    tracing::warn!(%error, "this member was not removed from the cluster; the others remove it in a few seconds");
                    return;
                }
            }
        }
    }
}
