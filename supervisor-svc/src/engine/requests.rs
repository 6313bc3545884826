//! The request log: a retry gets the result of the first call. Only successes are remembered, for 24 hours.
//!
//! A session can remember so many requests that reading all of them would delay its activation by seconds. Activation
//! therefore reads only the first page, and a background task reads the others. Until it is done, each request is
//! looked up in the store.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use prost::Message as _;
use supervisor_log::store::{ReadError, RequestHash, RequestKey, RequestRecord, limits::MAX_OUTCOME_BYTES};
use tokio::{
    sync::{mpsc, oneshot},
    time::sleep,
};
use troupe_proto::store::v1 as pb;
use uuid::Uuid;

use super::{
    error::Failure,
    handle::{Begun, Message},
    message::{Outcome, Remember},
    stored_requests::StoredRequests,
};
use crate::domain::{
    ids::{InputNumber, ThreadId},
    rejection::Rejection,
    settings::Limits,
    status::StatusKind,
    time::{REQUESTS_REMEMBERED, UnixMillis},
};

/// The encoded size of a stopped thread in an outcome: an id with its tag and length.
const STOPPED_BYTES: usize = 18;
/// An upper bound of the rest of an outcome.
const REST_BYTES: usize = 1_024;

// Only open threads are stopped.
const _: () = assert!(Limits::CEILING.max_open_threads as usize * STOPPED_BYTES + REST_BYTES <= MAX_OUTCOME_BYTES);

type Waiter = (Remember, oneshot::Sender<Result<Begun, Failure>>);

/// The minimum number of requests at which expired ones are removed.
const FEW: usize = 1_024;

/// Pause after a failed read of the requests.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The requests of one session.
#[derive(Debug, Default)]
pub(super) struct Requests {
    done: HashMap<RequestKey, (RequestHash, Outcome, UnixMillis)>,
    /// The number of requests after the last removal of expired ones.
    remembered: usize,
    in_flight: HashMap<RequestKey, Vec<Waiter>>,
}

impl Requests {
    /// Restores requests from the store. A request that is already in memory is newer and stays unchanged.
    pub fn restore<'record>(&mut self, records: impl IntoIterator<Item = &'record RequestRecord>) {
        for record in records {
            self.done
                .entry(record.key())
                .or_insert_with(|| (record.hash, decode(&record.outcome), record.expires));
        }
    }

    /// Returns the outcome of the same request, if it was made before.
    pub fn recall(&self, remember: &Remember, now: UnixMillis) -> Result<Option<Outcome>, Rejection> {
        match self.done.get(&remember.key) {
            Some((hash, outcome, expires)) if *expires > now => {
                remember.check(hash)?;
                Ok(Some(outcome.clone()))
            }
            Some(_) | None => Ok(None),
        }
    }

    /// Begins a request and returns its waiter. If an equal request is in flight, queues the waiter and returns `None`.
    pub fn begin(&mut self, waiter: Waiter) -> Option<Waiter> {
        if let Some(waiting) = self.in_flight.get_mut(&waiter.0.key) {
            waiting.push(waiter);
            return None;
        }
        self.in_flight.insert(waiter.0.key.clone(), Vec::new());
        Some(waiter)
    }

    /// Ends a request, however it ended. Returns the requests that waited for it, to be checked again.
    pub fn end(&mut self, key: &RequestKey) -> Vec<Waiter> {
        self.in_flight.remove(key).unwrap_or_default()
    }

    /// Remembers a request whose events are now durable.
    pub fn remember(&mut self, key: RequestKey, hash: RequestHash, outcome: Outcome, now: UnixMillis) {
        // Expired entries are removed when the number of entries has doubled. The cost per request is therefore
        // constant.
        if self.done.len() >= FEW.max(2 * self.remembered) {
            self.done.retain(|_, (.., expires)| *expires > now);
            self.remembered = self.done.len();
        }
        self.done.insert(key, (hash, outcome, now.plus(REQUESTS_REMEMBERED)));
    }
}

/// Sends the stored requests after a key to the actor, page by page, until the last page or the end of the actor.
pub(super) async fn restore(stored: Arc<StoredRequests>, mut after: RequestKey, control: mpsc::Sender<Message>) {
    let session = stored.session();
    loop {
        let page = tokio::select! {
            page = stored.page_after(after.clone()) => page,
            () = control.closed() => return,
        };
        match page {
            Ok(page) => {
                let next = page.next.clone();
                let sent = control.send(Message::Restore(page)).await;
                match next {
                    Some(next) if sent.is_ok() => after = next,
                    Some(_) | None => return,
                }
            }
            Err(ReadError::Engine(error)) => {
                tracing::debug!(%session, %error, "reading the requests of a session is retried");
                sleep(RETRY_AFTER).await;
            }
            // The unread requests can still be looked up in the store.
            Err(error) => {
                tracing::warn!(%session, %error, "not all requests of a session can be read");
                return;
            }
        }
    }
}

pub(super) fn record(remember: &Remember, outcome: &Outcome, now: UnixMillis) -> RequestRecord {
    RequestRecord {
        scope: remember.key.scope.clone(),
        request_id: remember.key.request_id.clone(),
        hash: remember.hash,
        outcome: encode(outcome),
        expires: now.plus(REQUESTS_REMEMBERED),
    }
}

fn encode(outcome: &Outcome) -> Bytes {
    let status_before = outcome
        .status_before
        .and_then(|kind| StatusKind::ALL.iter().position(|other| *other == kind))
        .and_then(|index| u32::try_from(index + 1).ok());
    pb::Outcome {
        session_id: String::new(),
        thread_id: outcome.thread.map(|id| id.to_string()).unwrap_or_default(),
        status_before: status_before.unwrap_or_default(),
        other_id: outcome.other.map(|id| id.to_string()).unwrap_or_default(),
        input_number: outcome.input.map(InputNumber::get).unwrap_or_default(),
        stopped_threads: outcome
            .stopped
            .iter()
            .map(|id| Bytes::copy_from_slice(id.as_uuid().as_bytes()))
            .collect(),
    }
    .encode_to_vec()
    .into()
}

/// Decodes an outcome. An undecodable outcome is returned as empty, but its request still counts as done.
fn decode(bytes: &Bytes) -> Outcome {
    let stored = pb::Outcome::decode(bytes.clone()).unwrap_or_default();
    let index = usize::try_from(stored.status_before).unwrap_or_default();
    Outcome {
        thread: stored.thread_id.parse().ok(),
        status_before: index
            .checked_sub(1)
            .and_then(|index| StatusKind::ALL.get(index).copied()),
        input: (stored.input_number > 0).then(|| InputNumber::new(stored.input_number)),
        other: stored.other_id.parse().ok(),
        stopped: stored
            .stopped_threads
            .iter()
            .filter_map(|id| Uuid::from_slice(id).ok())
            .map(ThreadId::from_uuid)
            .collect(),
    }
}
