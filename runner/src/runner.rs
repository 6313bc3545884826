//! The runner's main loop: attach, serve the stream until it is lost, attach again. Events of threads are processed at
//! all
//! times, attached or not. While the runner drains, the loop continues.

use std::{convert::Infallible, pin::pin, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use troupe_proto::supervisor::v1::{AttachRequest, RunnerHeartbeat, attach_request::Message};

use crate::{
    backoff::Backoff,
    config::{Ended, RunnerConfig, RunnerError},
    link::{Link, LinkError, Supervisor},
    outbox::Attempt,
    stage::{Flow, Stage},
    thread::News,
};

/// Maximum number of thread events that wait for the loop.
const NEWS: usize = 1024;

/// A runner.
pub(crate) struct Runner {
    supervisor: Supervisor,
    stage: Stage,
    news: mpsc::Receiver<(Attempt, News)>,
    /// Whether the supervisor ever accepted the runner. A later rejection is not permanent then.
    was_attached: bool,
    drain_limit: Duration,
    stop_grace: Duration,
    ready: watch::Sender<bool>,
}

/// The reason why a stream is not served any more.
enum Parting {
    Lost(LinkError),
    GoAway(String),
}

impl Runner {
    pub(crate) fn new(config: RunnerConfig) -> Result<Self, RunnerError> {
        config.check()?;
        let supervisor = Supervisor::new(&config)?;
        let (tell, news) = mpsc::channel(NEWS);
        let (timing, ready) = (config.timing, config.ready.clone());
        let stage = Stage::new(config, supervisor.channel_for_tools(), tell);
        Ok(Self {
            supervisor,
            stage,
            news,
            was_attached: false,
            drain_limit: timing.drain_limit,
            stop_grace: timing.stop_grace,
            ready,
        })
    }

    pub(crate) async fn run(mut self, shutdown: &CancellationToken) -> Result<Ended, RunnerError> {
        self.stage.prepare().await;
        let (link, outcome) = self.attach_until(None, shutdown.cancelled()).await;
        let link = self.drain(link).await;
        self.wind_down(link).await;
        outcome.map(|()| Ended {
            interrupted: self.stage.interrupted(),
        })
    }

    /// Keeps the runner attached until `end`, beginning with the open stream if one exists. Returns the stream that is
    /// open
    /// then.
    async fn attach_until(
        &mut self,
        mut link: Option<Link>,
        end: impl Future<Output = ()>,
    ) -> (Option<Link>, Result<(), RunnerError>) {
        let mut end = pin!(end);
        let mut backoff = Backoff::new();
        loop {
            let opened = match link.take() {
                Some(link) => Ok(link),
                None => tokio::select! {
                    () = &mut end => return (None, Ok(())),
                    opened = self.open() => opened,
                },
            };
            match opened {
                Ok(mut link) => {
                    self.ready.send_replace(!self.stage.is_draining());
                    let since = Instant::now();
                    let parting = tokio::select! {
                        () = &mut end => None,
                        parting = self.serve(&mut link) => Some(parting),
                    };
                    self.ready.send_replace(false);
                    match parting {
                        None => return (Some(link), Ok(())),
                        Some(Parting::GoAway(reason)) => info!(reason, "the supervisor sends its runners away"),
                        Some(Parting::Lost(error)) => warn!(%error, "the stream is lost"),
                    }
                    if since.elapsed() >= Backoff::steady_after() {
                        backoff.reset();
                    }
                }
                Err(error) => {
                    if let Some(refused) = error.final_refusal().filter(|_| !self.was_attached) {
                        return (None, Err(refused));
                    }
                    warn!(error = &error as &dyn std::error::Error, "not attached");
                }
            }
            tokio::select! {
                () = &mut end => return (None, Ok(())),
                () = sleep(backoff.next_delay()) => {}
                never = hear(&mut self.stage, &mut self.news) => match never {},
            }
        }
    }

    async fn open(&mut self) -> Result<Link, LinkError> {
        let hello = self.stage.hello();
        let opened = tokio::select! {
            opened = Link::open(&self.supervisor, hello) => opened,
            never = hear(&mut self.stage, &mut self.news) => match never {},
        };
        let (link, welcome) = opened?;
        info!("attached to the supervisor");
        self.was_attached = true;
        self.stage.welcome(&welcome);
        Ok(link)
    }

    /// Drains the runner: takes no more threads and lets running turns finish, while the supervisor stops idle programs.
    /// Turns that exceed the drain limit are interrupted and reported. Returns the open stream once no thread is left and
    /// every report is acknowledged, at the latest after the drain limit plus twice the programs' grace period.
    async fn drain(&mut self, link: Option<Link>) -> Option<Link> {
        let drained = self.stage.drain();
        // A rejection has no effect any more, because the runner is stopping.
        let end = timeout(self.drain_limit, drained.clone().cancelled_owned());
        let (link, _) = self.attach_until(link, async { drop(end.await) }).await;
        if drained.is_cancelled() {
            return link;
        }
        info!("turns that have not ended in time are interrupted");
        self.stage.interrupt_all(self.stop_grace);
        let end = timeout(self.stop_grace * 2, drained.cancelled_owned());
        let (link, _) = self.attach_until(link, async { drop(end.await) }).await;
        link
    }

    async fn serve(&mut self, link: &mut Link) -> Parting {
        loop {
            if let Err(parting) = self.step(link).await {
                return parting;
            }
        }
    }

    /// Waits for one event and handles it. Cancel safe: every branch either waits or has completed its work.
    async fn step(&mut self, link: &mut Link) -> Result<(), Parting> {
        tokio::select! {
            message = link.incoming.message() => match message {
                Ok(Some(message)) => match self.stage.command(message) {
                    Flow::Stay => {}
                    Flow::GoAway(reason) => return Err(Parting::GoAway(reason)),
                },
                Ok(None) => return Err(Parting::Lost(LinkError::Ended)),
                Err(status) => return Err(Parting::Lost(LinkError::Refused(status))),
            },
            Some((attempt, news)) = self.news.recv() => self.stage.hear(&attempt, news),
            permit = link.outgoing.reserve(), if self.stage.has_outgoing() => match permit {
                Ok(permit) => {
                    if let Some(message) = self.stage.next_outgoing() {
                        permit.send(message);
                    }
                }
                Err(_) => return Err(Parting::Lost(LinkError::Ended)),
            },
            _ = link.heartbeat.tick() => {
                // If the queue is full, another message is about to be sent, which serves as a heartbeat as well.
                let _ = link.outgoing.try_send(AttachRequest {
                    message: Some(Message::Heartbeat(RunnerHeartbeat {})),
                });
            }
        }
        Ok(())
    }

    /// Stops every program. Earlier reports of threads are still sent. The stops are not reported: the supervisor
    /// detects them
    /// when the stream ends or by the next hello, and applies the threads' restart policy.
    async fn wind_down(&mut self, mut link: Option<Link>) {
        self.stage.stop_all();
        while self.stage.has_programs() {
            let lost = match &mut link {
                Some(open) => self.step(open).await.is_err(),
                None => {
                    if let Some((attempt, news)) = self.news.recv().await {
                        self.stage.hear(&attempt, news);
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
async fn hear(stage: &mut Stage, news: &mut mpsc::Receiver<(Attempt, News)>) -> Infallible {
    loop {
        match news.recv().await {
            Some((attempt, news)) => stage.hear(&attempt, news),
            // The stage itself holds a sender.
            None => std::future::pending().await,
        }
    }
}
