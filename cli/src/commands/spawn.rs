//! `troupe spawn`: spawns an agent in an existing session or in a new one.

use std::time::Duration;

use serde_json::json;
use tonic::Request;
use troupe_proto::{
    common::v1::Mode,
    supervisor::v1::{
        CloseSessionRequest, CreateSessionRequest, OnLimit, Orchestration, SpawnAgentRequest, SpawnAgentResponse,
        Status, StatusKind, WakePolicy,
    },
};

use crate::{
    client::{self, Supervisor},
    content::{self, LastMessage},
    context::Context,
    error::{Error, Result},
    ids, json, message, names,
    options::{ProjectArgs, SpawnBudget},
    sanitize, time,
    ui::{self, Line, style},
    waiting,
    workspace::Workspace,
};

const AFTER_HELP: &str = "\
Examples:
  troupe spawn explorer -m 'Where is the main function?' --wait
  troupe spawn reviewer --agent-name strict -m 'Review the last commit' --session 0000aa01
  troupe spawn worker -m 'Fix the build' --supervisor http://10.0.0.7:50052 --registry http://10.0.0.7:50051
  troupe spawn scribe -m 'Write the release notes' --no-cwd
  troupe spawn --template orchestrator -m 'Ship the release' --auto --budget-tokens 500000
  troupe spawn --route 'Review the last commit for leaks'
  git diff | troupe spawn bug-hunter -m - --queue";

/// The arguments of `spawn`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The role; without one the agent inherits everything from its parent
    #[arg(value_name = "TYPE")]
    agent_type: Option<String>,
    /// A graph template in the role's place: `troupe agents --graph` lists them
    #[arg(long, value_name = "NAME", conflicts_with = "agent_type")]
    template: Option<String>,
    /// What to do; `-` reads standard input
    #[arg(short, long, value_name = "TEXT", required_unless_present = "route")]
    message: Option<String>,
    /// What to do, in the place of --message; the registry chooses the role by the names and keywords in it
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["message", "template"])]
    route: Option<String>,
    /// The session; without it a new one is opened for the current directory
    #[arg(long, value_name = "ID", conflicts_with = "no_cwd")]
    session: Option<String>,
    /// The parent [default: the root of the session]
    #[arg(long, requires = "session", value_name = "ID")]
    parent: Option<String>,
    /// The persona
    #[arg(long, value_name = "NAME")]
    agent_name: Option<String>,
    /// The model, over what persona and role say
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// The model's provider, over what persona and role say; a runner picks its program by it
    #[arg(long, value_name = "PROVIDER")]
    provider: Option<String>,
    /// The reasoning effort, over what persona and role say
    #[arg(long, value_name = "EFFORT")]
    effort: Option<String>,
    /// A short label for people
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// A name that is unique in the session
    #[arg(long, value_name = "NAME")]
    alias: Option<String>,
    /// A note for people
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Where the agent works, and what a new session is about
    #[command(flatten)]
    project: ProjectArgs,
    /// Refuse unless the template's SHA-256 is this one
    #[arg(long, value_name = "SHA256")]
    digest: Option<String>,
    /// What it may spend
    #[command(flatten)]
    budget: SpawnBudget,
    /// Whether mail gives it a turn of its own when it is settled [default: never]
    #[arg(long, value_enum, value_name = "WHEN")]
    wake: Option<Wake>,
    /// Open the new session for planning: its repository is read-only except docs/
    #[arg(long, conflicts_with = "session")]
    planning: bool,
    /// Keep the new session's orchestrators going until they say that they are done
    #[arg(long, conflicts_with = "session")]
    auto: bool,
    /// Wait in the queue when no slot is free, instead of failing
    #[arg(long)]
    queue: bool,
    /// Wait for the end of the turn and print the agent's last message
    #[arg(long)]
    wait: bool,
    /// How long to wait at most
    #[arg(long, value_name = "SPAN", default_value = "30m", value_parser = time::parse_some_duration, requires = "wait")]
    timeout: Duration,
}

/// When mail wakes a settled agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Wake {
    /// When its last turn completed
    OnIdle,
    /// However its last turn ended
    Always,
}

