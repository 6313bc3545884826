//! The runner's main loop: attaches, serves the stream until it is lost, and attaches again. Events of threads are
//! always processed, whether or not the runner is attached. While the runner drains, the loop continues.

use std::{convert::Infallible, future::pending, mem, pin::pin, time::Duration};

use svc_kit::outgoing::Backoff;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use troupe_proto::supervisor::v1::{AttachRequest, RunnerHeartbeat, attach_request::Message};

use crate::{
    backoff,
    config::{Ended, RunnerConfig},
    error::RunnerError,
    link::{Link, LinkError, Supervisor},
    outbox::Attempt,
    runner_state::{Flow, RunnerState},
    thread::ThreadEvent,
    timer::at,
};

/// Maximum number of thread events that wait for the loop.
const THREAD_EVENTS: usize = 1024;

/// A runner.
pub(crate) struct Runner {
    supervisor: Supervisor,
    state: RunnerState,
    events: mpsc::Receiver<(Attempt, ThreadEvent)>,
    /// Whether the supervisor has ever accepted the runner. After that, a rejection is not permanent.
    was_attached: bool,
    drain_limit: Duration,
    stop_grace: Duration,
    /// The lease of the last stream.
    lease: Duration,
    ready: watch::Sender<bool>,
}

/// The reason why serving a stream ended.
enum StreamEnd {
    Lost(LinkError),
    GoAway(String),
}

/// The reason why the runner is no longer kept attached.
#[expect(clippy::large_enum_variant, reason = "a value exists only while it is returned")]
enum AttachEnd {
    /// The caller's future completed. Contains the open stream.
    Asked(Option<Link>),
    /// The supervisor rejected the runner, and had never accepted it before.
    Refused(RunnerError),
    /// The runner drains, and no supervisor accepted it for the duration of its lease.
    LeaseOver,
}

impl Runner {
    pub(crate) fn new(config: RunnerConfig) -> Result<Self, RunnerError> {
        config.check()?;
        let supervisor = Supervisor::new(&config)?;
        let (tell, events) = mpsc::channel(THREAD_EVENTS);
        let (timing, ready) = (config.timing, config.ready.clone());
        let state = RunnerState::new(config, supervisor.channel_for_tools(), tell);
        Ok(Self {
            supervisor,
            state,
            events,
            was_attached: false,
            drain_limit: timing.drain_limit,
            stop_grace: timing.stop_grace,
            lease: Duration::ZERO,
            ready,
        })
    }

