//! `troupe artifacts`: lists artifacts and fetches their content.

use std::{
    fs,
    io::{self, Write as _},
    path::PathBuf,
    time::SystemTime,
};

use clap::Subcommand;
use serde_json::json;
use troupe_client::Supervisor;
use troupe_proto::supervisor::v1::Artifact;

use crate::{
    content,
    context::Context,
    error::{Error, Result},
    ids, json, listing, suggest, time,
    ui::{Cell, Table, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe artifacts
  troupe artifacts --thread scout
  troupe artifacts get report.md
  troupe artifacts get report.md --file report.md";

/// The arguments of `artifacts`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(crate) struct Args {
    /// The action.
    #[command(subcommand)]
    action: Option<Action>,
    /// The artifacts to list.
    #[command(flatten)]
    scope: Scope,
}

/// An action on artifacts.
#[derive(Debug, Subcommand)]
enum Action {
    /// Print the content of an artifact, or write it to a file
    #[command(after_help = "Example: troupe artifacts get report.md --file report.md")]
    Get(GetArgs),
}

/// The artifacts of a session or a thread.
#[derive(Debug, clap::Args)]
struct Scope {
    /// Session [default: the current session]
    #[arg(long, value_name = "SESSION", conflicts_with = "thread")]
    session: Option<String>,
    /// Artifacts of this thread only
    #[arg(long, value_name = "THREAD")]
    thread: Option<String>,
}

/// The arguments of `artifacts get`.
#[derive(Debug, clap::Args)]
struct GetArgs {
    /// Artifact: a name, an id, the beginning or the end of an id (at least 4 characters), or the SHA-256 of any
    /// content of the session
    #[arg(value_name = "ARTIFACT")]
    artifact: String,
    /// File to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The artifacts to search.
    #[command(flatten)]
    scope: Scope,
}

/// Runs the action. Lists the artifacts by default.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    match args.action {
        Some(Action::Get(args)) => get(&mut supervisor, args).await,
        None => {
            let (_, artifacts) = list_artifacts(&mut supervisor, &args.scope).await?;
            context.ui.table(
                || json!({ "artifacts": json::list(&artifacts) }),
                || table(&artifacts, SystemTime::now()),
                "no artifacts",
            )
        }
    }
}

/// Lists the artifacts of the scope. Returns the id of their session and the artifacts.
async fn list_artifacts(supervisor: &mut Supervisor, scope: &Scope) -> Result<(String, Vec<Artifact>)> {
    match &scope.thread {
        Some(text) => {
            let thread = ids::thread_in(supervisor, text).await?;
            let artifacts = listing::artifacts(supervisor, &thread.session_id, &thread.thread_id).await?;
            Ok((thread.session_id, artifacts))
        }
        None => {
            let session = ids::session_or_current(supervisor, scope.session.as_deref()).await?;
            let artifacts = listing::artifacts(supervisor, &session, "").await?;
            Ok((session, artifacts))
        }
    }
}

async fn get(supervisor: &mut Supervisor, args: GetArgs) -> Result<()> {
    let (session, artifacts) = list_artifacts(supervisor, &args.scope).await?;
    let digest = digest(&args.artifact, &artifacts)?;
    let bytes = content::bytes(supervisor, &session, &digest).await?;
    match &args.file {
        Some(path) => fs::write(path, bytes)
            .map_err(|error| Error::failure(format!("cannot write \"{}\": {error}", path.display()))),
        None => {
            let mut out = io::stdout().lock();
            out.write_all(&bytes)?;
            Ok(out.flush()?)
        }
    }
}

/// Returns the digest of the artifact that the text refers to. If several artifacts match, returns the digest of the
/// last one.
fn digest(text: &str, artifacts: &[Artifact]) -> Result<String> {
    let is_meant = |artifact: &&Artifact| {
        artifact.name == text
            || (text.len() >= 4 && (artifact.artifact_id.starts_with(text) || artifact.artifact_id.ends_with(text)))
    };
    let found = artifacts
        .iter()
        .rfind(is_meant)
        .and_then(|artifact| artifact.content.as_ref());
    if let Some(content) = found {
        return Ok(content.digest.clone());
    }
    if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(text.to_ascii_lowercase());
    }
    let unknown = Error::not_found(format!("unknown artifact \"{text}\""));
    Err(
        match suggest::closest(text, artifacts.iter().map(|artifact| artifact.name.as_str())) {
            Some(similar) => unknown.hint(format!("did you mean \"{similar}\"?")),
            None => unknown.hint("`troupe artifacts --session SESSION` lists the artifacts of a session"),
        },
    )
}

pub(super) fn table(artifacts: &[Artifact], now: SystemTime) -> Table<7> {
    let mut table = Table::new(["ARTIFACT", "THREAD", "TURN", "KIND", "SIZE", "AGE", "NAME"]);
    for artifact in artifacts {
        let size = artifact.content.as_ref().map_or(0, |content| content.size);
        table.row([
            Cell::plain(ids::short(&artifact.artifact_id)),
            Cell::plain(ids::short(&artifact.thread_id)),
            Cell::plain(artifact.turn.to_string()),
            Cell::plain(&artifact.kind),
            Cell::plain(size.to_string()),
            Cell::plain(time::age(artifact.create_time.as_ref(), now)),
            Cell::new(style::NAME, &artifact.name),
        ]);
    }
    table
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use troupe_proto::supervisor::v1::ContentRef;

    use super::*;

    #[test]
    fn artifacts_are_found_by_name_and_id() {
        let artifact = |id: &str, digest: &str| Artifact {
            artifact_id: id.to_owned(),
            name: "report.md".to_owned(),
            content: Some(ContentRef {
                digest: digest.to_owned(),
                ..ContentRef::default()
            }),
            ..Artifact::default()
        };
        let artifacts = [artifact("0000aa01", "old"), artifact("0000aa02", "new")];
        assert_eq!(digest("report.md", &artifacts).unwrap(), "new");
        assert_eq!(digest("aa01", &artifacts).unwrap(), "old");
        let whole = "a".repeat(64);
        assert_eq!(digest(&whole, &artifacts).unwrap(), whole);
        let unknown = digest("reprot.md", &artifacts).unwrap_err();
        assert_eq!(
            (unknown.code(), unknown.remedy()),
            (4, Some("did you mean \"report.md\"?"))
        );
    }
}
