//! Transcripts: how fast entries are stored and read back, and how much they delay spawns.

use std::{
    net::SocketAddr,
    ops::Range,
    time::{Duration, Instant},
};

use prost::Message as _;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};
use tonic::Streaming;
use troupe_proto::supervisor::v1::{
    CreateSessionRequest, Limits, ListTranscriptRequest, TranscriptEntry, TranscriptKind, WatchTranscriptRequest,
    WatchTranscriptResponse, attach_response::Message as FromSupervisor,
};
use troupe_tests::{
    client,
    runner::{self, Attempt, Runner},
    tree::Tree,
};

use super::spawn::{self, Spawns};
use crate::{
    arrivals::{Arrivals, Call, Rounds, Target, times},
    commits::Commits,
    figure::{Chapter, Figure},
    plan::Plan,
    raw,
    samples::{median, typical},
    served::{Served, Upkeep},
};

/// Number of entries in a batch: the entries of 240 ms at [`ENTRIES_PER_SECOND`].
const BATCH: usize = 12;
/// Entries that a thread writes per second while spawns are measured.
const ENTRIES_PER_SECOND: f64 = 50.0;
/// Maximum number of unacknowledged batches: the supervisor accepts no more from a runner.
const IN_FLIGHT: usize = 64;
/// Number of entries on a page.
const PAGE: i32 = 1_000;
/// Length of an entry's text, in bytes.
const TEXT: usize = 200;

pub(crate) async fn run(plan: Plan) -> Chapter {
    let mut figures = vec![write(plan).await];
    figures.extend(read(plan).await);
    figures.extend(spawn(plan).await);
    Chapter {
        title: "Transcripts",
        how: format!(
            "One runner's stream sends entries of {TEXT} bytes, in batches of {BATCH}, for {} threads; acknowledged \
             entries are durable. SQLite alone inserts rows of the same size, {} in each commit. One client reads the \
             entries of one thread; the raw stream repeats one of the messages that this client receives. Spawns are \
             measured as in the first table, at {} per second, without and with threads that each write \
             {ENTRIES_PER_SECOND:.0} entries per second. Medians of {} rounds.",
            plan.writing,
            BATCH * IN_FLIGHT,
            spawn::BARRED,
            plan.rounds
        ),
        figures,
    }
}

/// Measures the rate at which entries become durable.
async fn write(plan: Plan) -> Figure {
    let registry = Served::registry(None).await;
    let each = plan.entries / plan.writing;
    let (mut stored, mut inserted) = (Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        let supervisor = Served::supervisor(registry.address, Upkeep::Usual).await;
        let commits = Commits::beside_log(supervisor.data());
        let mut writer = Writer::attach(supervisor.address, plan.writing).await;
        let start = Instant::now();
        writer.write(each).await;
        stored.push(start.elapsed());
        drop(writer);
        inserted.push(commits.insert(each * plan.writing, entry(0).encoded_len(), BATCH * IN_FLIGHT));
    }
    let rate = |times: &[Duration]| (each * plan.writing) as f64 / median(times).as_secs_f64();
    Figure::new("entries stored", rate(&stored), "entries/s")
        .against("inserts by SQLite alone", rate(&inserted))
        .value_at_least(20_000.0)
}

/// Measures the rate at which one client reads entries.
async fn read(plan: Plan) -> [Figure; 2] {
    let registry = Served::registry(None).await;
    let supervisor = Served::supervisor(registry.address, Upkeep::Usual).await;
    let mut writer = Writer::attach(supervisor.address, 1).await;
    writer.write(plan.entries).await;
    let reader = Reader {
        supervisor: supervisor.address,
        thread: writer.attempts[0].thread.clone(),
        entries: plan.entries as u64,
    };
    let (mut watched, mut listed, mut raw) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        let start = Instant::now();
        let message = reader.watch().await;
        watched.push(start.elapsed());

        let start = Instant::now();
        reader.list().await;
        listed.push(start.elapsed());

        let raw_server = Served::raw(0, None).await;
        let messages = plan.entries.div_ceil(message.entries.len());
        raw::begin(raw_server.address).await;
        let start = Instant::now();
        let mut streams = raw::streams(raw_server.address, &message, 1, messages).await;
        for _ in 0..messages {
            next(&mut streams[0]).await;
        }
        raw.push(start.elapsed());
    }
    let rate = |times: &[Duration]| plan.entries as f64 / median(times).as_secs_f64();
    let figure = |name: &str, times| Figure::new(name, rate(times), "entries/s").against("raw streams", rate(&raw));
    [
        figure("entries read by WatchTranscript", &watched).value_at_least(200_000.0),
        figure(&format!("entries read by ListTranscript, {PAGE} on a page"), &listed),
    ]
}

/// Measures spawns with and without concurrent writes of transcripts.
async fn spawn(plan: Plan) -> Vec<Figure> {
    let registry = Served::registry(None).await;
    let supervisor = Served::supervisor(registry.address, Upkeep::Usual).await;
    let writer = Writer::attach(supervisor.address, plan.writing).await;
    let is_writing = watch::Sender::new(false);
    let writing = tokio::spawn(writer.keep_writing(is_writing.subscribe()));
    let beside = |is_written| Beside {
        spawns: Spawns {
            supervisor: supervisor.address,
            connections: plan.connections,
            is_watched: true,
        },
        is_writing: &is_writing,
        is_written,
    };
    let rate = Arrivals::PerSecond(f64::from(spawn::BARRED));
    let found = Rounds::of(plan, rate, &beside(false), &beside(true)).await;
    drop(is_writing);
    let written = writing.await.unwrap();
    let (without, with) = (times(&found.floor), times(&found.service));
    let figure = |name: &str, part| {
        Figure::new(format!("spawns to the watcher, {name}"), typical(&with, part), "ms")
            .against("without transcripts", typical(&without, part))
    };
    vec![
        figure("p50", 0.5).at_most(1.2),
        figure("p99", 0.99),
        Figure::new("entries stored during these spawns", written, "entries/s"),
    ]
}

