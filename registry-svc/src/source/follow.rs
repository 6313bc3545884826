//! Tells followers of a catalogue when to look again.
//!
//! One watcher of the system's serves all followers. Which directories it watches follows from where a follower looks:
//! each place of templates and every directory on the way to it, since a place may come into being later. Directories
//! are watched, never files: a file that is replaced takes its watch with it. What a watcher cannot see (network
//! mounts, the target of a link) is found by looking again from time to time, which is the follower's to do.

use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::broadcast::{self, error::RecvError};

use crate::{domain::error::RegistryError, source::places::Places};

/// How often a follower turns to directories that come into being while it turns.
const MAX_TURNS: usize = 8;
/// How many events a follower may leave unheard; beyond that it looks again in any case.
const BACKLOG: usize = 256;

/// The paths that an event is about; empty: any.
type Paths = Arc<[PathBuf]>;

/// Rings when something on disk changed.
#[derive(Debug)]
pub(crate) struct Bell {
    ring: broadcast::Sender<Paths>,
    watched: Mutex<Watched>,
}

/// What the system watches for us.
#[derive(Debug, Default)]
struct Watched {
    /// Made when it is first needed; `None` also where the system has none left.
    watcher: Option<RecommendedWatcher>,
    tried: bool,
    /// By directory, for how many followers.
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
    /// Watches `now` and, of `before`, no more than is still wanted. Blocks for a moment.
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
            // Also what is watched already: a directory that was made anew is another one to the system.
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
                    // It fails where the directory is gone, and with it the watch.
                    let _ = watcher.unwatch(directory);
                }
            }
        }
    }

    /// A panic while the lock was held leaves a count that is off, at worst a directory watched for nobody.
    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn start(ring: &broadcast::Sender<Paths>) -> Option<RecommendedWatcher> {
    let ring = ring.clone();
    let handler = move |event: notify::Result<Event>| {
        if let Some(paths) = paths_of(event) {
            // Nobody hears it: then nobody needs it.
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

/// What an event is about; `None`: nothing changed. Our own reading causes events too.
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

/// One who waits for changes at some places.
#[derive(Debug)]
pub(crate) struct Follower {
    bell: Arc<Bell>,
    heard: broadcast::Receiver<Paths>,
    places: Places,
}

impl Follower {
    /// One who looks nowhere yet.
    #[must_use]
    pub(crate) fn new(bell: &Arc<Bell>) -> Self {
        Self {
            heard: bell.ring.subscribe(),
            bell: Arc::clone(bell),
            places: Places::default(),
        }
    }

    /// Looks there from now on. What was heard before is forgotten; what changes after is not, so read after this.
    /// Blocks for a moment.
    ///
    /// # Errors
    ///
    /// Those of `places`.
    pub(crate) fn look_at(&mut self, places: impl Fn() -> Result<Places, RegistryError>) -> Result<(), RegistryError> {
        let mut now = places()?;
        for _ in 0..MAX_TURNS {
            self.turn_to(now);
            // A directory that came into being meanwhile is not watched yet, and nobody will say that it did.
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

    /// Waits until something may have changed. Cancelling it loses nothing but what is looked for anew.
    pub(crate) async fn rung(&mut self) {
        loop {
            match self.heard.recv().await {
                Ok(paths) if !self.places.concern(&paths) => {}
                Ok(_) | Err(RecvError::Lagged(_)) => return,
                // It cannot be: the bell is ours too.
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