impl From<Wake> for WakePolicy {
    fn from(wake: Wake) -> Self {
        match wake {
            Wake::OnIdle => Self::OnIdle,
            Wake::Always => Self::Always,
        }
    }
}

/// Spawns an agent. Waits for it if requested.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let given = args.route.as_deref().or(args.message.as_deref());
    let message = message::read(given.unwrap_or_default())?;
    let mut supervisor = context.supervisor().await?;
    let session = match &args.session {
        Some(text) => ids::session(&mut supervisor, text).await?,
        None => open_session(&mut supervisor, &args, context).await?,
    };
    let parent = match &args.parent {
        Some(text) => ids::thread(&mut supervisor, text, Some(&session)).await?,
        None => String::new(),
    };
    let (wait, timeout, own_session) = (args.wait, args.timeout, args.session.is_none());
    let request = request(args, session.clone(), parent, message)?;
    let spawned = match supervisor.spawn_agent(Request::new(request)).await {
        Ok(spawned) => spawned.into_inner(),
        Err(refused) => {
            if own_session {
                close_session(&mut supervisor, &session).await;
            }
            return Err(refused.into());
        }
    };
    if let Some(route) = &spawned.route {
        context.ui.note(format!(
            "route   {} {}",
            style::paint(style::NAME, &sanitize::line(&route.agent_type)),
            sanitize::line(&route.reason)
        ));
    }
    for warning in &spawned.warnings {
        context.ui.note(format!(
            "{} {}",
            style::paint(style::WARN, "warning:"),
            sanitize::line(warning)
        ));
    }
    if wait {
        return wait_for(&mut supervisor, &session, &spawned, timeout, context).await;
    }
    context.ui.answer(|| to_json(&session, &spawned), || text(&spawned))
}

async fn open_session(supervisor: &mut Supervisor, args: &Args, context: &Context) -> Result<String> {
    let cwd = args.project.cwd()?;
    let mode = if args.planning {
        Mode::Planning
    } else {
        Mode::Unspecified
    };
    let orchestration = if args.auto {
        Orchestration::Auto
    } else {
        Orchestration::Unspecified
    };
    let mut workspace = Workspace::around(&cwd, context)?;
    let answer = workspace
        .ask(context, async |workspace_digest: String| {
            let request = CreateSessionRequest {
                request_id: client::request_id(),
                cwd: cwd.clone(),
                workspace_digest,
                mode: mode.into(),
                orchestration: orchestration.into(),
                ..CreateSessionRequest::default()
            };
            supervisor.create_session(Request::new(request)).await
        })
        .await?;
    let session = answer
        .session
        .ok_or_else(|| Error::failure("the supervisor answered no session"))?;
    context
        .ui
        .note(format!("session {}", style::paint(style::NAME, &session.session_id)));
    Ok(session.session_id)
}

/// Closes a session that was opened for a rejected spawn and is not used otherwise. A failure to close it is not
/// reported.
async fn close_session(supervisor: &mut Supervisor, session: &str) {
    let request = CloseSessionRequest {
        request_id: client::request_id(),
        session_id: session.to_owned(),
        wait: true,
        ..CloseSessionRequest::default()
    };
    let _ = supervisor.close_session(Request::new(request)).await;
}

fn request(args: Args, session_id: String, parent_thread_id: String, message: String) -> Result<SpawnAgentRequest> {
    // A new session already has this directory.
    let working_directory = match &args.session {
        Some(_) if args.project.is_given() => args.project.cwd()?,
        Some(_) | None => String::new(),
    };
    let on_limit = if args.queue { OnLimit::Queue } else { OnLimit::Refuse };
    Ok(SpawnAgentRequest {
        request_id: client::request_id(),
        session_id,
        parent_thread_id,
        message: Some(message),
        auto_route: args.route.is_some(),
        agent_type: args.agent_type.unwrap_or_default(),
        role_template: args.template.unwrap_or_default(),
        agent_name: args.agent_name.unwrap_or_default(),
        model: args.model.unwrap_or_default(),
        provider: args.provider.unwrap_or_default(),
        reasoning_effort: args.effort.unwrap_or_default(),
        expected_digest: args.digest.unwrap_or_default(),
        thread_note: args.note,
        label: args.label.unwrap_or_default(),
        alias: args.alias.unwrap_or_default(),
        working_directory,
        on_limit: on_limit.into(),
        budget: args.budget.given(),
        wake_policy: args.wake.map_or(WakePolicy::Unspecified, WakePolicy::from).into(),
        ..SpawnAgentRequest::default()
    })
}

