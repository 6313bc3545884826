//! The Attach RPC: one stream per runner. The first message is a hello; reports and commands follow in order.

use std::{collections::BTreeMap, future::pending, sync::Arc, time::Duration};

use futures::{
    StreamExt as _, TryStreamExt as _,
    stream::{BoxStream, FuturesOrdered},
};
use opentelemetry::metrics::Counter;
use supervisor_log::codec::parts::{usage_from_pb, usage_to_pb};
use svc_kit::{identity::Principal, instruments::counter};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};
use troupe_proto::{
    fault::Fault,
    reason::Reason,
    supervisor::v1::{self as pb, attach_request::Message as FromRunner, attach_response::Message as ToRunner},
};

use super::{
    artifacts::{ReportPosition, UnfinishedArtifacts},
    hub::{AttemptState, OUTBOX, RunnerHub, StopReason},
    output::OutputBoard,
    placement::Offer,
    protocol::{self, MAX_DETAIL_BYTES, ReadReport},
    runner::Attempt,
    telemetry::TelemetryBoard,
};
use crate::{
    domain::{
        command::{Command, Report},
        content::truncate,
        event::ConditionKind,
        ids::{Generation, ReportSequence, RunnerId, SessionId, ThreadId},
        principal::Actor,
        rules::{
            authorize::{MAX_PATH_BYTES, MAX_PATHS},
            budget, stall,
        },
        settings::{Price, Sandbox, Usage},
        state::{
            session::Session,
            thread::{ResultRequest, Thread},
        },
        transcript::TranscriptSource,
    },
    engine::{Directory, Done, Failure, Handle, Origin},
    results,
    tool_decisions::{ARGUMENTS_BYTES, Decision, KnownBy, ToolCallRequest, ToolDecisions},
    transcripts::{self, Transcripts},
};

/// How long a new stream may take to send its hello.
pub(crate) const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// The maximum length of a tool name in a tool request, in bytes.
pub(crate) const MAX_TOOL_BYTES: usize = 256;

/// The maximum size of the arguments in a tool request, in bytes.
pub(crate) const MAX_ARGUMENTS_BYTES: usize = ARGUMENTS_BYTES;

/// The maximum number of undecided tool requests per stream. Each may wait for an operator.
pub(crate) const MAX_UNDECIDED: usize = 1_024;

/// The maximum number of reports per stream that wait for their append.
pub(crate) const REPORTS_IN_FLIGHT: usize = 256;

/// The maximum number of batches of transcripts per stream that wait for their append.
pub(crate) const BATCHES_IN_FLIGHT: usize = 64;

/// The maximum length of a runner id or a tool request id, in bytes.
pub(crate) const MAX_ID_BYTES: usize = 128;

/// The maximum length of a runner kind, a label key or a label value, in bytes.
pub(crate) const MAX_LABEL_BYTES: usize = 128;

/// The maximum number of kinds that a runner offers.
pub(crate) const MAX_KINDS: usize = 16;

/// The maximum number of labels of a runner.
pub(crate) const MAX_LABELS: usize = 32;

/// The maximum number of threads in the hello of a returning runner.
pub(crate) const MAX_HELD: usize = 100_000;

/// The messages from a runner.
pub(crate) type FromRunners = BoxStream<'static, Result<pb::AttachRequest, Status>>;

/// The messages for a runner.
pub(crate) type ForRunner = ReceiverStream<Result<pb::AttachResponse, Status>>;

/// Returns the first message of a runner's stream, which must be a hello.
///
/// # Errors
/// INVALID_ARGUMENT if the first message is not a hello or does not arrive in time.
pub(crate) async fn first_hello(incoming: &mut FromRunners) -> Result<pb::RunnerHello, Status> {
    let first = match timeout(HELLO_WITHIN, incoming.try_next()).await {
        Ok(first) => first?.and_then(|first| first.message),
        Err(_) => None,
    };
    match first {
        Some(FromRunner::Hello(hello)) => Ok(hello),
        Some(_) | None => {
            let text = "the first message of a runner must be hello";
            Err(Fault::new(Code::InvalidArgument, Reason::InvalidArgument, text).into())
        }
    }
}

/// Accepts the streams of runners.
#[derive(Clone)]
pub struct RunnerGate {
    directory: Directory,
    hub: RunnerHub,
    telemetry: TelemetryBoard,
    output: OutputBoard,
    decisions: ToolDecisions,
    transcripts: Transcripts,
    /// Counts messages and reports that this release does not know.
    unknown_messages: Counter<u64>,
    draining: CancellationToken,
}

