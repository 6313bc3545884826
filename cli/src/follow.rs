//! Durable watches of a session and of all sessions: they resume after a disconnect, a restart of the service and the
//! planned end of a stream.

use std::{collections::HashMap, future::Future, time::Duration};

use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Code, Status, Streaming};
use troupe_proto::{
    fault,
    supervisor::v1::{
        WatchSessionsRequest, WatchSessionsResponse, WatchThreadsRequest, WatchThreadsResponse,
        watch_threads_response::Message,
    },
};

use crate::{
    backoff::Backoff,
    client::Supervisor,
    error::{Error, Result, is_transient},
};

/// An item of a durable watch.
#[derive(Debug)]
pub(crate) enum Update {
    /// A message of the stream.
    Message(Box<WatchThreadsResponse>),
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
pub(crate) struct Follow {
    supervisor: Supervisor,
    request: WatchThreadsRequest,
    stream: Option<Streaming<WatchThreadsResponse>>,
    /// Whether a snapshot is incomplete. A watch cannot resume from a position inside a snapshot.
    in_snapshot: bool,
    backoff: Backoff,
}

impl Follow {
    /// Follows the target of the request from its position.
    pub(crate) const fn new(supervisor: Supervisor, request: WatchThreadsRequest) -> Self {
        Self {
            supervisor,
            request,
            stream: None,
            in_snapshot: false,
            backoff: Backoff::new(),
        }
    }

