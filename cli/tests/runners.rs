//! Tests of the supervisor with an external runner that disconnects and reconnects.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeMap;

use support::{Client, TIME_LIMIT};
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Streaming, transport::Channel};
use troupe_proto::supervisor::v1::{
    AttachRequest, AttachResponse, CloseAgentRequest, CreateSessionRequest, GetThreadRequest, HeldThread, PromptExtent,
    RunnerHello, RunnerKind, RunnerReport, RunnerWelcome, SendInputRequest, SpawnAgentRequest, StartThread, StatusKind,
    ThreadStoppedReport, TurnEndedReport, TurnOutcome, TurnStartedReport, WaitAgentsRequest,
    attach_request::Message as ToSupervisor, attach_response::Message as FromSupervisor, deliver_input::Delivery,
    runner_report::Kind, thread_runner_service_client::ThreadRunnerServiceClient,
};

/// A stream of a runner named `other`.
struct Runner {
    to: mpsc::Sender<AttachRequest>,
    from: Streaming<AttachResponse>,
    welcome: RunnerWelcome,
    /// The last report number of each thread.
    reports: BTreeMap<String, u64>,
}

impl Runner {
    async fn attach(channel: Channel, threads: Vec<HeldThread>) -> Self {
        let (to, outgoing) = mpsc::channel(16);
        let hello = RunnerHello {
            runner_id: String::from("other"),
            kinds: vec![RunnerKind {
                kind: String::from("test"),
                enforces_tools: true,
                enforces_read_only: true,
                enforces_workspace: true,
            }],
            threads,
            ..RunnerHello::default()
        };
        to.send(AttachRequest {
            message: Some(ToSupervisor::Hello(hello)),
        })
        .await
        .unwrap();
        let mut client = ThreadRunnerServiceClient::new(channel);
        let mut from = client.attach(ReceiverStream::new(outgoing)).await.unwrap().into_inner();
        let first = timeout(TIME_LIMIT, from.message()).await.unwrap().unwrap().unwrap();
        let Some(FromSupervisor::Welcome(welcome)) = first.message else {
            panic!("no welcome")
        };
        Self {
            to,
            from,
            welcome,
            reports: BTreeMap::new(),
        }
    }

    /// Returns the first message that `pick` accepts.
    async fn next<T>(&mut self, pick: impl Fn(FromSupervisor) -> Option<T>) -> T {
        timeout(TIME_LIMIT, async {
            loop {
                let message = self.from.message().await.unwrap().expect("the stream continues");
                if let Some(picked) = message.message.and_then(&pick) {
                    return picked;
                }
            }
        })
        .await
        .unwrap()
    }

    async fn start(&mut self) -> StartThread {
        self.next(|message| match message {
            FromSupervisor::StartThread(start) => Some(start),
            _ => None,
        })
        .await
    }

    async fn report(&mut self, thread: &str, generation: u32, kind: Kind) {
        let number = self.reports.entry(format!("{thread}/{generation}")).or_default();
        *number += 1;
        let report = RunnerReport {
            thread_id: thread.to_owned(),
            generation,
            report_sequence: *number,
            kind: Some(kind),
        };
        self.to
            .send(AttachRequest {
                message: Some(ToSupervisor::Report(report)),
            })
            .await
            .unwrap();
    }

    async fn play_turn(&mut self, thread: &str, generation: u32, turn: u32) {
        self.report(thread, generation, Kind::TurnStarted(TurnStartedReport { turn }))
            .await;
        let ended = TurnEndedReport {
            turn,
            outcome: TurnOutcome::Completed.into(),
            message: format!("turn {turn} is done"),
            ..TurnEndedReport::default()
        };
        self.report(thread, generation, Kind::TurnEnded(ended)).await;
    }
}

async fn spawn(client: &mut Client) -> String {
    let session = client
        .create_session(CreateSessionRequest::default())
        .await
        .unwrap()
        .into_inner();
    let request = SpawnAgentRequest {
        session_id: session.session.unwrap().session_id,
        agent_type: String::from("worker"),
        message: Some(String::from("the first task")),
        ..SpawnAgentRequest::default()
    };
    client
        .spawn_agent(request)
        .await
        .unwrap()
        .into_inner()
        .thread
        .unwrap()
        .thread_id
}

async fn send(client: &mut Client, thread: &str, text: &str) {
    let request = SendInputRequest {
        thread_id: thread.to_owned(),
        message: Some(text.to_owned()),
        ..SendInputRequest::default()
    };
    client.send_input(request).await.unwrap();
}

