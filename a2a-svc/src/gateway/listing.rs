//! ListTasks.

use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use troupe_proto::supervisor::v1::Session;

use super::{AGENT_LABEL, CALLER_LABEL, Call, Gateway, LABEL, history_length};
use crate::{
    error::{Error, Kind, Result},
    fold::{Fold, Task},
    ids::{TaskId, parse_context},
    pb::{ListTasksRequest, ListTasksResponse, TaskState},
    render::Extent,
    upstream::time_key,
};

/// Maximum number of contexts of a caller that are read for a list.
pub(crate) const MAX_LISTED_CONTEXTS: usize = 2_000;
/// Maximum number of contexts that are read concurrently.
const READ_AT_ONCE: usize = 16;
/// Default number of tasks in a page.
const DEFAULT_PAGE: i32 = 50;
/// Maximum number of tasks in a page.
pub(crate) const MAX_PAGE: i32 = 100;

impl Gateway {
    /// Handles ListTasks.
    pub(crate) async fn list(&self, call: &Call, request: ListTasksRequest) -> Result<ListTasksResponse> {
        let page_size = request.page_size.unwrap_or(DEFAULT_PAGE);
        if !(1..=MAX_PAGE).contains(&page_size) {
            return Err(Error::invalid_params(
                "pageSize",
                format!("pageSize must be from 1 to {MAX_PAGE}"),
            ));
        }
        let history = match request.history_length {
            None => Some(0),
            some => history_length(some)?,
        };
        let status = match request.status {
            0 => None,
            number => {
                Some(TaskState::try_from(number).map_err(|_| Error::invalid_params("status", "unknown task state"))?)
            }
        };
        let after_page = match request.page_token.as_str() {
            "" => None,
            token => Some(Cursor::parse(token).ok_or_else(|| {
                Error::invalid_params(
                    "pageToken",
                    "invalid pageToken; pass the nextPageToken of the previous page",
                )
            })?),
        };
        let sessions = match request.context_id.as_str() {
            "" => {
                let labels = [
                    (LABEL.0, LABEL.1),
                    (CALLER_LABEL, call.caller.name()),
                    (AGENT_LABEL, call.agent.id.as_str()),
                ];
                self.sessions(&labels, MAX_LISTED_CONTEXTS).await?
            }
            id => match parse_context(id) {
                Some(id) => self.context(call, &id).await?.into_iter().collect(),
                None => Vec::new(),
            },
        };
        let folds: Vec<Option<(Session, Arc<Fold>)>> = stream::iter(sessions)
            .map(|session| async move {
                match self.contexts.read(&session, session.sequence).await {
                    Ok(reader) => Ok(Some((session, reader.fold()))),
                    // Deleted in the meantime.
                    Err(error) if error.kind == Kind::TaskNotFound => Ok(None),
                    Err(error) => Err(error),
                }
            })
            .buffer_unordered(READ_AT_ONCE)
            .try_collect()
            .await?;
        let since = request.status_timestamp_after.as_ref().map(time_key);
        let mut rows: Vec<(Cursor, &Session, &Task)> = Vec::new();
        for (session, fold) in folds.iter().flatten() {
            for task in fold.tasks() {
                let standing = task.standing();
                let time = time_key(&standing.time);
                if status.is_none_or(|status| standing.state == status) && since.is_none_or(|since| time >= since) {
                    let cursor = Cursor {
                        time,
                        id: TaskId {
                            context: session.session_id.clone(),
                            number: task.number,
                        },
                    };
                    rows.push((cursor, session, task));
                }
            }
        }
        // Newest status first.
        rows.sort_by(|(one, ..), (other, ..)| other.cmp(one));
        let total = rows.len();
        if let Some(after) = &after_page {
            rows.retain(|(cursor, ..)| cursor < after);
        }
        let most = usize::try_from(page_size).unwrap_or_default();
        let has_more = rows.len() > most;
        rows.truncate(most);
        let next_page_token = match rows.last() {
            Some((cursor, ..)) if has_more => cursor.to_string(),
            _ => String::new(),
        };
        let extent = Extent {
            sequence: u64::MAX,
            artifacts: request.include_artifacts.unwrap_or(false),
            history,
        };
        let mut tasks = Vec::with_capacity(rows.len());
        for (_, session, task) in rows {
            tasks.push(self.renderer(call, session).task(task, extent).await?);
        }
        Ok(ListTasksResponse {
            tasks,
            next_page_token,
            page_size,
            total_size: i32::try_from(total).unwrap_or(i32::MAX),
        })
    }
}

/// A position in a list of tasks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cursor {
    time: (i64, i32),
    id: TaskId,
}

impl Cursor {
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.splitn(3, '.');
        let seconds = fields.next()?.parse().ok()?;
        let nanos = fields.next()?.parse().ok()?;
        Some(Self {
            time: (seconds, nanos),
            id: TaskId::parse(fields.next()?)?,
        })
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}.{}.{}", self.time.0, self.time.1, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_token_is_parsed_or_rejected() {
        let token = "12.5.01a1fc89-0902-7629-98ed-9dce17881f00-3";
        assert_eq!(
            Cursor::parse(token).map(|cursor| cursor.to_string()).as_deref(),
            Some(token)
        );
        for text in ["x", "1.2", "1.2.3", "1.2.01a1fc89-0902-7629-98ed-9dce17881f00-3.4"] {
            assert_eq!(Cursor::parse(text), None, "{text}");
        }
    }
}
