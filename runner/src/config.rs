//! The configuration of a runner.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf, time::Duration};

use svc_kit::shown_token::ShownToken;
use tokio::sync::watch;
use troupe_client::tls::ClientFiles;

use crate::{
    error::{MAX_RUNNER_ID_BYTES, RunnerError},
    programs::Programs,
    worktree::WorktreeCleanup,
};

/// The configuration of a runner.
#[derive(Clone, Debug)]
pub struct RunnerConfig {
    /// The runner's id, stable across its restarts; at most 128 bytes.
    pub runner_id: String,
    /// The supervisor's URL.
    pub supervisor_url: String,
    /// The bearer token of the runner or of an operator. A token file is read again at each attach. `None`: calls
    /// contain no token.
    pub token: Option<ShownToken>,
    /// TLS files: the certificate authorities for the supervisor's certificate, and the client certificate. Agents
    /// receive only the authorities.
    pub tls: ClientFiles,
    /// Labels for placement; at most 32.
    pub labels: BTreeMap<String, String>,
    /// Maximum number of concurrent threads. 0: no limit.
    pub capacity: u32,
    /// The only session whose threads the runner accepts. `None`: threads of any session.
    pub session_id: Option<String>,
    /// Whether the runner executes only threads of one session, the session of its first thread, and ends when all
    /// these threads are closed or placed elsewhere. With a capacity of 1 it executes one thread.
    pub is_single_use: bool,
    /// The programs that execute threads.
    pub programs: Programs,
    /// The directory with a subdirectory for each thread's temporary files. A subdirectory is removed when its thread
    /// stops.
    pub scratch: PathBuf,
    /// The directory where programs keep files that later attempts need, such as resumable sessions. Codex requires it
    /// to be outside of the system's directory for temporary files.
    pub state: PathBuf,
    /// When the worktrees of threads are removed. Each thread that may write works in its own git worktree if its
    /// directory is in a repository. `None`: threads work in their given directories.
    pub worktrees: Option<WorktreeCleanup>,
    /// Directories and files that are hidden from agents, such as an operator's token. If Bubblewrap or Landlock works,
    /// it hides these paths from all programs.
    pub hidden: Vec<PathBuf>,
    /// The command that asks the runner about a tool call, with the path of a socket as its last argument; see
    /// [`crate::hook`]. The tools of some programs can be restricted only by such a command. The first word of the
    /// command is also the program that serves the supervisor's tools, with `mcp` as its argument; see [`crate::mcp`].
    pub hook: Vec<OsString>,
    /// Timeouts for programs.
    pub timing: Timing,
    /// Publishes whether the runner is ready: attached and not draining. A runner for single use is ready from its
    /// first stream until it receives its first thread. The first change means that the runner was attached.
    pub ready: watch::Sender<bool>,
}

impl RunnerConfig {
    /// Returns a configuration without token and labels, for any session, with a capacity of 64 threads.
    #[must_use]
    pub fn new(
        runner_id: impl Into<String>,
        supervisor_url: impl Into<String>,
        programs: impl Into<Programs>,
        scratch: impl Into<PathBuf>,
    ) -> Self {
        let scratch = scratch.into();
        Self {
            runner_id: runner_id.into(),
            supervisor_url: supervisor_url.into(),
            token: None,
            tls: ClientFiles::default(),
            labels: BTreeMap::new(),
            capacity: 64,
            session_id: None,
            is_single_use: false,
            programs: programs.into(),
            state: scratch.join("state"),
            worktrees: None,
            hidden: Vec::new(),
            hook: Vec::new(),
            scratch,
            timing: Timing::default(),
            ready: watch::Sender::new(false),
        }
    }

    pub(crate) fn check(&self) -> Result<(), RunnerError> {
        if self.runner_id.is_empty() || self.runner_id.len() > MAX_RUNNER_ID_BYTES {
            return Err(RunnerError::BadRunnerId(self.runner_id.len()));
        }
        Ok(())
    }
}

/// Timeouts for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time for an interrupted program to end its turn before it receives SIGINT, and again before it is killed.
    /// Default 2 s.
    pub interrupt_grace: Duration,
    /// Time for a program to end if the supervisor specifies none. Default 5 s.
    pub stop_grace: Duration,
    /// Maximum duration of a command that an agent runs through the runner. Default 10 min.
    pub command_limit: Duration,
    /// Time for running turns to finish when the runner stops. After this time the turns are interrupted. Then their
    /// programs have twice [`Self::stop_grace`] to end the turns. This includes the time for the supervisor's
    /// acknowledgement. Default 10 s.
    pub drain_limit: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            interrupt_grace: Duration::from_secs(2),
            stop_grace: Duration::from_secs(5),
            command_limit: Duration::from_secs(10 * 60),
            drain_limit: Duration::from_secs(10),
        }
    }
}

/// The result of a runner that was stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// The ids of the threads whose turn was still running and was interrupted. These threads are open, and their next
    /// input continues the conversation.
    pub interrupted: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::ProcessProgram;

    #[test]
    fn debug_output_omits_token() {
        let mut config = RunnerConfig::new("r", "http://localhost", ProcessProgram::new("true", [""; 0]), "/tmp");
        config.token = Some("s3cret".parse().unwrap());
        assert!(!format!("{config:?}").contains("s3cret"));
    }

    #[test]
    fn id_has_1_to_128_bytes() {
        let with_id =
            |id: &str| RunnerConfig::new(id, "http://localhost", ProcessProgram::new("true", [""; 0]), "/tmp");
        assert!(with_id("").check().is_err());
        assert!(with_id(&"r".repeat(129)).check().is_err());
        assert!(with_id(&"r".repeat(128)).check().is_ok());
    }
}
