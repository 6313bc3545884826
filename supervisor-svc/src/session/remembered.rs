//! The memory of requests: a retry gets the answer of the first call. Only successes are remembered, for 24 hours.

use std::collections::HashMap;

use bytes::Bytes;
use prost::Message as _;
use tokio::sync::oneshot;
use troupe_proto::store::v1 as pb;
use uuid::Uuid;

use super::{
    failure::Failure,
    handle::Begun,
    message::{Outcome, Remember},
};
use crate::{
    domain::{
        ids::{InputNumber, ThreadId},
        refusal::Refusal,
        settings::Limits,
        status::StatusKind,
        time::{REQUESTS_REMEMBERED, UnixMillis},
    },
    store::{RequestHash, RequestKey, RequestRecord, limits::MAX_OUTCOME_BYTES},
};

/// What an outcome has for each thread that it stopped: an id, with its tag and length.
const STOPPED_BYTES: usize = 18;
/// More than all the rest of an outcome has.
const REST_BYTES: usize = 1_024;

// Only open threads are stopped.
const _: () = assert!(Limits::CEILING.max_open_threads as usize * STOPPED_BYTES + REST_BYTES <= MAX_OUTCOME_BYTES);

type Waiter = (Remember, oneshot::Sender<Result<Begun, Failure>>);

/// How many requests are remembered before it is worth while to look for those that have expired.
const FEW: usize = 1_024;

/// The requests of one session.
#[derive(Debug, Default)]
pub(super) struct Requests {
    done: HashMap<RequestKey, (RequestHash, Outcome, UnixMillis)>,
    /// How many there were when those that had expired were forgotten last.
    kept: usize,
    in_flight: HashMap<RequestKey, Vec<Waiter>>,
}

impl Requests {
    /// Takes what the store remembers.
    pub fn restore(&mut self, record: &RequestRecord) {
        self.done
            .insert(record.key(), (record.hash, decode(&record.outcome), record.expires));
    }

    /// The outcome of the same request, if it was made before.
    pub fn recall(&self, remember: &Remember, now: UnixMillis) -> Result<Option<Outcome>, Refusal> {
        match self.done.get(&remember.key) {
            Some((_, _, expires)) if *expires <= now => Ok(None),
            Some((hash, outcome, _)) if *hash == remember.hash => Ok(Some(outcome.clone())),
            Some(_) => Err(Refusal::RequestIdReused(remember.key.request_id.clone())),
            None => Ok(None),
        }
    }

    /// Whether the request may begin: true unless an equal one is in flight, whose end `waiter` is then told.
    pub fn begin(&mut self, waiter: Waiter) -> Option<Waiter> {
        if let Some(waiting) = self.in_flight.get_mut(&waiter.0.key) {
            waiting.push(waiter);
            return None;
        }
        self.in_flight.insert(waiter.0.key.clone(), Vec::new());
        Some(waiter)
    }

    /// The request is over, however it ended; those who waited for it ask again.
    pub fn end(&mut self, key: &RequestKey) -> Vec<Waiter> {
        self.in_flight.remove(key).unwrap_or_default()
    }

    /// What was just made durable.
    pub fn remember(&mut self, key: RequestKey, hash: RequestHash, outcome: Outcome, now: UnixMillis) {
        // Each time that they have doubled: next to nothing for each, and at most as many are useless as are of use.
        if self.done.len() >= FEW.max(2 * self.kept) {
            self.done.retain(|_, (.., expires)| *expires > now);
            self.kept = self.done.len();
        }
        self.done.insert(key, (hash, outcome, now.plus(REQUESTS_REMEMBERED)));
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
        .and_then(|place| u32::try_from(place + 1).ok());
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

/// An outcome that cannot be read says less, but the request is still known as done.
fn decode(bytes: &Bytes) -> Outcome {
    let stored = pb::Outcome::decode(bytes.clone()).unwrap_or_default();
    let place = usize::try_from(stored.status_before).unwrap_or_default();
    Outcome {
        thread: stored.thread_id.parse().ok(),
        status_before: place
            .checked_sub(1)
            .and_then(|place| StatusKind::ALL.get(place).copied()),
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
