//! Counts of items by owner, with a limit for each owner.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
};

/// Counts items by owner. An owner without items has no entry.
#[derive(Debug)]
pub(crate) struct OwnerCounts<K>(Mutex<HashMap<K, usize>>);

impl<K> Default for OwnerCounts<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash> OwnerCounts<K> {
    /// Adds an item for this owner. Returns `None` if the owner already has `max` items.
    pub(crate) fn take(self: &Arc<Self>, owner: &K, max: usize) -> Option<OwnerPermit<K>> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match counts.get_mut(owner) {
            Some(count) if *count >= max => return None,
            Some(count) => *count += 1,
            None => drop(counts.insert(owner.clone(), 1)),
        }
        Some(OwnerPermit {
            all: Arc::clone(self),
            owner: owner.clone(),
        })
    }
}

#[cfg(test)]
impl<K> OwnerCounts<K> {
    /// Returns whether no owner has an item.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// An item of an owner. Dropping it removes the item.
#[derive(Debug)]
pub(crate) struct OwnerPermit<K: Clone + Eq + Hash> {
    all: Arc<OwnerCounts<K>>,
    owner: K,
}

impl<K: Clone + Eq + Hash> Drop for OwnerPermit<K> {
    fn drop(&mut self) {
        let mut counts = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut count) = counts.entry(self.owner.clone()) {
            match *count.get() {
                0 | 1 => drop(count.remove()),
                _ => *count.get_mut() -= 1,
            }
        }
    }
}