async fn settled(client: &mut Client, thread: &str) -> (StatusKind, String) {
    let request = WaitAgentsRequest {
        thread_ids: vec![thread.to_owned()],
        ..WaitAgentsRequest::default()
    };
    let answer = timeout(TIME_LIMIT, client.wait_agents(request))
        .await
        .unwrap()
        .unwrap()
        .into_inner();
    let status = answer.statuses[0].status.clone().unwrap();
    (status.kind(), status.message)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undelivered_turn_is_dispatched_again() {
    let home = tempfile::tempdir().unwrap();
    let (_process, mut client, channel) = support::start_with_channel(home.path(), &[]).await;
    let thread = spawn(&mut client).await;
    let waits = client
        .get_thread(GetThreadRequest {
            thread_id: thread.clone(),
            ..Default::default()
        })
        .await
        .unwrap();
    assert_eq!(waits.into_inner().thread.unwrap().conditions.len(), 1, "NO_RUNNER");

    let mut runner = Runner::attach(channel.clone(), Vec::new()).await;
    let first = runner.start().await;
    assert_eq!((first.thread_id.as_str(), first.generation), (thread.as_str(), 1));
    let turn = first.turn.unwrap();
    assert_eq!((turn.turn, turn.extent()), (1, PromptExtent::Full));
    assert!(turn.blocks.iter().any(|block| block.text.contains("the first task")));
    runner.play_turn(&thread, 1, 1).await;
    assert_eq!(
        settled(&mut client, &thread).await,
        (StatusKind::Completed, String::from("turn 1 is done"))
    );

    // The program is still running, so it gets the new input. The stream breaks before the runner reads it.
    send(&mut client, &thread, "the second task").await;
    let delivered = runner
        .next(|message| match message {
            FromSupervisor::DeliverInput(input) => input.delivery,
            _ => None,
        })
        .await;
    let Delivery::Turn(turn) = delivered else {
        panic!("no turn")
    };
    assert_eq!((turn.turn, turn.extent()), (2, PromptExtent::Delta));
    drop(runner);

    let held = HeldThread {
        thread_id: thread.clone(),
        generation: 1,
        turn: 1,
        report_sequence: 2,
    };
    let mut runner = Runner::attach(channel, vec![held]).await;
    assert!(!runner.welcome.threads[0].go_on, "its attempt is over");
    let again = runner.start().await;
    assert!(again.generation > 1);
    let turn = again.turn.unwrap();
    assert_eq!(turn.extent(), PromptExtent::Full);
    assert!(
        turn.blocks.iter().any(|block| block.text.contains("the second task")),
        "nothing is lost"
    );

    // Reports of the old attempt are ignored, but still acknowledged.
    runner.reports.insert(format!("{thread}/1"), 2);
    runner.play_turn(&thread, 1, 2).await;
    runner.play_turn(&thread, again.generation, turn.turn).await;
    let (kind, message) = settled(&mut client, &thread).await;
    assert_eq!(
        (kind, message),
        (StatusKind::Completed, format!("turn {} is done", turn.turn))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_is_delivered_when_the_runner_returns() {
    let home = tempfile::tempdir().unwrap();
    let (_process, mut client, channel) = support::start_with_channel(home.path(), &[]).await;
    let thread = spawn(&mut client).await;
    let mut runner = Runner::attach(channel.clone(), Vec::new()).await;
    runner.start().await;
    runner.play_turn(&thread, 1, 1).await;
    settled(&mut client, &thread).await;
    drop(runner);

    let close = CloseAgentRequest {
        thread_id: thread.clone(),
        ..CloseAgentRequest::default()
    };
    client.close_agent(close.clone()).await.unwrap();
    let held = HeldThread {
        thread_id: thread.clone(),
        generation: 1,
        turn: 1,
        report_sequence: 2,
    };
    let mut runner = Runner::attach(channel, vec![held]).await;
    assert!(runner.welcome.threads[0].go_on);
    runner
        .next(|message| match message {
            FromSupervisor::Shutdown(shutdown) => Some(shutdown),
            _ => None,
        })
        .await;
    runner.reports.insert(format!("{thread}/1"), 2);
    let stopped = ThreadStoppedReport {
        detail: String::from("exit status 0"),
        killed: false,
    };
    runner.report(&thread, 1, Kind::Stopped(stopped)).await;
    // A repeated close changes nothing and waits until the thread is shut down.
    let down = client.close_agent(CloseAgentRequest { wait: true, ..close });
    let down = timeout(TIME_LIMIT, down)
        .await
        .unwrap()
        .unwrap()
        .into_inner()
        .thread
        .unwrap();
    assert_eq!(down.status.unwrap().kind(), StatusKind::Shutdown);
}
