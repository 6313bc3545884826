//! Handles to a session's actor: commands go through a mailbox, reads use the published state.

use std::sync::Arc;

use supervisor_log::store::{Content, MemberId, RequestKey, RequestRecord};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use super::{
    commit::Commit,
    error::Failure,
    message::{Done, Origin, Remember},
    stored_requests::{Page, StoredRequests},
};
use crate::{
    clock::SessionClock,
    domain::{
        command::Command,
        ids::{SessionId, WaitId},
        state::{session::Session, wait::Wait},
        time::UnixMillis,
    },
};

/// The maximum number of waiting messages per class. Beyond it, senders wait.
pub(super) const MAILBOX: usize = 1_024;

/// A handle to a loaded session. Each handle keeps the session in memory, so drop it as soon as possible. Cheap to
/// clone.
///
/// All handles to one actor share their parts. If a handle is the only owner of its parts, no other handle can still
/// send a message.
#[derive(Clone, Debug)]
pub struct Handle(Arc<Parts>);

/// The state that all handles to an actor share.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) id: SessionId,
    pub(super) control: mpsc::Sender<Message>,
    pub(super) spawns: mpsc::Sender<Message>,
    pub(super) state: watch::Receiver<Arc<Session>>,
    /// The actor owns the feed, so the feed ends with the actor and not with the last handle.
    pub(super) commits: broadcast::WeakSender<Arc<Commit>>,
    pub(super) clock: SessionClock,
    pub(super) requests: Arc<StoredRequests>,
    /// Whether the session is being given to another supervisor, which may write before this one learns the outcome.
    pub(super) leaving: watch::Receiver<bool>,
}

/// A command for the actor.
#[derive(Debug)]
pub(super) struct Request {
    /// The command.
    pub command: Command,
    /// The origin of the command.
    pub origin: Origin,
    /// The key by which a retry is recognised.
    pub remember: Option<Remember>,
    /// The stored request with this key, if the actor may not have it yet.
    pub earlier: Option<Box<RequestRecord>>,
    /// Content that the command's events will refer to.
    pub contents: Vec<Content>,
    /// The reply channel. The command is executed even if the receiver was dropped.
    pub reply: oneshot::Sender<Result<Done, Failure>>,
}

/// Every message that the actor accepts.
#[derive(Debug)]
pub(super) enum Message {
    /// Executes a command.
    Request(Box<Request>),
    /// Asks whether a request was made before. Answered when an equal request in flight has ended.
    Begin {
        remember: Remember,
        /// The stored request with this key, if the actor may not have it yet.
        earlier: Option<Box<RequestRecord>>,
        reply: oneshot::Sender<Result<Begun, Failure>>,
    },
    /// Restores stored requests.
    Restore(Page),
    /// Ends a begun request without a command.
    Abandon(RequestKey),
    /// A task of a subscription has ended.
    Wake,
    /// A thread begins to wait for others.
    Waiting { id: WaitId, wait: Wait },
    /// The wait has ended.
    WaitOver(WaitId),
    /// Gives the session to another supervisor.
    HandOver(MemberId, oneshot::Sender<Result<(), Failure>>),
    /// Deletes the session, which must be closed.
    Delete(oneshot::Sender<Result<(), Failure>>),
}

/// Whether a request is new.
#[derive(Debug)]
pub enum Begun {
    /// The request is new. Carry it out with this value, or drop the value to release the request id.
    New(InFlight),
    /// The request was carried out before.
    Before(Done),
}

/// A request that has begun but not recorded anything yet. Equal requests wait for it.
#[derive(Debug)]
pub struct InFlight {
    handle: Handle,
    remember: Option<Remember>,
}

/// Marks a thread as waiting for others until this value is dropped.
#[derive(Debug)]
pub struct Waiting {
    control: mpsc::Sender<Message>,
    id: WaitId,
}

