//! A cache of values that are valid while the witness guarantees them.

use std::{
    collections::HashMap,
    hash::Hash,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::source::witness::Pledge;

/// Maximum number of cached values. A full cache is cleared, which costs one more scan for each value.
const MAX_ENTRIES: usize = 256;

/// A cache of values, each with a pledge that it is current. Callers must ask the witness whether the pledge still
/// holds.
#[derive(Debug)]
pub(crate) struct PledgedCache<K, V> {
    entries: Mutex<HashMap<K, Arc<Pledged<V>>>>,
}

/// A value and its pledge.
#[derive(Debug)]
pub(crate) struct Pledged<V> {
    /// The value that was read.
    pub(crate) value: V,
    /// The pledge that the value is current.
    pub(crate) pledge: Pledge,
}

impl<K, V> Default for PledgedCache<K, V> {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
        }
    }
}

impl<K: Eq + Hash, V> PledgedCache<K, V> {
    /// Returns the cached value of a key.
    pub(crate) fn get(&self, key: &K) -> Option<Arc<Pledged<V>>> {
        self.lock().get(key).cloned()
    }

    /// Stores a value and replaces the previous one.
    pub(crate) fn keep(&self, key: K, value: V, pledge: Pledge) {
        let pledged = Arc::new(Pledged { value, pledge });
        let mut entries = self.lock();
        let gone = if entries.len() >= MAX_ENTRIES {
            mem::take(&mut *entries)
        } else {
            HashMap::new()
        };
        let before = entries.insert(key, pledged);
        // Dropping large entries outside the lock keeps other calls from waiting.
        drop(entries);
        drop((gone, before));
    }

    /// Nothing that panics is done under the lock.
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Arc<Pledged<V>>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
