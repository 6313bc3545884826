//! Demonstrates a client of a running pair: it lists the agent types, opens a session, spawns a tree, tries a spawn
//! that is too deep, follows the tree across a disconnect, and closes the session.

use std::{error::Error, process::ExitCode};

use tonic::Status;
use troupe_client::{
    client::Client,
    environment::Environment,
    refusal::{self, DEPTH_LIMIT},
    supervisor::v1::{CloseSessionRequest, Event, event::Kind, watch_threads_response::Message},
    watch::{Position, Watch},
};
use uuid::Uuid;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match tour().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn tour() -> Result<(), Box<dyn Error>> {
    let environment = Environment::read();
    let client = Client::new(&environment)?;
    for agent in client.agents(&environment.project).await? {
        println!("{:<14} {}", agent.agent_type, agent.description);
    }

    let request_id = Uuid::new_v4().to_string();
    let opened = client.open(&request_id, &environment.project, 2).await?;
    let session = &opened.session_id;
    // The agents that `troupe up` runs have no model; `hold` keeps them busy until they are stopped.
    let lead = client
        .spawn(
            session,
            &opened.root_thread_id,
            "orchestrator",
            "Lead the search.\nhold",
        )
        .await?;
    let scout = client
        .spawn(session, &lead, "explorer", "Find the main function.")
        .await?;
    spawn_too_deep(&client, session, &scout).await?;
    follow(&client, session, &scout).await?;
    Ok(())
}

/// Tries a spawn below the session's maximum depth. Any other error is returned.
async fn spawn_too_deep(client: &Client, session: &str, parent: &str) -> Result<(), Box<dyn Error>> {
    match client.spawn(session, parent, "explorer", "Deeper.").await {
        Ok(thread) => Err(format!("the spawn of {thread} below {parent} was not rejected").into()),
        Err(status) if refusal::reason(&status).as_deref() == Some(DEPTH_LIMIT) => {
            println!("refused: {}", status.message());
            Ok(())
        }
        Err(status) => Err(status.into()),
    }
}

/// Prints all events of the session. When the scout's turn has ended, it drops the stream and closes the session, so
/// that a second stream delivers the events of the close.
async fn follow(client: &Client, session: &str, scout: &str) -> Result<(), Status> {
    let mut watch = Watch::new(client, session, Position::beginning());
    loop {
        let Some(Message::Event(event)) = watch.next().await?.message else {
            continue;
        };
        println!("{:4} {:<18} {}", event.sequence, kind(&event), event.thread_id);
        match event.kind {
            Some(Kind::TurnEnded(_)) if event.thread_id == scout => {
                watch.disconnect();
                let request = CloseSessionRequest {
                    session_id: session.to_owned(),
                    ..CloseSessionRequest::default()
                };
                client.supervisor.clone().close_session(request).await?;
            }
            Some(Kind::SessionClosed(_)) => return Ok(()),
            _ => {}
        }
    }
}

/// Returns the event's name. Later releases may send kinds that the protos of this client do not contain.
fn kind(event: &Event) -> String {
    match &event.kind {
        // The debug text begins with the variant's name.
        Some(kind) => format!("{kind:?}")
            .chars()
            .take_while(|&letter| letter != '(')
            .collect(),
        None => "(unknown)".to_owned(),
    }
}
