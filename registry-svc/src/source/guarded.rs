//! A cache of values that are valid while a guard holds.

use std::{
    collections::HashMap,
    hash::Hash,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::source::tracker::CacheGuard;

/// Maximum number of cached values. A full cache is cleared, which costs one more scan for each value.
const MAX_ENTRIES: usize = 256;

/// A cache of values with guards. Callers must ask the tracker whether the guard still holds.
#[derive(Debug)]
pub(crate) struct GuardedCache<K, V> {
    entries: Mutex<HashMap<K, Arc<Guarded<V>>>>,
}

/// A value and its guard.
#[derive(Debug)]
pub(crate) struct Guarded<V> {
    /// The value that was read.
    pub(crate) value: V,
    /// The guarantee that the value is current.
    pub(crate) guard: CacheGuard,
}

impl<K, V> Default for GuardedCache<K, V> {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
        }
    }
}

impl<K: Eq + Hash, V> GuardedCache<K, V> {
    /// Returns the cached value of a key.
    pub(crate) fn get(&self, key: &K) -> Option<Arc<Guarded<V>>> {
        self.lock().get(key).cloned()
    }

    /// Stores a value, replaces the previous one, and returns it.
    pub(crate) fn insert(&self, key: K, value: V, guard: CacheGuard) -> Arc<Guarded<V>> {
        let guarded = Arc::new(Guarded { value, guard });
        let mut entries = self.lock();
        let gone = if entries.len() >= MAX_ENTRIES {
            mem::take(&mut *entries)
        } else {
            HashMap::new()
        };
        let before = entries.insert(key, Arc::clone(&guarded));
        // Dropping large entries outside the lock keeps other calls from waiting.
        drop(entries);
        drop((gone, before));
        guarded
    }

    /// Locks the entries. Code under the lock does not panic.
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Arc<Guarded<V>>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
