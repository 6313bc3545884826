//! `troupe wait`: waits until threads are settled.

use std::time::Duration;

use clap_complete::ArgValueCompleter;
use serde_json::json;
use troupe_proto::supervisor::v1::Status;

use super::spawn;
use crate::{
    complete,
    context::Context,
    error::{Error, Result},
    ids, json, names, time,
    ui::{Cell, Table, style},
    waiting,
};

const AFTER_HELP: &str = "\
Examples:
  troupe wait 0000aa01
  troupe wait 0000aa01 0000bb02 --any --timeout 30s
  troupe wait scout && echo done";

/// The arguments of `wait`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Threads: ids, beginnings or ends of them, aliases, or @last
    #[arg(value_name = "ID", required = true, add = ArgValueCompleter::new(complete::threads))]
    threads: Vec<String>,
    /// Maximum wait
    #[arg(long, value_name = "SPAN", default_value = "5m", value_parser = time::parse_some_duration)]
    timeout: Duration,
    /// Wait until one thread is settled instead of all
    #[arg(long)]
    any: bool,
}

/// Waits for the threads. Fails on a timeout or if a thread did not end successfully.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let mut threads = Vec::with_capacity(args.threads.len());
    for text in &args.threads {
        threads.push(ids::thread(&mut supervisor, text, None).await?);
    }
    let waited = waiting::wait(&mut supervisor, "", threads, args.timeout, args.any).await?;
    context.ui.table(
        || {
            json!({
                "statuses": json::list(&waited.settled),
                "not_found_ids": waited.not_found,
                "waiting_ids": waited.waiting,
                "timed_out": waited.timed_out(args.any),
            })
        },
        || {
            let mut table = Table::new(["THREAD", "STATUS", "RESULT"]);
            for settled in &waited.settled {
                let status = settled.status.as_ref();
                let kind = status.map(Status::kind).unwrap_or_default();
                let message = match &settled.result {
                    _ if !settled.question.is_empty() => settled.question.as_str(),
                    Some(result) if !result.document_json.is_empty() => result.document_json.as_str(),
                    _ => status.map(|status| status.message.as_str()).unwrap_or_default(),
                };
                table.row([
                    Cell::plain(ids::short(&settled.thread_id)),
                    Cell::new(style::of_status(kind), names::status_kind(kind)),
                    Cell::plain(message),
                ]);
            }
            table
        },
        "no thread has settled",
    )?;
    if let Some(id) = waited.not_found.first() {
        return Err(Error::not_found(format!("agent with id {id} not found"))
            .hint("`troupe ps --closed` lists all sessions and threads"));
    }
    if waited.timed_out(args.any) {
        return Err(Error::timeout(format!("still running: {}", waited.waiting.join(", ")))
            .hint("wait again with a longer --timeout"));
    }
    for settled in &waited.settled {
        if let Some(status) = &settled.status {
            spawn::verdict(&settled.thread_id, status)?;
        }
    }
    Ok(())
}
