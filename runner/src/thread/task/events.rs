//! The program's events, and their telemetry.

use sha2::Digest as _;
use tokio::time::Instant;
use tracing::debug;
use troupe_proto::supervisor::v1::{
    ContextLostReport, PolicyGapReport, Telemetry, TranscriptKind, runner_report::Kind,
};

use super::{ThreadTask, turns::report_artifact};
use crate::{
    agent::{AgentEvent, TurnEnding},
    thread::ThreadEvent,
};

impl ThreadTask {
    pub(super) async fn handle_event(&mut self, event: AgentEvent) {
        match event {
            AgentEvent::Activity(activity) => self.meter.show(|shown| shown.activity = activity),
            AgentEvent::ToolUsed(tool) => {
                self.transcript.used(&tool);
                self.meter.show(|shown| shown.last_tool = Some(tool));
            }
            AgentEvent::Plan(plan) => {
                self.transcript.plan(&plan);
                self.meter.show(|shown| shown.plan = plan);
            }
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
                self.transcript.piece(TranscriptKind::Message, &text);
                self.meter.output(&text);
            }
            AgentEvent::MessageEnd => self.transcript.close(),
            AgentEvent::File(file) => {
                if let Some(turn) = &self.turn {
                    report_artifact(&self.reporter, turn.number, file).await;
                }
            }
            AgentEvent::Reasoning(text) => self.transcript.piece(TranscriptKind::Reasoning, &text),
            AgentEvent::ToolStarted(started) => self.record_started(&started),
            AgentEvent::ToolEnded { id, failed, text, size } => self.record_result(&id, failed, &text, size),
            AgentEvent::ToolCalled(call) => self.call(call),
            AgentEvent::ToolAsked(asked) => self.ask(asked),
            AgentEvent::UnofferedCall { tool, arguments } => self.refuse_unoffered(tool, arguments),
            AgentEvent::ContextLost(reason) => {
                self.reporter
                    .report(Kind::ContextLost(ContextLostReport { reason }))
                    .await;
            }
            AgentEvent::PolicyGap(gap) => {
                self.reporter.report(Kind::PolicyGap(PolicyGapReport { gap })).await;
            }
            AgentEvent::InputTaken(number) => self.report_input_taken(number).await,
            AgentEvent::TurnEnded { ending, message } => self.end_turn(ending, message).await,
            AgentEvent::Exited(complaint) => {
                debug!(thread_id = self.reporter.attempt.thread_id, "the program has ended");
                self.program_gone();
                self.end_turn(TurnEnding::Errored, complaint).await;
            }
        }
    }

    /// Sends the waiting entries of the transcript.
    pub(super) async fn transcribe(&mut self) {
        for entries in self.transcript.take() {
            self.reporter.report_event(ThreadEvent::Transcript(entries)).await;
        }
    }

    pub(super) async fn show(&mut self) {
        let reading = self.meter.take(Instant::now());
        if !reading.output.is_empty() {
            self.reporter.report_event(ThreadEvent::Output(reading.output)).await;
        }
        if let Some(shown) = reading.shown {
            let turn_time = self.turn.as_ref().map(|turn| turn.since.elapsed());
            let telemetry = Telemetry {
                thread_id: self.reporter.attempt.thread_id.clone(),
                generation: self.reporter.attempt.generation,
                usage: Some(self.usage.usage(turn_time.unwrap_or_default())),
                context_left_percent: shown.context_left_percent,
                last_tool: shown.last_tool,
                activity: shown.activity,
                plan: shown.plan,
                turn_time: turn_time.and_then(|time| time.try_into().ok()),
            };
            self.reporter.report_event(ThreadEvent::Telemetry(telemetry)).await;
        }
    }
}
