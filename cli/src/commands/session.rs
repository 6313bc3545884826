//! `troupe session`: creates, lists, changes, closes and deletes sessions.

use std::time::{Duration, SystemTime};

use clap::Subcommand;
use clap_complete::ArgValueCompleter;
use serde_json::json;
use troupe_proto::{
    common::v1::{EdgeManagement, Mode},
    supervisor::v1::{
        CreateSessionRequest, DeleteSessionRequest, Limits, Orchestration, Session, UpdateSessionRequest,
        WatchSessionsRequest,
    },
};

use super::{close, show};
use troupe_client::{Supervisor, follow::Follow};

use crate::{
    choices, complete,
    context::Context,
    error::{Error, Result},
    follow::next_message,
    ids, json, listing,
    message::TextArgs,
    names,
    options::{self, NewBudget, ProjectArgs, budget_in_words},
    session_settings::SessionSettings,
    time,
    ui::{self, Cell, Line, Table, style},
    webhook::WebhookArgs,
    workspace::create_session,
};

const AFTER_HELP: &str = "\
Examples:
  troupe session list
  troupe session create --planning --session-tokens 500000 --sandbox read-only
  troupe session pause 0000cc03
  troupe session budget @last --tokens 500000 --time 2h
  troupe session close 0000cc03 --wait && troupe session delete 0000cc03

SESSION is an id, the beginning or the end of one, or @last.";

/// An action on sessions.
#[derive(Debug, Subcommand)]
#[command(after_help = AFTER_HELP, disable_help_subcommand = true)]
pub(crate) enum Action {
    /// List sessions
    #[command(after_help = "Example: troupe session list --closed --label team=core")]
    List(ListArgs),
    /// Show a session with its settings and usage
    #[command(after_help = "Example: troupe session show @last")]
    Show(One),
    /// Open a session; with a task, its root is an agent
    #[command(after_help = "Example: troupe session create --planning --sandbox read-only --retention 24h")]
    Create(Box<CreateArgs>),
    /// Change settings of a session
    #[command(after_help = "Example: troupe session update 0000cc03 --max-threads 20 --mode planning")]
    Update(UpdateArgs),
    /// Follow sessions and the number of their threads by status
    #[command(after_help = "Example: troupe session watch --label team=core")]
    Watch(ListArgs),
    /// Pause a session: no turn and no spawn starts; running turns finish
    #[command(after_help = "Example: troupe session pause 0000cc03")]
    Pause(One),
    /// Resume a paused session
    #[command(after_help = "Example: troupe session resume 0000cc03")]
    Resume(One),
    /// Set the mode of a session
    #[command(after_help = "Example: troupe session mode 0000cc03 planning")]
    Mode {
        #[command(flatten)]
        one: One,
        /// Mode
        #[arg(value_name = "MODE", value_parser = choices::mode())]
        mode: Mode,
    },
    /// Set whether the supervisor starts further turns of orchestrators
    #[command(after_help = "Example: troupe session orchestration 0000cc03 auto")]
    Orchestration {
        #[command(flatten)]
        one: One,
        /// Turns of orchestrators: on request, or until they report completion
        #[arg(value_name = "WHEN", value_parser = choices::orchestration())]
        orchestration: Orchestration,
    },
    /// Set the edges that threads of graph templates may manage at most
    #[command(after_help = "Example: troupe session edges 0000cc03 none")]
    Edges {
        #[command(flatten)]
        one: One,
        /// Edges that threads of graph templates may manage at most
        #[arg(value_name = "EDGES", value_parser = choices::edge_management())]
        edges: EdgeManagement,
    },
    /// Set the budget of a session; bounds that are not given do not change
    #[command(after_help = "Example: troupe session budget 0000cc03 --tokens 500000 --turns 100")]
    Budget {
        #[command(flatten)]
        one: One,
        #[command(flatten)]
        budget: NewBudget,
    },
    /// Replace the receivers of notifications
    #[command(after_help = "Example: troupe session webhook 0000cc03 --webhook https://example.com/hook")]
    Webhook {
        #[command(flatten)]
        one: One,
        #[command(flatten)]
        webhooks: WebhookArgs,
        /// Remove all receivers
        #[arg(long, conflicts_with = "webhook", required_unless_present = "webhook")]
        none: bool,
    },
    /// Close a session with all its threads, leaf first
    #[command(after_help = "Example: troupe session close 0000cc03 --wait")]
    Close {
        #[command(flatten)]
        one: One,
        #[command(flatten)]
        manner: close::Manner,
    },
    /// Delete a closed session with all its content
    #[command(after_help = "Example: troupe session delete 0000cc03")]
    Delete(One),
    /// Delete all closed sessions
    #[command(after_help = "Example: troupe session prune --older-than 24h --dry-run")]
    Prune(PruneArgs),
}

