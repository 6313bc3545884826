//! Stopping what runs until it is told to end.

use std::{future::Future, time::Duration};

use svc_kit::shutdown::Signals;
use troupe_runner::Ended;

use crate::{
    context::Context,
    error::{Error, Result},
};

/// How many interrupted threads are listed.
const MAX_LISTED: usize = 10;

/// Says what a first SIGINT or SIGTERM does. `turns_end_within` is the time of the process's own runner, if it has one.
pub(crate) fn announcement(turns_end_within: Option<Duration>) -> String {
    match turns_end_within {
        Some(time) => format!(
            "stopping: running turns have {time:?} to finish and are then interrupted; a second Ctrl-C stops at once and loses \
             them"
        ),
        None => "stopping: turns on attached runners continue; a second Ctrl-C stops at once".to_owned(),
    }
}

/// Lists the threads whose turn was interrupted, each with the command that continues it.
pub(crate) fn list_interrupted(context: &Context, runner: &Ended) {
    for thread in runner.interrupted.iter().take(MAX_LISTED) {
        context.ui.note(format!(
            "interrupted {thread}; once the service runs again, continue it with: troupe send {thread} -m 'Continue.'"
        ));
    }
    let rest = runner.interrupted.len().saturating_sub(MAX_LISTED);
    if rest > 0 {
        context.ui.note(format!(
            "interrupted {rest} more; `troupe ps` lists them as INTERRUPTED"
        ));
    }
}

/// Waits for what is ending in order, unless another SIGINT or SIGTERM says that it took too long.
///
/// # Errors
///
/// Its own, or that it was asked to stop twice: then the process is to end, and what it started with it.
pub(crate) async fn unless_asked_again<T>(signals: &mut Signals, ending: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        ended = ending => ended,
        () = signals.next() => Err(Error::failure("stopped at once, as it was asked to a second time")),
    }
}
