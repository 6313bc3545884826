//! A fake supervisor that a test controls. It sends the messages that the test specifies and passes the runner's
//! messages to the test. Tests wait for the expected message; nothing sleeps.

use std::time::Duration;

use tokio::{
    net::TcpListener,
    sync::{Mutex, mpsc},
    task::JoinHandle,
    time::timeout,
};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming, transport::Server};
use troupe_proto::{
    common::v1::{BlockKind, PromptBlock},
    supervisor::v1::{
        AttachRequest, AttachResponse, ClosePolicy, DeliverInput, HeldThreadVerdict, Input, InputItem, InterruptTurn,
        PromptExtent, ReportAck, RunnerHello, RunnerReport, RunnerWelcome, RunningInput, ShutdownThread, StartRefused,
        StartThread, ThreadOutput, ThreadStoppedReport, ToolDecision, ToolRequest, TranscriptAck, TranscriptBatch,
        Turn, TurnEndedReport, attach_request, attach_response,
        deliver_input::Delivery,
        input_item::Item,
        runner_report::Kind,
        thread_runner_service_server::{ThreadRunnerService, ThreadRunnerServiceServer},
    },
};
use troupe_runner::{Ended, ProcessProgram, ProgramKind, RunnerConfig, RunnerError, Timing};

use crate::tools::Tools;

/// Time limit for receiving an expected message. Only a failing test waits that long.
const WAIT_LIMIT: Duration = Duration::from_secs(20);

/// The id of the thread in most tests.
pub(crate) const THREAD: &str = "0190a5a4-0000-7000-8000-000000000001";

type Outgoing = mpsc::Sender<Result<AttachResponse, Status>>;

/// The token of an opened stream, and both directions of the stream.
type Opened = (String, Outgoing, Streaming<AttachRequest>);

/// A stream that a runner has opened.
pub(crate) struct Attached {
    pub(crate) token: String,
    pub(crate) hello: RunnerHello,
    /// The batches of transcripts that were received while the test waited for other messages.
    pub(crate) transcript: Vec<TranscriptBatch>,
    /// Whether batches of transcripts are acknowledged.
    pub(crate) acknowledges_transcripts: bool,
    to_runner: Outgoing,
    from_runner: Streaming<AttachRequest>,
}

struct Service {
    attached: mpsc::Sender<Opened>,
}

#[tonic::async_trait]
impl ThreadRunnerService for Service {
    type AttachStream = ReceiverStream<Result<AttachResponse, Status>>;

    async fn attach(&self, request: Request<Streaming<AttachRequest>>) -> Result<Response<Self::AttachStream>, Status> {
        let shown = request.metadata().get("authorization");
        let token = shown
            .and_then(|shown| shown.to_str().ok()?.strip_prefix("Bearer "))
            .filter(|token| token.starts_with("runner-token"))
            .ok_or_else(|| Status::unauthenticated("who are you?"))?
            .to_owned();
        let (to_runner, outgoing) = mpsc::channel(64);
        self.attached
            .send((token, to_runner, request.into_inner()))
            .await
            .map_err(|_| Status::unavailable("over"))?;
        Ok(Response::new(ReceiverStream::new(outgoing)))
    }
}

/// A fake supervisor and the runner that connects to it.
pub(crate) struct TestRunner {
    streams: Mutex<mpsc::Receiver<Opened>>,
    runner: JoinHandle<Result<Ended, RunnerError>>,
    stop: CancellationToken,
    pub(crate) directory: tempfile::TempDir,
}

impl TestRunner {
    /// Starts a supervisor and a runner. `/bin/sh` runs the script for each thread. `$DIR` in it is a directory of the
    /// test.
    pub(crate) async fn with_script(script: &str) -> Self {
        Self::with(script, |_| {}).await
    }

