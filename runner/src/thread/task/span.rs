//! A turn as a span, following OpenTelemetry's conventions for generative AI: the invocation of an agent. It contains
//! the agent, the duration and the usage, and no content.

use opentelemetry::KeyValue;
use svc_kit::{trace_context::TraceParent, traces::WorkSpan};
use troupe_proto::supervisor::v1::{Turn, TurnOutcome};

use crate::{agent::LaunchSpec, kinds::Role, usage::Tokens};

/// The span of a running turn.
pub(super) struct TurnSpan {
    span: WorkSpan,
    asked: Option<TraceParent>,
}

impl TurnSpan {
    pub(super) fn begin(turn: &Turn, launch: &LaunchSpec, role: &Role) -> Self {
        let asked = TraceParent::parse(&turn.traceparent);
        let agent = &launch.resolved.agent_type;
        let mut attributes = vec![
            KeyValue::new("gen_ai.operation.name", "invoke_agent"),
            KeyValue::new("gen_ai.agent.name", agent.clone()),
            KeyValue::new("gen_ai.agent.id", launch.attempt.thread_id.clone()),
            KeyValue::new("gen_ai.conversation.id", launch.session_id.clone()),
            KeyValue::new("troupe.turn", i64::from(turn.turn)),
            KeyValue::new("troupe.runner.kind", role.kind.describe().kind),
        ];
        let known = [
            ("gen_ai.provider.name", &launch.resolved.provider),
            ("gen_ai.request.model", &launch.resolved.model),
        ];
        for (name, value) in known.into_iter().filter(|(_, value)| !value.is_empty()) {
            attributes.push(KeyValue::new(name, value.clone()));
        }
        let span = WorkSpan::begin(format!("invoke_agent {agent}"), attributes, asked.as_ref());
        Self { span, asked }
    }

    /// Returns the parent context for the calls of the turn.
    pub(super) fn context(&self) -> Option<TraceParent> {
        self.span.context().or_else(|| self.asked.clone())
    }

    /// Ends the span with the turn's outcome and usage.
    pub(super) fn end(self, outcome: TurnOutcome, spent: Tokens) {
        let tokens = |name, tokens| KeyValue::new(name, i64::try_from(tokens).unwrap_or(i64::MAX));
        let attributes = vec![
            tokens("gen_ai.usage.input_tokens", spent.input),
            tokens("gen_ai.usage.output_tokens", spent.output),
        ];
        let failure = match outcome {
            TurnOutcome::Errored => Some("the turn failed"),
            TurnOutcome::Unspecified | TurnOutcome::Completed | TurnOutcome::Interrupted => None,
        };
        self.span.end(attributes, failure);
    }
}
