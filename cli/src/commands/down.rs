//! `troupe down` stops the services of a data directory; `troupe status` shows them.

use serde_json::json;
use troupe_client::{Address, Service, data_dir::Running};
use troupe_proto::supervisor::v1::ListSessionsRequest;

use crate::{
    background,
    context::Context,
    error::{Error, Result},
    ui::Fields,
};

/// The arguments of `down`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  troupe down
  troupe down --data-dir /var/lib/troupe

Running turns are interrupted. Threads stay open and continue with `troupe send` after the next start.")]
pub(crate) struct Args {}

/// The arguments of `status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  troupe status
  troupe status --output json

The exit code is 7 if the services are not running.")]
pub(crate) struct StatusArgs {}

/// Stops the services.
pub(crate) async fn run(_: Args, context: &Context) -> Result<()> {
    let data_dir = context.data_dir()?;
    let Some(running) = Running::find(&data_dir) else {
        return context.ui.answer(
            || json!({ "stopped": false }),
            || "the services are not running".to_owned(),
        );
    };
    background::stop(&running, &data_dir).await?;
    context.ui.answer(
        || json!({ "stopped": true, "pid": running.pid }),
        || format!("stopped process {}", running.pid),
    )
}

/// Shows the services.
pub(crate) async fn status(_: StatusArgs, context: &Context) -> Result<()> {
    let data_dir = context.data_dir()?;
    let Some(running) = Running::find(&data_dir) else {
        return Err(
            Error::unreachable(format!("no services run on \"{}\"", data_dir.display()))
                .hint("`troupe up -d` starts them"),
        );
    };
    let sessions = open_sessions(&running, context).await;
    let log = background::log(&data_dir);
    context.ui.answer(
        || {
            json!({
                "pid": running.pid,
                "registry": running.registry,
                "supervisor": running.supervisor,
                "data_dir": data_dir,
                "open_sessions": sessions.as_ref().ok(),
            })
        },
        || {
            let sessions = match &sessions {
                Ok(count) => format!("{count} open"),
                Err(error) => error.message().to_owned(),
            };
            Fields::default()
                .field("state", "running")
                .field("process", running.pid.to_string())
                .field("registry", &running.registry)
                .field("supervisor", &running.supervisor)
                .field("sessions", sessions)
                .field("data", data_dir.display().to_string())
                .field(
                    "log",
                    if log.exists() {
                        log.display().to_string()
                    } else {
                        String::new()
                    },
                )
        },
    )
}

/// Returns the number of open sessions on the first page of the list.
pub(crate) async fn open_sessions(running: &Running, context: &Context) -> Result<usize> {
    let address = Address::parse(Service::Supervisor, &running.supervisor)?;
    let token = context.global.settings().token(address.host())?;
    let mut supervisor = address.channel(&token).await?.supervisor();
    let request = ListSessionsRequest {
        page_size: 1000,
        ..ListSessionsRequest::default()
    };
    Ok(supervisor.list_sessions(request).await?.into_inner().sessions.len())
}
