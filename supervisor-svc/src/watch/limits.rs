//! The numbers of watches, for the table of all numbers.

use svc_kit::limits::Limit;

use super::{
    WatchLimits, output, sessions,
    snapshot::{CHUNK_BYTES, CHUNK_THREADS},
    stream::{OUTPUT_EVERY, TELEMETRY_EVERY},
    telemetry::{MAX_DETAIL_CHARS, MAX_PLAN_STEPS, MAX_STEP_BYTES, MAX_TEXT_BYTES},
};

const AREA: &str = "Watching threads";

pub(crate) fn limits() -> Vec<Limit> {
    let times = WatchLimits::default();
    vec![
        Limit::count(AREA, "the threads of one part of a snapshot", CHUNK_THREADS),
        Limit::bytes(AREA, "one part of a snapshot", CHUNK_BYTES),
        Limit::time(
            AREA,
            "from one telemetry of a thread to the next, at least",
            TELEMETRY_EVERY,
        ),
        Limit::time(AREA, "from one output to the next, at least", OUTPUT_EVERY),
        Limit::bytes(AREA, "the latest output of a thread that is kept", output::MAX_BYTES),
        Limit::count(
            AREA,
            "the pieces of output that are kept of a thread",
            output::MAX_PIECES,
        ),
        Limit::count(AREA, "the threads whose output is kept", output::MAX_THREADS),
        Limit::time(
            AREA,
            "from one word of WatchSessions about a session to the next, at least",
            sessions::EVERY,
        ),
        Limit::count(AREA, "the steps of a plan in telemetry", MAX_PLAN_STEPS),
        Limit::bytes(AREA, "a step of a plan", MAX_STEP_BYTES),
        Limit::count(AREA, "the characters of the latest tool's detail", MAX_DETAIL_CHARS),
        Limit::bytes(AREA, "another text in telemetry", MAX_TEXT_BYTES),
        Limit::time(AREA, "a silent stream until it gets a bookmark", times.bookmark_every),
        Limit::time(AREA, "a stream, and up to a fifth more", times.lifetime),
        Limit::time(
            AREA,
            "a stream that ends, until its reader has taken what it is told last",
            times.last_word,
        ),
    ]
}
