//! Runners attach to one supervisor, which relays their messages to the others.
//!
//! The relay opens a stream to each member in the runner's name, with the runner's hello. Each member handles the
//! threads of its own sessions. Messages about a thread go to the member that last sent a message about the thread, or
//! whose welcome confirmed the thread.
//!
//! Invariant: a report goes to the owner of its session, or it is dropped. The runner resends unacknowledged reports on
//! its next stream, so the relay ends the stream when a member with threads of the runner is lost.
//!
//! A stream to a member begins with a hello that names all threads of the runner: the member treats threads that are
//! not in the hello as lost. Only the runner knows its threads. The relay therefore opens streams when the runner
//! attaches, and asks the runner to attach again when another member can be reached.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use futures::{StreamExt as _, future::join_all, stream::BoxStream};
use supervisor_log::store::{Member, MemberId, MemberState};
use svc_kit::identity::{Forwarded, Principal, principal_of};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tokio_stream::{StreamMap, wrappers::ReceiverStream};
use tonic::{Request, Response, Status, Streaming};
use troupe_proto::{
    MAX_MESSAGE_BYTES,
    supervisor::v1::{
        self as pb, attach_request::Message as FromRunner, attach_response::Message as ToRunner,
        runner_report::Kind as ReportKind, thread_runner_service_client::ThreadRunnerServiceClient,
        thread_runner_service_server::ThreadRunnerService,
    },
};

use super::Cluster;
use crate::runners::{FromRunners, OUTBOX, RunnerGate, first_hello, permit};

/// Maximum time for a member to welcome a runner, and to accept a message.
const MEMBER_WITHIN: Duration = Duration::from_secs(3);

/// Interval at which the relay calls members without a stream.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of messages that wait for a member.
const WAITING: usize = 64;

type Responses = BoxStream<'static, Result<pb::AttachResponse, Status>>;

/// The gRPC service to which runners attach.
#[derive(Clone)]
pub(crate) struct RunnerRelay {
    gate: RunnerGate,
    cluster: Option<Cluster>,
}

impl RunnerRelay {
    /// Creates a service that relays the streams of runners within the cluster, if there is one.
    pub const fn new(gate: RunnerGate, cluster: Option<Cluster>) -> Self {
        Self { gate, cluster }
    }
}

#[tonic::async_trait]
impl ThreadRunnerService for RunnerRelay {
    type AttachStream = Responses;

    async fn attach(
        &self,
        request: Request<Streaming<pb::AttachRequest>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let principal = principal_of(&request)?.clone();
        let is_forwarded = request.extensions().get::<Forwarded>().is_some();
        let mut incoming: FromRunners = request.into_inner().boxed();
        let hello = first_hello(&mut incoming).await?;
        permit(&principal, &hello.runner_id)?;
        let Some(cluster) = &self.cluster else {
            let responses = self.gate.attach_over(&principal, hello, incoming).await?;
            return Ok(Response::new(responses.boxed()));
        };
        let responses = if is_forwarded {
            self.gate.attach_over(&principal, hello, incoming).await?
        } else {
            self.relay(cluster, principal, hello, incoming).await?
        };
        // A supervisor without a lease commands no runner.
        let cluster = cluster.clone();
        let valid = responses.take_while(move |_| std::future::ready(cluster.shared.lease.is_valid()));
        Ok(Response::new(valid.boxed()))
    }
}

/// A stream to a member in the name of a runner.
struct Opened {
    member: MemberId,
    welcome: pb::RunnerWelcome,
    requests: mpsc::Sender<pb::AttachRequest>,
    responses: Responses,
}

