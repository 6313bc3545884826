//! The limits for runners, for the limits reference.

use svc_kit::limits::Limit;

use super::{
    attach::{
        HELLO_WITHIN, MAX_ARGUMENTS_BYTES, MAX_HELD, MAX_ID_BYTES, MAX_KINDS, MAX_LABEL_BYTES, MAX_LABELS,
        MAX_TOOL_BYTES, MAX_UNDECIDED, REPORTS_IN_FLIGHT,
    },
    pieces::{MAX_ARTIFACT_BYTES, MAX_UNFINISHED, MAX_UNFINISHED_BYTES},
    reports::{MAX_DETAIL_BYTES, MAX_KIND_BYTES, MAX_MEDIA_TYPE_BYTES, MAX_NAME_BYTES},
    roster::{LEASE, OUTBOX, STOP_GRACE},
};
use crate::domain::authorize::{MAX_PATH_BYTES, MAX_PATHS};

const AREA: &str = "Runners";

pub(crate) fn limits() -> Vec<Limit> {
    vec![
        Limit::time(AREA, "a runner that says nothing, until its lease is over", LEASE),
        Limit::time(AREA, "from the beginning of a stream to hello", HELLO_WITHIN),
        Limit::time(AREA, "a program that is to stop, until it is killed", STOP_GRACE),
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
            "reports of a runner that are not durable yet, until no more is read",
            REPORTS_IN_FLIGHT,
        ),
        Limit::count(AREA, "messages that wait for a runner, until it is cut off", OUTBOX),
        Limit::bytes(AREA, "the name of a tool in a tool request", MAX_TOOL_BYTES),
        Limit::bytes(AREA, "the arguments of a tool request", MAX_ARGUMENTS_BYTES),
        Limit::count(AREA, "the paths of a tool request", MAX_PATHS),
        Limit::bytes(AREA, "a path of a tool request", MAX_PATH_BYTES),
        Limit::count(
            AREA,
            "tool requests of a runner that are not decided yet, until one more is refused",
            MAX_UNDECIDED,
        ),
        Limit::bytes(AREA, "an artifact", MAX_ARTIFACT_BYTES),
        Limit::bytes(AREA, "the name of an artifact; what is longer is cut", MAX_NAME_BYTES),
        Limit::bytes(AREA, "the kind of an artifact; what is longer is cut", MAX_KIND_BYTES),
        Limit::bytes(
            AREA,
            "the media type of an artifact; what is longer is cut",
            MAX_MEDIA_TYPE_BYTES,
        ),
        Limit::count(AREA, "unfinished artifacts of a runner", MAX_UNFINISHED),
        Limit::bytes(AREA, "unfinished artifacts of a runner, together", MAX_UNFINISHED_BYTES),
        Limit::bytes(
            AREA,
            "the detail of a stop or a gap; what is longer is cut",
            MAX_DETAIL_BYTES,
        ),
    ]
}
