//! Pseudo-terminals.

use std::{
    ffi::OsStr,
    fs::{File, OpenOptions},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

/// Opens a terminal of this size. Returns the side of the test and the side of the process.
#[must_use]
pub fn open(columns: u16, rows: u16) -> (File, File) {
    // Without CLOEXEC, the terminal of one test would stay open in the process of another.
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let path = Path::new(OsStr::from_bytes(name.as_bytes()));
    let slave = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let master = File::from(master);
    resize(&master, columns, rows);
    (master, slave)
}

/// Changes the size of a terminal. The process notices the new size only after a SIGWINCH.
pub fn resize(terminal: &File, columns: u16, rows: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size).unwrap();
}
