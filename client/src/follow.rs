//! Durable watches: they resume after a disconnect, a restart of the service and the planned end of a stream.

use std::{future::Future, time::Duration};

use tonic::{Code, Response, Status, Streaming};
use troupe_proto::{
    fault,
    supervisor::v1::{
        WatchNotificationsRequest, WatchNotificationsResponse, WatchSessionsRequest, WatchSessionsResponse,
        WatchThreadsRequest, WatchThreadsResponse, WatchTranscriptRequest, WatchTranscriptResponse,
        watch_threads_response::Message,
    },
};

use crate::{backoff::Backoff, channel::Supervisor, is_transient};

/// A streaming method with a position from which it can be called again.
pub trait Watch: Send + 'static {
    /// The message of the stream.
    type Message: Send;

    /// Calls the method from the present position.
    fn open(
        &self,
        supervisor: &mut Supervisor,
    ) -> impl Future<Output = Result<Response<Streaming<Self::Message>>, Status>> + Send;

    /// Moves the position after a message. Returns whether the stream continues.
    fn advance(&mut self, message: &Self::Message) -> bool;

    /// Prepares the position for another call after an interrupted stream.
    fn interrupted(&mut self) {}

    /// Forgets a position that the service no longer has. Returns whether there was a position to forget.
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
pub struct ThreadWatch {
    request: WatchThreadsRequest,
    /// Whether a snapshot is incomplete. A watch cannot resume from a position inside a snapshot.
    in_snapshot: bool,
}

impl ThreadWatch {
    /// Creates a watch that begins at the position of the request.
    pub const fn new(request: WatchThreadsRequest) -> Self {
        Self {
            request,
            in_snapshot: false,
        }
    }
}

impl Watch for ThreadWatch {
    type Message = WatchThreadsResponse;

    async fn open(&self, supervisor: &mut Supervisor) -> Result<Response<Streaming<Self::Message>>, Status> {
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

/// Follows sessions. After each new call, the service sends all sessions again.
impl Watch for WatchSessionsRequest {
    type Message = WatchSessionsResponse;

    async fn open(&self, supervisor: &mut Supervisor) -> Result<Response<Streaming<Self::Message>>, Status> {
        supervisor.watch_sessions(self.clone()).await
    }

    fn advance(&mut self, _: &WatchSessionsResponse) -> bool {
        true
    }
}

impl Watch for WatchNotificationsRequest {
    type Message = WatchNotificationsResponse;

    async fn open(&self, supervisor: &mut Supervisor) -> Result<Response<Streaming<Self::Message>>, Status> {
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

    async fn open(&self, supervisor: &mut Supervisor) -> Result<Response<Streaming<Self::Message>>, Status> {
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
pub enum Update<M> {
    /// The service accepted the watch. Messages follow.
    Opened,
    /// A message of the stream.
    Message(Box<M>),
    /// The connection was lost. The watch resumes after this position.
    Lost {
        /// The error of the connection.
        cause: Status,
        /// The position, if one is known.
        after: Option<u64>,
    },
}

/// A watch that reconnects until it fails permanently.
#[derive(Debug)]
pub struct Follow<W: Watch> {
    supervisor: Supervisor,
    watch: W,
    stream: Option<Streaming<W::Message>>,
    backoff: Backoff,
}

impl<W: Watch> Follow<W> {
    /// Follows a watch from its position.
    pub const fn new(supervisor: Supervisor, watch: W) -> Self {
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
    ///
    /// # Errors
    ///
    /// The permanent error of the service.
    pub async fn next(&mut self) -> Result<Update<W::Message>, Status> {
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
                    return Ok(self.lost(status));
                }
                Err(status) if is_transient(&status) => {
                    self.reset(fault::retry_after(&status));
                    return Ok(self.lost(status));
                }
                Err(status) => return Err(status),
            }
        }
    }

    /// Opens the stream, or returns its next message. Returns `None` at the end of the stream.
    async fn receive(&mut self) -> Result<Option<Update<W::Message>>, Status> {
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

    fn lost(&self, cause: Status) -> Update<W::Message> {
        Update::Lost {
            cause,
            after: self.watch.position(),
        }
    }
}
