//! The handle by which a process is asked to stop and by which its streams learn that it drains.
//!
//! Two moments, in this order: *triggered* (health says NOT_SERVING), then *draining* (streams end themselves). What
//! happens between and after them is in [`crate::serve`].
//!
//! Every bound on the end counts from the trigger, so that what comes one after the other does not add up: connections have
//! [`DRAINS_WITHIN`], the service with its store [`SERVICE_ENDS_WITHIN`], and the process of a service
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

/// Until then connections are drained.
pub const DRAINS_WITHIN: Duration = Duration::from_secs(7);
/// Until then the service has ended: what it writes last, and its store.
pub const SERVICE_ENDS_WITHIN: Duration = Duration::from_millis(8800);
/// Until then the process has nothing more to wait for. It promises 10 seconds; the rest is for a busy machine.
pub const PROCESS_ENDS_WITHIN: Duration = Duration::from_millis(9500);

/// A clonable handle to one service's shutdown.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    stop: CancellationToken,
    /// When it was triggered.
    since: Arc<OnceLock<Instant>>,
    draining: CancellationToken,
}

impl Shutdown {
    /// A handle that nothing has triggered.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A handle that the next SIGTERM or SIGINT triggers: none from now on is missed. Needs a Tokio runtime.
    ///
    /// # Errors
    ///
    /// If the operating system refuses to install the handlers.
    pub fn by_signal() -> io::Result<Self> {
        let (shutdown, mut signals) = (Self::new(), Signals::listen()?);
        let triggered = shutdown.clone();
        tokio::spawn(async move {
            signals.next().await;
            triggered.trigger();
        });
        Ok(shutdown)
    }

    /// A handle for one service among several of a process: triggered together with this one, draining on its own, so
    /// that each service's health says NOT_SERVING before its streams end.
    #[must_use]
    pub fn for_service(&self) -> Self {
        Self {
            stop: self.stop.clone(),
            since: Arc::clone(&self.since),
            draining: CancellationToken::new(),
        }
    }

    /// Asks the process to stop. Idempotent.
    pub fn trigger(&self) {
        // Before anybody is woken by it, who may ask.
        self.since.get_or_init(Instant::now);
        self.stop.cancel();
    }

    /// So long after the trigger; after now if nothing has triggered it.
    #[must_use]
    pub fn deadline(&self, within: Duration) -> Instant {
        self.since.get().copied().unwrap_or_else(Instant::now) + within
    }

    /// Whether [`Self::trigger`] was called.
    #[must_use]
    pub fn is_triggered(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Waits for [`Self::trigger`].
    pub async fn triggered(&self) {
        self.stop.cancelled().await;
    }

    /// What every stream and every long call selects on: once it fires they end themselves with a position to resume
    /// from, because serving waits for them and cuts them off at its deadline.
    #[must_use]
    pub fn draining(&self) -> CancellationToken {
        // A child: whoever holds it can cancel itself but not the service.
        self.draining.child_token()
    }

    pub(crate) fn start_draining(&self) {
        self.draining.cancel();
    }
}

/// SIGTERM and SIGINT from a moment on: none that comes later is missed, whether or not anybody waits for it just then.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From now on. Until then they end the process, and afterwards only whoever hears them does.
    ///
    /// # Errors
    ///
    /// If the operating system refuses to install the handlers.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one.
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
    async fn deadlines_count_from_the_first_trigger() {
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
    fn each_end_is_before_the_next() {
        assert!(DRAINS_WITHIN < SERVICE_ENDS_WITHIN);
        assert!(SERVICE_ENDS_WITHIN < PROCESS_ENDS_WITHIN);
        assert!(PROCESS_ENDS_WITHIN < Duration::from_secs(10));
    }

    #[test]
    fn a_stream_cannot_drain_the_service() {
        let shutdown = Shutdown::new();
        shutdown.draining().cancel();
        assert!(!shutdown.draining().is_cancelled());
    }
}
