//! Delivery of more input to a running turn. Nothing is recorded here: the input stays queued until its runner reports
//! that it was taken, and the next turn gets the rest. Duplicates are harmless, because runners recognise inputs by
//! number.

use std::sync::Arc;

use tokio::sync::mpsc;
use troupe_proto::supervisor::v1 as pb;

use crate::{domain::{ids::{InputNumber, RunnerId, SessionId, Turn}, state::thread::Thread}, engine::{directory::Context, error::Failure, message::Message}};

/// The delivery progress of a thread's input to its running turn.
#[derive(Debug)]
pub(super) enum Steered {
    /// A delivery is in flight. If `anew` is set, all input is sent again after it ends.
    UnderWay { anew: bool },
    /// All input up to this number was sent.
    Sent { turn: Turn, up_to: InputNumber },
    /// This turn gets no more input.
    Over { turn: Turn },
}

/// A delivery of input to a running turn.
pub(super) struct Delivery {
    pub(super) context: Arc<Context>,
    /// Receives the result.
    pub(super) control: mpsc::Sender<Message>,
    pub(super) session: SessionId,
    pub(super) thread: Arc<Thread>,
    pub(super) runner: RunnerId,
    pub(super) turn: Turn,
    /// The last input that was sent before.
    pub(super) after: InputNumber,
    /// The last input to send.
    pub(super) up_to: InputNumber,
}

impl Delivery {
    pub(super) async fn run(self) {
        let reached = self.deliver().await.unwrap_or_else(|failure| {
            tracing::warn!(thread = %self.thread.id, %failure, "input could not be given to a running turn");
            Steered::Over { turn: self.turn }
        });
        // An error means that the session was passivated.
        let _ = self.control.send(Message::Steered(self.thread.id, reached)).await;
    }

    async fn deliver(&self) -> Result<Steered, Failure> {
        let (id, generation, turn) = (self.thread.id, self.thread.generation, self.turn);
        let waiting = self.thread.pending_inputs.iter();
        let wanted = waiting.filter(|input| input.number > self.after && input.number <= self.up_to);
        for waiting in wanted {
            let input: pb::Input = self.context.message(self.session, &waiting.content).await?;
            // An override applies to the prompt of the next turn, and so do all later inputs.
            if !input.r#override.is_empty() {
                return Ok(Steered::Over { turn });
            }
            let running = pb::RunningInput {
                number: waiting.number.get(),
                turn: turn.get(),
                input: Some(input),
            };
            // Inputs are sent in order or not at all.
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
