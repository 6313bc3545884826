//! The session actor: the single owner of a session. It drains its mailboxes, decides the commands on a working copy
//! and appends once. It publishes state, replies to callers and performs effects only after the append is durable.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use supervisor_log::store::{self, MemberId, WriteError};
use tokio::{
    sync::{broadcast, mpsc, oneshot, watch},
    time::Instant,
};

use super::{
    activate::Loaded,
    append::{self, AppendBuilder, Pending},
    commit::{self, Commit},
    deletions,
    error::Failure,
    feed::{Active, Change, Commands, Subscription},
    handle::{Begun, Handle, InFlight, MAILBOX, Message, Parts, Request},
    message::{Done, Origin, Remember},
    passivate::Upkeep,
    quota::ContentQuota,
    requests::{self, Requests},
    shared::Shared,
    stored_contents::StoredContents,
    stored_requests::{Page, StoredRequests},
};
use crate::{
    clock::SessionClock,
    domain::{
        command::Command,
        decide::tick,
        ids::{Epoch, Generation, ReportSequence, ThreadId},
        rules::rate::EventRates,
        state::session::Session,
        time::UnixMillis,
    },
};

/// The single owner of one session. Runs as one task, which ends when the session is passivated, deleted or fenced off,
/// and at shutdown.
pub(super) struct Actor {
    shared: Arc<Shared>,
    handle: Handle,
    session: Arc<Session>,
    epoch: Epoch,
    requests: Requests,
    /// The events that each thread may still cause.
    rates: EventRates,
    quota: ContentQuota,
    stored: StoredContents,
    upkeep: Upkeep,
    control: mpsc::Receiver<Message>,
    spawns: mpsc::Receiver<Message>,
    published: watch::Sender<Arc<Session>>,
    commits: broadcast::Sender<Arc<Commit>>,
    subscriptions: Vec<Box<dyn Subscription>>,
    /// Commands of the actor and its subscriptions. They run before any mailbox message.
    commands: Commands,
    /// Requests that did not fit into the last append.
    backlog: VecDeque<Request>,
    /// The time of the last timer check.
    checked_at: Instant,
    /// When to recompute pending work. Set after a failed append.
    retry_at: Option<Instant>,
    /// The oldest unrecorded report of each thread after a failed append, until the runner resends this report.
    lost_reports: HashMap<ThreadId, (Generation, ReportSequence)>,
    /// When to check whether the session can be passivated.
    passivate_at: Instant,
    /// Reply channels of pending deletions.
    deletions: Vec<oneshot::Sender<Result<(), Failure>>>,
    /// The next owner, and the reply channel of the request to hand the session over.
    hand_over: Option<(MemberId, oneshot::Sender<Result<(), Failure>>)>,
    /// Whether the session is being handed over: the next owner may write before the reply of the store arrives.
    leaving: watch::Sender<bool>,
}

/// The delay before the actor retries its work after a failed append.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The minimum time between two timer checks. An overdue deadline fires at once, but a failing store is not retried in
/// a tight loop.
const PAUSE_AT_DEADLINE: Duration = Duration::from_millis(50);

/// How long a closed session stays in memory so that late callers find the actor. Also the minimum time between two
/// passivation checks.
const SOON: Duration = Duration::from_millis(100);

/// The number of receivers of the published state that do not count as followers: the one that all handles share, and
/// one more. A follower that is not counted still has a handle, which keeps the session in memory.
const OWN_RECEIVERS: usize = 2;