impl RunnerGate {
    /// Creates a gate to the sessions of `directory`. The gate closes when `draining` is cancelled.
    #[must_use]
    pub fn new(
        directory: Directory,
        hub: RunnerHub,
        telemetry: TelemetryBoard,
        output: OutputBoard,
        decisions: ToolDecisions,
        transcripts: Transcripts,
        draining: CancellationToken,
    ) -> Self {
        Self {
            directory,
            hub,
            telemetry,
            output,
            decisions,
            transcripts,
            unknown_messages: counter(
                "troupe.runners.passed_over",
                "Messages and reports of runners that this release does not know",
            ),
            draining,
        }
    }

    /// Returns how long a silent runner keeps its attempts.
    pub const fn lease(&self) -> Duration {
        self.hub.lease()
    }

    /// Returns the present price of a thread's model, if it is known.
    fn price(&self, session: &Session, thread: ThreadId) -> Option<Price> {
        let thread = session.thread(thread)?;
        let now = self.directory.clock().now();
        self.directory.prices().of_thread(session, thread, now)
    }

    /// Returns the action for each thread that a returning runner holds, and the attempts that the runner keeps.
    async fn review(
        &self,
        runner: &RunnerId,
        held: &[pb::HeldThread],
    ) -> Result<(Vec<pb::HeldThreadVerdict>, BTreeMap<ThreadId, Attempt>), Failure> {
        let mut verdicts = Vec::new();
        let mut kept = BTreeMap::new();
        for held in held {
            let mut verdict = pb::HeldThreadVerdict {
                thread_id: held.thread_id.clone(),
                go_on: false,
                applied_report_sequence: 0,
            };
            let found = match self.thread(&held.thread_id).await {
                // The owner of the session decides about the thread when it receives the hello of this stream or of the
                // next one. The thread continues until then. An unknown owner may be this supervisor, so the runner
                // must attach again.
                Err(Failure::Elsewhere { owner: Some(_), .. }) => continue,
                found => found?,
            };
            if let Some((session, thread)) = found
                && thread.is_held_by(runner, Generation::new(held.generation))
                // If the numbers differ, the turn was sent but did not arrive. The attempt ends and a new one starts.
                && (thread.turn.awaits_dispatch() || thread.turn.number().get() == held.turn)
            {
                verdict.go_on = true;
                verdict.applied_report_sequence = thread.last_report.get();
                let is_idle = !thread.status.kind().is_active();
                kept.insert(thread.id, Attempt::new(session, thread.generation, is_idle));
            }
            verdicts.push(verdict);
        }
        Ok((verdicts, kept))
    }

    /// Rechecks the attempts that an attached runner may continue. An attempt that ended between the review and
    /// the attachment has no pending effects, so this call stops it.
    async fn review_again(&self, runner: &RunnerId, kept: &BTreeMap<ThreadId, Attempt>) -> Result<(), Failure> {
        for (id, held) in kept {
            let session = none_if_missing(self.directory.session(held.session).await)?;
            let why = match session.and_then(|session| session.state().thread(*id).cloned()) {
                Some(thread) if thread.is_held_by(runner, held.generation) => continue,
                Some(thread) if thread.status.kind().is_open() => StopReason::Superseded,
                Some(_) | None => StopReason::Closed,
            };
            self.hub.stop_ended(runner, *id, held.generation, why);
        }
        Ok(())
    }

    /// Returns a thread and its session; `None` if the thread does not exist.
    async fn thread(&self, id: &str) -> Result<Option<(SessionId, Arc<Thread>)>, Failure> {
        let Ok(id) = id.parse::<ThreadId>() else {
            return Ok(None);
        };
        let found = none_if_missing(self.directory.session_of(id).await)?.flatten();
        Ok(found.and_then(|handle| Some((handle.id(), handle.state().thread(id).cloned()?))))
    }

