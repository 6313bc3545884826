//! Shutdown of long-running commands.

use std::{future::Future, time::Duration};

use svc_kit::shutdown::Signals;
use troupe_runner::Ended;

use crate::{
    context::Context,
    error::{Error, Result},
};

/// Maximum number of interrupted threads in the list.
const MAX_LISTED: usize = 10;

/// Returns the message that describes the effect of a first SIGINT or SIGTERM. `turns_end_within` is the drain time of
/// the process's runner, if it has one.
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

/// Waits for an orderly shutdown, unless another SIGINT or SIGTERM interrupts the wait.
///
/// # Errors
///
/// Returns the error of the shutdown, or an error after a second signal. In the latter case, the process has to exit
/// with everything that it started.
pub(crate) async fn until_done_or_second_signal<T>(
    signals: &mut Signals,
    ending: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::select! {
        ended = ending => ended,
        () = signals.next() => Err(Error::failure("stopped at the second signal")),
    }
}
