//! The latest values about running threads: in memory, by thread, never in the log. Watchers take what changed since they
//! last looked, so that a slow one gets fewer values and nobody gets a queue.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;
use troupe_proto::supervisor::v1::Telemetry;

use crate::domain::ids::{SessionId, ThreadId};

/// How many plan steps of a thread are kept.
pub(super) const MAX_PLAN_STEPS: usize = 64;

/// How many bytes a plan's step keeps.
pub(super) const MAX_STEP_BYTES: usize = 256;

/// How many characters the detail of the latest tool keeps.
pub(super) const MAX_DETAIL_CHARS: usize = 160;

/// How many bytes any other text of telemetry keeps.
pub(super) const MAX_TEXT_BYTES: usize = 512;

/// The latest values of every thread in this process.
#[derive(Clone, Debug)]
pub struct TelemetryBoard {
    // Held for one look-up or one change, never across an await.
    latest: Arc<Mutex<HashMap<ThreadId, Latest>>>,
    version: Arc<watch::Sender<u64>>,
}

#[derive(Debug)]
struct Latest {
    session: SessionId,
    version: u64,
    values: Arc<Telemetry>,
}

impl Default for TelemetryBoard {
    fn default() -> Self {
        Self {
            latest: Arc::default(),
            version: Arc::new(watch::channel(0).0),
        }
    }
}

impl TelemetryBoard {
    /// Takes a thread's new values, cut to their bounds.
    pub fn put(&self, session: SessionId, thread: ThreadId, mut values: Telemetry) {
        values.plan.truncate(MAX_PLAN_STEPS);
        cut(&mut values.activity, MAX_TEXT_BYTES);
        for step in &mut values.plan {
            cut(&mut step.step, MAX_STEP_BYTES);
        }
        if let Some(tool) = &mut values.last_tool {
            cut(&mut tool.name, MAX_TEXT_BYTES);
            if let Some((end, _)) = tool.detail.char_indices().nth(MAX_DETAIL_CHARS) {
                tool.detail.truncate(end);
            }
        }
        self.version.send_modify(|version| {
            *version += 1;
            let latest = Latest {
                session,
                version: *version,
                values: Arc::new(values),
            };
            self.lock().insert(thread, latest);
        });
    }

    /// Forgets a thread that is closed.
    pub fn forget(&self, thread: ThreadId) {
        self.lock().remove(&thread);
    }

    /// Forgets the threads of a session that nobody needs in memory.
    pub fn forget_session(&self, session: SessionId) {
        self.lock().retain(|_, latest| latest.session != session);
    }

    /// A thread's latest values.
    #[must_use]
    pub fn of(&self, thread: ThreadId) -> Option<Arc<Telemetry>> {
        self.lock().get(&thread).map(|latest| Arc::clone(&latest.values))
    }

    /// Changes with every new value.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// The values of a session that are newer than `seen`, and the version up to which that is.
    #[must_use]
    pub fn since(&self, session: SessionId, seen: u64) -> (u64, Vec<(ThreadId, Arc<Telemetry>)>) {
        let latest = self.lock();
        let mut newest = seen;
        let mut changed: Vec<(u64, ThreadId, Arc<Telemetry>)> = latest
            .iter()
            .filter(|(_, latest)| latest.session == session && latest.version > seen)
            .map(|(thread, latest)| (latest.version, *thread, Arc::clone(&latest.values)))
            .collect();
        changed.sort_by_key(|(version, ..)| *version);
        if let Some((version, ..)) = changed.last() {
            newest = *version;
        }
        let changed = changed
            .into_iter()
            .map(|(_, thread, values)| (thread, values))
            .collect();
        (newest, changed)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadId, Latest>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cut(text: &mut String, bytes: usize) {
    let end = crate::domain::content::truncate(text, bytes).len();
    text.truncate(end);
}
