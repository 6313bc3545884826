//! The amounts of work.

use std::time::Duration;

/// The amounts of work of all measurements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Number of rounds of most measurements. Figures are the medians.
    pub(crate) rounds: usize,
    /// Number of calls of one caller in a round.
    pub(crate) calls: usize,
    /// Number of concurrent callers, for each closed loop.
    pub(crate) callers: &'static [usize],
    /// Number of connections. Each connection uses a separate session.
    pub(crate) connections: usize,
    /// Duration of a round of an open loop.
    pub(crate) open: Duration,
    /// Number of watchers, for each run of the fan-out.
    pub(crate) crowds: &'static [usize],
    /// Number of messages of a run of the fan-out, over all watchers.
    pub(crate) messages: usize,
    /// Number of watchers, for each measurement of the delay of single events.
    pub(crate) delay_crowds: &'static [usize],
    /// Number of notes whose delay is measured, one after the other.
    pub(crate) notes: usize,
    /// Number of earlier notes that the slow watcher does not read: more than its window, its outbox and the feed hold.
    pub(crate) backlog: usize,
    /// Decimal logarithms of the numbers of threads that are closed at once.
    pub(crate) levels: &'static [u32],
    /// Number of items, for each group.
    pub(crate) groups: &'static [usize],
    /// Number of threads whose transcripts are written at the same time.
    pub(crate) writing: usize,
    /// Number of transcript entries that are written and read. The supervisor keeps 100,000 entries of a thread.
    pub(crate) entries: usize,
    /// Number of threads, for each restored session. Each thread has [`Self::turns`] turns.
    pub(crate) histories: &'static [usize],
    /// Number of turns of each of these threads. Each turn is five events.
    pub(crate) turns: usize,
    /// Number of requests that a session remembers.
    pub(crate) requests: usize,
    /// Number of concurrent sessions of each supervisor of a cluster, and number of spawns in each session.
    pub(crate) cluster: (usize, usize),
    /// Number of moves of a session between supervisors.
    pub(crate) moves: usize,
    /// Number of sessions whose memory is measured, while they are loaded and after they are passivated.
    pub(crate) sessions: usize,
    /// Number of settled threads whose memory is measured. A tenth of this number of threads settles before the
    /// measurement. A session may have 10,000 open threads.
    pub(crate) settled: usize,
    /// Number of templates in each of a project's directories. The registry reads no directory with over 2,000 files.
    pub(crate) templates: usize,
    /// Number of calls that each of two hostile threads opens.
    pub(crate) hostile_calls: usize,
    /// Number of hostile connections without a token.
    pub(crate) strangers: usize,
    /// Number of templates that are alias bombs.
    pub(crate) bombs: usize,
    /// Number of sessions on the screen, and number of threads of each.
    pub(crate) screen: (usize, usize),
    /// Duration of the pause before the measurement of idle agents. The measurement takes four times as long.
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
