//! WatchAgents: the full catalogue first, then changes. A watcher is woken by changes on disk and also polls
//! periodically. Each message is the difference to the last state sent, so coalesced changes are never lost.

use std::{
    convert::Infallible,
    future::pending,
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::Duration,
};

use prost::Message as _;
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use troupe_proto::registry::v1::{WatchAgentsRequest, WatchAgentsResponse};

use crate::{
    Parts,
    domain::{
        catalog::Catalog,
        changes::{self, Changes},
        error::RegistryError,
    },
    grpc::{
        agents::{AGENTS_BYTES, DIAGNOSTICS_BYTES},
        bounds, call, convert, page,
        status::status,
    },
    source::{ObservedView, View, bundle::Workspace, guarded::Guarded},
};

/// Maximum number of unread messages of a watcher. When the limit is reached, sending pauses until the client reads,
/// and no change is lost.
const OUTBOX: usize = 4;
/// Maximum time that the final status of a stream waits for a client that does not read.
const FINAL_STATUS_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum polling interval for a workspace whose changes may cause no event.
const POLL_WITHOUT_EVENTS: Duration = Duration::from_secs(1);

/// Limits of WatchAgents streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchBounds {
    /// Maximum number of open streams.
    pub streams: usize,
    /// Time in which further changes are collected after the first one.
    pub debounce: Duration,
    /// Polling interval of a watcher that no change on disk wakes.
    pub poll: Duration,
    /// Maximum silence of a stream before it repeats its revision.
    pub bookmark_every: Duration,
    /// Lifetime of a stream, before jitter.
    pub lifetime: Duration,
}

impl Default for WatchBounds {
    fn default() -> Self {
        Self {
            streams: 256,
            debounce: Duration::from_millis(200),
            poll: Duration::from_secs(60),
            bookmark_every: Duration::from_secs(30),
            lifetime: Duration::from_secs(20 * 60),
        }
    }
}

/// The stream of one watcher.
pub(super) type AgentStream = ReceiverStream<Result<WatchAgentsResponse, Status>>;

type Outbox = mpsc::Sender<Result<WatchAgentsResponse, Status>>;

/// Starts a watch. An invalid request fails the call itself.
pub(super) async fn watch(
    parts: Arc<Parts>,
    draining: CancellationToken,
    request: WatchAgentsRequest,
) -> Result<AgentStream, RegistryError> {
    let workspace = bounds::workspace(request.cwd, request.workspace_digest)?;
    if draining.is_cancelled() {
        return Err(RegistryError::Draining);
    }
    let Ok(permit) = Arc::clone(&parts.watchers).try_acquire_owned() else {
        return Err(RegistryError::TooManyWatchers {
            max: parts.watch.streams,
        });
    };
    let watch = AgentWatch {
        parts,
        workspace,
        draining,
        _permit: permit,
    };
    let state = watch.read().await?;
    let (outbox, messages) = mpsc::channel(OUTBOX);
    tokio::spawn(watch.run(outbox, state));
    Ok(ReceiverStream::new(messages))
}

/// A running watch.
struct AgentWatch {
    parts: Arc<Parts>,
    workspace: Workspace,
    draining: CancellationToken,
    _permit: OwnedSemaphorePermit,
}

/// The reason why a watch ends.
enum End {
    /// The client disconnected.
    Gone,
    /// The stream reached its lifetime; the client calls again.
    Planned,
    /// The watch failed.
    Failed(RegistryError),
}

impl AgentWatch {
    async fn run(self, outbox: Outbox, state: ObservedView) {
        match self.follow(&outbox, state).await {
            Ok(never) => match never {},
            Err(End::Gone | End::Planned) => {}
            Err(End::Failed(error)) => {
                let _ = timeout(FINAL_STATUS_TIMEOUT, outbox.send(Err(status(error)))).await;
            }
        }
    }

    async fn follow(&self, outbox: &Outbox, mut state: ObservedView) -> Result<Infallible, End> {
        let bounds = self.parts.watch;
        let ends = Instant::now() + jittered(bounds.lifetime);
        let mut bookmark_at = ends;
        let mut sent: Option<Arc<Catalog>> = None;
        loop {
            let ObservedView { view, guarded } = &state;
            let catalog = &view.catalog;
            let is_changed = sent.as_ref().is_none_or(|sent| !changes::are_equal(sent, catalog));
            if is_changed || Instant::now() >= bookmark_at {
                self.send(outbox, sent.as_deref(), catalog, ends).await?;
                sent = Some(Arc::clone(catalog));
                bookmark_at = Instant::now() + bounds.bookmark_every;
            }
            self.wait(outbox, guarded.as_deref(), bookmark_at, ends).await?;
            state = self.read().await.map_err(End::Failed)?;
        }
    }

    /// Returns the current state. Every later change invalidates the handle of that state.
    async fn read(&self) -> Result<ObservedView, RegistryError> {
        let workspace = self.workspace.clone();
        call::run(&self.parts, Some(&self.workspace), move |call| {
            call.observed_view(&workspace)
        })
        .await
    }

    /// Sends the changes. Waits for a client that does not read, but not beyond the stream's lifetime.
    async fn send(&self, outbox: &Outbox, before: Option<&Catalog>, after: &Catalog, ends: Instant) -> Result<(), End> {
        for message in messages(before, after).map_err(End::Failed)? {
            tokio::select! {
                biased;
                () = self.draining.cancelled() => return Err(End::Failed(RegistryError::Draining)),
                sent = outbox.send(Ok(message)) => sent.map_err(|_| End::Gone)?,
                () = sleep_until(ends) => return Err(End::Planned),
            }
        }
        Ok(())
    }

