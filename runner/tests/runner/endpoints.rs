//! Roles that name a model endpoint. Programs that support endpoints receive it. For other programs a gap is reported.

use std::{path::Path, process::Command};

use troupe_proto::{
    common::v1::{ResolvedSpawn, Sandbox},
    supervisor::v1::{StartThread, runner_report::Kind},
};
use troupe_runner::{AcpProgram, AgentProgram, Profile, Program, ProgramKind};

use crate::{
    acp::BEGIN,
    supervisor::{Attached, TestRunner, start},
};

const ENDPOINT: &str = "https://proxy.example/v1";

/// Begins as Claude Code does, and reads its first prompt.
const CLAUDE: &str = r#"#!/bin/sh
printf '%s' "$ANTHROPIC_BASE_URL" > $DIR/told
read -r greeting
echo '{"type":"control_response","response":{"subtype":"success","request_id":"r1","response":{}}}'
read -r prompt
read -r end
"#;

async fn runner(program: impl FnOnce(&str) -> Program) -> TestRunner {
    TestRunner::with("", |config| {
        let directory = config.scratch.parent().unwrap().to_str().unwrap();
        config.programs = program(directory).into();
    })
    .await
}

fn opencode(directory: &str) -> Program {
    let script = format!("printf '%s' \"$OPENCODE_CONFIG_CONTENT\" > {directory}/told\n{BEGIN}\nread -r end");
    Program::any(ProgramKind::Acp(AcpProgram {
        program: AgentProgram {
            command: "/bin/sh".into(),
            ..AgentProgram::opencode()
        },
        args: vec!["-c".to_owned(), script],
        ..AcpProgram::of(Profile::OpenCode)
    }))
}

fn claude(directory: &str) -> Program {
    let path = Path::new(directory).join("claude");
    // A shell writes the file. A process that starts concurrently would inherit an open descriptor from this process,
    // and the file could not be executed.
    let written = Command::new("/bin/sh")
        .args(["-c", "printf '%s' \"$1\" > \"$2\" && chmod +x \"$2\"", "sh"])
        .arg(CLAUDE.replace("$DIR", directory))
        .arg(&path)
        .status();
    assert!(written.unwrap().success());
    Program::any(ProgramKind::Claude(AgentProgram {
        command: path,
        ..AgentProgram::claude()
    }))
}

/// Returns the start of a thread whose role has that model and an endpoint. It does not need bubblewrap.
fn start_with(model: &str) -> StartThread {
    StartThread {
        thread_token: "thread-token".to_owned(),
        resolved: Some(ResolvedSpawn {
            sandbox: Sandbox::FullAccess.into(),
            model: model.to_owned(),
            endpoint: ENDPOINT.to_owned(),
            ..Default::default()
        }),
        ..start()
    }
}

async fn gap(supervisor: &mut Attached) -> String {
    loop {
        if let Some(Kind::PolicyGap(report)) = supervisor.acknowledged_report().await.kind {
            return report.gap;
        }
    }
}

#[tokio::test]
async fn program_receives_endpoint_of_model() {
    let stage_of_opencode = runner(opencode).await;
    let mut supervisor = stage_of_opencode.attached(Vec::new()).await;
    supervisor.start(start_with("acme/m")).await;
    // If there were a gap, it would be the first report.
    supervisor.turn_started().await;
    let told = stage_of_opencode.file("told");
    // The program receives the address of a local proxy with the path of the endpoint. The proxy counts its requests.
    let (_, address) = told
        .split_once(r#""provider":{"acme":{"options":{"baseURL":"http://127.0.0.1:"#)
        .expect(&told);
    let (port, rest) = address.split_once('/').expect(&told);
    assert!(port.parse::<u16>().is_ok() && rest.starts_with(r#"v1"}"#), "{told}");
    stage_of_opencode.shut_down().await.unwrap();

    let runner = runner(claude).await;
    let mut supervisor = runner.started(start_with("m")).await;
    supervisor.turn_started().await;
    assert_eq!(runner.file("told"), ENDPOINT);
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn unused_endpoint_is_a_gap() {
    // OpenCode receives no provider with the model, and Claude Code uses its own model instead of the role's.
    let default = |directory: &str| claude(directory).with_default_model().unwrap();
    for runner in [runner(opencode).await, runner(default).await] {
        let mut supervisor = runner.started(start_with("m")).await;
        assert!(gap(&mut supervisor).await.contains("endpoint"));
        assert!(!runner.file("told").contains(ENDPOINT));
        runner.shut_down().await.unwrap();
    }
}
