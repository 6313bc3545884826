//! A cache of values that are valid while a guard holds.

use std::{hash::Hash, sync::Arc};

use svc_kit::memo::{Memo, MemoLimits};

use crate::source::tracker::CacheGuard;

/// Only the number of values is limited. A full cache is cleared, which costs one more scan for each value.
const LIMITS: MemoLimits = MemoLimits {
    entries: 256,
    bytes: usize::MAX,
    entry_bytes: usize::MAX,
};

/// A cache of values with guards. Callers must ask the tracker whether the guard still holds.
#[derive(Debug)]
pub(crate) struct GuardedCache<K, V>(Memo<K, Arc<Guarded<V>>>);

/// A value and its guard.
#[derive(Debug)]
pub(crate) struct Guarded<V> {
    /// The value that was read.
    pub(crate) value: V,
    /// The guarantee that the value is current.
    pub(crate) guard: CacheGuard,
}

impl<K: Eq + Hash, V> Default for GuardedCache<K, V> {
    fn default() -> Self {
        Self(Memo::new(LIMITS))
    }
}

impl<K: Eq + Hash, V> GuardedCache<K, V> {
    /// Returns the cached value of a key.
    pub(crate) fn get(&self, key: &K) -> Option<Arc<Guarded<V>>> {
        self.0.get(key, |guarded| Some(Arc::clone(guarded)))
    }

    /// Stores a value, replaces the previous one, and returns it.
    pub(crate) fn insert(&self, key: K, value: V, guard: CacheGuard) -> Arc<Guarded<V>> {
        let guarded = Arc::new(Guarded { value, guard });
        self.0.keep(key, Arc::clone(&guarded), 0);
        guarded
    }
}
