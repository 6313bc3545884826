//! Limits of the store.

use std::time::Duration;

/// Maximum size of a record. Larger data is stored as content, separate from the event.
pub const MAX_RECORD_BYTES: usize = 16 * 1024;

/// Maximum size of a content. The largest content is a workspace bundle: 16 MiB of files with 2,000 paths of 4,096
/// bytes.
pub const MAX_CONTENT_BYTES: usize = 24 * 1024 * 1024;

/// Maximum size of a stored request's outcome. The largest outcome lists every open thread of the largest session.
pub const MAX_OUTCOME_BYTES: usize = 256 * 1024;

/// Maximum length of a text that is part of a key (a creator, a scope, a request id or a cursor's name), in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// Maximum size of a cursor's value, in bytes.
pub const MAX_CURSOR_BYTES: usize = 4 * 1024;

/// Maximum size of a snapshot, in bytes.
pub const MAX_SNAPSHOT_BYTES: usize = 64 * 1024 * 1024;

/// Maximum number of items of one kind (records, contents, threads, requests) in a batch. Appends are split long before
/// this limit, but never within a command. One command may affect every thread of the largest session and all of its
/// pending approvals.
pub const MAX_BATCH_ITEMS: usize = 64 * 1024;

/// Maximum size of a batch, all items together: the largest content plus an otherwise full batch.
pub const MAX_BATCH_BYTES: usize = 40 * 1024 * 1024;

/// Maximum length of a transcript entry's text that a listing returns, in bytes. A longer text is read by its digest.
pub const MAX_LISTED_TEXT_BYTES: usize = 16 * 1024;

/// Maximum size of a thread's transcript, in bytes. Above this size the oldest texts are dropped, texts of tool results
/// first.
pub const MAX_TRANSCRIPT_BYTES: u64 = 64 * 1024 * 1024;

/// Maximum number of entries of a thread's transcript. Above this number the oldest entries are removed.
pub const MAX_TRANSCRIPT_ENTRIES: u64 = 100_000;

/// Maximum number of texts that one append drops, so that it blocks the writer only briefly.
pub(super) const MAX_DROPPED_TEXTS: usize = 256;

/// Maximum number of entries of one append to a transcript: the entries of a runner and a notice.
pub const MAX_TRANSCRIPT_BATCH: usize = 257;

/// Maximum size of one append to a transcript, in bytes.
pub const MAX_TRANSCRIPT_BATCH_BYTES: usize = 4 * 1024 * 1024;

/// Maximum number of items in a page of a list.
pub const MAX_PAGE: usize = 1024;

/// Maximum size of a session's summary, in bytes.
pub const MAX_SUMMARY_BYTES: usize = 64 * 1024;

/// Maximum number of records that one call of `compact` removes, so that it blocks the writer only briefly.
pub const MAX_COMPACTED: usize = 4096;

/// Maximum number of items of each kind that one call of `forget_requests` deletes, so that it blocks the writer only
/// briefly.
pub const MAX_FORGOTTEN: usize = 4096;

/// Maximum number of writes that share one commit.
pub(super) const MAX_GROUP_JOBS: usize = 128;

/// Size in bytes from which a commit group accepts no further write.
pub(super) const MAX_GROUP_BYTES: usize = 16 * 1024 * 1024;

/// Maximum number of writes in the writer's queue: enough for a second group while the first group is committed.
pub(super) const MAX_QUEUE_JOBS: usize = 2 * MAX_GROUP_JOBS;

/// Maximum total size of the writes that are queued or being committed, in bytes. Not less than the largest single
/// write.
pub(super) const MAX_QUEUE_BYTES: usize = 128 * 1024 * 1024;

/// Maximum number of read connections, and therefore of concurrent reads.
pub(super) const MAX_READERS: usize = 4;

/// Number of connections to PostgreSQL that commit groups of writes. A session always uses the same connection.
pub(super) const WRITER_LANES: usize = 2;

/// Maximum time of a query, or of one step of a commit group, on PostgreSQL. It is longer than the transfer time of the
/// largest batch.
pub(super) const DATABASE_TIMEOUT: Duration = Duration::from_secs(60);

/// Time for which a write is retried while PostgreSQL cannot be reached. After that the write is rejected.
pub(super) const RETRY_TIMEOUT: Duration = Duration::from_secs(2);

/// Cache size of a read-only connection, in KiB. A log is read sequentially. A larger cache would hold pages that are
/// not read again, and the operating system caches them anyway.
pub(super) const READER_CACHE_KIB: i64 = 256;

/// Number of frames in the write-ahead log that triggers a checkpoint. Each frame is a page of 4 KiB.
pub(super) const CHECKPOINT_FRAMES: i64 = 1_000;

/// Number of frames at which the log should restart if the writer would wait for only a few frames. At twice this
/// number, about 12 MiB, the log must restart. On a full disk, the reserve has enough space to move these frames into
/// the database and to close threads.
pub(super) const LONG_LOG_FRAMES: i64 = 1_500;

/// Maximum number of unmoved frames with which the log restarts before it reaches its maximum length. The writer waits
/// until these frames are moved and all moved frames are flushed.
pub(super) const FEW_FRAMES: i64 = 100;

/// Maximum time that a connection waits for the lock of another program, such as an operator's shell or a backup.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// Number of prepared statements that are cached per connection. It exceeds the number of distinct statements.
pub(super) const STATEMENT_CACHE: usize = 64;

const _: () = assert!(MAX_CONTENT_BYTES <= MAX_BATCH_BYTES);
const _: () = assert!(MAX_BATCH_BYTES <= MAX_QUEUE_BYTES && MAX_SNAPSHOT_BYTES <= MAX_QUEUE_BYTES);
