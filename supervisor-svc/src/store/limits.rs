//! The bounds of the store, each with what it bounds.

use std::time::Duration;

/// The largest record. What is larger is content, beside the event.
pub const MAX_RECORD_BYTES: usize = 16 * 1024;

/// The largest content: a workspace bundle of 16 MiB of files with 2,000 paths of 4,096 bytes.
pub const MAX_CONTENT_BYTES: usize = 24 * 1024 * 1024;

/// The largest outcome of a remembered request: one that names every open thread of the largest session.
pub const MAX_OUTCOME_BYTES: usize = 256 * 1024;

/// The longest text that is part of a key: a creator, a scope, a request id, a cursor's name.
pub const MAX_KEY_BYTES: usize = 1024;

/// The largest value of a cursor.
pub const MAX_CURSOR_BYTES: usize = 4 * 1024;

/// The largest snapshot.
pub const MAX_SNAPSHOT_BYTES: usize = 64 * 1024 * 1024;

/// The most of one kind (records, contents, threads, requests) that a batch carries. An append is cut long before that, but
/// never inside a command, and one may be about every thread of the largest session and all that waits for operators there.
pub const MAX_BATCH_ITEMS: usize = 64 * 1024;

/// The most bytes that a batch carries, all kinds together: the largest content beside a batch that is full without it.
pub const MAX_BATCH_BYTES: usize = 40 * 1024 * 1024;

/// The most that a list returns at once.
pub const MAX_PAGE: usize = 1024;

/// The largest summary of a session.
pub const MAX_SUMMARY_BYTES: usize = 64 * 1024;

/// How many records one call of `compact` removes at most, so that it holds the writer only briefly.
pub const MAX_COMPACTED: usize = 4096;

/// The most that one call of `forget_requests` forgets of each kind, so that it holds the writer only briefly.
pub const MAX_FORGOTTEN: usize = 4096;

/// The most writes that share one commit.
pub(super) const MAX_GROUP_JOBS: usize = 128;

/// A commit group takes no further write once it carries this much.
pub(super) const MAX_GROUP_BYTES: usize = 16 * 1024 * 1024;

/// The most writes that wait for the writer: a second group while the first is committed.
pub(super) const MAX_QUEUE_JOBS: usize = 2 * MAX_GROUP_JOBS;

/// The most bytes of writes that wait for the writer or are with it. Not less than the largest single write.
pub(super) const MAX_QUEUE_BYTES: usize = 128 * 1024 * 1024;

/// The most read-only connections, and so the most reads at once.
pub(super) const MAX_READERS: usize = 4;

/// How much of the database a read-only connection keeps in its memory, in KiB. A log is read from one end to the other: more
/// would be new memory for pages that nobody asks for again, and the operating system has them anyway.
pub(super) const READER_CACHE_KIB: i64 = 256;

/// How many frames of the write-ahead log wait for a checkpoint, each a page of 4 KiB.
pub(super) const CHECKPOINT_FRAMES: i64 = 1_000;

/// From how many frames on the log is to begin anew, if the writer waits for few. It must with twice as many, about 12 MiB:
/// on a full disk the reserve has room for that in the database, and for closings beside it.
pub(super) const LONG_LOG_FRAMES: i64 = 1_500;

/// How many frames the writer may wait for to be moved, and flushed with what was moved before.
pub(super) const FEW_FRAMES: i64 = 100;

/// How long a connection waits for a foreign program's lock, such as an operator's shell or a backup.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// Prepared statements kept per connection: more than there are different ones.
pub(super) const STATEMENT_CACHE: usize = 64;

const _: () = assert!(MAX_CONTENT_BYTES <= MAX_BATCH_BYTES);
const _: () = assert!(MAX_BATCH_BYTES <= MAX_QUEUE_BYTES && MAX_SNAPSHOT_BYTES <= MAX_QUEUE_BYTES);
