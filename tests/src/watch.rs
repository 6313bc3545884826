//! A watcher that a test reads step by step.

use tonic::{Code, Status, Streaming};
use troupe_proto::{
    reason::Reason,
    supervisor::v1::{
        ApprovalRequested, Event, Snapshot, Thread, WatchThreadsRequest, WatchThreadsResponse, event::Kind,
        watch_threads_response::Message,
    },
};

use crate::{client::Supervisor, events::name, refusal::refused, within};

/// An open stream of WatchThreads.
#[derive(Debug)]
pub struct Watch {
    stream: Streaming<WatchThreadsResponse>,
    position: u64,
}

impl Watch {
    /// Opens a stream.
    pub async fn open(client: &Supervisor, request: WatchThreadsRequest) -> Self {
        let position = request.after_sequence.unwrap_or_default();
        let answer = within("a watch", client.clone().watch_threads(request)).await;
        Self {
            stream: answer.unwrap().into_inner(),
            position,
        }
    }

    /// Returns the position after the received messages. Pass it as `after_sequence` to resume there.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Reads until the service drains and returns the position in the last message. Checks that the events have
    /// consecutive sequences and that the position is the sequence of the last event.
    ///
    /// # Panics
    ///
    /// If a check fails.
    pub async fn position_at_drain(mut self) -> u64 {
        let mut position = self.position();
        let mut is_told = false;
        loop {
            let message = match self.next().await {
                Ok(message) => message.expect("the stream ends with an error"),
                Err(status) => {
                    let text = "watch again from the last sequence";
                    refused::<()>(Err(status), Code::Unavailable, Reason::Draining, text);
                    assert!(is_told, "a watch at {position} did not receive its position");
                    return position;
                }
            };
            match message.message.unwrap() {
                Message::Event(event) => {
                    assert_eq!(event.sequence, position + 1);
                    position = event.sequence;
                    is_told = false;
                }
                Message::Bookmark(bookmark) => {
                    assert_eq!(message.sequence, position);
                    is_told = bookmark.ending;
                }
                other => panic!("unexpected message: {other:?}"),
            }
        }
    }

    /// Returns the next message, or `None` if the service has ended the stream without an error.
    ///
    /// # Errors
    ///
    /// The error of the stream.
    pub async fn next(&mut self) -> Result<Option<WatchThreadsResponse>, Status> {
        let next = within("a message of a watch", self.stream.message()).await?;
        if let Some(message) = &next
            && message.sequence > 0
        {
            assert!(
                message.sequence >= self.position,
                "the sequence of a watch decreases: {message:?}"
            );
            self.position = message.sequence;
        }
        Ok(next)
    }

    /// Returns the next message. The stream must not end.
    pub async fn message(&mut self) -> Message {
        let next = self.next().await.unwrap().expect("the stream continues");
        next.message.unwrap()
    }

    /// Returns the value of the first message for which `pick` returns one, and skips other messages.
    pub async fn first<T>(&mut self, pick: impl Fn(Message) -> Option<T>) -> T {
        loop {
            if let Some(picked) = pick(self.message().await) {
                return picked;
            }
        }
    }

    /// Returns the sequence and the threads of the snapshot at the beginning of the stream.
    pub async fn snapshot(&mut self) -> (u64, Vec<Thread>) {
        let whole = self.whole_snapshot().await;
        (self.position, whole.threads)
    }

    /// Returns all parts of the snapshot at the beginning of the stream as one snapshot.
    pub async fn whole_snapshot(&mut self) -> Snapshot {
        let mut whole = Snapshot::default();
        loop {
            let Message::Snapshot(part) = self.message().await else {
                panic!("expected a part of the snapshot")
            };
            whole.session = whole.session.or(part.session);
            whole.threads.extend(part.threads);
            whole.approvals.extend(part.approvals);
            whole.groups.extend(part.groups);
            if part.last {
                return whole;
            }
        }
    }

    /// Returns the next event.
    pub async fn event(&mut self) -> Event {
        self.first(|message| match message {
            Message::Event(event) => Some(event),
            _ => None,
        })
        .await
    }

    /// Returns the next approval that is requested from an operator.
    pub async fn approval(&mut self) -> ApprovalRequested {
        self.first(|message| match message {
            Message::Event(Event {
                kind: Some(Kind::ApprovalRequested(requested)),
                ..
            }) => Some(requested),
            _ => None,
        })
        .await
    }

    /// Returns the events up to and including the first event for which `is_last` returns true.
    pub async fn until(&mut self, is_last: impl Fn(&Event) -> bool) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            let event = self.event().await;
            let ends = is_last(&event);
            events.push(event);
            if ends {
                return events;
            }
        }
    }

    /// Returns the events up to and including the first one of this kind, such as `ThreadClosed`.
    pub async fn until_kind(&mut self, kind: &str) -> Vec<Event> {
        self.until(|event| name(event) == kind).await
    }

    /// Returns the events up to and including the first one of this kind of a thread.
    pub async fn until_kind_of(&mut self, thread: &str, kind: &str) -> Vec<Event> {
        self.until(|event| event.thread_id == thread && name(event) == kind)
            .await
    }

    /// Returns the events up to a sequence.
    pub async fn up_to(&mut self, sequence: u64) -> Vec<Event> {
        let mut events = Vec::new();
        while self.position < sequence {
            if let Message::Event(event) = self.message().await {
                events.push(event);
            }
        }
        events
    }

    /// Returns the error that ends the stream, and skips messages before it.
    pub async fn failure(mut self) -> Status {
        loop {
            match self.next().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended without an error"),
                Err(status) => return status,
            }
        }
    }
}
