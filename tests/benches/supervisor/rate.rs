//! How many messages a second reach all watchers together, against raw streams of the same messages.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tonic::Streaming;
use troupe_proto::supervisor::v1::{WatchThreadsRequest, WatchThreadsResponse, watch_threads_response::Message};
use troupe_tests::{client::endpoint, watch::Watch};

use crate::{
    Plan, echo,
    floor::{self, Sizes},
    served::{self, Served},
    session::Session,
    table,
};

/// Streams on one connection.
const STREAMS_PER_CONNECTION: usize = 25;

/// The streams of watchers that are to be told the same.
type Streams = Vec<Streaming<WatchThreadsResponse>>;

pub(crate) async fn run(plan: Plan) {
    let registry = served::registry().await;
    let supervisor = Served::supervisor(registry).await;
    let session = Session::open(supervisor.address).await;
    let request = session.watch_from_now().await;

    let streams = watch(&session, &request, plan.streams).await;
    let start = Instant::now();
    tokio::join!(session.notes(plan.messages), read(streams, plan.messages));
    let live = start.elapsed();

    let start = Instant::now();
    read(watch(&session, &request, plan.streams).await, plan.messages).await;
    let from_log = start.elapsed();

    let sample = sample(&session, request).await;
    let echo = echo::Served::start(echo::message(0)).await;
    let raw_server = Served::floor(echo.address, Sizes::default()).await;
    let start = Instant::now();
    let mut streams = Streams::new();
    let mut channel = endpoint(raw_server.address).connect_lazy();
    for number in 0..plan.streams {
        if number > 0 && number % STREAMS_PER_CONNECTION == 0 {
            channel = endpoint(raw_server.address).connect_lazy();
        }
        streams.push(floor::repeated(channel.clone(), sample.clone()).await);
    }
    read(streams, plan.messages).await;
    let raw = start.elapsed();

    println!("## Messages a second, over all watchers\n");
    println!(
        "{} streams of {} messages each; notes by 32 writers at once while they are watched, the same from the log, \
         and raw streams of tonic that repeat one of these messages.\n",
        plan.streams, plan.messages
    );
    let messages = (plan.streams * plan.messages) as f64;
    let row = |what: &str, took: Duration| {
        [
            what.to_owned(),
            format!("{:.0}", messages / took.as_secs_f64()),
            format!("{:.2}", raw.as_secs_f64() / took.as_secs_f64()),
        ]
    };
    table::print(
        ["streams", "messages/s", "of the raw ones"],
        &[
            row("raw", raw),
            row("watched as they are written", live),
            row("watched from the log", from_log),
        ],
    );
}

async fn watch(session: &Session, request: &WatchThreadsRequest, watchers: usize) -> Streams {
    let mut streams = Streams::new();
    let mut client = session.connect();
    for number in 0..watchers {
        if number > 0 && number % STREAMS_PER_CONNECTION == 0 {
            client = session.connect();
        }
        streams.push(client.watch_threads(request.clone()).await.unwrap().into_inner());
    }
    streams
}

/// Reads so many events from each.
async fn read(streams: Streams, events: usize) {
    let mut reading = JoinSet::new();
    for mut stream in streams {
        reading.spawn(async move {
            let mut read = 0;
            while read < events {
                let response = stream.message().await.unwrap().expect("the stream goes on");
                if matches!(response.message, Some(Message::Event(_))) {
                    read += 1;
                }
            }
        });
    }
    reading.join_all().await;
}

/// One of the messages that watchers get.
async fn sample(session: &Session, request: WatchThreadsRequest) -> WatchThreadsResponse {
    let mut watch = Watch::open(&session.connect(), request).await;
    loop {
        let response = watch.next().await.unwrap().expect("the stream goes on");
        if matches!(response.message, Some(Message::Event(_))) {
            return response;
        }
    }
}