impl RunnerRelay {
    async fn relay(
        &self,
        cluster: &Cluster,
        principal: Principal,
        hello: pb::RunnerHello,
        incoming: FromRunners,
    ) -> Result<ReceiverStream<Result<pb::AttachResponse, Status>>, Status> {
        let others = cluster.others();
        let remote = others
            .iter()
            .map(|member| open(cluster.clone(), member.clone(), principal.clone(), hello.clone()));
        let (own, remote) = tokio::join!(self.open_own(cluster, &principal, hello.clone()), join_all(remote));
        let own = own?;
        let mut relay = Relay {
            cluster: cluster.clone(),
            own: own.member,
            links: BTreeMap::new(),
            responses: StreamMap::new(),
            routes: HashMap::new(),
            stopped: HashMap::new(),
            probes: JoinSet::new(),
            pending: BTreeSet::new(),
            last_message: Instant::now(),
            lease: self.gate.lease(),
        };
        let lease = own.welcome.lease;
        let mut verdicts = BTreeMap::new();
        merge(&mut verdicts, &own.welcome);
        relay.add(own);
        for (member, opened) in others.iter().zip(remote) {
            match opened {
                Ok(opened) => {
                    merge(&mut verdicts, &opened.welcome);
                    relay.add(opened);
                }
                // The threads of that member's sessions continue. The runner attaches again when the member can be
                // reached, or when the sessions have another owner.
                Err(status) => tracing::warn!(name = member.info.name, %status, "a runner is not relayed to a member"),
            }
        }
        let welcome = pb::RunnerWelcome {
            lease,
            peers: Vec::new(),
            threads: verdicts.into_values().collect(),
        };
        let (outbox, responses) = mpsc::channel(OUTBOX);
        // The send cannot fail for lack of capacity: the outbox is new.
        let _ = outbox.try_send(Ok(pb::AttachResponse {
            message: Some(ToRunner::Welcome(welcome)),
        }));
        tokio::spawn(relay.run(incoming, outbox));
        Ok(ReceiverStream::new(responses))
    }

    /// Opens the stream to this supervisor itself.
    async fn open_own(
        &self,
        cluster: &Cluster,
        principal: &Principal,
        hello: pb::RunnerHello,
    ) -> Result<Opened, Status> {
        let (requests, incoming) = mpsc::channel(WAITING);
        let incoming = ReceiverStream::new(incoming).map(Ok).boxed();
        let responses = self.gate.attach_over(principal, hello, incoming).await?;
        opened(cluster.id(), requests, responses.boxed()).await
    }
}

/// Opens a stream to another member.
async fn open(
    cluster: Cluster,
    member: Member,
    principal: Principal,
    hello: pb::RunnerHello,
) -> Result<Opened, Status> {
    let opening = async {
        let channel = cluster.shared.peers.channel(&member);
        let channel = channel.ok_or_else(|| Status::unavailable("the member's address is invalid"))?;
        let (requests, incoming) = mpsc::channel(WAITING);
        let first = pb::AttachRequest {
            message: Some(FromRunner::Hello(hello)),
        };
        // The channel is new and has room.
        let _ = requests.try_send(first);
        let mut request = Request::new(ReceiverStream::new(incoming));
        cluster.sign(&mut request, &principal);
        let mut client = ThreadRunnerServiceClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        let responses = client.attach(request).await?.into_inner().boxed();
        opened(member.id, requests, responses).await
    };
    let in_time = timeout(MEMBER_WITHIN, opening).await;
    in_time.unwrap_or_else(|_| Err(Status::unavailable("the member does not answer")))
}

/// Takes the welcome from a new stream.
async fn opened(
    member: MemberId,
    requests: mpsc::Sender<pb::AttachRequest>,
    mut responses: Responses,
) -> Result<Opened, Status> {
    match responses.next().await.transpose()?.and_then(|first| first.message) {
        Some(ToRunner::Welcome(welcome)) => Ok(Opened {
            member,
            welcome,
            requests,
            responses,
        }),
        Some(_) | None => Err(Status::unavailable("the member does not welcome the runner")),
    }
}

/// Adds the verdicts of a member, by thread. A thread continues if one member says so.
fn merge(verdicts: &mut BTreeMap<String, pb::HeldThreadVerdict>, welcome: &pb::RunnerWelcome) {
    for verdict in &welcome.threads {
        if verdict.go_on || !verdicts.contains_key(&verdict.thread_id) {
            verdicts.insert(verdict.thread_id.clone(), verdict.clone());
        }
    }
}

/// One runner, relayed to all members.
struct Relay {
    cluster: Cluster,
    own: MemberId,
    links: BTreeMap<MemberId, mpsc::Sender<pb::AttachRequest>>,
    /// The messages of the members. The last item of each stream is `None`.
    responses: StreamMap<MemberId, BoxStream<'static, Option<Result<pb::AttachResponse, Status>>>>,
    /// The member of each thread.
    routes: HashMap<String, MemberId>,
    /// The number of the last report of each thread whose program has stopped. The route of the thread ends when this
    /// report is acknowledged.
    stopped: HashMap<String, u64>,
    /// Calls that check whether members without a stream can be reached.
    probes: JoinSet<(MemberId, Result<(), Status>)>,
    /// The members that are being called.
    pending: BTreeSet<MemberId>,
    /// The time of the runner's last message.
    last_message: Instant,
    lease: Duration,
}

