//! Notification of catalogue followers about changes on disk.
//!
//! A single operating system watcher serves all followers. It watches each place of templates and every directory on
//! the path to it, because a place may be created later. Only directories are watched: a watch on a file is lost when
//! the file is replaced. Followers must also poll, because some changes cause no event (network mounts, the target of a
//! link).

use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::broadcast::{self, error::RecvError};

use crate::{domain::error::RegistryError, source::places::Places};

/// Maximum number of attempts to watch directories that are created while a follower registers.
const MAX_TURNS: usize = 8;
/// Maximum number of unread events of a follower. Above the limit, the follower checks the disk in any case.
const BACKLOG: usize = 256;

/// The paths of an event. Empty: any path.
type Paths = Arc<[PathBuf]>;

/// Sends a notification when something on disk changes.
#[derive(Debug)]
pub(crate) struct Bell {
    ring: broadcast::Sender<Paths>,
    watched: Mutex<Watched>,
}

/// The state of the operating system's watcher.
#[derive(Debug, Default)]
struct Watched {
    /// Created on first use. `None` before that, or if the operating system has no watcher left.
    watcher: Option<RecommendedWatcher>,
    tried: bool,
    /// The number of followers by directory.
    directories: HashMap<PathBuf, usize>,
}

impl Default for Bell {
    fn default() -> Self {
        Self {
            ring: broadcast::channel(BACKLOG).0,
            watched: Mutex::default(),
        }
    }
}

impl Bell {
    /// Watches `now` and stops watching directories of `before` that no follower needs. Blocks briefly.
    fn exchange(&self, before: &BTreeSet<PathBuf>, now: &BTreeSet<PathBuf>) {
        let mut watched = self.lock();
        if !watched.tried && !now.is_empty() {
            watched.tried = true;
            watched.watcher = start(&self.ring);
        }
        let Watched {
            watcher, directories, ..
        } = &mut *watched;
        for directory in now {
            if !before.contains(directory) {
                *directories.entry(directory.clone()).or_default() += 1;
            }
            // Watches again even if the path is already watched: a recreated directory is a new one to the operating
            // system.
            if let Some(watcher) = watcher
                && let Err(error) = watcher.watch(directory, RecursiveMode::NonRecursive)
            {
                tracing::debug!(%error, "a directory of templates is not watched; it is looked at from time to time");
            }
        }
        for directory in before.difference(now) {
            let Some(followers) = directories.get_mut(directory) else {
                continue;
            };
            *followers -= 1;
            if *followers == 0 {
                directories.remove(directory);
                if let Some(watcher) = watcher {
                    // Fails if the directory was removed, which also removes the watch.
                    let _ = watcher.unwatch(directory);
                }
            }
        }
    }

    /// Locks the state. A panic while the lock is held can leave a wrong count. At worst, an unused directory stays
    /// watched.
    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn start(ring: &broadcast::Sender<Paths>) -> Option<RecommendedWatcher> {
    let ring = ring.clone();
    let handler = move |event: notify::Result<Event>| {
        if let Some(paths) = paths_of(event) {
            // An error means that no follower is listening.
            let _ = ring.send(paths);
        }
    };
    match notify::recommended_watcher(handler) {
        Ok(watcher) => Some(watcher),
        Err(error) => {
            tracing::warn!(%error, "the system watches no directories for us; watchers of agents get changes late");
            None
        }
    }
}

/// Returns the paths of an event, or `None` if nothing changed. The registry's own reads also cause events.
fn paths_of(event: notify::Result<Event>) -> Option<Paths> {
    match event {
        Ok(event) if matches!(event.kind, EventKind::Access(_)) => None,
        Ok(event) => Some(event.paths.into()),
        Err(error) => {
            tracing::debug!(%error, "the system may have lost events");
            Some(Vec::<PathBuf>::new().into())
        }
    }
}

/// A receiver of changes at a set of places.
#[derive(Debug)]
pub(crate) struct Follower {
    bell: Arc<Bell>,
    heard: broadcast::Receiver<Paths>,
    places: Places,
}

impl Follower {
    /// Creates a follower without places.
    #[must_use]
    pub(crate) fn new(bell: &Arc<Bell>) -> Self {
        Self {
            heard: bell.ring.subscribe(),
            bell: Arc::clone(bell),
            places: Places::default(),
        }
    }

    /// Watches these places from now on and discards earlier events. Changes after this call are reported, so read the
    /// files after it. Blocks briefly.
    ///
    /// # Errors
    ///
    /// Returns the errors of `places`.
    pub(crate) fn look_at(&mut self, places: impl Fn() -> Result<Places, RegistryError>) -> Result<(), RegistryError> {
        let mut now = places()?;
        for _ in 0..MAX_TURNS {
            self.turn_to(now);
            // A directory created since the first call is not watched yet, and its creation is not reported.
            now = places()?;
            if now == self.places {
                break;
            }
        }
        Ok(())
    }

    fn turn_to(&mut self, places: Places) {
        self.heard = self.heard.resubscribe();
        self.bell.exchange(self.places.watched(), places.watched());
        self.places = places;
    }

    /// Waits until a place may have changed. Cancel safe: an event can be lost only if the next [`Self::look_at`]
    /// covers it.
    pub(crate) async fn rung(&mut self) {
        loop {
            match self.heard.recv().await {
                Ok(paths) if !self.places.concern(&paths) => {}
                Ok(_) | Err(RecvError::Lagged(_)) => return,
                // Unreachable, because the follower holds the bell.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.bell.exchange(self.places.watched(), &BTreeSet::new());
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::source::places::Lookout as _;

    #[test]
    fn directories_are_watched_as_long_as_anybody_follows() {
        let guard = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(guard.path()).unwrap();
        let bell = Arc::new(Bell::default());
        let watched = || bell.lock().directories.len();
        let at_base = || {
            let mut places = Places::default();
            places.place(&base, "");
            places
        };
        let mut one = Follower::new(&bell);
        one.turn_to(at_base());
        one.turn_to(at_base());
        let mut other = Follower::new(&bell);
        other.turn_to(at_base());
        assert_eq!(watched(), 1);
        drop(one);
        assert_eq!(watched(), 1);
        other.turn_to(Places::default());
        assert_eq!(watched(), 0);
    }
}
