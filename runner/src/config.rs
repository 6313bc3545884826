//! What a runner is told at its start, and why it may refuse to start.

use std::{collections::BTreeMap, ffi::OsString, fmt, path::PathBuf, time::Duration};

use svc_kit::{shown_token::ShownToken, tls::ClientFiles};
use tokio::sync::watch;
use tonic::Code;

use crate::{programs::Programs, worktree::WorktreeCleanup};

/// The longest runner id, in bytes.
const MAX_RUNNER_ID_BYTES: usize = 128;

/// What a runner is told at its start.
#[derive(Clone)]
pub struct RunnerConfig {
    /// The runner's id, stable across its restarts; at most 128 bytes.
    pub runner_id: String,
    /// Where the supervisor is, as a URL.
    pub supervisor_url: String,
    /// The bearer token of the runner or of an operator; that of a file as it is when the runner attaches. None: calls carry
    /// no token.
    pub token: Option<ShownToken>,
    /// Whom to believe is the supervisor, where its URL is one over TLS, and what to show it. Agents are shown the
    /// authorities alone.
    pub tls: ClientFiles,
    /// Labels for placement; at most 32.
    pub labels: BTreeMap<String, String>,
    /// How many threads it executes at once; 0: as many as it is given.
    pub capacity: u32,
    /// Takes threads of this session only. None: of any session.
    pub session_id: Option<String>,
    /// The programs that execute threads.
    pub programs: Programs,
    /// Where each thread gets a directory for its temporary files, which is removed when the thread stops.
    pub scratch: PathBuf,
    /// Where programs keep what they must find again, such as the sessions that they resume. Codex wants it outside of
    /// the system's directory for temporary files.
    pub state: PathBuf,
    /// Each thread that may write works in a git worktree of its own, where its directory lies in a repository, and this
    /// says when it is removed. None: threads work in the directories that they are given.
    pub worktrees: Option<WorktreeCleanup>,
    /// Directories and files that no agent is to look into, such as an operator's token. Bubblewrap keeps them from all
    /// programs, where it works.
    pub hidden: Vec<PathBuf>,
    /// The command that asks the runner about a tool call, with the path of a socket as its last argument: see
    /// [`crate::hook`]. Programs that can only be held to their tools by a command of theirs need it. Its first word is
    /// the program that serves the supervisor's tools as well, with `mcp` as its argument: see [`crate::mcp`].
    pub hook: Vec<OsString>,
    /// How patient the runner is with programs.
    pub timing: Timing,
    /// Where the runner says whether it is ready: attached, and not about to end.
    pub ready: watch::Sender<bool>,
}

impl RunnerConfig {
    /// A configuration without token and labels, for any session, with room for 64 threads.
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

// By hand: the token must not reach a log.
impl fmt::Debug for RunnerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunnerConfig")
            .field("runner_id", &self.runner_id)
            .field("supervisor_url", &self.supervisor_url)
            .field("token", &self.token.as_ref().map(|_| "<redacted>"))
            .field("tls", &self.tls)
            .field("labels", &self.labels)
            .field("capacity", &self.capacity)
            .field("session_id", &self.session_id)
            .field("programs", &self.programs)
            .field("scratch", &self.scratch)
            .field("state", &self.state)
            .field("worktrees", &self.worktrees)
            .field("hidden", &self.hidden)
            .field("hook", &self.hook)
            .field("timing", &self.timing)
            .field("ready", &*self.ready.borrow())
            .finish()
    }
}

/// A program that speaks the line protocol of `docs/process-protocol.md`.
#[derive(Clone, Debug)]
pub struct ProcessProgram {
    /// The program: a path, or a name that is looked up in PATH.
    pub command: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// The variables that it inherits from the runner, beside those that are never secret.
    pub inherit: Vec<String>,
    /// Variables that it is given as they stand here.
    pub environment: BTreeMap<String, String>,
    /// Whether bubblewrap is to keep the programs of READ_ONLY threads from writing, where it works.
    pub confine: bool,
    /// What its operator vouches for.
    pub enforces: Enforcement,
}

impl ProcessProgram {
    /// A program that is held to its tools and to nothing else.
    #[must_use]
    pub fn new<A: Into<String>>(command: impl Into<PathBuf>, args: impl IntoIterator<Item = A>) -> Self {
        Self {
            command: command.into(),
            args: args.into_iter().map(Into::into).collect(),
            inherit: Vec::new(),
            environment: BTreeMap::new(),
            confine: false,
            enforces: Enforcement::default(),
        }
    }
}

/// What a kind of program can be held to. A runner refuses threads whose policy asks for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enforcement {
    /// Every tool that the program has goes through the runner. It is an operator's word: nothing keeps a program from
    /// doing by itself what it could ask a tool for.
    pub tools: bool,
    /// The program cannot write where a READ_ONLY thread must not.
    pub read_only: bool,
}

impl Default for Enforcement {
    fn default() -> Self {
        Self {
            tools: true,
            read_only: false,
        }
    }
}

/// How patient the runner is with programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long an interrupted program may take to end its turn before it is sent SIGINT, and then again before it is
    /// killed. Default 2 s.
    pub interrupt_grace: Duration,
    /// How long a program may take to end where the supervisor does not say. Default 5 s.
    pub stop_grace: Duration,
    /// How long a command may take that an agent has the runner run. Default 10 min.
    pub command_limit: Duration,
    /// How long running turns have to finish when the runner stops; then they are interrupted, and their programs have
    /// twice [`Self::stop_grace`] to end them and to have that acknowledged. Default 10 s.
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
    /// The ids of the threads whose turn was still running and was interrupted. They are open, and their next input continues
    /// the conversation.
    pub interrupted: Vec<String>,
}

/// Why a runner does not start.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// The runner id is empty or too long.
    #[error("the runner id must have 1 to {MAX_RUNNER_ID_BYTES} bytes, not {0}")]
    BadRunnerId(usize),
    /// The supervisor's URL cannot be read.
    #[error("{0:?} is not a URL like http://127.0.0.1:50052")]
    BadSupervisorUrl(String),
    /// The token cannot be sent.
    #[error("the token has characters that metadata cannot carry")]
    BadToken,
    /// The supervisor will not have this runner, now or later.
    #[error("the supervisor refused the runner ({code:?}): {message}")]
    Refused {
        /// The code of its answer.
        code: Code,
        /// The text of its answer.
        message: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_not_shown() {
        let mut config = RunnerConfig::new("r", "http://localhost", ProcessProgram::new("true", [""; 0]), "/tmp");
        config.token = Some("s3cret".parse().unwrap());
        assert!(!format!("{config:?}").contains("s3cret"));
    }

    #[test]
    fn an_id_has_1_to_128_bytes() {
        let with_id =
            |id: &str| RunnerConfig::new(id, "http://localhost", ProcessProgram::new("true", [""; 0]), "/tmp");
        assert!(with_id("").check().is_err());
        assert!(with_id(&"r".repeat(129)).check().is_err());
        assert!(with_id(&"r".repeat(128)).check().is_ok());
    }
}
