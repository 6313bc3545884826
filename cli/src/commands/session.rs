//! `troupe session`: changes the settings of a session, pauses, resumes and closes it.

use clap::ValueEnum;
use serde_json::json;
use tonic::Request;
use troupe_proto::{
    common::v1::{EdgeManagement, Mode},
    supervisor::v1::{Budget, DeleteSessionRequest, Orchestration, Session, UpdateSessionRequest},
};

use super::close;
use crate::{
    client,
    context::Context,
    error::{Error, Result},
    ids, json, names,
    options::{NewBudget, SessionMode, budget_in_words},
    ui::{Line, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe session pause 0000cc03
  troupe session mode 0000cc03 planning
  troupe session budget 0000cc03 --tokens 500000 --time 2h
  troupe session close 0000cc03 --wait && troupe session delete 0000cc03

SESSION is an id, or the end of one; `troupe ps` shows them.";

/// The arguments of `session`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP, disable_help_subcommand = true)]
pub(crate) struct Args {
    /// What to do with it
    #[command(subcommand)]
    action: Action,
}

/// What to do with a session.
#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Start no turn and no agent any more; running turns finish
    #[command(after_help = "Example: troupe session pause 0000cc03")]
    Pause(One),
    /// End a pause: what waited goes on
    #[command(after_help = "Example: troupe session resume 0000cc03")]
    Resume(One),
    /// Set what it is for
    #[command(after_help = "Example: troupe session mode 0000cc03 planning")]
    Mode(ModeArgs),
    /// Set who keeps its orchestrators going
    #[command(after_help = "Example: troupe session orchestration 0000cc03 auto")]
    Orchestration(OrchestrationArgs),
    /// Set which edges agents of graph templates may manage at most; without any they spawn nothing
    #[command(after_help = "Example: troupe session edges 0000cc03 none")]
    Edges(EdgesArgs),
    /// Set what it may spend as a whole; what is not given is without bound
    #[command(after_help = "Example: troupe session budget 0000cc03 --tokens 500000 --turns 100")]
    Budget(BudgetArgs),
    /// Close everything in it, leaf first
    #[command(after_help = "Example: troupe session close 0000cc03 --wait")]
    Close(CloseArgs),
    /// Remove a closed session with all its content
    #[command(after_help = "Example: troupe session delete 0000cc03")]
    Delete(One),
}

/// A session.
#[derive(Debug, clap::Args)]
struct One {
    /// Its id, or the end of it
    #[arg(value_name = "SESSION")]
    session: String,
}

/// The arguments of `session mode`.
#[derive(Debug, clap::Args)]
struct ModeArgs {
    /// The session
    #[command(flatten)]
    one: One,
    /// What it is for from now on
    #[arg(value_enum, value_name = "MODE")]
    mode: SessionMode,
}

/// The arguments of `session orchestration`.
#[derive(Debug, clap::Args)]
struct OrchestrationArgs {
    /// The session
    #[command(flatten)]
    one: One,
    /// Who keeps its orchestrators going
    #[arg(value_enum, value_name = "WHO")]
    who: Who,
}

/// Whether the supervisor or the caller starts the turns of orchestrators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Who {
    /// Turns start when somebody asks for them
    Interactive,
    /// Until an orchestrator says that it is done
    Auto,
}

impl From<Who> for Orchestration {
    fn from(who: Who) -> Self {
        match who {
            Who::Interactive => Self::Interactive,
            Who::Auto => Self::Auto,
        }
    }
}

/// The arguments of `session edges`.
#[derive(Debug, clap::Args)]
struct EdgesArgs {
    /// The session
    #[command(flatten)]
    one: One,
    /// The edges that they may manage, if their templates declare as much
    #[arg(value_enum, value_name = "EDGES")]
    edges: Edges,
}

/// Which edges agents may manage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Edges {
    /// None
    None,
    /// Those that the agent itself ends in
    #[value(name = "self")]
    Own,
    /// All
    All,
}

impl From<Edges> for EdgeManagement {
    fn from(edges: Edges) -> Self {
        match edges {
            Edges::None => Self::None,
            Edges::Own => Self::Self_,
            Edges::All => Self::All,
        }
    }
}

