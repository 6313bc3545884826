//! `troupe edges`: manages the edges along which agents hand over work.

use serde_json::json;
use troupe_client::Supervisor;
use troupe_proto::supervisor::v1::{CreateEdgeRequest, DeleteEdgeRequest, Edge, EdgeKind};

use crate::{
    context::Context,
    error::Result,
    ids, json, listing, names,
    ui::{Cell, Table, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe edges
  troupe edges --thread scout
  troupe edges create scout 0000bb02 --label findings
  troupe edges delete 0000ee05

An open thread always has an edge to its parent.";

/// The arguments of `edges`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(crate) struct Args {
    /// The action.
    #[command(subcommand)]
    action: Option<Action>,
    /// The edges to list.
    #[command(flatten)]
    list: List,
}

/// An action on edges.
#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Create an edge, along which threads send handoffs
    #[command(after_help = "Example: troupe edges create scout 0000bb02 --one-way")]
    Create(Create),
    /// Delete an edge
    #[command(after_help = "Example: troupe edges delete 0000ee05")]
    Delete(Delete),
}

/// The arguments of the listing.
#[derive(Debug, clap::Args)]
struct List {
    /// Session [default: all open sessions]
    #[arg(long, value_name = "ID", conflicts_with = "thread")]
    session: Option<String>,
    /// Edges of this thread only: an id, the beginning or the end of one, an alias, or @last
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
}

/// The arguments of `edges create`.
#[derive(Debug, clap::Args)]
struct Create {
    /// Sender: an id, the beginning or the end of one, an alias, or @last
    #[arg(value_name = "FROM")]
    from: String,
    /// Receiver, in the session of the sender
    #[arg(value_name = "TO")]
    to: String,
    /// Allow handoffs from the sender to the receiver only
    #[arg(long)]
    one_way: bool,
    /// Create an edge for reports instead of handoffs
    #[arg(long)]
    report: bool,
    /// Label for people
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    label: String,
}

/// The arguments of `edges delete`.
#[derive(Debug, clap::Args)]
struct Delete {
    /// Edge: an id, or the beginning or the end of one
    #[arg(value_name = "ID")]
    edge: String,
    /// Session of the edge [default: any open session]
    #[arg(long, value_name = "ID")]
    session: Option<String>,
}

/// Runs the action. Lists the edges by default.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    match args.action {
        Some(Action::Create(args)) => create(&mut supervisor, args, context).await,
        Some(Action::Delete(args)) => delete(&mut supervisor, &args, context).await,
        None => list(&mut supervisor, &args.list, context).await,
    }
}

async fn list(supervisor: &mut Supervisor, args: &List, context: &Context) -> Result<()> {
    let edges = match &args.thread {
        Some(text) => {
            let thread = ids::thread(supervisor, text, None).await?;
            listing::edges(supervisor, "", Some(&thread)).await?
        }
        None => {
            let mut edges = Vec::new();
            for session in ids::open_sessions(supervisor, args.session.as_deref()).await? {
                edges.extend(listing::edges(supervisor, &session, None).await?);
            }
            edges
        }
    };
    show(&edges, context)
}

async fn create(supervisor: &mut Supervisor, args: Create, context: &Context) -> Result<()> {
    let ends = ids::ends(supervisor, &args.from, &args.to).await?;
    let kind = if args.report {
        EdgeKind::Report
    } else {
        EdgeKind::Handoff
    };
    let request = CreateEdgeRequest {
        request_id: troupe_client::request_id(),
        session_id: ends.session,
        from_thread_id: ends.from,
        to_thread_id: ends.to,
        one_way: args.one_way,
        kind: kind.into(),
        label: args.label,
    };
    let answer = supervisor.create_edge(request).await?.into_inner();
    match answer.edge {
        Some(edge) => show(std::slice::from_ref(&edge), context),
        None => context.ui.answer(
            || json!({ "approval_id": answer.approval_id }),
            || {
                format!(
                    "needs an approval: `troupe approvals grant {}`",
                    ids::short(&answer.approval_id)
                )
            },
        ),
    }
}

async fn delete(supervisor: &mut Supervisor, args: &Delete, context: &Context) -> Result<()> {
    let (session_id, edge) = ids::edge(supervisor, &args.edge, args.session.as_deref()).await?;
    let request = DeleteEdgeRequest {
        request_id: troupe_client::request_id(),
        session_id,
        edge_id: edge.edge_id.clone(),
    };
    supervisor.delete_edge(request).await?;
    context.ui.answer(
        || json!({ "deleted_edge_id": edge.edge_id }),
        || format!("edge {} deleted", edge.edge_id),
    )
}

fn show(edges: &[Edge], context: &Context) -> Result<()> {
    let value = || json!({ "edges": json::list(edges) });
    context.ui.table(value, || table(edges), "no edges")
}

pub(super) fn table(edges: &[Edge]) -> Table<6> {
    let mut table = Table::new(["EDGE", "FROM", "WAY", "TO", "KIND", "LABEL"]);
    for edge in edges {
        table.row([
            Cell::plain(ids::short(&edge.edge_id)),
            Cell::plain(ids::short(&edge.from_thread_id)),
            Cell::plain(if edge.bidirectional { "<->" } else { "->" }),
            Cell::plain(ids::short(&edge.to_thread_id)),
            Cell::new(style::NAME, names::edge_kind(edge.kind())),
            Cell::new(style::DIM, &edge.label),
        ]);
    }
    table
}
