//! The way to a session for everybody but its actor: commands go through a mailbox, reads see the published state.

use std::sync::Arc;

use bytes::Bytes;
use tokio::{
    sync::{broadcast, mpsc, oneshot, watch},
    time::Instant,
};

use super::{
    failure::Failure,
    message::{Done, Message, Origin, Remember, Request},
};
use crate::{
    clock::SessionClock,
    domain::{
        command::Command,
        event::Recorded,
        ids::{SessionId, WaitId},
        session::Session,
        time::UnixMillis,
        waiting::Wait,
    },
    store::Content,
    watch::{encoded::EncodedEvents, snapshot::Snapshots},
    wire::Sight,
};

/// How many messages wait for a session at most, per class; a sender beyond that waits.
pub(super) const MAILBOX: usize = 1_024;

/// How many appends a watcher may lag behind before it reads the log instead.
pub(super) const FEED: usize = 256;

/// The events of one append, in order. No position of a watcher falls inside it.
#[derive(Debug)]
pub struct Commit {
    /// The events.
    pub events: Vec<Recorded>,
    /// When they could be known.
    pub published: Instant,
    encoded: EncodedEvents,
}

impl Commit {
    pub(super) fn new(events: Vec<Recorded>) -> Self {
        Self {
            events,
            published: Instant::now(),
            encoded: EncodedEvents::default(),
        }
    }

    /// The events as watchers are sent them, in the same order.
    #[must_use]
    pub fn messages(&self, session: SessionId, sight: Sight) -> &[Bytes] {
        self.encoded.of(session, &self.events, sight)
    }
}

/// A session that is loaded. It stays in memory while anybody has one: hold it no longer than it is needed.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(super) id: SessionId,
    pub(super) control: mpsc::Sender<Message>,
    pub(super) spawns: mpsc::Sender<Message>,
    pub(super) state: watch::Receiver<Arc<Session>>,
    /// The actor has the feed: it ends with the actor, not with the last who could follow it.
    pub(super) feed: broadcast::WeakSender<Arc<Commit>>,
    pub(super) snapshots: Snapshots,
    pub(super) clock: SessionClock,
    /// What every way to one actor has in common. Dropped after the rest: who finds it unshared sees all that was sent.
    pub(super) pin: Arc<()>,
}

/// Whether a request is new.
#[derive(Debug)]
pub enum Begun {
    /// It is: carry it out with this, or drop it to give the id back.
    New(InFlight),
    /// It was carried out before.
    Before(Done),
}

/// A request that began and has not recorded anything yet. Equal ones wait for it.
#[derive(Debug)]
pub struct InFlight {
    handle: Handle,
    remember: Option<Remember>,
}

/// A thread waits for others until this is dropped.
#[derive(Debug)]
pub struct Waiting {
    control: mpsc::Sender<Message>,
    id: WaitId,
}

impl Handle {
    /// The time of day in the session.
    #[must_use]
    pub fn now(&self) -> UnixMillis {
        self.clock.now()
    }

    /// The session's id.
    #[must_use]
    pub const fn id(&self) -> SessionId {
        self.id
    }

