//! `troupe spawn`: spawns an agent in an existing session or in a new one.

use std::time::Duration;

use clap_complete::ArgValueCompleter;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use troupe_client::Supervisor;
use troupe_proto::{
    common::v1::{EdgeManagement, Namespace},
    reason::Reason,
    registry::v1::ListAgentsRequest,
    supervisor::v1::{
        ClosePolicy, CloseSessionRequest, CreateSessionRequest, DeleteSessionRequest, InputItem, NamedPath, OnLimit,
        SpawnAgentRequest, SpawnAgentResponse, Status, StatusKind, WakePolicy, input_item::Item,
    },
};

use crate::{
    choices, complete,
    content::{self, LastMessage},
    context::Context,
    error::{Error, Result},
    ids, json,
    message::{self, TextArgs},
    names,
    options::{ProjectArgs, ResultArgs, SpawnBudget},
    sanitize,
    session_settings::{SessionSettings, ceiling},
    suggest, time,
    ui::{self, Line, style},
    waiting,
    workspace::create_session,
};

const AFTER_HELP: &str = "\
Examples:
  troupe spawn explorer 'Where is the main function?' --wait
  troupe spawn reviewer --agent-name strict 'Review the last commit' --session 0000aa01
  troupe spawn worker 'Fix the build' --supervisor http://10.0.0.7:50052 --registry http://10.0.0.7:50051
  troupe spawn scribe --file notes.md --no-cwd
  troupe spawn --template orchestrator 'Ship the release' --auto --budget-tokens 500000
  troupe spawn --route 'Review the last commit for leaks'
  troupe spawn reviewer 'Review src/' --schema findings.json --wait
  git diff | troupe spawn bug-hunter - --queue";

/// The arguments of `spawn`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Role; without a role the agent inherits its parent's instructions
    #[arg(value_name = "ROLE", add = ArgValueCompleter::new(complete::roles))]
    agent_type: Option<String>,
    /// The task.
    #[command(flatten)]
    text: TextArgs,
    /// Graph template instead of a role; `troupe agents --graph` lists them
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
    /// Task; the registry selects the role by the names and keywords in it
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["agent_type", "text", "message", "file", "template"])]
    route: Option<String>,
    /// Session [default: a new session for the current directory]
    #[arg(long, value_name = "SESSION", conflicts_with = "no_cwd")]
    session: Option<String>,
    /// Parent thread, which determines the session [default: the root of the session]
    #[arg(long, value_name = "THREAD")]
    parent: Option<String>,
    /// Persona of the role
    #[arg(long, value_name = "NAME")]
    agent_name: Option<String>,
    /// Model; wins over persona and role
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Model provider; wins over persona and role
    #[arg(long, value_name = "PROVIDER")]
    provider: Option<String>,
    /// Reasoning effort; wins over persona and role
    #[arg(long, value_name = "EFFORT")]
    effort: Option<String>,
    /// Short label for people [default: the first line of the task]
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// Name that is unique in the session
    #[arg(long, value_name = "NAME")]
    alias: Option<String>,
    /// Note for people
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// The directory of the agent and of a new session.
    #[command(flatten)]
    project: ProjectArgs,
    /// SHA-256 that the template must have
    #[arg(long, value_name = "SHA256")]
    digest: Option<String>,
    /// The budget.
    #[command(flatten)]
    budget: SpawnBudget,
    /// Start a turn when mail arrives for the settled agent [default: none]
    #[arg(long, value_name = "WHEN", value_parser = choices::wake_policy())]
    wake: Option<WakePolicy>,
    /// Queue the thread if no slot is free
    #[arg(long)]
    queue: bool,
    /// Wait for the end of the turn and print the agent's last message
    #[arg(long)]
    wait: bool,
    /// Maximum wait
    #[arg(long, value_name = "SPAN", default_value = "30m", value_parser = time::parse_some_duration, requires = "wait")]
    timeout: Duration,
    /// The requested result.
    #[command(flatten)]
    result: ResultArgs,
    /// The task in detail.
    #[command(flatten)]
    details: Details,
    /// The settings of a new session.
    #[command(flatten)]
    settings: SessionSettings,
}

