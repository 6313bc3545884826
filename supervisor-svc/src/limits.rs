//! The limits of the supervisor that a client can reach, for the limits reference.

use supervisor_log::store::limits::{
    MAX_CONTENT_BYTES, MAX_LISTED_TEXT_BYTES, MAX_RECORD_BYTES, MAX_TRANSCRIPT_BYTES, MAX_TRANSCRIPT_ENTRIES,
};
use svc_kit::limits::Limit;

use crate::{
    domain::{
        content::{MAX_EVENT_MESSAGE_BYTES, PREVIEW_CHARS},
        decide::group::MAX_OPEN_GROUPS,
        rules::{
            approval::{APPROVAL_TIMEOUT, LONGEST_APPROVAL_TIMEOUT, MAX_WAITING_CALLS, MAX_WAITING_CALLS_OF_SESSION},
            authorize::{MAX_PATH_BYTES, MAX_PATHS},
            cascade::CASCADE_DEADLINE,
            graph::MAX_EDGES,
            limits::{MAX_PENDING_INPUT_BYTES, MAX_PENDING_INPUTS, MAX_RESTARTS_IN_WINDOW, RESTART_WINDOW},
            mail::MAX_HANDOFFS,
            prompt::{MAX_LISTED, MAX_MAIL_BYTES, MAX_TEXT_BYTES as MAX_HANDOFF_TEXT_BYTES},
            rate::EventRate,
        },
        settings::{Limits, StallRule},
        state::approval::MAX_DECIDED,
        time::REQUESTS_REMEMBERED,
    },
    engine::UpkeepLimits,
    projections::{
        notifications,
        watch::{
            WatchLimits, sessions,
            snapshot::{CHUNK_BYTES, CHUNK_ITEMS},
            stream::{OUTPUT_EVERY, TELEMETRY_EVERY},
        },
        webhooks::WebhookLimits,
    },
    registry_client::{
        ANSWER_WITHIN, CONNECTIONS, LOOK_UP_EVERY, MAX_REGISTRIES, PING_ANSWER, PING_EVERY, TRANSFER_WITHIN,
    },
    results::{MAX_EXPANDED, MAX_REPAIRS, RESULT_BYTES, SCHEMA_BYTES},
    rpc::{
        WaitLimits,
        call::REQUEST_ID_BYTES,
        content::{PART_BYTES, PART_WITHIN},
        graph,
        groups::{APPROVAL_ABOVE, MAX_CONCURRENCY, MAX_RETRIES},
        marks::SEARCHED,
        page::{DEFAULT_SIZE, MAX_BYTES, MAX_SIZE},
        parse::{
            ALIAS_BYTES, APPROVE_TOOLS, INPUT_BYTES, INPUT_ITEMS, LABELS, NAME_BYTES, NOTE_BYTES, ORCHESTRATORS,
            PATH_BYTES, PROSE_BYTES, REASON_BYTES,
        },
        prompts::{DIFF_BYTES, TEXT_BYTES},
        results::QUESTION_BYTES,
        service::MAX_READS,
        sessions::{URL_BYTES, WEBHOOKS},
        spawn::CAPABILITIES,
        transcripts::MAX_TAIL,
        wait::MAX_WAITED,
        watch::OUTBOX as WATCH_OUTBOX,
    },
    runners::{
        LEASE,
        artifacts::{MAX_ARTIFACT_BYTES, MAX_UNFINISHED, MAX_UNFINISHED_BYTES},
        hub::{OUTBOX, STOP_GRACE},
        link::{
            BATCHES_IN_FLIGHT, HELLO_WITHIN, MAX_ARGUMENTS_BYTES, MAX_HELD, MAX_ID_BYTES, MAX_KINDS, MAX_LABEL_BYTES,
            MAX_LABELS, MAX_TOOL_BYTES, MAX_UNDECIDED, REPORTS_IN_FLIGHT,
        },
        output,
        protocol::{MAX_DETAIL_BYTES, MAX_KIND_BYTES, MAX_MEDIA_TYPE_BYTES, MAX_NAME_BYTES},
        telemetry::{MAX_DETAIL_CHARS, MAX_PLAN_STEPS, MAX_STEP_BYTES, MAX_TEXT_BYTES},
    },
    service::Config,
    tool_decisions::ARGUMENTS_BYTES,
    transcripts::{BATCH_ENTRIES, BATCH_TEXT_BYTES, RESULT_TEXT_BYTES},
    use_cases::group_plan::{KEY_BYTES, PLAN_BYTES, VARIABLES, VARIABLES_BYTES},
};

