//! How much is done.

use std::time::Duration;

/// The amounts of all measures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// How often most things are measured; figures are the medians.
    pub(crate) rounds: usize,
    /// Calls of a round by one caller.
    pub(crate) calls: usize,
    /// Callers at once, in each of the closed loops.
    pub(crate) callers: &'static [usize],
    /// Connections, each with a session of its own where sessions are called.
    pub(crate) connections: usize,
    /// How long a round of an open loop lasts.
    pub(crate) open: Duration,
    /// How many watch, in each of the runs.
    pub(crate) crowds: &'static [usize],
    /// Messages of a run of the fan-out, over all watchers.
    pub(crate) messages: usize,
    /// How many watch where the delay of single events is measured.
    pub(crate) delay_crowds: &'static [usize],
    /// Notes whose delay is measured, one after the other.
    pub(crate) notes: usize,
    /// Notes before that, which the slow watcher does not read: more than its window, its outbox and the feed hold.
    pub(crate) backlog: usize,
    /// The threads that are closed at once are ten to the power of these.
    pub(crate) levels: &'static [u32],
    /// Items of the groups.
    pub(crate) groups: &'static [usize],
    /// Threads whose transcripts are written at once.
    pub(crate) writing: usize,
    /// Entries of transcripts that are written and read; a thread keeps 100,000.
    pub(crate) entries: usize,
    /// Threads of the restored sessions, each with [`Self::turns`].
    pub(crate) histories: &'static [usize],
    /// Turns of each of these threads; each turn is five events.
    pub(crate) turns: usize,
    /// Requests that a session remembers.
    pub(crate) requests: usize,
    /// Sessions of each of several supervisors that spawn at the same time, and spawns of each.
    pub(crate) cluster: (usize, usize),
    /// Moves of a session between supervisors.
    pub(crate) moves: usize,
    /// Sessions that are counted in memory, and that leave it.
    pub(crate) sessions: usize,
    /// Settled threads that are counted in memory, after a tenth as many. A session may have 10,000 open threads.
    pub(crate) settled: usize,
    /// Templates in each of a project's directories; the registry reads no directory with over 2,000 files.
    pub(crate) templates: usize,
    /// Calls that each of two hostile threads opens.
    pub(crate) hostile_calls: usize,
    /// Hostile connections without a token.
    pub(crate) strangers: usize,
    /// Templates that are alias bombs.
    pub(crate) bombs: usize,
    /// Sessions on the screen, and threads of each.
    pub(crate) screen: (usize, usize),
    /// Duration of the rest before the measurement of idle agents. The measurement takes four times as long.
    pub(crate) rest: Duration,
}

impl Plan {
    pub(crate) const FULL: Self = Self {
        rounds: 5,
        calls: 1_000,
        callers: &[1, 16, 256],
        connections: 16,
        open: Duration::from_secs(3),
        crowds: &[1, 100, 1_000, 10_000],
        messages: 320_000,
        delay_crowds: &[1, 100, 1_000],
        notes: 200,
        backlog: 500,
        levels: &[2, 3, 4],
        groups: &[100, 1_000, 10_000],
        writing: 100,
        entries: 100_000,
        histories: &[10, 100, 1_000],
        turns: 20,
        requests: 50_000,
        cluster: (256, 15),
        moves: 100,
        sessions: 5_000,
        settled: 9_000,
        templates: 2_000,
        hostile_calls: 3_000,
        strangers: 4_224,
        bombs: 1_990,
        screen: (200, 50),
        rest: Duration::from_secs(5),
    };

    pub(crate) const BRIEF: Self = Self {
        rounds: 1,
        calls: 8,
        callers: &[1, 4],
        connections: 2,
        open: Duration::from_millis(50),
        crowds: &[1, 10],
        messages: 64,
        delay_crowds: &[1, 10],
        notes: 4,
        backlog: 8,
        levels: &[1, 2],
        groups: &[4],
        writing: 4,
        entries: 400,
        histories: &[1, 2],
        turns: 2,
        requests: 20,
        cluster: (2, 4),
        moves: 4,
        sessions: 10,
        settled: 10,
        templates: 20,
        hostile_calls: 90,
        strangers: 10,
        bombs: 20,
        screen: (2, 3),
        rest: Duration::from_millis(10),
    };
}
