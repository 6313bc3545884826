//! The conversation with Codex. The first turn begins or resumes Codex's thread, turns follow one another, and requests
//! of Codex are answered in between.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    slice,
};

use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tracing::{debug, warn};
use troupe_proto::supervisor::v1::{Input, ToolDescription, input_item::Item};

use super::{events, settings};
use crate::{
    agent::{AgentEvent, AskedTool, Order, Secret, StartFailure, TurnEnding},
    driven::{Answered, DriverChannels, Program, flat},
    home,
    hook::{self, HookCall, HookServer},
    input,
    prompt::{self, PreparedTurn},
    tool_line::ToolCall,
    tools::{ToolAnswer, ToolFailure, answer_text},
    usage::Tokens,
};

/// Maximum length of the id of a thread, in bytes.
const MAX_ID_BYTES: usize = 1024;

/// Maximum number of stored calls without a result.
const MAX_RAW_CALLS: usize = 256;
/// The beginning of Codex's result for a call of a tool that Codex does not offer.
const UNOFFERED: &str = "unsupported call: ";

/// The parameters for opening a thread.
#[derive(Default)]
pub(super) struct Opening {
    pub(super) config: Map<String, Value>,
    pub(super) model: Option<String>,
    pub(super) provider: Option<String>,
    /// The key with which Codex logs in.
    pub(super) api_key: Option<Secret>,
    pub(super) effort: Option<String>,
    pub(super) directory: PathBuf,
    /// Codex's name of the thread's sandbox. `None`: the permissions in `config` apply.
    pub(super) sandbox: Option<&'static str>,
    /// The sandbox policy of each turn, if another mechanism than Codex's sandbox confines Codex.
    pub(super) external_sandbox: Option<Value>,
    pub(super) instructions: String,
    pub(super) tools: Vec<ToolDescription>,
    /// Whether the thread continues an earlier conversation.
    pub(super) had_turns: bool,
    /// The file with the id of Codex's own thread, which is needed to resume that thread.
    pub(super) record: PathBuf,
}

impl Opening {
    fn params(&self) -> Map<String, Value> {
        let mut params = Map::new();
        let mut set = |key: &str, value: Value| params.insert(key.to_owned(), value);
        set("cwd", self.directory.to_string_lossy().into());
        if let Some(sandbox) = self.sandbox {
            set("sandbox", sandbox.into());
        }
        set("approvalPolicy", "never".into());
        set("developerInstructions", self.instructions.as_str().into());
        set("config", self.config.clone().into());
        if let Some(model) = &self.model {
            set("model", model.as_str().into());
        }
        if let Some(provider) = &self.provider {
            set("modelProvider", provider.as_str().into());
        }
        params
    }
}

/// The driver of one Codex process.
pub(super) struct Driver {
    program: Program,
    hooks: HookServer,
    opening: Opening,
    /// Codex's own id of the thread.
    thread: Option<String>,
    /// The tokens that the thread used before this process started. Codex includes them in its counts.
    base: Tokens,
    /// The id of the running turn.
    turn: Option<String>,
    /// The latest message of the running turn.
    last_message: String,
    /// Failures of the provider since the provider last answered.
    failures: u32,
    /// Codex's log of a resumed thread, and how much of it was read. Codex reports raw events only for a new thread.
    rollout: Option<(PathBuf, u64)>,
    /// The names of the calls that have no result yet, by their ids.
    raw_calls: BTreeMap<String, String>,
    /// Hook requests that wait for a decision.
    asked: BTreeMap<String, oneshot::Sender<Option<Value>>>,
    last_ask: u64,
}

impl Driver {
    pub(super) fn new(program: Program, hooks: HookServer, opening: Opening) -> Self {
        Self {
            program,
            hooks,
            opening,
            thread: None,
            base: Tokens::default(),
            turn: None,
            last_message: String::new(),
            failures: 0,
            rollout: None,
            raw_calls: BTreeMap::new(),
            asked: BTreeMap::new(),
            last_ask: 0,
        }
    }

