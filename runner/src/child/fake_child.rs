//! A fake child without a process. The test controls its output.

use tokio::sync::{mpsc, watch};

use super::{BoundedLines, ChildInput, ChildOutput, Exit, LINE_CAPACITY, Line, UNREAD_LINES};

/// The other end of a child's pipes. Dropping it ends the child.
pub(crate) struct FakeChild {
    /// The lines that the child receives.
    pub(crate) received: mpsc::Receiver<String>,
    lines: mpsc::Sender<Line>,
    longest_line: usize,
    _exit: watch::Sender<Option<Exit>>,
}

impl FakeChild {
    /// Creates a fake child whose lines are limited to `longest_line` bytes. Returns its input, its output and the
    /// other end of its pipes.
    pub(crate) fn new(longest_line: usize) -> (ChildInput, ChildOutput, Self) {
        let (input, received) = mpsc::channel(UNREAD_LINES);
        let (lines, output) = mpsc::channel(LINE_CAPACITY);
        let (to_exit, exit) = watch::channel(None);
        let fake = Self {
            received,
            lines,
            longest_line,
            _exit: to_exit,
        };
        (ChildInput(input), ChildOutput { lines: output, exit }, fake)
    }

    /// Makes the child write these bytes and a line end.
    pub(crate) async fn write(&self, bytes: &[u8]) {
        let mut lines = BoundedLines::new(bytes, self.longest_line);
        while let Ok(Some(line)) = lines.next().await {
            // There is no receiver if the child was abandoned.
            let _ = self.lines.send(line).await;
        }
    }
}