    /// Decides a tool call of one of the runner's threads. Waits for the operator if the call needs approval.
    ///
    /// # Errors
    /// The reason why the call may not run, if it was refused without an operator.
    async fn tool(&self, runner: &RunnerId, request: pb::ToolRequest, origin: Origin) -> Result<Decision, String> {
        let unknown = || String::from("the agent is not known to this supervisor");
        let thread = request.thread_id.parse::<ThreadId>().map_err(|_| unknown())?;
        let generation = Generation::new(request.generation);
        let session = self.session(runner, thread, generation).await;
        let session = session.map_err(|failure| failure.to_string())?.ok_or_else(unknown)?;
        let state = session.state();
        let present = state.thread(thread).filter(|thread| thread.generation == generation);
        let sandbox = present.ok_or_else(unknown)?.sandbox;
        let unredacted = match request.arguments_sha256.as_str() {
            "" => None,
            digest => Some(
                digest
                    .parse()
                    .map_err(|_| String::from("arguments_sha256 must be 64 lower-case hexadecimal digits or empty"))?,
            ),
        };
        let kind = Some(request.runner_kind.as_str()).filter(|kind| !kind.is_empty());
        let call = ToolCallRequest {
            confined: self.hub.confines(runner, kind, sandbox),
            docs_only: request.docs_only && self.hub.confines(runner, kind, Sandbox::WorkspaceWrite),
            tool: request.tool,
            arguments: request.arguments_json,
            request: None,
            unredacted,
            omitted_bytes: request.omitted_bytes,
            known_by: KnownBy::Content,
            runner_kind: request.runner_kind,
            paths: request.resolved_paths,
        };
        if request.not_offered {
            return Err(self.decisions.refuse_unoffered(&session, thread, &call));
        }
        let decided = self.decisions.decide(&session, thread, &call, origin, pending()).await;
        // Fail closed: a call that cannot be recorded does not run.
        decided.map_err(|failure| failure.to_string())
    }

    /// Returns the session of an attempt that the runner holds. Returns `None` if the session is deleted, or if the
    /// runner does not hold this attempt; such messages are ignored.
    async fn session(
        &self,
        runner: &RunnerId,
        thread: ThreadId,
        generation: Generation,
    ) -> Result<Option<Handle>, Failure> {
        match self.hub.session_of(runner, thread, generation) {
            Some(session) => none_if_missing(self.directory.session(session).await),
            None => Ok(None),
        }
    }

    /// Serves the stream of a runner after its hello, for the sessions of this supervisor. Returns the messages for the
    /// runner; the first is a welcome.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the hello is invalid; otherwise the failure to read the runner's threads.
    pub(crate) async fn attach_over(
        &self,
        principal: &Principal,
        hello: pb::RunnerHello,
        incoming: FromRunners,
    ) -> Result<ForRunner, Status> {
        let hello_at = Instant::now();
        let (runner, offer) = check(&hello)?;
        tracing::info!(%runner, %principal, kinds = hello.kinds.len(), "runner attached");

        let (outbox, responses) = mpsc::channel(OUTBOX);
        // An error must not abandon attempts that could not be reviewed: the runner attaches again.
        let (threads, kept) = self.review(&runner, &hello.threads).await?;
        let welcome = pb::RunnerWelcome {
            lease: prost_types::Duration::try_from(self.hub.lease()).ok(),
            peers: Vec::new(),
            threads,
        };
        // The send cannot fail for lack of capacity: the outbox is not shared yet.
        let _ = outbox.try_send(Ok(pb::AttachResponse {
            message: Some(ToRunner::Welcome(welcome)),
        }));
        let continuing = kept.clone();
        let answers = outbox.downgrade();
        let number = self.hub.attach(&runner, offer, outbox, hello_at, kept);
        let stream = Stream {
            gate: self.clone(),
            runner,
            number,
            answers,
        };
        tokio::spawn(async move {
            match stream.gate.review_again(&stream.runner, &continuing).await {
                Ok(()) => stream.serve(incoming).await,
                // An error must not abandon attempts that could not be reviewed: the runner attaches again.
                Err(failure) => {
                    tracing::warn!(runner = %stream.runner, %failure, "attempts of a runner not reviewed");
                }
            }
            tracing::info!(runner = %stream.runner, "runner disconnected");
            stream.gate.hub.detach(&stream.runner, number, Instant::now());
        });
        Ok(ReceiverStream::new(responses))
    }
}

/// The stream of one runner.
struct Stream {
    gate: RunnerGate,
    runner: RunnerId,
    /// The stream's number, unique in the hub.
    number: u64,
    /// The sender of responses. It is valid while the hub holds the outbox.
    answers: mpsc::WeakSender<Result<pb::AttachResponse, Status>>,
}

type Applied = oneshot::Receiver<Result<Done, Failure>>;