impl Request {
    /// Returns a request and the receiver of its reply. The request is boxed before anything waits, because a future
    /// that waits reserves memory for each value that was moved into it.
    fn new(
        command: Command,
        origin: Origin,
        remember: Option<Remember>,
        contents: Vec<Content>,
    ) -> (Box<Self>, oneshot::Receiver<Result<Done, Failure>>) {
        let (reply, answer) = oneshot::channel();
        let request = Self {
            command,
            origin,
            remember,
            earlier: None,
            contents,
            reply,
        };
        (Box::new(request), answer)
    }
}

impl Handle {
    /// Creates the first handle to an actor.
    pub(super) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// Returns the current time by the session's clock.
    #[must_use]
    pub fn now(&self) -> UnixMillis {
        self.0.clock.now()
    }

    /// Returns the session's id.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.0.id
    }

    /// Returns the sender of the actor's control mailbox. The sender does not keep the session in memory.
    pub(super) fn control(&self) -> mpsc::Sender<Message> {
        self.0.control.clone()
    }

    /// Returns the requests that the session remembers in its store.
    pub(super) fn requests(&self) -> &StoredRequests {
        &self.0.requests
    }

    /// Returns whether the session's actor has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.0.control.is_closed()
    }

    /// Waits until the session is not being given to another supervisor. Until then, its state may be out of date.
    pub(super) async fn settled(&self) {
        // An error means that the actor has ended.
        let _ = self.0.leaving.clone().wait_for(|leaving| !leaving).await;
    }

    /// Returns whether the session is being given to another supervisor.
    pub(super) fn is_leaving(&self) -> bool {
        *self.0.leaving.borrow()
    }

    /// Returns whether both handles belong to the same actor.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns whether there are no other handles to the actor.
    pub(super) fn is_alone(&mut self) -> bool {
        Arc::get_mut(&mut self.0).is_some()
    }

    /// Returns the present durable state.
    #[must_use]
    pub fn state(&self) -> Arc<Session> {
        Arc::clone(&self.0.state.borrow())
    }

    /// Returns a receiver of the durable state after each append.
    #[must_use]
    pub fn states(&self) -> watch::Receiver<Arc<Session>> {
        self.0.state.clone()
    }

    /// Returns a receiver of the appends from now on, until the actor ends. Subscribe first, then call [`Self::state`]:
    /// no event is missed, because the actor publishes the state before the events.
    #[must_use]
    pub fn follow(&self) -> broadcast::Receiver<Arc<Commit>> {
        match self.0.commits.upgrade() {
            Some(commits) => commits.subscribe(),
            None => broadcast::channel(1).1,
        }
    }

    /// Waits until the session's actor has ended. The session may be looked up again then.
    pub async fn ended(&self) {
        self.0.control.closed().await;
    }

    /// Executes a command and returns when its events are durable.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn execute(
        &self,
        command: Command,
        origin: Origin,
        remember: Option<Remember>,
        contents: Vec<Content>,
    ) -> impl Future<Output = Result<Done, Failure>> + Send {
        let submitted = self.submit(command, origin, remember, contents);
        async move { submitted.await?.await.map_err(|_| Failure::Gone)? }
    }

    /// Like [`Self::execute`], but returns as soon as the command is in the mailbox. Commands submitted in sequence are
    /// executed in this order and share appends.
    ///
    /// # Errors
    /// [`Failure::Elsewhere`], or the store's error.
    pub fn submit(
        &self,
        command: Command,
        origin: Origin,
        remember: Option<Remember>,
        contents: Vec<Content>,
    ) -> impl Future<Output = Result<oneshot::Receiver<Result<Done, Failure>>, Failure>> + Send {
        let (mut request, answer) = Request::new(command, origin, remember, contents);
        async move {
            request.earlier = self.0.requests.find(request.remember.as_ref()).await?;
            self.enqueue(request).await?;
            Ok(answer)
        }
    }

    /// Puts a request into its mailbox.
    async fn enqueue(&self, request: Box<Request>) -> Result<(), Failure> {
        // Spawns must not delay a close, so every command that can arrive in large numbers uses the spawn mailbox.
        let is_spawn = matches!(request.command, Command::Spawn(_) | Command::FailSpawn { .. });
        let class = if is_spawn { &self.0.spawns } else { &self.0.control };
        self.send(class, Message::Request(request)).await
    }

    async fn send(&self, class: &mpsc::Sender<Message>, message: Message) -> Result<(), Failure> {
        let sent = class.send(message).await;
        sent.map_err(|_| Failure::moved(self.0.id))
    }

    /// Deletes the session and all its data. Other handles stop working.
    ///
    /// # Errors
    /// A rejection unless the session is closed; otherwise the store's error.
    pub(super) async fn delete(&self) -> Result<(), Failure> {
        let (reply, answer) = oneshot::channel();
        self.send(&self.0.control, Message::Delete(reply)).await?;
        answer.await.map_err(|_| Failure::Gone)?
    }

    /// Gives the session to another supervisor and ends its actor here.
    ///
    /// # Errors
    /// The store's error; the session then stays here.
    pub(super) async fn hand_over(&self, to: MemberId) -> Result<(), Failure> {
        let (reply, answer) = oneshot::channel();
        self.send(&self.0.control, Message::HandOver(to, reply)).await?;
        answer.await.map_err(|_| Failure::moved(self.0.id))?
    }

    /// Checks whether a request was made before. If not, reserves its id. Use it for requests with slow work before
    /// their command; other requests are recognised when their command is executed.
    ///
    /// # Errors
    /// [`Rejection::RequestIdReused`](crate::domain::rejection::Rejection::RequestIdReused), [`Failure::Elsewhere`], or
    /// the store's error.
    pub async fn begin(&self, remember: Option<Remember>) -> Result<Begun, Failure> {
        let Some(remember) = remember else {
            return Ok(Begun::New(InFlight::new(self, None)));
        };
        let earlier = self.0.requests.find(Some(&remember)).await?;
        let (reply, answer) = oneshot::channel();
        let begin = Message::Begin {
            remember,
            earlier,
            reply,
        };
        self.send(&self.0.control, begin).await?;
        answer.await.map_err(|_| Failure::moved(self.0.id))?
    }

    /// Marks a thread as waiting for others. `id` identifies the wait. The thread lends its slot to the awaited threads
    /// that are queued below it.
    ///
    /// # Errors
    /// [`Failure::Elsewhere`].
    pub async fn waiting(&self, id: WaitId, wait: Wait) -> Result<Waiting, Failure> {
        self.send(&self.0.control, Message::Waiting { id, wait }).await?;
        Ok(Waiting {
            control: self.0.control.clone(),
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

    /// Executes the request's command.
    ///
    /// # Errors
    /// See [`Handle::execute`].
    pub fn execute(
        self,
        command: Command,
        origin: Origin,
        contents: Vec<Content>,
    ) -> impl Future<Output = Result<Done, Failure>> + Send {
        // When the request began, the actor checked that there is no earlier request with this key.
        let (request, answer) = Request::new(command, origin, self.remember.clone(), contents);
        async move {
            self.handle.enqueue(request).await?;
            answer.await.map_err(|_| Failure::Gone)?
        }
    }

    /// Executes a command that does not complete the request, so that a retry begins again.
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
            // Release the request id regardless of how the request ended.
            send_in_any_case(&self.handle.0.control, Message::Abandon(remember.key));
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // End the wait regardless of how the call ended, including a disconnected client.
        send_in_any_case(&self.control, Message::WaitOver(self.id));
    }
}

/// Sends without waiting. If the mailbox is full, a task waits for capacity.
fn send_in_any_case(control: &mpsc::Sender<Message>, message: Message) {
    if let Err(mpsc::error::TrySendError::Full(message)) = control.try_send(message) {
        let control = control.clone();
        tokio::spawn(async move { control.send(message).await });
    }
}
