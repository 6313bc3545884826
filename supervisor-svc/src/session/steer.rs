//! Giving a running turn more input. Nothing is recorded here: the input waits until its runner reports that it was taken,
//! and the next turn gets what was not. Sending it twice does no harm, since runners know inputs by their numbers.

use std::sync::Arc;

use troupe_proto::supervisor::v1 as pb;

use super::{directory::Context, failure::Failure};
use crate::domain::{
    ids::{InputNumber, RunnerId, SessionId, Turn},
    thread::Thread,
};

/// Input on its way into a turn.
pub(super) struct Delivery {
    pub(super) context: Arc<Context>,
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
        if let Err(failure) = self.deliver().await {
            tracing::warn!(thread = %self.thread.id, %failure, "input could not be given to a running turn");
        }
    }

    async fn deliver(&self) -> Result<(), Failure> {
        let (id, generation) = (self.thread.id, self.thread.generation);
        let waiting = self.thread.pending_inputs.iter();
        let wanted = waiting.filter(|input| input.number > self.after && input.number <= self.up_to);
        for waiting in wanted {
            let input: pb::Input = self.context.message(self.session, &waiting.content).await?;
            // A last word is the prompt's, and so is what comes after it.
            if !input.r#override.is_empty() {
                break;
            }
            let running = pb::RunningInput {
                number: waiting.number.get(),
                turn: self.turn.get(),
                input: Some(input),
            };
            // In order, or not at all.
            if !self
                .context
                .runners
                .deliver_input(&self.runner, id, generation, running)
            {
                break;
            }
        }
        Ok(())
    }
}
