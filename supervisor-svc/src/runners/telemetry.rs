//! Latest telemetry of running threads, by thread, held in memory and never in the log. Watchers read the values that
//! changed since their last read. A slow watcher gets fewer values, and there is no queue per watcher.

use std::sync::Arc;

use troupe_proto::supervisor::v1::Telemetry;

use super::board::Board;
use crate::domain::ids::{SessionId, ThreadId};

/// Maximum number of plan steps stored per thread.
pub(crate) const MAX_PLAN_STEPS: usize = 64;

/// Maximum size of a plan step, in bytes.
pub(crate) const MAX_STEP_BYTES: usize = 256;

/// Maximum length of the latest tool's detail, in characters.
pub(crate) const MAX_DETAIL_CHARS: usize = 160;

/// Maximum size of any other telemetry text, in bytes.
pub(crate) const MAX_TEXT_BYTES: usize = 512;

/// The latest values of every thread in this process.
pub type TelemetryBoard = Board<Latest>;

/// The latest values of one thread.
#[derive(Clone, Debug, Default)]
pub struct Latest {
    version: u64,
    values: Arc<Telemetry>,
}

impl TelemetryBoard {
    /// Stores a thread's new values. Texts are cut to their limits.
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
        let values = Arc::new(values);
        self.change(session, |threads, version| {
            threads.insert(thread, Latest { version, values });
        });
    }

    /// Returns a thread's latest values.
    #[must_use]
    pub fn of(&self, session: SessionId, thread: ThreadId) -> Option<Arc<Telemetry>> {
        self.read(session, |threads| {
            threads.get(&thread).map(|latest| Arc::clone(&latest.values))
        })
        .flatten()
    }

    /// Returns the values of a session that are newer than `seen`, and the newest version.
    #[must_use]
    pub fn since(&self, session: SessionId, seen: u64) -> (u64, Vec<(ThreadId, Arc<Telemetry>)>) {
        let changed = self.read(session, |threads| {
            let newer = threads.iter().filter(|(_, latest)| latest.version > seen);
            newer
                .map(|(thread, latest)| (latest.version, *thread, Arc::clone(&latest.values)))
                .collect::<Vec<_>>()
        });
        let mut changed = changed.unwrap_or_default();
        changed.sort_by_key(|(version, ..)| *version);
        let newest = changed.last().map_or(seen, |(version, ..)| *version);
        let changed = changed
            .into_iter()
            .map(|(_, thread, values)| (thread, values))
            .collect();
        (newest, changed)
    }
}

fn cut(text: &mut String, bytes: usize) {
    let end = crate::domain::content::truncate(text, bytes).len();
    text.truncate(end);
}