const REQUESTS: &str = "Requests to the supervisor";
const PAGES: &str = "Pages of the supervisor";
const WAITING: &str = "Waiting";
const READING: &str = "Reading prompts and content";
const WATCHING: &str = "Watching threads";
const RUNNERS: &str = "Runners";
const SESSIONS: &str = "Sessions";
const NOTIFICATIONS: &str = "Notifications";
const TASKS: &str = "Tasks of graph agents";
const REGISTRY: &str = "The registry behind the supervisor";
const STORED: &str = "Events and content";

/// Returns the limits in display order. The limits of one area may come from several modules.
#[must_use]
pub fn limits() -> Vec<Limit> {
    [
        sessions(),
        requests(),
        watching(),
        registry(),
        notifications(),
        tasks(),
        stored(),
        runner_streams(),
    ]
    .concat()
}

fn sessions() -> Vec<Limit> {
    let (default, ceiling, stall) = (Limits::default(), Limits::CEILING, StallRule::default());
    let rate = EventRate::default();
    vec![
        Limit::count(SESSIONS, "max_depth; the root is 0", default.max_depth).set_by("--max-depth", "TROUPE_MAX_DEPTH"),
        Limit::count(SESSIONS, "max_depth: maximum of the setting", ceiling.max_depth),
        Limit::count(
            SESSIONS,
            "max_threads: active threads without the root",
            default.max_threads,
        )
        .set_by("--max-threads", "TROUPE_MAX_THREADS"),
        Limit::count(SESSIONS, "max_threads: maximum of the setting", ceiling.max_threads),
        Limit::count(
            SESSIONS,
            "max_open_threads: threads that are not closed",
            default.max_open_threads,
        )
        .set_by("--max-open-threads", "TROUPE_MAX_OPEN_THREADS"),
        Limit::count(
            SESSIONS,
            "max_open_threads: maximum of the setting",
            ceiling.max_open_threads,
        ),
        Limit::count(
            SESSIONS,
            "max_total_threads: threads ever created",
            default.max_total_threads,
        )
        .set_by("--max-total-threads", "TROUPE_MAX_TOTAL_THREADS"),
        Limit::count(
            SESSIONS,
            "max_total_threads: maximum of the setting",
            ceiling.max_total_threads,
        ),
        Limit::count(SESSIONS, "pending inputs of one thread", MAX_PENDING_INPUTS),
        Limit::bytes(
            SESSIONS,
            "pending inputs of one thread, if there are several",
            MAX_PENDING_INPUT_BYTES,
        ),
        Limit::count(SESSIONS, "pending handoffs in one mailbox", MAX_HANDOFFS),
        Limit::count(SESSIONS, "edges of a session", MAX_EDGES),
        Limit::count(
            SESSIONS,
            "tool calls of one thread that await an operator",
            MAX_WAITING_CALLS,
        ),
        Limit::count(
            SESSIONS,
            "tool calls of a session that await an operator",
            MAX_WAITING_CALLS_OF_SESSION,
        ),
        Limit::count(SESSIONS, "decided approvals in a list", MAX_DECIDED),
        Limit::count(
            SESSIONS,
            "events per second of one thread; closing is exempt",
            rate.of_thread().per_second,
        )
        .set_by("--thread-event-rate", "TROUPE_THREAD_EVENT_RATE"),
        Limit::count(SESSIONS, "burst of events of one thread", rate.of_thread().burst),
        Limit::count(
            SESSIONS,
            "events per second of all threads of a session; the same for rejected tool calls",
            rate.of_session().per_second,
        ),
        Limit::count(
            SESSIONS,
            "burst of events of all threads of a session",
            rate.of_session().burst,
        ),
        Limit::count(
            SESSIONS,
            "restarts of a thread; the next loss closes its subtree",
            MAX_RESTARTS_IN_WINDOW,
        ),
        Limit::time(SESSIONS, "window in which restarts are counted", RESTART_WINDOW),
        Limit::time(
            SESSIONS,
            "silence after which a running agent is stalled",
            stall.silence,
        )
        .set_by("--stall-after", "TROUPE_STALL_AFTER"),
        Limit::count(
            SESSIONS,
            "consecutive turns with equal output or changes after which an agent is stalled",
            stall.repeats,
        )
        .set_by("--stall-repeats", "TROUPE_STALL_REPEATS"),
        Limit::time(
            SESSIONS,
            "time for a decision on an approval if the session sets no `approval_timeout`; then it is denied",
            APPROVAL_TIMEOUT,
        ),
        Limit::time(
            SESSIONS,
            "the `approval_timeout` of a session",
            LONGEST_APPROVAL_TIMEOUT,
        ),
        Limit::time(
            SESSIONS,
            "time for a subtree to close; then its threads are forced",
            CASCADE_DEADLINE,
        ),
    ]
}