/// The arguments of `session budget`.
#[derive(Debug, clap::Args)]
struct BudgetArgs {
    /// The session
    #[command(flatten)]
    one: One,
    /// The new budget
    #[command(flatten)]
    budget: NewBudget,
}

/// The arguments of `session close`.
#[derive(Debug, clap::Args)]
struct CloseArgs {
    /// The session
    #[command(flatten)]
    one: One,
    /// How it goes down
    #[command(flatten)]
    manner: close::Manner,
}

/// Runs the action.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let change = UpdateSessionRequest::default;
    match args.action {
        Action::Pause(one) => {
            let paused = Some(true);
            update(&one, UpdateSessionRequest { paused, ..change() }, context).await
        }
        Action::Resume(one) => {
            let paused = Some(false);
            update(&one, UpdateSessionRequest { paused, ..change() }, context).await
        }
        Action::Mode(args) => {
            let mode = Some(Mode::from(args.mode).into());
            update(&args.one, UpdateSessionRequest { mode, ..change() }, context).await
        }
        Action::Orchestration(args) => {
            let orchestration = Some(Orchestration::from(args.who).into());
            let request = UpdateSessionRequest {
                orchestration,
                ..change()
            };
            update(&args.one, request, context).await
        }
        Action::Edges(args) => {
            let edge_management = Some(EdgeManagement::from(args.edges).into());
            let request = UpdateSessionRequest {
                edge_management,
                ..change()
            };
            update(&args.one, request, context).await
        }
        Action::Budget(args) => {
            let budget = Some(Budget::from(args.budget));
            update(&args.one, UpdateSessionRequest { budget, ..change() }, context).await
        }
        Action::Close(args) => {
            let mut supervisor = context.supervisor().await?;
            close::close_session(&mut supervisor, &args.one.session, args.manner, context).await
        }
        Action::Delete(one) => delete(&one, context).await,
    }
}

async fn update(one: &One, change: UpdateSessionRequest, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let request = UpdateSessionRequest {
        request_id: client::request_id(),
        session_id: ids::session(&mut supervisor, &one.session).await?,
        ..change
    };
    let answer = supervisor.update_session(Request::new(request)).await?.into_inner();
    let session = answer
        .session
        .ok_or_else(|| Error::failure("the supervisor answered no session"))?;
    context
        .ui
        .answer(|| json!({ "session": json::message(&session) }), || text(&session))
}

/// Formats the current settings.
fn text(session: &Session) -> Line {
    let (look, state) = if session.paused {
        (style::WARN, "paused")
    } else {
        (style::GOOD, "open")
    };
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

async fn delete(one: &One, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let session_id = ids::session(&mut supervisor, &one.session).await?;
    let request = DeleteSessionRequest {
        request_id: client::request_id(),
        session_id: session_id.clone(),
    };
    supervisor.delete_session(Request::new(request)).await?;
    context.ui.answer(
        || json!({ "deleted_session_id": session_id }),
        || format!("session {session_id} deleted"),
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use crate::{
        commands::{self, Command},
        ui,
    };

    fn parse(arguments: &[&str]) -> std::result::Result<Action, clap::Error> {
        let line = ["troupe", "session"].iter().chain(arguments);
        match commands::parse(line)? {
            Command::Session(args) => Ok(args.action),
            other => panic!("not session: {other:?}"),
        }
    }

    #[test]
    fn every_action_names_its_session_first() {
        let Action::Mode(args) = parse(&["mode", "0000cc03", "planning"]).unwrap() else {
            panic!("not a mode");
        };
        assert_eq!(
            (args.one.session.as_str(), args.mode),
            ("0000cc03", SessionMode::Planning)
        );
        for wrong in [
            &["pause"][..],
            &["mode", "0000cc03"],
            &["mode", "0000cc03", "IMPLEMENT"],
            &["budget", "0000cc03"],
            &["orchestration", "0000cc03", "manual"],
            &["edges", "0000cc03", "own"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_session_is_shown_as_it_is_set() {
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
