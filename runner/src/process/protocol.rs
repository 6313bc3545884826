//! The line protocol of `docs/process-protocol.md`: converts orders to lines and lines to events. Pure.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Value, json};
use troupe_proto::{
    common::v1::BlockKind,
    supervisor::v1::{PromptExtent, plan_step::State},
};

use crate::{
    agent::{AgentEvent, FileKind, Order, ProducedFile, TurnEnding},
    input,
    prompt::join,
    redact, tool_line,
    usage::{Tokens, millionths},
};

/// Returns the line for the program. `None`: the order is only for programs that have their own tools.
pub(super) fn line(order: &Order) -> Option<String> {
    let message = match order {
        Order::Turn(turn) => json!({
            "type": "turn",
            "turn": turn.number,
            "extent": if turn.extent == PromptExtent::Delta { "delta" } else { "full" },
            "prompt": join(&turn.blocks),
            "blocks": turn
                .blocks
                .iter()
                .map(|block| json!({"kind": kind_name(block.kind()), "text": block.text}))
                .collect::<Vec<_>>(),
            "inputs": turn.inputs.iter().map(input::to_text).collect::<Vec<_>>(),
            "repeats": turn.repeats,
        }),
        Order::Input { number, input } => json!({"type": "input", "number": number, "items": input::to_json(input)}),
        Order::ToolAnswered { id, answer } => {
            let result = answer.clone().unwrap_or_else(|failure| failure.to_json());
            json!({"type": "tool_result", "id": id, "ok": answer.is_ok(), "result": result})
        }
        Order::Interrupt => json!({"type": "interrupt"}),
        Order::Permitted { .. } | Order::Explain(_) => return None,
    };
    Some(to_line(&message))
}

/// Returns the line that makes the program exit.
pub(super) fn shutdown() -> String {
    to_line(&json!({"type": "shutdown"}))
}

/// Returns a message with its line end. JSON escapes every line end within it, so the result is one line.
fn to_line(message: &Value) -> String {
    format!("{message}\n")
}

const fn kind_name(kind: BlockKind) -> &'static str {
    match kind {
        BlockKind::Unspecified => "",
        BlockKind::System => "system",
        BlockKind::Role => "role",
        BlockKind::Mode => "mode",
        BlockKind::Task => "task",
        BlockKind::Override => "override",
    }
}

/// Parses a line of the program. Every line is valid: a line outside the protocol is text.
pub(crate) fn parse(line: &str) -> AgentEvent {
    parse_object(line).unwrap_or_else(|| AgentEvent::Output(line.to_owned()))
}

fn parse_object(line: &str) -> Option<AgentEvent> {
    let mut object = tool_line::object(line)?;
    match tool_line::take_call(&mut object) {
        Some(call) => Some(AgentEvent::ToolCalled(call)),
        None => serde_json::from_value(Value::Object(object))
            .ok()
            .map(ProgramLine::into_event),
    }
}

/// A message of a program with a `type`.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ProgramLine {
    InputTaken {
        number: u32,
    },
    Status {
        activity: String,
    },
    Tool {
        name: String,
        #[serde(default)]
        detail: String,
    },
    Plan {
        steps: Vec<LineStep>,
    },
    Usage {
        #[serde(default)]
        input_tokens: u64,
        #[serde(default)]
        cached_input_tokens: u64,
        #[serde(default)]
        output_tokens: u64,
        #[serde(default)]
        cost_usd: Option<f64>,
        #[serde(default)]
        context_left_percent: Option<u32>,
    },
    Output {
        text: String,
    },
    File {
        name: String,
        #[serde(default)]
        media_type: String,
        #[serde(flatten)]
        content: LineContent,
    },
    TurnEnd {
        outcome: TurnEnding,
        #[serde(default)]
        message: String,
    },
}

#[derive(Deserialize)]
struct LineStep {
    step: String,
    #[serde(default)]
    state: StepState,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StepState {
    #[default]
    Pending,
    InProgress,
    Completed,
}

/// The content of a file. Exactly one of the keys must be present.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum LineContent {
    Text(String),
    Base64(#[serde(deserialize_with = "base64_bytes")] Vec<u8>),
    Url(String),
}

fn base64_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    STANDARD
        .decode(String::deserialize(deserializer)?)
        .map_err(D::Error::custom)
}