/// A session.
#[derive(Debug, clap::Args)]
pub(crate) struct One {
    /// Session: an id, the beginning or the end of one, or @last
    #[arg(value_name = "SESSION", add = ArgValueCompleter::new(complete::sessions))]
    session: String,
}

/// The arguments of `session list` and `session watch`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Include closed sessions
    #[arg(long)]
    closed: bool,
    /// Sessions with this label only; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = options::key_value)]
    labels: Vec<(String, String)>,
}

/// The arguments of `session create`.
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// The task of the root.
    #[command(flatten)]
    text: TextArgs,
    /// Role of the root
    #[arg(long, value_name = "ROLE", default_value = "", hide_default_value = true)]
    role: String,
    /// Graph template of the root instead of a role
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "role",
        default_value = "",
        hide_default_value = true
    )]
    template: String,
    /// Let the registry select the root's role by the task
    #[arg(long, conflicts_with_all = ["role", "template"])]
    route: bool,
    /// Persona of the root
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    agent_name: String,
    /// Model of threads that name none
    #[arg(long, value_name = "MODEL", default_value = "", hide_default_value = true)]
    model: String,
    /// Model provider of threads that name none
    #[arg(long, value_name = "PROVIDER", default_value = "", hide_default_value = true)]
    provider: String,
    /// Reasoning effort of threads that name none
    #[arg(long, value_name = "EFFORT", default_value = "", hide_default_value = true)]
    effort: String,
    /// The project.
    #[command(flatten)]
    project: ProjectArgs,
    /// The settings.
    #[command(flatten)]
    settings: SessionSettings,
}

/// The arguments of `session update`.
#[derive(Debug, clap::Args)]
pub(crate) struct UpdateArgs {
    /// The session.
    #[command(flatten)]
    one: One,
    /// Mode
    #[arg(long, value_name = "MODE", value_parser = choices::mode())]
    mode: Option<Mode>,
    /// Turns of orchestrators: on request, or until they report completion
    #[arg(long, value_name = "WHEN", value_parser = choices::orchestration())]
    orchestration: Option<Orchestration>,
    /// Edges that threads of graph templates may manage at most
    #[arg(long, value_name = "EDGES", value_parser = choices::edge_management())]
    edges: Option<EdgeManagement>,
    /// Graph template whose threads need no approvals, replacing the present list; may be repeated
    #[arg(long, value_name = "TEMPLATE")]
    orchestrator: Vec<String>,
    /// Require approvals from all graph templates again
    #[arg(long, conflicts_with = "orchestrator")]
    no_orchestrators: bool,
    /// Maximum depth of the tree
    #[arg(long, value_name = "NUMBER")]
    max_depth: Option<u32>,
    /// Maximum number of active threads
    #[arg(long, value_name = "NUMBER")]
    max_threads: Option<u32>,
    /// Maximum number of open threads
    #[arg(long, value_name = "NUMBER")]
    max_open_threads: Option<u32>,
    /// Maximum number of threads in the session's lifetime
    #[arg(long, value_name = "NUMBER")]
    max_total_threads: Option<u32>,
}

/// The arguments of `session prune`.
#[derive(Debug, clap::Args)]
pub(crate) struct PruneArgs {
    /// Delete sessions only that have been closed for this long
    #[arg(long, value_name = "SPAN", value_parser = time::parse_duration, default_value = "0s")]
    older_than: Duration,
    /// Sessions with this label only; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = options::key_value)]
    labels: Vec<(String, String)>,
    /// List the sessions without deleting them
    #[arg(long)]
    dry_run: bool,
}

