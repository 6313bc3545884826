//! A runner that a test controls: a real client of the runner protocol without programs.
//!
//! The runner sends nothing by itself. It buffers the messages of the supervisor, so that a test can read a message of
//! one kind before earlier messages of other kinds. When [`Runner::report`] returns, the report is durable or void.

use std::collections::{BTreeMap, VecDeque};

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use troupe_proto::{
    common::v1::BlockKind,
    supervisor::v1::{
        AttachRequest, AttachResponse, HeldThread, InterruptTurn, RunnerHeartbeat, RunnerHello, RunnerKind,
        RunnerReport, RunnerWelcome, RunningInput, ShutdownThread, StartRefusal, StartRefused, StartThread,
        ThreadStoppedReport, ToolDecision, ToolRequest, TranscriptBatch, TranscriptEntry, Turn, TurnEndedReport,
        TurnOutcome, TurnStartedReport, Usage, attach_request::Message as ToSupervisor,
        attach_response::Message as FromSupervisor, deliver_input::Delivery, runner_report::Kind,
    },
};

use crate::{
    client::Runners,
    pair::{Pair, RUNNER},
    within,
};

/// Maximum number of unsent messages; no test reaches it.
const OUTGOING: usize = 64;

/// A runner on an open stream.
pub struct Runner {
    id: String,
    welcome: RunnerWelcome,
    outgoing: mpsc::Sender<AttachRequest>,
    incoming: Streaming<AttachResponse>,
    unread: VecDeque<FromSupervisor>,
    /// Number of the last report of each attempt.
    reports: BTreeMap<(String, u32), u64>,
}

/// An attempt at a thread that the runner holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The thread.
    pub thread: String,
    /// The attempt.
    pub generation: u32,
    /// The latest turn.
    pub turn: u32,
}

impl Attempt {
    /// Returns the attempt of a start.
    #[must_use]
    pub fn of(start: &StartThread) -> Self {
        Self {
            thread: start.thread_id.clone(),
            generation: start.generation,
            turn: start.turn.as_ref().unwrap().turn,
        }
    }
}

/// Returns the hello of a runner with all capabilities and without threads.
#[must_use]
pub fn hello(id: &str) -> RunnerHello {
    RunnerHello {
        runner_id: id.to_owned(),
        kinds: vec![RunnerKind {
            kind: String::from("test"),
            enforces_tools: true,
            enforces_read_only: true,
            enforces_workspace: true,
        }],
        ..RunnerHello::default()
    }
}

impl Runner {
    /// Attaches a runner with all capabilities and without threads.
    pub async fn attach(pair: &Pair, id: &str) -> Self {
        Self::greet(pair, hello(id)).await
    }

    /// Attaches with a hello that `change` has changed.
    pub async fn attach_where(pair: &Pair, id: &str, change: impl FnOnce(&mut RunnerHello)) -> Self {
        let mut hello = hello(id);
        change(&mut hello);
        Self::greet(pair, hello).await
    }

    /// Attaches with this hello.
    pub async fn greet(pair: &Pair, hello: RunnerHello) -> Self {
        Self::greet_by(pair.runners(RUNNER), hello).await
    }

    /// Attaches with this hello through the runner API of the given supervisor.
    pub async fn greet_by(mut client: Runners, hello: RunnerHello) -> Self {
        let id = hello.runner_id.clone();
        let (outgoing, stream) = mpsc::channel(OUTGOING);
        // Sent before the call, because the server responds only after it has read the hello.
        outgoing.send(request(ToSupervisor::Hello(hello))).await.unwrap();
        let attached = within("an answer to hello", client.attach(ReceiverStream::new(stream))).await;
        let mut incoming = attached.unwrap().into_inner();
        let first = within("welcome", incoming.message()).await.unwrap().unwrap();
        let Some(FromSupervisor::Welcome(welcome)) = first.message else {
            panic!("welcome comes first, not {first:?}");
        };
        Self {
            id,
            welcome,
            outgoing,
            incoming,
            unread: VecDeque::new(),
            reports: BTreeMap::new(),
        }
    }

    /// Breaks the stream and attaches again with these attempts. The hello contains the number of the last report of
    /// each attempt.
    pub async fn come_back(self, pair: &Pair, held: &[Attempt]) -> Self {
        self.come_back_by(pair.runners(RUNNER), held).await
    }

