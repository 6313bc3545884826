//! `troupe context`: manages the named servers of the user.

use std::path::{self, PathBuf};

use clap::Subcommand;
use serde_json::json;
use troupe_client::{
    Address, Service,
    contexts::{Contexts, Server},
};

use crate::{
    context::Context,
    error::{Error, Result},
    ui::{Cell, Table, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe context set prod --server https://troupe.example.com:50052 --server-token-file ~/.troupe-token
  troupe context use prod
  troupe context list
  troupe ps --context prod

The contexts are stored in ~/.config/troupe/config.yaml. Flags and TROUPE_* variables win over the context.";

/// An action on contexts.
#[derive(Debug, Subcommand)]
#[command(after_help = AFTER_HELP, disable_help_subcommand = true)]
pub(crate) enum Action {
    /// List the contexts
    #[command(after_help = "Example: troupe context list")]
    List,
    /// Select the context that applies without --context
    #[command(after_help = "Example: troupe context use prod")]
    Use(Named),
    /// Create or replace a context
    #[command(after_help = "Example: troupe context set prod --server https://troupe.example.com:50052")]
    Set(Box<SetArgs>),
    /// Delete a context
    #[command(after_help = "Example: troupe context delete prod")]
    Delete(Named),
}

/// A context.
#[derive(Debug, clap::Args)]
pub(crate) struct Named {
    /// Name of the context
    #[arg(value_name = "NAME")]
    name: String,
}

/// The arguments of `context set`.
#[derive(Debug, clap::Args)]
pub(crate) struct SetArgs {
    /// Name of the context
    #[arg(value_name = "NAME")]
    name: String,
    /// URL of the supervisor
    #[arg(long, value_name = "URL")]
    server: String,
    /// URL of the registry [default: port 50051 of the supervisor's host]
    #[arg(long, value_name = "URL")]
    server_registry: Option<String>,
    /// Bearer token file
    #[arg(long, value_name = "FILE")]
    server_token_file: Option<PathBuf>,
    /// CA certificates, PEM
    #[arg(long, value_name = "FILE")]
    server_ca: Option<PathBuf>,
    /// Client certificate, PEM
    #[arg(long, value_name = "FILE", requires = "server_client_key")]
    server_client_cert: Option<PathBuf>,
    /// Key of the client certificate, PEM
    #[arg(long, value_name = "FILE", requires = "server_client_cert")]
    server_client_key: Option<PathBuf>,
}

/// Runs the action.
pub(crate) fn run(action: Action, context: &Context) -> Result<()> {
    let mut contexts = Contexts::load()?;
    let (name, done) = match action {
        Action::List => return list(&contexts, context),
        Action::Use(named) => {
            contexts.get(&named.name)?;
            contexts.current = Some(named.name.clone());
            (named.name, "is selected")
        }
        Action::Set(args) => {
            let server = server(&args)?;
            contexts.contexts.insert(args.name.clone(), server);
            if contexts.current.is_none() {
                contexts.current = Some(args.name.clone());
            }
            (args.name, "is stored")
        }
        Action::Delete(named) => {
            contexts.get(&named.name)?;
            contexts.contexts.remove(&named.name);
            contexts.current.take_if(|current| *current == named.name);
            (named.name, "is deleted")
        }
    };
    let path = contexts.save()?;
    context.ui.answer(
        || json!({ "context": { "name": name }, "path": path }),
        || format!("context {name} {done} in {}", path.display()),
    )
}

fn server(args: &SetArgs) -> Result<Server> {
    if args.name.is_empty() {
        return Err(Error::usage("the name of a context cannot be empty"));
    }
    Address::parse(Service::Supervisor, &args.server)?;
    if let Some(registry) = &args.server_registry {
        Address::parse(Service::Registry, registry)?;
    }
    // The commands run in any directory.
    let absolute = |file: &Option<PathBuf>| {
        let absolute = |file: &PathBuf| path::absolute(file).unwrap_or_else(|_| file.clone());
        file.as_ref().map(absolute)
    };
    Ok(Server {
        supervisor: args.server.clone(),
        registry: args.server_registry.clone(),
        token_file: absolute(&args.server_token_file),
        ca: absolute(&args.server_ca),
        client_cert: absolute(&args.server_client_cert),
        client_key: absolute(&args.server_client_key),
    })
}

fn list(contexts: &Contexts, context: &Context) -> Result<()> {
    let is_current = |name: &String| contexts.current.as_ref() == Some(name);
    context.ui.table(
        || {
            let list = contexts.contexts.iter().map(|(name, server)| {
                json!({
                    "name": name,
                    "current": is_current(name),
                    "supervisor": server.supervisor,
                    "registry": server.registry(),
                    "token_file": server.token_file,
                })
            });
            json!({ "contexts": list.collect::<Vec<_>>() })
        },
        || {
            let mut table = Table::new(["CURRENT", "NAME", "SUPERVISOR", "REGISTRY"]);
            for (name, server) in &contexts.contexts {
                table.row([
                    Cell::new(style::GOOD, if is_current(name) { "*" } else { "" }),
                    Cell::new(style::NAME, name),
                    Cell::plain(&server.supervisor),
                    Cell::plain(server.registry()),
                ]);
            }
            table
        },
        "no contexts; `troupe context set NAME --server URL` creates one",
    )
}
