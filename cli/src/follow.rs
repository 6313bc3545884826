//! Durable watches: they resume after a disconnect, a restart of the service and the planned end of a stream.

use std::{collections::HashMap, future::Future, result, time::Duration};

use tokio::{sync::mpsc, time::sleep};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Code, Response, Status, Streaming};
use troupe_proto::{
    fault,
    supervisor::v1::{
        WatchNotificationsRequest, WatchNotificationsResponse, WatchSessionsRequest, WatchSessionsResponse,
        WatchThreadsRequest, WatchThreadsResponse, WatchTranscriptRequest, WatchTranscriptResponse,
        watch_threads_response::Message,
    },
};

use crate::{
    backoff::Backoff,
    client::Supervisor,
    error::{Error, Kind, Result, is_transient},
    ids, sanitize,
    ui::Ui,
};

/// Time for the last messages of a session after the news that it was closed.
const AFTER_END: Duration = Duration::from_secs(5);

/// A streaming method with a position from which it can be called again.
pub(crate) trait Watch: Send + 'static {
    /// The message of the stream.
    type Message: Send;

    /// Calls the method from the present position.
    fn open(
        &self,
        supervisor: &mut Supervisor,
    ) -> impl Future<Output = result::Result<Response<Streaming<Self::Message>>, Status>> + Send;

    /// Moves the position behind a message. Returns whether the stream continues.
    fn advance(&mut self, message: &Self::Message) -> bool;

    /// Prepares the position for another call after an interrupted stream.
    fn interrupted(&mut self) {}

    /// Forgets a position that the service no longer has. Returns whether there was one.
    fn forget_position(&mut self) -> bool {
        false
    }

    /// Returns the sequence number after which another call continues, if one is known.
    fn position(&self) -> Option<u64> {
        None
    }
}

/// A watch of a session or a thread.
#[derive(Debug)]
pub(crate) struct ThreadWatch {
    request: WatchThreadsRequest,
    /// Whether a snapshot is incomplete. A watch cannot resume from a position inside a snapshot.
    in_snapshot: bool,
}

impl ThreadWatch {
    /// Creates a watch that begins at the position of the request.
    pub(crate) const fn new(request: WatchThreadsRequest) -> Self {
        Self {
            request,
            in_snapshot: false,
        }
    }
}

impl Watch for ThreadWatch {
    type Message = WatchThreadsResponse;

    async fn open(&self, supervisor: &mut Supervisor) -> result::Result<Response<Streaming<Self::Message>>, Status> {
        supervisor.watch_threads(self.request.clone()).await
    }

    fn advance(&mut self, response: &WatchThreadsResponse) -> bool {
        match &response.message {
            Some(Message::Snapshot(snapshot)) => {
                self.in_snapshot = !snapshot.last;
                self.request.log_id.clone_from(&snapshot.log_id);
                self.request.after_sequence = Some(response.sequence);
            }
            Some(Message::Event(_) | Message::Bookmark(_)) => self.request.after_sequence = Some(response.sequence),
            Some(Message::Reset(_)) => {
                self.forget_position();
                return false;
            }
            Some(Message::Telemetry(_) | Message::Output(_)) | None => {}
        }
        true
    }

    fn interrupted(&mut self) {
        if self.in_snapshot {
            self.request.after_sequence = None;
            self.in_snapshot = false;
        }
    }

    fn forget_position(&mut self) -> bool {
        self.request.log_id.clear();
        self.request.after_sequence.take().is_some()
    }

    fn position(&self) -> Option<u64> {
        self.request.after_sequence
    }
}

/// Another call sends all sessions again.
impl Watch for WatchSessionsRequest {
    type Message = WatchSessionsResponse;

    async fn open(&self, supervisor: &mut Supervisor) -> result::Result<Response<Streaming<Self::Message>>, Status> {
        supervisor.watch_sessions(self.clone()).await
    }

    fn advance(&mut self, _: &WatchSessionsResponse) -> bool {
        true
    }
}

impl Watch for WatchNotificationsRequest {
    type Message = WatchNotificationsResponse;

    async fn open(&self, supervisor: &mut Supervisor) -> result::Result<Response<Streaming<Self::Message>>, Status> {
        supervisor.watch_notifications(self.clone()).await
    }

    fn advance(&mut self, response: &WatchNotificationsResponse) -> bool {
        if let Some(notification) = &response.notification {
            self.after_sequence = Some(notification.sequence);
        }
        true
    }
}

