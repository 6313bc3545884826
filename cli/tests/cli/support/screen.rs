//! Runs the binary on a pseudo-terminal and reads its screen through a terminal emulator.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    num::NonZero,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, Signal, WaitOptions, kill_process, waitpid},
};
use troupe_tests::terminal;

use super::TIME_LIMIT;

/// A process on a terminal.
pub struct Screen {
    process: Child,
    /// The terminal. `None` after it was closed.
    terminal: Option<File>,
    emulator: vt100::Parser,
}

impl Screen {
    /// Starts a command with its input, output and errors on a terminal of this size.
    pub fn start(mut command: Command, columns: u16, rows: u16) -> Self {
        let (terminal, slave) = terminal::open(columns, rows);
        if !command.get_envs().any(|(name, _)| name == "TERM") {
            command.env("TERM", "xterm-256color");
        }
        let process = command
            .stdin(Stdio::from(slave.try_clone().unwrap()))
            .stdout(Stdio::from(slave.try_clone().unwrap()))
            .stderr(Stdio::from(slave))
            .spawn()
            .unwrap();
        // Closes this process's copies of the terminal, so that reading ends when the process does.
        drop(command);
        Self {
            process,
            terminal: Some(terminal),
            emulator: vt100::Parser::new(NonZero::new(rows).unwrap(), NonZero::new(columns).unwrap(), 0),
        }
    }

    /// Reads until the screen shows a text.
    #[track_caller]
    pub fn until(&mut self, text: &str) {
        let deadline = Instant::now() + TIME_LIMIT;
        while !self.text().contains(text) {
            assert!(self.read(), "the command ended without {text:?}:\n{}", self.text());
            assert!(Instant::now() < deadline, "{text:?} did not appear:\n{}", self.text());
        }
    }

    /// Reads until the screen no longer shows a text.
    #[track_caller]
    pub fn until_gone(&mut self, text: &str) {
        let deadline = Instant::now() + TIME_LIMIT;
        while self.text().contains(text) {
            assert!(self.read(), "the command ended with {text:?}:\n{}", self.text());
            assert!(Instant::now() < deadline, "{text:?} did not go:\n{}", self.text());
        }
    }

    /// Reads until the selected row of a list has a text.
    #[track_caller]
    pub fn until_selected(&mut self, text: &str) {
        let deadline = Instant::now() + TIME_LIMIT;
        while !self.selected().is_some_and(|row| row.contains(text)) {
            assert!(self.read(), "the command ended without {text:?}:\n{}", self.text());
            assert!(Instant::now() < deadline, "{text:?} is not selected:\n{}", self.text());
        }
    }

    /// Returns the text of the row that is drawn in reverse video.
    fn selected(&self) -> Option<String> {
        let screen = self.emulator.screen();
        let is_selected = |row: &u16| screen.cell(*row, 1).is_some_and(vt100::Cell::inverse);
        let place = (0..screen.size().0.get()).find(is_selected)?;
        Some(self.row(place))
    }

    /// Types characters.
    pub fn keys(&mut self, keys: &str) {
        self.terminal().write_all(keys.as_bytes()).unwrap();
    }

    /// Types characters, and reads until the screen shows a text.
    #[track_caller]
    pub fn press(&mut self, keys: &str, text: &str) {
        self.keys(keys);
        self.until(text);
    }

    /// Types `q`, and checks that the command ends successfully.
    #[track_caller]
    pub fn quit(mut self) {
        self.keys("q");
        assert_eq!(self.finish().0, Some(0));
    }

    /// Changes the size of the terminal.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        terminal::resize(self.terminal(), columns, rows);
        let size = |number| NonZero::new(number).unwrap();
        self.emulator.screen_mut().set_size(size(rows), size(columns));
        self.signal(Signal::WINCH);
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Waits until the process is stopped by a signal.
    pub fn until_stopped(&self) {
        let status = waitpid(Some(self.pid()), WaitOptions::UNTRACED).unwrap().unwrap().1;
        assert!(status.stopped(), "{status:?}");
    }

    /// Reads for this time. Returns the received bytes.
    pub fn read_for(&mut self, time: Duration) -> Vec<u8> {
        let end = Instant::now() + time;
        let mut read = Vec::new();
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            let mut polled = [PollFd::new(self.terminal(), PollFlags::IN)];
            if poll(&mut polled, Some(&left.try_into().unwrap())).unwrap() > 0 {
                let mut buffer = [0; 4096];
                let count = self.terminal().read(&mut buffer).unwrap();
                self.emulator.process(&buffer[..count]);
                read.extend_from_slice(&buffer[..count]);
            }
        }
        read
    }

    fn terminal(&self) -> &File {
        self.terminal.as_ref().expect("the terminal is open")
    }

    /// Closes the terminal, and returns the exit code of the process.
    pub fn hang_up(&mut self) -> Option<i32> {
        self.terminal = None;
        let deadline = Instant::now() + TIME_LIMIT;
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "the command did not end with its terminal");
            thread::park_timeout(Duration::from_millis(10));
        }
    }

    /// Returns whether the alternate screen is shown.
    pub fn is_alternate(&self) -> bool {
        self.emulator.screen().alternate_screen()
    }

    /// Returns whether the cursor is shown.
    pub fn has_cursor(&self) -> bool {
        !self.emulator.screen().hide_cursor()
    }

    /// Sends SIGINT to the process, like Ctrl-C.
    pub fn interrupt(&self) {
        super::up::interrupt(self.process.id());
    }

    /// Reads until the process ends, and returns its exit code and the screen.
    pub fn finish(mut self) -> (Option<i32>, String) {
        (self.until_end(), self.text())
    }

    /// Reads until the process ends, and returns its exit code.
    pub fn until_end(&mut self) -> Option<i32> {
        while self.read() {}
        self.process.wait().unwrap().code()
    }

    /// Returns the lines of the screen without trailing spaces.
    pub fn text(&self) -> String {
        self.emulator.screen().contents()
    }

    /// Returns the beginning of a row of the screen, without the columns that change with time.
    pub fn row(&self, row: u16) -> String {
        self.emulator.screen().contents_between(row, 0, row, 40)
    }

    #[track_caller]
    fn read(&mut self) -> bool {
        let mut polled = [PollFd::new(self.terminal(), PollFlags::IN)];
        let ready = poll(&mut polled, Some(&TIME_LIMIT.try_into().unwrap())).unwrap();
        assert!(ready > 0, "nothing was written within {TIME_LIMIT:?}:\n{}", self.text());
        let mut buffer = [0; 4096];
        // The terminal reports an error once all processes have closed it.
        match self.terminal().read(&mut buffer) {
            Ok(0) | Err(_) => false,
            Ok(read) => {
                self.emulator.process(&buffer[..read]);
                true
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