    /// Does the same as [`Self::come_back`] through the runner API of the given supervisor.
    pub async fn come_back_by(self, client: Runners, held: &[Attempt]) -> Self {
        let Self {
            id,
            reports,
            outgoing,
            incoming,
            ..
        } = self;
        drop((outgoing, incoming));
        let threads = held.iter().map(|attempt| HeldThread {
            thread_id: attempt.thread.clone(),
            generation: attempt.generation,
            turn: attempt.turn,
            report_sequence: reports
                .get(&(attempt.thread.clone(), attempt.generation))
                .copied()
                .unwrap_or_default(),
        });
        let hello = RunnerHello {
            threads: threads.collect(),
            ..hello(&id)
        };
        Self {
            reports,
            ..Self::greet_by(client, hello).await
        }
    }

    /// Returns the supervisor's response to the hello.
    #[must_use]
    pub const fn welcome(&self) -> &RunnerWelcome {
        &self.welcome
    }

    /// Sends a message.
    pub async fn say(&self, message: ToSupervisor) {
        self.outgoing.send(request(message)).await.unwrap();
    }

    /// Sends a heartbeat, unless the stream has ended.
    pub async fn beat(&self) {
        let _ = self
            .outgoing
            .send(request(ToSupervisor::Heartbeat(RunnerHeartbeat {})))
            .await;
    }

    /// Sends a message of an unknown kind.
    pub async fn send_unknown_message(&self) {
        self.outgoing.send(AttachRequest { message: None }).await.unwrap();
    }

    /// Sends a report with this number and waits for its acknowledgement. Returns false if the stream ends before the
    /// acknowledgement.
    pub async fn try_report(&mut self, attempt: &Attempt, number: u64, kind: Kind) -> bool {
        let report = ToSupervisor::Report(RunnerReport {
            thread_id: attempt.thread.clone(),
            generation: attempt.generation,
            report_sequence: number,
            kind: Some(kind),
        });
        if self.outgoing.send(request(report)).await.is_err() {
            return false;
        }
        within("an acknowledgement or the end of the stream", async {
            loop {
                let Ok(Some(response)) = self.incoming.message().await else {
                    return false;
                };
                match response.message {
                    Some(FromSupervisor::GoAway(_)) => return false,
                    Some(FromSupervisor::ReportAck(ack))
                        if ack.thread_id == attempt.thread && ack.report_sequence == number =>
                    {
                        return true;
                    }
                    Some(message) => self.unread.push_back(message),
                    None => {}
                }
            }
        })
        .await
    }

    /// Returns the first unread message for which `pick` returns a value; `what` names the expectation.
    pub async fn next<T>(&mut self, what: &str, pick: impl Fn(&FromSupervisor) -> Option<T>) -> T {
        if let Some(place) = self.unread.iter().position(|message| pick(message).is_some()) {
            let message = self.unread.remove(place).unwrap();
            return pick(&message).unwrap();
        }
        within(what, async {
            loop {
                let response = self.incoming.message().await.unwrap().expect("the stream continues");
                let message = response.message.unwrap();
                if let Some(picked) = pick(&message) {
                    return picked;
                }
                self.unread.push_back(message);
            }
        })
        .await
    }

    /// Returns the next start, of any thread.
    pub async fn start(&mut self) -> StartThread {
        self.next("a start", |message| match message {
            FromSupervisor::StartThread(start) => Some(start.clone()),
            _ => None,
        })
        .await
    }

    /// Returns the start of a thread.
    pub async fn start_of(&mut self, thread: &str) -> StartThread {
        self.next("the start of a thread", |message| match message {
            FromSupervisor::StartThread(start) if start.thread_id == thread => Some(start.clone()),
            _ => None,
        })
        .await
    }

    /// Returns the next turn of an attempt that the runner holds.
    pub async fn turn_of(&mut self, attempt: &Attempt) -> Turn {
        self.next("the next turn of a thread", |message| match message {
            FromSupervisor::DeliverInput(delivered) if delivered.thread_id == attempt.thread => {
                match &delivered.delivery {
                    Some(Delivery::Turn(turn)) => Some(turn.clone()),
                    Some(Delivery::Running(_)) | None => None,
                }
            }
            _ => None,
        })
        .await
    }

