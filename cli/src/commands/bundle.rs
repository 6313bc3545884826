//! `troupe bundle`: uploads the templates around a directory, or reads an uploaded bundle back.

use clap::Subcommand;
use serde_json::json;
use troupe_proto::{
    MAX_WORKSPACE_MESSAGE_BYTES,
    registry::v1::{GetWorkspaceRequest, WorkspaceFile},
};

use crate::{
    context::Context,
    error::Result,
    json, names,
    options::ProjectArgs,
    ui::{Cell, Table, style},
    workspace,
};

const AFTER_HELP: &str = "\
Examples:
  troupe bundle put
  troupe bundle get DIGEST";

/// An action on bundles of templates.
#[derive(Debug, Subcommand)]
#[command(after_help = AFTER_HELP, disable_help_subcommand = true)]
pub(crate) enum Action {
    /// Upload the templates of a project and of your home, and print the digest
    #[command(after_help = "Example: troupe bundle put --cwd ~/project")]
    Put(ProjectArgs),
    /// List the files of an uploaded bundle
    #[command(after_help = "Example: troupe bundle get DIGEST --output json")]
    Get {
        /// Digest of the bundle
        #[arg(value_name = "DIGEST")]
        digest: String,
    },
}

/// Runs the action.
pub(crate) async fn run(action: Action, context: &Context) -> Result<()> {
    match action {
        Action::Put(project) => {
            let digest = workspace::put(&project.cwd()?, context).await?;
            context
                .ui
                .answer(|| json!({ "workspace_digest": digest }), || digest.clone())
        }
        Action::Get { digest } => {
            let request = GetWorkspaceRequest {
                workspace_digest: digest,
            };
            let registry = context.registry().await?;
            let mut registry = registry.max_decoding_message_size(MAX_WORKSPACE_MESSAGE_BYTES);
            let answer = registry.get_workspace(request).await?.into_inner();
            context.ui.table(
                || json::message(&answer),
                || table(&answer.files),
                "the bundle is empty",
            )
        }
    }
}

fn table(files: &[WorkspaceFile]) -> Table<3> {
    let mut table = Table::new(["SCOPE", "SIZE", "PATH"]);
    for file in files {
        table.row([
            Cell::plain(names::scope(file.scope()).to_ascii_lowercase()),
            Cell::plain(file.content.len().to_string()),
            Cell::new(style::NAME, &file.path),
        ]);
    }
    table
}
