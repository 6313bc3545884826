//! The session actor: the single owner of a session. It drains its mailboxes, decides the commands on a working copy
//! and appends once. It publishes state, replies to callers and performs effects only after the append is durable.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use supervisor_log::store::{self, AppendError};
use tokio::{
    sync::{broadcast, mpsc, oneshot, watch},
    time::Instant,
};

use super::{activate::Loaded, append::{self, Draft, Pending}, deletions, directory::{Context, Directory}, error::Failure, handle::{Begun, Commit, FEED, Handle, InFlight, MAILBOX}, message::{Done, Message, Origin, Remember, Request}, passivate::Upkeep, quota::ContentRoom, requests::Requests, stored_contents::StoredContents};
use crate::{clock::SessionClock, domain::{command::Command, decide::tick, ids::{Epoch, Generation, ReportSequence, ThreadId, WaitId}, rules::rate::EventRates, state::session::Session, time::UnixMillis}, projections::{watch::snapshot::Snapshots, webhooks::Deliveries}, runners::{orchestrate, steer::Steered}};

/// The single owner of one session. Runs as one task, which ends when the session is passivated, deleted or fenced off,
/// and at shutdown.
pub(super) struct Actor {
    pub(super) context: Arc<Context>,
    directory: Directory,
    pub(super) handle: Handle,
    pub(super) session: Arc<Session>,
    epoch: Epoch,
    requests: Requests,
    /// The events that each thread may still cause.
    rates: EventRates,
    room: ContentRoom,
    stored: StoredContents,
    upkeep: Upkeep,
    control: mpsc::Receiver<Message>,
    spawns: mpsc::Receiver<Message>,
    published: watch::Sender<Arc<Session>>,
    feed: broadcast::Sender<Arc<Commit>>,
    /// Commands issued by the actor itself. They run before any mailbox message.
    pub(super) own: VecDeque<Command>,
    /// Threads with a dispatch in flight or waiting for a retry.
    pub(super) dispatching: HashSet<ThreadId>,
    /// Delivery progress of steering input, by thread.
    pub(super) steered: HashMap<ThreadId, Steered>,
    /// Requests that did not fit into the last append.
    backlog: VecDeque<Request>,
    /// The time of the last timer check.
    looked: Instant,
    /// When to recompute pending effects after a failed append.
    look_again: Option<Instant>,
    /// Threads whose dispatch failed, with the time of the retry.
    undispatched: Option<Undispatched>,
    /// The oldest unrecorded report of each thread after a failed append, until its runner resends it.
    lost_reports: HashMap<ThreadId, (Generation, ReportSequence)>,
    /// The webhook delivery task. `None` if the session has no webhooks or all notifications are delivered. Stops with
    /// the actor.
    pub(super) deliveries: Option<Deliveries>,
    /// When to check running threads for silence. `None` while no thread runs.
    pub(super) listen_at: Option<Instant>,
    /// When to check whether the session can be passivated.
    rest_at: Instant,
    /// Reply channels of pending deletions.
    deletions: Vec<oneshot::Sender<Result<(), Failure>>>,
}

/// Threads whose dispatch failed.
struct Undispatched {
    threads: Vec<ThreadId>,
    /// The time of the retry.
    again: Instant,
}

impl Undispatched {
    /// Creates an empty set whose retry is one pause from now.
    fn now() -> Self {
        Self {
            threads: Vec::new(),
            again: Instant::now() + PAUSE_AFTER_FAILURE,
        }
    }
}

/// The delay before the actor retries its work after a failed append.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The minimum time between two timer checks. An overdue deadline fires at once, but a failing store is not retried in
/// a tight loop.
const PAUSE_AT_DEADLINE: Duration = Duration::from_millis(50);

/// How long a closed session stays in memory so that late callers find the actor. Also the minimum time between two
/// passivation checks.
const SOON: Duration = Duration::from_millis(100);

/// The receivers of the published state inside the service: the directory's and the actor's.
const OWN_RECEIVERS: usize = 2;

