//! The limits of the supervisor that a client can reach, for the limits reference.

use supervisor_log::store::limits::{
    MAX_CONTENT_BYTES, MAX_LISTED_TEXT_BYTES, MAX_RECORD_BYTES, MAX_TRANSCRIPT_BYTES, MAX_TRANSCRIPT_ENTRIES,
};
use svc_kit::limits::{Area, Limit};

use crate::{
    config::Config,
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
        wait::{DEFAULT_WAIT, MAX_WAIT, MAX_WAITED},
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
    tool_decisions::ARGUMENTS_BYTES,
    transcripts::{BATCH_ENTRIES, BATCH_TEXT_BYTES, RESULT_TEXT_BYTES},
    use_cases::group_plan::{KEY_BYTES, PLAN_BYTES, VARIABLES, VARIABLES_BYTES},
};

/// Returns the limits in display order.
#[must_use]
pub fn limits() -> Vec<Area> {
    vec![
        sessions(),
        requests(),
        pages(),
        waiting(),
        reading(),
        watching(),
        registry(),
        notifications(),
        tasks(),
        stored(),
        runner_streams(),
    ]
}

fn sessions() -> Area {
    let (default, ceiling, stall) = (Limits::default(), Limits::CEILING, StallRule::default());
    let rate = EventRate::default();
    Area::new(
        "Sessions",
        vec![
            Limit::count("max_depth; the root is 0", default.max_depth).set_by("--max-depth"),
            Limit::count("max_depth: maximum of the setting", ceiling.max_depth),
            Limit::count("max_threads: active threads without the root", default.max_threads).set_by("--max-threads"),
            Limit::count("max_threads: maximum of the setting", ceiling.max_threads),
            Limit::count(
                "max_open_threads: threads that are not closed",
                default.max_open_threads,
            )
            .set_by("--max-open-threads"),
            Limit::count("max_open_threads: maximum of the setting", ceiling.max_open_threads),
            Limit::count("max_total_threads: threads ever created", default.max_total_threads)
                .set_by("--max-total-threads"),
            Limit::count("max_total_threads: maximum of the setting", ceiling.max_total_threads),
            Limit::count("pending inputs of one thread", MAX_PENDING_INPUTS),
            Limit::bytes(
                "pending inputs of one thread, if there are several",
                MAX_PENDING_INPUT_BYTES,
            ),
            Limit::count("pending handoffs in one mailbox", MAX_HANDOFFS),
            Limit::count("edges of a session", MAX_EDGES),
            Limit::count("tool calls of one thread that await an operator", MAX_WAITING_CALLS),
            Limit::count(
                "tool calls of a session that await an operator",
                MAX_WAITING_CALLS_OF_SESSION,
            ),
            Limit::count("decided approvals in a list", MAX_DECIDED),
            Limit::count(
                "events per second of one thread; closing is exempt",
                rate.of_thread().per_second,
            )
            .set_by("--thread-event-rate"),
            Limit::count("burst of events of one thread", rate.of_thread().burst),
            Limit::count(
                "events per second of all threads of a session; the same for rejected tool calls",
                rate.of_session().per_second,
            ),
            Limit::count("burst of events of all threads of a session", rate.of_session().burst),
            Limit::count(
                "restarts of a thread; the next loss closes its subtree",
                MAX_RESTARTS_IN_WINDOW,
            ),
            Limit::time("window in which restarts are counted", RESTART_WINDOW),
            Limit::time("silence after which a running agent is stalled", stall.silence).set_by("--stall-after"),
            Limit::count(
                "consecutive turns with equal output or changes after which an agent is stalled",
                stall.repeats,
            )
            .set_by("--stall-repeats"),
            Limit::time(
                "time for a decision on an approval if the session sets no `approval_timeout`; then it is denied",
                APPROVAL_TIMEOUT,
            ),
            Limit::time("the `approval_timeout` of a session", LONGEST_APPROVAL_TIMEOUT),
            Limit::time(
                "time for a subtree to close; then its threads are forced",
                CASCADE_DEADLINE,
            ),
            Limit::count("groups of a session that have not ended", MAX_OPEN_GROUPS),
        ],
    )
}

