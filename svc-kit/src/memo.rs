//! Answers that are kept as long as there is room for them.

use std::{
    collections::HashMap,
    hash::Hash,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// How much a [`Memo`] keeps.
#[derive(Clone, Copy, Debug)]
pub struct MemoLimits {
    /// How many values. With more, or more bytes, all are forgotten and collected anew.
    pub entries: usize,
    /// How many bytes they have together, as their keepers count them.
    pub bytes: usize,
    /// How many bytes one may have; what is larger is not kept.
    pub entry_bytes: usize,
}

/// Values by what they answer. The least that keeps memory bounded: what is asked for all the time is soon there again.
#[derive(Debug)]
pub struct Memo<K, V> {
    limits: MemoLimits,
    // Never held while anything else is done but looking up and putting in.
    kept: Mutex<Kept<K, V>>,
}

#[derive(Debug)]
struct Kept<K, V> {
    values: HashMap<K, (V, usize)>,
    bytes: usize,
}

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self {
            values: HashMap::new(),
            bytes: 0,
        }
    }
}

impl<K: Eq + Hash, V> Memo<K, V> {
    /// One that keeps nothing yet.
    #[must_use]
    pub fn new(limits: MemoLimits) -> Self {
        Self {
            limits,
            kept: Mutex::default(),
        }
    }

    /// What `take` takes of the value that is kept for a key.
    #[must_use]
    pub fn get<T>(&self, key: &K, take: impl FnOnce(&V) -> Option<T>) -> Option<T> {
        take(&self.lock().values.get(key)?.0)
    }

    /// Keeps a value of so many bytes, its key included, in the place of the one before.
    pub fn keep(&self, key: K, value: V, bytes: usize) {
        let MemoLimits {
            entries,
            bytes: all,
            entry_bytes,
        } = self.limits;
        if bytes > entry_bytes {
            return;
        }
        let mut kept = self.lock();
        let is_new = !kept.values.contains_key(&key);
        let gone = if (is_new && kept.values.len() >= entries) || kept.bytes + bytes > all {
            mem::take(&mut *kept)
        } else {
            Kept::default()
        };
        kept.bytes += bytes;
        let before = kept.values.insert(key, (value, bytes));
        kept.bytes -= before.as_ref().map_or(0, |(_, bytes)| *bytes);
        // Nobody waits until they are freed.
        drop(kept);
        drop((gone, before));
    }

    fn lock(&self) -> MutexGuard<'_, Kept<K, V>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn the_newest_value_of_a_key_is_kept() {
        let memo = Memo::new(LIMITS);
        memo.keep("a", 1, 1);
        memo.keep("a", 2, 1);
        assert_eq!(memo.get(&"a", |value| Some(*value)), Some(2));
        assert_eq!(memo.get(&"b", |value| Some(*value)), None);
    }

    #[test]
    fn the_bounds_hold() {
        let memo = Memo::new(LIMITS);
        memo.keep(0, (), LIMITS.entry_bytes + 1);
        assert_eq!(memo.lock().values.len(), 0);
        for (number, bytes) in (0..1_000).map(|number| (number % 13, 1 + number % LIMITS.entry_bytes)) {
            memo.keep(number, (), bytes);
            let kept = memo.lock();
            assert!((1..=LIMITS.entries).contains(&kept.values.len()) && kept.bytes <= LIMITS.bytes);
            assert_eq!(kept.bytes, kept.values.values().map(|(_, bytes)| bytes).sum::<usize>());
        }
    }
}