impl Stream {
    /// Serves the stream until it ends, is silent for a lease, is replaced by a later stream, or the service drains.
    async fn serve(&self, mut incoming: FromRunners) {
        let mut in_flight = FuturesOrdered::new();
        let mut batches = FuturesOrdered::new();
        // The tasks end with the stream. The runner repeats its requests on the next stream.
        let mut undecided = JoinSet::new();
        let mut unfinished = UnfinishedArtifacts::default();
        let mut has_logged = false;
        let lease = self.gate.hub.lease();
        let mut last_activity = Instant::now();
        loop {
            let room = in_flight.len() < REPORTS_IN_FLIGHT && batches.len() < BATCHES_IN_FLIGHT;
            tokio::select! {
                // Acknowledge durable reports before taking more messages.
                biased;
                () = self.gate.draining.cancelled() => {
                    let reason = String::from("the supervisor is shutting down");
                    self.gate.hub.send(&self.runner, ToRunner::GoAway(pb::RunnerGoAway { reason }));
                    return;
                }
                Some(ack) = in_flight.next(), if !in_flight.is_empty() => {
                    // An unrecorded report ends the stream. The runner resends the report on the next stream.
                    let Some(ack) = ack else { return };
                    self.gate.hub.send(&self.runner, ToRunner::ReportAck(ack));
                }
                Some(ack) = batches.next(), if !batches.is_empty() => {
                    let Some(ack) = ack else { return };
                    self.gate.hub.send(&self.runner, ToRunner::TranscriptAck(ack));
                }
                Some(decided) = undecided.join_next(), if !undecided.is_empty() => match decided {
                    Ok(decision) => self.decide(decision),
                    Err(error) => tracing::error!(runner = %self.runner, %error, "the decision on a tool call panicked"),
                },
                message = timeout_at(last_activity + lease, incoming.try_next()), if room => {
                    let Ok(message) = message else {
                        // The lease has expired. It runs from the last message, not from the time of this check.
                        self.gate.hub.detach(&self.runner, self.number, last_activity);
                        return;
                    };
                    let message = match message {
                        Ok(Some(pb::AttachRequest { message })) => message,
                        Ok(None) => return,
                        Err(status) => {
                            // The message was malformed or too large. Report the error if the stream is still open.
                            if let Some(answers) = self.answers.upgrade() {
                                let _ = answers.try_send(Err(status));
                            }
                            return;
                        }
                    };
                    last_activity = Instant::now();
                    // Messages of a stream that a later one replaced are ignored.
                    if !self.gate.hub.is_present(&self.runner, self.number) {
                        return;
                    }
                    let Some(message) = message else {
                        self.ignore_unknown(&mut has_logged, "message");
                        continue;
                    };
                    self.record_activity(&message).await;
                    match message {
                        FromRunner::Report(report) => {
                            if report.kind.is_none() {
                                self.ignore_unknown(&mut has_logged, "report");
                            }
                            match self.report(report, &mut unfinished).await {
                                Ok(Some((ack, applied))) => in_flight.push_back(acknowledge(ack, applied, self)),
                                Ok(None) => {}
                                Err(failure) => return self.unrecorded(&failure),
                            }
                        }
                        FromRunner::StartRefused(refused) => {
                            if let Err(failure) = self.start_refused(refused).await {
                                return self.unrecorded(&failure);
                            }
                        }
                        FromRunner::Transcript(batch) => match self.transcript(batch).await {
                            Ok(Some(stored)) => batches.push_back(stored),
                            Ok(None) => {}
                            Err(failure) => return self.unrecorded(&failure),
                        },
                        FromRunner::Telemetry(telemetry) => self.telemetry(telemetry).await,
                        FromRunner::ToolRequest(request) => self.tool(request, &mut undecided),
                        FromRunner::Output(output) => self.output(&output),
                        FromRunner::Heartbeat(_) => self.gate.hub.heartbeat(&self.runner),
                        FromRunner::SlotNeeded(_) => self.gate.hub.free_slot(&self.runner),
                        FromRunner::Draining(_) => {
                            tracing::info!(runner = %self.runner, "runner draining");
                            self.gate.hub.drain(&self.runner);
                        }
                        // Every message renews the lease. A second hello is ignored. Commands need no
                        // acknowledgement: the next stream repeats the commands whose effects are pending.
                        FromRunner::Hello(_) | FromRunner::CommandAck(_) => {}
                    }
                }
            }
        }
    }

