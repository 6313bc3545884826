//! The limits for runners, for the limits reference.

use svc_kit::limits::Limit;

use super::{artifacts::{MAX_ARTIFACT_BYTES, MAX_UNFINISHED, MAX_UNFINISHED_BYTES}, hub::{LEASE, OUTBOX, STOP_GRACE}, link::{HELLO_WITHIN, MAX_ARGUMENTS_BYTES, MAX_HELD, MAX_ID_BYTES, MAX_KINDS, MAX_LABELS, MAX_LABEL_BYTES, MAX_TOOL_BYTES, MAX_UNDECIDED, REPORTS_IN_FLIGHT}, protocol::{MAX_DETAIL_BYTES, MAX_KIND_BYTES, MAX_MEDIA_TYPE_BYTES, MAX_NAME_BYTES}};
use crate::domain::rules::authorize::{MAX_PATHS, MAX_PATH_BYTES};

const AREA: &str = "Runners";

pub(crate) fn limits() -> Vec<Limit> {
    vec![
        Limit::time(AREA, "silence of a runner after which its lease expires", LEASE),
        Limit::time(AREA, "time from the start of a stream to hello", HELLO_WITHIN),
        Limit::time(
            AREA,
            "grace period for a program to stop before it is killed",
            STOP_GRACE,
        ),
        Limit::bytes(AREA, "a runner_id, and the request_id of a tool request", MAX_ID_BYTES),
        Limit::bytes(
            AREA,
            "a kind of a runner, a key or a value of its labels",
            MAX_LABEL_BYTES,
        ),
        Limit::count(AREA, "the kinds of a runner", MAX_KINDS),
        Limit::count(AREA, "the labels of a runner", MAX_LABELS),
        Limit::count(AREA, "the threads of a hello", MAX_HELD),
        Limit::count(
            AREA,
            "reports of a runner that are not durable yet before reading pauses",
            REPORTS_IN_FLIGHT,
        ),
        Limit::count(AREA, "pending messages to a runner before it is disconnected", OUTBOX),
        Limit::bytes(AREA, "the name of a tool in a tool request", MAX_TOOL_BYTES),
        Limit::bytes(AREA, "the arguments of a tool request", MAX_ARGUMENTS_BYTES),
        Limit::count(AREA, "the paths of a tool request", MAX_PATHS),
        Limit::bytes(AREA, "a path of a tool request", MAX_PATH_BYTES),
        Limit::count(
            AREA,
            "undecided tool requests of a runner; the next one is rejected",
            MAX_UNDECIDED,
        ),
        Limit::bytes(AREA, "an artifact", MAX_ARTIFACT_BYTES),
        Limit::bytes(AREA, "the name of an artifact; a longer name is cut", MAX_NAME_BYTES),
        Limit::bytes(AREA, "the kind of an artifact; a longer kind is cut", MAX_KIND_BYTES),
        Limit::bytes(
            AREA,
            "the media type of an artifact; a longer type is cut",
            MAX_MEDIA_TYPE_BYTES,
        ),
        Limit::count(AREA, "unfinished artifacts of a runner", MAX_UNFINISHED),
        Limit::bytes(AREA, "unfinished artifacts of a runner, in total", MAX_UNFINISHED_BYTES),
        Limit::bytes(
            AREA,
            "the detail of a stop or a gap; a longer text is cut",
            MAX_DETAIL_BYTES,
        ),
    ]
}