/// Rarely used settings of a spawn.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Details")]
struct Details {
    /// Objective in the task block of the prompt
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    objective: String,
    /// Definition of done in the task block of the prompt
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    done_when: String,
    /// Text that replaces the task block for one turn
    #[arg(
        long = "override",
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    override_text: String,
    /// System prompt that replaces the role's instructions; `-` reads standard input
    #[arg(long, value_name = "TEXT")]
    system_prompt: Option<String>,
    /// Edges that the agent may manage; narrows what its template declares
    #[arg(long, value_name = "EDGES", value_parser = choices::edge_management())]
    edges: Option<EdgeManagement>,
    /// Capability of the template that the agent keeps [default: all]; may be repeated
    #[arg(long, value_name = "NAME")]
    capability: Vec<String>,
    /// Tools that the agent may use at most, as patterns; may be repeated
    #[arg(long, value_name = "PATTERN")]
    permit: Vec<String>,
    /// Tools that the agent may not use, as patterns; may be repeated
    #[arg(long, value_name = "PATTERN")]
    forbid: Vec<String>,
    /// End of a running turn when the thread is closed
    #[arg(long, value_name = "HOW", value_parser = choices::close_policy())]
    close_policy: Option<ClosePolicy>,
    /// Image on the runner's machine that belongs to the task; may be repeated
    #[arg(long, value_name = "PATH")]
    image: Vec<String>,
    /// Skill that the agent shall use; may be repeated
    #[arg(long, value_name = "NAME=PATH", value_parser = crate::options::key_value)]
    skill: Vec<(String, String)>,
    /// File or app that the task mentions; may be repeated
    #[arg(long, value_name = "NAME=PATH", value_parser = crate::options::key_value)]
    mention: Vec<(String, String)>,
    /// Return the thread's token
    #[arg(long)]
    return_token: bool,
}

impl Args {
    /// Returns whether the command opens a session for the agent.
    const fn opens_session(&self) -> bool {
        self.session.is_none() && self.parent.is_none()
    }
}

/// Spawns an agent. Waits for it if requested.
pub(crate) async fn run(mut args: Args, context: &Context) -> Result<()> {
    // With a template, the only positional argument is the task.
    if args.template.is_some() && !args.text.is_given() {
        args.text.text = args.agent_type.take();
    }
    if args.template.is_some() && args.agent_type.is_some() {
        return Err(Error::usage("ROLE and --template are mutually exclusive; pass one"));
    }
    let is_own = args.opens_session();
    if !is_own && args.settings.is_given() {
        return Err(
            Error::usage("settings of a new session cannot be combined with --session or --parent")
                .hint("`troupe session update` changes the settings of a session"),
        );
    }
    let task = match &args.route {
        Some(text) => message::read(text)?,
        None => args.text.read()?,
    };
    let mut supervisor = context.supervisor().await?;
    let (session, parent) = match (&args.session, &args.parent) {
        (Some(session), Some(parent)) => {
            let session = ids::session(&mut supervisor, session).await?;
            let parent = ids::thread(&mut supervisor, parent, Some(&session)).await?;
            (session, parent)
        }
        (Some(session), None) => (ids::session(&mut supervisor, session).await?, String::new()),
        (None, Some(parent)) => {
            let parent = ids::thread_in(&mut supervisor, parent).await?;
            (parent.session_id, parent.thread_id)
        }
        (None, None) => (open_session(&mut supervisor, &args, context).await?, String::new()),
    };
    let (wait, timeout) = (args.wait, args.timeout);
    let role = Wanted::of(&args);
    let request = request(args, session.clone(), parent, task)?;
    let spawned = match supervisor.spawn_agent(request).await {
        Ok(spawned) => spawned.into_inner(),
        Err(rejected) => {
            if is_own {
                remove_session(&mut supervisor, &session).await;
            }
            return Err(role.explain(rejected.into(), context).await);
        }
    };
    if is_own {
        context
            .ui
            .note(format!("session {}", style::paint(style::NAME, &session)));
    }
    if let Some(route) = &spawned.route {
        context.ui.note(format!(
            "route   {} {}",
            style::paint(style::NAME, &sanitize::line(&route.agent_type)),
            sanitize::line(&route.reason)
        ));
    }
    for warning in &spawned.warnings {
        context.ui.warn(warning);
    }
    if wait {
        return wait_for(&mut supervisor, &session, &spawned, timeout, context).await;
    }
    context.ui.answer(|| to_json(&session, &spawned), || text(&spawned))
}