impl Actor {
    /// Starts the actor of a session and returns a handle to it.
    pub fn start(shared: &Arc<Shared>, loaded: Loaded) -> Handle {
        let config = &shared.config;
        let session = Arc::new(loaded.session);
        let (control_sender, control) = mpsc::channel(MAILBOX);
        let (spawn_sender, spawns) = mpsc::channel(MAILBOX);
        let (published, state) = watch::channel(Arc::clone(&session));
        let (commits, _) = broadcast::channel(commit::CAPACITY);
        let (leaving, is_leaving) = watch::channel(false);
        let Page { records, next } = loaded.requests;
        let turns = Arc::clone(&shared.restores);
        let stored = StoredRequests::new(Arc::clone(&config.store), session.id, next.is_none(), turns);
        let stored = Arc::new(stored);
        let mut requests = Requests::default();
        requests.restore(&records);
        let handle = Handle::new(Parts {
            id: session.id,
            control: control_sender,
            spawns: spawn_sender,
            state,
            commits: commits.downgrade(),
            clock: SessionClock::of(&config.clock, session.updated),
            requests: Arc::clone(&stored),
            leaving: is_leaving,
        });
        let mut actor = Self {
            quota: ContentQuota::new(loaded.content_bytes, config.session_content_bytes),
            rates: EventRates::new(config.event_rate, handle.now()),
            stored: StoredContents::default(),
            upkeep: Upkeep::new(Arc::clone(shared), loaded.snapshot),
            shared: Arc::clone(shared),
            handle: handle.clone(),
            session,
            epoch: loaded.epoch,
            requests,
            control,
            spawns,
            published,
            commits,
            subscriptions: Vec::new(),
            commands: Commands::default(),
            backlog: VecDeque::new(),
            checked_at: Instant::now(),
            retry_at: None,
            lost_reports: HashMap::new(),
            passivate_at: Instant::now(),
            deletions: Vec::new(),
            hand_over: None,
            leaving,
        };
        actor.postpone_passivation();
        tokio::spawn(actor.run());
        if let Some(next) = next {
            tokio::spawn(requests::restore(stored, next, handle.control()));
        }
        handle
    }

    async fn run(mut self) {
        self.work().await;
        self.refuse_waiting();
    }

    /// Works until the actor ends.
    async fn work(&mut self) {
        let mut signal = self.shared.config.feed.signal();
        self.apply_deadlines();
        self.subscribe();
        loop {
            if !self.deletions.is_empty() && self.delete().await {
                return;
            }
            if let Some((to, reply)) = self.hand_over.take()
                && self.hand_over_to(to, reply).await
            {
                return;
            }
            let (wake_at, passivate_at) = (self.wake_at(), self.passivate_at);
            // The signal is checked before the mailboxes, so that a busy mailbox cannot delay it.
            match signal.has_changed() {
                Ok(true) => {
                    signal.mark_unchanged();
                    self.notify_all(|subscription, active, commands| subscription.reconcile(active, commands));
                }
                Ok(false) => {}
                Err(_) => return,
            }
            self.upkeep.clear_ended_task();
            // Pending commands run first.
            let message = if self.commands.is_empty() && wake_at.is_some_and(|at| at <= Instant::now()) {
                self.check_timers();
                if self.has_expired() && self.delete().await {
                    return;
                }
                // Append even without commands: after a failed append, threads may still wait for a slot.
                None
            } else if !self.commands.is_empty() || !self.backlog.is_empty() {
                None
            } else {
                let message = tokio::select! {
                    biased;
                    message = self.control.recv() => message,
                    message = self.spawns.recv() => message,
                    changed = signal.changed() => {
                        if changed.is_err() {
                            return;
                        }
                        self.notify_all(|subscription, active, commands| subscription.reconcile(active, commands));
                        continue;
                    }
                    () = until(wake_at) => continue,
                    () = self.upkeep.ended() => {
                        if self.upkeep.is_prepared(&self.session) && self.can_passivate() && self.leave() {
                            return;
                        }
                        continue;
                    }
                    () = tokio::time::sleep_until(passivate_at) => {
                        if self.passivate() {
                            return;
                        }
                        continue;
                    }
                };
                if message.is_none() {
                    return;
                }
                message
            };
            if !self.append(message).await {
                return;
            }
        }
    }

