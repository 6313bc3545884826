//! Session metrics for operators; `docs/monitoring.md` lists them. Recording a metric does not change state. Except for
//! write durations, all values can also be derived from the log.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    path::Path,
    sync::Mutex,
    time::Duration,
};

use opentelemetry::{
    KeyValue,
    metrics::{AsyncInstrument, Counter, Histogram, UpDownCounter},
};
use supervisor_log::store::DATABASE;
use svc_kit::{
    instruments::{counter, meter},
    lock::lock,
};
use troupe_proto::supervisor::v1::RunnerState;

use crate::{
    domain::{
        event::{Event, ThreadEvent},
        ids::ThreadId,
        rules::limits,
        state::session::Session,
        status::StatusKind,
        time::UnixMillis,
    },
    engine::{
        Directory,
        feed::{Change, Subscriber},
    },
    runners::RunnerHub,
};

/// The label of a thread's status.
const STATUS: &str = "status";

/// The kinds of tokens that are counted.
const TOKENS: [&str; 2] = ["input", "output"];

/// The instruments of a supervisor.
#[derive(Debug)]
pub struct Metrics {
    append: Histogram<f64>,
    start: Histogram<f64>,
    queue: Histogram<f64>,
    cascade: Histogram<f64>,
    turns: Counter<u64>,
    tokens: Counter<u64>,
    refusals: Counter<u64>,
    denials: Counter<u64>,
    watchers: UpDownCounter<i64>,
    lags: Counter<u64>,
    delay: Histogram<f64>,
    /// Start times of running cascades. Cascades that started before a restart are not timed.
    cascades: Mutex<HashMap<ThreadId, UnixMillis>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let meter = meter();
        let time = |name, what| meter.f64_histogram(name).with_unit("s").with_description(what).build();
        let count = |name, what| meter.u64_counter(name).with_description(what).build();
        let new = Self {
            append: time("troupe.log.append.duration", "Duration of appends to the log"),
            start: time("troupe.thread.start.duration", "Time from a spawn to its first turn"),
            queue: time("troupe.thread.queue.duration", "How long threads wait for a slot"),
            cascade: time("troupe.thread.cascade.duration", "How long subtrees take to close"),
            turns: count("troupe.turns", "Turns that ended, by status"),
            tokens: count("troupe.tokens", "Tokens that agents have spent, by kind"),
            refusals: count("troupe.spawns.refused", "Spawns that the registry refused, by reason"),
            denials: counter("troupe.tools.denied", "Tool calls that were refused"),
            watchers: meter
                .i64_up_down_counter("troupe.watchers")
                .with_description("Streams that watch a session")
                .build(),
            lags: counter(
                "troupe.watchers.lagged",
                "Number of times that a watcher fell behind and continued from the log",
            ),
            delay: time(
                "troupe.watchers.delay.duration",
                "Time from an append to its delivery to a watcher",
            ),
            cascades: Mutex::default(),
        };
        // Counters exist from the start, so that the first increase of each is visible.
        for status in [StatusKind::Completed, StatusKind::Errored, StatusKind::Interrupted] {
            new.turns.add(0, &[KeyValue::new(STATUS, status.as_str())]);
        }
        for kind in TOKENS {
            new.tokens.add(0, &[KeyValue::new("kind", kind)]);
        }
        new
    }
}

impl Metrics {
    /// Counts a watcher that fell behind.
    pub fn lagged(&self) {
        self.lags.add(1, &[]);
    }

    /// Records the delay between the publication of an event and its delivery to a watcher.
    pub fn delivered(&self, delay: Duration) {
        self.delay.record(delay.as_secs_f64(), &[]);
    }

    /// Counts a watcher until the returned value is dropped.
    pub fn watching(&self) -> Watching {
        self.watchers.add(1, &[]);
        Watching(self.watchers.clone())
    }

