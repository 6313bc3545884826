//! Giving a running turn more input. Nothing is recorded here: the input waits until its runner reports that it was taken,
//! and the next turn gets what was not. Sending it twice does no harm, since runners know inputs by their numbers.

use std::sync::Arc;

use tokio::sync::mpsc;
use troupe_proto::supervisor::v1 as pb;

use super::{directory::Context, failure::Failure, message::Message};
use crate::domain::{
    ids::{InputNumber, RunnerId, SessionId, Turn},
    thread::Thread,
};

/// How far the input of a thread was sent to its running turn.
#[derive(Debug)]
pub(super) enum Steered {
    /// A delivery is under way; once it has ended, all is to be sent `anew`.
    UnderWay { anew: bool },
    /// All of it up to that input.
    Sent { turn: Turn, up_to: InputNumber },
    /// As much as this turn gets.
    Over { turn: Turn },
}

/// Input on its way into a turn.
pub(super) struct Delivery {
    pub(super) context: Arc<Context>,
    /// Who is told how it ended.
    pub(super) control: mpsc::Sender<Message>,
    pub(super) session: SessionId,
    pub(super) thread: Arc<Thread>,
    pub(super) runner: RunnerId,
    pub(super) turn: Turn,
    /// The last input that was sent before.
    pub(super) after: InputNumber,
    /// The last of the inputs that it gets.
    pub(super) up_to: InputNumber,
}

impl Delivery {
    pub(super) async fn run(self) {
        let reached = self.deliver().await.unwrap_or_else(|failure| {
            tracing::warn!(thread = %self.thread.id, %failure, "input could not be given to a running turn");
            Steered::Over { turn: self.turn }
        });
        // The session may have been put away.
        let _ = self.control.send(Message::Steered(self.thread.id, reached)).await;
    }

    async fn deliver(&self) -> Result<Steered, Failure> {
        let (id, generation, turn) = (self.thread.id, self.thread.generation, self.turn);
        let waiting = self.thread.pending_inputs.iter();
        let wanted = waiting.filter(|input| input.number > self.after && input.number <= self.up_to);
        for waiting in wanted {
            let input: pb::Input = self.context.message(self.session, &waiting.content).await?;
            // A last word is the prompt's, and so is what comes after it.
            if !input.r#override.is_empty() {
                return Ok(Steered::Over { turn });
            }
            let running = pb::RunningInput {
                number: waiting.number.get(),
                turn: turn.get(),
                input: Some(input),
            };
            // In order, or not at all.
            if !self
                .context
                .runners
                .deliver_input(&self.runner, id, generation, running)
            {
                return Ok(Steered::Over { turn });
            }
        }
        Ok(Steered::Sent {
            turn,
            up_to: self.up_to,
        })
    }
}