impl Watch for WatchTranscriptRequest {
    type Message = WatchTranscriptResponse;

    async fn open(&self, supervisor: &mut Supervisor) -> result::Result<Response<Streaming<Self::Message>>, Status> {
        supervisor.watch_transcript(self.clone()).await
    }

    fn advance(&mut self, response: &WatchTranscriptResponse) -> bool {
        self.after_number = response.number;
        self.tail = 0;
        true
    }

    fn position(&self) -> Option<u64> {
        Some(self.after_number)
    }
}

/// An item of a durable watch.
#[derive(Debug)]
pub(crate) enum Update<M> {
    /// The service accepted the watch. Messages follow.
    Opened,
    /// A message of the stream.
    Message(Box<M>),
    /// The connection was lost. The watch resumes after this position.
    Lost {
        /// The error of the connection.
        why: String,
        /// The position, if one is known.
        after: Option<u64>,
    },
}

/// A watch that reconnects until it fails permanently.
#[derive(Debug)]
pub(crate) struct Follow<W: Watch> {
    supervisor: Supervisor,
    watch: W,
    stream: Option<Streaming<W::Message>>,
    backoff: Backoff,
}

impl<W: Watch> Follow<W> {
    /// Follows a watch from its position.
    pub(crate) const fn new(supervisor: Supervisor, watch: W) -> Self {
        Self {
            supervisor,
            watch,
            stream: None,
            backoff: Backoff::new(),
        }
    }

    /// Returns the next item. An error is permanent: the service rejected the watch and would reject it again.
    ///
    /// Cancel safe: the position advances only when a message is returned.
    pub(crate) async fn next(&mut self) -> Result<Update<W::Message>> {
        loop {
            match self.receive().await {
                Ok(Some(Update::Message(message))) => {
                    self.backoff.reset();
                    if !self.watch.advance(&message) {
                        self.stream = None;
                    }
                    return Ok(Update::Message(message));
                }
                Ok(Some(update)) => return Ok(update),
                // The stream ended as planned; reconnect after the shortest delay.
                Ok(None) => self.reset(None),
                // The events after the position are compacted, or the log was replaced.
                Err(status) if status.code() == Code::OutOfRange && self.watch.forget_position() => {
                    self.reset(None);
                    return Ok(self.lost(&status));
                }
                Err(status) if is_transient(&status) => {
                    self.reset(fault::retry_after(&status));
                    return Ok(self.lost(&status));
                }
                Err(status) => return Err(Error::from(status)),
            }
        }
    }

    /// Opens the stream, or returns its next message. `None` is the end of the stream.
    async fn receive(&mut self) -> result::Result<Option<Update<W::Message>>, Status> {
        match &mut self.stream {
            Some(stream) => Ok(stream
                .message()
                .await?
                .map(|message| Update::Message(Box::new(message)))),
            None => {
                self.backoff.wait().await;
                let answer = self.watch.open(&mut self.supervisor).await?;
                self.stream = Some(answer.into_inner());
                Ok(Some(Update::Opened))
            }
        }
    }

    fn reset(&mut self, asked: Option<Duration>) {
        self.stream = None;
        self.backoff.grow(asked);
        self.watch.interrupted();
    }

    fn lost(&self, status: &Status) -> Update<W::Message> {
        Update::Lost {
            why: sanitize::line(status.message()),
            after: self.watch.position(),
        }
    }
}

/// A session to follow.
pub(crate) struct OpenSession {
    pub(crate) id: String,
    /// Whether it was opened after the start.
    pub(crate) is_new: bool,
}

/// An item of the watch of the session with this id, or the permanent error of the watch.
type Item<M> = (String, Result<Update<M>>);

/// Messages of all sessions that are received before they are taken.
const MAX_READY: usize = 64;

/// An item of [`AllSessions`].
pub(crate) enum SessionsUpdate<M> {
    /// A session, or its roll-up, has changed.
    Session(Box<WatchSessionsResponse>),
    /// A message of the session with this id.
    Message(String, Box<M>),
    /// The watch of the session with this id is open.
    Opened(String),
    /// The watch of the session with this id lost its connection. It resumes.
    Interrupted(String),
    /// The watch of the sessions lost its connection, for this reason. It resumes.
    Lost(String),
    /// The session with this id was deleted.
    Deleted(String),
    /// A session cannot be followed.
    Unfollowed(String, Error),
}

