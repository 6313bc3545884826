//! A watch across several streams of WatchThreads.

use std::{error::Error as _, time::Duration};

use tonic::{Code, Status, Streaming};

use crate::{
    client::{Client, Supervisor},
    refusal::retry_delay,
    supervisor::v1::{WatchThreadsRequest, WatchThreadsResponse, watch_threads_response::Message},
};

/// The pause before the first new stream. While the service is unavailable, tonic fails immediately, so the loop must
/// wait.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Maximum pause. The pause is doubled after each stream without a message.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Position of a watch. Store it to resume the watch in another process. The default position is empty: a
/// snapshot comes first.
#[derive(Clone, Debug, Default)]
pub struct Position {
    /// The sequence of the last known event; `None` before the first snapshot.
    pub after: Option<u64>,
    /// The id of the log to which `after` belongs; empty before the first snapshot.
    pub log_id: String,
}

impl Position {
    /// Returns the position before the first event of a session.
    pub fn beginning() -> Self {
        Self {
            after: Some(0),
            log_id: String::new(),
        }
    }
}

/// Follows a session across several streams, without losing or repeating an event.
pub struct Watch {
    supervisor: Supervisor,
    session_id: String,
    position: Position,
    stream: Option<Streaming<WatchThreadsResponse>>,
    pause: Duration,
}

impl Watch {
    /// Creates a watch of a session after a position.
    pub fn new(client: &Client, session_id: &str, position: Position) -> Self {
        Self {
            supervisor: client.supervisor.clone(),
            session_id: session_id.to_owned(),
            position,
            stream: None,
            pause: FIRST_PAUSE,
        }
    }

    /// Returns the position of the watch after the last returned message.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Drops the current stream. The next message comes from a new stream, which continues at the same position.
    pub fn disconnect(&mut self) {
        self.stream = None;
    }

    /// Waits for the next message. A `reset` invalidates the earlier state, and a snapshot follows. An interrupted
    /// snapshot is repeated from its first part. Returns an error if the service rejects the watch, for example because
    /// of a compacted position.
    ///
    /// This method is cancel safe: the position changes only when a message is returned.
    pub async fn next(&mut self) -> Result<WatchThreadsResponse, Status> {
        loop {
            let asked = match self.receive().await {
                Ok(Some(message)) => {
                    self.pause = FIRST_PAUSE;
                    self.advance(&message);
                    return Ok(message);
                }
                Ok(None) => Duration::ZERO, // its lifetime was over
                Err(status) if is_lost(&status) => retry_delay(&status),
                Err(status) => return Err(status),
            };
            self.disconnect();
            tokio::time::sleep(asked.max(self.pause)).await;
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Reads from the current stream, or opens a new one.
    async fn receive(&mut self) -> Result<Option<WatchThreadsResponse>, Status> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                let request = WatchThreadsRequest {
                    session_id: self.session_id.clone(),
                    after_sequence: self.position.after,
                    log_id: self.position.log_id.clone(),
                    ..WatchThreadsRequest::default()
                };
                none.insert(self.supervisor.watch_threads(request).await?.into_inner())
            }
        };
        stream.message().await
    }

    fn advance(&mut self, response: &WatchThreadsResponse) {
        match &response.message {
            Some(Message::Reset(_)) => {
                self.disconnect();
                self.position = Position::default();
            }
            Some(Message::Snapshot(part)) if part.last => {
                self.position = Position {
                    after: Some(response.sequence),
                    log_id: part.log_id.clone(),
                };
            }
            Some(Message::Event(_) | Message::Bookmark(_)) => self.position.after = Some(response.sequence),
            // An incomplete snapshot does not set the position. The other kinds have no sequence, and unknown kinds may
            // have none either.
            Some(Message::Snapshot(_) | Message::Telemetry(_) | Message::Output(_)) | None => {}
        }
    }
}

/// Returns whether a stream ended without an error of the request, because the service or the connection was lost.
/// Connection errors have several codes and a source; errors of the service have no source.
fn is_lost(status: &Status) -> bool {
    status.code() == Code::Unavailable || status.source().is_some()
}
