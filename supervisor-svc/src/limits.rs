//! Every number of the supervisor that a client can meet.

use supervisor_log::store::limits::{MAX_CONTENT_BYTES, MAX_RECORD_BYTES};
use svc_kit::limits::Limit;

use crate::{domain::{content::{MAX_EVENT_MESSAGE_BYTES, PREVIEW_CHARS}, rules::{approval::{APPROVAL_TIMEOUT, MAX_WAITING_CALLS, MAX_WAITING_CALLS_OF_SESSION}, cascade::CASCADE_DEADLINE, graph::MAX_EDGES, limits::{MAX_PENDING_INPUTS, MAX_PENDING_INPUT_BYTES, MAX_RESTARTS_IN_WINDOW, RESTART_WINDOW}, mail::MAX_HANDOFFS, prompt::{MAX_LISTED, MAX_MAIL_BYTES, MAX_TEXT_BYTES}, rate::EventRate}, settings::{Limits, StallRule}, state::approval::MAX_DECIDED}, engine::UpkeepLimits, projections::{notifications, watch, webhooks::WebhookLimits}, registry_client::{ANSWER_WITHIN, CONNECTIONS, PING_ANSWER, PING_EVERY, TRANSFER_WITHIN}, rpc, runners, service::Config};

const SESSIONS: &str = "Sessions";
const TELLING: &str = "Notifications";
const PROMPTING: &str = "Tasks of graph agents";
const ASKING: &str = "The registry behind the supervisor";
const KEEPING: &str = "Events and content";

/// Returns the limits in display order. The limits of one area may come from several modules.
#[must_use]
pub fn limits() -> Vec<Limit> {
    [
        sessions(),
        grpc::limits::limits(),
        watch::limits::limits(),
        asking(),
        telling(),
        prompting(),
        keeping(),
        runner_hub::limits::limits(),
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
            "time for a decision on an approval; then it is denied",
            APPROVAL_TIMEOUT,
        ),
        Limit::time(
            SESSIONS,
            "time for a subtree to close; then its threads are forced",
            CASCADE_DEADLINE,
        ),
    ]
}

fn asking() -> Vec<Limit> {
    vec![
        Limit::time(ASKING, "response of the registry", ANSWER_WITHIN),
        Limit::time(ASKING, "the transfer of a workspace", TRANSFER_WITHIN),
        Limit::count(ASKING, "connections to the registry", CONNECTIONS),
        Limit::time(
            ASKING,
            "silence on a connection to the registry before a ping",
            PING_EVERY,
        ),
        Limit::time(ASKING, "the registry's response to a ping", PING_ANSWER),
    ]
}

fn telling() -> Vec<Limit> {
    let webhooks = WebhookLimits::default();
    vec![
        Limit::count(TELLING, "unread notifications before a stream pauses", notify::OUTBOX),
        Limit::time(TELLING, "an attempt to reach a webhook", webhooks.timeout),
        Limit::time(
            TELLING,
            "delay after the first failed attempt; it doubles for each further one",
            webhooks.first_retry,
        ),
        Limit::time(TELLING, "maximum delay between attempts", webhooks.longest_retry),
    ]
}

fn prompting() -> Vec<Limit> {
    vec![
        Limit::count(PROMPTING, "listed threads, and listed edges", MAX_LISTED),
        Limit::bytes(PROMPTING, "excerpt of a text of a handoff", MAX_TEXT_BYTES),
        Limit::bytes(PROMPTING, "mail in one prompt", MAX_MAIL_BYTES),
    ]
}

fn keeping() -> Vec<Limit> {
    let upkeep = UpkeepLimits::default();
    vec![
        Limit::time(KEEPING, "idle time after which a session is passivated", upkeep.idle),
        Limit::count(KEEPING, "events between snapshots", upkeep.snapshot_every),
        Limit::count(
            KEEPING,
            "events of a session before its log is compacted",
            upkeep.compact_above,
        ),
        Limit::count(
            KEEPING,
            "events before the snapshot that compaction keeps for watchers",
            upkeep.keep_before_snapshot,
        ),
        Limit::time(
            KEEPING,
            "retention of security events (spawn, closing, approval, denial) at compaction",
            upkeep.keep_security_events,
        )
        .set_by("--keep-security-events", "TROUPE_KEEP_SECURITY_EVENTS"),
        Limit::bytes(KEEPING, "a record of the log", MAX_RECORD_BYTES),
        Limit::bytes(
            KEEPING,
            "a message in an event or a status; a longer message is stored as content",
            MAX_EVENT_MESSAGE_BYTES,
        ),
        Limit::count(KEEPING, "characters of a preview", PREVIEW_CHARS),
        Limit::bytes(KEEPING, "one content", MAX_CONTENT_BYTES),
        Limit::bytes(KEEPING, "the content of a session", Config::SESSION_CONTENT_BYTES)
            .set_by("--session-content-bytes", "TROUPE_SESSION_CONTENT_BYTES"),
    ]
}