fn requests() -> Area {
    Area::new(
        "Requests to the supervisor",
        vec![
            Limit::bytes("a request_id", REQUEST_ID_BYTES),
            Limit::time("time for which a request_id is stored", REQUESTS_REMEMBERED),
            Limit::bytes(
                "a role, a persona, an effort, a provider, a label, a key or a value of labels",
                NAME_BYTES,
            ),
            Limit::bytes("a reason, a model, the name of a tool", REASON_BYTES),
            Limit::bytes("an alias", ALIAS_BYTES),
            Limit::bytes("a thread_note", NOTE_BYTES),
            Limit::bytes("a directory", PATH_BYTES),
            Limit::bytes(
                "an objective, definition_of_done, override or custom_system_prompt",
                PROSE_BYTES,
            ),
            Limit::bytes("an input with all its items", INPUT_BYTES),
            Limit::count("the items of an input", INPUT_ITEMS),
            Limit::count("the items of a group; at most 10,000", Config::MAX_GROUP_ITEMS as usize)
                .set_by("--max-group-items"),
            Limit::bytes("the template of a group with its items", PLAN_BYTES),
            Limit::bytes("the key of an item", KEY_BYTES),
            Limit::count("the variables of an item", VARIABLES),
            Limit::bytes("the variables of an item, in total", VARIABLES_BYTES),
            Limit::count("max_concurrency of a group", MAX_CONCURRENCY as usize),
            Limit::count("retries of an item", MAX_RETRIES as usize),
            Limit::count(
                "the items of a thread's group that needs no approval",
                APPROVAL_ABOVE as usize,
            ),
            Limit::bytes("a result_schema", SCHEMA_BYTES),
            Limit::count(
                "the objects of a result_schema with its references expanded",
                MAX_EXPANDED,
            ),
            Limit::count("result_repairs", MAX_REPAIRS as usize),
            Limit::bytes("a result", RESULT_BYTES),
            Limit::bytes("a question to the parent", QUESTION_BYTES),
            Limit::count("the labels of a session", LABELS),
            Limit::count("the webhooks of a session", WEBHOOKS),
            Limit::bytes("the URL of a webhook", URL_BYTES),
            Limit::count("capabilities in a spawn", CAPABILITIES),
            Limit::count("the patterns of approve_tools", APPROVE_TOOLS),
            Limit::count("the orchestrators of a session", ORCHESTRATORS),
            Limit::count("the patterns of a list of tools", tool_policy::MAX_PATTERNS),
            Limit::bytes("a pattern of tools", tool_policy::MAX_PATTERN_BYTES),
            Limit::bytes("the arguments of AuthorizeTool", ARGUMENTS_BYTES),
            Limit::count("the paths of AuthorizeTool", MAX_PATHS),
            Limit::bytes(
                "the message of a handoff; the same for its structured value",
                graph::TEXT_BYTES,
            ),
            Limit::count("the artifacts of a handoff", graph::ARTIFACTS),
            Limit::bytes(
                "types and references of the artifacts of a handoff, in total",
                graph::ARTIFACTS_BYTES,
            ),
            Limit::bytes(
                "a reference to an artifact or to the subject of a handoff",
                graph::REFERENCE_BYTES,
            ),
        ],
    )
}

fn pages() -> Area {
    Area::new(
        "Pages of the supervisor",
        vec![
            Limit::count("entries of a page if page_size is 0", DEFAULT_SIZE),
            Limit::count("entries", MAX_SIZE),
            Limit::bytes("a page; a larger entry gets its own page", MAX_BYTES),
        ],
    )
}

fn waiting() -> Area {
    Area::new(
        "Waiting",
        vec![
            Limit::count("the threads of one WaitAgents", MAX_WAITED),
            Limit::time("a WaitAgents without a timeout", DEFAULT_WAIT),
            Limit::time("a WaitAgents", MAX_WAIT),
        ],
    )
}

