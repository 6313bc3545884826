//! Webhook delivery. Each receiver of a session gets its notifications in order, one at a time. A delivery is repeated
//! until it is accepted. A receiver's progress is a cursor in the store, which moves when a delivery is accepted. A
//! crash therefore causes a repeated delivery and loses nothing.

mod delivery;

use std::{
    convert::Infallible,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use prost::Message as _;
use supervisor_log::store::{CursorKey, EventStore};
use svc_kit::outgoing::{Backoff, Poster, Target, public_tls};
use tokio::time::{Instant, sleep};
use tokio_rustls::rustls;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use troupe_proto::store::v1 as pb;

use self::delivery::{Delivery, Signer};
use crate::{
    clock::Clock,
    domain::{
        event::{Event, SessionEvent},
        ids::{Digest, Sequence},
        rejection::Rejection,
        rules::notify::{Attention, Notification},
        settings::Webhook,
        state::{session::Session, webhook::WebhookStart},
    },
    engine::{
        Failure, Handle, Tail,
        feed::{Active, Change, Commands, Subscriber, Subscription},
    },
};

/// Delivery settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebhookLimits {
    /// Whether private, loopback and link-local receiver addresses are permitted.
    pub allow_private: bool,
    /// Maximum time of one attempt, including name resolution and connecting.
    pub timeout: Duration,
    /// Delay after the first failed attempt. Each further failure doubles it.
    pub first_retry: Duration,
    /// Maximum delay between two attempts.
    pub longest_retry: Duration,
}

impl Default for WebhookLimits {
    fn default() -> Self {
        Self {
            allow_private: false,
            timeout: Duration::from_secs(10),
            first_retry: Duration::from_secs(1),
            longest_retry: Duration::from_secs(5 * 60),
        }
    }
}

/// The webhooks of this process.
#[derive(Clone)]
pub struct Webhooks {
    store: Arc<dyn EventStore>,
    limits: WebhookLimits,
    poster: Poster,
    clock: Clock,
    stopped: CancellationToken,
}

impl Webhooks {
    /// Creates webhooks that trust the public certificate authorities. Signatures contain the time of `clock`.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn new(store: Arc<dyn EventStore>, limits: WebhookLimits, clock: Clock) -> Result<Self, rustls::Error> {
        let poster = Poster {
            tls: public_tls()?,
            allow_private: limits.allow_private,
            within: limits.timeout,
        };
        Ok(Self {
            store,
            limits,
            poster,
            clock,
            stopped: CancellationToken::new(),
        })
    }

    /// Stops all deliveries. Unaccepted notifications are sent after the next start.
    pub fn stop(&self) {
        self.stopped.cancel();
    }

    /// Sends a session's notifications to its receivers, each from its own position. Running deliveries to unchanged
    /// receivers continue, and other running deliveries end.
    fn deliver(&self, session: &Active<'_>, mut running: Vec<Delivering>) -> Vec<Delivering> {
        let receivers: Vec<_> = session.session.receivers().collect();
        // Runs before any delivery starts, because a receiver gets one delivery at a time.
        running.retain(|delivering| receivers.iter().any(|(webhook, start)| delivering.is(webhook, *start)));
        for (webhook, start) in receivers {
            if !running.iter().any(|delivering| delivering.is(webhook, start)) {
                running.extend(self.begin(session.handle, webhook, start));
            }
        }
        running
    }

    /// Starts delivery to a receiver. Returns `None` if the URL or the secret is invalid. The request that set them
    /// checked both.
    fn begin(&self, handle: &Handle, webhook: &Webhook, start: WebhookStart) -> Option<Delivering> {
        let receiver = Receiver::of(webhook, self, handle, start)?;
        let up_to = Arc::clone(&receiver.delivered);
        let stopped = self.stopped.clone();
        let task = tokio::spawn(async move {
            let delivering = pin!(receiver.run());
            stopped.run_until_cancelled(delivering).await;
        });
        Some(Delivering {
            webhook: webhook.clone(),
            start,
            up_to,
            _task: AbortOnDropHandle::new(task),
        })
    }
}