    pub(crate) async fn with(script: &str, change: impl FnOnce(&mut RunnerConfig)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (attached, streams) = mpsc::channel(8);
        let service = ThreadRunnerServiceServer::new(Service { attached });
        tokio::spawn(
            Server::builder()
                .add_service(service)
                .add_service(Tools)
                .serve_with_incoming(TcpListenerStream::new(listener)),
        );

        let directory = tempfile::tempdir().unwrap();
        let script = script.replace("$DIR", directory.path().to_str().unwrap());
        let program = ProcessProgram::new("/bin/sh", ["-c".to_owned(), script]);
        let mut config = RunnerConfig::new("runner-1", url, program, directory.path().join("scratch"));
        config.token = Some("runner-token".parse().unwrap());
        config.timing = Timing {
            // Long, because only the test of this timeout needs a shorter one.
            interrupt_grace: Duration::from_secs(3600),
            stop_grace: Duration::from_millis(400),
            // Zero, because only tests of draining need more.
            drain_limit: Duration::ZERO,
            ..Timing::default()
        };
        change(&mut config);
        let stop = CancellationToken::new();
        let runner = tokio::spawn(troupe_runner::run(config, stop.clone()));
        Self {
            streams: Mutex::new(streams),
            runner,
            stop,
            directory,
        }
    }

    /// Returns the next stream that the runner opens, after a welcome with these verdicts.
    pub(crate) async fn attached(&self, verdicts: Vec<HeldThreadVerdict>) -> Attached {
        let mut streams = self.streams.lock().await;
        let (token, to_runner, mut from_runner) = timeout(WAIT_LIMIT, streams.recv())
            .await
            .expect("the runner attaches")
            .unwrap();
        let first = timeout(WAIT_LIMIT, from_runner.message())
            .await
            .expect("the runner sends a hello")
            .unwrap()
            .unwrap();
        let Some(attach_request::Message::Hello(hello)) = first.message else {
            panic!("expected a hello first, got {first:?}");
        };
        let attached = Attached {
            token,
            hello,
            transcript: Vec::new(),
            acknowledges_transcripts: true,
            to_runner,
            from_runner,
        };
        attached
            .send(attach_response::Message::Welcome(RunnerWelcome {
                lease: Some(prost_types::Duration { seconds: 3, nanos: 0 }),
                peers: Vec::new(),
                threads: verdicts,
            }))
            .await;
        attached
    }

    /// Returns the first stream, after a command to start a thread.
    pub(crate) async fn started(&self, start: StartThread) -> Attached {
        let supervisor = self.attached(Vec::new()).await;
        supervisor.start(start).await;
        supervisor
    }

    /// Returns the first stream, after the start of a thread's first turn.
    pub(crate) async fn in_first_turn(&self) -> Attached {
        let mut supervisor = self.started(start()).await;
        supervisor.turn_started().await;
        supervisor
    }

    /// Requests that the runner stops.
    pub(crate) fn request_stop(&self) {
        self.stop.cancel();
    }

    /// Stops the runner and waits for its end.
    pub(crate) async fn shut_down(self) -> Result<Ended, RunnerError> {
        self.request_stop();
        self.ended().await
    }

    /// Waits for the runner's end.
    pub(crate) async fn ended(self) -> Result<Ended, RunnerError> {
        timeout(WAIT_LIMIT, self.runner)
            .await
            .expect("the runner ends")
            .unwrap()
    }

    /// Returns the content of a file that the program wrote, without its line end.
    pub(crate) fn file(&self, name: &str) -> String {
        let path = self.directory.path().join(name);
        std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
    }
}

impl Attached {
    pub(crate) async fn send(&self, message: attach_response::Message) {
        let response = AttachResponse { message: Some(message) };
        self.to_runner.send(Ok(response)).await.unwrap();
    }

    pub(crate) async fn start(&self, start: StartThread) {
        self.send(attach_response::Message::StartThread(start)).await;
    }

    pub(crate) async fn give_turn(&self, turn: Turn) {
        self.deliver(1, Delivery::Turn(turn)).await;
    }

    pub(crate) async fn give_input(&self, number: u32, turn: u32, text: &str) {
        let running = RunningInput {
            number,
            turn,
            input: Some(input(text)),
        };
        self.deliver(1, Delivery::Running(running)).await;
    }

    pub(crate) async fn deliver(&self, generation: u32, delivery: Delivery) {
        self.send(attach_response::Message::DeliverInput(DeliverInput {
            command_id: "deliver".to_owned(),
            thread_id: THREAD.to_owned(),
            generation,
            delivery: Some(delivery),
        }))
        .await;
    }

