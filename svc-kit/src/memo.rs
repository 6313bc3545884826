//! A bounded in-memory cache.

use std::{
    collections::HashMap,
    hash::Hash,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The bounds of a [`Memo`].
#[derive(Clone, Copy, Debug)]
pub struct MemoLimits {
    /// Maximum number of values. Exceeding this or `bytes` clears the cache.
    pub entries: usize,
    /// Maximum total size in bytes, as given to [`Memo::keep`].
    pub bytes: usize,
    /// Maximum size of one value in bytes. Larger values are not cached.
    pub entry_bytes: usize,
}

/// A cache that is cleared when it is full. Frequently used values are soon cached again.
#[derive(Debug)]
pub struct Memo<K, V> {
    limits: MemoLimits,
    // The lock is held only for lookups and inserts.
    contents: Mutex<Contents<K, V>>,
}

#[derive(Debug)]
struct Contents<K, V> {
    values: HashMap<K, (V, usize)>,
    bytes: usize,
}

impl<K, V> Default for Contents<K, V> {
    fn default() -> Self {
        Self {
            values: HashMap::new(),
            bytes: 0,
        }
    }
}

impl<K: Eq + Hash, V> Memo<K, V> {
    /// Creates an empty cache.
    #[must_use]
    pub fn new(limits: MemoLimits) -> Self {
        Self {
            limits,
            contents: Mutex::default(),
        }
    }

    /// Returns the result of `take` on the value of `key`, or `None` if the cache has no value.
    #[must_use]
    pub fn get<T>(&self, key: &K, take: impl FnOnce(&V) -> Option<T>) -> Option<T> {
        take(&self.lock().values.get(key)?.0)
    }

    /// Caches a value in place of the previous one. `bytes` is the size of the key and the value.
    pub fn keep(&self, key: K, value: V, bytes: usize) {
        let MemoLimits {
            entries,
            bytes: all,
            entry_bytes,
        } = self.limits;
        if bytes > entry_bytes {
            return;
        }
        let mut contents = self.lock();
        let is_new = !contents.values.contains_key(&key);
        let gone = if (is_new && contents.values.len() >= entries) || contents.bytes + bytes > all {
            mem::take(&mut *contents)
        } else {
            Contents::default()
        };
        contents.bytes += bytes;
        let before = contents.values.insert(key, (value, bytes));
        contents.bytes -= before.as_ref().map_or(0, |(_, bytes)| *bytes);
        // Free the removed values after releasing the lock.
        drop(contents);
        drop((gone, before));
    }

    fn lock(&self) -> MutexGuard<'_, Contents<K, V>> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: MemoLimits = MemoLimits {
        entries: 8,
        bytes: 100,
        entry_bytes: 50,
    };

    #[test]
    fn newest_value_replaces_older() {
        let memo = Memo::new(LIMITS);
        memo.keep("a", 1, 1);
        memo.keep("a", 2, 1);
        assert_eq!(memo.get(&"a", |value| Some(*value)), Some(2));
        assert_eq!(memo.get(&"b", |value| Some(*value)), None);
    }

    #[test]
    fn memo_does_not_exceed_its_limits() {
        let memo = Memo::new(LIMITS);
        memo.keep(0, (), LIMITS.entry_bytes + 1);
        assert_eq!(memo.lock().values.len(), 0);
        for (number, bytes) in (0..1_000).map(|number| (number % 13, 1 + number % LIMITS.entry_bytes)) {
            memo.keep(number, (), bytes);
            let contents = memo.lock();
            assert!((1..=LIMITS.entries).contains(&contents.values.len()) && contents.bytes <= LIMITS.bytes);
            assert_eq!(
                contents.bytes,
                contents.values.values().map(|(_, bytes)| bytes).sum::<usize>()
            );
        }
    }
}