    /// Records activity of an attempt. A message about an attempt proves that the attempt is alive, and ends a
    /// stall.
    async fn record_activity(&self, message: &FromRunner) {
        let Some((thread, generation)) = attempt_of(message) else {
            return;
        };
        let Some(session) = self.gate.hub.record_activity(&self.runner, thread, generation) else {
            return;
        };
        // A passivated session has no running thread, so none of its threads can be stalled.
        let Some(state) = self.gate.directory.peek(session) else {
            return;
        };
        let rule = &state.settings.stall;
        if !state
            .thread(thread)
            .is_some_and(|thread| stall::is_by_silence(thread, rule))
        {
            return;
        }
        let command = Command::SetCondition {
            thread,
            generation,
            kind: ConditionKind::Stalled,
            active: false,
            reason: String::from("the thread is active again"),
        };
        let Ok(session) = self.gate.directory.session(session).await else {
            return;
        };
        // The result is not awaited. If the append fails, the next message records the end of the stall.
        let _ = session.submit(command, Origin::service(), None, Vec::new()).await;
    }

    fn output(&self, output: &pb::ThreadOutput) {
        let Ok(thread) = output.thread_id.parse::<ThreadId>() else {
            return;
        };
        let generation = Generation::new(output.generation);
        let hub = &self.gate.hub;
        if hub.attempt_state(&self.runner, thread, generation, None) == AttemptState::Held
            && let Some(session) = hub.session_of(&self.runner, thread, generation)
        {
            self.gate.output.put(session, thread, generation, &output.text);
        }
    }

    /// Ignores a message that only newer releases know. Each one is counted; the first one of a stream is logged.
    fn ignore_unknown(&self, has_logged: &mut bool, what: &'static str) {
        self.gate.unknown_messages.add(1, &[]);
        if !std::mem::replace(has_logged, true) {
            tracing::warn!(
                runner = %self.runner,
                what,
                "a message of a newer runner was ignored; upgrade the supervisor before its runners"
            );
        }
    }

    /// Logs that the stream ends because a report could not be recorded. The runner resends the report on the next
    /// stream.
    fn unrecorded(&self, failure: &Failure) {
        tracing::warn!(runner = %self.runner, %failure, "a report was not recorded");
    }

    /// Puts a report into its session's mailbox. The acknowledgement follows when the report is durable or void. A part
    /// of an artifact is not acknowledged separately, because it is durable only with the whole artifact.
    ///
    /// # Errors
    /// The failure to reach the session. The report must not be acknowledged.
    async fn report(
        &self,
        report: pb::RunnerReport,
        unfinished: &mut UnfinishedArtifacts,
    ) -> Result<Option<(pb::ReportAck, Option<Applied>)>, Failure> {
        let Ok(thread) = report.thread_id.parse::<ThreadId>() else {
            return Ok(None);
        };
        let generation = Generation::new(report.generation);
        let sequence = ReportSequence::new(report.report_sequence);
        let ack = pb::ReportAck {
            thread_id: report.thread_id.clone(),
            generation: report.generation,
            report_sequence: report.report_sequence,
        };
        let stopped = matches!(report.kind, Some(pb::runner_report::Kind::Stopped(_)));
        let session = self.gate.session(&self.runner, thread, generation).await?;
        if stopped {
            self.gate.hub.release(&self.runner, thread, generation);
        }
        let Some(session) = session else {
            return Ok(Some((ack, None)));
        };
        let position = ReportPosition {
            thread,
            generation,
            sequence,
        };
        let state = session.state();
        let prompt_log = state.settings.prompt_log;
        let requested = result_request(&state, thread, &report);
        let clock = self.gate.directory.clock();
        let (mut report, mut contents) = match protocol::read_report(position, report, unfinished, prompt_log, clock) {
            ReadReport::Report(report) => *report,
            ReadReport::Part => return Ok(None),
            ReadReport::Ignored => return Ok(Some((ack, None))),
        };
        if let Report::TurnEnded { price, result, .. } = &mut report {
            *price = self.gate.price(&state, thread);
            if let Some((request, message)) = requested {
                let store = self.gate.directory.store().as_ref();
                let check = results::check_message(store, session.id(), &request, message, &mut contents).await?;
                *result = Some(Box::new(check));
            }
        }
        let command = Command::Report {
            thread,
            generation,
            sequence,
            report,
        };
        let applied = session.submit(command, self.origin(), None, contents).await?;
        Ok(Some((ack, Some(applied))))
    }

