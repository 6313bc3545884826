//! Delivery of more input to a running turn. Nothing is recorded here: the input stays queued until its runner reports
//! that the program took it. The next turn gets the rest. Duplicates are harmless, because runners recognise inputs by
//! number.

use std::sync::Arc;

use troupe_proto::supervisor::v1 as pb;

use super::services::Services;
use crate::{
    domain::{
        ids::{InputNumber, RunnerId, SessionId, Turn},
        state::thread::Thread,
    },
    engine::{Failure, read_message},
};

/// The delivery progress of a thread's input to its running turn.
#[derive(Debug)]
pub(super) enum Steering {
    /// A delivery is in flight. If `repeat` is set, all input is sent again after it ends.
    InFlight { repeat: bool },
    /// All input up to this number was sent.
    Sent { turn: Turn, up_to: InputNumber },
    /// This turn gets no more input.
    Over { turn: Turn },
}

/// A delivery of input to a running turn.
pub(super) struct SteerJob {
    pub services: Arc<Services>,
    pub session: SessionId,
    pub thread: Arc<Thread>,
    pub runner: RunnerId,
    pub turn: Turn,
    /// The last input that was sent before.
    pub after: InputNumber,
    /// The last input to send.
    pub up_to: InputNumber,
}

impl SteerJob {
    /// Delivers the input and returns the progress.
    pub async fn run(&self) -> Steering {
        self.deliver().await.unwrap_or_else(|failure| {
            tracing::warn!(thread = %self.thread.id, %failure, "input not delivered to a running turn");
            Steering::Over { turn: self.turn }
        })
    }

    async fn deliver(&self) -> Result<Steering, Failure> {
        let (id, generation, turn) = (self.thread.id, self.thread.generation, self.turn);
        let waiting = self.thread.pending_inputs.iter();
        let wanted = waiting.filter(|input| input.number > self.after && input.number <= self.up_to);
        for waiting in wanted {
            let input: pb::Input = read_message(self.services.store.as_ref(), self.session, &waiting.content).await?;
            // An override applies to the prompt of the next turn. This input and all later ones wait for that turn.
            if !input.r#override.is_empty() {
                return Ok(Steering::Over { turn });
            }
            let running = pb::RunningInput {
                number: waiting.number.get(),
                turn: turn.get(),
                input: Some(input),
            };
            // Inputs are sent in order or not at all.
            if !self.services.hub.deliver_input(&self.runner, id, generation, running) {
                return Ok(Steering::Over { turn });
            }
        }
        Ok(Steering::Sent {
            turn,
            up_to: self.up_to,
        })
    }
}
