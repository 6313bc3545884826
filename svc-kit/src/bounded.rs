//! Rate-limited log lines, for events that unauthenticated peers can cause as often as they like. At most a fixed
//! number is written per window; the next line reports how many were omitted.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Length of a window.
const WINDOW: Duration = Duration::from_secs(10);

/// Rate limit of one kind of log line.
#[derive(Debug)]
pub(crate) struct Bounded {
    at_most: u32,
    window: Mutex<Window>,
}

impl Default for Bounded {
    /// Creates a limit that keeps the log readable.
    fn default() -> Self {
        Self::new(10)
    }
}

/// Lines of the current window.
#[derive(Debug, Default)]
struct Window {
    since: Option<Instant>,
    written: u32,
    passed_over: u64,
}

impl Bounded {
    /// Allows at most `at_most` lines in 10 s.
    pub(crate) fn new(at_most: u32) -> Self {
        Self {
            at_most,
            window: Mutex::default(),
        }
    }

    /// Writes or omits a line. A written line receives the number of lines that were omitted before it.
    pub(crate) fn write(&self, line: impl FnOnce(Option<u64>)) {
        if let Some(passed_over) = self.admit() {
            line((passed_over > 0).then_some(passed_over));
        }
    }

    /// Returns how many lines were omitted before this one; `None` if this one is omitted too.
    fn admit(&self) -> Option<u64> {
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
    async fn lines_over_limit_are_counted() {
        let bounded = Bounded::new(3);
        let mut lines = Vec::new();
        for _ in 0..5 {
            bounded.write(|passed_over| lines.push(passed_over));
        }
        advance(WINDOW).await;
        for _ in 0..2 {
            bounded.write(|passed_over| lines.push(passed_over));
        }
        assert_eq!(lines, [None, None, None, Some(2), None]);
    }
}