fn registry() -> Vec<Limit> {
    vec![
        Limit::time(REGISTRY, "response of the registry", ANSWER_WITHIN),
        Limit::time(REGISTRY, "the transfer of a workspace", TRANSFER_WITHIN),
        Limit::count(REGISTRY, "connections to a registry", CONNECTIONS),
        Limit::count(REGISTRY, "registries, which are addresses of one name", MAX_REGISTRIES),
        Limit::time(REGISTRY, "interval of look-ups of the registry's name", LOOK_UP_EVERY),
        Limit::time(
            REGISTRY,
            "silence on a connection to the registry before a ping",
            PING_EVERY,
        ),
        Limit::time(REGISTRY, "the registry's response to a ping", PING_ANSWER),
    ]
}

fn notifications() -> Vec<Limit> {
    let webhooks = WebhookLimits::default();
    vec![
        Limit::count(
            NOTIFICATIONS,
            "unread notifications before a stream pauses",
            notifications::OUTBOX,
        ),
        Limit::time(NOTIFICATIONS, "an attempt to reach a webhook", webhooks.timeout),
        Limit::time(
            NOTIFICATIONS,
            "delay after the first failed attempt; it doubles for each further one",
            webhooks.first_retry,
        ),
        Limit::time(NOTIFICATIONS, "maximum delay between attempts", webhooks.longest_retry),
    ]
}

fn tasks() -> Vec<Limit> {
    vec![
        Limit::count(TASKS, "listed threads, and listed edges", MAX_LISTED),
        Limit::bytes(TASKS, "excerpt of a text of a handoff", MAX_HANDOFF_TEXT_BYTES),
        Limit::bytes(TASKS, "mail in one prompt", MAX_MAIL_BYTES),
    ]
}

