//! Every SQL statement of the engine.
//!
//! The statements use only what PostgreSQL-compatible distributed databases have too: no LISTEN or NOTIFY, advisory
//! locks, sequences, savepoints, triggers or SKIP LOCKED, and no clock of the database. A test checks this. Each
//! prepared statement names the session or another key, and binary columns hold texts, so that neither the collation
//! nor the encoding of the database matters.

/// The version of the schema, stored in `meta`. Each change of the tables increments it.
pub(super) const SCHEMA_VERSION: i64 = 1;

/// Begins a commit group. A commit is flushed to the disk and to the synchronous standbys, and its wait for them is not
/// cancelled. A transaction whose client is gone ends, so that its locks do not block the settlement of its outcome.
pub(super) const BEGIN: &str = "BEGIN; SET LOCAL synchronous_commit = on; SET LOCAL statement_timeout = 0; \
     SET LOCAL idle_in_transaction_session_timeout = '10s'";

/// Commits a group.
pub(super) const COMMIT: &str = "COMMIT";

/// Abandons a group.
pub(super) const ROLLBACK: &str = "ROLLBACK";

/// Returns a row if the table `meta` exists and the role may use it.
pub(super) const HAS_META: &str =
    "SELECT 1 FROM information_schema.tables WHERE table_schema = current_schema() AND table_name = 'meta'";

/// Returns a value of `meta`.
pub(super) const META: &str = "SELECT value FROM meta WHERE key = $1";

/// Stores the schema version.
pub(super) const PUT_VERSION: &str = "INSERT INTO meta (key, value) VALUES ('schema_version', $1) \
     ON CONFLICT (key) DO UPDATE SET value = excluded.value";

/// Stores the log's id unless one is stored.
pub(super) const PUT_LOG_ID: &str = "INSERT INTO meta (key, value) VALUES ('log_id', $1) ON CONFLICT (key) DO NOTHING";

/// Returns the settings that durability requires, and others that operators ask about.
pub(super) const SETTINGS: &str = "SELECT name, setting FROM pg_settings WHERE name IN \
     ('fsync', 'full_page_writes', 'synchronous_commit', 'synchronous_standby_names', 'server_version_num')";

