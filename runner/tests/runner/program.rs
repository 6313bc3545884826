//! Scripts that speak the line protocol, and checks of their processes.

use std::{path::Path, time::Duration};

use tokio::{task::yield_now, time::timeout};

use crate::supervisor::{Attached, TestRunner, start};

/// Ends each turn immediately, and exits on shutdown. Ignores other messages.
pub(crate) const ECHO: &str = r#"
while IFS= read -r line; do
  case "$line" in
    *'"type":"turn"'*) echo '{"type":"status","activity":"at work"}'; echo '{"type":"turn_end","outcome":"completed","message":"done"}' ;;
    *'"type":"shutdown"'*) exit 0 ;;
  esac
done
"#;

/// Ends its turn when the test creates the file `go`.
pub(crate) const PATIENT: &str = r#"
echo $$ > $DIR/pid
while IFS= read -r line; do
  case "$line" in
    *'"type":"turn"'*) echo '{"type":"output","text":"ready"}'; until [ -e $DIR/go ]; do sleep 0.01; done; echo '{"type":"turn_end","outcome":"completed","message":"done"}' ;;
  esac
done
"#;

/// Stays in its turn until it is interrupted, and runs until its input ends.
pub(crate) const INTERRUPTIBLE: &str = r#"
while IFS= read -r line; do
  case "$line" in
    *'"type":"interrupt"'*) echo '{"type":"turn_end","outcome":"interrupted","message":"so be it"}' ;;
  esac
done
"#;

/// Never ends its turn. Ignores all messages and all signals that can be ignored. Starts a child that does the same,
/// and writes the ids of both processes to files.
pub(crate) const STUBBORN: &str = r#"
trap '' TERM INT
echo $$ > $DIR/parent
sh -c 'trap "" TERM INT; echo $$ > $DIR/child; while :; do sleep 1; done' &
until [ -s $DIR/child ]; do :; done
echo '{"type":"output","text":"stubborn"}'
while :; do sleep 1; done
"#;

/// Starts a thread with [`STUBBORN`]. Returns the ids of both processes, which are running.
pub(crate) async fn stubborn(runner: &TestRunner) -> (Attached, [String; 2]) {
    let mut supervisor = runner.started(start()).await;
    supervisor.output("stubborn").await;
    let ids = ["parent", "child"].map(|who| runner.file(who));
    assert!(ids.iter().all(|id| is_running(id)), "{ids:?} are running");
    (supervisor, ids)
}

/// Returns whether a process with that id is running. A zombie is not running.
pub(crate) fn is_running(id: &str) -> bool {
    let Ok(stat) = std::fs::read_to_string(Path::new("/proc").join(id).join("stat")) else {
        return false;
    };
    // The state follows the name, which is in parentheses and may contain any characters.
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, Some('Z' | 'X'))
}

/// Waits until none of the processes is running. A killed process may take a moment to disappear.
pub(crate) async fn all_gone(ids: &[String]) {
    let gone = async {
        while ids.iter().any(|id| is_running(id)) {
            yield_now().await;
        }
    };
    assert!(timeout(Duration::from_secs(20), gone).await.is_ok(), "{ids:?} are gone");
}
