//! Agent Client Protocol programs, simulated by scripts: the time for their start, and the number of their permission
//! requests.

use std::{fs, time::Duration};

use tokio::{task::yield_now, time::timeout};
use troupe_proto::{
    common::v1::{ResolvedSpawn, Sandbox},
    supervisor::v1::{ClosePolicy, StartThread, TurnOutcome},
};
use troupe_runner::{AcpProgram, AgentProgram, Profile, Program, ProgramKind};

use crate::{
    program::all_gone,
    supervisor::{TestRunner, start, turn},
};

const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(3600);

/// A program that writes nothing, not even at its start.
const SILENT: &str = "touch $DIR/began; exec tail -f $DIR/began";

/// Begins as OpenCode does, and reads its first prompt.
pub(crate) const BEGIN: &str = r#"
read -r greeting
echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}'
read -r opening
echo '{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s","configOptions":[{"id":"mode","currentValue":"role"}]}}'
read -r prompt
"#;

/// Returns a runner whose programs run that script. `$DIR` in it is a directory of the test.
async fn runner(script: &str) -> TestRunner {
    TestRunner::with("", |config| {
        let directory = config.scratch.parent().unwrap().to_str().unwrap();
        let program = AcpProgram {
            program: AgentProgram {
                command: "/bin/sh".into(),
                ..AgentProgram::opencode()
            },
            args: vec!["-c".to_owned(), script.replace("$DIR", directory)],
            ..AcpProgram::of(Profile::OpenCode)
        };
        config.programs = Program::any(ProgramKind::Acp(program)).into();
    })
    .await
}

/// Returns the start of a thread that does not need bubblewrap.
fn start_free() -> StartThread {
    StartThread {
        thread_token: "thread-token".to_owned(),
        resolved: Some(ResolvedSpawn {
            sandbox: Sandbox::FullAccess.into(),
            ..Default::default()
        }),
        ..start()
    }
}

/// Waits until the content of a file that the program writes satisfies the predicate.
async fn wait_for_file(runner: &TestRunner, name: &str, is_complete: impl Fn(&str) -> bool) {
    let path = runner.directory.path().join(name);
    let written = async {
        while !fs::read_to_string(&path).is_ok_and(|text| is_complete(&text)) {
            yield_now().await;
        }
    };
    assert!(
        timeout(Duration::from_secs(20), written).await.is_ok(),
        "{name} is written"
    );
}

/// Waits until a [`SILENT`] program is running. Returns the ids of its processes.
async fn wait_for_silent_program(runner: &TestRunner) -> Vec<String> {
    wait_for_file(runner, "began", |_| true).await;
    let mark = runner.directory.path().join("began");
    let mark = mark.to_str().unwrap();
    // While a process replaces its program by another program, the process's command line is empty.
    let running = async {
        loop {
            let ids = processes_of(mark);
            if !ids.is_empty() {
                break ids;
            }
            yield_now().await;
        }
    };
    timeout(Duration::from_secs(20), running).await.expect("it is running")
}

/// Returns the ids of the processes whose command lines contain the mark.
fn processes_of(mark: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|process| {
        let line = fs::read(process.path().join("cmdline")).ok()?;
        let is_its = String::from_utf8_lossy(&line).contains(mark);
        is_its.then(|| process.file_name().to_string_lossy().into_owned())
    });
    ids.filter(|id| id.bytes().all(|byte| byte.is_ascii_digit())).collect()
}

#[tokio::test]
async fn hanging_program_start_ends_with_thread() {
    for (policy, grace) in [
        (ClosePolicy::Terminate, LONG),
        (ClosePolicy::Kill, LONG),
        (ClosePolicy::FinishTurn, SHORT),
    ] {
        let runner = runner(SILENT).await;
        let mut supervisor = runner.started(start_free()).await;
        let ids = wait_for_silent_program(&runner).await;
        supervisor.close(policy, grace).await;
        supervisor.stopped().await;
        all_gone(&ids).await;
        runner.shut_down().await.unwrap();
    }
}

#[tokio::test]
async fn hanging_program_restart_ends_with_thread() {
    let script = format!("if [ -e $DIR/first ]; then {SILENT}; fi\ntouch $DIR/first\n{BEGIN}\nexit 3");
    let runner = runner(&script).await;
    let mut supervisor = runner.started(start_free()).await;
    supervisor.turn_started().await;
    assert_eq!(supervisor.turn_ended().await.outcome(), TurnOutcome::Errored);
    supervisor.give_turn(turn(2)).await;
    let ids = wait_for_silent_program(&runner).await;
    supervisor.close(ClosePolicy::Kill, LONG).await;
    supervisor.stopped().await;
    all_gone(&ids).await;
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn stopping_runner_does_not_wait_for_start() {
    let runner = runner(SILENT).await;
    let _supervisor = runner.started(start_free()).await;
    let ids = wait_for_silent_program(&runner).await;
    runner.shut_down().await.unwrap();
    all_gone(&ids).await;
}

#[tokio::test]
async fn concurrent_permission_requests_are_bounded() {
    let asking = r#"
echo '{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"tool_call","toolCallId":"c","title":"bash","kind":"execute","status":"pending","rawInput":{}}}}'
n=0
while [ $n -lt 33 ]; do
  printf '{"jsonrpc":"2.0","id":%d,"method":"session/request_permission","params":{"toolCall":{"toolCallId":"c","kind":"execute","rawInput":{"command":"x"}},"options":[{"optionId":"once","kind":"allow_once"},{"optionId":"reject","kind":"reject_once"}]}}\n' $n
  n=$((n+1))
done
IFS= read -r answer; printf '%s\n' "$answer" > $DIR/answer
read -r end
"#;
    let runner = runner(&format!("{BEGIN}{asking}")).await;
    let mut supervisor = runner.started(start_free()).await;
    supervisor.turn_started().await;
    assert_eq!(supervisor.question().await.tool, "bash");
    // No operator decides, so the first response is the one to the request above the limit.
    wait_for_file(&runner, "answer", |text| text.ends_with('\n')).await;
    let answer = runner.file("answer");
    assert!(
        answer.contains(r#""id":32"#) && answer.contains(r#""optionId":"reject""#),
        "{answer}"
    );
    runner.shut_down().await.unwrap();
}
