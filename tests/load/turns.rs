//! Threads with turns: a runner without programs that ends each turn immediately, and sessions with many ended turns.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::Streaming;
use troupe_proto::supervisor::v1::{
    AttachRequest, AttachResponse, RunnerHeartbeat, RunnerReport, ThreadStoppedReport, TurnOutcome, TurnStartedReport,
    attach_request::Message as ToSupervisor, attach_response::Message as FromSupervisor, deliver_input::Delivery,
    runner_report::Kind,
};
use troupe_tests::{
    agents::settled,
    client,
    runner::{self, Attempt},
    tree::Tree,
};

use crate::session::WRITERS;

/// Maximum number of unsent messages to the supervisor.
const OUTGOING: usize = 64;
/// Interval of heartbeats: a third of the time after which the supervisor considers a silent runner lost.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// A runner that ends each turn as soon as it receives it, until the runner is dropped or its supervisor ends.
pub(crate) struct Worker {
    _working: AbortOnDropHandle<()>,
}

impl Worker {
    pub(crate) async fn attach(supervisor: SocketAddr) -> Self {
        let (outgoing, requests) = mpsc::channel(OUTGOING);
        // Sent before the call, because the supervisor responds only after it has read the hello.
        say(&outgoing, ToSupervisor::Hello(runner::hello("worker"))).await;
        let attached = client::runners(supervisor, None)
            .attach(ReceiverStream::new(requests))
            .await;
        let work = Work {
            outgoing,
            reports: BTreeMap::new(),
        };
        let working = tokio::spawn(work.all_of(attached.unwrap().into_inner()));
        Self {
            _working: AbortOnDropHandle::new(working),
        }
    }
}

struct Work {
    outgoing: mpsc::Sender<AttachRequest>,
    /// The number of the last report of each attempt.
    reports: BTreeMap<(String, u32), u64>,
}

impl Work {
    async fn all_of(mut self, mut incoming: Streaming<AttachResponse>) {
        let mut beat = interval(HEARTBEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let message = tokio::select! {
                message = incoming.message() => message,
                _ = beat.tick() => {
                    say(&self.outgoing, ToSupervisor::Heartbeat(RunnerHeartbeat {})).await;
                    continue;
                }
            };
            let Ok(Some(AttachResponse { message: Some(message) })) = message else {
                return;
            };
            match message {
                FromSupervisor::StartThread(start) => self.end(Attempt::of(&start)).await,
                FromSupervisor::DeliverInput(input) => {
                    if let Some(Delivery::Turn(turn)) = input.delivery {
                        self.end(Attempt {
                            thread: input.thread_id,
                            generation: input.generation,
                            turn: turn.turn,
                        })
                        .await;
                    }
                }
                FromSupervisor::Shutdown(shutdown) => {
                    let attempt = Attempt {
                        thread: shutdown.thread_id,
                        generation: shutdown.generation,
                        turn: 0,
                    };
                    let stopped = ThreadStoppedReport::default();
                    self.report(&attempt, Kind::Stopped(stopped)).await;
                }
                // Acknowledgements are ignored, because this runner ends with its stream and resends nothing.
                _ => {}
            }
        }
    }

    /// Reports that the attempt's turn began and ended.
    async fn end(&mut self, attempt: Attempt) {
        let turn = attempt.turn;
        // A different text each time, because repeated messages count as a stall.
        let said = format!("The result of turn {turn}. {}", "It has a few sentences. ".repeat(10));
        let reports = [
            Kind::TurnStarted(TurnStartedReport { turn }),
            runner::ended(&attempt, TurnOutcome::Completed, &said),
        ];
        for kind in reports {
            self.report(&attempt, kind).await;
        }
    }

    async fn report(&mut self, attempt: &Attempt, kind: Kind) {
        let number = self
            .reports
            .entry((attempt.thread.clone(), attempt.generation))
            .or_default();
        *number += 1;
        let report = RunnerReport {
            thread_id: attempt.thread.clone(),
            generation: attempt.generation,
            report_sequence: *number,
            kind: Some(kind),
        };
        say(&self.outgoing, ToSupervisor::Report(report)).await;
    }
}

async fn say(outgoing: &mpsc::Sender<AttachRequest>, message: ToSupervisor) {
    let request = AttachRequest { message: Some(message) };
    // The channel closes when the supervisor ends. The stream then ends as well.
    let _ = outgoing.send(request).await;
}

/// Spawns threads and gives each of them `turns` turns. All are settled at the end. A [`Worker`] must be attached.
pub(crate) async fn play(tree: &Tree, threads: usize, turns: usize) {
    let mut playing = JoinSet::new();
    for player in 0..WRITERS {
        let (tree, share) = (tree.clone(), (player..threads).step_by(WRITERS));
        playing.spawn(async move {
            for _ in share {
                let thread = tree.spawn("worker").await.id;
                settled(&tree, &thread).await;
                for turn in 1..turns {
                    tree.send(&thread, &format!("What comes after turn {turn}?")).await;
                    settled(&tree, &thread).await;
                }
            }
        });
    }
    playing.join_all().await;
}