    pub(crate) async fn run(mut self, shutdown: &CancellationToken) -> Result<Ended, RunnerError> {
        self.state.prepare().await;
        let used_up = self.state.used_up();
        let end = async {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = used_up.cancelled() => info!("the last thread is gone"),
            }
        };
        let (link, outcome) = match self.attach_until(None, end).await {
            AttachEnd::Asked(link) => (link, Ok(())),
            AttachEnd::Refused(error) => (None, Err(error)),
            AttachEnd::LeaseOver => (None, Ok(())),
        };
        let link = self.drain(link).await;
        self.finish_draining(link).await;
        outcome.map(|()| Ended {
            interrupted: self.state.interrupted(),
        })
    }

    /// Keeps the runner attached until `end`, beginning with the open stream if one exists. A draining runner does not
    /// wait longer than its lease for a supervisor: after that time its threads are settled or placed elsewhere.
    async fn attach_until(&mut self, mut link: Option<Link>, end: impl Future<Output = ()>) -> AttachEnd {
        let mut end = pin!(end);
        let mut backoff = backoff::new();
        let mut delay = Duration::ZERO;
        loop {
            let lease_end = self.state.is_draining().then(|| Instant::now() + self.lease);
            let mut open = match link.take() {
                Some(open) => open,
                None => tokio::select! {
                    () = &mut end => return AttachEnd::Asked(None),
                    () = at(lease_end) => return AttachEnd::LeaseOver,
                    attached = self.attach(delay, &mut backoff) => match attached {
                        Ok(open) => open,
                        Err(refused) => return AttachEnd::Refused(refused),
                    },
                },
            };
            let since = Instant::now();
            let stream_end = tokio::select! {
                () = &mut end => None,
                stream_end = self.serve(&mut open) => Some(stream_end),
            };
            // A runner for single use still waits for its first thread.
            if !self.state.is_for_single_use() || self.state.is_draining() {
                self.ready.send_replace(false);
            }
            match stream_end {
                None => return AttachEnd::Asked(Some(open)),
                Some(StreamEnd::GoAway(reason)) => info!(reason, "the supervisor requests that its runners reattach"),
                Some(StreamEnd::Lost(error)) => warn!(%error, "the stream is lost"),
            }
            if since.elapsed() >= backoff::LONGEST {
                backoff = backoff::new();
            }
            delay = backoff.next_delay();
        }
    }

    /// Attaches after a delay, and tries again until it succeeds.
    ///
    /// # Errors
    /// The supervisor rejects the runner, and never accepted it before.
    async fn attach(&mut self, mut delay: Duration, backoff: &mut Backoff) -> Result<Link, RunnerError> {
        loop {
            tokio::select! {
                () = sleep(delay) => {}
                never = handle_events(&mut self.state, &mut self.events) => match never {},
            }
            let error = match self.open().await {
                Ok(link) => return Ok(link),
                Err(error) => error,
            };
            if let Some(refused) = error.final_refusal().filter(|_| !self.was_attached) {
                return Err(refused);
            }
            warn!(
                error = &error as &dyn std::error::Error,
                "attaching to the supervisor failed"
            );
            delay = backoff.next_delay();
        }
    }

    async fn open(&mut self) -> Result<Link, LinkError> {
        let hello = self.state.hello();
        let opened = tokio::select! {
            opened = Link::open(&self.supervisor, hello) => opened,
            never = handle_events(&mut self.state, &mut self.events) => match never {},
        };
        let (link, welcome) = opened?;
        info!("attached to the supervisor");
        self.was_attached = true;
        self.lease = link.lease;
        self.state.welcome(&welcome);
        Ok(link)
    }

    /// Drains the runner: it accepts no more threads and lets running turns finish, while the supervisor stops idle
    /// programs. Turns that exceed the drain limit are interrupted and reported. Returns the open stream when no thread
    /// is left and every report is acknowledged, at the latest after the drain limit plus twice the programs' grace
    /// period. Without a supervisor it returns after the lease.
    async fn drain(&mut self, link: Option<Link>) -> Option<Link> {
        let drained = self.state.drain();
        let end = timeout(self.drain_limit, drained.clone().cancelled_owned());
        let link = match self.attach_until(link, async { drop(end.await) }).await {
            AttachEnd::Asked(link) => link,
            // A rejection does not matter, because the runner is stopping.
            AttachEnd::Refused(_) => None,
            AttachEnd::LeaseOver => {
                warn!("no supervisor accepted this draining runner within its lease; stopping the programs");
                return None;
            }
        };
        if drained.is_cancelled() {
            return link;
        }
        info!("turns that have not ended in time are interrupted");
        self.state.interrupt_all(self.stop_grace);
        let end = timeout(self.stop_grace * 2, drained.cancelled_owned());
        match self.attach_until(link, async { drop(end.await) }).await {
            AttachEnd::Asked(link) => link,
            AttachEnd::Refused(_) | AttachEnd::LeaseOver => None,
        }
    }

    async fn serve(&mut self, link: &mut Link) -> StreamEnd {
        loop {
            let is_ready = self.state.is_ready();
            self.ready
                .send_if_modified(|ready| mem::replace(ready, is_ready) != is_ready);
            if let Err(stream_end) = self.step(link).await {
                return stream_end;
            }
        }
    }

    /// Waits for one event and handles it. Cancel safe: no event is lost if the future is dropped.
    async fn step(&mut self, link: &mut Link) -> Result<(), StreamEnd> {
        tokio::select! {
            message = link.incoming.message() => match message {
                Ok(Some(message)) => match self.state.command(message) {
                    Flow::Stay => {}
                    Flow::GoAway(reason) => return Err(StreamEnd::GoAway(reason)),
                },
                Ok(None) => return Err(StreamEnd::Lost(LinkError::Ended)),
                Err(status) => return Err(StreamEnd::Lost(LinkError::Refused(status))),
            },
            Some((attempt, event)) = self.events.recv() => self.state.handle_event(&attempt, event),
            permit = link.outgoing.reserve(), if self.state.has_outgoing() => match permit {
                Ok(permit) => {
                    if let Some(message) = self.state.next_outgoing() {
                        permit.send(message);
                    }
                }
                Err(_) => return Err(StreamEnd::Lost(LinkError::Ended)),
            },
            _ = link.heartbeat.tick() => {
                // If the queue is full, another message is about to be sent, which also serves as a heartbeat.
                let _ = link.outgoing.try_send(AttachRequest {
                    message: Some(Message::Heartbeat(RunnerHeartbeat {})),
                });
            }
        }
        Ok(())
    }

    /// Stops every program. Earlier reports of threads are still sent. The stops are not reported: the supervisor
    /// detects them when the stream ends or from the next hello, and applies the threads' restart policy.
    async fn finish_draining(&mut self, mut link: Option<Link>) {
        self.state.stop_all();
        while self.state.has_programs() {
            let lost = match &mut link {
                Some(open) => self.step(open).await.is_err(),
                None => {
                    if let Some((attempt, event)) = self.events.recv().await {
                        self.state.handle_event(&attempt, event);
                    }
                    false
                }
            };
            if lost {
                link = None;
            }
        }
    }
}

/// Processes events of the threads while no stream is open.
async fn handle_events(state: &mut RunnerState, events: &mut mpsc::Receiver<(Attempt, ThreadEvent)>) -> Infallible {
    loop {
        match events.recv().await {
            Some((attempt, event)) => state.handle_event(&attempt, event),
            // The channel never closes, because the runner state itself holds a sender.
            None => pending().await,
        }
    }
}
