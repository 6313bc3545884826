//! Every number of the supervisor that a client can meet.

use svc_kit::limits::Limit;

use crate::{
    domain::{
        approval::{APPROVAL_TIMEOUT, MAX_DECIDED},
        content::{MAX_EVENT_MESSAGE_BYTES, PREVIEW_CHARS},
        graph::MAX_EDGES,
        limits::{MAX_PENDING_INPUT_BYTES, MAX_PENDING_INPUTS},
        mail::MAX_HANDOFFS,
        session::CASCADE_DEADLINE,
        settings::Limits,
        thread::MAX_RESTARTS,
    },
    grpc, runner_hub,
    service::Config,
    store::limits::{MAX_CONTENT_BYTES, MAX_RECORD_BYTES},
    watch,
};

const SESSIONS: &str = "Sessions";
const KEEPING: &str = "Events and content";

/// The table, in the order in which it is shown: numbers of one area may come from several places.
#[must_use]
pub fn limits() -> Vec<Limit> {
    [
        sessions(),
        grpc::limits::limits(),
        watch::limits::limits(),
        keeping(),
        runner_hub::limits::limits(),
    ]
    .concat()
}

fn sessions() -> Vec<Limit> {
    let (default, ceiling) = (Limits::default(), Limits::CEILING);
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
            "max_total_threads: those that there ever were",
            default.max_total_threads,
        ),
        Limit::count(
            SESSIONS,
            "max_total_threads, whatever is asked for",
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
        Limit::count(SESSIONS, "decided approvals that are listed", MAX_DECIDED),
        Limit::count(SESSIONS, "restarts of a thread that are remembered", MAX_RESTARTS),
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

fn keeping() -> Vec<Limit> {
    vec![
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