/// The role or template of a spawn, for suggestions.
struct Wanted {
    name: String,
    namespace: Namespace,
    cwd: String,
}

impl Wanted {
    fn of(args: &Args) -> Self {
        let (name, namespace) = match &args.template {
            Some(template) => (template.clone(), Namespace::RoleTemplate),
            None => (args.agent_type.clone().unwrap_or_default(), Namespace::AgentType),
        };
        Self {
            name,
            namespace,
            cwd: args.project.cwd().unwrap_or_default(),
        }
    }

    /// Adds the most similar role to an error about an unknown role. A failure to list the roles is ignored.
    async fn explain(&self, error: Error, context: &Context) -> Error {
        if error.reason() != Some(Reason::TemplateNotFound.as_str()) {
            return error;
        }
        let request = ListAgentsRequest {
            cwd: self.cwd.clone(),
            namespace: self.namespace.into(),
            allow_partial: true,
            ..ListAgentsRequest::default()
        };
        let Ok(mut registry) = context.registry().await else {
            return error;
        };
        let Ok(listed) = registry.list_agents(request).await else {
            return error;
        };
        let listed = listed.into_inner();
        let names = listed.agents.iter().map(|agent| agent.agent_type.as_str());
        match suggest::closest(&self.name, names) {
            Some(similar) => {
                let hint = format!(
                    "did you mean \"{}\"? `troupe agents` lists the roles",
                    sanitize::line(similar)
                );
                error.hint(hint)
            }
            None => error,
        }
    }
}

async fn open_session(supervisor: &mut Supervisor, args: &Args, context: &Context) -> Result<String> {
    let request = CreateSessionRequest {
        cwd: args.project.cwd()?,
        ..args.settings.clone().request()?
    };
    let answer = create_session(supervisor, request, context).await?;
    Ok(answer.session.ok_or_else(Error::empty_answer)?.session_id)
}

/// Closes and deletes a session that was opened for a rejected spawn. A failure is not reported.
pub(super) async fn remove_session(supervisor: &mut Supervisor, session: &str) {
    let close = CloseSessionRequest {
        request_id: troupe_client::request_id(),
        session_id: session.to_owned(),
        wait: true,
        ..CloseSessionRequest::default()
    };
    let _ = supervisor.close_session(close).await;
    let delete = DeleteSessionRequest {
        request_id: troupe_client::request_id(),
        session_id: session.to_owned(),
    };
    let _ = supervisor.delete_session(delete).await;
}