    /// Begins to store a batch of a transcript. The batch is durable before any later report. The returned future
    /// completes with the acknowledgement; `None` if the batch could not be stored, so that the runner resends it on
    /// the next stream.
    ///
    /// # Errors
    /// The failure to reach the session.
    async fn transcript(
        &self,
        batch: pb::TranscriptBatch,
    ) -> Result<Option<impl Future<Output = Option<pb::TranscriptAck>> + use<>>, Failure> {
        let Ok(thread) = batch.thread_id.parse::<ThreadId>() else {
            return Ok(None);
        };
        let generation = Generation::new(batch.generation);
        let session = self.gate.session(&self.runner, thread, generation).await?;
        let ack = pb::TranscriptAck {
            thread_id: batch.thread_id,
            generation: batch.generation,
            batch: batch.batch,
        };
        let transcripts = self.gate.transcripts.clone();
        let now = self.gate.directory.clock().now();
        let runner = self.runner.clone();
        let appended = match session {
            None => None,
            Some(session) => {
                let log = session.state().settings.transcript;
                let source = TranscriptSource {
                    session: session.id(),
                    thread,
                    generation,
                    batch: ack.batch,
                };
                let entries = transcripts::stored(generation, batch.entries, log, now);
                Some(transcripts.append(source, entries, now).await)
            }
        };
        Ok(Some(async move {
            let Some(appended) = appended else {
                return Some(ack);
            };
            match appended.durable().await {
                Ok(()) => Some(ack),
                Err(error) => {
                    tracing::warn!(%runner, %error, "a part of a transcript was not stored");
                    None
                }
            }
        }))
    }

    async fn start_refused(&self, refused: pb::StartRefused) -> Result<(), Failure> {
        let Ok(thread) = refused.thread_id.parse::<ThreadId>() else {
            return Ok(());
        };
        let generation = Generation::new(refused.generation);
        let Some(session) = self.gate.session(&self.runner, thread, generation).await? else {
            return Ok(());
        };
        let full = refused.refusal() == pb::StartRefusal::NoCapacity;
        let why = truncate(&refused.message, MAX_DETAIL_BYTES);
        self.gate.hub.start_rejected(&self.runner, thread, generation, full);
        let command = match refused.refusal() {
            pb::StartRefusal::NoCapacity => Command::LoseRunner {
                thread,
                generation,
                reason: String::from("the runner had no free slot"),
            },
            pb::StartRefusal::PolicyNotEnforceable => Command::RefuseStart {
                thread,
                generation,
                message: format!("POLICY_NOT_ENFORCEABLE: {why}"),
            },
            pb::StartRefusal::NoProgram | pb::StartRefusal::Unspecified => Command::RefuseStart {
                thread,
                generation,
                message: why.to_owned(),
            },
        };
        // A report of an ended attempt is void.
        if let Err(failure) = session.execute(command, self.origin(), None, Vec::new()).await {
            tracing::debug!(%thread, %failure, "a start that was refused is not recorded");
        }
        Ok(())
    }

    /// Publishes the latest values to watchers. Writes usage to the log if it counts against a budget or was not
    /// recorded for a long time.
    async fn telemetry(&self, telemetry: pb::Telemetry) {
        let Ok(thread) = telemetry.thread_id.parse::<ThreadId>() else {
            return;
        };
        // A passivated session has no running thread. Telemetry of an idle program does not activate it.
        let generation = Generation::new(telemetry.generation);
        let present = self.gate.hub.session_of(&self.runner, thread, generation);
        if present.is_none_or(|session| self.gate.directory.peek(session).is_none()) {
            return;
        }
        let Ok(Some(session)) = self.gate.session(&self.runner, thread, generation).await else {
            return;
        };
        let state = session.state();
        // Late telemetry of an earlier attempt is ignored.
        let Some(present) = state.thread(thread).filter(|thread| thread.generation == generation) else {
            return;
        };
        let usage = telemetry.usage.and_then(|usage| usage_from_pb(usage).ok());
        let price = self.gate.price(&state, thread);
        // A runner counts per attempt and knows no prices. Watchers and readers see the thread's total over all
        // attempts.
        let telemetry = pb::Telemetry {
            usage: usage.map(|usage| {
                let metered = budget::metered(&state, present, &usage, price.as_ref(), session.now());
                let wall_time = usage.wall_time;
                usage_to_pb(present.earlier_usage.plus(Usage { wall_time, ..metered }))
            }),
            ..telemetry
        };
        self.gate.telemetry.put(session.id(), thread, telemetry);
        if let Some(usage) = usage
            && budget::is_checkpoint_due(&state, thread, generation, &usage, price.as_ref(), session.now())
        {
            let command = Command::RecordUsage {
                thread,
                generation,
                usage,
                price,
            };
            // The result is not awaited. The next telemetry repeats usage that is not recorded now.
            let _ = session.submit(command, self.origin(), None, Vec::new()).await;
        }
    }