    /// Appends the given message together with other waiting ones. Returns whether the actor continues.
    async fn append(&mut self, mut first: Option<Message>) -> bool {
        self.count_content().await;
        let mut builder = AppendBuilder::new(&self.session, self.epoch, self.handle.now(), self.quota);
        while let Some((command, contents)) = self.commands.pop() {
            builder.take(
                own_request(command, contents),
                &self.requests,
                &self.stored,
                &mut self.rates,
            );
            if builder.is_full() {
                break;
            }
        }
        while let Some(message) = first.take().or_else(|| self.next_waiting(&builder)) {
            match message {
                Message::Request(request) if builder.is_full() => self.backlog.push_back(*request),
                Message::Request(request) => match self.rejected_after_failure(&request.command) {
                    Some(failure) => {
                        let _ = request.reply.send(Err(failure));
                    }
                    None => {
                        self.requests.restore(request.earlier.as_deref());
                        builder.take(*request, &self.requests, &self.stored, &mut self.rates);
                    }
                },
                Message::Begin {
                    remember,
                    earlier,
                    reply,
                } => {
                    self.requests.restore(earlier.as_deref());
                    self.begin(remember, reply);
                }
                Message::Restore(page) => {
                    self.requests.restore(&page.records);
                    if page.next.is_none() {
                        self.handle.requests().set_restored();
                    }
                }
                Message::Abandon(key) => self.end(&key),
                Message::Wake => self.notify_all(|subscription, active, commands| subscription.woken(active, commands)),
                Message::Waiting { id, wait } => {
                    // A wait is not an event. It affects the next decisions immediately, even if the append fails.
                    Arc::make_mut(&mut self.session).waits.begin(id, wait.clone());
                    builder.waits().begin(id, wait);
                }
                Message::WaitOver(id) => {
                    builder.waits().end(id);
                    Arc::make_mut(&mut self.session).waits.end(id);
                }
                Message::HandOver(to, reply) => self.hand_over = Some((to, reply)),
                Message::Delete(reply) => self.deletions.push(reply),
            }
        }
        builder.follow_up();
        self.postpone_passivation();
        match builder.finish(&self.session) {
            Some((batch, after, pending)) => self.commit(batch, after, pending).await,
            None => true,
        }
    }

    /// Returns the next message that fits into the append: the backlog first, then control before spawns, so that
    /// overload never blocks a close.
    fn next_waiting(&mut self, builder: &AppendBuilder) -> Option<Message> {
        if builder.is_full() {
            return None;
        }
        let backlog = self
            .backlog
            .pop_front()
            .map(|request| Message::Request(Box::new(request)));
        backlog
            .or_else(|| self.control.try_recv().ok())
            .or_else(|| self.spawns.try_recv().ok())
    }

    async fn commit(&mut self, batch: store::Batch, after: Arc<Session>, pending: Pending) -> bool {
        let started = Instant::now();
        let appended = self.shared.config.store.append(batch).await;
        let elapsed = started.elapsed();
        for subscriber in self.shared.config.feed.subscribers() {
            subscriber.append_ended(elapsed);
        }
        match appended {
            Ok(()) => {
                self.publish(after, pending);
                true
            }
            Err(error) => {
                let continues = matches!(error, WriteError::Refused(_) | WriteError::Invalid(_));
                self.stop_if_unknown(&error);
                tracing::warn!(session = %self.handle.id(), %error, "an append failed");
                // A report that the store can never accept is void, and is acknowledged as such.
                let is_void = matches!(error, WriteError::Invalid(_));
                for (thread, generation, sequence) in pending.reports.iter().filter(|_| !is_void) {
                    self.lost_reports.entry(*thread).or_insert((*generation, *sequence));
                }
                let failure = match error {
                    WriteError::Fenced { .. } => {
                        self.shared.fenced.add(1, &[]);
                        Failure::moved(self.session.id)
                    }
                    other => other.into(),
                };
                pending.fail(&failure);
                // The failed append did not change the pending effects. They are recomputed later.
                self.commands.clear();
                self.retry_at = Some(Instant::now() + PAUSE_AFTER_FAILURE);
                continues
            }
        }
    }