fn request(args: Args, session_id: String, parent_thread_id: String, task: String) -> Result<SpawnAgentRequest> {
    // A new session already has this directory.
    let working_directory = if args.project.is_given() && !args.opens_session() {
        args.project.cwd()?
    } else {
        String::new()
    };
    let on_limit = if args.queue { OnLimit::Queue } else { OnLimit::Refuse };
    let details = args.details;
    let label = args.label.unwrap_or_else(|| message::label(&task));
    let items = items(&task, details.image, details.skill, details.mention);
    Ok(SpawnAgentRequest {
        request_id: troupe_client::request_id(),
        session_id,
        parent_thread_id,
        message: items.is_empty().then_some(task),
        items,
        auto_route: args.route.is_some(),
        agent_type: args.agent_type.unwrap_or_default(),
        role_template: args.template.unwrap_or_default(),
        agent_name: args.agent_name.unwrap_or_default(),
        model: args.model.unwrap_or_default(),
        provider: args.provider.unwrap_or_default(),
        reasoning_effort: args.effort.unwrap_or_default(),
        expected_digest: args.digest.unwrap_or_default(),
        thread_note: args.note,
        label,
        alias: args.alias.unwrap_or_default(),
        working_directory,
        on_limit: on_limit.into(),
        budget: args.budget.given(),
        wake_policy: args.wake.unwrap_or_default().into(),
        objective: details.objective,
        definition_of_done: details.done_when,
        r#override: details.override_text,
        custom_system_prompt: details
            .system_prompt
            .as_deref()
            .map_or(Ok(String::new()), message::read)?,
        edge_management: details.edges.unwrap_or_default().into(),
        capabilities: details.capability,
        permissions: ceiling(details.permit, details.forbid),
        close_policy: details.close_policy.unwrap_or_default().into(),
        return_token: details.return_token,
        result_schema: args.result.schema()?,
        result_repairs: args.result.repairs,
    })
}

/// Returns the input as items, or no items if the task is text only.
fn items(
    task: &str,
    images: Vec<String>,
    skills: Vec<(String, String)>,
    mentions: Vec<(String, String)>,
) -> Vec<InputItem> {
    if images.is_empty() && skills.is_empty() && mentions.is_empty() {
        return Vec::new();
    }
    let named = |(name, path): (String, String)| NamedPath { name, path };
    let images = images.into_iter().map(Item::LocalImage);
    let skills = skills.into_iter().map(|skill| Item::Skill(named(skill)));
    let mentions = mentions.into_iter().map(|mention| Item::Mention(named(mention)));
    std::iter::once(Item::Text(task.to_owned()))
        .chain(images)
        .chain(skills)
        .chain(mentions)
        .map(|item| InputItem { item: Some(item) })
        .collect()
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
    let thread = spawned.thread.as_ref().ok_or_else(Error::empty_answer)?;
    let id = thread.thread_id.clone();
    // Installed before the id is printed, so that every later Ctrl-C is reported.
    let mut interrupts = signal(SignalKind::interrupt())?;
    context.ui.note(format!(
        "thread  {} {}",
        style::paint(style::NAME, &id),
        sanitize::line(&ui::role(thread))
    ));
    let waited = tokio::select! {
        waited = waiting::wait(supervisor, session, vec![id.clone()], timeout, false) => waited?,
        _ = interrupts.recv() => {
            return Err(Error::interrupted(format!("the agent continues as thread {id}"))
                .hint(format!("`troupe wait {id}` waits for it, `troupe close {id}` closes it")));
        }
    };
    let settled = waited.settled.into_iter().next().unwrap_or_default();
    let Some(status) = settled.status else {
        if !context.ui.is_text() {
            context.ui.value(&to_json(session, spawned))?;
        }
        return Err(Error::timeout(format!("thread {id} is still running"))
            .hint(format!("`troupe wait {id}` waits again, `troupe close {id}` closes it")));
    };
    let message = content::last_message(supervisor, session, &status).await?;
    let document = settled.result.map(|result| result.document_json);
    context.ui.answer(
        || {
            let mut answer = to_json(session, spawned);
            answer["status"] = json::message(&status);
            answer["message"] = json!(message.text());
            answer["message_extent"] = json!(message.extent());
            if let Some(document) = &document {
                answer["result"] = serde_json::from_str(document).unwrap_or_default();
            }
            answer
        },
        || sanitize::block(document.as_deref().unwrap_or(message.text())),
    )?;
    verdict(&id, &status)?;
    match message {
        LastMessage::Whole(_) => Ok(()),
        LastMessage::NotKept(_) => {
            context.ui.warn(
                "the message is truncated, because the session had no room for all of it; use a new session, or raise \
                 --session-content-bytes",
            );
            Ok(())
        }
        LastMessage::Lost { why, .. } => Err(why.context(format!(
            "the last message of thread {id} is lost except for its beginning"
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
