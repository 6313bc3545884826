//! The handle that stops a process and informs its streams about the drain.
//!
//! A shutdown has two steps. *Triggered*: health reports NOT_SERVING. *Draining*: streams end themselves.
//! [`crate::serve`] describes the details.
//!
//! All deadlines count from the trigger, so that consecutive steps do not add up: connections end within
//! [`DRAINS_WITHIN`], the service and its store within [`SERVICE_ENDS_WITHIN`], the process within
//! [`PROCESS_ENDS_WITHIN`].

use std::{
    io,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// Deadline for draining connections.
pub const DRAINS_WITHIN: Duration = Duration::from_secs(7);
/// Deadline for the end of the service, including its last writes and its store.
pub const SERVICE_ENDS_WITHIN: Duration = Duration::from_millis(8800);
/// Deadline for the end of the process. The documented bound is 10 seconds; the difference is a reserve for a busy
/// machine.
pub const PROCESS_ENDS_WITHIN: Duration = Duration::from_millis(9500);

/// A cloneable handle to the shutdown of a service.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    stop: CancellationToken,
    /// The time of the trigger.
    since: Arc<OnceLock<Instant>>,
    draining: CancellationToken,
}

impl Shutdown {
    /// Creates a handle that is not triggered.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a handle that the next SIGTERM or SIGINT triggers. Signals after this call are never lost. Requires a
    /// Tokio runtime.
    ///
    /// # Errors
    ///
    /// The operating system rejects the signal handlers.
    pub fn by_signal() -> io::Result<Self> {
        let (shutdown, mut signals) = (Self::new(), Signals::listen()?);
        let triggered = shutdown.clone();
        tokio::spawn(async move {
            signals.next().await;
            triggered.trigger();
        });
        Ok(shutdown)
    }

    /// Returns a handle for one of several services in a process. The new handle shares the trigger and drains
    /// independently, so that the health of each service reports NOT_SERVING before its streams end.
    #[must_use]
    pub fn for_service(&self) -> Self {
        Self {
            stop: self.stop.clone(),
            since: Arc::clone(&self.since),
            draining: CancellationToken::new(),
        }
    }

    /// Triggers the shutdown. Idempotent.
    pub fn trigger(&self) {
        // The time is set before `cancel` wakes the tasks that read it.
        self.since.get_or_init(Instant::now);
        self.stop.cancel();
    }

    /// Returns the time `within` after the trigger, or after now if the handle is not triggered.
    #[must_use]
    pub fn deadline(&self, within: Duration) -> Instant {
        self.since.get().copied().unwrap_or_else(Instant::now) + within
    }

    /// Returns whether [`Self::trigger`] was called.
    #[must_use]
    pub fn is_triggered(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Waits for [`Self::trigger`].
    pub async fn triggered(&self) {
        self.stop.cancelled().await;
    }

    /// Returns a token that is cancelled when the service drains. Streams and long calls must select on it and then end
    /// with a position to resume from. Serving waits for them and closes them at its deadline.
    #[must_use]
    pub fn draining(&self) -> CancellationToken {
        // Cancelling a child token does not cancel the service's token.
        self.draining.child_token()
    }

    pub(crate) fn start_draining(&self) {
        self.draining.cancel();
    }
}

/// A receiver of SIGTERM and SIGINT. It does not lose a signal between two calls of [`Self::next`].
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Installs the signal handlers. From now on the signals no longer end the process by themselves.
    ///
    /// # Errors
    ///
    /// The operating system rejects the signal handlers.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        let name = tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "stopping");
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test]
    async fn services_are_triggered_together_and_drain_apart() {
        let process = Shutdown::new();
        let (one, two) = (process.for_service(), process.for_service());
        process.trigger();
        one.triggered().await;
        two.triggered().await;
        assert!(one.is_triggered() && two.is_triggered());

        one.start_draining();
        assert!(one.draining().is_cancelled());
        assert!(!two.draining().is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn deadlines_count_from_first_trigger() {
        let process = Shutdown::new();
        let service = process.for_service();
        let began = Instant::now();
        process.trigger();
        advance(DRAINS_WITHIN).await;
        process.trigger();
        assert_eq!(service.deadline(PROCESS_ENDS_WITHIN), began + PROCESS_ENDS_WITHIN);
        assert_eq!(Shutdown::new().deadline(DRAINS_WITHIN), Instant::now() + DRAINS_WITHIN);
    }

    #[test]
    fn shutdown_deadlines_are_in_order() {
        assert!(DRAINS_WITHIN < SERVICE_ENDS_WITHIN);
        assert!(SERVICE_ENDS_WITHIN < PROCESS_ENDS_WITHIN);
        assert!(PROCESS_ENDS_WITHIN < Duration::from_secs(10));
    }

    #[test]
    fn stream_cannot_drain_service() {
        let shutdown = Shutdown::new();
        shutdown.draining().cancel();
        assert!(!shutdown.draining().is_cancelled());
    }
}