    /// Returns why a command must wait. After a failed append nothing new starts for a while, so that closing succeeds
    /// when little space is left. Reports of a thread are rejected until its lost report is resent, because
    /// acknowledging a newer report also acknowledges the lost one.
    fn rejected_after_failure(&mut self, command: &Command) -> Option<Failure> {
        let why = match command {
            Command::Spawn(_) | Command::Dispatch(_) | Command::SendInput { .. } if self.retry_at.is_some() => {
                "the last write failed"
            }
            Command::Report {
                thread,
                generation,
                sequence,
                ..
            } => {
                let (attempt, lost) = *self.lost_reports.get(thread)?;
                if attempt != *generation || *sequence <= lost {
                    self.lost_reports.remove(thread);
                    return None;
                }
                "an earlier report of the agent was not recorded"
            }
            _ => return None,
        };
        Some(Failure::StoreUnavailable(why.to_owned()))
    }

    fn publish(&mut self, after: Arc<Session>, pending: Pending) {
        self.published.send_replace(Arc::clone(&after));
        let before = std::mem::replace(&mut self.session, after);
        self.quota = pending.quota;
        self.stored.add(pending.stored);
        for (remember, outcome) in pending.remembered {
            self.requests
                .remember(remember.key.clone(), remember.hash, outcome, pending.now);
            self.end(&remember.key);
        }
        append::send_replies(pending.replies, &self.session);
        let commit = Arc::new(Commit::new(pending.recorded));
        // An error means that there are no followers.
        let _ = self.commits.send(Arc::clone(&commit));
        let change = Change {
            after: Active {
                handle: &self.handle,
                session: &self.session,
            },
            before: &before,
            events: &commit.events,
        };
        for subscriber in self.shared.config.feed.subscribers() {
            subscriber.committed(&change);
        }
        for subscription in &mut self.subscriptions {
            subscription.committed(&change, &mut self.commands);
        }
        self.upkeep.after_append(&self.session);
        if self.session.expires().is_some() {
            self.shared.due.notify_one();
        }
        self.postpone_passivation();
    }

    fn subscribe(&mut self) {
        let active = Active {
            handle: &self.handle,
            session: &self.session,
        };
        let subscribers = self.shared.config.feed.subscribers();
        let commands = &mut self.commands;
        self.subscriptions = subscribers
            .filter_map(|subscriber| subscriber.subscribe(&active, commands))
            .collect();
    }

