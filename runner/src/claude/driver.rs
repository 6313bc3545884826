//! The conversation with Claude Code: JSON lines in both directions, which also contain the calls of the supervisor's
//! tools and of the hook.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::debug;
use troupe_proto::supervisor::v1::ToolDescription;

use super::{events, settings::SERVER};
use crate::{
    agent::{AgentEvent, AskedTool, Order},
    driven::{DriverChannels, Program},
    hook, input, prompt,
    tool_line::ToolCall,
    tools::{ToolAnswer, ToolFailure, answer_text, schema},
    usage::{CallTokens, Tokens, percentage_left},
};

/// Time limit for the initialization.
const GREETING_LIMIT: Duration = Duration::from_secs(60);
/// The id of the only hook.
const HOOK: &str = "pre";
/// Maximum number of stored calls of tools that are not offered.
const MAX_UNOFFERED: usize = 64;
/// Maximum length of such a call's id, in bytes.
const MAX_ID_BYTES: usize = 1024;
/// Maximum length of such a call as JSON, in bytes.
const MAX_CALL_BYTES: usize = 64 * 1024;
/// The MCP version to use if the program does not name one.
const MCP_VERSION: &str = "2025-06-18";

/// The driver of one Claude Code process.
pub(super) struct Driver {
    program: Program,
    tools: Vec<ToolDescription>,
    /// The program's own tools that the thread is offered.
    native: Vec<&'static str>,
    /// Calls of tools that are not offered, by id, until the program reports that it refused them.
    unoffered: BTreeMap<String, (String, Value)>,
    /// The id of the request for the size of the model's context, if that request was sent.
    context_asked: Option<String>,
    last_id: u64,
    is_running: bool,
    /// The tokens since the program's start.
    calls: CallTokens,
    /// The tokens of all models in the session up to the last result. `None`: not known yet, because the session was
    /// resumed.
    of_models: Option<Tokens>,
    /// Whether the reported cost covers all calls of the session. False after the session was resumed.
    reports_cost: bool,
    /// The size of the model's context. 0: not known yet.
    window: u64,
}

impl Driver {
    pub(super) fn new(program: Program, tools: Vec<ToolDescription>, native: Vec<&'static str>) -> Self {
        Self {
            program,
            tools,
            native,
            unoffered: BTreeMap::new(),
            context_asked: None,
            last_id: 0,
            is_running: false,
            calls: CallTokens::default(),
            of_models: None,
            reports_cost: false,
            window: 0,
        }
    }

    /// Prepares for a new session, which has no earlier usage.
    pub(super) fn mark_new_session(&mut self) {
        self.of_models = Some(Tokens::default());
        self.reports_cost = true;
    }

    /// Registers the hook and the supervisor's tools.
    ///
    /// # Errors
    ///
    /// The program ended, or does not answer.
    pub(super) async fn prepare(&mut self) -> Result<(), String> {
        let id = self.control(json!({
            "subtype": "initialize",
            "hooks": {"PreToolUse": [{
                "matcher": "*",
                "hookCallbackIds": [HOOK],
                "timeout": hook::LIMIT.as_secs(),
            }]},
            "sdkMcpServers": [SERVER],
        }));
        let answered = async {
            loop {
                let incoming = self.program.receive_new().await?;
                let answer = &incoming["response"];
                if incoming["type"] == "control_response" && answer["request_id"] == id.as_str() {
                    return match answer["subtype"].as_str() {
                        Some("success") => Ok(()),
                        _ => Err(answer["error"].as_str().unwrap_or("it refuses its hook").to_owned()),
                    };
                }
                match protocol_answer(&incoming, &self.tools) {
                    Some(answer) => self.program.send(&answer),
                    None => self.program.keep(&incoming)?,
                }
            }
        };
        timeout(GREETING_LIMIT, answered)
            .await
            .unwrap_or_else(|_| Err(format!("it did not begin within {GREETING_LIMIT:?}")))
    }

    pub(super) async fn drive(mut self, mut channels: DriverChannels) {
        loop {
            tokio::select! {
                // A turn that has ended accepts no more input, so the program's output is processed before new orders.
                biased;
                incoming = self.program.receive() => match incoming {
                    Ok(incoming) => self.handle_message(&incoming, &channels).await,
                    Err(complaint) => {
                        channels.emit(AgentEvent::Exited(complaint)).await;
                        return;
                    }
                },
                order = channels.orders.recv() => match order {
                    Some(order) => self.handle_order(order, &channels).await,
                    None => return,
                },
            }
        }
    }