    /// Initializes the connection and makes Codex trust the hook.
    ///
    /// # Errors
    ///
    /// Codex does not start, rejects its settings, or does not trust the hook.
    pub(super) async fn prepare(&mut self) -> Result<(), StartFailure> {
        let greeting = json!({
            "clientInfo": {"name": "troupe", "title": "Troupe", "version": env!("CARGO_PKG_VERSION")},
            "capabilities": {"experimentalApi": true},
        });
        flat(self.call("initialize", greeting).await).map_err(StartFailure::no_program)?;
        self.program.send(&json!({"method": "initialized"}));
        if let Some(key) = self.opening.api_key.take() {
            let login = json!({"type": "apiKey", "apiKey": key.expose()});
            flat(self.call("account/login/start", login).await).map_err(StartFailure::no_program)?;
        }
        // Only Codex can compute the hash by which it trusts a hook, and only for a thread that has the hook.
        let mut probe = self.opening.params();
        probe.insert("ephemeral".to_owned(), true.into());
        let probe = flat(self.call("thread/start", probe.into()).await).map_err(StartFailure::no_program)?;
        let probe =
            thread_id(&probe).ok_or_else(|| StartFailure::no_program("Codex did not return the id of a thread"))?;
        let hook = self
            .find_hook(&probe)
            .await
            .map_err(|why| StartFailure::not_enforceable(format!("cannot restrict the tools of Codex: {why}")))?;
        let text = |key: &str| hook[key].as_str().unwrap_or_default().to_owned();
        let config = std::mem::take(&mut self.opening.config);
        self.opening.config = settings::with_trusted_hook(config, &text("key"), &text("currentHash"));
        Ok(())
    }

    /// Returns the hook of a thread.
    async fn find_hook(&mut self, thread: &str) -> Result<Value, String> {
        let listed = flat(self.call("hooks/list", json!({"threadId": thread})).await)?;
        let hooks = listed["data"].as_array().into_iter().flatten();
        let ours = hooks.flat_map(|entry| entry["hooks"].as_array().into_iter().flatten());
        let hook = ours.into_iter().find(|hook| hook["eventName"] == "preToolUse");
        hook.cloned().ok_or_else(|| "it does not list the hook".to_owned())
    }

    pub(super) async fn drive(mut self, mut channels: DriverChannels) {
        let end = loop {
            if let Err(end) = self.step(&mut channels).await {
                break end;
            }
        };
        if let Some(complaint) = end {
            channels.emit(AgentEvent::Exited(complaint)).await;
        }
    }

    /// Handles one message, order or timeout. An error ends the conversation. It contains the reason, or `None` if the
    /// program is no longer needed.
    async fn step(&mut self, channels: &mut DriverChannels) -> Result<(), Option<String>> {
        tokio::select! {
            order = channels.orders.recv() => match order {
                Some(order) => self.handle_order(order, channels).await.map_err(Some),
                None => Err(None),
            },
            incoming = self.program.receive() => {
                self.handle_message(&incoming.map_err(Some)?, channels).await;
                Ok(())
            }
            call = self.hooks.next() => {
                self.handle_permission_request(call, channels).await;
                Ok(())
            }
        }
    }

    async fn handle_order(&mut self, order: Order, channels: &DriverChannels) -> Result<(), String> {
        match order {
            Order::Turn(turn) => {
                if let Err(why) = self.begin(&turn, channels).await? {
                    let ended = AgentEvent::TurnEnded {
                        ending: TurnEnding::Errored,
                        message: why,
                    };
                    channels.emit(ended).await;
                }
            }
            Order::Input { number, input } => {
                if self.steer(&input::to_text(&input), slice::from_ref(&input)).await? {
                    channels.emit(AgentEvent::InputTaken(number)).await;
                }
            }
            Order::ToolAnswered { id, answer } => self.answer_tool(&id, &answer),
            Order::Explain(text) => {
                self.steer(&text, &[]).await?;
            }
            Order::Permitted { id, verdict } => {
                if let Some(waiting) = self.asked.remove(&id) {
                    let refusal = verdict.err().map(|failure| hook::denial(failure.text()));
                    let _ = waiting.send(refusal);
                }
            }
            Order::Interrupt => self.interrupt(),
        }
        Ok(())
    }

