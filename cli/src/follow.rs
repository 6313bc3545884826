//! A watch that survives: it goes on after a disconnect, a restart of the service, and the planned end of a stream.

use std::time::Duration;

use tonic::{Code, Status, Streaming};
use troupe_proto::{
    fault,
    supervisor::v1::{WatchThreadsRequest, WatchThreadsResponse, watch_threads_response::Message},
};

use crate::{
    client::Supervisor,
    error::{Error, Result, is_transient},
    patience::Patience,
};

/// What the follower tells.
#[derive(Debug)]
pub(crate) enum News {
    /// A message of the stream.
    Message(Box<WatchThreadsResponse>),
    /// The connection was lost; the watch goes on after this position.
    Lost {
        /// Why.
        why: String,
        /// The position, if there is one yet.
        after: Option<u64>,
    },
}

/// An endless watch.
#[derive(Debug)]
pub(crate) struct Follow {
    supervisor: Supervisor,
    request: WatchThreadsRequest,
    stream: Option<Streaming<WatchThreadsResponse>>,
    /// The position inside a snapshot that is not complete yet: it must not be resumed from.
    in_snapshot: bool,
    patience: Patience,
}

impl Follow {
    /// Follows what the request names, from where it says.
    pub(crate) const fn new(supervisor: Supervisor, request: WatchThreadsRequest) -> Self {
        Self {
            supervisor,
            request,
            stream: None,
            in_snapshot: false,
            patience: Patience::new(),
        }
    }

    /// The next news. A failure is final: the service said no, and would say so again.
    ///
    /// Cancelling it loses nothing: what was received is only counted when it is returned.
    pub(crate) async fn next(&mut self) -> Result<News> {
        loop {
            match self.receive().await {
                Ok(Some(message)) => {
                    self.patience.reset();
                    self.advance(&message);
                    return Ok(News::Message(Box::new(message)));
                }
                // A planned end: on with it, after the shortest pause.
                Ok(None) => self.reset(None),
                Err(status) if status.code() == Code::OutOfRange && self.request.after_sequence.is_some() => {
                    // What lay after our position is compacted, or the log is another one.
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
            self.patience.wait().await;
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
        self.patience.grow(asked);
        if self.in_snapshot {
            self.request.after_sequence = None;
            self.in_snapshot = false;
        }
    }

    fn lost(&self, status: &Status) -> News {
        News::Lost {
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