/// Runs the action.
pub(crate) async fn run(action: Action, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let change = UpdateSessionRequest::default;
    let (one, request) = match action {
        Action::List(args) => return list(&mut supervisor, args, context).await,
        Action::Show(one) => return show(&mut supervisor, &one, context).await,
        Action::Create(args) => return create(&mut supervisor, *args, context).await,
        Action::Watch(args) => return watch(&supervisor, args, context).await,
        Action::Close { one, manner } => {
            return close::close_session(&mut supervisor, &one.session, manner, context).await;
        }
        Action::Delete(one) => return delete(&mut supervisor, &one, context).await,
        Action::Prune(args) => return prune(&mut supervisor, args, context).await,
        Action::Update(args) => update_request(args),
        Action::Pause(one) => {
            let paused = Some(true);
            (one, UpdateSessionRequest { paused, ..change() })
        }
        Action::Resume(one) => {
            let paused = Some(false);
            (one, UpdateSessionRequest { paused, ..change() })
        }
        Action::Mode { one, mode } => {
            let mode = Some(mode.into());
            (one, UpdateSessionRequest { mode, ..change() })
        }
        Action::Orchestration { one, orchestration } => {
            let orchestration = Some(orchestration.into());
            let request = UpdateSessionRequest {
                orchestration,
                ..change()
            };
            (one, request)
        }
        Action::Edges { one, edges } => {
            let edge_management = Some(edges.into());
            let request = UpdateSessionRequest {
                edge_management,
                ..change()
            };
            (one, request)
        }
        Action::Budget { one, budget } => {
            let present = get(&mut supervisor, &one).await?;
            let budget = Some(budget.of(present.budget.as_ref()));
            (one, UpdateSessionRequest { budget, ..change() })
        }
        Action::Webhook { one, webhooks, .. } => {
            let request = UpdateSessionRequest {
                webhooks: webhooks.webhooks()?,
                replace_webhooks: true,
                ..change()
            };
            (one, request)
        }
    };
    update(&mut supervisor, &one, request, context).await
}

fn update_request(args: UpdateArgs) -> (One, UpdateSessionRequest) {
    let limits = Limits {
        max_depth: args.max_depth,
        max_threads: args.max_threads,
        max_open_threads: args.max_open_threads,
        max_total_threads: args.max_total_threads,
    };
    let request = UpdateSessionRequest {
        mode: args.mode.map(Into::into),
        orchestration: args.orchestration.map(Into::into),
        edge_management: args.edges.map(Into::into),
        replace_orchestrators: args.no_orchestrators || !args.orchestrator.is_empty(),
        orchestrators: args.orchestrator,
        limits: (limits != Limits::default()).then_some(limits),
        ..UpdateSessionRequest::default()
    };
    (args.one, request)
}

async fn get(supervisor: &mut Supervisor, one: &One) -> Result<Session> {
    let session_id = ids::session(supervisor, &one.session).await?;
    listing::session(supervisor, session_id).await
}

async fn show(supervisor: &mut Supervisor, one: &One, context: &Context) -> Result<()> {
    let session = get(supervisor, one).await?;
    context.ui.answer(
        || json!({ "session": json::message(&session) }),
        || show::session_fields(&session, SystemTime::now()),
    )
}

async fn list(supervisor: &mut Supervisor, args: ListArgs, context: &Context) -> Result<()> {
    let sessions = listing::sessions_with(supervisor, args.labels.into_iter().collect(), args.closed).await?;
    context.ui.table(
        || json!({ "sessions": json::list(&sessions) }),
        || table(&sessions, SystemTime::now()),
        "no sessions; `--closed` includes closed ones",
    )
}

fn table(sessions: &[Session], now: SystemTime) -> Table<8> {
    let mut table = Table::new([
        "SESSION",
        "STATE",
        "MODE",
        "AGE",
        "THREADS",
        "TOKENS",
        "COST",
        "DIRECTORY",
    ])
    .optional(&["MODE", "COST", "TOKENS"]);
    for session in sessions {
        let (look, state) = style::session_state(session);
        let roll_up = session.roll_up.clone().unwrap_or_default();
        let usage = roll_up.usage.unwrap_or_default();
        table.row([
            Cell::plain(ids::short(&session.session_id)),
            Cell::new(look, state),
            Cell::plain(names::mode(session.mode())),
            Cell::plain(time::age(session.create_time.as_ref(), now)),
            Cell::plain(roll_up.threads.iter().map(|count| count.count).sum::<u32>().to_string()),
            Cell::plain(ui::tokens(&usage)),
            Cell::plain(ui::cost(&usage)),
            Cell::plain(&session.cwd),
        ]);
    }
    table
}

async fn create(supervisor: &mut Supervisor, args: CreateArgs, context: &Context) -> Result<()> {
    let request = CreateSessionRequest {
        cwd: args.project.cwd()?,
        message: args.text.is_given().then(|| args.text.read()).transpose()?,
        agent_type: args.role,
        role_template: args.template,
        auto_route: args.route,
        agent_name: args.agent_name,
        model: args.model,
        provider: args.provider,
        reasoning_effort: args.effort,
        ..args.settings.request()?
    };
    let answer = create_session(supervisor, request, context).await?;
    let session = answer.session.ok_or_else(Error::empty_answer)?;
    context
        .ui
        .answer(|| json!({ "session": json::message(&session) }), || text(&session))
}