    /// Begins a turn. The inner error is the reason why it did not begin.
    async fn begin(&mut self, turn: &PreparedTurn, channels: &DriverChannels) -> Result<Result<(), String>, String> {
        let thread = match &self.thread {
            Some(thread) => thread.clone(),
            None => match self.open(channels).await? {
                Ok((thread, total)) => {
                    self.thread = Some(thread.clone());
                    self.record(total);
                    thread
                }
                Err(why) => return Ok(Err(why)),
            },
        };
        self.last_message.clear();
        let mut params = json!({"threadId": thread, "input": Self::input_of(turn)});
        if let Some(effort) = &self.opening.effort {
            params["effort"] = effort.as_str().into();
        }
        if let Some(policy) = &self.opening.external_sandbox {
            params["sandboxPolicy"] = policy.clone();
        }
        Ok(self.call("turn/start", params).await?.map(|answer| {
            self.turn = answer["turn"]["id"].as_str().map(str::to_owned);
        }))
    }

    /// Resumes the existing thread or begins one, and checks that the hook is trusted in it. Returns the thread's id
    /// and the tokens that the thread has used.
    async fn open(&mut self, channels: &DriverChannels) -> Result<Result<(String, Tokens), String>, String> {
        let mut opened = None;
        let mut total = Tokens::default();
        let mut lost = self
            .opening
            .had_turns
            .then(|| "it has no thread of that name".to_owned());
        if let Some(known) = self.recorded() {
            let mut params = self.opening.params();
            params.insert("threadId".to_owned(), known["thread"].clone());
            params.insert("excludeTurns".to_owned(), true.into());
            match self.call("thread/resume", params.into()).await? {
                Ok(answer) => {
                    opened = thread_id(&answer);
                    self.rollout = answer["thread"]["path"].as_str().map(|path| {
                        let length = fs::metadata(path).map_or(0, |found| found.len());
                        (PathBuf::from(path), length)
                    });
                    total = events::tokens(&known["total"]);
                    self.base = total;
                    lost = None;
                }
                Err(why) => lost = Some(why),
            }
        }
        if let Some(why) = &lost {
            warn!(why, "the conversation cannot be continued");
            channels.report_context_lost(why).await;
        }
        let thread = match opened {
            Some(thread) => thread,
            None => {
                let mut params = self.opening.params();
                // Raw events include calls of tools that are not offered.
                params.insert("experimentalRawEvents".to_owned(), true.into());
                params.insert("dynamicTools".to_owned(), settings::tools(&self.opening.tools));
                match self.call("thread/start", params.into()).await? {
                    Ok(answer) => match thread_id(&answer) {
                        Some(thread) => thread,
                        None => return Ok(Err("Codex did not return the id of a thread".to_owned())),
                    },
                    Err(why) => return Ok(Err(why)),
                }
            }
        };
        match self.find_hook(&thread).await {
            Ok(hook) if hook["trustStatus"] == "trusted" && hook["enabled"] == true => {}
            Ok(hook) => return Ok(Err(format!("Codex does not trust the hook: {}", hook["trustStatus"]))),
            Err(why) => return Ok(Err(format!("cannot restrict the tools of Codex: {why}"))),
        }
        Ok(Ok((thread, total)))
    }

    fn recorded(&self) -> Option<Value> {
        let text = home::read(&self.opening.record).ok()?;
        let record: Value = serde_json::from_str(&text).ok()?;
        record["thread"].is_string().then_some(record)
    }

    /// Stores the thread's id and Codex's token count so far, for later attempts.
    fn record(&self, total: Tokens) {
        let record = json!({"thread": self.thread, "total": events::count(total)});
        if let Err(error) = home::replace(&self.opening.record, &record.to_string()) {
            warn!(%error, "Codex's thread cannot be resumed later");
        }
    }

    /// Returns the part of a turn that is not in the instructions.
    fn input_of(turn: &PreparedTurn) -> Value {
        user_input(&prompt::assignment(turn), &turn.inputs)
    }

    /// Sends more input to the running turn. Returns `false` if the turn is over.
    async fn steer(&mut self, text: &str, inputs: &[Input]) -> Result<bool, String> {
        let (Some(thread), Some(turn)) = (&self.thread, &self.turn) else {
            return Ok(false);
        };
        let params = json!({
            "threadId": thread,
            "expectedTurnId": turn,
            "input": user_input(text, inputs),
        });
        let answer = self.call("turn/steer", params).await?;
        if let Err(why) = &answer {
            debug!(why, "the turn is over");
        }
        Ok(answer.is_ok())
    }

