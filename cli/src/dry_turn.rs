//! One turn of one agent program, end to end: a separate pair in a temporary directory, one read-only agent and one
//! word from its model. The directory is removed afterwards, and no other pair is involved.

use std::{
    fmt, fs,
    path::Path,
    time::{Duration, Instant},
};

use troupe_client::{Address, Service};
use troupe_proto::supervisor::v1::{CreateSessionRequest, SpawnAgentRequest, Status, StatusKind};

use crate::{
    error::{Error, Result},
    names,
    pair::{Pair, PairOptions, RunnerOptions},
    programs, sanitize, waiting,
};

/// Maximum duration of the turn.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The role of the agent: built in and read-only.
const ROLE: &str = "explorer";
/// The prompt of the turn.
const PROMPT: &str = "This is a test. Use no tools. Answer with the single word OK.";
/// Maximum length of the displayed answer, in characters.
const MAX_SHOWN: usize = 200;

/// The answer of a program and the duration of the turn.
#[derive(Debug)]
pub(crate) struct Answer {
    message: String,
    took: Duration,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "answered {:?} in {:.1} s", self.message, self.took.as_secs_f64())
    }
}

/// Runs a turn on the program `name` of `choice`.
///
/// # Errors
///
/// Fails if the program is missing or the turn did not complete.
pub(crate) async fn run(choice: programs::Choice, name: &str) -> Result<Answer> {
    // Checked before the pair starts.
    programs::all_found(programs::only(choice.programs()?, name)?)?;
    let directory = tempfile::Builder::new().prefix("troupe-dry-turn-").tempdir()?;
    let root = fs::canonicalize(directory.path())?;
    let project = root.join("project");
    fs::create_dir(root.join("home"))?;
    fs::create_dir_all(project.join(".git"))?;
    let runner = RunnerOptions {
        programs: choice,
        worktrees: None,
        only: Some(name.to_owned()),
    };
    let pair = Pair::start(PairOptions::temporary(&root, runner)).await?;
    let answer = turn(&pair, &project).await;
    let stopped = pair.stop().await;
    let answer = answer?;
    stopped.map(|_| answer)
}

async fn turn(pair: &Pair, project: &Path) -> Result<Answer> {
    let address = Address::parse(Service::Supervisor, &pair.supervisor().to_string())?;
    let mut supervisor = address.channel(pair.token()).await?.supervisor();
    let session = CreateSessionRequest {
        request_id: troupe_client::request_id(),
        cwd: project.to_string_lossy().into_owned(),
        ..CreateSessionRequest::default()
    };
    let session = supervisor.create_session(session).await?.into_inner();
    let session = session.session.unwrap_or_default().session_id;
    let begun = Instant::now();
    let spawn = SpawnAgentRequest {
        request_id: troupe_client::request_id(),
        session_id: session.clone(),
        agent_type: ROLE.to_owned(),
        message: Some(PROMPT.to_owned()),
        ..SpawnAgentRequest::default()
    };
    let spawned = supervisor.spawn_agent(spawn).await?.into_inner();
    let thread = spawned.thread.unwrap_or_default().thread_id;
    let waited = waiting::wait(&mut supervisor, &session, vec![thread], TIMEOUT, false).await?;
    let status = waited.settled.into_iter().find_map(|settled| settled.status);
    let Some(status) = status else {
        return Err(Error::failure(format!("the turn did not end within {TIMEOUT:?}"))
            .hint("start the program without Troupe and check whether its provider answers"));
    };
    verdict(&status).map(|message| Answer {
        message,
        took: begun.elapsed(),
    })
}

/// Returns the agent's answer, or an error if the turn did not complete.
fn verdict(status: &Status) -> Result<String> {
    let message: String = sanitize::line(&status.message).chars().take(MAX_SHOWN).collect();
    match status.kind() {
        StatusKind::Completed => Ok(message),
        kind => Err(
            Error::failure(format!("the turn is {}: {message}", names::status_kind(kind)))
                .hint("start the program without Troupe and check whether it is logged in and its provider answers"),
        ),
    }
}