    async fn handle_order(&mut self, order: Order, channels: &DriverChannels) {
        match order {
            Order::Turn(turn) => {
                self.is_running = true;
                self.send_user_message(&prompt::assignment(&turn));
            }
            // Outside of a turn, the message would start a turn.
            Order::Input { .. } if !self.is_running => {}
            Order::Input { number, input } => {
                self.send_user_message(&input::to_text(&input));
                channels.emit(AgentEvent::InputTaken(number)).await;
            }
            Order::ToolAnswered { id, answer } => self.answer_tool(&id, &answer),
            Order::Permitted { id, verdict } => self.answer_hook(&id, &verdict),
            // Outside of a turn, the message would start a turn.
            Order::Explain(_) if !self.is_running => {}
            Order::Explain(text) => self.send_user_message(&text),
            Order::Interrupt => {
                self.control(json!({"subtype": "interrupt"}));
            }
        }
    }

    fn send_user_message(&self, text: &str) {
        self.program.send(&json!({
            "type": "user",
            "message": {"role": "user", "content": text},
            "parent_tool_use_id": null,
            "session_id": "",
        }));
    }

    fn control(&mut self, request: Value) -> String {
        self.last_id += 1;
        let id = format!("r{}", self.last_id);
        self.program
            .send(&json!({"type": "control_request", "request_id": id, "request": request}));
        id
    }

    /// Answers a tool call. `id` consists of the id of the request that contained the call and of the call's own id.
    fn answer_tool(&self, id: &str, answer: &ToolAnswer) {
        let Ok((request, call)) = serde_json::from_str::<(String, Value)>(id) else {
            return;
        };
        let content = [json!({"type": "text", "text": answer_text(answer)})];
        let result = json!({"content": content, "isError": answer.is_err()});
        self.program.send(&mcp_response(&request, &call, &result));
    }

    fn answer_hook(&self, request: &str, verdict: &Result<(), ToolFailure>) {
        // The decision is always explicit, because in some modes the program treats any other answer as permission.
        let answer = match verdict {
            Ok(()) => json!({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}),
            Err(failure) => hook::denial(failure.text()),
        };
        self.program.send(&control_response(request, &answer));
    }

    async fn handle_message(&mut self, incoming: &Value, channels: &DriverChannels) {
        if incoming["type"] == "assistant" {
            // Each piece of a message repeats the tokens of its call. Calls of the program's own agents count as well.
            let message = &incoming["message"];
            self.calls
                .call(message["id"].as_str().unwrap_or_default(), events::tokens(message));
            channels.emit(self.meter(None)).await;
        }
        match incoming["type"].as_str().unwrap_or_default() {
            "control_request" => self.handle_request(incoming, channels).await,
            "assistant" if incoming["parent_tool_use_id"].is_null() => {
                let pieces = incoming["message"]["content"].as_array().into_iter().flatten();
                for piece in pieces {
                    self.record_unoffered(piece);
                    for event in events::piece(piece) {
                        channels.emit(event).await;
                    }
                }
                self.ask_context();
                let left = events::context_left(&incoming["message"]["usage"], self.window);
                if left.is_some() {
                    channels.emit(self.meter(left)).await;
                }
            }
            "user" => self.handle_results(incoming, channels).await,
            "control_response" if self.context_asked.as_deref() == incoming["response"]["request_id"].as_str() => {
                self.handle_context_usage(&incoming["response"]["response"], channels)
                    .await;
            }
            "system" if incoming["subtype"] == "api_retry" => {
                channels.emit(events::retry(incoming)).await;
            }
            "result" => self.handle_turn_result(incoming, channels).await,
            _ => {}
        }
    }

    /// Stores a call of a tool that is not offered, until its result shows whether the program refused it.
    fn record_unoffered(&mut self, piece: &Value) {
        let (Some("tool_use"), Some(id), Some(tool)) =
            (piece["type"].as_str(), piece["id"].as_str(), piece["name"].as_str())
        else {
            return;
        };
        let ours = supervisor_tool_name(tool).unwrap_or(tool);
        let is_offered = self.native.contains(&tool) || self.tools.iter().any(|offered| offered.name == ours);
        let is_short = id.len() <= MAX_ID_BYTES && piece.to_string().len() <= MAX_CALL_BYTES;
        if !is_offered && is_short && self.unoffered.len() < MAX_UNOFFERED {
            let call = (ours.to_owned(), piece["input"].clone());
            self.unoffered.insert(id.to_owned(), call);
        }
    }

