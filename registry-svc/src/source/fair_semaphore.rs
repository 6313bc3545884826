//! Limits the number of threads that parse at a time. Threads are admitted in order of arrival, so a large directory
//! delays another one by a single file.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

/// A fair semaphore for threads.
#[derive(Debug)]
pub(super) struct FairSemaphore {
    /// How many semaphore run at a time, at least 1.
    width: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The number of permits that were requested.
    tickets: u64,
    /// How many semaphore have ended.
    released: u64,
}

/// A permit, released on drop.
#[derive(Debug)]
pub(super) struct FairPermit<'a>(&'a FairSemaphore);

impl Default for FairSemaphore {
    /// Returns a semaphore that leaves one core for calls that parse nothing.
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self::new(cores.saturating_sub(1).max(1))
    }
}

impl FairSemaphore {
    fn new(width: usize) -> Self {
        Self {
            width: width as u64,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Waits for a permit.
    pub(super) fn acquire(&self) -> FairPermit<'_> {
        let mut state = self.lock();
        let ticket = state.tickets;
        state.tickets += 1;
        while ticket >= state.released + self.width {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        FairPermit(self)
    }

    /// Returns the number of released permits.
    #[cfg(test)]
    pub(super) fn released(&self) -> u64 {
        self.lock().released
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FairPermit<'_> {
    fn drop(&mut self) {
        self.0.lock().released += 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn permits_are_given_in_order_of_arrival() {
        let semaphore = FairSemaphore::new(1);
        let (sender, receiver) = mpsc::sync_channel(8);
        thread::scope(|scope| {
            let first = semaphore.acquire();
            for number in 0..8 {
                let (semaphore, sender) = (&semaphore, sender.clone());
                scope.spawn(move || {
                    let _permit = semaphore.acquire();
                    sender.send(number).unwrap();
                });
                while semaphore.lock().tickets < number + 2 {
                    thread::yield_now();
                }
            }
            assert!(receiver.try_recv().is_err());
            drop(first);
        });
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
        assert_eq!(semaphore.released(), 9);
    }
}
