//! The numbers of watches, for the table of all numbers.

use svc_kit::limits::Limit;

use super::{WatchLimits, sessions, snapshot::{CHUNK_BYTES, CHUNK_THREADS}, stream::{OUTPUT_EVERY, TELEMETRY_EVERY}};
use crate::runners::{output, telemetry::{MAX_DETAIL_CHARS, MAX_PLAN_STEPS, MAX_STEP_BYTES, MAX_TEXT_BYTES}};

const AREA: &str = "Watching threads";

pub(crate) fn limits() -> Vec<Limit> {
    let times = WatchLimits::default();
    vec![
        Limit::count(AREA, "the threads of one part of a snapshot", CHUNK_THREADS),
        Limit::bytes(AREA, "one part of a snapshot", CHUNK_BYTES),
        Limit::time(
            AREA,
            "minimum interval between telemetry messages of a thread",
            TELEMETRY_EVERY,
        ),
        Limit::time(
            AREA,
            "minimum interval between output messages of a thread",
            OUTPUT_EVERY,
        ),
        Limit::bytes(AREA, "stored recent output of a thread", output::MAX_BYTES),
        Limit::count(AREA, "stored pieces of output of a thread", output::MAX_PIECES),
        Limit::count(AREA, "threads with stored output", output::MAX_THREADS),
        Limit::time(
            AREA,
            "minimum interval between WatchSessions messages about one session",
            sessions::EVERY,
        ),
        Limit::count(AREA, "the steps of a plan in telemetry", MAX_PLAN_STEPS),
        Limit::bytes(AREA, "a step of a plan", MAX_STEP_BYTES),
        Limit::count(AREA, "the characters of the latest tool's detail", MAX_DETAIL_CHARS),
        Limit::bytes(AREA, "any other text in telemetry", MAX_TEXT_BYTES),
        Limit::time(AREA, "silence on a stream before a bookmark", times.bookmark_every),
        Limit::time(AREA, "lifetime of a stream, plus up to a fifth", times.lifetime),
        Limit::time(
            AREA,
            "time for a reader to take the last messages of an ending stream",
            times.last_word,
        ),
    ]
}
