//! Calls that read templates. They run on blocking threads, because a slow disk (a network mount) must stall only its
//! own callers.
//!
//! Calls that must scan the disk are serialised per working directory: the first call reads, and the next calls use the
//! cached result. A large project therefore occupies one thread. Calls that need no scan never wait.

use std::{
    collections::HashMap,
    ops::Deref,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::{
    Parts,
    domain::error::RegistryError,
    source::{ObservedView, View, bundle::Workspace},
};

/// Number of remembered working directories above which directories that no call scans are removed.
const SWEEP_ABOVE: usize = 256;

/// The registry's parts, and a token that fires when the caller disconnects.
#[derive(Debug)]
pub(super) struct Call {
    parts: Arc<Parts>,
    abandoned: CancellationToken,
}

impl Deref for Call {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl Call {
    /// Returns the templates and the footer that apply to the call now. Blocks on the disk. Stops at the next file when
    /// the caller disconnects.
    pub(super) fn view(&self, workspace: &Workspace) -> Result<View, RegistryError> {
        self.parts.view(workspace, &self.abandoned)
    }

    /// Returns the same as [`Self::view`], with a handle for changes; see [`Parts::observed_view`].
    pub(super) fn observed_view(&self, workspace: &Workspace) -> Result<ObservedView, RegistryError> {
        self.parts.observed_view(workspace, &self.abandoned)
    }
}

/// Runs `work` on a blocking thread. If the future is dropped, the work stops at the next file. `workspace` is the
/// source that the call reads; `None` if it reads no templates.
///
/// # Errors
///
/// Returns the errors of `work`, and [`RegistryError::Internal`] if it panics.
pub(super) async fn run<T: Send + 'static>(
    parts: &Arc<Parts>,
    workspace: Option<&Workspace>,
    work: impl FnOnce(&Call) -> Result<T, RegistryError> + Send + 'static,
) -> Result<T, RegistryError> {
    let _permit = match workspace {
        Some(workspace @ Workspace::Disk(cwd)) if parts.cached_view(workspace).is_none() => {
            parts.scans.enter(cwd.as_ref()).await
        }
        Some(_) | None => None,
    };
    let abandoned = CancellationToken::new();
    let _left = abandoned.clone().drop_guard();
    let call = Call {
        parts: Arc::clone(parts),
        abandoned,
    };
    tokio::task::spawn_blocking(move || work(&call))
        .await
        .unwrap_or_else(|failure| {
            tracing::error!(%failure, "a call of the registry panicked");
            Err(RegistryError::Internal)
        })
}

/// The working directories that calls scan, each with a permit for one call.
#[derive(Debug, Default)]
pub(crate) struct ScanQueue(Mutex<HashMap<Option<String>, Weak<Semaphore>>>);

impl ScanQueue {
    /// Waits until no other call scans that working directory. Calls are admitted in order of arrival.
    async fn enter(&self, cwd: Option<&String>) -> Option<OwnedSemaphorePermit> {
        let permit = {
            let mut directories = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if directories.len() > SWEEP_ABOVE {
                directories.retain(|_, permit| permit.strong_count() > 0);
            }
            let known = directories.entry(cwd.cloned()).or_default();
            known.upgrade().unwrap_or_else(|| {
                let permit = Arc::new(Semaphore::new(1));
                *known = Arc::downgrade(&permit);
                permit
            })
        };
        permit.acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use tokio::{sync::oneshot, task::yield_now, time::timeout};

    use super::*;
    use crate::{Config, Registry};

    const DEADLINE: Duration = Duration::from_secs(20);

    fn parts() -> Arc<Parts> {
        Registry::open(Config::default()).unwrap().parts
    }

    fn disk(cwd: &str) -> Workspace {
        Workspace::Disk(Some(cwd.to_owned()))
    }

    #[tokio::test]
    async fn work_stops_when_caller_disconnects() {
        let parts = parts();
        let (started, has_started) = oneshot::channel();
        let (ended, has_ended) = oneshot::channel();
        let caller = tokio::spawn(async move {
            run(&parts, None, move |call| {
                started.send(()).unwrap();
                while !call.abandoned.is_cancelled() {
                    std::thread::yield_now();
                }
                ended.send(()).unwrap();
                Ok(())
            })
            .await
        });
        has_started.await.unwrap();
        caller.abort();
        timeout(DEADLINE, has_ended).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn call_waits_for_its_own_directory_only() {
        let parts = parts();
        let (proceed, may_proceed) = mpsc::sync_channel::<()>(1);
        let (started, has_started) = oneshot::channel();
        let (order, arrived) = mpsc::sync_channel(2);
        let spawn = |cwd: &'static str, work: Box<dyn FnOnce() + Send>| {
            let parts = Arc::clone(&parts);
            tokio::spawn(async move {
                run(&parts, Some(&disk(cwd)), |_| {
                    work();
                    Ok(())
                })
                .await
            })
        };
        let first_order = order.clone();
        let first = spawn(
            "/slow",
            Box::new(move || {
                started.send(()).unwrap();
                may_proceed.recv().unwrap();
                first_order.send("first").unwrap();
            }),
        );
        has_started.await.unwrap();
        let second = spawn("/slow", Box::new(move || order.send("second").unwrap()));
        let key = Some("/slow".to_owned());
        let is_waiting = async {
            while parts.scans.0.lock().unwrap().get(&key).map_or(0, Weak::strong_count) < 2 {
                yield_now().await;
            }
        };
        timeout(DEADLINE, is_waiting).await.unwrap();
        let other = spawn("/other", Box::new(|| {}));
        timeout(DEADLINE, other).await.unwrap().unwrap().unwrap();
        proceed.send(()).unwrap();
        for call in [first, second] {
            timeout(DEADLINE, call).await.unwrap().unwrap().unwrap();
        }
        assert_eq!(arrived.try_iter().collect::<Vec<_>>(), ["first", "second"]);
    }
}
