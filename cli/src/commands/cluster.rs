//! `troupe cluster`: the supervisors that share a database.

use clap::Subcommand;
use clap_complete::ArgValueCompleter;
use serde_json::json;
use troupe_client::Supervisor;
use troupe_proto::supervisor::v1::{
    DrainMemberRequest, ListMembersRequest, ListMembersResponse, MemberState, MoveSessionRequest,
};

use crate::{
    complete,
    context::Context,
    error::Result,
    ids, json, names,
    ui::{self, Cell, Table, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe cluster status
  troupe cluster drain troupe-supervisor-1
  troupe cluster move 0000cc03
  troupe cluster move 0000cc03 troupe-supervisor-2

Several supervisors share a log in PostgreSQL. Each of them serves every session.";

/// An action on supervisors.
#[derive(Debug, Subcommand)]
#[command(after_help = AFTER_HELP, disable_help_subcommand = true)]
pub(crate) enum Action {
    /// List the supervisors, and show the database
    #[command(after_help = "Example: troupe cluster status --output json | jq '.members[].name'")]
    Status,
    /// Hand the sessions of a supervisor over to the others; it takes over none until it is started again
    #[command(after_help = "Example: troupe cluster drain troupe-supervisor-1")]
    Drain {
        /// Name of the supervisor
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Hand a session over to another supervisor; running turns continue
    #[command(after_help = "Example: troupe cluster move 0000cc03 troupe-supervisor-2")]
    Move {
        /// Session to move
        #[arg(value_name = "SESSION", add = ArgValueCompleter::new(complete::sessions))]
        session: String,
        /// Name of the supervisor that takes it over [default: any other]
        #[arg(value_name = "NAME", default_value = "", hide_default_value = true)]
        name: String,
    },
}

/// Runs the action.
pub(crate) async fn run(action: Action, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    match action {
        Action::Status => status(&mut supervisor, context).await,
        Action::Drain { name } => drain(&mut supervisor, name, context).await,
        Action::Move { session, name } => move_session(&mut supervisor, &session, name, context).await,
    }
}

async fn status(supervisor: &mut Supervisor, context: &Context) -> Result<()> {
    let answer = supervisor.list_members(ListMembersRequest {}).await?.into_inner();
    let database = answer.database.clone().unwrap_or_default();
    let standbys = match database.synchronous_standbys.as_str() {
        "" => String::from("no synchronous standby"),
        names => format!("synchronous standbys {names}"),
    };
    context.ui.table(
        || json!({ "members": json::list(&answer.members), "database": json::message(&database) }),
        || table(&answer),
        "no supervisor",
    )?;
    context.ui.note(format!("database: {}, {standbys}", database.engine));
    Ok(())
}

fn table(answer: &ListMembersResponse) -> Table<7> {
    let mut table = Table::new(["NAME", "STATE", "SESSIONS", "RUNNERS", "RELEASE", "ADDRESS", "ID"]).wide(&["ID"]);
    for member in &answer.members {
        let style_of_state = match member.state() {
            MemberState::Active => style::GOOD,
            MemberState::Leaving | MemberState::Unspecified => style::WARN,
        };
        let name = match member.name.as_str() {
            "" => "-",
            name => name,
        };
        table.row([
            Cell::new(style::NAME, name),
            Cell::new(style_of_state, names::member_state(member.state())),
            Cell::plain(member.sessions.to_string()),
            Cell::plain(member.runners.to_string()),
            Cell::plain(&member.release),
            Cell::plain(&member.address),
            Cell::plain(&member.member_id),
        ]);
    }
    table
}

async fn drain(supervisor: &mut Supervisor, name: String, context: &Context) -> Result<()> {
    let request = DrainMemberRequest { name: name.clone() };
    let answer = supervisor.drain_member(request).await?.into_inner();
    let text = format!("{name} has handed over {}", ui::count(answer.sessions, "session"));
    context.ui.answer(|| json::message(&answer), || text)
}

async fn move_session(supervisor: &mut Supervisor, session: &str, name: String, context: &Context) -> Result<()> {
    let session_id = ids::session(supervisor, session).await?;
    let request = MoveSessionRequest { session_id, name };
    let answer = supervisor.move_session(request).await?.into_inner();
    let text = format!("the session is at {}", answer.name);
    context.ui.answer(|| json::message(&answer), || text)
}
