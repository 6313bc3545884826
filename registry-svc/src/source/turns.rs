//! Limits the number of threads that parse at a time. Threads are admitted in order of arrival, so a large directory
//! delays another one by a single file.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

/// A fair semaphore for threads.
#[derive(Debug)]
pub(super) struct Turns {
    /// How many turns run at a time, at least 1.
    width: u64,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// How many threads have asked for a turn.
    tickets: u64,
    /// How many turns have ended.
    ended: u64,
}

/// A turn, which ends when it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a>(&'a Turns);

impl Default for Turns {
    /// One core stays free for calls that parse nothing.
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self::new(cores.saturating_sub(1).max(1))
    }
}

impl Turns {
    fn new(width: usize) -> Self {
        Self {
            width: width as u64,
            state: Mutex::default(),
            ended: Condvar::new(),
        }
    }

    /// Waits for a turn.
    pub(super) fn wait(&self) -> Turn<'_> {
        let mut state = self.lock();
        let ticket = state.tickets;
        state.tickets += 1;
        while ticket >= state.ended + self.width {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Turn(self)
    }

    /// Returns how many turns have ended.
    #[cfg(test)]
    pub(super) fn ended(&self) -> u64 {
        self.lock().ended
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().ended += 1;
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn turns_are_given_in_order_of_arrival() {
        let turns = Turns::new(1);
        let (sender, receiver) = mpsc::sync_channel(8);
        thread::scope(|scope| {
            let first = turns.wait();
            for number in 0..8 {
                let (turns, sender) = (&turns, sender.clone());
                scope.spawn(move || {
                    let _turn = turns.wait();
                    sender.send(number).unwrap();
                });
                while turns.lock().tickets < number + 2 {
                    thread::yield_now();
                }
            }
            assert!(receiver.try_recv().is_err());
            drop(first);
        });
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
        assert_eq!(turns.ended(), 9);
    }
}