fn reading() -> Area {
    Area::new(
        "Reading prompts and content",
        vec![
            Limit::bytes(
                "a text in a list of transcript entries; GetContent returns a longer one",
                MAX_LISTED_TEXT_BYTES,
            ),
            Limit::count("the tail of a transcript", MAX_TAIL),
            Limit::bytes("the texts of a GetPrompt", TEXT_BYTES),
            Limit::bytes("two compared prompts, in total", DIFF_BYTES),
            Limit::bytes("a part of GetContent", PART_BYTES),
            Limit::count("concurrent reads of contents", MAX_READS),
            Limit::time("time for a reader to take one part of a content", PART_WITHIN),
            Limit::count(
                "records of one kind that are searched for a content, for viewers and threads",
                SEARCHED,
            ),
        ],
    )
}

fn watching() -> Area {
    let times = WatchLimits::default();
    Area::new(
        "Watching threads",
        vec![
            Limit::count("unread messages before a watcher is served from the log", WATCH_OUTBOX),
            Limit::count("the items of one part of a snapshot", CHUNK_ITEMS),
            Limit::bytes("one part of a snapshot", CHUNK_BYTES),
            Limit::time(
                "minimum interval between telemetry messages of a thread",
                TELEMETRY_EVERY,
            ),
            Limit::time("minimum interval between output messages of a thread", OUTPUT_EVERY),
            Limit::bytes("stored recent output of a thread", output::MAX_BYTES),
            Limit::count("stored pieces of output of a thread", output::MAX_PIECES),
            Limit::count("threads with stored output", output::MAX_THREADS),
            Limit::time(
                "minimum interval between WatchSessions messages about one session",
                sessions::EVERY,
            ),
            Limit::count("the steps of a plan in telemetry", MAX_PLAN_STEPS),
            Limit::bytes("a step of a plan", MAX_STEP_BYTES),
            Limit::count("the characters of the latest tool's detail", MAX_DETAIL_CHARS),
            Limit::bytes("any other text in telemetry", MAX_TEXT_BYTES),
            Limit::time("silence on a stream before a bookmark", times.bookmark_every),
            Limit::time("lifetime of a stream, plus up to a fifth", times.lifetime),
            Limit::time(
                "time for a reader to take the last messages of an ending stream",
                times.flush_timeout,
            ),
        ],
    )
}

fn registry() -> Area {
    Area::new(
        "The registry behind the supervisor",
        vec![
            Limit::time("response of the registry", ANSWER_WITHIN),
            Limit::time("the transfer of a workspace", TRANSFER_WITHIN),
            Limit::count("connections to a registry", CONNECTIONS),
            Limit::count("registries, which are addresses of one name", MAX_REGISTRIES),
            Limit::time("interval of look-ups of the registry's name", LOOK_UP_EVERY),
            Limit::time("silence on a connection to the registry before a ping", PING_EVERY),
            Limit::time("the registry's response to a ping", PING_ANSWER),
        ],
    )
}

fn notifications() -> Area {
    let webhooks = WebhookLimits::default();
    Area::new(
        "Notifications",
        vec![
            Limit::count("unread notifications before a stream pauses", notifications::OUTBOX),
            Limit::time("an attempt to reach a webhook", webhooks.timeout),
            Limit::time(
                "delay after the first failed attempt; it doubles for each further one",
                webhooks.first_retry,
            ),
            Limit::time("maximum delay between attempts", webhooks.longest_retry),
        ],
    )
}

fn tasks() -> Area {
    Area::new(
        "Tasks of graph agents",
        vec![
            Limit::count("listed threads, and listed edges", MAX_LISTED),
            Limit::bytes("excerpt of a text of a handoff", MAX_HANDOFF_TEXT_BYTES),
            Limit::bytes("mail in one prompt", MAX_MAIL_BYTES),
        ],
    )
}

