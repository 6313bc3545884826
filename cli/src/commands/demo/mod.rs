//! `troupe demo`: plays a complete delegation and verifies the observed events.

mod checks;
mod environment;
mod project;
mod script;

use std::{fs, path::Path};

use serde_json::json;
use svc_kit::shutdown::Signals;
use tempfile::TempDir;
use tonic::Request;
use troupe_client::{
    Registry, Supervisor,
    follow::{Follow, ThreadWatch},
};
use troupe_proto::{
    registry::v1::{Agent, ListAgentsRequest},
    supervisor::v1::{
        CloseAgentRequest, CreateSessionRequest, Session, SpawnAgentRequest, StatusKind, WatchThreadsRequest,
        event::Kind,
    },
};

use self::{
    checks::{Cast, Check, Evidence},
    environment::{DemoEnvironment, Seen},
};
use crate::{
    commands::top,
    context::Context,
    error::{Error, Result},
    listing,
    pair::{self, Pair, PairOptions, RunnerOptions},
    ui::{self, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe demo
  troupe demo --keep
  troupe demo --output json | jq -c 'select(.check)'

In a terminal, `troupe top` opens while the agents run; `q` continues the demo. The project, the
home and the data are in a temporary directory.";

/// The arguments of `demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Keep the temporary directory and print its path
    #[arg(long)]
    keep: bool,
}

/// Plays the demo. Succeeds only if all claims were observed.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    pair::init_logging("error")?;
    let mut signals = Signals::listen()?;
    let directory = tempfile::Builder::new().prefix("troupe-demo-").tempdir()?;
    let played = tokio::select! {
        played = Box::pin(in_directory(directory.path(), context)) => played,
        () = signals.next() => Err(Error::failure("interrupted")),
    };
    clean(directory, args.keep, context);
    let failed = played?.iter().filter(|check| !check.holds()).count();
    match failed {
        0 => Ok(()),
        1 => Err(Error::failure("one claim was not observed")),
        several => Err(Error::failure(format!("{several} claims were not observed"))),
    }
}

fn clean(directory: TempDir, keep: bool, context: &Context) {
    if keep {
        context.ui.note(format!("kept: {}", directory.keep().display()));
    } else if let Err(error) = directory.close() {
        context
            .ui
            .note(format!("{} {error}", style::paint(style::WARN, "cannot clean up:")));
    }
}

/// Starts a pair in the directory, plays the demo and always stops the pair.
async fn in_directory(directory: &Path, context: &Context) -> Result<Vec<Check>> {
    let project = directory.join("project");
    fs::create_dir(directory.join("home"))?;
    fs::create_dir(&project)?;
    project::create(&project).await?;
    let pair = Pair::start(PairOptions::temporary(directory, RunnerOptions::default())).await?;
    let played = play(&pair, &project, context).await;
    let stopped = pair.stop().await;
    let checks = played?;
    stopped.map(|_| checks)
}

/// Plays the demo in six acts.
async fn play(pair: &Pair, project: &Path, context: &Context) -> Result<Vec<Check>> {
    let of_pair = Context {
        global: pair.flags(&context.global),
        ui: context.ui.clone(),
    };
    let mut registry = of_pair.registry().await?;
    let mut supervisor = of_pair.supervisor().await?;
    context.ui.note(style::paint(
        style::DIM,
        format_args!(
            "registry {}, supervisor {}, project {}",
            pair.registry(),
            pair.supervisor(),
            project.display()
        ),
    ));

    let cwd = project.to_string_lossy().into_owned();
    let explorer = projects_explorer(&mut registry, &cwd).await?;
    let session = open_session(&mut supervisor, &cwd).await?;
    // Watches from the beginning, so that the sequence numbers can be checked from 1.
    let watch = WatchThreadsRequest {
        session_id: session.session_id.clone(),
        after_sequence: Some(0),
        include_closed: true,
        ..WatchThreadsRequest::default()
    };
    let mut environment = DemoEnvironment::new(context, Follow::new(supervisor.clone(), ThreadWatch::new(watch)));

    environment.announce("A session with four agents; two of them have agents of their own")?;
    let cast = cast_all(&mut environment, &mut supervisor, &session).await?;
    let settled = |seen: &Seen| {
        [&cast.finder, &cast.delegator, &cast.worker]
            .into_iter()
            .all(|id| is_settled(seen, id))
    };
    environment
        .until("both orchestrators and the worker have settled", settled)
        .await?;
    environment
        .until("the reviewer runs", |seen| {
            status_of(seen, &cast.holder) == Some(StatusKind::Running)
        })
        .await?;

    if context.ui.is_text() {
        environment.announce("`troupe top` shows them on one screen")?;
        environment.finish();
        Box::pin(top::run(top::Args::default(), &of_pair)).await?;
    }

    environment.announce("An operator tries to spawn below the deepest agent")?;
    let refusal = spawn_too_deep(&mut environment, &mut supervisor, &session, &cast).await?;

    environment.announce("The root is closed, and with it everything, leaf first")?;
    let close = CloseAgentRequest {
        request_id: troupe_client::request_id(),
        session_id: session.session_id.clone(),
        thread_id: session.root_thread_id.clone(),
        wait: true,
        reason: "the demo is over".to_owned(),
        ..CloseAgentRequest::default()
    };
    let mut closer = supervisor.clone();
    environment.during(closer.close_agent(Request::new(close))).await??;
    environment
        .until("the session is closed", |seen| seen.view.is_closed())
        .await?;
    environment.finish();

    let listed = listing::threads(&mut supervisor, &session.session_id, true).await?;
    let evidence = Evidence {
        cast: &cast,
        explorer: explorer.as_ref(),
        operator_refusal: refusal.as_ref(),
        listed: &listed,
    };
    report(environment.seen(), &evidence, context)
}