    fn record_thread_event(
        &self,
        before: &Session,
        after: &Session,
        id: ThreadId,
        event: &ThreadEvent,
        time: UnixMillis,
    ) {
        let since = |earlier: UnixMillis| time.since(earlier).as_secs_f64();
        match event {
            ThreadEvent::Admitted => {
                let waited = before
                    .thread(id)
                    .filter(|thread| thread.status.kind() == StatusKind::Queued);
                if let Some(thread) = waited {
                    self.queue.record(since(thread.since), &[]);
                }
            }
            ThreadEvent::TurnStarted { .. } => {
                // A turn that was dispatched but never started has a number too.
                let is_first = before.thread(id).is_none_or(|thread| thread.total_usage().turns == 0);
                if let Some(thread) = after.thread(id).filter(|_| is_first) {
                    self.start.record(since(thread.created), &[]);
                }
            }
            ThreadEvent::TurnEnded { outcome, .. } => {
                self.turns.add(1, &[KeyValue::new(STATUS, outcome.kind().as_str())]);
            }
            ThreadEvent::SpawnFailed { reason, .. } => {
                self.refusals.add(1, &[KeyValue::new("reason", reason.clone())]);
            }
            ThreadEvent::ToolDenied { .. } => self.denials.add(1, &[]),
            ThreadEvent::CloseRequested(_) => {
                lock(&self.cascades).insert(id, time);
            }
            ThreadEvent::Closed { .. } => {
                let begun = lock(&self.cascades).remove(&id);
                if let Some(begun) = begun {
                    self.cascade.record(since(begun), &[]);
                }
            }
            ThreadEvent::Spawned(_)
            | ThreadEvent::Placed { .. }
            | ThreadEvent::InputQueued { .. }
            | ThreadEvent::TurnDispatched { .. }
            | ThreadEvent::InputDelivered { .. }
            | ThreadEvent::InterruptRequested { .. }
            | ThreadEvent::ResultReported { .. }
            | ThreadEvent::GroupCreated { .. }
            | ThreadEvent::GroupUpdated { .. }
            | ThreadEvent::GroupItemEnded { .. }
            | ThreadEvent::GroupEnding { .. }
            | ThreadEvent::GroupEnded { .. }
            | ThreadEvent::GroupRetried(_)
            | ThreadEvent::NoteSet(_)
            | ThreadEvent::ConditionChanged { .. }
            | ThreadEvent::UsageRecorded { .. }
            | ThreadEvent::BudgetUpdated(_)
            | ThreadEvent::ArtifactRecorded { .. }
            | ThreadEvent::Resumed(_)
            | ThreadEvent::EdgeCreated(_)
            | ThreadEvent::EdgeDeleted(_)
            | ThreadEvent::HandoffSent(_)
            | ThreadEvent::MailAcknowledged(_)
            | ThreadEvent::ApprovalRequested { .. }
            | ThreadEvent::ApprovalResolved { .. } => {}
        }
    }
}

impl Subscriber for Metrics {
    fn committed(&self, change: &Change<'_>) {
        let (before, after) = (change.before, change.after.session);
        let mut spenders = BTreeSet::new();
        for recorded in change.events {
            if let Event::Thread(id, event) = &recorded.event {
                self.record_thread_event(before, after, *id, event, recorded.time);
                if matches!(event, ThreadEvent::UsageRecorded { .. } | ThreadEvent::TurnEnded { .. }) {
                    spenders.insert(*id);
                }
            }
        }
        let total = |session: &Session, id| {
            session
                .thread(id)
                .map(|thread| thread.total_usage())
                .unwrap_or_default()
        };
        for id in spenders {
            let spent = total(after, id).since(total(before, id));
            for (kind, tokens) in TOKENS.into_iter().zip([spent.input_tokens, spent.output_tokens]) {
                self.tokens.add(tokens, &[KeyValue::new("kind", kind)]);
            }
        }
    }

    fn append_ended(&self, elapsed: Duration) {
        self.append.record(elapsed.as_secs_f64(), &[]);
    }
}

/// Counts a watcher until this value is dropped.
#[derive(Debug)]
pub struct Watching(UpDownCounter<i64>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.add(-1, &[]);
    }
}