impl Actor {
    /// Starts the actor of a session and returns a handle to it.
    pub fn start(directory: &Directory, loaded: Loaded) -> Handle {
        let context = Arc::clone(directory.context());
        let session = Arc::new(loaded.session);
        let (control_sender, control) = mpsc::channel(MAILBOX);
        let (spawn_sender, spawns) = mpsc::channel(MAILBOX);
        let (published, state) = watch::channel(Arc::clone(&session));
        let (feed, _) = broadcast::channel(FEED);
        let handle = Handle {
            id: session.id,
            control: control_sender,
            spawns: spawn_sender,
            state,
            feed: feed.downgrade(),
            snapshots: Snapshots::default(),
            clock: SessionClock::of(&context.clock, session.updated),
            pin: Arc::default(),
        };
        let mut actor = Self {
            room: ContentRoom::new(loaded.content_bytes, context.session_content_bytes),
            rates: EventRates::new(context.event_rate, handle.now()),
            stored: StoredContents::default(),
            upkeep: Upkeep::new(Arc::clone(&context.store), context.upkeep, loaded.snapshot),
            context,
            directory: directory.clone(),
            handle: handle.clone(),
            session,
            epoch: loaded.epoch,
            requests: loaded.requests,
            control,
            spawns,
            published,
            feed,
            own: VecDeque::new(),
            dispatching: HashSet::new(),
            steered: HashMap::new(),
            backlog: VecDeque::new(),
            looked: Instant::now(),
            look_again: None,
            undispatched: None,
            lost_reports: HashMap::new(),
            deliveries: None,
            listen_at: None,
            rest_at: Instant::now(),
            deletions: Vec::new(),
        };
        actor.stay_awake();
        tokio::spawn(actor.run());
        handle
    }

