//! Every SQL statement of the engine.
//!
//! The statements use only features that PostgreSQL-compatible distributed databases support too. They use no LISTEN or
//! NOTIFY, advisory locks, sequences, savepoints, triggers or SKIP LOCKED, and do not read the clock of the database. A
//! test checks this. Texts are stored in binary columns, so that neither the collation nor the encoding of the database
//! matters.

use tokio_postgres::types::Type;

/// The version of the schema, stored in `meta`. Each change of the tables increments it.
pub(super) const SCHEMA_VERSION: i64 = 2;

/// Begins a commit group. A commit is flushed to the disk and to the synchronous standbys, and its wait for them has no
/// time limit. A timeout ends the transaction of a client that is gone or frozen. Otherwise the locks of the
/// transaction would block the query for its outcome, and the members that take over the client's sessions after 4
/// seconds.
pub(super) const BEGIN: &str = "BEGIN; SET LOCAL synchronous_commit = on; SET LOCAL statement_timeout = 0; \
     SET LOCAL idle_in_transaction_session_timeout = '5s'";

/// Commits a group.
pub(super) const COMMIT: &str = "COMMIT";

/// Abandons a group.
pub(super) const ROLLBACK: &str = "ROLLBACK";

/// Creates the tables. Each step is one statement that can be repeated.
///
/// `sessions` is the only table with many updates, so its pages have space for new versions of a row. `lanes` has a row
/// for each writing connection of a process, with the number of the connection's last commit. `members` has a row for
/// each process; a session whose `owner` has no row there has no owner. `threads` has no index by session, because
/// every spawn would write to the index. Instead, callers that delete a session list its threads.
pub(super) const SCHEMA: [&str; 22] = [
    "CREATE TABLE IF NOT EXISTS meta (key text PRIMARY KEY, value text NOT NULL)",
    "CREATE TABLE IF NOT EXISTS lanes (lane uuid PRIMARY KEY, committed int8 NOT NULL)",
    "CREATE TABLE IF NOT EXISTS members (member uuid PRIMARY KEY, name text NOT NULL, address text NOT NULL, \
     release text NOT NULL, state int2 NOT NULL, beats int8 NOT NULL, sessions int8 NOT NULL, runners int8 NOT NULL)",
    "CREATE TABLE IF NOT EXISTS sessions (session uuid PRIMARY KEY, head int8 NOT NULL, epoch int8 NOT NULL, due int8, \
     oldest int8 NOT NULL DEFAULT 0, content_bytes int8 NOT NULL DEFAULT 0, transcript_bytes int8 NOT NULL DEFAULT 0, \
     owner uuid) \
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

/// Defines the statements.
macro_rules! statements {
    ($($name:ident($($parameter:ident),*) = $sql:literal;)*) => {
        /// A statement with parameters.
        #[derive(Clone, Copy, Debug)]
        pub(super) enum Statement {
            $($name,)*
        }

        impl Statement {
            /// Returns the text, and the types of the parameters.
            pub(super) const fn parts(self) -> (&'static str, &'static [Type]) {
                match self {
                    $(Self::$name => ($sql, &[$(Type::$parameter),*]),)*
                }
            }
        }

        #[cfg(test)]
        const STATEMENTS: &[Statement] = &[$(Statement::$name),*];
    };
}

statements! {
    // The database. The table `meta` is found only if the role may use it.
    HasMeta() = "SELECT 1 FROM information_schema.tables WHERE table_schema = current_schema() AND table_name = 'meta'";
    Meta(TEXT) = "SELECT value FROM meta WHERE key = $1";
    PutVersion(TEXT) = "INSERT INTO meta (key, value) VALUES ('schema_version', $1) ON CONFLICT (key) \
        DO UPDATE SET value = excluded.value";
    PutMeta(TEXT, TEXT) = "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING";
    ReplaceMeta(TEXT, TEXT, TEXT) = "UPDATE meta SET value = $3 WHERE key = $1 AND value = $2";
    Settings() = "SELECT name, setting FROM pg_settings \
        WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'synchronous_standby_names', \
        'server_version_num', 'server_version')";
    Columns(TEXT) = "SELECT column_name::text, udt_name::text FROM information_schema.columns \
        WHERE table_schema = current_schema() AND table_name = $1 ORDER BY ordinal_position";

    // Lanes.
    StartLane(UUID) = "INSERT INTO lanes (lane, committed) VALUES ($1, 0) ON CONFLICT (lane) DO NOTHING";
    Advance(UUID, INT8) = "UPDATE lanes SET committed = $2 WHERE lane = $1 AND committed = $2 - 1";
    Settle(UUID) = "UPDATE lanes SET committed = committed WHERE lane = $1 RETURNING committed";
    EndLane(UUID) = "DELETE FROM lanes WHERE lane = $1";

    // Members.
    RemoveNamesake(UUID, TEXT) = "DELETE FROM members WHERE name = $2 AND member <> $1";
    Join(UUID, TEXT, TEXT, TEXT) = "INSERT INTO members (member, name, address, release, state, beats, sessions, runners) \
        VALUES ($1, $2, $3, $4, 1, 0, 0, 0) ON CONFLICT (member) DO UPDATE SET name = excluded.name, \
        address = excluded.address, release = excluded.release, state = excluded.state";
    Beat(UUID, INT2, INT8, INT8) =
        "UPDATE members SET beats = beats + 1, state = $2, sessions = $3, runners = $4 WHERE member = $1";
    Members() = "SELECT member, name, address, release, state, beats, sessions, runners FROM members ORDER BY name, member";
    RemoveMember(UUID, INT8) = "DELETE FROM members WHERE member = $1 AND beats = $2";

    // Batches.
    MoveHeads(UUID_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, UUID) =
        "UPDATE sessions AS s SET head = i.after, due = i.due \
        FROM unnest($1, $2, $3, $4, $5) AS i (session, expected, epoch, after, due) WHERE s.session = i.session \
        AND s.head = i.expected AND s.epoch = i.epoch AND s.owner = $6 RETURNING s.session";
    Heads(UUID_ARRAY, UUID) = "SELECT session, head, epoch, owner = $2 FROM sessions WHERE session = ANY($1)";
    ForgetExpiredCreations(BYTEA_ARRAY, BYTEA_ARRAY, INT8_ARRAY) =
        "DELETE FROM creations AS c USING unnest($1, $2, $3) AS i (creator, request_id, present) \
        WHERE c.creator = i.creator AND c.request_id = i.request_id AND c.expires <= i.present";
    InsertCreations(BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, UUID_ARRAY, INT8_ARRAY) =
        "INSERT INTO creations (creator, request_id, hash, session, expires) SELECT * FROM unnest($1, $2, $3, $4, $5) \
        ON CONFLICT (creator, request_id) DO NOTHING RETURNING session";
    InsertSessions(UUID_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, UUID) =
        "INSERT INTO sessions (session, head, epoch, due, owner) SELECT i.session, i.head, i.epoch, i.due, $7 \
        FROM unnest($1, $2, $3, $4, $5, $6) AS i (session, head, epoch, due, creator, request_id) \
        WHERE i.creator IS NULL OR EXISTS (SELECT 1 FROM creations AS c WHERE c.creator = i.creator \
        AND c.request_id = i.request_id AND c.session = i.session) ON CONFLICT (session) DO NOTHING RETURNING session";
    InsertThreads(UUID_ARRAY, UUID_ARRAY) = "INSERT INTO threads (thread, session) SELECT * FROM unnest($1, $2) \
        ON CONFLICT (thread) DO NOTHING";
    Threads(UUID_ARRAY) = "SELECT thread, session FROM threads WHERE thread = ANY($1)";
    InsertRecords(UUID_ARRAY, INT8_ARRAY, INT4_ARRAY, BYTEA_ARRAY) =
        "INSERT INTO records (session, sequence, crc, bytes) SELECT * FROM unnest($1, $2, $3, $4)";
    InsertMarks(UUID_ARRAY, INT2_ARRAY, INT8_ARRAY, UUID_ARRAY) =
        "INSERT INTO marks (session, kind, sequence, thread) SELECT * FROM unnest($1, $2, $3, $4)";
    InsertContents(UUID_ARRAY, BYTEA_ARRAY, INT4_ARRAY, BYTEA_ARRAY) =
        "WITH new AS (INSERT INTO contents (session, digest, crc, bytes) SELECT * FROM unnest($1, $2, $3, $4) \
        ON CONFLICT (session, digest) DO NOTHING RETURNING session, octet_length(bytes) AS bytes) \
        UPDATE sessions AS s SET content_bytes = s.content_bytes + i.bytes FROM \
        (SELECT session, sum(bytes)::int8 AS bytes FROM new GROUP BY session) AS i WHERE s.session = i.session";
    PutRequests(UUID_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, INT8_ARRAY, INT4_ARRAY) =
        "INSERT INTO requests (session, scope, request_id, hash, outcome, expires, crc) SELECT * \
        FROM unnest($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (session, scope, request_id) \
        DO UPDATE SET hash = excluded.hash, outcome = excluded.outcome, expires = excluded.expires, crc = excluded.crc";

    // Other writes.
    LockSession(UUID, UUID) =
        "SELECT head, epoch, oldest, content_bytes, owner = $2 FROM sessions WHERE session = $1 FOR UPDATE";
    Claim(UUID, UUID) = "UPDATE sessions SET epoch = epoch + 1, owner = $2 WHERE session = $1 \
        AND (owner IS NULL OR owner = $2 OR NOT EXISTS (SELECT 1 FROM members WHERE member = owner)) \
        AND EXISTS (SELECT 1 FROM members WHERE member = $2 AND state = 1) RETURNING epoch";
    Owner(UUID) = "SELECT s.owner, m.member IS NOT NULL FROM sessions AS s LEFT JOIN members AS m ON m.member = s.owner \
        WHERE s.session = $1";
    Release(UUID, UUID, INT8) = "UPDATE sessions SET owner = NULL WHERE session = $1 AND owner = $2 AND epoch = $3";
    HandOver(UUID, UUID, INT8, UUID) =
        "UPDATE sessions SET owner = $4, epoch = epoch + 1 WHERE session = $1 AND owner = $2 AND epoch = $3 \
        AND EXISTS (SELECT 1 FROM members WHERE member = $4 AND state = 1)";
    PutSnapshot(UUID, INT8, INT4, BYTEA) =
        "INSERT INTO snapshots (session, sequence, crc, bytes) VALUES ($1, $2, $3, $4) \
        ON CONFLICT (session) DO UPDATE SET sequence = excluded.sequence, crc = excluded.crc, bytes = excluded.bytes \
        WHERE excluded.sequence >= snapshots.sequence";
    SnapshotSequence(UUID) = "SELECT sequence FROM snapshots WHERE session = $1";
    SetOldest(UUID, INT8) = "UPDATE sessions SET oldest = greatest(oldest, $2) WHERE session = $1";
    DeleteExpiredEvidence(UUID, INT2, INT8) = "DELETE FROM records WHERE session = $1 AND sequence IN (SELECT sequence \
        FROM marks WHERE session = $1 AND kind = $2 AND sequence <= $3 AND NOT EXISTS (SELECT 1 FROM marks AS other \
        WHERE other.session = $1 AND other.sequence = marks.sequence AND other.kind <> $2))";
    DeleteExpiredMarks(UUID, INT2, INT8) = "DELETE FROM marks WHERE session = $1 AND kind = $2 AND sequence <= $3";
    KeepMarks(UUID, INT2_ARRAY, INT8_ARRAY, UUID_ARRAY) =
        "INSERT INTO marks (session, kind, sequence, thread) SELECT $1, * FROM unnest($2, $3, $4) \
        ON CONFLICT DO NOTHING";
    Compact(UUID, INT8, INT8, INT8) = "DELETE FROM records WHERE session = $1 AND sequence IN (SELECT sequence \
        FROM records WHERE session = $1 AND sequence > $2 AND sequence <= $3 AND NOT EXISTS (SELECT 1 FROM marks \
        WHERE marks.session = $1 AND marks.sequence = records.sequence) ORDER BY sequence LIMIT $4)";
    PutSummary(UUID, INT8, BYTEA) = "INSERT INTO summaries (session, sequence, bytes) VALUES ($1, $2, $3) \
        ON CONFLICT (session) DO UPDATE SET sequence = excluded.sequence, bytes = excluded.bytes";
    PutCursor(BYTEA, BYTEA, BYTEA) = "INSERT INTO cursors (session, name, value) VALUES ($1, $2, $3) \
        ON CONFLICT (session, name) DO UPDATE SET value = excluded.value";
    DeleteCursor(BYTEA, BYTEA) = "DELETE FROM cursors WHERE session = $1 AND name = $2";
    DeleteSession(UUID) = "DELETE FROM sessions WHERE session = $1";
    DeleteMarks(UUID) = "DELETE FROM marks WHERE session = $1";
    DeleteSummary(UUID) = "DELETE FROM summaries WHERE session = $1";
    DeleteRecords(UUID) = "DELETE FROM records WHERE session = $1";
    DeleteContents(UUID) = "DELETE FROM contents WHERE session = $1";
    DeleteTranscripts(UUID) = "DELETE FROM transcripts WHERE session = $1";
    DeleteEntries(UUID) = "DELETE FROM entries WHERE session = $1";
    DeleteRequests(UUID) = "DELETE FROM requests WHERE session = $1";
    DeleteSnapshot(UUID) = "DELETE FROM snapshots WHERE session = $1";
    DeleteCreations(UUID) = "DELETE FROM creations WHERE session = $1";
    DeleteCursors(BYTEA) = "DELETE FROM cursors WHERE session = $1";
    DeleteThreads(UUID, UUID_ARRAY) = "DELETE FROM threads WHERE session = $1 AND thread = ANY($2)";
    ForgetRequests(INT8, INT8) = "DELETE FROM requests WHERE (session, scope, request_id) IN \
        (SELECT session, scope, request_id FROM requests WHERE expires <= $1 LIMIT $2)";
    ForgetCreations(INT8, INT8) = "DELETE FROM creations WHERE (creator, request_id) IN (SELECT creator, request_id \
        FROM creations WHERE expires <= $1 LIMIT $2)";

    // Writes to transcripts.
    LockTranscriptSizes(UUID_ARRAY, UUID) = "SELECT session, transcript_bytes, epoch, owner = $2 \
        FROM sessions WHERE session = ANY($1) FOR UPDATE";
    TranscriptHeads(UUID_ARRAY, UUID_ARRAY) =
        "SELECT t.session, t.thread, first, last, bytes, results_dropped, texts_dropped, generation, batch \
        FROM transcripts AS t JOIN unnest($1, $2) AS i (session, thread) ON t.session = i.session \
        AND t.thread = i.thread";
    InsertEntries(
        UUID_ARRAY, UUID_ARRAY, INT8_ARRAY, INT2_ARRAY, INT4_ARRAY, INT8_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY
    ) =
        "INSERT INTO entries (session, thread, number, kind, crc, size, header, text, digest) SELECT * \
        FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    PutTranscriptHeads(
        UUID_ARRAY, UUID_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY
    ) =
        "INSERT INTO transcripts (session, thread, first, last, bytes, results_dropped, texts_dropped, \
        generation, batch) SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (session, thread) \
        DO UPDATE SET first = excluded.first, last = excluded.last, bytes = excluded.bytes, \
        results_dropped = excluded.results_dropped, texts_dropped = excluded.texts_dropped, \
        generation = excluded.generation, batch = excluded.batch";
    PutTranscriptSizes(UUID_ARRAY, INT8_ARRAY) = "UPDATE sessions AS s SET transcript_bytes = i.bytes \
        FROM unnest($1, $2) AS i (session, bytes) WHERE s.session = i.session";
    DeleteOldestEntries(UUID, UUID, INT8) = "DELETE FROM entries WHERE session = $1 AND thread = $2 AND number < $3 \
        RETURNING (octet_length(header) + coalesce(octet_length(text), 0))::int8";
    OldestTexts(UUID, UUID, INT8, INT2, INT8) = "SELECT number, kind, header, octet_length(text)::int8 FROM entries \
        WHERE session = $1 AND thread = $2 AND number > $3 AND text IS NOT NULL AND ($4 = 0 OR kind = $4) \
        ORDER BY number LIMIT $5";
    DropTexts(UUID, UUID, INT8_ARRAY, INT4_ARRAY) = "UPDATE entries AS e SET text = NULL, digest = NULL, crc = i.crc \
        FROM unnest($3, $4) AS i (number, crc) WHERE e.session = $1 AND e.thread = $2 AND e.number = i.number";

    // Reads. An unnamed statement is planned for the values of its parameters, so a comparison with a NULL parameter
    // costs nothing, unless the role or the database has plan_cache_mode = force_generic_plan.
    Head(UUID) = "SELECT head, epoch, oldest, content_bytes FROM sessions WHERE session = $1";
    Records(UUID, INT8, INT8) = "SELECT s.head, s.oldest, r.sequence, r.crc, r.bytes FROM sessions AS s \
        LEFT JOIN LATERAL (SELECT sequence, crc, bytes FROM records \
        WHERE records.session = s.session AND sequence > $2 ORDER BY sequence LIMIT $3) AS r ON true \
        WHERE s.session = $1 ORDER BY r.sequence";
    Marked(UUID, INT2, INT8, INT8, UUID) = "SELECT r.sequence, r.crc, r.bytes FROM marks AS m \
        JOIN records AS r ON r.session = m.session AND r.sequence = m.sequence WHERE m.session = $1 AND m.kind = $2 \
        AND m.sequence > $3 AND ($5 IS NULL OR m.thread = $5) ORDER BY m.sequence LIMIT $4";
    Content(UUID, BYTEA) = "SELECT crc, bytes FROM contents WHERE session = $1 AND digest = $2";
    Snapshot(UUID) = "SELECT sequence, crc, bytes FROM snapshots WHERE session = $1";
    Request(UUID, BYTEA, BYTEA) = "SELECT scope, request_id, hash, outcome, expires, crc FROM requests \
        WHERE session = $1 AND scope = $2 AND request_id = $3";
    Requests(UUID, INT8, BYTEA, BYTEA) = "SELECT scope, request_id, hash, outcome, expires, crc FROM requests \
        WHERE session = $1 AND (scope, request_id) >= ($3, $4) ORDER BY scope, request_id LIMIT $2";
    Creation(BYTEA, BYTEA) = "SELECT session, hash, expires FROM creations WHERE creator = $1 AND request_id = $2";
    SessionOf(UUID) = "SELECT session FROM threads WHERE thread = $1";
    Sessions(INT8, UUID) = "SELECT session FROM sessions WHERE session > $2 ORDER BY session LIMIT $1";
    Summaries(INT8, UUID, UUID) = "SELECT s.session, s.head, u.bytes, m.member FROM sessions AS s \
        LEFT JOIN summaries AS u ON u.session = s.session AND u.sequence = s.head \
        LEFT JOIN members AS m ON m.member = s.owner AND m.member <> $2 WHERE s.session < $3 \
        ORDER BY s.session DESC LIMIT $1";
    Due(INT8, INT8, UUID, INT8, UUID) = "SELECT due, session FROM sessions WHERE due IS NOT NULL AND due <= $1 \
        AND (owner IS NULL OR owner = $3 OR NOT EXISTS (SELECT 1 FROM members WHERE member = owner)) \
        AND (due, session) > ($4, $5) ORDER BY due, session LIMIT $2";
    Cursor(BYTEA, BYTEA) = "SELECT value FROM cursors WHERE session = $1 AND name = $2";
    Entries(UUID, UUID, INT8, INT8, INT8, INT8) =
        "SELECT number, kind, crc, size, header, CASE WHEN size <= $6 THEN text END, digest \
        FROM entries WHERE session = $1 AND thread = $2 AND number > $3 AND ($4 >> kind::int4) & 1 = 1 \
        ORDER BY number LIMIT $5";
    EntriesTail(UUID, UUID, INT8, INT8, INT8) = "SELECT number FROM entries WHERE session = $1 AND thread = $2 \
        AND number > $3 AND ($4 >> kind::int4) & 1 = 1 ORDER BY number DESC LIMIT 1 OFFSET $5";
    LongText(UUID, BYTEA) = "SELECT thread, number, text FROM entries WHERE session = $1 AND digest = $2 LIMIT 1";
    LongTextThreads(UUID, BYTEA, INT8) = "SELECT DISTINCT thread FROM entries WHERE session = $1 AND digest = $2 \
        ORDER BY thread LIMIT $3";
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
        let with_parameters = STATEMENTS.iter().map(|statement| statement.parts().0);
        [BEGIN, COMMIT, ROLLBACK]
            .into_iter()
            .chain(SCHEMA)
            .chain(with_parameters)
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