fn to_json(session: &str, spawned: &SpawnAgentResponse) -> serde_json::Value {
    let mut value = json::message(spawned);
    value["session_id"] = json!(session);
    value
}

fn text(spawned: &SpawnAgentResponse) -> Line {
    let Some(thread) = &spawned.thread else {
        return Line::default().mark(style::PLAIN, "spawned");
    };
    let kind = ui::status_of(thread);
    let queue = match spawned.queue_position {
        0 => String::new(),
        place => format!("place {place} in the queue"),
    };
    Line::default()
        .mark(style::PLAIN, thread.thread_id.clone())
        .word(style::NAME, ui::role(thread))
        .word(style::of_status(kind), names::status_kind(kind))
        .word(style::DIM, queue)
}

async fn wait_for(
    supervisor: &mut Supervisor,
    session: &str,
    spawned: &SpawnAgentResponse,
    timeout: Duration,
    context: &Context,
) -> Result<()> {
    let thread = spawned
        .thread
        .as_ref()
        .ok_or_else(|| Error::failure("the supervisor answered no thread"))?;
    let id = thread.thread_id.clone();
    context.ui.note(format!(
        "thread  {} {}",
        style::paint(style::NAME, &id),
        sanitize::line(&ui::role(thread))
    ));
    let waited = waiting::wait(supervisor, session, vec![id.clone()], timeout, false).await?;
    let Some(status) = waited.settled.into_iter().find_map(|settled| settled.status) else {
        if !context.ui.is_text() {
            context.ui.value(&to_json(session, spawned))?;
        }
        return Err(Error::timeout(format!("thread {id} is still running"))
            .hint(format!("`troupe wait {id}` waits again, `troupe close {id}` closes it")));
    };
    let message = content::last_message(supervisor, session, &status).await?;
    context.ui.answer(
        || {
            let mut answer = to_json(session, spawned);
            answer["status"] = json::message(&status);
            answer["message"] = json!(message.text());
            answer["message_extent"] = json!(message.extent());
            answer
        },
        || sanitize::block(message.text()),
    )?;
    verdict(&id, &status)?;
    match message {
        LastMessage::Whole(_) => Ok(()),
        LastMessage::NotKept(_) => {
            context.ui.note(format!(
                "{} this is the beginning of the message only: the whole is not kept, mostly since the session had no \
                 room for it; go on in a new session, or raise --session-content-bytes",
                style::paint(style::WARN, "warning:")
            ));
            Ok(())
        }
        LastMessage::Lost { why, .. } => Err(why.context(format!(
            "the whole last message of thread {id} is lost, and this is its beginning"
        ))),
    }
}

/// Returns an error unless the settled thread is completed or shut down.
pub(crate) fn verdict(id: &str, status: &Status) -> Result<()> {
    match status.kind() {
        StatusKind::Completed | StatusKind::Shutdown => Ok(()),
        kind => {
            let name = names::status_kind(kind);
            let why = if status.reason.is_empty() {
                &status.message
            } else {
                &status.reason
            };
            Err(
                Error::agent_failed(sanitize::line(&format!("thread {id} is {name}: {why}")))
                    .hint(format!("`troupe watch {id} --after 0` shows its events")),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_completed_and_closed_threads_are_a_success() {
        let status = |kind: StatusKind| Status {
            kind: kind.into(),
            message: "why\u{1b}[2J".to_owned(),
            ..Status::default()
        };
        assert!(verdict("t", &status(StatusKind::Completed)).is_ok());
        assert!(verdict("t", &status(StatusKind::Shutdown)).is_ok());
        let error = verdict("t", &status(StatusKind::Errored)).map_err(|error| error.message().to_owned());
        assert_eq!(error, Err("thread t is ERRORED: why[2J".to_owned()));
    }
}