    fn interrupt(&mut self) {
        if let (Some(thread), Some(turn)) = (self.thread.clone(), self.turn.clone()) {
            self.program
                .send_request("turn/interrupt", &json!({"threadId": thread, "turnId": turn}));
        }
    }

    fn answer_tool(&self, id: &str, answer: &ToolAnswer) {
        let Ok(id) = id.parse::<u64>() else { return };
        let content = [json!({"type": "inputText", "text": answer_text(answer)})];
        self.program
            .send(&json!({"id": id, "result": {"contentItems": content, "success": answer.is_ok()}}));
    }

    // === messages of Codex ===

    async fn handle_message(&mut self, incoming: &Value, channels: &DriverChannels) {
        let Some(method) = incoming["method"].as_str() else {
            // The answer to a request whose caller no longer waits.
            return;
        };
        let params = &incoming["params"];
        match (method, incoming["id"].as_u64()) {
            ("item/tool/call", Some(id)) => self.handle_tool_call(id, params, channels).await,
            (method, Some(id)) => {
                debug!(method, "Codex sent an unsupported request");
                let error = json!({"code": -32601, "message": "not supported"});
                self.program.send(&json!({"id": id, "error": error}));
            }
            ("item/started", None) => {
                let item = &params["item"];
                for event in events::begun(item).into_iter().chain(events::started(item)) {
                    channels.emit(event).await;
                }
            }
            ("item/completed", None) if params["item"]["type"] == "agentMessage" => {
                let text = params["item"]["text"].as_str().unwrap_or_default();
                text.clone_into(&mut self.last_message);
                channels.emit(AgentEvent::Output(text.to_owned())).await;
                channels.emit(AgentEvent::MessageEnd).await;
            }
            ("item/completed", None) => {
                for event in events::ended(&params["item"]) {
                    channels.emit(event).await;
                }
            }
            ("rawResponseItem/completed", None) => self.handle_raw_item(&params["item"], channels).await,
            ("turn/plan/updated", None) => channels.emit(AgentEvent::plan(&params["plan"], "step")).await,
            ("thread/tokenUsage/updated", None) => {
                self.read_rollout(channels).await;
                self.failures = 0;
                self.record(events::tokens(&params["tokenUsage"]["total"]));
                channels.emit(events::spent(&params["tokenUsage"], self.base)).await;
            }
            ("error", None) if params["willRetry"] == true => {
                self.failures += 1;
                channels.emit(events::retry(&params["error"], self.failures)).await;
            }
            ("turn/completed", None) => self.handle_turn_end(&params["turn"], channels).await,
            _ => {}
        }
    }

    /// Handles a conversation item in the form in which Codex exchanges it with the model. Calls of tools that are not
    /// offered appear only in this form.
    async fn handle_raw_item(&mut self, item: &Value, channels: &DriverChannels) {
        let Some(id) = item["call_id"].as_str().filter(|id| id.len() <= MAX_ID_BYTES) else {
            return;
        };
        match item["type"].as_str() {
            Some("function_call" | "custom_tool_call") => {
                let name = item["name"].as_str().filter(|name| name.len() <= MAX_ID_BYTES);
                if let Some(name) = name.filter(|_| self.raw_calls.len() < MAX_RAW_CALLS) {
                    self.raw_calls.insert(id.to_owned(), name.to_owned());
                }
            }
            Some("function_call_output" | "custom_tool_call_output") => {
                let is_refused = item["output"]
                    .as_str()
                    .is_some_and(|output| output.starts_with(UNOFFERED));
                if let Some(tool) = self.raw_calls.remove(id).filter(|_| is_refused) {
                    let arguments = json!({});
                    channels.emit(AgentEvent::UnofferedCall { tool, arguments }).await;
                }
            }
            _ => {}
        }
    }

    async fn handle_tool_call(&self, id: u64, params: &Value, channels: &DriverChannels) {
        let name = params["tool"].as_str().unwrap_or_default();
        if params["namespace"] != settings::NAMESPACE || !self.opening.tools.iter().any(|tool| tool.name == name) {
            self.answer_tool(&id.to_string(), &Err(ToolFailure::unsupported(name)));
            return;
        }
        let call = ToolCall {
            id: id.to_string(),
            name: name.to_owned(),
            args: params["arguments"].as_object().cloned().unwrap_or_default(),
            warning: None,
        };
        channels.emit(AgentEvent::ToolCalled(call)).await;
    }