    /// Waits until the state may have changed.
    async fn wait(
        &self,
        outbox: &Outbox,
        guarded: Option<&Guarded<View>>,
        bookmark_at: Instant,
        ends: Instant,
    ) -> Result<(), End> {
        let bounds = self.parts.watch;
        let poll = match (&self.workspace, guarded) {
            (Workspace::Disk(_), None) => bounds.poll.min(POLL_WITHOUT_EVENTS),
            (Workspace::Disk(_), Some(_)) | (Workspace::Bundle(_), _) => bounds.poll,
        };
        let wake_at = bookmark_at.min(Instant::now() + poll);
        let changed = async {
            match guarded {
                Some(view) => self.parts.sources.changed(view).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.draining.cancelled() => return Err(End::Failed(RegistryError::Draining)),
            () = outbox.closed() => return Err(End::Gone),
            () = sleep_until(ends) => return Err(End::Planned),
            () = sleep_until(wake_at) => return Ok(()),
            () = changed => {}
        }
        // More changes are likely to follow: an editor writes twice, a checkout writes many files.
        tokio::select! {
            biased;
            () = self.draining.cancelled() => Err(End::Failed(RegistryError::Draining)),
            () = outbox.closed() => Err(End::Gone),
            () = sleep(bounds.debounce) => Ok(()),
        }
    }
}

/// Returns the messages that describe a change. A state may need several messages. Only the last message has the
/// revision, the removed names and the findings. The revision marks the end of the state.
fn messages(before: Option<&Catalog>, after: &Catalog) -> Result<Vec<WatchAgentsResponse>, RegistryError> {
    let Changes { changed, removed } = changes::between(before, after)?;
    let mut messages = Vec::new();
    let mut message = WatchAgentsResponse::default();
    let mut bytes = 0;
    for listed in &changed {
        let agent = convert::agent(listed, false);
        let size = agent.encoded_len() + 8;
        if bytes + size > AGENTS_BYTES && !message.changed.is_empty() {
            messages.push(std::mem::take(&mut message));
            bytes = 0;
        }
        bytes += size;
        message.changed.push(agent);
    }
    message.revision = after.revision().to_string();
    message.removed = removed.iter().map(ToString::to_string).collect();
    let diagnostics = after.diagnostics().iter().map(convert::diagnostic);
    message.diagnostics = page::within_bound(DIAGNOSTICS_BYTES, diagnostics);
    messages.push(message);
    Ok(messages)
}

/// Adds up to a fifth of the lifetime, so that streams that started together do not end together.
fn jittered(lifetime: Duration) -> Duration {
    let random = RandomState::new().hash_one(lifetime) % 1_000;
    lifetime + lifetime / 5 * u32::try_from(random).unwrap_or_default() / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Registry, domain::catalog::tests::catalog};

    #[tokio::test]
    async fn stream_of_slow_watcher_ends_at_lifetime() {
        let watch = WatchBounds {
            lifetime: Duration::ZERO,
            ..WatchBounds::default()
        };
        let config = Config {
            watch,
            ..Config::default()
        };
        let parts = Registry::open(config).unwrap().parts;
        let watch = AgentWatch {
            _permit: Arc::clone(&parts.watchers).try_acquire_owned().unwrap(),
            workspace: Workspace::Disk(None),
            draining: CancellationToken::new(),
            parts,
        };
        let (outbox, _unread) = mpsc::channel(1);
        outbox.try_send(Ok(WatchAgentsResponse::default())).unwrap();
        let view = View {
            catalog: Arc::new(catalog(&[("a", "x")])),
            footer: "".into(),
        };
        let following = watch.follow(&outbox, ObservedView { view, guarded: None });
        // Without the timeout, a failing test would not end.
        let ended = timeout(Duration::from_secs(30), following).await.unwrap();
        assert!(matches!(ended, Err(End::Planned)));
    }

    #[test]
    fn large_state_is_split_and_last_part_has_revision() {
        // Descriptions near the size limit of frontmatter, enough of them for several messages.
        let long = format!("---\ndescription: {}\n---\nx", "d".repeat(60_000));
        let names: Vec<String> = (0..2 * AGENTS_BYTES / 60_000).map(|n| format!("role-{n}")).collect();
        let roles: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), long.as_str())).collect();
        let after = catalog(&roles);
        let parts = messages(None, &after).unwrap();
        let (last, before) = parts.split_last().unwrap();
        assert!(!before.is_empty());
        assert!(!last.revision.is_empty() && before.iter().all(|part| part.revision.is_empty()));
        assert_eq!(parts.iter().map(|part| part.changed.len()).sum::<usize>(), names.len());
        assert!(parts.iter().all(|part| part.encoded_len() <= AGENTS_BYTES + 1_024));
        let again = messages(Some(&after), &after).unwrap();
        assert_eq!(again.len(), 1);
        assert!(again[0].changed.is_empty() && !again[0].revision.is_empty());
    }

    #[test]
    fn lifetimes_differ_by_a_fifth_at_most() {
        let lifetime = Duration::from_secs(100);
        for _ in 0..100 {
            let jittered = jittered(lifetime);
            assert!((lifetime..lifetime * 6 / 5).contains(&jittered), "{jittered:?}");
        }
    }
}
