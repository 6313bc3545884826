//! Limits of requests and responses, for the limits reference.

use svc_kit::limits::Limit;

use super::{WaitLimits, call::REQUEST_ID_BYTES, content::{MAX_READS, PART_BYTES, PART_WITHIN}, graph, marks::SEARCHED, page::{DEFAULT_SIZE, MAX_BYTES, MAX_SIZE}, parse::{ALIAS_BYTES, APPROVE_TOOLS, INPUT_BYTES, INPUT_ITEMS, LABELS, NAME_BYTES, NOTE_BYTES, ORCHESTRATORS, PATH_BYTES, PROSE_BYTES, REASON_BYTES}, prompts::{DIFF_BYTES, TEXT_BYTES}, spawn::CAPABILITIES, wait::MAX_WAITED, watch::OUTBOX, webhooks::{URL_BYTES, WEBHOOKS}};
use crate::{domain::{rules::authorize::MAX_PATHS, time::REQUESTS_REMEMBERED}, use_cases::tool_decision::ARGUMENTS_BYTES};

const REQUESTS: &str = "Requests to the supervisor";
const PAGES: &str = "Pages of the supervisor";
const WAITING: &str = "Waiting";
const READING: &str = "Reading prompts and content";
const WATCHING: &str = "Watching threads";

pub(crate) fn limits() -> Vec<Limit> {
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
            OUTBOX,
        ),
    ]
}
