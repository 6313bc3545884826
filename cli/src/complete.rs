//! Completion of ids, aliases and roles, from the services.
//!
//! A shell calls this code while the user types, so every failure results in no candidates, and so does a service that
//! does not answer within a second.

use std::{ffi::OsStr, time::Duration};

use clap::{CommandFactory as _, FromArgMatches as _, parser::ValueSource};
use clap_complete::CompletionCandidate;
use troupe_proto::registry::v1::ListAgentsRequest;

use crate::{
    context::directory,
    error::{Error, Result},
    global::Global,
    ids, listing, names, ui,
};

/// Maximum duration of a completion.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Completes a thread: aliases and the ends of ids.
pub(crate) fn threads(current: &OsStr) -> Vec<CompletionCandidate> {
    candidates(current, async |global| {
        let mut supervisor = global.settings().supervisor().await?;
        let mut found = vec![("@last".to_owned(), "the newest thread".to_owned())];
        for session in listing::sessions(&mut supervisor, false).await? {
            for thread in listing::threads(&mut supervisor, &session.session_id, false).await? {
                let status = names::status_kind(ui::status_of(&thread));
                let about = format!("{} {status} {}", ui::role(&thread), thread.label);
                let name = match thread.alias.as_str() {
                    "" => ids::short(&thread.thread_id).to_owned(),
                    alias => alias.to_owned(),
                };
                found.push((name, about));
            }
        }
        Ok(found)
    })
}

/// Completes a session: the ends of ids.
pub(crate) fn sessions(current: &OsStr) -> Vec<CompletionCandidate> {
    candidates(current, async |global| {
        let mut supervisor = global.settings().supervisor().await?;
        let sessions = listing::sessions(&mut supervisor, false).await?;
        let named = sessions
            .into_iter()
            .map(|session| (ids::short(&session.session_id).to_owned(), session.cwd));
        Ok(named.collect())
    })
}

/// Completes a role of the current directory.
pub(crate) fn roles(current: &OsStr) -> Vec<CompletionCandidate> {
    candidates(current, async |global| {
        let cwd = directory(None)?.into_os_string().into_string();
        let request = ListAgentsRequest {
            cwd: cwd.unwrap_or_default(),
            allow_partial: true,
            ..ListAgentsRequest::default()
        };
        let listed = global
            .settings()
            .registry()
            .await?
            .list_agents(request)
            .await?
            .into_inner();
        let named = listed
            .agents
            .into_iter()
            .map(|agent| (agent.agent_type, agent.description));
        Ok(named.collect())
    })
}

/// Returns the shared flags with the values of the environment variables and of the current context.
fn global_from_environment() -> Result<Global> {
    /// A command line without commands.
    #[derive(clap::Parser)]
    struct Line {
        /// The shared flags.
        #[command(flatten)]
        global: Global,
    }
    let matches = Line::command().try_get_matches_from(["troupe"]).map_err(Error::of)?;
    let mut global = Line::from_arg_matches(&matches).map_err(Error::of)?.global;
    global.resolve(|name| matches.value_source(name) == Some(ValueSource::EnvVariable))?;
    Ok(global)
}

/// Runs the request with the connection of the environment, and filters its `(value, description)` pairs.
fn candidates(
    current: &OsStr,
    request: impl AsyncFnOnce(Global) -> Result<Vec<(String, String)>>,
) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else {
        return Vec::new();
    };
    let found = || -> Result<Vec<(String, String)>> {
        let global = global_from_environment()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::of)?;
        runtime.block_on(async {
            tokio::time::timeout(TIMEOUT, request(global))
                .await
                .map_err(Error::of)?
        })
    };
    let found = found().unwrap_or_default().into_iter();
    found
        .filter(|(value, _)| value.starts_with(current))
        .map(|(value, about)| CompletionCandidate::new(value).help(Some(crate::sanitize::line(&about).into())))
        .collect()
}