/// A runner without programs, and threads that write transcripts.
struct Writer {
    runner: Runner,
    attempts: Vec<Attempt>,
    /// The number of the last batch of each thread.
    batch: u64,
    unacknowledged: usize,
}

impl Writer {
    async fn attach(supervisor: SocketAddr, threads: usize) -> Self {
        let request = CreateSessionRequest {
            limits: Some(Limits {
                max_threads: Some(u32::try_from(threads).unwrap() + 1),
                ..Limits::default()
            }),
            ..CreateSessionRequest::default()
        };
        let tree = Tree::open(client::supervisor(supervisor, None), request).await;
        let mut hello = runner::hello(&tree.session);
        // The threads of the measured spawns must wait for a runner.
        hello.session_id.clone_from(&tree.session);
        let mut runner = Runner::greet_by(client::runners(supervisor, None), hello).await;
        let mut attempts = Vec::with_capacity(threads);
        for _ in 0..threads {
            let thread = tree.spawn("worker").await.id;
            attempts.push(runner.run(&thread).await);
        }
        Self {
            runner,
            attempts,
            batch: 0,
            unacknowledged: 0,
        }
    }

    /// Writes `each` entries in each thread and waits until all are durable.
    async fn write(&mut self, each: usize) {
        for first in (0..each).step_by(BATCH) {
            self.batch += 1;
            for number in 0..self.attempts.len() {
                self.send(number, first..each.min(first + BATCH)).await;
            }
        }
        while self.unacknowledged > 0 {
            self.acknowledgement().await;
        }
    }

    /// Writes in all threads at a constant rate while `is_writing` is true, until its sender is dropped. Returns the
    /// number of entries written per second.
    async fn keep_writing(mut self, mut is_writing: watch::Receiver<bool>) -> f64 {
        let pause = Duration::from_secs_f64(BATCH as f64 / ENTRIES_PER_SECOND / self.attempts.len() as f64);
        let (mut entries, mut time) = (0, Duration::ZERO);
        while is_writing.wait_for(|is_writing| *is_writing).await.is_ok() && is_writing.has_changed().is_ok() {
            let start = Instant::now();
            let mut due = interval(pause);
            due.set_missed_tick_behavior(MissedTickBehavior::Burst);
            while *is_writing.borrow() && is_writing.has_changed().is_ok() {
                self.batch += 1;
                for number in 0..self.attempts.len() {
                    due.tick().await;
                    self.send(number, 0..BATCH).await;
                    entries += BATCH;
                }
            }
            time += start.elapsed();
        }
        entries as f64 / time.as_secs_f64()
    }

    async fn send(&mut self, attempt: usize, entries: Range<usize>) {
        if self.unacknowledged == IN_FLIGHT {
            self.acknowledgement().await;
        }
        let attempt = &self.attempts[attempt];
        self.runner
            .send_batch(attempt, self.batch, entries.map(entry).collect())
            .await;
        self.unacknowledged += 1;
    }

    async fn acknowledgement(&mut self) {
        let is_ack = |message: &FromSupervisor| matches!(message, FromSupervisor::TranscriptAck(_)).then_some(());
        self.runner.next("an acknowledgement", is_ack).await;
        self.unacknowledged -= 1;
    }
}

fn entry(number: usize) -> TranscriptEntry {
    TranscriptEntry {
        turn: 1,
        kind: TranscriptKind::Message.into(),
        text: format!("{number:x<TEXT$}"),
        ..TranscriptEntry::default()
    }
}

/// Reads all entries of a thread.
struct Reader {
    supervisor: SocketAddr,
    thread: String,
    entries: u64,
}

impl Reader {
    /// Returns the first message.
    async fn watch(&self) -> WatchTranscriptResponse {
        let request = WatchTranscriptRequest {
            thread_id: self.thread.clone(),
            ..WatchTranscriptRequest::default()
        };
        let mut client = client::supervisor(self.supervisor, None);
        let mut stream = client.watch_transcript(request).await.unwrap().into_inner();
        let first = next(&mut stream).await;
        let mut last = first.number;
        while last < self.entries {
            last = next(&mut stream).await.number;
        }
        first
    }

    async fn list(&self) {
        let mut request = ListTranscriptRequest {
            thread_id: self.thread.clone(),
            page_size: PAGE,
            ..ListTranscriptRequest::default()
        };
        let mut client = client::supervisor(self.supervisor, None);
        let mut read = 0;
        loop {
            let page = client.list_transcript(request.clone()).await.unwrap().into_inner();
            read += page.entries.len() as u64;
            request.page_token = page.next_page_token;
            if request.page_token.is_empty() {
                break;
            }
        }
        assert_eq!(read, self.entries);
    }
}

async fn next(stream: &mut Streaming<WatchTranscriptResponse>) -> WatchTranscriptResponse {
    stream.message().await.unwrap().expect("the stream continues")
}

/// Spawns with or without concurrent writes of transcripts.
struct Beside<'a> {
    spawns: Spawns,
    is_writing: &'a watch::Sender<bool>,
    is_written: bool,
}

impl Target for Beside<'_> {
    async fn begin(&self) -> Call {
        self.is_writing.send_replace(self.is_written);
        self.spawns.begin().await
    }

    fn connections(&self) -> usize {
        self.spawns.connections()
    }
}