    async fn handle_results(&mut self, incoming: &Value, channels: &DriverChannels) {
        let pieces = incoming["message"]["content"].as_array().into_iter().flatten();
        for piece in pieces.filter(|piece| piece["type"] == "tool_result") {
            if let Some(event) = events::result(piece) {
                channels.emit(event).await;
            }
            let call = piece["tool_use_id"].as_str().and_then(|id| self.unoffered.remove(id));
            if let Some((tool, arguments)) = call
                && piece["is_error"] == true
            {
                channels.emit(AgentEvent::UnofferedCall { tool, arguments }).await;
            }
        }
    }

    /// Requests the size of the model's context, once. Otherwise only the result at the end of the first turn would
    /// contain it.
    fn ask_context(&mut self) {
        if self.window == 0 && self.context_asked.is_none() {
            self.context_asked = Some(self.control(json!({"subtype": "get_context_usage"})));
        }
    }

    async fn handle_context_usage(&mut self, usage: &Value, channels: &DriverChannels) {
        let window = usage["rawMaxTokens"].as_u64().or_else(|| usage["maxTokens"].as_u64());
        let Some(window) = window.filter(|_| self.window == 0) else {
            return;
        };
        self.window = window;
        let left = usage["totalTokens"]
            .as_u64()
            .and_then(|used| percentage_left(used, window));
        channels.emit(self.meter(left)).await;
    }

    async fn handle_turn_result(&mut self, result: &Value, channels: &DriverChannels) {
        self.unoffered.clear();
        let mut of_models = events::of_models(result);
        if !self.reports_cost {
            of_models.cost = 0;
        }
        // `of_models` includes calls that do not belong to a turn, such as the call that generates a title.
        let before = self.of_models.replace(of_models);
        let all = before.map(|before| of_models.minus(before)).unwrap_or_default();
        self.calls.turn_ended(events::tokens(result).max(all));
        self.window = events::window(result).unwrap_or(self.window);
        channels.emit(self.meter(None)).await;
        // Input that arrived during the last message is answered next, in the same turn.
        let goes_on = result["queued_turn_count"].as_u64().unwrap_or_default() > 0;
        if self.is_running && !goes_on {
            self.is_running = false;
            let (ending, message) = events::ending(result);
            channels.emit(AgentEvent::TurnEnded { ending, message }).await;
        }
    }

    const fn meter(&self, context_left_percent: Option<u32>) -> AgentEvent {
        AgentEvent::Spent {
            tokens: self.calls.total(),
            context_left_percent,
        }
    }

    async fn handle_request(&self, incoming: &Value, channels: &DriverChannels) {
        if let Some(answer) = protocol_answer(incoming, &self.tools) {
            self.program.send(&answer);
            return;
        }
        let request = &incoming["request"];
        let id = incoming["request_id"].as_str().unwrap_or_default();
        match request["subtype"].as_str().unwrap_or_default() {
            "hook_callback" => self.handle_hook_request(id, request, channels).await,
            "mcp_message" => self.handle_tool_call(id, &request["message"], channels).await,
            "can_use_tool" => {
                // In its permission mode the program does not ask for permission, so such a request bypassed the hook.
                let answer = json!({"behavior": "deny", "message": "only calls that the hook allows are executed"});
                self.program.send(&control_response(id, &answer));
            }
            other => {
                debug!(other, "the program sent an unsupported request");
                let error = json!({"subtype": "error", "request_id": id, "error": "not supported"});
                self.program
                    .send(&json!({"type": "control_response", "response": error}));
            }
        }
    }

    /// Handles a hook request. The supervisor decides about its own tools when they are called.
    async fn handle_hook_request(&self, id: &str, request: &Value, channels: &DriverChannels) {
        let input = &request["input"];
        let call_id = request["tool_use_id"]
            .as_str()
            .or_else(|| input["tool_use_id"].as_str());
        let tool = input["tool_name"].as_str().unwrap_or_default();
        if supervisor_tool_name(tool).is_some_and(|name| self.tools.iter().any(|offered| offered.name == name)) {
            self.answer_hook(id, &Ok(()));
            return;
        }
        channels
            .emit(AgentEvent::ToolUsed(events::used(tool, &input["tool_input"])))
            .await;
        let asked = AskedTool {
            id: id.to_owned(),
            call_id: call_id.unwrap_or_default().to_owned(),
            tool: tool.to_owned(),
            arguments: input["tool_input"].clone(),
            written: events::written(tool, &input["tool_input"]),
        };
        channels.emit(AgentEvent::ToolAsked(asked)).await;
    }

    async fn handle_tool_call(&self, request: &str, message: &Value, channels: &DriverChannels) {
        let name = message["params"]["name"].as_str().unwrap_or_default();
        // Both ids come from the program and may contain any characters.
        let id = json!([request, message["id"]]).to_string();
        if !self.tools.iter().any(|offered| offered.name == name) {
            self.answer_tool(&id, &Err(ToolFailure::unsupported(name)));
            return;
        }
        let call = ToolCall {
            id,
            name: name.to_owned(),
            args: message["params"]["arguments"].as_object().cloned().unwrap_or_default(),
            warning: None,
        };
        channels.emit(AgentEvent::ToolCalled(call)).await;
    }
}