impl Subscriber for Webhooks {
    fn subscribe(&self, session: &Active<'_>, _: &mut Commands) -> Option<Box<dyn Subscription>> {
        Some(Box::new(Deliveries {
            running: self.deliver(session, Vec::new()),
            webhooks: self.clone(),
        }))
    }
}

/// The deliveries of a session. They hold the session in memory and stop when this is dropped.
struct Deliveries {
    webhooks: Webhooks,
    /// Empty if the session has no webhooks or all notifications are delivered.
    running: Vec<Delivering>,
}

impl Subscription for Deliveries {
    fn committed(&mut self, change: &Change<'_>, _: &mut Commands) {
        let changes_webhooks =
            |event: &Event| matches!(event, Event::Session(SessionEvent::Updated(change)) if change.webhooks.is_some());
        if self.running.is_empty() || change.events.iter().any(|recorded| changes_webhooks(&recorded.event)) {
            self.running = self.webhooks.deliver(&change.after, std::mem::take(&mut self.running));
        }
    }

    fn release(&mut self, session: &Session) -> bool {
        let head = session.sequence.get();
        let has_running = !self.running.is_empty();
        let all_delivered = self
            .running
            .iter()
            .all(|delivering| delivering.up_to.load(Ordering::Acquire) >= head);
        if has_running && all_delivered {
            self.running.clear();
        }
        has_running && all_delivered
    }
}

/// A running delivery task. Dropping this value stops it.
#[derive(Debug)]
struct Delivering {
    webhook: Webhook,
    start: WebhookStart,
    /// The last event up to which all notifications are delivered.
    up_to: Arc<AtomicU64>,
    _task: AbortOnDropHandle<()>,
}

impl Delivering {
    /// Returns whether this is the delivery to the given receiver, with unchanged settings.
    fn is(&self, webhook: &Webhook, start: WebhookStart) -> bool {
        self.start == start && self.webhook == *webhook
    }
}

/// Minimum number of events without a notification for a receiver before its position is stored.
const PASSED_OVER: u64 = 1_000;

/// A receiver of a session.
struct Receiver {
    webhooks: Webhooks,
    handle: Handle,
    target: Target,
    signer: Signer,
    attention: Attention,
    key: CursorKey,
    start: WebhookStart,
    /// The last event up to which all notifications are delivered.
    delivered: Arc<AtomicU64>,
}

impl Receiver {
    /// Returns `None` if the URL or the secret is invalid. The request that set them checked both.
    fn of(webhook: &Webhook, webhooks: &Webhooks, handle: &Handle, start: WebhookStart) -> Option<Self> {
        Some(Self {
            webhooks: webhooks.clone(),
            handle: handle.clone(),
            target: Target::parse(&webhook.url).ok()?,
            signer: Signer::new(&webhook.secret)?,
            attention: Attention::of_webhook(webhook),
            key: CursorKey {
                session: Some(handle.id()),
                name: format!("webhook:{}", Digest::of(webhook.url.as_bytes())),
            },
            start,
            delivered: Arc::default(),
        })
    }