impl ProgramLine {
    fn into_event(self) -> AgentEvent {
        match self {
            Self::InputTaken { number } => AgentEvent::InputTaken(number),
            Self::Status { activity } => AgentEvent::Activity(redact::detail(&activity)),
            Self::Tool { name, detail } => AgentEvent::ToolUsed(redact::tool_use(&name, &detail)),
            Self::Plan { steps } => AgentEvent::Plan(redact::plan(
                steps.into_iter().map(|step| (step.step, step.state.into_state())),
            )),
            Self::Usage {
                input_tokens,
                cached_input_tokens,
                output_tokens,
                cost_usd,
                context_left_percent,
            } => AgentEvent::Spent {
                tokens: Tokens {
                    input: input_tokens,
                    cached_input: cached_input_tokens,
                    output: output_tokens,
                    cost: millionths(cost_usd),
                },
                context_left_percent: context_left_percent.map(|percent| percent.min(100)),
            },
            Self::Output { text } => AgentEvent::Output(text),
            Self::File {
                name,
                media_type,
                content,
            } => AgentEvent::File(content.into_file(&name, &media_type)),
            Self::TurnEnd {
                outcome: ending,
                message,
            } => AgentEvent::TurnEnded { ending, message },
        }
    }
}

impl LineContent {
    fn into_file(self, name: &str, media_type: &str) -> ProducedFile {
        let media_type = match &self {
            Self::Text(_) if media_type.is_empty() => "text/plain",
            _ => media_type,
        };
        let (kind, data) = match self {
            Self::Text(text) => (FileKind::File, text.into_bytes()),
            Self::Base64(data) => (FileKind::File, data),
            Self::Url(url) => (FileKind::Link, url.into_bytes()),
        };
        ProducedFile::new(kind, name, media_type, data)
    }
}

