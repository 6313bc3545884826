//! Process groups. Every subprocess of the runner leads its own group, and the whole group is killed when the
//! subprocess ends.

use std::{io, process::ExitStatus};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;
use tokio_util::sync::CancellationToken;

/// The process group of a child. Its id is valid for signals until the child is reaped.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    leader: Pid,
    reaped: CancellationToken,
}

impl Group {
    /// Returns the group of a child that was started as a group leader. `None`: the child is already reaped.
    pub(crate) fn of(child: &Child) -> Option<Self> {
        let leader = Pid::from_raw(i32::try_from(child.id()?).ok()?)?;
        Some(Self {
            leader,
            reaped: CancellationToken::new(),
        })
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if !self.reaped.is_cancelled() {
            self.send(signal);
        }
    }

    fn send(&self, signal: Signal) {
        // The only possible error is an empty group.
        let _ = kill_process_group(self.leader, signal);
    }

    /// Kills the remaining processes after the leader was reaped. Must be called immediately after that, because the id
    /// can be reused as soon as the group is empty.
    pub(crate) fn leader_reaped(&self) {
        self.send(Signal::KILL);
        self.reaped.cancel();
    }
}

/// Returns the text for the end of a process, such as `exit status 1` or `killed by SIGKILL`. Shells and bubblewrap
/// report a signal that ended their child as a status above 128.
pub(crate) fn describe(status: &io::Result<ExitStatus>) -> String {
    use std::os::unix::process::ExitStatusExt as _;

    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => match signal_name(code - 128) {
                Some(name) => format!("killed by {name}"),
                None => format!("exit status {code}"),
            },
            (None, Some(signal)) => match signal_name(signal) {
                Some(name) => format!("killed by {name}"),
                None => format!("killed by signal {signal}"),
            },
            (None, None) => status.to_string(),
        },
        Err(error) => format!("exit status unknown: {error}"),
    }
}

/// Returns the name of a signal that ends processes. `None`: the number belongs to no such signal.
const fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        31 => "SIGSYS",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn signals_have_names() {
        for (raw, expected) in [
            (9, "killed by SIGKILL"),
            (137 << 8, "killed by SIGKILL"),
            (143 << 8, "killed by SIGTERM"),
            (1 << 8, "exit status 1"),
            (200 << 8, "exit status 200"),
            (40, "killed by signal 40"),
        ] {
            assert_eq!(describe(&Ok(ExitStatus::from_raw(raw))), expected);
        }
    }
}