    /// Returns the next input for an attempt's running turn.
    pub async fn input_of(&mut self, attempt: &Attempt) -> RunningInput {
        self.next("input for a running turn", |message| match message {
            FromSupervisor::DeliverInput(input) if input.thread_id == attempt.thread => match &input.delivery {
                Some(Delivery::Running(running)) => Some(running.clone()),
                Some(Delivery::Turn(_)) | None => None,
            },
            _ => None,
        })
        .await
    }

    /// Returns the interrupt of an attempt's turn.
    pub async fn interrupt_of(&mut self, attempt: &Attempt) -> InterruptTurn {
        self.next("the interrupt of a turn", |message| match message {
            FromSupervisor::Interrupt(interrupt) if interrupt.thread_id == attempt.thread => Some(interrupt.clone()),
            _ => None,
        })
        .await
    }

    /// Returns the next request to stop a program, of any thread.
    pub async fn shutdown(&mut self) -> ShutdownThread {
        self.next("a shutdown", |message| match message {
            FromSupervisor::Shutdown(shutdown) => Some(shutdown.clone()),
            _ => None,
        })
        .await
    }

    /// Asks whether a tool call may run and returns the next decision.
    pub async fn ask(&mut self, call: ToolRequest) -> ToolDecision {
        self.say(ToSupervisor::ToolRequest(call)).await;
        self.decision().await
    }

    /// Returns the next decision on a tool call, of any thread.
    pub async fn decision(&mut self) -> ToolDecision {
        self.next("a decision", |message| match message {
            FromSupervisor::ToolDecision(decision) => Some(decision.clone()),
            _ => None,
        })
        .await
    }

    /// Returns the number of unread requests to stop a program.
    #[must_use]
    pub fn unread_shutdowns(&self) -> usize {
        self.unread
            .iter()
            .filter(|message| matches!(message, FromSupervisor::Shutdown(_)))
            .count()
    }

    /// Returns the report numbers of an attempt's unread acknowledgements.
    #[must_use]
    pub fn unread_acks(&self, attempt: &Attempt) -> Vec<u64> {
        self.unread
            .iter()
            .filter_map(|message| match message {
                FromSupervisor::ReportAck(ack) if ack.thread_id == attempt.thread => Some(ack.report_sequence),
                _ => None,
            })
            .collect()
    }

    /// Receives a thread's start and begins its first turn.
    pub async fn run(&mut self, thread: &str) -> Attempt {
        let start = self.start_of(thread).await;
        self.begin_start(&start).await
    }

    /// Begins the turn of a start and returns the attempt.
    pub async fn begin_start(&mut self, start: &StartThread) -> Attempt {
        let attempt = Attempt::of(start);
        self.begin(&attempt).await;
        attempt
    }

    /// Reports that an attempt's turn began.
    pub async fn begin(&mut self, attempt: &Attempt) {
        let turn = attempt.turn;
        self.report(attempt, Kind::TurnStarted(TurnStartedReport { turn }))
            .await;
    }

    /// Receives the next turn of an attempt that the runner holds, and begins it.
    pub async fn next_turn(&mut self, attempt: &mut Attempt) -> Turn {
        let turn = self.turn_of(attempt).await;
        attempt.turn = turn.turn;
        self.begin(attempt).await;
        turn
    }

    /// Reports that an attempt's turn completed, with this last message.
    pub async fn complete(&mut self, attempt: &Attempt, message: &str) {
        self.end(attempt, TurnOutcome::Completed, message).await;
    }

    /// Reports that an attempt's turn completed, with the usage of the attempt so far.
    pub async fn complete_having_used(&mut self, attempt: &Attempt, usage: Usage) {
        let report = TurnEndedReport {
            turn: attempt.turn,
            outcome: TurnOutcome::Completed.into(),
            usage: Some(usage),
            ..TurnEndedReport::default()
        };
        self.report(attempt, Kind::TurnEnded(report)).await;
    }

    /// Reports that an attempt's turn ended.
    pub async fn end(&mut self, attempt: &Attempt, outcome: TurnOutcome, message: &str) {
        self.report(attempt, ended(attempt, outcome, message)).await;
    }