/// Creates the tables. Each step is one statement that can be repeated.
///
/// `sessions` is the only table with many updates: its pages have room for new versions of a row. `lanes` has a row for
/// each writing connection of a process, with the number of its last commit. `threads` has no index by session, which
/// every spawn would write: callers that delete a session list its threads.
pub(super) const SCHEMA: [&str; 21] = [
    "CREATE TABLE IF NOT EXISTS meta (key text PRIMARY KEY, value text NOT NULL)",
    "CREATE TABLE IF NOT EXISTS lanes (lane uuid PRIMARY KEY, committed int8 NOT NULL)",
    "CREATE TABLE IF NOT EXISTS sessions (session uuid PRIMARY KEY, head int8 NOT NULL, epoch int8 NOT NULL, due int8, \
     oldest int8 NOT NULL DEFAULT 0, content_bytes int8 NOT NULL DEFAULT 0, transcript_bytes int8 NOT NULL DEFAULT 0) \
     WITH (fillfactor = 60)",
    "CREATE INDEX IF NOT EXISTS sessions_due ON sessions (due, session) WHERE due IS NOT NULL",
    "CREATE TABLE IF NOT EXISTS creations (creator bytea NOT NULL, request_id bytea NOT NULL, hash bytea NOT NULL, \
     session uuid NOT NULL, expires int8 NOT NULL, PRIMARY KEY (creator, request_id))",
    "CREATE INDEX IF NOT EXISTS creations_session ON creations (session)",
    "CREATE INDEX IF NOT EXISTS creations_expires ON creations (expires)",
    "CREATE TABLE IF NOT EXISTS records (session uuid NOT NULL, sequence int8 NOT NULL, crc int4 NOT NULL, \
     bytes bytea NOT NULL, PRIMARY KEY (session, sequence))",
    "CREATE TABLE IF NOT EXISTS contents (session uuid NOT NULL, digest bytea NOT NULL, crc int4 NOT NULL, \
     bytes bytea NOT NULL, PRIMARY KEY (session, digest))",
    "CREATE TABLE IF NOT EXISTS threads (thread uuid PRIMARY KEY, session uuid NOT NULL)",
    "CREATE TABLE IF NOT EXISTS requests (session uuid NOT NULL, scope bytea NOT NULL, request_id bytea NOT NULL, \
     hash bytea NOT NULL, outcome bytea NOT NULL, expires int8 NOT NULL, crc int4 NOT NULL, \
     PRIMARY KEY (session, scope, request_id))",
    "CREATE INDEX IF NOT EXISTS requests_expires ON requests (expires)",
    "CREATE TABLE IF NOT EXISTS snapshots (session uuid PRIMARY KEY, sequence int8 NOT NULL, crc int4 NOT NULL, \
     bytes bytea NOT NULL)",
    "CREATE TABLE IF NOT EXISTS cursors (session bytea NOT NULL, name bytea NOT NULL, value bytea NOT NULL, \
     PRIMARY KEY (session, name))",
    "CREATE TABLE IF NOT EXISTS marks (session uuid NOT NULL, kind int2 NOT NULL, sequence int8 NOT NULL, \
     thread uuid NOT NULL, PRIMARY KEY (session, kind, sequence))",
    "CREATE INDEX IF NOT EXISTS marks_thread ON marks (session, kind, thread, sequence)",
    "CREATE INDEX IF NOT EXISTS marks_record ON marks (session, sequence)",
    "CREATE TABLE IF NOT EXISTS transcripts (session uuid NOT NULL, thread uuid NOT NULL, first int8 NOT NULL, \
     last int8 NOT NULL, bytes int8 NOT NULL, results_dropped int8 NOT NULL, texts_dropped int8 NOT NULL, \
     generation int8 NOT NULL, batch int8 NOT NULL, PRIMARY KEY (session, thread))",
    "CREATE TABLE IF NOT EXISTS entries (session uuid NOT NULL, thread uuid NOT NULL, number int8 NOT NULL, \
     kind int2 NOT NULL, crc int4 NOT NULL, size int8 NOT NULL, header bytea NOT NULL, text bytea, digest bytea, \
     PRIMARY KEY (session, thread, number))",
    "CREATE INDEX IF NOT EXISTS entries_digest ON entries (session, digest) WHERE digest IS NOT NULL",
    "CREATE TABLE IF NOT EXISTS summaries (session uuid PRIMARY KEY, sequence int8 NOT NULL, bytes bytea NOT NULL)",
];

/// Defines the prepared statements.
macro_rules! statements {
    ($($name:ident = $sql:literal;)*) => {
        /// A prepared statement.
        #[derive(Clone, Copy, Debug)]
        pub(super) enum Statement {
            $($name,)*
        }

        /// The prepared statements in the order of [`Statement`].
        pub(super) const STATEMENTS: &[&str] = &[$($sql),*];
    };
}

