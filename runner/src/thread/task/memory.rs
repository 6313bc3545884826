//! Stores the last turn that a thread's program received, so that the next attempt can mark a repeated turn.

use std::path::Path;

use tracing::debug;

/// The file, in the thread's state directory.
const FILE: &str = "turn";

/// Returns the turn. 0: none is known.
pub(super) async fn read(state: &Path) -> u32 {
    let text = tokio::fs::read_to_string(state.join(FILE)).await.unwrap_or_default();
    text.trim().parse().unwrap_or_default()
}

/// Stores the turn. If that fails, the next attempt treats the turn as new.
pub(super) async fn write(state: &Path, turn: u32) {
    if let Err(error) = tokio::fs::write(state.join(FILE), turn.to_string()).await {
        debug!(%error, "which turn was given is not written down");
    }
}