    /// Takes a tool request. It is decided in a separate task, because an operator may take minutes.
    fn tool(&self, request: pb::ToolRequest, undecided: &mut JoinSet<pb::ToolDecision>) {
        let is_full = undecided.len() >= MAX_UNDECIDED;
        let many = is_full.then(|| {
            format!(
                "{MAX_UNDECIDED} tool calls of this runner are not decided yet, which is the limit; call again later"
            )
        });
        if let Some(reason) = too_large(&request).or(many) {
            self.decide(decision(request.request_id, Err(reason)));
            return;
        }
        let (gate, runner, origin) = (self.gate.clone(), self.runner.clone(), self.origin());
        undecided.spawn(async move {
            let request_id = request.request_id.clone();
            decision(request_id, gate.tool(&runner, request, origin).await)
        });
    }

    fn decide(&self, decision: pb::ToolDecision) {
        self.gate.hub.send(&self.runner, ToRunner::ToolDecision(decision));
    }

    fn origin(&self) -> Origin {
        Origin {
            actor: Actor::Runner(self.runner.clone()),
            request_id: None,
            traceparent: None,
        }
    }
}

/// Builds the response to a tool request.
fn decision(request_id: String, decided: Result<Decision, String>) -> pb::ToolDecision {
    let (refusal, approval) = match decided {
        Ok(decision) => (decision.outcome.refusal(), decision.approval),
        Err(reason) => (Some(reason), None),
    };
    pb::ToolDecision {
        request_id,
        allowed: refusal.is_none(),
        reason: refusal.unwrap_or_default(),
        approval_id: approval.map(|id| id.to_string()).unwrap_or_default(),
    }
}

/// Returns which part of a tool request exceeds its limit; `None` if none does.
fn too_large(request: &pb::ToolRequest) -> Option<String> {
    let longest_path = request.resolved_paths.iter().map(String::len).max();
    let bounds = [
        ("request_id", request.request_id.len(), MAX_ID_BYTES),
        ("tool", request.tool.len(), MAX_TOOL_BYTES),
        ("arguments_json", request.arguments_json.len(), MAX_ARGUMENTS_BYTES),
        ("runner_kind", request.runner_kind.len(), MAX_LABEL_BYTES),
        (
            "a path of resolved_paths",
            longest_path.unwrap_or_default(),
            MAX_PATH_BYTES,
        ),
    ];
    let paths = request.resolved_paths.len();
    let too_long = bounds.into_iter().find(|(_, bytes, max)| bytes > max);
    let what = too_long
        .map(|(what, bytes, max)| format!("{what} has {bytes} bytes; at most {max} are allowed"))
        .or_else(|| (paths > MAX_PATHS).then(|| format!("{paths} resolved_paths; at most {MAX_PATHS} are allowed")))?;
    Some(format!("the tool call is too large to be decided: {what}"))
}