fn stored() -> Area {
    let upkeep = UpkeepLimits::default();
    Area::new(
        "Events and content",
        vec![
            Limit::time("idle time after which a session is passivated", upkeep.idle),
            Limit::count("events between snapshots", upkeep.snapshot_every),
            Limit::count("events of a session before its log is compacted", upkeep.compact_above),
            Limit::count(
                "events before the snapshot that compaction keeps for watchers",
                upkeep.keep_before_snapshot,
            ),
            Limit::time(
                "retention of security events (spawn, closing, approval, denial) at compaction",
                upkeep.keep_security_events,
            )
            .set_by("--keep-security-events"),
            Limit::bytes("a record of the log", MAX_RECORD_BYTES),
            Limit::bytes(
                "a message in an event or a status; a longer message is stored as content",
                MAX_EVENT_MESSAGE_BYTES,
            ),
            Limit::count("characters of a preview", PREVIEW_CHARS),
            Limit::bytes(
                "a thread's transcript; then its oldest texts are dropped, those of tool results first",
                MAX_TRANSCRIPT_BYTES,
            ),
            Limit::count(
                "entries of a thread's transcript; then the oldest are removed",
                MAX_TRANSCRIPT_ENTRIES,
            ),
            Limit::bytes(
                "text of a tool result in a transcript; the rest is cut off",
                RESULT_TEXT_BYTES,
            ),
            Limit::bytes("one content", MAX_CONTENT_BYTES),
            Limit::bytes(
                "the content of a session; the same for its transcripts, whose further texts are left out",
                Config::SESSION_CONTENT_BYTES,
            )
            .set_by("--session-content-bytes"),
        ],
    )
}

fn runner_streams() -> Area {
    Area::new(
        "Runners",
        vec![
            Limit::time("silence of a runner after which its lease expires", LEASE),
            Limit::time("time from the start of a stream to hello", HELLO_WITHIN),
            Limit::time("grace period for a program to stop before it is killed", STOP_GRACE),
            Limit::bytes("a runner_id, and the request_id of a tool request", MAX_ID_BYTES),
            Limit::bytes("a kind of a runner, a key or a value of its labels", MAX_LABEL_BYTES),
            Limit::count("the kinds of a runner", MAX_KINDS),
            Limit::count("the labels of a runner", MAX_LABELS),
            Limit::count("the threads of a hello", MAX_HELD),
            Limit::count(
                "reports of a runner that are not durable yet before reading pauses",
                REPORTS_IN_FLIGHT,
            ),
            Limit::count(
                "batches of transcripts of a runner that are not durable yet before reading pauses",
                BATCHES_IN_FLIGHT,
            ),
            Limit::count("entries of a batch of a transcript", BATCH_ENTRIES),
            Limit::bytes("texts of a batch of a transcript, in total", BATCH_TEXT_BYTES),
            Limit::count("pending messages to a runner before it is disconnected", OUTBOX),
            Limit::bytes("the name of a tool in a tool request", MAX_TOOL_BYTES),
            Limit::bytes("the arguments of a tool request", MAX_ARGUMENTS_BYTES),
            Limit::count("the paths of a tool request", MAX_PATHS),
            Limit::bytes("a path of a tool request", MAX_PATH_BYTES),
            Limit::count(
                "undecided tool requests of a runner; the next one is rejected",
                MAX_UNDECIDED,
            ),
            Limit::bytes("an artifact", MAX_ARTIFACT_BYTES),
            Limit::bytes("the name of an artifact; a longer name is cut", MAX_NAME_BYTES),
            Limit::bytes("the kind of an artifact; a longer kind is cut", MAX_KIND_BYTES),
            Limit::bytes(
                "the media type of an artifact; a longer type is cut",
                MAX_MEDIA_TYPE_BYTES,
            ),
            Limit::count("unfinished artifacts of a runner", MAX_UNFINISHED),
            Limit::bytes("unfinished artifacts of a runner, in total", MAX_UNFINISHED_BYTES),
            Limit::bytes("the detail of a stop or a gap; a longer text is cut", MAX_DETAIL_BYTES),
        ],
    )
}
