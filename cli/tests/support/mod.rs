//! A pair as a process without a runner: threads stay in the state that the service assigns, and loopback is trusted.
#![allow(dead_code)]

pub mod browser;
pub mod screen;
pub mod up;

use std::{fs, path::Path, process::Stdio, time::Duration};

use tokio::{
    process::{Child, Command},
    time::timeout,
};
use tonic::transport::Channel;
use troupe_proto::supervisor::v1::{
    Event, GetSessionRequest, WatchThreadsRequest, agent_supervisor_service_client::AgentSupervisorServiceClient,
    watch_threads_response::Message,
};

/// Time limit for all operations on a busy machine.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);

pub type Client = AgentSupervisorServiceClient<Channel>;

/// Starts `up` with a home directory and connects once it is ready.
pub async fn start(home: &Path) -> (Child, Client) {
    start_with(home, &[]).await
}

/// Like [`start`], with additional flags.
pub async fn start_with(home: &Path, flags: &[&str]) -> (Child, Client) {
    let (process, client, _) = start_with_channel(home, flags).await;
    (process, client)
}

/// Like [`start_with`], but also returns the connection, for other services of the supervisor.
pub async fn start_with_channel(home: &Path, flags: &[&str]) -> (Child, Client, Channel) {
    let ready = home.join("ready.json");
    let _ = fs::remove_file(&ready);
    let mut process = Command::new(env!("CARGO_BIN_EXE_troupe"))
        .env_clear()
        .env("HOME", home)
        .current_dir(home)
        .args([
            "up",
            "--no-runner",
            "--max-threads",
            "5000",
            "--max-open-threads",
            "5000",
        ])
        .args(["--registry-listen", "127.0.0.1:0", "--supervisor-listen", "127.0.0.1:0"])
        .arg("--ready-file")
        .arg(&ready)
        .args(flags)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let address = timeout(TIME_LIMIT, async {
        loop {
            if let Ok(text) = fs::read_to_string(&ready) {
                let addresses: serde_json::Value = serde_json::from_str(&text).unwrap();
                return addresses["supervisor"].as_str().unwrap().to_owned();
            }
            assert!(process.try_wait().unwrap().is_none(), "`up` ended before it was ready");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    let channel = Channel::from_shared(format!("http://{address}"))
        .unwrap()
        .connect()
        .await
        .unwrap();
    (process, Client::new(channel.clone()), channel)
}

/// Returns the supervisor address of the pair that [`start`] started.
pub fn ready_address(home: &Path) -> String {
    let ready = fs::read_to_string(home.join("ready.json")).unwrap();
    let addresses: serde_json::Value = serde_json::from_str(&ready).unwrap();
    format!("http://{}", addresses["supervisor"].as_str().unwrap())
}

/// Returns the log of a session from its beginning.
pub async fn log(client: &mut Client, session: &str) -> Vec<Event> {
    let head = client
        .get_session(GetSessionRequest {
            session_id: session.to_owned(),
        })
        .await
        .unwrap()
        .into_inner()
        .session
        .unwrap()
        .sequence;
    let request = WatchThreadsRequest {
        session_id: session.to_owned(),
        after_sequence: Some(0),
        ..WatchThreadsRequest::default()
    };
    let mut stream = client.watch_threads(request).await.unwrap().into_inner();
    let mut events = Vec::new();
    timeout(TIME_LIMIT, async {
        while events.last().is_none_or(|event: &Event| event.sequence < head) {
            if let Some(Message::Event(event)) = stream.message().await.unwrap().unwrap().message {
                events.push(event);
            }
        }
    })
    .await
    .unwrap();
    events
}