/// Why the runner must attach again.
struct Reattach(&'static str);

const LOST: Reattach = Reattach("a supervisor was lost");
const REACHED: Reattach = Reattach("another supervisor can be reached");

impl Relay {
    fn add(&mut self, opened: Opened) {
        let Opened {
            member,
            welcome,
            requests,
            responses,
        } = opened;
        for verdict in welcome.threads.into_iter().filter(|verdict| verdict.go_on) {
            self.routes.insert(verdict.thread_id, member);
        }
        let ending = futures::stream::once(std::future::ready(None));
        self.links.insert(member, requests);
        self.responses.insert(member, responses.map(Some).chain(ending).boxed());
    }

    async fn run(mut self, mut incoming: FromRunners, outbox: mpsc::Sender<Result<pb::AttachResponse, Status>>) {
        let mut ticks = interval(PROBE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let step = tokio::select! {
                () = outbox.closed() => return,
                request = incoming.next() => match request {
                    None => return,
                    Some(Err(status)) => {
                        let _ = outbox.send(Err(status)).await;
                        return;
                    }
                    Some(Ok(request)) => {
                        self.last_message = Instant::now();
                        self.take(request).await
                    }
                },
                Some((member, response)) = self.responses.next() => match response {
                    Some(Ok(response)) => self.deliver(member, response, &outbox).await,
                    Some(Err(status)) => {
                        tracing::warn!(%member, %status, "the relay of a runner to a member has ended");
                        self.end(member)
                    }
                    None => self.end(member),
                },
                Some(Ok((member, reached))) = self.probes.join_next() => {
                    self.pending.remove(&member);
                    match reached {
                        Ok(()) if self.is_silent() => Ok(()),
                        Ok(()) => Err(REACHED),
                        Err(status) => {
                            tracing::debug!(%member, %status, "a runner is not relayed to a member");
                            Ok(())
                        }
                    }
                }
                _ = ticks.tick() => {
                    self.probe_missing();
                    Ok(())
                }
            };
            if let Err(Reattach(reason)) = step {
                let go_away = pb::RunnerGoAway {
                    reason: reason.to_owned(),
                };
                let _ = outbox
                    .send(Ok(pb::AttachResponse {
                        message: Some(ToRunner::GoAway(go_away)),
                    }))
                    .await;
                return;
            }
            if self.links.is_empty() {
                return;
            }
        }
    }

    /// Drops the link to a member that has ended it. A member ends the link of a runner that was silent for a lease.
    /// The other links stay: each member counts the lease from the last message that it received. If the relay ended
    /// another link, its member would count the lease from that end.
    fn end(&mut self, member: MemberId) -> Result<(), Reattach> {
        let ended = self.lose(member);
        if self.is_silent() { Ok(()) } else { ended }
    }

    /// Returns whether the runner has been silent for half of its lease. A runner sends a heartbeat in each third.
    fn is_silent(&self) -> bool {
        self.last_message.elapsed() >= self.lease / 2
    }

    /// Calls the members without a stream. Does nothing if the runner is silent, because a silent runner would not
    /// attach again.
    fn probe_missing(&mut self) {
        if self.is_silent() {
            return;
        }
        for member in self.cluster.others() {
            let is_missing = member.last.state == MemberState::Active && !self.links.contains_key(&member.id);
            if is_missing && self.pending.insert(member.id) {
                let (cluster, id) = (self.cluster.clone(), member.id);
                self.probes.spawn(async move { (id, cluster.reach(id).await) });
            }
        }
    }

    /// Drops the link to a member.
    fn lose(&mut self, member: MemberId) -> Result<(), Reattach> {
        self.links.remove(&member);
        self.responses.remove(&member);
        let before = self.routes.len();
        self.routes.retain(|_, route| *route != member);
        if member == self.own || self.routes.len() < before {
            return Err(LOST);
        }
        Ok(())
    }

    /// Passes a message of the runner to the members that need it.
    async fn take(&mut self, request: pb::AttachRequest) -> Result<(), Reattach> {
        // The runner was silent for so long that its link to this supervisor has ended.
        if !self.links.contains_key(&self.own) {
            return Err(LOST);
        }
        let Some(message) = &request.message else {
            // The message is unknown, from a newer runner. This supervisor counts it.
            return self.send(self.own, request).await;
        };
        let thread = match message {
            FromRunner::Heartbeat(_) | FromRunner::Draining(_) => {
                let members: Vec<MemberId> = self.links.keys().copied().collect();
                for member in members {
                    self.send(member, request.clone()).await?;
                }
                return Ok(());
            }
            FromRunner::Report(report) => &report.thread_id,
            FromRunner::Telemetry(telemetry) => &telemetry.thread_id,
            FromRunner::Output(output) => &output.thread_id,
            FromRunner::ToolRequest(request) => &request.thread_id,
            FromRunner::Transcript(batch) => &batch.thread_id,
            FromRunner::StartRefused(refused) => &refused.thread_id,
            // The supervisor does not use acknowledgements of commands, and only supervisors ask for a slot.
            FromRunner::Hello(_) | FromRunner::CommandAck(_) | FromRunner::SlotNeeded(_) => return Ok(()),
        };
        // Without a route, the owner of the thread is not known. The runner sends the message again on its next stream.
        let Some(owner) = self.routes.get(thread).copied() else {
            return Ok(());
        };
        match message {
            FromRunner::Report(report) if matches!(report.kind, Some(ReportKind::Stopped(_))) => {
                self.stopped.insert(report.thread_id.clone(), report.report_sequence);
            }
            FromRunner::StartRefused(refused) if refused.refusal() == pb::StartRefusal::NoCapacity => {
                self.ask_for_slot(owner).await?;
            }
            _ => {}
        }
        self.send(owner, request).await
    }

    /// Asks the other members to stop an idle program of the runner.
    async fn ask_for_slot(&mut self, owner: MemberId) -> Result<(), Reattach> {
        let others: Vec<MemberId> = self.links.keys().copied().filter(|member| *member != owner).collect();
        for member in others {
            let request = pb::AttachRequest {
                message: Some(FromRunner::SlotNeeded(pb::SlotNeeded {})),
            };
            self.send(member, request).await?;
        }
        Ok(())
    }

    async fn send(&mut self, member: MemberId, request: pb::AttachRequest) -> Result<(), Reattach> {
        let Some(link) = self.links.get(&member) else {
            return Ok(());
        };
        match timeout(MEMBER_WITHIN, link.send(request)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => self.lose(member),
        }
    }

    /// Passes a message of a member to the runner.
    async fn deliver(
        &mut self,
        member: MemberId,
        response: pb::AttachResponse,
        outbox: &mpsc::Sender<Result<pb::AttachResponse, Status>>,
    ) -> Result<(), Reattach> {
        match &response.message {
            Some(ToRunner::Welcome(_)) => return Ok(()),
            // The next owners of its sessions ask the runner to attach again.
            Some(ToRunner::GoAway(_)) if member != self.own && self.cluster.is_leaving_member(member) => {
                self.links.remove(&member);
                self.responses.remove(&member);
                self.routes.retain(|_, route| *route != member);
                return Ok(());
            }
            Some(ToRunner::GoAway(_)) => return Err(Reattach("a supervisor requested it")),
            Some(ToRunner::StartThread(start)) => {
                self.stopped.remove(&start.thread_id);
                self.routes.insert(start.thread_id.clone(), member);
            }
            Some(ToRunner::DeliverInput(input)) => {
                self.routes.insert(input.thread_id.clone(), member);
            }
            Some(ToRunner::ReportAck(ack)) => {
                let is_last = |last: &u64| *last <= ack.report_sequence;
                if self.stopped.get(&ack.thread_id).is_some_and(is_last) {
                    self.stopped.remove(&ack.thread_id);
                    self.routes.remove(&ack.thread_id);
                }
            }
            Some(
                ToRunner::TranscriptAck(_) | ToRunner::Interrupt(_) | ToRunner::Shutdown(_) | ToRunner::ToolDecision(_),
            )
            | None => {}
        }
        // A closed outbox ends the relay with its next step.
        let _ = outbox.send(Ok(response)).await;
        Ok(())
    }
}