    async fn run(mut self) {
        let mut roster = self.context.runners.changes();
        self.meet_deadlines();
        self.resume_work();
        self.deliver_notifications();
        self.listen_later();
        loop {
            if !self.deletions.is_empty() && self.delete().await {
                return;
            }
            let (wake_up, rest_at) = (self.wake_up(), self.rest_at);
            // Checked before the mailboxes, so that a busy mailbox cannot delay it.
            match roster.has_changed() {
                Ok(true) => {
                    roster.mark_unchanged();
                    self.resume_work();
                }
                Ok(false) => {}
                Err(_) => return,
            }
            self.upkeep.see_end();
            // Pending commands run first.
            if self.own.is_empty() && wake_up.is_some_and(|at| at <= Instant::now()) {
                self.look();
                if self.has_expired() && self.delete().await {
                    return;
                }
                // Append even without commands: after a failed append, threads may still wait for a slot.
                if !self.append(Vec::new()).await {
                    return;
                }
                continue;
            }
            if !self.own.is_empty() || !self.backlog.is_empty() {
                if !self.append(Vec::new()).await {
                    return;
                }
                continue;
            }
            let message = tokio::select! {
                biased;
                message = self.control.recv() => message,
                message = self.spawns.recv() => message,
                changed = roster.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.resume_work();
                    continue;
                }
                () = until(wake_up) => continue,
                () = self.upkeep.ended() => {
                    if self.upkeep.is_prepared(&self.session) && self.may_rest() && self.leave() {
                        return;
                    }
                    continue;
                }
                () = tokio::time::sleep_until(rest_at) => {
                    if self.put_away() {
                        return;
                    }
                    continue;
                }
            };
            let Some(message) = message else { return };
            if !self.append(vec![message]).await {
                return;
            }
        }
    }

    /// Appends the given messages together with other waiting ones. Returns whether the actor continues.
    async fn append(&mut self, messages: Vec<Message>) -> bool {
        self.count_content().await;
        let mut draft = Draft::new(&self.session, self.handle.now(), self.room);
        while let Some(command) = self.own.pop_front() {
            draft.take(own_request(command), &self.requests, &self.stored, &mut self.rates);
            if draft.is_full() {
                break;
            }
        }
        let mut waiting: VecDeque<Message> = messages.into();
        while let Some(message) = waiting.pop_front().or_else(|| self.next_waiting(&draft)) {
            match message {
                Message::Request(request) if draft.is_full() => self.backlog.push_back(*request),
                Message::Request(request) => match self.held_up(&request.command) {
                    Some(failure) => {
                        let _ = request.reply.send(Err(failure));
                    }
                    None => draft.take(*request, &self.requests, &self.stored, &mut self.rates),
                },
                Message::Begin { remember, reply } => self.begin(remember, reply),
                Message::Abandon(key) => self.end(&key),
                Message::Dispatched(thread) => {
                    self.dispatching.remove(&thread);
                    self.perform(thread);
                }
                Message::Astray(thread) => {
                    self.dispatching.remove(&thread);
                    self.reconcile(thread);
                }
                Message::Undispatched(thread) => {
                    // Until the retry, the thread counts as dispatching. Otherwise the slot that it released would
                    // start the dispatch again at once.
                    let undispatched = self.undispatched.get_or_insert_with(Undispatched::now);
                    undispatched.threads.push(thread);
                }
                Message::Steered(thread, reached) => self.steered_up_to(thread, reached),
                Message::Waiting { id, wait } => {
                    // A wait is not an event. It affects the next decisions immediately, even if the append fails.
                    Arc::make_mut(&mut self.session).waits.begin(id, wait.clone());
                    draft.waits().begin(id, wait);
                }
                Message::WaitOver(id) => {
                    draft.waits().end(id);
                    self.end_wait(id);
                }
                Message::Delete(reply) => self.deletions.push(reply),
            }
        }
        draft.follow_up();
        self.stay_awake();
        match draft.finish(self.epoch, &self.session) {
            Some((batch, pending)) => self.commit(batch, pending).await,
            None => true,
        }
    }

    /// Returns the next message that fits into the append: the backlog first, then control before spawns, so that
    /// overload never blocks a close.
    fn next_waiting(&mut self, draft: &Draft) -> Option<Message> {
        if draft.is_full() {
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

    async fn commit(&mut self, batch: store::Batch, pending: Pending) -> bool {
        let started = Instant::now();
        let appended = self.context.store.append(batch).await;
        self.context.measures.appended(started.elapsed());
        match appended {
            Ok(()) => {
                self.publish(pending);
                true
            }
            Err(error) => {
                let goes_on = matches!(error, AppendError::Refused(_) | AppendError::Invalid(_));
                self.stop_if_unknown(&error);
                tracing::warn!(session = %self.handle.id, %error, "an append failed");
                // A report that the store can never accept is void, and is acknowledged as such.
                let is_void = matches!(error, AppendError::Invalid(_));
                for (thread, generation, sequence) in pending.reports.iter().filter(|_| !is_void) {
                    self.lost_reports.entry(*thread).or_insert((*generation, *sequence));
                }
                pending.fail(&Failure::from(error));
                // The failed append did not change the pending effects. They are recomputed later.
                self.own.clear();
                self.look_again = Some(Instant::now() + PAUSE_AFTER_FAILURE);
                goes_on
            }
        }
    }

    /// Returns why a command must wait. After a failed append nothing new starts for a while, so that closing succeeds
    /// when little space is left. Reports of a thread are rejected until the lost one is resent, because acknowledging
    /// a newer sequence number also acknowledges the older report.
    fn held_up(&mut self, command: &Command) -> Option<Failure> {
        let why = match command {
            Command::Spawn(_) | Command::Dispatch(_) | Command::SendInput { .. } if self.look_again.is_some() => {
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

    fn publish(&mut self, mut pending: Pending) {
        let before = std::mem::replace(&mut self.session, Arc::clone(&pending.session));
        self.context
            .measures
            .happened(&before, &self.session, &pending.recorded);
        self.room = pending.room;
        self.stored.add(std::mem::take(&mut pending.stored));
        self.published.send_replace(Arc::clone(&pending.session));
        for (remember, outcome) in std::mem::take(&mut pending.remembered) {
            self.requests
                .remember(remember.key.clone(), remember.hash, outcome, pending.now);
            self.end(&remember.key);
        }
        pending.answer();
        let commit = Arc::new(Commit::new(std::mem::take(&mut pending.recorded)));
        // An error means that there are no watchers.
        let _ = self.feed.send(Arc::clone(&commit));
        if self.deliveries.is_none() {
            self.deliver_notifications();
        }
        self.context.news.tell(self.session.id);
        self.act_on(&before, &commit.events);
        self.keep_orchestrating();
        self.upkeep.after_append(&self.session);
        if self.session.expires().is_some() {
            self.context.due.notify_one();
        }
        self.stay_awake();
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
            Err(refusal) => {
                let _ = reply.send(Err(refusal.into()));
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

    /// Ends a wait. The thread's silence is measured from now.
    fn end_wait(&mut self, id: WaitId) {
        let wait = Arc::make_mut(&mut self.session).waits.end(id);
        let waited = wait.and_then(|wait| self.session.thread(wait.thread()));
        if let Some(thread) = waited
            && let Some(runner) = thread.holder()
        {
            self.context.runners.heard(runner, thread.id, thread.generation);
        }
    }

    /// Runs all timer checks.
    fn look(&mut self) {
        self.looked = Instant::now();
        self.look_again = None;
        let looked = self.looked;
        if let Some(undispatched) = self.undispatched.take_if(|waiting| waiting.again <= looked) {
            for thread in undispatched.threads {
                self.dispatching.remove(&thread);
            }
        }
        self.meet_deadlines();
        self.resume_work();
        self.listen();
    }

    /// Issues a tick if a deadline has passed.
    fn meet_deadlines(&mut self) {
        if tick::next(&self.session).is_some_and(|deadline| deadline <= self.handle.now()) {
            self.own.push_back(Command::Tick);
        }
    }

    /// Reads the session's content size from the store if the session may be near its limit.
    async fn count_content(&mut self) {
        if self.room.needs_count()
            && let Ok(Some(head)) = self.context.store.head(self.session.id).await
        {
            self.room.count(head.content_bytes);
        }
    }

    /// Restarts the idle period after use of the session.
    fn stay_awake(&mut self) {
        let idle = self.context.upkeep.idle;
        let stays = if self.session.closed { idle.min(SOON) } else { idle };
        self.rest_at = Instant::now() + stays;
    }

    /// Passivates the session if it is idle and its snapshot and summary are written; otherwise schedules the next
    /// check. Returns whether the actor ends.
    fn put_away(&mut self) -> bool {
        self.rest_at = Instant::now() + self.context.upkeep.idle.max(SOON);
        // Webhook deliveries follow the session like a watcher. The next append restarts them.
        let head = self.session.sequence;
        if !self.session.is_at_work()
            && self
                .deliveries
                .take_if(|deliveries| deliveries.have_told(head))
                .is_some()
        {
            self.rest_at = Instant::now() + SOON;
        }
        self.may_rest() && self.upkeep.prepare_rest(&self.session) && self.leave()
    }

    /// Returns whether the session is idle and has no watchers.
    fn may_rest(&self) -> bool {
        let is_followed = self.feed.receiver_count() > 0 || self.published.receiver_count() > OWN_RECEIVERS;
        // A session with webhooks is activated only when the service starts, so it must not miss a deadline.
        let has_date = self.session.expires().is_some() || tick::next(&self.session).is_some();
        let is_missed = has_date && !self.session.settings.webhooks.is_empty();
        !is_followed
            && !is_missed
            && !self.session.is_at_work()
            && self.dispatching.is_empty()
            && self.look_again.is_none()
    }

    /// Leaves the directory if there are no other handles and no waiting messages. This is race-free: a caller either
    /// has a handle before, and the actor stays, or finds no actor and loads the session again.
    fn leave(&mut self) -> bool {
        let (control, spawns) = (&self.control, &self.spawns);
        let has_left = self
            .directory
            .release(&mut self.handle, || control.is_empty() && spawns.is_empty());
        if has_left {
            self.context.telemetry.forget_session(self.session.id);
            self.context.output.tidy(self.session.id);
            if batch::due(&self.session).is_some() {
                self.context.due.notify_one();
            }
            tracing::debug!(session = %self.session.id, "a session was put away");
        }
        has_left
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
            self.context
                .store
                .delete_session(id, self.session.in_spawn_order().map(|thread| thread.id).collect())
                .await
                .map(drop)
                .map_err(AppendError::from)
                .inspect_err(|error| self.stop_if_unknown(error))
                .map_err(Failure::from)
        } else {
            Err(deletions::still_open(id).into())
        };
        if deleted.is_ok() {
            self.directory.remove(&self.handle);
            self.context.telemetry.forget_session(id);
            self.context.output.forget_session(id);
            self.context.news.tell(id);
            tracing::info!(session = %id, "a session was deleted");
        }
        if let Err(failure) = &deleted
            && self.has_expired()
        {
            tracing::warn!(session = %id, %failure, "a session that expired was not deleted");
            self.look_again = Some(Instant::now() + PAUSE_AFTER_FAILURE);
        }
        for reply in self.deletions.drain(..) {
            let _ = reply.send(deleted.clone());
        }
        deleted.is_ok()
    }

    /// Stops the process if the outcome of a write is unknown, so that the log is replayed.
    fn stop_if_unknown(&self, error: &AppendError) {
        if matches!(error, AppendError::Unknown(_) | AppendError::Stopped) {
            self.context.fatal.cancel();
        }
    }

    /// Returns the time of the next timer check: the nearest deadline, the session's expiry, the next silence check, or
    /// the retry after a failed append or dispatch.
    fn wake_up(&self) -> Option<Instant> {
        // After a failed deletion, expiry waits for the retry.
        let expiry = self.session.expires().filter(|_| self.look_again.is_none());
        let cascade = self.session.fenced().map(|(_, fence)| fence.deadline).min();
        let deadline = cascade.into_iter().chain(tick::next(&self.session)).chain(expiry).min();
        deadline
            .map(|deadline| self.instant(deadline))
            .into_iter()
            .chain(self.look_again)
            .chain(self.undispatched.as_ref().map(|waiting| waiting.again))
            .chain(self.listen_at)
            .min()
    }

    /// Converts a deadline to the monotonic clock. [`PAUSE_AT_DEADLINE`] applies to a deadline that has passed.
    fn instant(&self, deadline: UnixMillis) -> Instant {
        let due = Instant::now() + deadline.since(self.handle.now());
        due.max(self.looked + PAUSE_AT_DEADLINE)
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn own_request(command: Command) -> Request {
    let (reply, _) = oneshot::channel();
    Request {
        contents: auto::contents_of(&command),
        command,
        origin: Origin::service(),
        remember: None,
        reply,
    }
}