/// Follows each open session with a task, including sessions that open later.
pub(crate) struct AllSessions<W: Watch, F> {
    supervisor: Supervisor,
    sessions: Follow<WatchSessionsRequest>,
    watch: F,
    /// Whether all sessions that were open at the start are known.
    is_synced: bool,
    /// Each ends the task of its session.
    tasks: HashMap<String, DropGuard>,
    sender: mpsc::Sender<Item<W::Message>>,
    items: mpsc::Receiver<Item<W::Message>>,
}

impl<W: Watch, F: Fn(&OpenSession) -> Option<W>> AllSessions<W, F> {
    /// Follows each of these sessions with the watch that the function returns.
    pub(crate) fn new(supervisor: Supervisor, sessions: WatchSessionsRequest, watch: F) -> Self {
        let (sender, items) = mpsc::channel(MAX_READY);
        Self {
            sessions: Follow::new(supervisor.clone(), sessions),
            supervisor,
            watch,
            is_synced: false,
            tasks: HashMap::new(),
            sender,
            items,
        }
    }

    /// Returns the next message with the id of its session. Reports lost connections, and sessions that cannot be
    /// followed. An error is permanent.
    pub(crate) async fn next_message(&mut self, ui: &Ui) -> Result<(String, Box<W::Message>)> {
        loop {
            match self.next().await? {
                SessionsUpdate::Session(_)
                | SessionsUpdate::Opened(_)
                | SessionsUpdate::Interrupted(_)
                | SessionsUpdate::Deleted(_) => {}
                SessionsUpdate::Message(session, message) => return Ok((session, message)),
                SessionsUpdate::Lost(why) => ui.lost(&why, ""),
                SessionsUpdate::Unfollowed(session, error) => {
                    let id = ids::short(&session);
                    ui.note(format_args!("session {id} cannot be followed: {}", error.message()));
                }
            }
        }
    }

    /// Returns the next item. An error is permanent.
    ///
    /// Cancel safe, as [`Follow::next`].
    pub(crate) async fn next(&mut self) -> Result<SessionsUpdate<W::Message>> {
        loop {
            tokio::select! {
                Some((session, item)) = self.items.recv() => match item {
                    Ok(Update::Message(message)) => return Ok(SessionsUpdate::Message(session, message)),
                    Ok(Update::Opened) => return Ok(SessionsUpdate::Opened(session)),
                    Ok(Update::Lost { .. }) => return Ok(SessionsUpdate::Interrupted(session)),
                    Err(error) => {
                        self.tasks.remove(&session);
                        return Ok(match error.kind() {
                            Kind::NotFound => SessionsUpdate::Deleted(session),
                            _ => SessionsUpdate::Unfollowed(session, error),
                        });
                    }
                },
                update = self.sessions.next() => match update? {
                    Update::Message(message) => {
                        self.update_tasks(&message);
                        return Ok(SessionsUpdate::Session(message));
                    }
                    Update::Opened => {}
                    Update::Lost { why, .. } => return Ok(SessionsUpdate::Lost(why)),
                },
            }
        }
    }

    fn update_tasks(&mut self, message: &WatchSessionsResponse) {
        let is_new = self.is_synced;
        self.is_synced |= message.synced;
        let Some(session) = &message.session else {
            return;
        };
        let id = session.session_id.clone();
        if message.removed || session.closed {
            self.tasks.remove(&id);
        } else if !self.tasks.contains_key(&id)
            && let Some(watch) = (self.watch)(&OpenSession { id: id.clone(), is_new })
        {
            let ended = CancellationToken::new();
            let follow = Follow::new(self.supervisor.clone(), watch);
            tokio::spawn(forward(id.clone(), follow, self.sender.clone(), ended.clone()));
            self.tasks.insert(id, ended.drop_guard());
        }
    }
}

/// Sends the items of one session's watch until it fails permanently or the session has ended.
async fn forward<W: Watch>(
    id: String,
    mut follow: Follow<W>,
    items: mpsc::Sender<Item<W::Message>>,
    ended: CancellationToken,
) {
    let forward_all = async {
        loop {
            let item = follow.next().await;
            let is_last = item.is_err();
            if items.send((id.clone(), item)).await.is_err() || is_last {
                return;
            }
        }
    };
    let end = async {
        ended.cancelled().await;
        sleep(AFTER_END).await;
    };
    tokio::select! {
        () = forward_all => {}
        () = end => {}
        // The follower is gone.
        () = items.closed() => {}
    }
}
