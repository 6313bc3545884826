//! Process groups: whatever the runner starts leads one of its own, and when it ends nothing of the group is left.

use std::{io, process::ExitStatus};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;
use tokio_util::sync::CancellationToken;

/// The process group of a child. Its id is good for signals until the child has been reaped.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    leader: Pid,
    reaped: CancellationToken,
}

impl Group {
    /// The group of a child that was started as a leader and is not reaped yet; `None`: it is.
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
        // The only failure is that nobody is left in the group.
        let _ = kill_process_group(self.leader, signal);
    }

    /// The leader is gone: whoever it left behind goes too. Directly after reaping, since its id is free from then on
    /// unless somebody is left.
    pub(crate) fn leader_reaped(&self) {
        self.send(Signal::KILL);
        self.reaped.cancel();
    }
}

/// How a process ended, for people: `exit status 1`, `signal 9`.
pub(crate) fn describe(status: &io::Result<ExitStatus>) -> String {
    use std::os::unix::process::ExitStatusExt as _;

    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => status.to_string(),
        },
        Err(error) => format!("exit status unknown: {error}"),
    }
}
