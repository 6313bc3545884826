//! Measures the time of the pure core: deciding and folding a spawn and a cascade, folding a long log, and encoding and
//! decoding states and records.
//!
//! ```text
//! cargo bench -p supervisor-svc --bench domain
//! ```
//!
//! The sessions are built command by command, with the helpers of the domain's tests.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

#[allow(dead_code, reason = "only the tests of the domain use the rest of the module")]
#[path = "../tests/domain/laws.rs"]
mod laws;
#[allow(dead_code, reason = "only the tests of the domain use the rest of the module")]
#[path = "../log/tests/log/samples.rs"]
mod samples;
#[allow(dead_code, reason = "only the tests of the domain use the rest of the module")]
#[path = "../tests/domain/world.rs"]
mod world;

use std::collections::VecDeque;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use supervisor_core::{
    command::Command,
    decide::{decide, follow_ups},
    event::{Event, Recorded},
    evolve::{evolve, open},
    ids::{SessionId, ThreadId},
    rules::cascade::{next_ready, ready_leaves},
    settings::{Limits, Settings},
    state::session::Session,
};
use supervisor_log::codec::{decode_record, decode_snapshot, encode_record, encode_snapshot};

use self::world::{World, client_root, close, name, operator, send, settings};

/// Number of threads in a team, its lead included.
const TEAM: usize = 10;
/// Number of events in the long log.
const LONG: usize = 100_000;

criterion_group!(benches, spawn, cascade, fold, snapshot, record);
criterion_main!(benches);

fn spawn(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("spawn among");
    for threads in [10, 1_000] {
        let mut world = crowd(threads);
        let root = world.root();
        let command = Command::Spawn(Box::new(world.wanted(root)));
        group.bench_function(BenchmarkId::from_parameter(threads), |bencher| {
            bencher.iter_batched(
                || world.session.clone(),
                |mut session| {
                    carry_out(&mut session, &command);
                    session
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

fn cascade(criterion: &mut Criterion) {
    let world = crowd(1_000);
    let root = world.root();
    criterion.bench_function("cascade of 1000", |bencher| {
        bencher.iter_batched(
            || world.session.clone(),
            |session| closed(session, root),
            BatchSize::SmallInput,
        );
    });
}

fn fold(criterion: &mut Criterion) {
    let (session, log) = long_log();
    let mut group = criterion.benchmark_group("fold");
    group.sample_size(10).throughput(Throughput::Elements(LONG as u64));
    group.bench_function(BenchmarkId::from_parameter(LONG), |bencher| {
        bencher.iter(|| replay(session, &log));
    });
    group.finish();
}

fn snapshot(criterion: &mut Criterion) {
    let session = crowd(1_000).session;
    let bytes = encode_snapshot(&session);
    let mut group = criterion.benchmark_group("snapshot of 1000");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("encode", |bencher| bencher.iter(|| encode_snapshot(&session)));
    group.bench_function("decode", |bencher| {
        bencher.iter(|| decode_snapshot(session.id, session.sequence, &bytes).unwrap());
    });
    group.finish();
}

fn record(criterion: &mut Criterion) {
    let World { session, log, .. } = crowd(TEAM);
    let mut group = criterion.benchmark_group("record");
    for kind in ["ThreadSpawned", "TurnStarted"] {
        let recorded = log.iter().rfind(|recorded| name(&recorded.event) == kind).unwrap();
        let bytes = encode_record(session.id, recorded).unwrap();
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(BenchmarkId::new("encode", kind), |bencher| {
            bencher.iter(|| encode_record(session.id, recorded).unwrap());
        });
        group.bench_function(BenchmarkId::new("decode", kind), |bencher| {
            bencher.iter(|| decode_record(session.id, &bytes).unwrap());
        });
    }
    group.finish();
}

/// Returns a session with this number of running threads. They form teams: a lead below the root, and the others below
/// the lead.
fn crowd(threads: usize) -> World {
    let limits = Limits {
        max_threads: 2_000,
        max_open_threads: 2_000,
        ..Limits::default()
    };
    let mut world = World::open(Settings { limits, ..settings() }, client_root());
    // Checking the laws for every command would take most of the setup time.
    world.lawful = false;
    let root = world.root();
    for _ in 0..threads / TEAM {
        let lead = world.spawn_running(root);
        for _ in 1..TEAM {
            world.spawn_running(lead);
        }
    }
    assert_eq!(world.session.total(), threads + 1);
    world
}

/// Returns a log in which each of a hundred threads runs turn after turn, and the id of its session.
fn long_log() -> (SessionId, Vec<Recorded>) {
    let mut world = crowd(100);
    let threads: Vec<ThreadId> = world.session.in_spawn_order().skip(1).map(|thread| thread.id).collect();
    while world.log.len() < LONG {
        for thread in &threads {
            while world.advance(*thread) {}
            world.run(&send(operator(), *thread));
        }
    }
    world.log.truncate(LONG);
    (world.session.id, world.log)
}

/// Returns the state after the events of a log.
fn replay(id: SessionId, log: &[Recorded]) -> Session {
    let (first, rest) = log.split_first().unwrap();
    let mut session = open(id, first).unwrap();
    for recorded in rest {
        evolve(&mut session, recorded);
    }
    session
}

/// Closes all threads of the session, leaves first, without reports of their runners.
fn closed(mut session: Session, root: ThreadId) -> Session {
    carry_out(&mut session, &close(operator(), root));
    let mut ready = VecDeque::from(ready_leaves(&session, root));
    while let Some(thread) = ready.pop_front() {
        carry_out(&mut session, &Command::FinishClose { thread, forced: true });
        ready.extend(next_ready(&session, thread));
    }
    assert!(session.closed, "the root is closed last");
    session
}

/// Decides a command and folds the resulting events, including the automatic ones.
fn carry_out(session: &mut Session, command: &Command) {
    let mut events = decide(session, command, session.updated).unwrap();
    while !events.is_empty() {
        for event in events {
            let recorded = recorded(session, event);
            evolve(session, &recorded);
        }
        events = follow_ups(session);
    }
}

/// Records an event as the session's next one.
fn recorded(session: &Session, event: Event) -> Recorded {
    Recorded {
        time: session.updated,
        ..samples::at(session.sequence.next().get(), event)
    }
}
