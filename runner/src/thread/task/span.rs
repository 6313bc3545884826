//! A turn and its tool calls as spans and metrics, following OpenTelemetry's conventions for generative AI, version
//! 1.41.0: the invocation of an agent, and the executions of tools in it. The spans and metrics contain names, ids,
//! durations and the usage, and no content.

use std::{collections::BTreeMap, sync::LazyLock, time::Duration};

use opentelemetry::{KeyValue, metrics::Histogram};
use svc_kit::{instruments::meter, trace_context::TraceParent, traces::WorkSpan};
use troupe_proto::supervisor::v1::{ToolVerdict, Turn, TurnOutcome};

use super::transcript::{MAX_CALLS, RecordedCall};
use crate::{agent::LaunchSpec, kinds::Role, text::cut, usage::Tokens};

/// Maximum length of a tool's name or of an id in a span, in bytes. The span of a call with a longer id ends at once.
const MAX_NAME_BYTES: usize = 256;

/// The bucket boundaries that the conventions prescribe for tokens.
const TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// The metrics of all turns. Created when the first turn ends, and thus after the telemetry has started.
static METRICS: LazyLock<TurnMetrics> = LazyLock::new(|| TurnMetrics {
    duration: meter()
        .f64_histogram("gen_ai.client.operation.duration")
        .with_unit("s")
        .with_description("How long turns of agents take")
        .build(),
    tokens: meter()
        .u64_histogram("gen_ai.client.token.usage")
        .with_unit("{token}")
        .with_description("Tokens that turns of agents use, by type")
        .with_boundaries(TOKENS.to_vec())
        .build(),
});

struct TurnMetrics {
    duration: Histogram<f64>,
    tokens: Histogram<u64>,
}

/// The span of a running turn, with the spans of its running tool calls.
pub(super) struct TurnSpan {
    span: WorkSpan,
    asked: Option<TraceParent>,
    /// The attributes of the metrics: operation, role, provider and model.
    labels: Vec<KeyValue>,
    /// The spans of running tool calls, by the program's id of the call.
    calls: BTreeMap<String, WorkSpan>,
}

impl TurnSpan {
    pub(super) fn begin(turn: &Turn, launch: &LaunchSpec, role: &Role) -> Self {
        let asked = TraceParent::parse(&turn.traceparent);
        let agent = &launch.resolved.agent_type;
        let mut labels = vec![
            KeyValue::new("gen_ai.operation.name", "invoke_agent"),
            KeyValue::new("gen_ai.agent.name", agent.clone()),
        ];
        let known = [
            ("gen_ai.provider.name", &launch.resolved.provider),
            ("gen_ai.request.model", &launch.resolved.model),
        ];
        for (name, value) in known.into_iter().filter(|(_, value)| !value.is_empty()) {
            labels.push(KeyValue::new(name, value.clone()));
        }
        let mut attributes = vec![
            KeyValue::new("gen_ai.agent.id", launch.attempt.thread_id.clone()),
            KeyValue::new("gen_ai.conversation.id", launch.session_id.clone()),
            KeyValue::new("troupe.turn", i64::from(turn.turn)),
            KeyValue::new("troupe.runner.kind", role.kind.describe().kind),
        ];
        attributes.extend(labels.iter().cloned());
        let span = WorkSpan::begin(format!("invoke_agent {agent}"), attributes, asked.as_ref());
        let calls = BTreeMap::new();
        Self {
            span,
            asked,
            labels,
            calls,
        }
    }

    /// Returns the parent context for the calls of the turn.
    pub(super) fn context(&self) -> Option<TraceParent> {
        self.span.context().or_else(|| self.asked.clone())
    }

    /// Records a tool call with its decision. `tool` is the canonical name. The span of an allowed call lasts until its
    /// result, and at most until the end of the turn.
    pub(super) fn call(&mut self, tool: &str, call: &RecordedCall<'_>) {
        let is_denied = call.verdict == ToolVerdict::Denied;
        let tool = cut(tool.to_owned(), MAX_NAME_BYTES);
        let mut attributes = vec![
            KeyValue::new("gen_ai.operation.name", "execute_tool"),
            KeyValue::new("gen_ai.tool.name", tool.clone()),
        ];
        let decision = match call.verdict {
            ToolVerdict::Allowed => "allowed",
            ToolVerdict::Denied => "denied",
            // The supervisor decides when it receives the call, or the program executes the call without asking.
            ToolVerdict::Unspecified => "",
        };
        let known = [
            ("gen_ai.tool.call.id", call.id),
            ("troupe.tool.decision", decision),
            ("troupe.approval.id", call.approval_id),
            ("error.type", if is_denied { "denied" } else { "" }),
        ];
        for (name, value) in known.into_iter().filter(|(_, value)| !value.is_empty()) {
            attributes.push(KeyValue::new(name, cut(value.to_owned(), MAX_NAME_BYTES)));
        }
        let span = WorkSpan::begin(format!("execute_tool {tool}"), attributes, self.context().as_ref());
        if is_denied {
            span.end(Vec::new(), Some("the call was denied"));
        } else if (1..=MAX_NAME_BYTES).contains(&call.id.len()) && self.calls.len() < MAX_CALLS {
            self.calls.insert(call.id.to_owned(), span);
        }
    }

    /// Returns the parent context for the calls that a tool call makes.
    pub(super) fn context_of(&self, call: &str) -> Option<TraceParent> {
        let call = self.calls.get(call).and_then(WorkSpan::context);
        call.or_else(|| self.context())
    }

    /// Ends the span of a tool call.
    pub(super) fn result(&mut self, id: &str, failed: bool) {
        let Some(span) = self.calls.remove(id) else { return };
        let (attributes, failure) = if failed {
            (vec![KeyValue::new("error.type", "tool")], Some("the tool failed"))
        } else {
            (Vec::new(), None)
        };
        span.end(attributes, failure);
    }

    /// Ends the span with the turn's outcome, duration and usage.
    pub(super) fn end(mut self, outcome: TurnOutcome, took: Duration, spent: Tokens) {
        // Calls without a result do not outlive their turn.
        self.calls.clear();
        let failure = match outcome {
            TurnOutcome::Errored => Some("the turn failed"),
            TurnOutcome::Unspecified | TurnOutcome::Completed | TurnOutcome::Interrupted => None,
        };
        let mut attributes = Vec::new();
        for (kind, span_key, tokens) in [
            ("input", "gen_ai.usage.input_tokens", spent.input),
            ("output", "gen_ai.usage.output_tokens", spent.output),
        ] {
            attributes.push(KeyValue::new(span_key, i64::try_from(tokens).unwrap_or(i64::MAX)));
            let labels = [&self.labels[..], &[KeyValue::new("gen_ai.token.type", kind)]].concat();
            METRICS.tokens.record(tokens, &labels);
        }
        if failure.is_some() {
            let error = KeyValue::new("error.type", "turn");
            attributes.push(error.clone());
            self.labels.push(error);
        }
        METRICS.duration.record(took.as_secs_f64(), &self.labels);
        self.span.end(attributes, failure);
    }
}
