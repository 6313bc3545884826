//! The limits that callers can reach, for the limits reference.

use svc_kit::limits::{Area, Limit};

use crate::{config, fold, gateway, http, parts, push, render};

/// Returns the limits of the A2A port. The limits of a caller are in the configuration file.
#[must_use]
pub fn limits() -> Area {
    Area::new(
        "A2A agents",
        vec![
            Limit::count("exported agents", config::MAX_ENTRIES),
            Limit::count("callers with a token", config::MAX_ENTRIES),
            Limit::bytes("a configuration file", config::MAX_BYTES),
            Limit::bytes("a request", http::MAX_BODY_BYTES),
            Limit::time("a request, to send its body", http::BODY_WITHIN),
            Limit::bytes("an id of a message", parts::MAX_ID_BYTES),
            Limit::count("parts of a message", parts::MAX_PARTS),
            Limit::bytes("all texts of a message", parts::MAX_TEXT_BYTES),
            Limit::bytes("a text or an artifact in a task", render::MAX_INLINE_BYTES),
            Limit::count("messages in the history of a task", render::MAX_HISTORY),
            Limit::count("threads below the agent that a task shows", fold::MAX_DESCENDANTS),
            Limit::count("tasks in a page of ListTasks", gateway::MAX_PAGE.unsigned_abs()),
            Limit::count(
                "contexts that ListTasks considers, newest first",
                gateway::MAX_LISTED_CONTEXTS,
            ),
            Limit::count("push notification configurations of a task", push::MAX_OF_TASK),
            Limit::count("push notification configurations of all tasks", push::MAX_TOTAL),
            Limit::count("attempts at a push notification", push::MAX_ATTEMPTS),
            Limit::time("a receiver, to accept a push notification", push::POST_WITHIN),
        ],
    )
}