/// Maps a missing session to `None`.
fn none_if_missing<T>(result: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(Failure::SessionNotFound(_)) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Returns the attempt whose activity a message proves.
fn attempt_of(message: &FromRunner) -> Option<(ThreadId, Generation)> {
    let (thread, generation) = match message {
        FromRunner::Report(report) => (&report.thread_id, report.generation),
        FromRunner::Telemetry(telemetry) => (&telemetry.thread_id, telemetry.generation),
        FromRunner::Output(output) => (&output.thread_id, output.generation),
        FromRunner::ToolRequest(request) => (&request.thread_id, request.generation),
        FromRunner::Transcript(batch) => (&batch.thread_id, batch.generation),
        FromRunner::Hello(_)
        | FromRunner::Heartbeat(_)
        | FromRunner::SlotNeeded(_)
        | FromRunner::StartRefused(_)
        | FromRunner::CommandAck(_)
        | FromRunner::Draining(_) => return None,
    };
    Some((thread.parse().ok()?, Generation::new(generation)))
}

/// Returns the acknowledgement when the report is durable or void. A report that could not be written is not
/// acknowledged: the runner keeps it and resends it.
async fn acknowledge(ack: pb::ReportAck, applied: Option<Applied>, stream: &Stream) -> Option<pb::ReportAck> {
    match applied {
        None => Some(ack),
        Some(applied) => match applied.await {
            Ok(Ok(_)) => Some(ack),
            Ok(Err(Failure::Refused(_) | Failure::TooLarge(_))) => Some(ack),
            Ok(Err(failure)) => {
                tracing::warn!(runner = %stream.runner, %failure, "a report was not recorded");
                None
            }
            Err(_) => None,
        },
    }
}

fn check(hello: &pb::RunnerHello) -> Result<(RunnerId, Offer), Status> {
    let id = &hello.runner_id;
    if id.is_empty() || id.len() > MAX_ID_BYTES || id.chars().any(char::is_control) {
        return Err(bad_hello(
            "hello.runner_id",
            &format!("runner_id must have 1 to {MAX_ID_BYTES} bytes without control characters"),
        ));
    }
    if hello.kinds.is_empty() || hello.kinds.len() > MAX_KINDS {
        let text = format!("a runner must offer 1 to {MAX_KINDS} kinds");
        return Err(bad_hello("hello.kinds", &text));
    }
    if !hello.kinds.iter().all(|offered| is_label(&offered.kind)) {
        let text = format!("a kind must have at most {MAX_LABEL_BYTES} bytes without control characters");
        return Err(bad_hello("hello.kinds", &text));
    }
    if hello.labels.len() > MAX_LABELS {
        let text = format!("a runner may have at most {MAX_LABELS} labels");
        return Err(bad_hello("hello.labels", &text));
    }
    if !hello
        .labels
        .iter()
        .all(|(key, value)| !key.is_empty() && is_label(key) && is_label(value))
    {
        let text = format!(
            "a runner's labels must have keys of 1 to {MAX_LABEL_BYTES} bytes and values of at most {MAX_LABEL_BYTES}, \
             without control characters"
        );
        return Err(bad_hello("hello.labels", &text));
    }
    if hello.threads.len() > MAX_HELD {
        let text = format!("a runner may hold at most {MAX_HELD} threads");
        return Err(bad_hello("hello.threads", &text));
    }
    let session = match hello.session_id.as_str() {
        "" => None,
        id => Some(
            id.parse()
                .map_err(|_| bad_hello("hello.session_id", "session_id must be a UUID or empty"))?,
        ),
    };
    let offer = Offer {
        kinds: hello.kinds.clone(),
        labels: hello.labels.clone(),
        capacity: hello.capacity,
        session,
        is_single_use: hello.single_use,
    };
    Ok((RunnerId::new(id.clone()), offer))
}

/// Checks that a caller may attach under this runner id.
///
/// # Errors
///
/// PERMISSION_DENIED if the caller's certificate or pod has another name.
pub(crate) fn permit(principal: &Principal, id: &str) -> Result<(), Status> {
    let Principal::Runner { ids, .. } = principal else {
        return Ok(());
    };
    ids.check(id).map_err(|remedy| {
        let shown: String = id.chars().take(MAX_ID_BYTES).collect();
        let text = format!("the runner id {shown:?} is not this caller's: {remedy}");
        Fault::new(Code::PermissionDenied, Reason::NotPermitted, text).into()
    })
}

fn is_label(text: &str) -> bool {
    text.len() <= MAX_LABEL_BYTES && !text.chars().any(char::is_control)
}

fn bad_hello(field: &str, text: &str) -> Status {
    Fault::bad_field(Reason::InvalidArgument, field, text).into()
}

/// Returns the request for a result that a completed turn has not reported, and the turn's last message. Such a
/// request changes only when a turn is dispatched or a result is reported, so the state before the report of the
/// turn's end is sufficient.
fn result_request(
    session: &Session,
    thread: ThreadId,
    report: &pb::RunnerReport,
) -> Option<(Arc<ResultRequest>, String)> {
    match &report.kind {
        Some(pb::runner_report::Kind::TurnEnded(ended)) if ended.outcome() == pb::TurnOutcome::Completed => {
            let request = session.thread(thread)?.result_request.clone()?;
            Some((request, ended.message.clone()))
        }
        _ => None,
    }
}
