//! Runs the binary on a pseudo-terminal and shows the screen of a terminal emulator.

use std::{
    ffi::OsStr,
    fs::{File, OpenOptions},
    io::Read as _,
    num::NonZero,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    process::{Child, Command, Stdio},
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

/// A process on a terminal.
pub struct Screen {
    process: Child,
    terminal: File,
    emulator: vt100::Parser,
}

impl Screen {
    /// Starts a command with its input, output and errors on a terminal of this size.
    pub fn start(mut command: Command, columns: u16, rows: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let path = Path::new(OsStr::from_bytes(name.as_bytes()));
        let slave = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&slave, size).unwrap();
        let process = command
            .env("TERM", "xterm-256color")
            .stdin(Stdio::from(slave.try_clone().unwrap()))
            .stdout(Stdio::from(slave.try_clone().unwrap()))
            .stderr(Stdio::from(slave))
            .spawn()
            .unwrap();
        // Closes this process's copies of the terminal, so that reading ends when the process does.
        drop(command);
        Self {
            process,
            terminal: File::from(master),
            emulator: vt100::Parser::new(NonZero::new(rows).unwrap(), NonZero::new(columns).unwrap(), 0),
        }
    }

    /// Reads until the screen shows a text.
    #[track_caller]
    pub fn until(&mut self, text: &str) {
        while !self.text().contains(text) {
            assert!(self.read(), "the command ended without {text:?}:\n{}", self.text());
        }
    }

    /// Sends SIGINT to the process, like Ctrl-C.
    pub fn interrupt(&self) {
        super::up::interrupt(self.process.id());
    }

    /// Reads until the process ends, and returns its exit code and the screen.
    pub fn finish(mut self) -> (Option<i32>, String) {
        while self.read() {}
        let code = self.process.wait().unwrap().code();
        (code, self.text())
    }

    /// Returns the lines of the screen without trailing spaces.
    pub fn text(&self) -> String {
        self.emulator.screen().contents()
    }

    fn read(&mut self) -> bool {
        let mut buffer = [0; 4096];
        // The terminal reports an error once all processes have closed it.
        match self.terminal.read(&mut buffer) {
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