statements! {
    // Lanes.
    StartLane = "INSERT INTO lanes (lane, committed) VALUES ($1, 0) ON CONFLICT (lane) DO NOTHING";
    Advance = "UPDATE lanes SET committed = $2::int8 WHERE lane = $1 AND committed = $2::int8 - 1";
    Settle = "UPDATE lanes SET committed = committed WHERE lane = $1 RETURNING committed";
    EndLane = "DELETE FROM lanes WHERE lane = $1";

    // Batches.
    MoveHeads = "UPDATE sessions AS s SET head = i.after, due = i.due \
        FROM unnest($1::uuid[], $2::int8[], $3::int8[], $4::int8[], $5::int8[]) \
        AS i (session, expected, epoch, after, due) \
        WHERE s.session = i.session AND s.head = i.expected AND s.epoch = i.epoch RETURNING s.session";
    Heads = "SELECT session, head, epoch FROM sessions WHERE session = ANY($1::uuid[])";
    ForgetExpiredCreations = "DELETE FROM creations AS c USING unnest($1::bytea[], $2::bytea[], $3::int8[]) \
        AS i (creator, request_id, present) \
        WHERE c.creator = i.creator AND c.request_id = i.request_id AND c.expires <= i.present";
    InsertCreations = "INSERT INTO creations (creator, request_id, hash, session, expires) \
        SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::uuid[], $5::int8[]) \
        ON CONFLICT (creator, request_id) DO NOTHING RETURNING session";
    InsertSessions = "INSERT INTO sessions (session, head, epoch, due) SELECT i.session, i.head, i.epoch, i.due \
        FROM unnest($1::uuid[], $2::int8[], $3::int8[], $4::int8[], $5::bytea[], $6::bytea[]) \
        AS i (session, head, epoch, due, creator, request_id) WHERE i.creator IS NULL OR EXISTS (\
        SELECT 1 FROM creations AS c \
        WHERE c.creator = i.creator AND c.request_id = i.request_id AND c.session = i.session) \
        ON CONFLICT (session) DO NOTHING RETURNING session";
    InsertThreads = "INSERT INTO threads (thread, session) SELECT * FROM unnest($1::uuid[], $2::uuid[]) \
        ON CONFLICT (thread) DO NOTHING";
    Threads = "SELECT thread, session FROM threads WHERE thread = ANY($1::uuid[])";
    InsertRecords = "INSERT INTO records (session, sequence, crc, bytes) \
        SELECT * FROM unnest($1::uuid[], $2::int8[], $3::int4[], $4::bytea[])";
    InsertMarks = "INSERT INTO marks (session, kind, sequence, thread) \
        SELECT * FROM unnest($1::uuid[], $2::int2[], $3::int8[], $4::uuid[])";
    InsertContents = "WITH new AS (INSERT INTO contents (session, digest, crc, bytes) \
        SELECT * FROM unnest($1::uuid[], $2::bytea[], $3::int4[], $4::bytea[]) \
        ON CONFLICT (session, digest) DO NOTHING RETURNING session, octet_length(bytes) AS bytes) \
        UPDATE sessions AS s SET content_bytes = s.content_bytes + i.bytes \
        FROM (SELECT session, sum(bytes)::int8 AS bytes FROM new GROUP BY session) AS i WHERE s.session = i.session";
    PutRequests = "INSERT INTO requests (session, scope, request_id, hash, outcome, expires, crc) \
        SELECT * FROM unnest($1::uuid[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[], $6::int8[], $7::int4[]) \
        ON CONFLICT (session, scope, request_id) DO UPDATE SET hash = excluded.hash, outcome = excluded.outcome, \
        expires = excluded.expires, crc = excluded.crc";

    // Other writes.
    LockSession = "SELECT head, epoch, oldest, content_bytes FROM sessions WHERE session = $1 FOR UPDATE";
    Claim = "UPDATE sessions SET epoch = epoch + 1 WHERE session = $1 RETURNING epoch";
    PutSnapshot = "INSERT INTO snapshots (session, sequence, crc, bytes) VALUES ($1, $2, $3, $4) \
        ON CONFLICT (session) DO UPDATE SET sequence = excluded.sequence, crc = excluded.crc, bytes = excluded.bytes \
        WHERE excluded.sequence >= snapshots.sequence";
    SnapshotSequence = "SELECT sequence FROM snapshots WHERE session = $1";
    SetOldest = "UPDATE sessions SET oldest = greatest(oldest, $2) WHERE session = $1";
    DeleteExpiredEvidence = "DELETE FROM records WHERE session = $1 AND sequence IN (\
        SELECT sequence FROM marks WHERE session = $1 AND kind = $2 AND sequence <= $3 AND NOT EXISTS (\
        SELECT 1 FROM marks AS other WHERE other.session = $1 AND other.sequence = marks.sequence \
        AND other.kind <> $2))";
    DeleteExpiredMarks = "DELETE FROM marks WHERE session = $1 AND kind = $2 AND sequence <= $3";
    KeepMarks = "INSERT INTO marks (session, kind, sequence, thread) \
        SELECT $1::uuid, * FROM unnest($2::int2[], $3::int8[], $4::uuid[]) ON CONFLICT DO NOTHING";
    Compact = "DELETE FROM records WHERE session = $1 AND sequence IN (\
        SELECT sequence FROM records WHERE session = $1 AND sequence > $2 AND sequence <= $3 AND NOT EXISTS (\
        SELECT 1 FROM marks WHERE marks.session = $1 AND marks.sequence = records.sequence) \
        ORDER BY sequence LIMIT $4)";
    PutSummary = "INSERT INTO summaries (session, sequence, bytes) VALUES ($1, $2, $3) \
        ON CONFLICT (session) DO UPDATE SET sequence = excluded.sequence, bytes = excluded.bytes";
    PutCursor = "INSERT INTO cursors (session, name, value) VALUES ($1, $2, $3) \
        ON CONFLICT (session, name) DO UPDATE SET value = excluded.value";
    DeleteCursor = "DELETE FROM cursors WHERE session = $1 AND name = $2";
    DeleteSession = "DELETE FROM sessions WHERE session = $1";
    DeleteMarks = "DELETE FROM marks WHERE session = $1";
    DeleteSummary = "DELETE FROM summaries WHERE session = $1";
    DeleteRecords = "DELETE FROM records WHERE session = $1";
    DeleteContents = "DELETE FROM contents WHERE session = $1";
    DeleteTranscripts = "DELETE FROM transcripts WHERE session = $1";
    DeleteEntries = "DELETE FROM entries WHERE session = $1";
    DeleteRequests = "DELETE FROM requests WHERE session = $1";
    DeleteSnapshot = "DELETE FROM snapshots WHERE session = $1";
    DeleteCreations = "DELETE FROM creations WHERE session = $1";
    DeleteCursors = "DELETE FROM cursors WHERE session = $1";
    DeleteThreads = "DELETE FROM threads WHERE session = $1 AND thread = ANY($2::uuid[])";
    ForgetRequests = "DELETE FROM requests WHERE (session, scope, request_id) IN \
        (SELECT session, scope, request_id FROM requests WHERE expires <= $1 LIMIT $2)";
    ForgetCreations = "DELETE FROM creations WHERE (creator, request_id) IN \
        (SELECT creator, request_id FROM creations WHERE expires <= $1 LIMIT $2)";

    // Writes to transcripts.
    LockTranscriptSizes = "SELECT session, transcript_bytes FROM sessions WHERE session = ANY($1::uuid[]) FOR UPDATE";
    TranscriptHeads = "SELECT t.session, t.thread, first, last, bytes, results_dropped, texts_dropped, generation, batch \
        FROM transcripts AS t JOIN unnest($1::uuid[], $2::uuid[]) AS i (session, thread) \
        ON t.session = i.session AND t.thread = i.thread";
    InsertEntries = "INSERT INTO entries (session, thread, number, kind, crc, size, header, text, digest) \
        SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::int8[], $4::int2[], $5::int4[], $6::int8[], $7::bytea[], \
        $8::bytea[], $9::bytea[])";
    PutTranscriptHeads = "INSERT INTO transcripts \
        (session, thread, first, last, bytes, results_dropped, texts_dropped, generation, batch) \
        SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], \
        $8::int8[], $9::int8[]) ON CONFLICT (session, thread) DO UPDATE SET first = excluded.first, \
        last = excluded.last, bytes = excluded.bytes, results_dropped = excluded.results_dropped, \
        texts_dropped = excluded.texts_dropped, generation = excluded.generation, batch = excluded.batch";
    PutTranscriptSizes = "UPDATE sessions AS s SET transcript_bytes = i.bytes \
        FROM unnest($1::uuid[], $2::int8[]) AS i (session, bytes) WHERE s.session = i.session";
    DeleteOldestEntries = "DELETE FROM entries WHERE session = $1 AND thread = $2 AND number < $3 \
        RETURNING (octet_length(header) + coalesce(octet_length(text), 0))::int8";
    OldestTexts = "SELECT number, kind, header, octet_length(text)::int8 FROM entries \
        WHERE session = $1 AND thread = $2 AND number > $3 AND text IS NOT NULL AND ($4::int2 = 0 OR kind = $4) \
        ORDER BY number LIMIT $5";
    DropTexts = "UPDATE entries AS e SET text = NULL, digest = NULL, crc = i.crc \
        FROM unnest($3::int8[], $4::int4[]) AS i (number, crc) \
        WHERE e.session = $1 AND e.thread = $2 AND e.number = i.number";

    // Reads.
    Head = "SELECT head, epoch, oldest, content_bytes FROM sessions WHERE session = $1";
    Records = "SELECT s.head, s.oldest, r.sequence, r.crc, r.bytes FROM sessions AS s LEFT JOIN LATERAL \
        (SELECT sequence, crc, bytes FROM records WHERE records.session = s.session AND sequence > $2 \
        ORDER BY sequence LIMIT $3) AS r ON true WHERE s.session = $1 ORDER BY r.sequence";
    Marked = "SELECT r.sequence, r.crc, r.bytes FROM marks AS m JOIN records AS r \
        ON r.session = m.session AND r.sequence = m.sequence \
        WHERE m.session = $1 AND m.kind = $2 AND m.sequence > $3 ORDER BY m.sequence LIMIT $4";
    MarkedOfThread = "SELECT r.sequence, r.crc, r.bytes FROM marks AS m JOIN records AS r \
        ON r.session = m.session AND r.sequence = m.sequence \
        WHERE m.session = $1 AND m.kind = $2 AND m.sequence > $3 AND m.thread = $5 ORDER BY m.sequence LIMIT $4";
    Content = "SELECT crc, bytes FROM contents WHERE session = $1 AND digest = $2";
    Snapshot = "SELECT sequence, crc, bytes FROM snapshots WHERE session = $1";
    Request = "SELECT scope, request_id, hash, outcome, expires, crc FROM requests \
        WHERE session = $1 AND scope = $2 AND request_id = $3";
    Requests = "SELECT scope, request_id, hash, outcome, expires, crc FROM requests \
        WHERE session = $1 ORDER BY scope, request_id LIMIT $2";
    RequestsAfter = "SELECT scope, request_id, hash, outcome, expires, crc FROM requests \
        WHERE session = $1 AND (scope, request_id) > ($3, $4) ORDER BY scope, request_id LIMIT $2";
    Creation = "SELECT session, hash, expires FROM creations WHERE creator = $1 AND request_id = $2";
    SessionOf = "SELECT session FROM threads WHERE thread = $1";
    Sessions = "SELECT session FROM sessions ORDER BY session LIMIT $1";
    SessionsAfter = "SELECT session FROM sessions WHERE session > $2 ORDER BY session LIMIT $1";
    Summaries = "SELECT s.session, s.head, u.bytes FROM sessions AS s \
        LEFT JOIN summaries AS u ON u.session = s.session AND u.sequence = s.head ORDER BY s.session DESC LIMIT $1";
    SummariesBefore = "SELECT s.session, s.head, u.bytes FROM sessions AS s \
        LEFT JOIN summaries AS u ON u.session = s.session AND u.sequence = s.head \
        WHERE s.session < $2 ORDER BY s.session DESC LIMIT $1";
    Due = "SELECT due, session FROM sessions WHERE due IS NOT NULL AND due <= $1 ORDER BY due, session LIMIT $2";
    DueAfter = "SELECT due, session FROM sessions WHERE due IS NOT NULL AND due <= $1 AND (due, session) > ($3, $4) \
        ORDER BY due, session LIMIT $2";
    Cursor = "SELECT value FROM cursors WHERE session = $1 AND name = $2";
    Entries = "SELECT number, kind, crc, size, header, CASE WHEN size <= $6 THEN text END, digest FROM entries \
        WHERE session = $1 AND thread = $2 AND number > $3 AND ($4::int8 >> kind::int4) & 1 = 1 \
        ORDER BY number LIMIT $5";
    EntriesTail = "SELECT number FROM entries \
        WHERE session = $1 AND thread = $2 AND number > $3 AND ($4::int8 >> kind::int4) & 1 = 1 \
        ORDER BY number DESC LIMIT 1 OFFSET $5";
    LongText = "SELECT thread, number, text FROM entries WHERE session = $1 AND digest = $2 LIMIT 1";
    LongTextThreads = "SELECT DISTINCT thread FROM entries WHERE session = $1 AND digest = $2 ORDER BY thread LIMIT $3";
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words and phrases that PostgreSQL-compatible engines lack or implement differently.
    const FORBIDDEN: [&str; 22] = [
        "advisory",
        "clock timestamp",
        "create function",
        "create sequence",
        "create trigger",
        "current timestamp",
        "foreign key",
        "generated",
        "listen",
        "lock table",
        "nextval",
        "notify",
        "now ( )",
        "on commit",
        "pg sleep",
        "references",
        "rollback to",
        "savepoint",
        "serial",
        "skip locked",
        "temp",
        "temporary",
    ];

    /// Returns the words and signs of a statement, in lower case and separated by single spaces.
    fn words(sql: &str) -> String {
        let spaced: String = sql
            .chars()
            .map(|char| match char {
                'a'..='z' | 'A'..='Z' | '0'..='9' | '$' | '\'' => char.to_string(),
                '_' => String::from(" "),
                other => format!(" {other} "),
            })
            .collect();
        let words: Vec<_> = spaced.split_whitespace().collect();
        format!(" {} ", words.join(" ").to_lowercase())
    }

    fn all() -> impl Iterator<Item = &'static str> {
        let single = [
            BEGIN,
            COMMIT,
            ROLLBACK,
            HAS_META,
            META,
            PUT_VERSION,
            PUT_LOG_ID,
            SETTINGS,
        ];
        single.into_iter().chain(SCHEMA).chain(STATEMENTS.iter().copied())
    }

    fn violations(sql: &str) -> Vec<&'static str> {
        let words = words(sql);
        let is_used = |phrase: &&&str| words.contains(&format!(" {phrase} "));
        FORBIDDEN.iter().filter(is_used).copied().collect()
    }

    #[test]
    fn statements_use_no_forbidden_feature() {
        for sql in all() {
            assert_eq!(violations(sql), [""; 0], "{sql}");
            assert!(sql == BEGIN || !sql.contains(';'), "several statements: {sql}");
        }
    }

    #[test]
    fn forbidden_features_are_recognised() {
        for sql in [
            "SELECT pg_sleep(1)",
            "SELECT * FROM t FOR UPDATE SKIP\n LOCKED",
            "NOTIFY changes",
            "SELECT x FROM t WHERE at < now()",
            "SAVEPOINT a",
            "SELECT pg_advisory_xact_lock(1)",
        ] {
            assert_ne!(violations(sql), [""; 0], "{sql}");
        }
    }

    #[test]
    fn schema_steps_can_be_repeated() {
        for sql in SCHEMA {
            let begins = ["CREATE TABLE IF NOT EXISTS ", "CREATE INDEX IF NOT EXISTS "];
            assert!(begins.iter().any(|begin| sql.starts_with(begin)), "{sql}");
        }
    }
}
