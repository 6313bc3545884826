//! Which turn a thread's program was given last, for the next attempt: what is given again is said to be.

use std::path::Path;

use tracing::debug;

/// The file, in what the thread keeps.
const FILE: &str = "turn";

/// The turn; 0: none is known.
pub(super) async fn read(state: &Path) -> u32 {
    let text = tokio::fs::read_to_string(state.join(FILE)).await.unwrap_or_default();
    text.trim().parse().unwrap_or_default()
}

/// Writes down the turn. Where that fails, the next attempt is told of it as if it were new.
pub(super) async fn write(state: &Path, turn: u32) {
    if let Err(error) = tokio::fs::write(state.join(FILE), turn.to_string()).await {
        debug!(%error, "which turn was given is not written down");
    }
}
