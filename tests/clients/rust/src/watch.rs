//! WatchThreads over as many streams as it takes.

use std::{error::Error as _, time::Duration};

use tonic::{Code, Status, Streaming};

use crate::{
    client::{Client, Supervisor},
    refusal::retry_delay,
    supervisor::v1::{WatchThreadsRequest, WatchThreadsResponse, watch_threads_response::Message},
};

/// The pause before the first new stream. tonic fails at once while the service is unavailable, so this loop waits.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// It is doubled with each stream that brings nothing, up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Position of a watch. Store it to resume the watch in another process. The default position is empty: a
/// snapshot comes first.
#[derive(Clone, Debug, Default)]
pub struct Position {
    /// The sequence up to which everything is known; `None` before the first snapshot.
    pub after: Option<u64>,
    /// The log that `after` counts in; empty until a snapshot has named it.
    pub log_id: String,
}

impl Position {
    /// Before the first event of a session.
    pub fn beginning() -> Self {
        Self {
            after: Some(0),
            log_id: String::new(),
        }
    }
}

/// Follows a session over as many streams as that takes, without losing or doubling an event.
pub struct Watch {
    supervisor: Supervisor,
    session_id: String,
    position: Position,
    stream: Option<Streaming<WatchThreadsResponse>>,
    pause: Duration,
}

impl Watch {
    /// Begins to follow a session after a position.
    pub fn new(client: &Client, session_id: &str, position: Position) -> Self {
        Self {
            supervisor: client.supervisor.clone(),
            session_id: session_id.to_owned(),
            position,
            stream: None,
            pause: FIRST_PAUSE,
        }
    }

    /// Where the watch is, after the last message that it answered.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Drops the current stream. The next message comes from a new stream, which continues at the same position.
    pub fn disconnect(&mut self) {
        self.stream = None;
    }

    /// The next message, once there is one. A `reset` invalidates the earlier state, and a snapshot follows. An
    /// interrupted snapshot is repeated from its first part. An error is a refusal, such as of a position that the service no
    /// longer has.
    ///
    /// Cancelling it loses nothing: the position only moves when a message is answered.
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
            // Half a snapshot is no position. The others have no place in the order; nor may what this client does not
            // know yet.
            Some(Message::Snapshot(_) | Message::Telemetry(_) | Message::Output(_)) | None => {}
        }
    }
}

/// Whether a stream ended for no fault of the request: the service or the way to it went away. What the connection failed
/// with comes in several codes and has a source; what the service says has none.
fn is_lost(status: &Status) -> bool {
    status.code() == Code::Unavailable || status.source().is_some()
}