    pub(crate) async fn interrupt(&self, turn: u32) {
        self.send(attach_response::Message::Interrupt(InterruptTurn {
            command_id: "interrupt".to_owned(),
            thread_id: THREAD.to_owned(),
            generation: 1,
            turn,
            reason: "enough".to_owned(),
        }))
        .await;
    }

    pub(crate) async fn close(&self, policy: ClosePolicy, grace: Duration) {
        self.close_generation(1, policy, grace).await;
    }

    pub(crate) async fn close_generation(&self, generation: u32, policy: ClosePolicy, grace: Duration) {
        self.stop_program(generation, policy, grace, false).await;
    }

    /// Stops the program of a thread that stays open.
    pub(crate) async fn stop_idle_program(&self) {
        self.stop_program(1, ClosePolicy::Terminate, WAIT_LIMIT, true).await;
    }

    async fn stop_program(&self, generation: u32, policy: ClosePolicy, grace: Duration, thread_goes_on: bool) {
        self.send(attach_response::Message::Shutdown(ShutdownThread {
            command_id: "shutdown".to_owned(),
            thread_id: THREAD.to_owned(),
            generation,
            close_policy: policy.into(),
            grace: grace.try_into().ok(),
            reason: "closed".to_owned(),
            thread_goes_on,
        }))
        .await;
    }

    pub(crate) async fn acknowledge(&self, report: &RunnerReport) {
        self.send(attach_response::Message::ReportAck(ReportAck {
            thread_id: report.thread_id.clone(),
            generation: report.generation,
            report_sequence: report.report_sequence,
        }))
        .await;
    }

    /// Returns the first result of `pick`. Drops the messages before it.
    async fn receive<T>(&mut self, what: &str, pick: impl Fn(attach_request::Message) -> Option<T>) -> T {
        let found = async {
            loop {
                let request = self.from_runner.message().await.unwrap().expect("the stream continues");
                if let Some(attach_request::Message::Transcript(batch)) = &request.message {
                    self.transcript.push(batch.clone());
                    if self.acknowledges_transcripts {
                        let ack = TranscriptAck {
                            thread_id: batch.thread_id.clone(),
                            generation: batch.generation,
                            batch: batch.batch,
                        };
                        self.send(attach_response::Message::TranscriptAck(ack)).await;
                    }
                }
                if let Some(found) = request.message.and_then(&pick) {
                    return found;
                }
            }
        };
        timeout(WAIT_LIMIT, found)
            .await
            .unwrap_or_else(|_| panic!("did not receive {what}"))
    }

    /// Receives a batch of a transcript, and all batches before it.
    pub(crate) async fn batch(&mut self, number: u64) {
        self.receive("a batch", |message| match message {
            attach_request::Message::Transcript(batch) if batch.batch == number => Some(()),
            _ => None,
        })
        .await;
    }

    /// Returns the next report without acknowledging it.
    pub(crate) async fn report(&mut self) -> RunnerReport {
        self.receive("a report", |message| match message {
            attach_request::Message::Report(report) => Some(report),
            _ => None,
        })
        .await
    }

    /// Returns and acknowledges the next report.
    pub(crate) async fn acknowledged_report(&mut self) -> RunnerReport {
        let report = self.report().await;
        self.acknowledge(&report).await;
        report
    }

    pub(crate) async fn turn_started(&mut self) -> u32 {
        match self.acknowledged_report().await.kind {
            Some(Kind::TurnStarted(started)) => started.turn,
            other => panic!("expected the start of a turn, got {other:?}"),
        }
    }

    pub(crate) async fn turn_ended(&mut self) -> TurnEndedReport {
        match self.acknowledged_report().await.kind {
            Some(Kind::TurnEnded(ended)) => ended,
            other => panic!("expected the end of a turn, got {other:?}"),
        }
    }

    /// Returns the diff of the turn that ends next.
    pub(crate) async fn diff(&mut self) -> String {
        match self.acknowledged_report().await.kind {
            Some(Kind::Artifact(artifact)) if artifact.kind == "diff" => {
                String::from_utf8(artifact.data.into()).expect("a diff is text")
            }
            other => panic!("expected a turn's diff, got {other:?}"),
        }
    }

