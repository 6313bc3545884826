//! The rate of messages to all watchers together, against raw streams of the same messages.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tonic::Streaming;
use troupe_proto::supervisor::v1::{WatchThreadsRequest, WatchThreadsResponse, watch_threads_response::Message};
use troupe_tests::watch::Watch;

use crate::{
    figure::{Chapter, Figure},
    plan::Plan,
    raw::{self, STREAMS_PER_CONNECTION},
    samples::median,
    served::{Served, Upkeep},
    session::{Session, WRITERS},
};

/// Maximum number of messages of one watcher. For live messages, it is also the maximum number of events that a run
/// writes.
const MESSAGES: usize = 20_000;

/// The streams of watchers of the same session.
type Streams = Vec<Streaming<WatchThreadsResponse>>;

/// The durations until all watchers have read all messages.
struct Run {
    /// While the messages are written.
    live: Duration,
    /// From the log, including the opening of the streams.
    from_log: Duration,
    /// Raw streams, without their opening.
    raw: Duration,
    /// Raw streams, including their opening.
    raw_opened: Duration,
}

pub(crate) async fn run(plan: Plan) -> Chapter {
    let registry = Served::registry(None).await;
    let supervisor = Served::supervisor(registry.address, Upkeep::Usual).await;
    let mut figures = Vec::new();
    for watchers in plan.crowds {
        let messages = (plan.messages / watchers).min(MESSAGES);
        let mut runs = Vec::new();
        for _ in 0..plan.rounds {
            runs.push(measure(&supervisor, *watchers, messages).await);
        }
        let rate = |time: fn(&Run) -> Duration| {
            let times: Vec<f64> = runs.iter().map(|run| time(run).as_secs_f64()).collect();
            (watchers * messages) as f64 / median(&times)
        };
        let figure = |how, rate, raw| {
            Figure::new(format!("{watchers} watchers, {how}"), rate, "messages/s").against("raw streams", raw)
        };
        let live = figure("live", rate(|run| run.live), rate(|run| run.raw));
        let from_log = figure("from the log", rate(|run| run.from_log), rate(|run| run.raw_opened));
        // One watcher receives no more events than the run writes, so the rate of this watcher shows the write rate.
        figures.extend([if *watchers == 1 { live } else { live.at_least(0.5) }, from_log]);
    }
    Chapter {
        title: "Fan-out",
        how: format!(
            "Messages per second over all watchers, with {STREAMS_PER_CONNECTION} watchers on each connection. \
             {WRITERS} concurrent writers set notes of 1,000 bytes, which the watchers receive live and then again \
             from the log. Raw streams of tonic repeat one of these messages. Medians of {} rounds of {} messages, at \
             most {MESSAGES} for each watcher.",
            plan.rounds, plan.messages
        ),
        figures,
    }
}

async fn measure(supervisor: &Served, watchers: usize, messages: usize) -> Run {
    let session = Session::open(supervisor.address).await;
    let request = session.watch_from_now().await;

    let streams = watch(&session, &request, watchers).await;
    let start = Instant::now();
    tokio::join!(session.notes(messages), read(streams, messages));
    let live = start.elapsed();

    let start = Instant::now();
    read(watch(&session, &request, watchers).await, messages).await;
    let from_log = start.elapsed();

    let sample = sample(&session, request).await;
    let raw_server = Served::raw(0, None).await;
    let opening = Instant::now();
    let streams = raw::streams(raw_server.address, &sample, watchers, messages).await;
    let reading = Instant::now();
    tokio::join!(raw::begin(raw_server.address), read(streams, messages));
    Run {
        live,
        from_log,
        raw: reading.elapsed(),
        raw_opened: opening.elapsed(),
    }
}

async fn watch(session: &Session, request: &WatchThreadsRequest, watchers: usize) -> Streams {
    let mut streams = Streams::new();
    let mut client = session.connect();
    for number in 0..watchers {
        if number > 0 && number.is_multiple_of(STREAMS_PER_CONNECTION) {
            client = session.connect();
        }
        streams.push(client.watch_threads(request.clone()).await.unwrap().into_inner());
    }
    streams
}

/// Reads `events` events from each stream.
async fn read(streams: Streams, events: usize) {
    let mut reading = JoinSet::new();
    for mut stream in streams {
        reading.spawn(async move {
            let mut read = 0;
            while read < events {
                let response = stream.message().await.unwrap().expect("the stream continues");
                if matches!(response.message, Some(Message::Event(_))) {
                    read += 1;
                }
            }
        });
    }
    reading.join_all().await;
}

/// Returns one of the messages that watchers receive.
async fn sample(session: &Session, request: WatchThreadsRequest) -> WatchThreadsResponse {
    let mut watch = Watch::open(&session.connect(), request).await;
    loop {
        let response = watch.next().await.unwrap().expect("the stream continues");
        if matches!(response.message, Some(Message::Event(_))) {
            return response;
        }
    }
}