fn stored() -> Vec<Limit> {
    let upkeep = UpkeepLimits::default();
    vec![
        Limit::time(STORED, "idle time after which a session is passivated", upkeep.idle),
        Limit::count(STORED, "events between snapshots", upkeep.snapshot_every),
        Limit::count(
            STORED,
            "events of a session before its log is compacted",
            upkeep.compact_above,
        ),
        Limit::count(
            STORED,
            "events before the snapshot that compaction keeps for watchers",
            upkeep.keep_before_snapshot,
        ),
        Limit::time(
            STORED,
            "retention of security events (spawn, closing, approval, denial) at compaction",
            upkeep.keep_security_events,
        )
        .set_by("--keep-security-events", "TROUPE_KEEP_SECURITY_EVENTS"),
        Limit::bytes(STORED, "a record of the log", MAX_RECORD_BYTES),
        Limit::bytes(
            STORED,
            "a message in an event or a status; a longer message is stored as content",
            MAX_EVENT_MESSAGE_BYTES,
        ),
        Limit::count(STORED, "characters of a preview", PREVIEW_CHARS),
        Limit::bytes(
            STORED,
            "a thread's transcript; then its oldest texts are dropped, those of tool results first",
            MAX_TRANSCRIPT_BYTES,
        ),
        Limit::count(
            STORED,
            "entries of a thread's transcript; then the oldest are removed",
            MAX_TRANSCRIPT_ENTRIES,
        ),
        Limit::bytes(
            STORED,
            "text of a tool result in a transcript; the rest is cut off",
            RESULT_TEXT_BYTES,
        ),
        Limit::bytes(STORED, "one content", MAX_CONTENT_BYTES),
        Limit::bytes(
            STORED,
            "the content of a session; the same for its transcripts, whose further texts are left out",
            Config::SESSION_CONTENT_BYTES,
        )
        .set_by("--session-content-bytes", "TROUPE_SESSION_CONTENT_BYTES"),
    ]
}