    pub(crate) async fn stopped(&mut self) -> ThreadStoppedReport {
        match self.acknowledged_report().await.kind {
            Some(Kind::Stopped(stopped)) => stopped,
            other => panic!("expected the stop of the thread, got {other:?}"),
        }
    }

    /// Returns the next permission request.
    pub(crate) async fn question(&mut self) -> ToolRequest {
        self.receive("a question", |message| match message {
            attach_request::Message::ToolRequest(request) => Some(request),
            _ => None,
        })
        .await
    }

    /// Answers a permission request. An empty reason allows the tool.
    pub(crate) async fn decide(&self, question: &ToolRequest, reason: &str) {
        self.send(attach_response::Message::ToolDecision(ToolDecision {
            request_id: question.request_id.clone(),
            allowed: reason.is_empty(),
            reason: reason.to_owned(),
            approval_id: String::new(),
        }))
        .await;
    }

    /// Allows the next permission request.
    pub(crate) async fn allow(&mut self) {
        let question = self.question().await;
        self.decide(&question, "").await;
    }

    pub(crate) async fn refused(&mut self) -> StartRefused {
        self.receive("a refusal", |message| match message {
            attach_request::Message::StartRefused(refused) => Some(refused),
            _ => None,
        })
        .await
    }

    /// Waits for output that contains the words.
    pub(crate) async fn output(&mut self, words: &str) {
        self.receive(words, |message| match message {
            attach_request::Message::Output(ThreadOutput { text, .. }) => text.contains(words).then_some(()),
            _ => None,
        })
        .await;
    }

    /// Waits for an activity.
    pub(crate) async fn activity(&mut self, activity: &str) {
        self.receive(activity, |message| match message {
            attach_request::Message::Telemetry(telemetry) => (telemetry.activity == activity).then_some(()),
            _ => None,
        })
        .await;
    }

    /// Waits until the runner reports that it drains.
    pub(crate) async fn draining(&mut self) {
        self.receive("the drain notice", |message| {
            matches!(message, attach_request::Message::Draining(_)).then_some(())
        })
        .await;
    }

    pub(crate) async fn heartbeat(&mut self) {
        self.receive("a heartbeat", |message| {
            matches!(message, attach_request::Message::Heartbeat(_)).then_some(())
        })
        .await;
    }
}

/// Changes the only program of a runner.
pub(crate) fn change(config: &mut RunnerConfig, change: impl FnOnce(&mut ProcessProgram)) {
    match &mut config.programs.programs[0].kind {
        ProgramKind::Process(program) => change(program),
        other => panic!("{other:?}"),
    }
}

/// Returns the start of a thread in its first generation, with its first turn.
pub(crate) fn start() -> StartThread {
    StartThread {
        command_id: "start".to_owned(),
        session_id: "session".to_owned(),
        thread_id: THREAD.to_owned(),
        generation: 1,
        turn: Some(turn(1)),
        ..Default::default()
    }
}

/// Returns a turn with a complete prompt.
pub(crate) fn turn(number: u32) -> Turn {
    Turn {
        turn: number,
        blocks: vec![
            block(BlockKind::System, "the system"),
            block(BlockKind::Task, "the task"),
        ],
        extent: PromptExtent::Full.into(),
        inputs: vec![input("do it")],
        ..Default::default()
    }
}

pub(crate) fn block(kind: BlockKind, text: &str) -> PromptBlock {
    PromptBlock {
        kind: kind.into(),
        text: text.to_owned(),
        sha256: String::new(),
    }
}

pub(crate) fn input(text: &str) -> Input {
    Input {
        items: vec![InputItem {
            item: Some(Item::Text(text.to_owned())),
        }],
        ..Input::default()
    }
}

/// Returns a verdict for [`THREAD`].
pub(crate) fn verdict(go_on: bool, applied_report_sequence: u64) -> HeldThreadVerdict {
    HeldThreadVerdict {
        thread_id: THREAD.to_owned(),
        go_on,
        applied_report_sequence,
    }
}
