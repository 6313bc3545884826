//! The output of the program.

use tokio::process::Command;

use crate::session::within;

#[tokio::test]
async fn tour_prints_events_up_to_end_of_session() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tour"));
    let output = within(program.kill_on_drop(true).output()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();
    for expected in ["explorer", "refused: ", "ThreadClosed", "SessionClosed"] {
        assert!(printed.contains(expected), "{expected:?} is missing in:\n{printed}");
    }
}