fn requests() -> Vec<Limit> {
    let wait = WaitLimits::default();
    vec![
        Limit::bytes(REQUESTS, "a request_id", REQUEST_ID_BYTES),
        Limit::time(REQUESTS, "time for which a request_id is stored", REQUESTS_REMEMBERED),
        Limit::bytes(
            REQUESTS,
            "a role, a persona, an effort, a provider, a label, a key or a value of labels",
            NAME_BYTES,
        ),
        Limit::bytes(REQUESTS, "a reason, a model, the name of a tool", REASON_BYTES),
        Limit::bytes(REQUESTS, "an alias", ALIAS_BYTES),
        Limit::bytes(REQUESTS, "a thread_note", NOTE_BYTES),
        Limit::bytes(REQUESTS, "a directory", PATH_BYTES),
        Limit::bytes(
            REQUESTS,
            "an objective, definition_of_done, override or custom_system_prompt",
            PROSE_BYTES,
        ),
        Limit::bytes(REQUESTS, "an input with all its items", INPUT_BYTES),
        Limit::count(REQUESTS, "the items of an input", INPUT_ITEMS),
        Limit::count(
            REQUESTS,
            "the items of a group; at most 10,000",
            Config::MAX_GROUP_ITEMS as usize,
        )
        .set_by("--max-group-items", "TROUPE_MAX_GROUP_ITEMS"),
        Limit::bytes(REQUESTS, "the template of a group with its items", PLAN_BYTES),
        Limit::bytes(REQUESTS, "the key of an item", KEY_BYTES),
        Limit::count(REQUESTS, "the variables of an item", VARIABLES),
        Limit::bytes(REQUESTS, "the variables of an item, in total", VARIABLES_BYTES),
        Limit::count(REQUESTS, "max_concurrency of a group", MAX_CONCURRENCY as usize),
        Limit::count(REQUESTS, "retries of an item", MAX_RETRIES as usize),
        Limit::count(SESSIONS, "groups of a session that have not ended", MAX_OPEN_GROUPS),
        Limit::count(
            REQUESTS,
            "the items of a thread's group that needs no approval",
            APPROVAL_ABOVE as usize,
        ),
        Limit::bytes(REQUESTS, "a result_schema", SCHEMA_BYTES),
        Limit::count(
            REQUESTS,
            "the objects of a result_schema with its references expanded",
            MAX_EXPANDED,
        ),
        Limit::count(REQUESTS, "result_repairs", MAX_REPAIRS as usize),
        Limit::bytes(REQUESTS, "a result", RESULT_BYTES),
        Limit::bytes(REQUESTS, "a question to the parent", QUESTION_BYTES),
        Limit::count(REQUESTS, "the labels of a session", LABELS),
        Limit::count(REQUESTS, "the webhooks of a session", WEBHOOKS),
        Limit::bytes(REQUESTS, "the URL of a webhook", URL_BYTES),
        Limit::count(REQUESTS, "capabilities in a spawn", CAPABILITIES),
        Limit::count(REQUESTS, "the patterns of approve_tools", APPROVE_TOOLS),
        Limit::count(REQUESTS, "the orchestrators of a session", ORCHESTRATORS),
        Limit::count(REQUESTS, "the patterns of a list of tools", tool_policy::MAX_PATTERNS),
        Limit::bytes(REQUESTS, "a pattern of tools", tool_policy::MAX_PATTERN_BYTES),
        Limit::bytes(REQUESTS, "the arguments of AuthorizeTool", ARGUMENTS_BYTES),
        Limit::count(REQUESTS, "the paths of AuthorizeTool", MAX_PATHS),
        Limit::bytes(
            REQUESTS,
            "the message of a handoff; the same for its structured value",
            graph::TEXT_BYTES,
        ),
        Limit::count(REQUESTS, "the artifacts of a handoff", graph::ARTIFACTS),
        Limit::bytes(
            REQUESTS,
            "types and references of the artifacts of a handoff, in total",
            graph::ARTIFACTS_BYTES,
        ),
        Limit::bytes(
            REQUESTS,
            "a reference to an artifact or to the subject of a handoff",
            graph::REFERENCE_BYTES,
        ),
        Limit::count(PAGES, "entries of a page if page_size is 0", DEFAULT_SIZE),
        Limit::count(PAGES, "entries", MAX_SIZE),
        Limit::bytes(PAGES, "a page; a larger entry gets its own page", MAX_BYTES),
        Limit::count(WAITING, "the threads of one WaitAgents", MAX_WAITED),
        Limit::time(WAITING, "a WaitAgents without a timeout", wait.default),
        Limit::time(WAITING, "a WaitAgents", wait.max),
        Limit::bytes(
            READING,
            "a text in a list of transcript entries; GetContent returns a longer one",
            MAX_LISTED_TEXT_BYTES,
        ),
        Limit::count(READING, "the tail of a transcript", MAX_TAIL),
        Limit::bytes(READING, "the texts of a GetPrompt", TEXT_BYTES),
        Limit::bytes(READING, "two compared prompts, in total", DIFF_BYTES),
        Limit::bytes(READING, "a part of GetContent", PART_BYTES),
        Limit::count(READING, "concurrent reads of contents", MAX_READS),
        Limit::time(READING, "time for a reader to take one part of a content", PART_WITHIN),
        Limit::count(
            READING,
            "records of one kind that are searched for a content, for viewers and threads",
            SEARCHED,
        ),
        Limit::count(
            WATCHING,
            "unread messages before a watcher is served from the log",
            WATCH_OUTBOX,
        ),
    ]
}

fn watching() -> Vec<Limit> {
    let times = WatchLimits::default();
    vec![
        Limit::count(WATCHING, "the items of one part of a snapshot", CHUNK_ITEMS),
        Limit::bytes(WATCHING, "one part of a snapshot", CHUNK_BYTES),
        Limit::time(
            WATCHING,
            "minimum interval between telemetry messages of a thread",
            TELEMETRY_EVERY,
        ),
        Limit::time(
            WATCHING,
            "minimum interval between output messages of a thread",
            OUTPUT_EVERY,
        ),
        Limit::bytes(WATCHING, "stored recent output of a thread", output::MAX_BYTES),
        Limit::count(WATCHING, "stored pieces of output of a thread", output::MAX_PIECES),
        Limit::count(WATCHING, "threads with stored output", output::MAX_THREADS),
        Limit::time(
            WATCHING,
            "minimum interval between WatchSessions messages about one session",
            sessions::EVERY,
        ),
        Limit::count(WATCHING, "the steps of a plan in telemetry", MAX_PLAN_STEPS),
        Limit::bytes(WATCHING, "a step of a plan", MAX_STEP_BYTES),
        Limit::count(WATCHING, "the characters of the latest tool's detail", MAX_DETAIL_CHARS),
        Limit::bytes(WATCHING, "any other text in telemetry", MAX_TEXT_BYTES),
        Limit::time(WATCHING, "silence on a stream before a bookmark", times.bookmark_every),
        Limit::time(WATCHING, "lifetime of a stream, plus up to a fifth", times.lifetime),
        Limit::time(
            WATCHING,
            "time for a reader to take the last messages of an ending stream",
            times.flush_timeout,
        ),
    ]
}