    /// What its watchers are sent at first.
    #[must_use]
    pub const fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    /// Whether both lead to the same actor.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.pin, &other.pin)
    }

    /// Whether nobody else has a way to the actor.
    pub(super) fn is_alone(&mut self) -> bool {
        Arc::get_mut(&mut self.pin).is_some()
    }

    /// The present durable state.
    #[must_use]
    pub fn state(&self) -> Arc<Session> {
        Arc::clone(&self.state.borrow())
    }

    /// The durable state as it changes, append by append; waits judge it.
    #[must_use]
    pub fn states(&self) -> watch::Receiver<Arc<Session>> {
        self.state.clone()
    }

    /// What is appended from now on, until the actor ends. Subscribe first, then take [`Self::state`]: nothing falls between
    /// them, since the actor publishes the state before the events.
    #[must_use]
    pub fn follow(&self) -> broadcast::Receiver<Arc<Commit>> {
        match self.feed.upgrade() {
            Some(feed) => feed.subscribe(),
            None => broadcast::channel(1).1,
        }
    }

    /// Waits until the session's actor has ended; the session may be looked up again then.
    pub async fn ended(&self) {
        self.control.closed().await;
    }

    /// Carries a command out and answers when what it did is durable.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn execute(
        &self,
        command: Command,
        origin: Origin,
        remember: Option<Remember>,
        contents: Vec<Content>,
    ) -> Result<Done, Failure> {
        self.submit(command, origin, remember, contents)
            .await?
            .await
            .map_err(|_| Failure::Gone)?
    }

    /// As [`Self::execute`], but answers when the command stands in the mailbox: commands that are submitted one after the
    /// other are carried out in this order, and share appends.
    ///
    /// # Errors
    /// [`Failure::Gone`].
    pub async fn submit(
        &self,
        command: Command,
        origin: Origin,
        remember: Option<Remember>,
        contents: Vec<Content>,
    ) -> Result<oneshot::Receiver<Result<Done, Failure>>, Failure> {
        let class = match &command {
            Command::Spawn(_) | Command::FailSpawn { .. } => &self.spawns,
            Command::SendInput { .. }
            | Command::Interrupt { .. }
            | Command::Close { .. }
            | Command::Resume { .. }
            | Command::SetNote { .. }
            | Command::Dispatch(_)
            | Command::Report { .. }
            | Command::LoseRunner { .. }
            | Command::RefuseStart { .. }
            | Command::RefuseTurn { .. }
            | Command::FinishClose { .. }
            | Command::UpdateSession(_)
            | Command::UpdateBudget { .. }
            | Command::CreateEdge { .. }
            | Command::DeleteEdge { .. }
            | Command::SendHandoff { .. }
            | Command::AcknowledgeMail { .. }
            | Command::ResolveApproval { .. }
            | Command::RequestToolApproval { .. }
            | Command::DenyTool { .. }
            | Command::SetCondition { .. }
            | Command::RecordUsage { .. }
            | Command::AutoTurn { .. }
            | Command::Tick => &self.control,
        };
        let (reply, answer) = oneshot::channel();
        let request = Request {
            command,
            origin,
            remember,
            contents,
            reply,
        };
        class
            .send(Message::Request(Box::new(request)))
            .await
            .map_err(|_| Failure::Gone)?;
        Ok(answer)
    }

    /// Removes the session with everything that is its own. Whoever still has a way to it finds it gone.
    ///
    /// # Errors
    /// A refusal unless the session is closed; else what the store met.
    pub(super) async fn delete(&self) -> Result<(), Failure> {
        let (reply, answer) = oneshot::channel();
        self.control
            .send(Message::Delete(reply))
            .await
            .map_err(|_| Failure::Gone)?;
        answer.await.map_err(|_| Failure::Gone)?
    }

    /// Asks whether a request was made before, and if not, holds its id. For requests that do something slow before their
    /// command; the others are recognised by the command itself.
    ///
    /// # Errors
    /// [`Refusal::RequestIdReused`](crate::domain::refusal::Refusal::RequestIdReused) and [`Failure::Gone`].
    pub async fn begin(&self, remember: Option<Remember>) -> Result<Begun, Failure> {
        let Some(remember) = remember else {
            return Ok(Begun::New(InFlight::new(self, None)));
        };
        let (reply, answer) = oneshot::channel();
        self.control
            .send(Message::Begin { remember, reply })
            .await
            .map_err(|_| Failure::Gone)?;
        answer.await.map_err(|_| Failure::Gone)?
    }

    /// A thread waits for others, under an id of its own: that lends its slot to those of them that are queued below it.
    ///
    /// # Errors
    /// [`Failure::Gone`].
    pub async fn waiting(&self, id: WaitId, wait: Wait) -> Result<Waiting, Failure> {
        self.control
            .send(Message::Waiting { id, wait })
            .await
            .map_err(|_| Failure::Gone)?;
        Ok(Waiting {
            control: self.control.clone(),
            id,
        })
    }
}

impl InFlight {
    pub(super) fn new(handle: &Handle, remember: Option<Remember>) -> Self {
        Self {
            handle: handle.clone(),
            remember,
        }
    }

    /// Carries the request's command out.
    ///
    /// # Errors
    /// See [`Handle::execute`].
    pub async fn execute(self, command: Command, origin: Origin, contents: Vec<Content>) -> Result<Done, Failure> {
        let remember = self.remember.clone();
        self.handle.execute(command, origin, remember, contents).await
    }

    /// Carries a command out that is not the request's success, so that a retry begins anew.
    ///
    /// # Errors
    /// See [`Handle::execute`].
    pub async fn execute_unremembered(self, command: Command, origin: Origin) -> Result<Done, Failure> {
        self.handle.execute(command, origin, None, Vec::new()).await
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(remember) = self.remember.take() {
            // The id is given back whatever ended the request.
            send_in_any_case(&self.handle.control, Message::Abandon(remember.key));
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Whatever ended the call, a client that hung up too.
        send_in_any_case(&self.control, Message::WaitOver(self.id));
    }
}

/// Sends without waiting; where the mailbox has no room, a task waits for some.
fn send_in_any_case(control: &mpsc::Sender<Message>, message: Message) {
    if let Err(mpsc::error::TrySendError::Full(message)) = control.try_send(message) {
        let control = control.clone();
        tokio::spawn(async move { control.send(message).await });
    }
}
