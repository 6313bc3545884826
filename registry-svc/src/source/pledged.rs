//! Keeps what was read for as long as the witness vouches for it.

use std::{
    collections::HashMap,
    hash::Hash,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::source::witness::Pledge;

/// How many values a cache holds. A full one starts anew: the cost is one more look for each.
const MAX_ENTRIES: usize = 256;

/// Values, each with the pledge that it is still so. Whoever gets one asks the witness whether the pledge holds.
#[derive(Debug)]
pub(crate) struct PledgedCache<K, V> {
    entries: Mutex<HashMap<K, Arc<Pledged<V>>>>,
}

/// A value and its pledge.
#[derive(Debug)]
pub(crate) struct Pledged<V> {
    /// What was read.
    pub(crate) value: V,
    /// That it is still so.
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
    /// What was kept last.
    pub(crate) fn get(&self, key: &K) -> Option<Arc<Pledged<V>>> {
        self.lock().get(key).cloned()
    }

    /// Keeps a value in the place of the one before.
    pub(crate) fn keep(&self, key: K, value: V, pledge: Pledge) {
        let pledged = Arc::new(Pledged { value, pledge });
        let mut entries = self.lock();
        let gone = if entries.len() >= MAX_ENTRIES {
            mem::take(&mut *entries)
        } else {
            HashMap::new()
        };
        let before = entries.insert(key, pledged);
        // They may be large; calls that only read do not wait until they are freed.
        drop(entries);
        drop((gone, before));
    }

    /// Nothing that panics is done under the lock.
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Arc<Pledged<V>>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