/// Returns the supervisor's name of a tool. `None`: it is not one of the supervisor's tools.
fn supervisor_tool_name(tool: &str) -> Option<&str> {
    tool.strip_prefix(tool_policy::OWN_SERVER_PREFIX)
}

/// Returns the answer to an MCP request other than a call. `None`: it is not such a request.
fn protocol_answer(incoming: &Value, tools: &[ToolDescription]) -> Option<Value> {
    let (request, message) = (&incoming["request"], &incoming["request"]["message"]);
    if incoming["type"] != "control_request" || request["subtype"] != "mcp_message" {
        return None;
    }
    let result = match message["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": message["params"]["protocolVersion"].as_str().unwrap_or(MCP_VERSION),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": SERVER, "version": env!("CARGO_PKG_VERSION")},
        }),
        "tools/list" => json!({"tools": tools.iter().map(describe_tool).collect::<Vec<_>>()}),
        "tools/call" => return None,
        // Other methods are notifications and pings.
        _ => json!({}),
    };
    let id = message.get("id").cloned().unwrap_or_else(|| json!(0));
    Some(mcp_response(incoming["request_id"].as_str()?, &id, &result))
}

fn describe_tool(tool: &ToolDescription) -> Value {
    json!({
        "name": tool.name,
        "description": tool.description,
        "inputSchema": schema(tool),
    })
}

fn mcp_response(request: &str, id: &Value, result: &Value) -> Value {
    control_response(
        request,
        &json!({"mcp_response": {"jsonrpc": "2.0", "id": id, "result": result}}),
    )
}

fn control_response(request: &str, response: &Value) -> Value {
    json!({
        "type": "control_response",
        "response": {"subtype": "success", "request_id": request, "response": response},
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{child::FakeChild, driven};

    #[tokio::test]
    async fn output_before_start_is_bounded() {
        let (_child, program) = driven::started("while :; do echo '{}'; done");
        let mut driver = Driver::new(program, Vec::new(), Vec::new());
        let why = driver.prepare().await.unwrap_err();
        assert!(why.contains("before its answer"), "{why}");
    }

    #[tokio::test]
    async fn call_with_arbitrary_ids_is_answered() {
        let (input, output, mut fake) = FakeChild::new(driven::MAX_LINE_BYTES);
        let driver = Driver::new(Program::over(input, output), vec![wait()], Vec::new());
        let (channels, _orders, mut events) = driven::driver_channels();
        for (request, id) in [("q", json!(1)), ("q 1 \"", json!("a b")), ("", Value::Null)] {
            let message = json!({"id": id, "method": "tools/call", "params": {"name": "wait"}});
            driver.handle_tool_call(request, &message, &channels).await;
            let Some(AgentEvent::ToolCalled(call)) = events.recv().await else {
                panic!("it is a call");
            };
            driver.answer_tool(&call.id, &Ok(json!({})));
            let answer: Value = serde_json::from_str(&fake.received.recv().await.unwrap()).unwrap();
            assert_eq!(answer["response"]["request_id"], request);
            assert_eq!(answer["response"]["response"]["mcp_response"]["id"], id);
        }
    }

    fn wait() -> ToolDescription {
        ToolDescription {
            name: "wait".to_owned(),
            description: "d".to_owned(),
            input_schema_json: "{}".to_owned(),
        }
    }

    fn asked(message: &Value) -> Option<Value> {
        let incoming = json!({
            "type": "control_request",
            "request_id": "q",
            "request": {"subtype": "mcp_message", "server_name": SERVER, "message": message},
        });
        protocol_answer(&incoming, &[wait()])
    }

    #[test]
    fn mcp_requests_except_calls_are_answered() {
        let answer = asked(&json!({"method": "tools/list", "id": 1})).unwrap();
        let response = &answer["response"];
        assert_eq!(
            (&response["subtype"], &response["request_id"]),
            (&json!("success"), &json!("q"))
        );
        let listed = &response["response"]["mcp_response"];
        assert_eq!(
            (&listed["id"], &listed["result"]["tools"][0]["name"]),
            (&json!(1), &json!("wait"))
        );
        assert!(asked(&json!({"method": "notifications/initialized"})).is_some());
        assert!(asked(&json!({"method": "tools/call", "id": 2})).is_none());
        assert_eq!(supervisor_tool_name("mcp__troupe__wait"), Some("wait"));
    }
}