fn runner_streams() -> Vec<Limit> {
    vec![
        Limit::time(RUNNERS, "silence of a runner after which its lease expires", LEASE),
        Limit::time(RUNNERS, "time from the start of a stream to hello", HELLO_WITHIN),
        Limit::time(
            RUNNERS,
            "grace period for a program to stop before it is killed",
            STOP_GRACE,
        ),
        Limit::bytes(
            RUNNERS,
            "a runner_id, and the request_id of a tool request",
            MAX_ID_BYTES,
        ),
        Limit::bytes(
            RUNNERS,
            "a kind of a runner, a key or a value of its labels",
            MAX_LABEL_BYTES,
        ),
        Limit::count(RUNNERS, "the kinds of a runner", MAX_KINDS),
        Limit::count(RUNNERS, "the labels of a runner", MAX_LABELS),
        Limit::count(RUNNERS, "the threads of a hello", MAX_HELD),
        Limit::count(
            RUNNERS,
            "reports of a runner that are not durable yet before reading pauses",
            REPORTS_IN_FLIGHT,
        ),
        Limit::count(
            RUNNERS,
            "batches of transcripts of a runner that are not durable yet before reading pauses",
            BATCHES_IN_FLIGHT,
        ),
        Limit::count(RUNNERS, "entries of a batch of a transcript", BATCH_ENTRIES),
        Limit::bytes(RUNNERS, "texts of a batch of a transcript, in total", BATCH_TEXT_BYTES),
        Limit::count(
            RUNNERS,
            "pending messages to a runner before it is disconnected",
            OUTBOX,
        ),
        Limit::bytes(RUNNERS, "the name of a tool in a tool request", MAX_TOOL_BYTES),
        Limit::bytes(RUNNERS, "the arguments of a tool request", MAX_ARGUMENTS_BYTES),
        Limit::count(RUNNERS, "the paths of a tool request", MAX_PATHS),
        Limit::bytes(RUNNERS, "a path of a tool request", MAX_PATH_BYTES),
        Limit::count(
            RUNNERS,
            "undecided tool requests of a runner; the next one is rejected",
            MAX_UNDECIDED,
        ),
        Limit::bytes(RUNNERS, "an artifact", MAX_ARTIFACT_BYTES),
        Limit::bytes(RUNNERS, "the name of an artifact; a longer name is cut", MAX_NAME_BYTES),
        Limit::bytes(RUNNERS, "the kind of an artifact; a longer kind is cut", MAX_KIND_BYTES),
        Limit::bytes(
            RUNNERS,
            "the media type of an artifact; a longer type is cut",
            MAX_MEDIA_TYPE_BYTES,
        ),
        Limit::count(RUNNERS, "unfinished artifacts of a runner", MAX_UNFINISHED),
        Limit::bytes(
            RUNNERS,
            "unfinished artifacts of a runner, in total",
            MAX_UNFINISHED_BYTES,
        ),
        Limit::bytes(
            RUNNERS,
            "the detail of a stop or a gap; a longer text is cut",
            MAX_DETAIL_BYTES,
        ),
    ]
}
