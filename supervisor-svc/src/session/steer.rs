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
        let waiting = self.thread.pending_inputs.iter();
        for input in waiting.take_while(|input| input.number <= self.up_to) {
            let running = pb::RunningInput {
                number: input.number.get(),
                turn: self.turn.get(),
                input: Some(self.context.message(self.session, &input.content).await?),
            };
            self.context
                .runners
                .deliver_input(&self.runner, self.thread.id, self.thread.generation, running);
        }
        Ok(())
    }
}