    /// Reads the calls of a resumed thread from Codex's log.
    async fn read_rollout(&mut self, channels: &DriverChannels) {
        let Some((log, from)) = &mut self.rollout else { return };
        let Some((text, to)) = home::appended(log, *from) else {
            return;
        };
        *from = to;
        let lines = text.split(|&byte| byte == b'\n');
        for line in lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok()) {
            if line["type"] == "response_item" {
                self.handle_raw_item(&line["payload"], channels).await;
            }
        }
    }

    async fn handle_turn_end(&mut self, turn: &Value, channels: &DriverChannels) {
        if turn["id"].as_str() != self.turn.as_deref() {
            return;
        }
        self.read_rollout(channels).await;
        self.turn = None;
        self.failures = 0;
        // Work and permission requests end with their turn.
        self.asked.clear();
        self.raw_calls.clear();
        if let Some(thread) = self.thread.clone() {
            self.program
                .send_request("thread/backgroundTerminals/clean", &json!({"threadId": thread}));
        }
        let (ending, message) = match turn["status"].as_str() {
            Some("completed") => (TurnEnding::Completed, std::mem::take(&mut self.last_message)),
            Some("interrupted") => (TurnEnding::Interrupted, String::new()),
            _ => (TurnEnding::Errored, events::failure(&turn["error"])),
        };
        channels.emit(AgentEvent::TurnEnded { ending, message }).await;
    }

    /// Handles a hook request. The supervisor decides about its own tools when they are called.
    async fn handle_permission_request(&mut self, call: HookCall, channels: &DriverChannels) {
        let tool = call.input["tool_name"].as_str().unwrap_or_default();
        // Codex concatenates namespace and name without a separator.
        let own = tool.strip_prefix(settings::NAMESPACE);
        if own.is_some_and(|name| self.opening.tools.iter().any(|offered| offered.name == name)) {
            let _ = call.answer.send(None);
            return;
        }
        if self.turn.is_none() {
            let _ = call.answer.send(Some(hook::denial("no turn is running")));
            return;
        }
        self.last_ask += 1;
        let id = self.last_ask.to_string();
        let arguments = call.input["tool_input"].clone();
        let written = match tool {
            "apply_patch" => files_of_patch(&arguments, &self.opening.directory),
            _ => Vec::new(),
        };
        let asked = AskedTool {
            id: id.clone(),
            call_id: call.input["tool_use_id"].as_str().unwrap_or_default().to_owned(),
            tool: tool.to_owned(),
            arguments,
            written,
        };
        self.asked.insert(id, call.answer);
        channels.emit(AgentEvent::ToolAsked(asked)).await;
    }

    // === requests ===

    async fn call(&mut self, method: &str, params: Value) -> Answered {
        self.program.call(method, &params, events::refusal).await
    }
}

/// Returns the id of Codex's thread. An id that is too long to be stored counts as missing.
fn thread_id(answer: &Value) -> Option<String> {
    let id = answer["thread"]["id"].as_str()?;
    (id.len() <= MAX_ID_BYTES).then(|| id.to_owned())
}

/// Returns a text with the images of its inputs.
fn user_input(text: &str, inputs: &[Input]) -> Value {
    let images = inputs
        .iter()
        .flat_map(|input| &input.items)
        .filter_map(|item| match &item.item {
            Some(Item::LocalImage(path)) => Some(json!({"type": "localImage", "path": path})),
            _ => None,
        });
    let text = [json!({"type": "text", "text": text})];
    text.into_iter().chain(images).collect()
}

/// Returns the files that a patch writes.
fn files_of_patch(arguments: &Value, directory: &Path) -> Vec<String> {
    let patch = arguments["command"].as_str().unwrap_or_default();
    let heads = [
        "*** Add File: ",
        "*** Update File: ",
        "*** Delete File: ",
        "*** Move to: ",
    ];
    let files = patch
        .lines()
        .filter_map(|line| heads.iter().find_map(|head| line.strip_prefix(head)));
    files
        .map(|file| directory.join(file.trim()).to_string_lossy().into_owned())
        .collect()
}