impl StepState {
    const fn into_state(self) -> State {
        match self {
            Self::Pending => State::Pending,
            Self::InProgress => State::InProgress,
            Self::Completed => State::Completed,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use proptest::prelude::*;
    use troupe_proto::{
        common::v1::PromptBlock,
        supervisor::v1::{Input, InputItem, PlanStep, ToolUse, input_item::Item},
    };

    use super::*;
    use crate::{prompt::PreparedTurn, tools::ToolFailure};

    fn read(line: &str) -> Value {
        assert!(line.ends_with('\n') && line.trim_end().lines().count() == 1, "{line:?}");
        serde_json::from_str(line).unwrap()
    }

    fn input(text: &str) -> Input {
        Input {
            items: vec![InputItem {
                item: Some(Item::Text(text.to_owned())),
            }],
            ..Input::default()
        }
    }

    #[test]
    fn written_lines_match_documentation() {
        let turn = PreparedTurn {
            number: 2,
            extent: PromptExtent::Delta,
            blocks: vec![PromptBlock {
                kind: BlockKind::Task.into(),
                text: "do\nit".to_owned(),
                sha256: String::new(),
            }],
            inputs: vec![input("it")],
            ..PreparedTurn::default()
        };
        let input_3 = Order::Input {
            number: 3,
            input: input("more"),
        };
        let answered = |answer| Order::ToolAnswered {
            id: "1".to_owned(),
            answer,
        };
        let cases = [
            (
                line(&Order::Turn(turn)),
                json!({"type": "turn", "turn": 2, "extent": "delta", "prompt": "do\nit",
                       "blocks": [{"kind": "task", "text": "do\nit"}], "inputs": ["it"], "repeats": false}),
            ),
            (
                line(&input_3),
                json!({"type": "input", "number": 3, "items": [{"type": "text", "text": "more"}]}),
            ),
            (
                line(&answered(Ok(json!({"agent_id": "a"})))),
                json!({"type": "tool_result", "id": "1", "ok": true, "result": {"agent_id": "a"}}),
            ),
            (
                line(&answered(Err(ToolFailure::unsupported("command")))),
                json!({"type": "tool_result", "id": "1", "ok": false,
                       "result": {"error": "unsupported tool: command", "reason": "INVALID_ARGUMENT"}}),
            ),
            (line(&Order::Interrupt), json!({"type": "interrupt"})),
            (Some(shutdown()), json!({"type": "shutdown"})),
        ];
        for (line, expected) in cases {
            assert_eq!(read(&line.unwrap()), expected);
        }
    }

    #[test]
    fn documented_lines_are_parsed() {
        let cases = [
            (
                r#"{"type":"status","activity":" reading\nthe task "}"#,
                AgentEvent::Activity("reading the task".to_owned()),
            ),
            (
                r#"{"type":"tool","name":"read_file"}"#,
                AgentEvent::ToolUsed(ToolUse {
                    name: "read_file".to_owned(),
                    detail: String::new(),
                }),
            ),
            (
                r#"{"type":"plan","steps":[{"step":"look","state":"completed"},{"step":"act"}]}"#,
                AgentEvent::Plan(vec![
                    PlanStep {
                        step: "look".to_owned(),
                        state: State::Completed.into(),
                    },
                    PlanStep {
                        step: "act".to_owned(),
                        state: State::Pending.into(),
                    },
                ]),
            ),
            (
                r#"{"type":"usage","input_tokens":7,"output_tokens":2,"cost_usd":0.25,"context_left_percent":130}"#,
                AgentEvent::Spent {
                    tokens: Tokens {
                        input: 7,
                        cached_input: 0,
                        output: 2,
                        cost: 250_000,
                    },
                    context_left_percent: Some(100),
                },
            ),
            (r#"{"type":"output","text":"hi"}"#, AgentEvent::Output("hi".to_owned())),
            (
                r#"{"type":"file","name":"a.txt","text":"hi"}"#,
                AgentEvent::File(ProducedFile::new(FileKind::File, "a.txt", "text/plain", b"hi".to_vec())),
            ),
            (
                r#"{"type":"file","name":"a.png","media_type":"image/png","base64":"AAE="}"#,
                AgentEvent::File(ProducedFile::new(FileKind::File, "a.png", "image/png", vec![0, 1])),
            ),
            (
                r#"{"type":"file","name":"a.png","media_type":"image/png","url":"https://example.com/a.png"}"#,
                AgentEvent::File(ProducedFile::new(
                    FileKind::Link,
                    "a.png",
                    "image/png",
                    b"https://example.com/a.png".to_vec(),
                )),
            ),
            (
                r#"{"type":"turn_end","outcome":"errored","message":"no"}"#,
                AgentEvent::TurnEnded {
                    ending: TurnEnding::Errored,
                    message: "no".to_owned(),
                },
            ),
        ];
        for (line, expected) in cases {
            assert_eq!(parse(line), expected, "{line}");
        }
    }

    #[test]
    fn tool_call_with_other_keys_is_a_call() {
        for line in [
            r#"{"tool_call":{"id":"c1","name":"wait","args":{"ids":[]}}}"#,
            r#"  {"type":"output","text":"hi","toolCall":{"id":"c1","name":"wait","args":{"ids":[]}}}"#,
        ] {
            let AgentEvent::ToolCalled(call) = parse(line) else {
                panic!("{line} is a call");
            };
            assert_eq!((call.id.as_str(), call.name.as_str()), ("c1", "wait"));
            assert_eq!(Value::Object(call.args), json!({"ids": []}));
        }
    }

    #[test]
    fn non_protocol_line_is_text() {
        for line in [
            "",
            "plain words",
            "{",
            "{}",
            "[1]",
            r#"{"type":"song","text":"la"}"#,
            r#"{"type":"turn_end"}"#,
            r#"{"type":"turn_end","outcome":"great"}"#,
            r#"{"tool_call":{"name":" "}}"#,
            r#"{"tool_call":"spawn_agent"}"#,
            r#"{"name":"wait","args":{}}"#,
            r#"here you are: {"tool_call":{"name":"wait"}}"#,
        ] {
            assert_eq!(parse(line), AgentEvent::Output(line.to_owned()));
        }
    }

    #[test]
    fn displayed_text_is_bounded() {
        let long = "x".repeat(5_000);
        let AgentEvent::Activity(activity) = parse(&json!({"type": "status", "activity": long}).to_string()) else {
            panic!("it is a status");
        };
        assert_eq!(activity.chars().count(), redact::MAX_DETAIL_CHARS);
    }

    proptest! {
        #[test]
        fn every_line_is_parsed(line in "\\PC{0,80}") {
            parse(&line);
        }

        #[test]
        fn every_text_is_written_as_one_line(text in any::<String>()) {
            let line = line(&Order::Input { number: 1, input: input(&text) }).unwrap();
            prop_assert_eq!(line.matches('\n').count(), 1);
            let read: Value = serde_json::from_str(&line).unwrap();
            prop_assert_eq!(read["items"][0]["text"].as_str(), Some(text.as_str()));
        }
    }
}
