//! A child that is no process: whoever holds its far end says what it says.

use tokio::sync::{mpsc, watch};

use super::{BoundedLines, ChildInput, ChildOutput, Exit, Line, UNHEARD_LINES, UNREAD_LINES};

/// The far end of a child's pipes. Dropping it is the child's end.
pub(crate) struct Puppet {
    /// What the child is told.
    pub(crate) told: mpsc::Receiver<String>,
    lines: mpsc::Sender<Line>,
    longest_line: usize,
    _exit: watch::Sender<Option<Exit>>,
}

impl Puppet {
    /// A child of which lines of at most so many bytes are read: what is said to it, what it says, and its far end.
    pub(crate) fn new(longest_line: usize) -> (ChildInput, ChildOutput, Self) {
        let (input, told) = mpsc::channel(UNREAD_LINES);
        let (lines, heard) = mpsc::channel(UNHEARD_LINES);
        let (to_exit, exit) = watch::channel(None);
        let puppet = Self {
            told,
            lines,
            longest_line,
            _exit: to_exit,
        };
        (ChildInput(input), ChildOutput { lines: heard, exit }, puppet)
    }

    /// Has the child write these bytes, with a line's end behind them.
    pub(crate) async fn say(&self, bytes: &[u8]) {
        let mut lines = BoundedLines::new(bytes, self.longest_line);
        while let Ok(Some(line)) = lines.next().await {
            // Nobody listens to a child that was given up.
            let _ = self.lines.send(line).await;
        }
    }
}