    /// Returns the next item. An error is permanent: the service rejected the watch and would reject it again.
    ///
    /// Cancel safe: the position advances only when a message is returned.
    pub(crate) async fn next(&mut self) -> Result<Update> {
        loop {
            match self.receive().await {
                Ok(Some(message)) => {
                    self.backoff.reset();
                    self.advance(&message);
                    return Ok(Update::Message(Box::new(message)));
                }
                // The stream ended as planned; reconnect after the shortest delay.
                Ok(None) => self.reset(None),
                Err(status) if status.code() == Code::OutOfRange && self.request.after_sequence.is_some() => {
                    // The events after the position are compacted, or the log was replaced.
                    self.request.after_sequence = None;
                    self.request.log_id.clear();
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

    async fn receive(&mut self) -> std::result::Result<Option<WatchThreadsResponse>, Status> {
        if self.stream.is_none() {
            self.backoff.wait().await;
            let answer = self.supervisor.watch_threads(self.request.clone()).await?;
            self.stream = Some(answer.into_inner());
        }
        match &mut self.stream {
            Some(stream) => stream.message().await,
            None => Ok(None),
        }
    }

    fn reset(&mut self, asked: Option<Duration>) {
        self.stream = None;
        self.backoff.grow(asked);
        if self.in_snapshot {
            self.request.after_sequence = None;
            self.in_snapshot = false;
        }
    }

    fn lost(&self, status: &Status) -> Update {
        Update::Lost {
            why: crate::sanitize::line(status.message()),
            after: self.request.after_sequence,
        }
    }

    fn advance(&mut self, response: &WatchThreadsResponse) {
        match &response.message {
            Some(Message::Snapshot(snapshot)) => {
                self.in_snapshot = !snapshot.last;
                self.request.log_id.clone_from(&snapshot.log_id);
                self.request.after_sequence = Some(response.sequence);
            }
            Some(Message::Event(_) | Message::Bookmark(_)) => self.request.after_sequence = Some(response.sequence),
            Some(Message::Reset(_)) => {
                self.request.after_sequence = None;
                self.request.log_id.clear();
                self.stream = None;
            }
            Some(Message::Telemetry(_) | Message::Output(_)) | None => {}
        }
    }
}

/// An item of a durable watch of sessions.
#[derive(Debug)]
pub(crate) enum SessionUpdate {
    /// A message of the stream.
    Message(Box<WatchSessionsResponse>),
    /// The connection was lost, with the error. The next connection sends all sessions again.
    Lost(String),
}

/// A watch of sessions that reconnects until it fails permanently.
#[derive(Debug)]
pub(crate) struct FollowSessions {
    supervisor: Supervisor,
    request: WatchSessionsRequest,
    stream: Option<Streaming<WatchSessionsResponse>>,
    backoff: Backoff,
}

impl FollowSessions {
    /// Follows the sessions that the request selects.
    pub(crate) const fn new(supervisor: Supervisor, request: WatchSessionsRequest) -> Self {
        Self {
            supervisor,
            request,
            stream: None,
            backoff: Backoff::new(),
        }
    }

    /// Returns the next item. An error is permanent. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<SessionUpdate> {
        loop {
            match self.receive().await {
                Ok(Some(message)) => {
                    self.backoff.reset();
                    return Ok(SessionUpdate::Message(Box::new(message)));
                }
                // The stream ended as planned; reconnect after the shortest delay.
                Ok(None) => self.reset(None),
                Err(status) if is_transient(&status) => {
                    self.reset(fault::retry_after(&status));
                    return Ok(SessionUpdate::Lost(crate::sanitize::line(status.message())));
                }
                Err(status) => return Err(Error::from(status)),
            }
        }
    }

    async fn receive(&mut self) -> std::result::Result<Option<WatchSessionsResponse>, Status> {
        if self.stream.is_none() {
            self.backoff.wait().await;
            let answer = self.supervisor.watch_sessions(self.request.clone()).await?;
            self.stream = Some(answer.into_inner());
        }
        match &mut self.stream {
            Some(stream) => stream.message().await,
            None => Ok(None),
        }
    }

    fn reset(&mut self, asked: Option<Duration>) {
        self.stream = None;
        self.backoff.grow(asked);
    }
}

/// An item of a watch of all open sessions.
#[derive(Debug)]
pub(crate) enum AllUpdate<T> {
    /// An item of the session with this id.
    Item(String, T),
    /// The session with this id was closed or deleted.
    Ended(String),
    /// The connection was lost, with the error. The items of each session continue after their last position.
    Lost(String),
}

/// A session that a task follows.
pub(crate) struct OpenSession {
    pub(crate) id: String,
    /// Whether it was opened after the start.
    pub(crate) is_new: bool,
}

/// Follows each open session with a task, including sessions that open later.
pub(crate) struct AllSessions<T, F> {
    sessions: FollowSessions,
    /// Sends the items of a session until its watch fails permanently.
    forward: F,
    /// Whether all sessions that were open at the start are known.
    is_synced: bool,
    tasks: HashMap<String, AbortOnDropHandle<()>>,
    sender: mpsc::Sender<(String, T)>,
    items: mpsc::Receiver<(String, T)>,
}

impl<T, F, R> AllSessions<T, F>
where
    F: Fn(OpenSession, mpsc::Sender<(String, T)>) -> R,
    R: Future<Output = ()> + Send + 'static,
{
    /// Follows the sessions with this function.
    pub(crate) fn new(supervisor: Supervisor, forward: F) -> Self {
        let (sender, items) = mpsc::channel(1);
        Self {
            sessions: FollowSessions::new(supervisor, WatchSessionsRequest::default()),
            forward,
            is_synced: false,
            tasks: HashMap::new(),
            sender,
            items,
        }
    }

    /// Returns the next item. An error is permanent.
    pub(crate) async fn next(&mut self) -> Result<AllUpdate<T>> {
        loop {
            let message = tokio::select! {
                // Items precede the news that their session has ended.
                biased;
                Some((session, item)) = self.items.recv() => return Ok(AllUpdate::Item(session, item)),
                update = self.sessions.next() => match update? {
                    SessionUpdate::Message(message) => message,
                    SessionUpdate::Lost(why) => return Ok(AllUpdate::Lost(why)),
                },
            };
            let is_new = self.is_synced;
            self.is_synced |= message.synced;
            let Some(session) = message.session else { continue };
            let id = session.session_id;
            if message.removed || session.closed {
                if self.tasks.remove(&id).is_some() {
                    return Ok(AllUpdate::Ended(id));
                }
            } else if !self.tasks.contains_key(&id) {
                let session = OpenSession { id: id.clone(), is_new };
                let task = tokio::spawn((self.forward)(session, self.sender.clone()));
                self.tasks.insert(id, AbortOnDropHandle::new(task));
            }
        }
    }
}
