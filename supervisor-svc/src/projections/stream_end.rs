//! The end of a stream to a client.

use std::{convert::Infallible, time::Duration};

use tokio::{sync::mpsc, time::sleep};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::{convert::status::draining, engine::Failure};

/// Why a stream ends.
pub enum StreamEnd {
    /// The client disconnected.
    Gone,
    /// Planned end. The client may begin another stream.
    Planned,
    /// The service drains.
    Draining,
    /// Ended with this error.
    Failed(Status),
}

impl StreamEnd {
    /// Waits until `work` ends the stream, the service drains, the client disconnects or the lifetime is over. The last
    /// three also interrupt a `work` that waits for the client.
    pub async fn of<T>(
        work: impl Future<Output = Result<Infallible, Self>>,
        outbox: &mpsc::Sender<T>,
        lifetime: Duration,
        drain: &CancellationToken,
    ) -> Self {
        tokio::select! {
            biased;
            () = drain.cancelled() => Self::Draining,
            () = outbox.closed() => Self::Gone,
            () = sleep(lifetime) => Self::Planned,
            ended = work => match ended {
                Ok(never) => match never {},
                Err(end) => end,
            },
        }
    }

    /// Returns the error with which the stream ends. `advice` says what the client can do after a drain.
    #[must_use]
    pub fn status(self, advice: &str) -> Option<Status> {
        match self {
            Self::Gone | Self::Planned => None,
            Self::Draining => Some(draining(advice)),
            Self::Failed(status) => Some(status),
        }
    }
}

impl From<Failure> for StreamEnd {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure.into())
    }
}
