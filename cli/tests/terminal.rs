//! Tests of the output on a terminal: a pseudo-terminal with a fixed width.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::{
    fs::{File, OpenOptions},
    io::Read as _,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    process::Stdio,
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use support::up::{Up, troupe};

/// Runs the command on a terminal with this number of columns, and returns its lines without styles.
fn lines_on_terminal(up: &Up, columns: u16, arguments: &[&str]) -> Vec<String> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let path = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
    let slave = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let size = Winsize {
        ws_row: 40,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&slave, size).unwrap();
    let mut process = troupe(up.home.path())
        .args(arguments)
        .args(["--supervisor", up.supervisor(), "--registry", up.registry()])
        .env("TERM", "xterm")
        .stdout(Stdio::from(slave))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut text = Vec::new();
    let mut terminal = File::from(master);
    let mut buffer = [0; 4096];
    // The terminal reports an error once the process has closed its end.
    while let Ok(read) = terminal.read(&mut buffer) {
        if read == 0 {
            break;
        }
        text.extend_from_slice(&buffer[..read]);
    }
    assert!(process.wait().unwrap().success(), "{arguments:?}");
    let text = anstream::adapter::strip_str(std::str::from_utf8(&text).unwrap()).to_string();
    text.lines()
        .map(|line| line.trim_end_matches('\r').to_owned())
        .collect()
}

#[test]
fn lines_fit_the_terminal_without_broken_words() {
    let up = Up::start();
    let task = "Describe every directory of the project in one sentence, and name the largest file of each";
    let spawned = up.run(&["spawn", "worker", task, "--alias", "scout", "--wait"]);
    assert!(spawned.status.success());
    for columns in [60, 80, 200] {
        for arguments in [&["ps"][..], &["ps", "--tree"], &["agents"], &["session", "list"]] {
            let lines = lines_on_terminal(&up, columns, arguments);
            for line in &lines {
                let width = line.chars().count();
                assert!(
                    width <= usize::from(columns),
                    "{arguments:?} at {columns}: {width} {line:?}"
                );
            }
            // Heads of tables and trees are complete.
            assert!(lines.iter().all(|line| !line.starts_with('…')), "{lines:?}");
        }
        let table = lines_on_terminal(&up, columns, &["ps"]).join("\n");
        assert!(table.contains("COMPLETED"), "{table}");
        let tree = lines_on_terminal(&up, columns, &["ps", "--tree"]).join("\n");
        assert!(tree.contains("scout"), "{tree}");
    }
    let wide = lines_on_terminal(&up, 60, &["ps", "--no-truncate"]).join("\n");
    assert!(wide.contains("and name the largest"), "{wide}");
}