    async fn run(self) {
        let mut backoff = self.backoff();
        loop {
            let began = Instant::now();
            let failure = match self.follow().await {
                Ok(never) => match never {},
                Err(failure) => failure,
            };
            // The delay is reset after some time and not after a delivery: while only the position cannot be stored,
            // each attempt delivers and would reset the delay.
            if began.elapsed() > self.webhooks.limits.longest_retry {
                backoff = self.backoff();
            }
            match failure {
                // The session moved, or was deleted.
                Failure::Gone | Failure::Elsewhere { .. } | Failure::SessionNotFound(_) => return,
                // Notifications that were compacted before the receiver accepted them are lost.
                Failure::Refused(Rejection::HistoryCompacted { oldest, .. }) => {
                    tracing::warn!(session = %self.handle.id(), %oldest, "a webhook missed notifications that were compacted");
                    if self.move_to(oldest).await.is_err() {
                        sleep(backoff.next_delay()).await;
                    }
                }
                Failure::Refused(_)
                | Failure::StoreUnavailable(_)
                | Failure::TooLarge(_)
                | Failure::OutcomeUnknown
                | Failure::Corrupt(_)
                | Failure::UpgradeRequired(_) => {
                    tracing::error!(session = %self.handle.id(), %failure, "webhooks cannot be delivered now");
                    sleep(backoff.next_delay()).await;
                }
            }
        }
    }

    /// Sends the notifications after the receiver's position.
    async fn follow(&self) -> Result<Infallible, Failure> {
        let position = self.position().await?;
        let mut tail = Tail::after(Arc::clone(&self.webhooks.store), self.handle.clone(), position);
        let mut written = position;
        self.delivered.store(position.get(), Ordering::Release);
        loop {
            let events = tail.next().await?;
            let session = self.handle.state();
            for recorded in &events {
                let Some(notification) = Notification::of(&session, recorded) else {
                    continue;
                };
                if let Some(kinds) = self.attention.kinds_of(&notification) {
                    self.send(&Delivery::of(session.id, &notification, &kinds)).await?;
                    self.move_to(recorded.sequence).await?;
                    written = recorded.sequence;
                }
            }
            let Some(last) = events.last() else { continue };
            // Matching events may be rare, and compaction must not overtake the position of a receiver that is up to
            // date.
            if last.sequence.get().saturating_sub(written.get()) >= PASSED_OVER {
                self.move_to(last.sequence).await?;
                written = last.sequence;
            }
            self.delivered.store(last.sequence.get(), Ordering::Release);
        }
    }

    /// Sends a delivery until it is accepted.
    async fn send(&self, delivery: &Delivery) -> Result<(), Failure> {
        let mut backoff = self.backoff();
        loop {
            let session = self.handle.id();
            if self.webhooks.store.head(session).await?.is_none() {
                return Err(Failure::SessionNotFound(session));
            }
            let sent = match delivery.headers(&self.signer, self.webhooks.clock.now()) {
                Ok(headers) => {
                    let body = delivery.body.clone();
                    self.webhooks.poster.post(&self.target, headers, body).await
                }
                Err(error) => Err(error.into()),
            };
            let Err(undelivered) = sent else {
                return Ok(());
            };
            // Logs only the host, because the path of the URL may be a secret.
            let host = self.target.host();
            tracing::warn!(%session, host, delivery = delivery.id, %undelivered, "a webhook was not delivered");
            sleep(backoff.next_delay()).await;
        }
    }

    async fn position(&self) -> Result<Sequence, Failure> {
        let stored = self.webhooks.store.cursor(self.key.clone()).await?;
        let cursor = stored
            .map(pb::NotificationCursor::decode)
            .transpose()
            .map_err(|error| Failure::Corrupt(format!("the cursor \"{}\": {error}", self.key.name)))?;
        let reached = cursor.map(|cursor| Sequence::new(cursor.sequence));
        Ok(self.start.position(reached))
    }

    async fn move_to(&self, sequence: Sequence) -> Result<(), Failure> {
        let cursor = pb::NotificationCursor {
            sequence: sequence.get(),
            ..pb::NotificationCursor::default()
        };
        self.webhooks
            .store
            .put_cursor(self.key.clone(), Some(Bytes::from(cursor.encode_to_vec())))
            .await
            .map_err(Failure::from)
    }

    fn backoff(&self) -> Backoff {
        let limits = &self.webhooks.limits;
        Backoff::new(limits.first_retry, limits.longest_retry)
    }
}
