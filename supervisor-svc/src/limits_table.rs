//! Every number of the supervisor that a client can meet.

use svc_kit::limits::Limit;

use crate::{
    domain::{
        approval::{APPROVAL_TIMEOUT, MAX_DECIDED, MAX_WAITING_CALLS, MAX_WAITING_CALLS_OF_SESSION},
        content::{MAX_EVENT_MESSAGE_BYTES, PREVIEW_CHARS},
        graph::MAX_EDGES,
        limits::{MAX_PENDING_INPUT_BYTES, MAX_PENDING_INPUTS, MAX_RESTARTS_IN_WINDOW, RESTART_WINDOW},
        mail::MAX_HANDOFFS,
        prompt::{MAX_LISTED, MAX_MAIL_BYTES, MAX_TEXT_BYTES},
        rate::EventRate,
        session::CASCADE_DEADLINE,
        settings::{Limits, StallRule},
    },
    grpc,
    notify::{self, WebhookLimits},
    registry::{ANSWER_WITHIN, CONNECTIONS, PING_ANSWER, PING_EVERY, TRANSFER_WITHIN},
    runner_hub,
    service::Config,
    session::UpkeepLimits,
    store::limits::{MAX_CONTENT_BYTES, MAX_RECORD_BYTES},
    watch,
};

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
        Limit::count(SESSIONS, "max_depth, whatever is set", ceiling.max_depth),
        Limit::count(
            SESSIONS,
            "max_threads: active ones, the root not counted",
            default.max_threads,
        )
        .set_by("--max-threads", "TROUPE_MAX_THREADS"),
        Limit::count(SESSIONS, "max_threads, whatever is set", ceiling.max_threads),
        Limit::count(
            SESSIONS,
            "max_open_threads: those that are not closed",
            default.max_open_threads,
        )
        .set_by("--max-open-threads", "TROUPE_MAX_OPEN_THREADS"),
        Limit::count(SESSIONS, "max_open_threads, whatever is set", ceiling.max_open_threads),
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
        Limit::count(SESSIONS, "inputs that wait for one thread", MAX_PENDING_INPUTS),
        Limit::bytes(
            SESSIONS,
            "inputs that wait for one thread, where there are several",
            MAX_PENDING_INPUT_BYTES,
        ),
        Limit::count(SESSIONS, "handoffs that wait in one mailbox", MAX_HANDOFFS),
        Limit::count(SESSIONS, "edges that were created", MAX_EDGES),
        Limit::count(
            SESSIONS,
            "tool calls of one thread that wait for an operator",
            MAX_WAITING_CALLS,
        ),
        Limit::count(
            SESSIONS,
            "tool calls that wait for an operator",
            MAX_WAITING_CALLS_OF_SESSION,
        ),
        Limit::count(SESSIONS, "decided approvals that are listed", MAX_DECIDED),
        Limit::count(
            SESSIONS,
            "events a second that one thread causes; closing does not count",
            rate.of_thread().per_second,
        )
        .set_by("--thread-event-rate", "TROUPE_THREAD_EVENT_RATE"),
        Limit::count(
            SESSIONS,
            "events that one thread causes at once, after a pause",
            rate.of_thread().burst,
        ),
        Limit::count(
            SESSIONS,
            "events a second that all threads of a session cause, and refused tool calls likewise",
            rate.of_session().per_second,
        ),
        Limit::count(
            SESSIONS,
            "events that all threads of a session cause at once, after a pause",
            rate.of_session().burst,
        ),
        Limit::count(
            SESSIONS,
            "restarts of a thread before its subtree is closed instead",
            MAX_RESTARTS_IN_WINDOW,
        ),
        Limit::time(SESSIONS, "restarts that count together, since", RESTART_WINDOW),
        Limit::time(
            SESSIONS,
            "silence, until a running agent counts as stalled",
            stall.silence,
        )
        .set_by("--stall-after", "TROUPE_STALL_AFTER"),
        Limit::count(
            SESSIONS,
            "turns in a row with the same output or changes, until an agent counts as stalled",
            stall.repeats,
        )
        .set_by("--stall-repeats", "TROUPE_STALL_REPEATS"),
        Limit::time(
            SESSIONS,
            "an approval that nobody decides, until it is denied",
            APPROVAL_TIMEOUT,
        ),
        Limit::time(
            SESSIONS,
            "a subtree that is being closed, until the rest is forced",
            CASCADE_DEADLINE,
        ),
    ]
}

fn asking() -> Vec<Limit> {
    vec![
        Limit::time(ASKING, "an answer of the registry", ANSWER_WITHIN),
        Limit::time(ASKING, "the transfer of a workspace", TRANSFER_WITHIN),
        Limit::count(ASKING, "connections to the registry", CONNECTIONS),
        Limit::time(ASKING, "a connection to the registry until it is pinged", PING_EVERY),
        Limit::time(ASKING, "the registry's answer to a ping", PING_ANSWER),
    ]
}

fn telling() -> Vec<Limit> {
    let webhooks = WebhookLimits::default();
    vec![
        Limit::count(
            TELLING,
            "notifications that a client leaves unread before its stream waits",
            notify::OUTBOX,
        ),
        Limit::time(TELLING, "an attempt to reach a webhook", webhooks.timeout),
        Limit::time(
            TELLING,
            "from the first attempt that failed to the next; it doubles from then on",
            webhooks.first_retry,
        ),
        Limit::time(TELLING, "from one attempt to the next, at most", webhooks.longest_retry),
    ]
}

fn prompting() -> Vec<Limit> {
    vec![
        Limit::count(PROMPTING, "the threads that are listed, and the edges", MAX_LISTED),
        Limit::bytes(PROMPTING, "what is shown of a text of a handoff", MAX_TEXT_BYTES),
        Limit::bytes(PROMPTING, "the mail that is shown at once", MAX_MAIL_BYTES),
    ]
}

fn keeping() -> Vec<Limit> {
    let upkeep = UpkeepLimits::default();
    vec![
        Limit::time(
            KEEPING,
            "a session with nothing to do, until it leaves the memory",
            upkeep.idle,
        ),
        Limit::count(KEEPING, "events from one snapshot to the next", upkeep.snapshot_every),
        Limit::count(
            KEEPING,
            "events of a session, until its log is compacted",
            upkeep.compact_above,
        ),
        Limit::count(
            KEEPING,
            "events before the snapshot that compacting keeps for watchers",
            upkeep.keep_before_snapshot,
        ),
        Limit::time(
            KEEPING,
            "a security event (spawn, closing, approval, denial), until compacting may remove it",
            upkeep.keep_security_events,
        )
        .set_by("--keep-security-events", "TROUPE_KEEP_SECURITY_EVENTS"),
        Limit::bytes(KEEPING, "a record of the log", MAX_RECORD_BYTES),
        Limit::bytes(
            KEEPING,
            "a message in an event or a status; a longer one is content",
            MAX_EVENT_MESSAGE_BYTES,
        ),
        Limit::count(KEEPING, "the characters of a preview", PREVIEW_CHARS),
        Limit::bytes(KEEPING, "a content", MAX_CONTENT_BYTES),
        Limit::bytes(KEEPING, "the content of a session", Config::SESSION_CONTENT_BYTES)
            .set_by("--session-content-bytes", "TROUPE_SESSION_CONTENT_BYTES"),
    ]
}
