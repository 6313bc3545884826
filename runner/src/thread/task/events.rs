//! What the program does, and what of it is shown.

use sha2::Digest as _;
use tokio::time::Instant;
use tracing::debug;
use troupe_proto::{
    reason::Reason,
    supervisor::v1::{Telemetry, ToolUse},
};

use super::ThreadTask;
use crate::{
    agent::{AgentEvent, Ending},
    text::one_line,
    thread::News,
    tools::{ToolAnswer, ToolCall, ToolFailure},
};

/// How many tool calls of one thread run at once.
const MAX_CALLS: usize = 32;
/// How much of the name of a called tool is shown, in characters.
const MAX_TOOL_NAME_CHARS: usize = 128;

impl ThreadTask {
    pub(super) async fn hear(&mut self, event: AgentEvent) {
        match event {
            AgentEvent::Activity(activity) => self.meter.show(|shown| shown.activity = activity),
            AgentEvent::ToolUsed(tool) => self.meter.show(|shown| shown.last_tool = Some(tool)),
            AgentEvent::Plan(plan) => self.meter.show(|shown| shown.plan = plan),
            AgentEvent::Spent {
                tokens,
                context_left_percent,
            } => {
                self.usage.read(tokens);
                self.meter.show(|shown| {
                    shown.context_left_percent = context_left_percent.or(shown.context_left_percent);
                });
            }
            AgentEvent::Output(text) => {
                if let Some(turn) = &mut self.turn {
                    turn.output.update(&text);
                }
                self.meter.output(&text);
            }
            AgentEvent::ToolCalled(call) => self.call(call),
            AgentEvent::TurnEnded { ending, message } => self.end_turn(ending, message).await,
            AgentEvent::Exited(complaint) => {
                debug!(thread_id = self.voice.attempt.thread_id, "the program has ended");
                self.program_gone();
                self.end_turn(Ending::Errored, complaint).await;
            }
        }
    }

    fn call(&mut self, mut call: ToolCall) {
        if call.id.is_empty() {
            self.minted_ids += 1;
            call.id = format!("call-{}", self.minted_ids);
        }
        let refusal = if self.turn.is_none() {
            Some(ToolFailure::new(Reason::IllegalTransition, "no turn is running"))
        } else if self.calls.len() >= MAX_CALLS {
            let text = format!("too many tool calls at once (max {MAX_CALLS})");
            Some(ToolFailure::new(Reason::LimitExceeded, text))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            self.answer(&call.id, &Err(refusal));
            return;
        }
        let used = ToolUse {
            name: one_line(&call.name, MAX_TOOL_NAME_CHARS),
            detail: String::new(),
        };
        self.meter.show(|shown| shown.last_tool = Some(used));
        let toolbox = self.toolbox.clone();
        self.calls.spawn(async move {
            let id = call.id.clone();
            (id, toolbox.call(call).await)
        });
    }

    pub(super) fn answer(&mut self, id: &str, answer: &ToolAnswer) {
        if let Some(agent) = &mut self.agent {
            // A program that does not listen is found out at its next turn.
            let _ = agent.answer_tool(id, answer);
        }
    }

    pub(super) async fn show(&mut self) {
        let reading = self.meter.take(Instant::now());
        if !reading.output.is_empty() {
            self.voice.tell(News::Output(reading.output)).await;
        }
        if let Some(shown) = reading.shown {
            let turn_time = self.turn.as_ref().map(|turn| turn.since.elapsed());
            let telemetry = Telemetry {
                thread_id: self.voice.attempt.thread_id.clone(),
                generation: self.voice.attempt.generation,
                usage: Some(self.usage.usage(turn_time.unwrap_or_default())),
                context_left_percent: shown.context_left_percent,
                last_tool: shown.last_tool,
                activity: shown.activity,
                plan: shown.plan,
                turn_time: turn_time.and_then(|time| time.try_into().ok()),
            };
            self.voice.tell(News::Telemetry(telemetry)).await;
        }
    }
}