/// Registers gauges that are computed whenever the metrics are read: sessions in memory with their threads, slots and
/// approvals, the runners, and the size of the log, if it is a file in `data_dir`. Each reading inspects every session
/// in memory.
pub fn observe(directory: &Directory, hub: &RunnerHub, data_dir: Option<&Path>) {
    let meter = meter();
    let loaded = directory.clone();
    meter
        .u64_observable_gauge("troupe.sessions.loaded")
        .with_description("Sessions in memory")
        .with_callback(move |gauge| gauge.observe(loaded.loaded() as u64, &[]))
        .build();
    let counted = directory.clone();
    meter
        .u64_observable_gauge("troupe.threads")
        .with_description("Threads of sessions in memory, by status")
        .with_callback(move |gauge| {
            let mut counts = StatusKind::ALL.map(|kind| (kind, 0_u64));
            for session in counted.states() {
                for (kind, count) in &mut counts {
                    *count += u64::from(session.count(*kind));
                }
            }
            for (kind, count) in counts {
                gauge.observe(count, &[KeyValue::new(STATUS, kind.as_str())]);
            }
        })
        .build();
    let counted = directory.clone();
    meter
        .u64_observable_gauge("troupe.slots")
        .with_description("Slots of sessions in memory, by state")
        .with_callback(move |gauge| {
            let (mut taken, mut all) = (0_u64, 0_u64);
            for session in counted.states() {
                let active = limits::active(&session);
                taken += u64::from(active);
                // Lowering a limit does not revoke slots that are in use.
                all += u64::from(session.settings.limits.max_threads.max(active));
            }
            observe_slots(gauge, taken, all - taken);
        })
        .build();
    let asked = directory.clone();
    meter
        .u64_observable_gauge("troupe.approvals")
        .with_description("Approvals of sessions in memory that wait for a decision")
        .with_callback(move |gauge| {
            let pending = asked.states();
            let pending = pending.iter().map(|session| session.pending_approvals().count());
            gauge.observe(pending.sum::<usize>() as u64, &[]);
        })
        .build();
    if let Some(data_dir) = data_dir {
        let files = ["", "-wal"].map(|suffix| data_dir.join(format!("{DATABASE}{suffix}")));
        meter
            .u64_observable_gauge("troupe.log.size")
            .with_unit("By")
            .with_description("Size of the log's file and its write-ahead log")
            .with_callback(move |gauge| {
                let sizes = files.iter().filter_map(|file| fs::metadata(file).ok());
                gauge.observe(sizes.map(|file| file.len()).sum(), &[]);
            })
            .build();
    }
    let runners = hub.clone();
    meter
        .u64_observable_gauge("troupe.runners.slots")
        .with_description("Slots of attached runners that declare a capacity, by state")
        .with_callback(move |gauge| {
            let (mut taken, mut free) = (0_u64, 0_u64);
            for runner in runners.list() {
                if runner.state() == RunnerState::Attached && runner.capacity > 0 {
                    taken += u64::from(runner.programs);
                    free += u64::from(runner.capacity.saturating_sub(runner.programs));
                }
            }
            observe_slots(gauge, taken, free);
        })
        .build();
    let disconnected = hub.clone();
    meter
        .u64_observable_gauge("troupe.runners.away")
        .with_description("Disconnected runners within their lease")
        .with_callback(move |gauge| gauge.observe(disconnected.disconnected() as u64, &[]))
        .build();
    let runners = hub.clone();
    meter
        .u64_observable_gauge("troupe.runners")
        .with_description("Runners that are attached")
        .with_callback(move |gauge| gauge.observe(runners.attached() as u64, &[]))
        .build();
}

fn observe_slots(gauge: &dyn AsyncInstrument<u64>, taken: u64, free: u64) {
    for (state, count) in [("taken", taken), ("free", free)] {
        gauge.observe(count, &[KeyValue::new("state", state)]);
    }
}
