//! A cache of values derived from files. A value is valid until the file's stamp changes.

use std::{hash::Hash, sync::Arc, time::SystemTime};

use svc_kit::{
    memo::{Memo, MemoLimits},
    stamp::Stamp,
};

/// Only the number of values is limited. A full cache is cleared, which costs one more read for each value.
const LIMITS: MemoLimits = MemoLimits {
    entries: 16_384,
    bytes: usize::MAX,
    entry_bytes: usize::MAX,
};

/// A cache of values, each valid for one stamp of its file. The key is the file and everything else that the value
/// depends on.
#[derive(Debug)]
pub(crate) struct StampedCache<K, T>(Memo<K, Cached<T>>);

#[derive(Debug)]
struct Cached<T> {
    stamp: Stamp,
    settled: bool,
    value: Arc<T>,
}

impl<K: Eq + Hash, T> Default for StampedCache<K, T> {
    fn default() -> Self {
        Self(Memo::new(LIMITS))
    }
}

impl<K: Eq + Hash, T: PartialEq> StampedCache<K, T> {
    /// Returns the value of a key whose file has the given stamp. If a reloaded value is equal, the same `Arc` is
    /// returned.
    ///
    /// `load` runs without the lock, so two callers may load at the same time. Both receive a valid value.
    pub(crate) fn get(&self, key: K, stamp: Stamp, load: impl FnOnce(&K) -> T) -> Arc<T> {
        let known = self.0.get(&key, |cached| {
            let is_valid = cached.settled && cached.stamp == stamp;
            Some((is_valid, Arc::clone(&cached.value)))
        });
        let known = match known {
            Some((true, value)) => return value,
            Some((false, value)) => Some(value),
            None => None,
        };
        // Evaluated before the read, so that a write during the read counts as later.
        let settled = stamp.is_settled(SystemTime::now());
        let loaded = load(&key);
        let value = known
            .filter(|known| **known == loaded)
            .unwrap_or_else(|| Arc::new(loaded));
        let cached = Cached {
            stamp,
            settled,
            value: Arc::clone(&value),
        };
        self.0.keep(key, cached, 0);
        value
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
    fn equal_value_is_shared() {
        let directory = tempfile::tempdir().unwrap();
        let stamp = Stamp::of(&fs::metadata(directory.path()).unwrap());
        let cache = StampedCache::default();
        let one = cache.get(directory.path(), stamp, |_| 1);
        // The stamp is recent, so the value is loaded again and recognised as equal.
        assert!(Arc::ptr_eq(&one, &cache.get(directory.path(), stamp, |_| 1)));
        assert_eq!(*cache.get(directory.path(), stamp, |_| 2), 2);
    }

    #[test]
    fn settled_value_is_not_reloaded() {
        // A system file is old enough to have a settled stamp, unlike a file written by the test.
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