    /// Calls all subscriptions.
    fn notify_all(&mut self, call: impl Fn(&mut dyn Subscription, &Active<'_>, &mut Commands)) {
        let active = Active {
            handle: &self.handle,
            session: &self.session,
        };
        for subscription in &mut self.subscriptions {
            call(subscription.as_mut(), &active, &mut self.commands);
        }
    }

    fn begin(&mut self, remember: Remember, reply: oneshot::Sender<Result<Begun, Failure>>) {
        match self.requests.recall(&remember, self.handle.now()) {
            Ok(Some(outcome)) => {
                let done = Done {
                    session: Arc::clone(&self.session),
                    outcome,
                    recorded: false,
                };
                let _ = reply.send(Ok(Begun::Before(done)));
            }
            Err(rejection) => {
                let _ = reply.send(Err(rejection.into()));
            }
            Ok(None) => {
                if let Some((remember, reply)) = self.requests.begin((remember, reply)) {
                    // If the caller has disconnected, dropping the value releases the request id.
                    let _ = reply.send(Ok(Begun::New(InFlight::new(&self.handle, Some(remember)))));
                }
            }
        }
    }

    /// Ends a request. Equal requests that waited for it are checked again: they find the result, or one of them
    /// begins.
    fn end(&mut self, key: &store::RequestKey) {
        for (remember, reply) in self.requests.end(key) {
            self.begin(remember, reply);
        }
    }

    /// Runs all timer checks.
    fn check_timers(&mut self) {
        self.checked_at = Instant::now();
        self.retry_at = None;
        self.apply_deadlines();
        self.notify_all(|subscription, active, commands| subscription.reconcile(active, commands));
    }

    /// Issues a tick if a deadline has passed.
    fn apply_deadlines(&mut self) {
        if tick::next(&self.session).is_some_and(|deadline| deadline <= self.handle.now()) {
            self.commands.push(Command::Tick);
        }
    }

    /// Reads the session's content size from the store if the session may be near its limit.
    async fn count_content(&mut self) {
        if self.quota.needs_count()
            && let Ok(Some(head)) = self.shared.config.store.head(self.session.id).await
        {
            self.quota.count(head.content_bytes);
        }
    }

    /// Restarts the idle period after use of the session.
    fn postpone_passivation(&mut self) {
        let idle = self.shared.config.upkeep.idle;
        let stays = if self.session.closed { idle.min(SOON) } else { idle };
        self.passivate_at = Instant::now() + stays;
    }

    /// Passivates the session if it is idle and its snapshot and summary are written; otherwise schedules the next
    /// check. Returns whether the actor ends.
    fn passivate(&mut self) -> bool {
        self.passivate_at = Instant::now() + self.shared.config.upkeep.idle.max(SOON);
        if !self.session.is_at_work() {
            for subscription in &mut self.subscriptions {
                if subscription.release(&self.session) {
                    self.passivate_at = Instant::now() + SOON;
                }
            }
        }
        self.can_passivate() && self.upkeep.prepare_passivation(&self.session) && self.leave()
    }

    /// Returns whether the session is idle and has no followers.
    fn can_passivate(&self) -> bool {
        let is_followed = self.commits.receiver_count() > 0 || self.published.receiver_count() > OWN_RECEIVERS;
        // The periodic activation of due sessions skips sessions with webhooks. Such a session would miss a deadline
        // while it is passive.
        let has_deadline = self.session.expires().is_some() || tick::next(&self.session).is_some();
        let would_miss_deadline = has_deadline && !self.session.settings.webhooks.is_empty();
        !is_followed
            && !would_miss_deadline
            && !self.session.is_at_work()
            && !self.subscriptions.iter().any(|subscription| subscription.is_busy())
            && self.retry_at.is_none()
    }

    /// Leaves the directory if there are no other handles and no waiting messages. This is race-free: a caller either
    /// has a handle before the check, so that the actor stays, or finds no actor and loads the session again.
    fn leave(&mut self) -> bool {
        let (control, spawns) = (&self.control, &self.spawns);
        let has_left = self
            .shared
            .actors
            .release(&mut self.handle, || control.is_empty() && spawns.is_empty());
        if has_left {
            for subscriber in self.shared.config.feed.subscribers() {
                subscriber.passivated(self.session.id);
            }
            self.release();
            tracing::debug!(session = %self.session.id, "session passivated");
        }
        has_left
    }

    /// Ends the ownership of the passivated session, so that any supervisor can activate it.
    fn release(&self) {
        let (shared, id, epoch) = (Arc::clone(&self.shared), self.session.id, self.epoch);
        let is_due = append::due(&self.session).is_some();
        let released = async move {
            // If the session was loaded again in the meantime, its epoch is different, and this release has no effect.
            if shared.config.store.is_shared()
                && let Err(error) = shared.config.store.release(id, epoch).await
            {
                tracing::warn!(session = %id, %error, "a passivated session was not released");
            }
            if is_due {
                shared.due.notify_one();
            }
        };
        tokio::spawn(released);
    }

    /// Gives the session to another supervisor. Returns whether the actor ends.
    async fn hand_over_to(&mut self, to: MemberId, reply: oneshot::Sender<Result<(), Failure>>) -> bool {
        let id = self.session.id;
        self.leaving.send_replace(true);
        let handed_over = self.shared.config.store.hand_over(id, self.epoch, to).await;
        if !matches!(handed_over, Ok(true)) {
            self.leaving.send_replace(false);
        }
        match handed_over {
            Ok(true) => tracing::debug!(session = %id, %to, "session handed over"),
            // Either the other supervisor takes over no sessions, or this one is no longer the owner. In the second
            // case, the next append is rejected.
            Ok(false) => {
                let _ = reply.send(Err(Failure::moved(id)));
                return false;
            }
            Err(error) => {
                self.stop_if_unknown(&error);
                let _ = reply.send(Err(error.into()));
                return false;
            }
        }
        self.shared.actors.remove(&self.handle);
        for subscriber in self.shared.config.feed.subscribers() {
            subscriber.passivated(id);
        }
        let _ = reply.send(Ok(()));
        true
    }

    /// Rejects the messages that wait in the mailboxes when the actor has ended. They had no effect.
    fn refuse_waiting(&mut self) {
        self.control.close();
        self.spawns.close();
        let id = self.session.id;
        let moved = || Failure::moved(id);
        for request in self.backlog.drain(..) {
            let _ = request.reply.send(Err(moved()));
        }
        while let Some(message) = self.control.try_recv().ok().or_else(|| self.spawns.try_recv().ok()) {
            match message {
                Message::Request(request) => drop(request.reply.send(Err(moved()))),
                Message::Begin { reply, .. } => drop(reply.send(Err(moved()))),
                Message::HandOver(_, reply) | Message::Delete(reply) => drop(reply.send(Err(moved()))),
                Message::Restore(_)
                | Message::Abandon(_)
                | Message::Wake
                | Message::Waiting { .. }
                | Message::WaitOver(_) => {}
            }
        }
    }

    /// Returns whether the session's retention period is over.
    fn has_expired(&self) -> bool {
        let now = self.handle.now();
        self.session.expires().is_some_and(|expires| expires <= now)
    }

    /// Deletes the session, on request or because it expired. Returns whether it is deleted, in which case the actor
    /// ends.
    async fn delete(&mut self) -> bool {
        let id = self.session.id;
        let deleted = if self.session.closed {
            self.shared
                .config
                .store
                .delete_session(id, self.session.in_spawn_order().map(|thread| thread.id).collect())
                .await
                .map(drop)
                .inspect_err(|error| self.stop_if_unknown(error))
                .map_err(Failure::from)
        } else {
            Err(deletions::still_open(id).into())
        };
        if deleted.is_ok() {
            self.shared.actors.remove(&self.handle);
            for subscriber in self.shared.config.feed.subscribers() {
                subscriber.deleted(id);
            }
            tracing::info!(session = %id, "a session was deleted");
        }
        if let Err(failure) = &deleted
            && self.has_expired()
        {
            tracing::warn!(session = %id, %failure, "a session that expired was not deleted");
            self.retry_at = Some(Instant::now() + PAUSE_AFTER_FAILURE);
        }
        for reply in self.deletions.drain(..) {
            let _ = reply.send(deleted.clone());
        }
        deleted.is_ok()
    }

    /// Stops the process if the outcome of a write is unknown, so that the log is replayed.
    fn stop_if_unknown(&self, error: &WriteError) {
        if matches!(error, WriteError::Unknown(_) | WriteError::Stopped) {
            self.shared.outcome_unknown.cancel();
        }
    }

    /// Returns the time of the next timer check: the nearest deadline, the session's expiry, the retry after a failed
    /// append, or a time that a subscription chose.
    fn wake_at(&self) -> Option<Instant> {
        // After a failed deletion, expiry waits for the retry.
        let expiry = self.session.expires().filter(|_| self.retry_at.is_none());
        let cascade = self.session.fenced().map(|(_, fence)| fence.deadline).min();
        let deadline = cascade.into_iter().chain(tick::next(&self.session)).chain(expiry).min();
        deadline
            .map(|deadline| self.instant(deadline))
            .into_iter()
            .chain(self.retry_at)
            .chain(
                self.subscriptions
                    .iter()
                    .filter_map(|subscription| subscription.wake_at()),
            )
            .min()
    }

    /// Converts a deadline to the monotonic clock. [`PAUSE_AT_DEADLINE`] applies to a deadline that has passed.
    fn instant(&self, deadline: UnixMillis) -> Instant {
        let due = Instant::now() + deadline.since(self.handle.now());
        due.max(self.checked_at + PAUSE_AT_DEADLINE)
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn own_request(command: Command, contents: Vec<store::Content>) -> Request {
    let (reply, _) = oneshot::channel();
    Request {
        command,
        contents,
        origin: Origin::service(),
        remember: None,
        earlier: None,
        reply,
    }
}
