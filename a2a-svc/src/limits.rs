//! The limits that callers can reach, for the limits reference.

use svc_kit::limits::Limit;

use crate::{config, fold, gateway, http, parts, push, render};

/// Returns the limits of the A2A port. The limits of a caller are in the configuration file.
#[must_use]
pub fn limits() -> Vec<Limit> {
    const AREA: &str = "A2A agents";
    vec![
        Limit::count(AREA, "exported agents", config::MAX_ENTRIES),
        Limit::count(AREA, "callers with a token", config::MAX_ENTRIES),
        Limit::bytes(AREA, "a configuration file", config::MAX_BYTES),
        Limit::bytes(AREA, "a request", http::MAX_BODY_BYTES),
        Limit::time(AREA, "a request, to send its body", http::BODY_WITHIN),
        Limit::bytes(AREA, "an id of a message", parts::MAX_ID_BYTES),
        Limit::count(AREA, "parts of a message", parts::MAX_PARTS),
        Limit::bytes(AREA, "all texts of a message", parts::MAX_TEXT_BYTES),
        Limit::bytes(AREA, "a text or an artifact in a task", render::MAX_INLINE_BYTES),
        Limit::count(AREA, "messages in the history of a task", render::MAX_HISTORY),
        Limit::count(AREA, "threads below the agent that a task shows", fold::MAX_DESCENDANTS),
        Limit::count(AREA, "tasks in a page of ListTasks", gateway::MAX_PAGE.unsigned_abs()),
        Limit::count(
            AREA,
            "contexts that ListTasks considers, newest first",
            gateway::MAX_LISTED_CONTEXTS,
        ),
        Limit::count(AREA, "push notification configurations of a task", push::MAX_OF_TASK),
        Limit::count(AREA, "push notification configurations of all tasks", push::MAX_TOTAL),
        Limit::count(AREA, "attempts at a push notification", push::MAX_ATTEMPTS),
        Limit::time(AREA, "a receiver, to accept a push notification", push::POST_WITHIN),
    ]
}