async fn projects_explorer(registry: &mut Registry, cwd: &str) -> Result<Option<Agent>> {
    let request = ListAgentsRequest {
        cwd: cwd.to_owned(),
        agent_type: Some("explorer".to_owned()),
        expanded: true,
        ..ListAgentsRequest::default()
    };
    let listed = registry.list_agents(Request::new(request)).await?.into_inner();
    Ok(listed.agents.into_iter().next())
}

/// Opens a session. Its root has no input, so no program runs it.
async fn open_session(supervisor: &mut Supervisor, cwd: &str) -> Result<Session> {
    let request = CreateSessionRequest {
        request_id: troupe_client::request_id(),
        cwd: cwd.to_owned(),
        ..CreateSessionRequest::default()
    };
    let answer = supervisor.create_session(Request::new(request)).await?.into_inner();
    answer
        .session
        .ok_or_else(|| Error::failure("the supervisor returned no session"))
}

async fn cast_all(
    environment: &mut DemoEnvironment<'_>,
    supervisor: &mut Supervisor,
    session: &Session,
) -> Result<Cast> {
    let mut ids = Vec::with_capacity(4);
    for (agent_type, agent_name, label, message) in [
        ("orchestrator", "", "finder", script::finder()),
        ("orchestrator", "", "delegator", script::delegator()),
        ("worker", "", "worker", script::worker()),
        ("reviewer", "strict", "critic", script::holder()),
    ] {
        let request = SpawnAgentRequest {
            request_id: troupe_client::request_id(),
            session_id: session.session_id.clone(),
            message: Some(message),
            agent_type: agent_type.to_owned(),
            agent_name: agent_name.to_owned(),
            label: label.to_owned(),
            ..SpawnAgentRequest::default()
        };
        let spawned = environment
            .during(supervisor.spawn_agent(Request::new(request)))
            .await??
            .into_inner();
        ids.push(spawned.thread.unwrap_or_default().thread_id);
    }
    let [finder, delegator, worker, holder] =
        <[String; 4]>::try_from(ids).map_err(|_| Error::failure("the supervisor returned no threads"))?;
    Ok(Cast {
        root: session.root_thread_id.clone(),
        finder,
        delegator,
        worker,
        holder,
    })
}

/// Spawns below the grandchild as an operator. Returns the error, or `None` if the spawn succeeded.
async fn spawn_too_deep(
    environment: &mut DemoEnvironment<'_>,
    supervisor: &mut Supervisor,
    session: &Session,
    cast: &Cast,
) -> Result<Option<Error>> {
    let threads = environment.seen().view.threads();
    let grandchild = threads.iter().find(|thread| thread.parent_thread_id == cast.delegator);
    let request = SpawnAgentRequest {
        request_id: troupe_client::request_id(),
        session_id: session.session_id.clone(),
        parent_thread_id: grandchild.map(|thread| thread.thread_id.clone()).unwrap_or_default(),
        message: Some("One more level.".to_owned()),
        agent_type: "explorer".to_owned(),
        ..SpawnAgentRequest::default()
    };
    let refusal = environment
        .during(supervisor.spawn_agent(Request::new(request)))
        .await?
        .err()
        .map(Error::from);
    if let Some(refusal) = &refusal {
        environment.announce(&format!(
            "  refused: {} ({})",
            refusal.message(),
            refusal.reason().unwrap_or("no reason")
        ))?;
    }
    Ok(refusal)
}

fn status_of(seen: &Seen, id: &str) -> Option<StatusKind> {
    seen.view.thread(id).map(ui::status_of)
}

fn is_settled(seen: &Seen, id: &str) -> bool {
    matches!(
        status_of(seen, id),
        Some(StatusKind::Completed | StatusKind::Errored | StatusKind::Interrupted | StatusKind::Shutdown)
    )
}

/// Displays the closing order and the result of every check.
fn report(seen: &Seen, evidence: &Evidence<'_>, context: &Context) -> Result<Vec<Check>> {
    let checks = checks::all(seen, evidence);
    if !context.ui.is_text() {
        for check in &checks {
            context.ui.value(&check.to_json())?;
        }
        let observed = checks.iter().all(Check::holds);
        context.ui.value(&json!({ "observed_everything": observed }))?;
        return Ok(checks);
    }
    let closed = seen
        .events
        .iter()
        .filter(|event| matches!(event.kind, Some(Kind::ThreadClosed(_))));
    let order: Vec<String> = closed
        .filter_map(|event| seen.view.thread(&event.thread_id))
        .map(|thread| crate::sanitize::line(&ui::role(thread)))
        .collect();
    context.ui.line(format!(
        "\n{} {}",
        style::paint(style::HEADING, "Closed in this order:"),
        order.join(" → ")
    ))?;
    context
        .ui
        .line(format!("\n{}", style::paint(style::HEADING, "Observed:")))?;
    for check in &checks {
        context.ui.line(check.to_text())?;
    }
    Ok(checks)
}
