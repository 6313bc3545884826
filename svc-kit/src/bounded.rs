//! Lines of the log that strangers cause, who may cause as many as they like: so many are written in a while, and the next
//! one says how many were not.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The while in which so many are written.
const WINDOW: Duration = Duration::from_secs(10);

/// What bounds the lines of one kind.
#[derive(Debug)]
pub(crate) struct Bounded {
    at_most: u32,
    window: Mutex<Window>,
}

/// The lines of the present window.
#[derive(Debug, Default)]
struct Window {
    since: Option<Instant>,
    written: u32,
    passed_over: u64,
}

impl Bounded {
    /// At most so many in 10 seconds.
    pub(crate) fn new(at_most: u32) -> Self {
        Self {
            at_most,
            window: Mutex::default(),
        }
    }

    /// How many lines were passed over before this one; `None`: so is this one.
    pub(crate) fn admit(&self) -> Option<u64> {
        let now = Instant::now();
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        if window.since.is_none_or(|since| now - since >= WINDOW) {
            (window.since, window.written) = (Some(now), 0);
        }
        if window.written == self.at_most {
            window.passed_over += 1;
            return None;
        }
        window.written += 1;
        Some(std::mem::take(&mut window.passed_over))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn so_many_are_written_and_the_others_counted() {
        let bounded = Bounded::new(3);
        for _ in 0..3 {
            assert_eq!(bounded.admit(), Some(0));
        }
        assert_eq!([bounded.admit(), bounded.admit()], [None, None]);
        advance(WINDOW).await;
        assert_eq!([bounded.admit(), bounded.admit()], [Some(2), Some(0)]);
    }
}