    /// Reports that an attempt's program has ended as requested.
    pub async fn stop(&mut self, attempt: &Attempt) {
        let stopped = ThreadStoppedReport {
            detail: String::from("exit status 0"),
            killed: false,
        };
        self.report(attempt, Kind::Stopped(stopped)).await;
    }

    /// Receives the next request to stop a program and reports that this attempt's program has ended.
    pub async fn stop_as_asked(&mut self, attempt: &Attempt) {
        self.shutdown().await;
        self.stop(attempt).await;
    }

    /// Rejects the start of an attempt.
    pub async fn refuse(&self, attempt: &Attempt, refusal: StartRefusal, message: &str) {
        self.say(ToSupervisor::StartRefused(StartRefused {
            thread_id: attempt.thread.clone(),
            generation: attempt.generation,
            refusal: refusal.into(),
            message: message.to_owned(),
        }))
        .await;
    }

    /// Sends the next report of an attempt and waits until it is durable or void.
    pub async fn report(&mut self, attempt: &Attempt, kind: Kind) {
        let number = self
            .reports
            .entry((attempt.thread.clone(), attempt.generation))
            .or_default();
        *number += 1;
        let number = *number;
        self.report_as(attempt, number, kind).await;
    }

    /// Sends a report with this number and does not wait for an acknowledgement.
    pub async fn send_report(&self, attempt: &Attempt, number: u64, kind: Kind) {
        self.say(ToSupervisor::Report(RunnerReport {
            thread_id: attempt.thread.clone(),
            generation: attempt.generation,
            report_sequence: number,
            kind: Some(kind),
        }))
        .await;
    }

    /// Sends a report with this number and waits until it is durable or void.
    pub async fn report_as(&mut self, attempt: &Attempt, number: u64, kind: Kind) {
        self.send_report(attempt, number, kind).await;
        self.next("the acknowledgement of a report", |message| match message {
            FromSupervisor::ReportAck(ack)
                if ack.thread_id == attempt.thread
                    && ack.generation == attempt.generation
                    && ack.report_sequence == number =>
            {
                Some(())
            }
            _ => None,
        })
        .await;
    }

    /// Sends a batch of an attempt's transcript and does not wait for its acknowledgement.
    pub async fn send_batch(&self, attempt: &Attempt, batch: u64, entries: Vec<TranscriptEntry>) {
        self.say(ToSupervisor::Transcript(TranscriptBatch {
            thread_id: attempt.thread.clone(),
            generation: attempt.generation,
            batch,
            entries,
        }))
        .await;
    }

    /// Sends a batch of an attempt's transcript and waits until it is durable or void.
    pub async fn transcribe(&mut self, attempt: &Attempt, batch: u64, entries: Vec<TranscriptEntry>) {
        self.send_batch(attempt, batch, entries).await;
        self.next("the acknowledgement of a batch", |message| match message {
            FromSupervisor::TranscriptAck(ack) if ack.thread_id == attempt.thread && ack.batch == batch => Some(()),
            _ => None,
        })
        .await;
    }

    /// Waits until the supervisor ends the stream and returns the messages before the end.
    pub async fn ended(mut self) -> Vec<FromSupervisor> {
        within("the end of the stream", async {
            // The supervisor may have ended without closing the stream.
            while let Ok(Some(response)) = self.incoming.message().await {
                self.unread.extend(response.message);
            }
        })
        .await;
        self.unread.into()
    }
}

/// Returns the text of a turn's block.
///
/// # Panics
///
/// If the turn has no block of that kind.
#[must_use]
pub fn text(turn: &Turn, kind: BlockKind) -> &str {
    let block = turn.blocks.iter().find(|block| block.kind() == kind);
    &block.unwrap().text
}

/// Returns the text of a turn's task.
#[must_use]
pub fn task(turn: &Turn) -> &str {
    text(turn, BlockKind::Task)
}

/// Returns the report of an ended turn.
#[must_use]
pub fn ended(attempt: &Attempt, outcome: TurnOutcome, message: &str) -> Kind {
    Kind::TurnEnded(TurnEndedReport {
        turn: attempt.turn,
        outcome: outcome.into(),
        message: message.to_owned(),
        ..TurnEndedReport::default()
    })
}

fn request(message: ToSupervisor) -> AttachRequest {
    AttachRequest { message: Some(message) }
}
