//! Keeps what was made of a file until its stamp changes.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use svc_kit::stamp::Stamp;

/// How many values a cache holds. A full one starts anew: the cost is one more reading.
const MAX_ENTRIES: usize = 16_384;

/// Values, each good for one stamp of the file that it was made of. The key is that file and all else that the value
/// depends on.
#[derive(Debug)]
pub(crate) struct StampedCache<K, T> {
    entries: Mutex<HashMap<K, Cached<T>>>,
}

#[derive(Debug)]
struct Cached<T> {
    stamp: Stamp,
    settled: bool,
    value: Arc<T>,
}

impl<K, T> Default for StampedCache<K, T> {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
        }
    }
}

impl<K: Eq + Hash, T: PartialEq> StampedCache<K, T> {
    /// The value of a key whose file now has that stamp. As long as the value stays equal, the same `Arc` is answered.
    ///
    /// `load` runs without the lock, so two callers may load at once; both get a good value.
    pub(crate) fn get(&self, key: K, stamp: Stamp, load: impl FnOnce(&K) -> T) -> Arc<T> {
        let known = match self.lock().get(&key) {
            Some(cached) if cached.settled && cached.stamp == stamp => return Arc::clone(&cached.value),
            Some(cached) => Some(Arc::clone(&cached.value)),
            None => None,
        };
        // Before the reading, so that a write during it counts as later.
        let settled = stamp.is_settled(SystemTime::now());
        let loaded = load(&key);
        let value = known
            .filter(|known| **known == loaded)
            .unwrap_or_else(|| Arc::new(loaded));
        let mut entries = self.lock();
        if entries.len() >= MAX_ENTRIES {
            entries.clear();
        }
        let cached = Cached {
            stamp,
            settled,
            value: Arc::clone(&value),
        };
        entries.insert(key, cached);
        value
    }

    /// A panic while the lock was held cannot leave an entry half written.
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Cached<T>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        path::Path,
        time::Duration,
    };

    use super::*;

    #[test]
    fn an_equal_value_stays_the_same_one() {
        let directory = tempfile::tempdir().unwrap();
        let stamp = Stamp::of(&fs::metadata(directory.path()).unwrap());
        let cache = StampedCache::default();
        let one = cache.get(directory.path(), stamp, |_| 1);
        // The stamp is fresh, so it is loaded again, and only the equal value is recognised.
        assert!(Arc::ptr_eq(&one, &cache.get(directory.path(), stamp, |_| 1)));
        assert_eq!(*cache.get(directory.path(), stamp, |_| 2), 2);
    }

    #[test]
    fn a_settled_value_is_not_loaded_again() {
        // A file of the system is old, unlike anything that a test could write.
        let file = Path::new("/proc/self/exe");
        let metadata = File::open(file).unwrap().metadata().unwrap();
        let stamp = Stamp::of(&metadata);
        if !stamp.is_settled(SystemTime::now() - Duration::from_secs(1)) {
            return;
        }
        let cache = StampedCache::default();
        cache.get(file, stamp, |_| 1);
        assert_eq!(*cache.get(file, stamp, |_| 2), 1);
    }
}