/// Follows the sessions until the process is interrupted. Reconnects after a disconnect.
async fn watch(supervisor: &Supervisor, args: ListArgs, context: &Context) -> Result<()> {
    let request = WatchSessionsRequest {
        labels: args.labels.into_iter().collect(),
        include_closed: args.closed,
    };
    let mut follow = Follow::new(supervisor.clone(), request);
    loop {
        let message = next_message(&mut follow, &context.ui).await?;
        if !context.ui.is_text() {
            context.ui.value(&json::message(&*message))?;
            continue;
        }
        let Some(session) = &message.session else { continue };
        let head = if message.removed {
            Line::default()
                .mark(style::PLAIN, ids::short(&session.session_id))
                .word(style::DIM, "removed")
        } else {
            text(session)
        };
        let threads = session.roll_up.as_ref().map(show::thread_counts).unwrap_or_default();
        let line = head.word(style::DIM, threads);
        context.ui.line(line.render(context.ui.columns()))?;
    }
}

/// Deletes the closed sessions.
async fn prune(supervisor: &mut Supervisor, args: PruneArgs, context: &Context) -> Result<()> {
    let now = SystemTime::now();
    let is_old = |session: &Session| {
        let closed = session.update_time.and_then(|time| SystemTime::try_from(time).ok());
        closed.is_none_or(|closed| now.duration_since(closed).unwrap_or_default() >= args.older_than)
    };
    let sessions = listing::sessions_with(supervisor, args.labels.iter().cloned().collect(), true).await?;
    let old: Vec<Session> = sessions
        .into_iter()
        .filter(|session| session.closed && is_old(session))
        .collect();
    if !args.dry_run {
        for session in &old {
            let request = DeleteSessionRequest {
                request_id: troupe_client::request_id(),
                session_id: session.session_id.clone(),
            };
            supervisor.delete_session(request).await?;
        }
    }
    context.ui.table(
        || json!({ "sessions": json::list(&old), "deleted": !args.dry_run }),
        || table(&old, now),
        "no closed sessions to delete",
    )?;
    if !old.is_empty() {
        let done = if args.dry_run { "would be deleted" } else { "deleted" };
        context.ui.note(format!("{} sessions {done}", old.len()));
    }
    Ok(())
}

async fn update(supervisor: &mut Supervisor, one: &One, change: UpdateSessionRequest, context: &Context) -> Result<()> {
    let request = UpdateSessionRequest {
        request_id: troupe_client::request_id(),
        session_id: ids::session(supervisor, &one.session).await?,
        ..change
    };
    let answer = supervisor.update_session(request).await?.into_inner();
    let session = answer.session.ok_or_else(Error::empty_answer)?;
    context
        .ui
        .answer(|| json!({ "session": json::message(&session) }), || text(&session))
}

/// Formats the current settings.
fn text(session: &Session) -> Line {
    let (look, state) = style::session_state(session);
    let edges = match session.edge_management() {
        EdgeManagement::Unspecified | EdgeManagement::All => String::new(),
        narrowed @ (EdgeManagement::None | EdgeManagement::Self_) => {
            format!("edges {}", names::edge_management(narrowed))
        }
    };
    Line::default()
        .mark(style::HEADING, "session")
        .word(style::PLAIN, &session.session_id)
        .word(look, state)
        .word(style::NAME, names::mode(session.mode()))
        .word(style::NAME, names::orchestration(session.orchestration()))
        .word(style::NAME, edges)
        .word(style::DIM, budget_in_words(session.budget.as_ref()))
}

async fn delete(supervisor: &mut Supervisor, one: &One, context: &Context) -> Result<()> {
    let session_id = ids::session(supervisor, &one.session).await?;
    let request = DeleteSessionRequest {
        request_id: troupe_client::request_id(),
        session_id: session_id.clone(),
    };
    supervisor.delete_session(request).await?;
    context.ui.answer(
        || json!({ "deleted_session_id": session_id }),
        || format!("session {session_id} deleted"),
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use troupe_proto::supervisor::v1::Budget;

    use super::*;
    use crate::ui;

    #[test]
    fn session_line_shows_its_settings() {
        let session = Session {
            session_id: "01939c5a-0000-7000-8000-00000000cc03".to_owned(),
            paused: true,
            mode: Mode::Planning.into(),
            orchestration: Orchestration::Auto.into(),
            edge_management: EdgeManagement::Self_.into(),
            budget: Some(Budget {
                turns: 3,
                ..Budget::default()
            }),
            ..Session::default()
        };
        assert_eq!(
            ui::plain(&text(&session).render(120)),
            "session  01939c5a-0000-7000-8000-00000000cc03  paused  PLANNING  AUTO  edges SELF  3 turns"
        );
    }
}
