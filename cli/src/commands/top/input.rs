//! The input of the terminal.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::mpsc;

/// Interval at which the thread checks whether it has to end and whether the terminal is closed.
const POLL: Duration = Duration::from_millis(50);

/// Reads the input in a thread. Dropping this value waits for the end of the thread, so that a child process receives
/// all later input. (The thread of crossterm's stream would end at some later time.)
pub(super) struct TerminalInput {
    events: mpsc::Receiver<io::Result<Event>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TerminalInput {
    /// Starts to read.
    pub(super) fn start() -> Self {
        let (sender, events) = mpsc::channel(64);
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let event = match wait_for_input() {
                    Ok(false) => continue,
                    Ok(true) => event::read(),
                    Err(error) => Err(error),
                };
                let is_last = event.is_err();
                if sender.blocking_send(event).is_err() || is_last {
                    return;
                }
            }
        });
        Self {
            events,
            is_over,
            thread: Some(thread),
        }
    }

    /// Returns the next event, or `None` if the terminal is closed.
    ///
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Event> {
        self.events.recv().await?.ok()
    }
}

/// Waits for an event for at most [`POLL`]. Returns whether there is an event.
///
/// # Errors
///
/// Fails if the terminal is closed. crossterm would read the end of the input again and again.
fn wait_for_input() -> io::Result<bool> {
    if event::poll(POLL)? {
        return Ok(true);
    }
    let stdin = io::stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::empty())];
    poll(&mut polled, Some(&Timespec::default()))?;
    let found = polled.first().map_or(PollFlags::empty(), PollFd::revents);
    if found.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    Ok(false)
}

impl Drop for TerminalInput {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Ends the thread even if it waits for space in the channel.
        self.events.close();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed already.
            let _ = thread.join();
        }
    }
}
