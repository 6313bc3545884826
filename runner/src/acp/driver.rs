//! The conversation with a program in the Agent Client Protocol. The driver resumes or begins a session, sends the
//! prompts one after another, and answers permission requests in between.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

use super::{
    chats::Chats,
    events,
    settings::{AGENT, USAGE_METHOD},
};
use crate::{
    agent::{AgentEvent, AskedTool, Order, StartFailure, StartedTool, TurnEnding},
    driven::{Answered, DriverChannels, Program, flat},
    home, input, policy,
    programs::Profile,
    prompt,
    text::cut,
    timer::at,
    tools::ToolFailure,
    usage::{CallTokens, Tokens},
};

/// Maximum silence within a prompt while no tool runs and no permission request waits. A program may retry requests to
/// a failing provider without reporting the failures.
const SILENCE_LIMIT: Duration = Duration::from_secs(5 * 60);
/// Time that the program has after [`SILENCE_LIMIT`] to cancel the prompt.
const GIVING_UP_LIMIT: Duration = Duration::from_secs(30);
/// Silence that marks the end of a replayed conversation.
const HISTORY_SILENCE: Duration = Duration::from_millis(500);
/// Time limit of a replay.
const HISTORY_LIMIT: Duration = Duration::from_secs(30);
/// Maximum number of times that a turn continues after a refusal ended its prompt.
const MAX_REFUSALS: u32 = 16;
/// Maximum number of tracked calls per turn.
const MAX_CALLS: usize = 4096;
/// Maximum number of tracked names of tools that were not offered.
const MAX_STRAYS: usize = 16;
/// Maximum length of the id of a call, of a permission request and of its answer, in bytes.
const MAX_ID_BYTES: usize = 1024;
/// Arguments up to this length are always stored, in bytes of JSON. Longer arguments count against [`MAX_LONG_BYTES`].
/// Also the maximum length of a stored result.
const MAX_ARGUMENTS_BYTES: usize = 64 * 1024;
/// Maximum total size of one turn's arguments that are longer than [`MAX_ARGUMENTS_BYTES`], in bytes of JSON.
const MAX_LONG_BYTES: usize = 16 * 1024 * 1024;
/// Maximum number of permission requests of the program that wait at once. This limit is higher than the thread's own
/// limit.
const MAX_QUESTIONS: usize = 64;
/// Maximum number of refusals that are reported to the model after they ended a prompt.
const MAX_STORED_REFUSALS: usize = 32;
/// Maximum size of a stored message, in bytes.
const MAX_MESSAGE_BYTES: usize = 1024 * 1024;

/// The gap of a program that does not report its model calls before the end of a turn.
const USAGE_IS_LATE: &str =
    "its usage is reported only at the end of a turn, so a budget of tokens does not stop a running turn";

/// The parameters for opening a session.
pub(super) struct Opening {
    pub(super) profile: Profile,
    pub(super) directory: PathBuf,
    /// The servers that provide the supervisor's tools.
    pub(super) servers: Value,
    pub(super) effort: String,
    /// Whether the program's configuration already applies the effort.
    pub(super) has_effort: bool,
    /// Whether the session continues an earlier conversation.
    pub(super) had_turns: bool,
    /// The names of the program's own tools that are offered.
    pub(super) tools: BTreeSet<String>,
    /// The names of the supervisor's tools that are offered.
    pub(super) ours: BTreeSet<String>,
    /// The file with the id of the session, which is needed to resume the session. `None`: the session cannot be
    /// resumed later.
    pub(super) record: Option<PathBuf>,
    /// The program's log of model calls. `None`: the program writes no such log.
    pub(super) chats: Option<Chats>,
    /// Restrictions that the program cannot enforce, and features that it lacks.
    pub(super) gaps: Vec<String>,
}

#[cfg(any(test, feature = "fuzzing"))]
impl Opening {
    /// Returns the parameters for a program that is offered one tool of its own. Nothing is stored in files.
    pub(super) fn with_tool(profile: Profile, tool: &str) -> Self {
        Self {
            profile,
            directory: "/".into(),
            servers: json!([]),
            effort: String::new(),
            has_effort: false,
            had_turns: false,
            tools: [tool.to_owned()].into(),
            ours: BTreeSet::new(),
            record: None,
            chats: None,
            gaps: Vec::new(),
        }
    }
}

/// A call of a tool.
struct Call {
    tool: String,
    /// `None`: the arguments exceed the limit.
    arguments: Option<Value>,
    is_reported: bool,
    is_done: bool,
}

/// A permission request that waits for an answer.
struct Question {
    /// The program's id of the request.
    id: Value,
    /// The program's options for allowing and denying the call.
    allowed: Value,
    denied: Value,
    /// The id of the call, and below it the call's tool and arguments.
    call: String,
    tool: String,
    arguments: Value,
}

impl Question {
    /// Returns whether the request is short enough to be stored until the decision.
    fn is_short(&self) -> bool {
        let parts = [&self.id, &self.allowed, &self.denied];
        self.call.len() <= MAX_ID_BYTES && parts.iter().all(|part| part.to_string().len() <= MAX_ID_BYTES)
    }
}

/// The driver of one program.
pub(super) struct Driver {
    program: Program,
    opening: Opening,
    session: String,
    /// The prompts without an answer. Empty between turns.
    prompts: BTreeSet<u64>,
    calls: BTreeMap<String, Call>,
    /// Calls that have ended and whose results are not recorded yet. The value is true if the call failed.
    ended_calls: BTreeMap<String, bool>,
    /// Recorded results of calls that have not ended yet.
    results: BTreeMap<String, String>,
    questions: BTreeMap<String, Question>,
    /// The size of this turn's stored long arguments.
    long_bytes: usize,
    last_question: u64,
    /// The calls refused since the last prompt, and how often the turn continued after a refusal.
    refused: Vec<String>,
    refusals: u32,
    /// Texts for the model about calls of tools that are not offered: why they had no effect. Stored if the program
    /// accepts no message within a prompt.
    explanations: Vec<String>,
    /// Input, with its number, that arrived for a prompt that cannot accept it. The turn's next prompt contains it.
    unsent_input: Vec<(u32, String)>,
    message: String,
    message_id: Value,
    calls_spent: CallTokens,
    /// Whether [`USAGE_IS_LATE`] was reported.
    is_usage_late: bool,
    /// Whether the turn is being interrupted, by an order or because the program was silent for too long.
    is_interrupted: bool,
    is_timed_out: bool,
    last_message_at: Instant,
    /// The kind of the program's last update.
    last_update: String,
    /// Tools that the program used although they are not offered.
    strays: BTreeSet<String>,
    /// Why the earlier conversation is lost. `None`: it is not lost.
    lost: Option<String>,
}

impl Driver {
    pub(super) fn new(program: Program, opening: Opening) -> Self {
        Self {
            program,
            opening,
            session: String::new(),
            prompts: BTreeSet::new(),
            calls: BTreeMap::new(),
            ended_calls: BTreeMap::new(),
            results: BTreeMap::new(),
            questions: BTreeMap::new(),
            long_bytes: 0,
            last_question: 0,
            refused: Vec::new(),
            refusals: 0,
            explanations: Vec::new(),
            unsent_input: Vec::new(),
            message: String::new(),
            message_id: Value::Null,
            calls_spent: CallTokens::default(),
            is_usage_late: false,
            is_interrupted: false,
            is_timed_out: false,
            last_message_at: Instant::now(),
            last_update: String::new(),
            strays: BTreeSet::new(),
            lost: None,
        }
    }

    /// Initializes the connection, and resumes or begins the session.
    ///
    /// # Errors
    ///
    /// The program does not start, or does not accept the role.
    pub(super) async fn prepare(&mut self) -> Result<(), StartFailure> {
        let greeting = json!({
            "protocolVersion": 1,
            "clientCapabilities": {"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false},
            "clientInfo": {"name": "troupe", "title": "Troupe", "version": env!("CARGO_PKG_VERSION")},
        });
        flat(self.call("initialize", greeting).await).map_err(StartFailure::no_program)?;
        let opened = match self.resume().await.map_err(StartFailure::no_program)? {
            Some(opened) => opened,
            None => self.begin_session().await.map_err(StartFailure::no_program)?,
        };
        self.check_role(&opened)?;
        if !self.set_effort(&opened).await && !self.opening.has_effort {
            let gap = policy::gap_of_effort(&self.opening.effort, self.opening.profile.name());
            self.opening.gaps.push(gap);
        }
        // Skips the calls that the log already contains, because earlier attempts have counted them.
        if let Some(chats) = &mut self.opening.chats {
            chats.unread();
        }
        Ok(())
    }

    /// Resumes the earlier session. `None`: there is no session that can be resumed. The error describes the program's
    /// end.
    async fn resume(&mut self) -> Result<Option<Value>, String> {
        let resumed = self.resume_recorded().await?;
        if resumed.is_none() && self.opening.had_turns && self.lost.is_none() {
            self.lost = Some("it has no session of the thread".to_owned());
        }
        Ok(resumed)
    }

    async fn resume_recorded(&mut self) -> Result<Option<Value>, String> {
        let Some(known) = self.opening.record.as_ref().and_then(|record| {
            let text = home::read(record).ok()?;
            let known: Value = serde_json::from_str(&text).ok()?;
            Some((record.parent()?.to_owned(), known["session"].as_str()?.to_owned()))
        }) else {
            return Ok(None);
        };
        let (directory, known) = known;
        if self.opening.profile == Profile::Gemini
            && let Err(error) = super::keep_chat(&directory, &known)
        {
            debug!(%error, "the next start may overwrite the conversation");
        }
        let mut params = self.session_params();
        params["sessionId"] = known.as_str().into();
        Ok(match self.call(self.opening.profile.resume_method(), params).await? {
            Ok(answer) => {
                self.session = known;
                if self.opening.profile == Profile::Gemini {
                    self.skip_history().await?;
                }
                Some(answer)
            }
            Err(why) => {
                warn!(why, "the conversation cannot be continued");
                self.lost = Some(why);
                None
            }
        })
    }

    /// Skips the conversation that Gemini CLI replays after its answer to the request to resume a session. Only silence
    /// marks the end of the replay.
    async fn skip_history(&mut self) -> Result<(), String> {
        let ends = Instant::now() + HISTORY_LIMIT;
        while Instant::now() < ends {
            match timeout(HISTORY_SILENCE, self.program.receive()).await {
                Ok(incoming) => drop(incoming?),
                Err(_) => break,
            }
        }
        Ok(())
    }

    async fn begin_session(&mut self) -> Result<Value, String> {
        let params = self.session_params();
        let answer = flat(self.call("session/new", params).await)?;
        answer["sessionId"]
            .as_str()
            .ok_or("it named no session")?
            .clone_into(&mut self.session);
        if let Some(record) = &self.opening.record
            && let Err(error) = home::replace(record, &json!({"session": self.session}).to_string())
        {
            warn!(%error, "the session cannot be resumed later");
        }
        Ok(answer)
    }

    fn session_params(&self) -> Value {
        json!({"cwd": self.opening.directory.to_string_lossy(), "mcpServers": self.opening.servers})
    }

    /// Checks that OpenCode uses the role's agent. If OpenCode rejects that agent, it uses another agent, which has
    /// other permissions.
    fn check_role(&self, opened: &Value) -> Result<(), StartFailure> {
        if self.opening.profile != Profile::OpenCode {
            return Ok(());
        }
        let mode = option(opened, "mode").and_then(|option| option["currentValue"].as_str());
        if mode == Some(AGENT) {
            return Ok(());
        }
        Err(StartFailure::not_enforceable(format!(
            "OpenCode did not apply the role: its mode is {:?}",
            mode.unwrap_or_default()
        )))
    }

    /// Requests the role's effort, if the model supports it. Otherwise the model's default applies. Returns whether the
    /// effort is applied. Without an effort, returns true.
    async fn set_effort(&mut self, opened: &Value) -> bool {
        let effort = self.opening.effort.clone();
        if effort.is_empty() {
            return true;
        }
        let known = option(opened, "effort").and_then(|option| option["options"].as_array());
        let has_it = known
            .into_iter()
            .flatten()
            .any(|known| known["value"] == effort.as_str());
        if !has_it {
            return false;
        }
        let params = json!({"sessionId": self.session, "configId": "effort", "value": effort});
        match self.call("session/set_config_option", params).await {
            Ok(Ok(_)) => return true,
            Ok(Err(why)) => debug!(why, "the effort was not applied"),
            // The next read returns the same error.
            Err(end) => debug!(end, "the program ended"),
        }
        false
    }

    pub(super) async fn drive(mut self, mut channels: DriverChannels) {
        channels.report_gaps(&self.opening.gaps).await;
        if let Some(why) = self.lost.take() {
            channels.report_context_lost(&why).await;
        }
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
        let deadline = self.next_deadline();
        tokio::select! {
            order = channels.orders.recv() => match order {
                Some(order) => {
                    self.handle_order(order, channels).await;
                    Ok(())
                }
                None => Err(None),
            },
            incoming = self.program.receive() => {
                self.handle_message(&incoming.map_err(Some)?, channels).await;
                Ok(())
            }
            () = at(deadline) => self.handle_timeout(),
        }
    }

    /// Returns the time at which the program has been silent for too long.
    fn next_deadline(&self) -> Option<Instant> {
        if self.prompts.is_empty() {
            return None;
        }
        if self.is_timed_out {
            return Some(self.last_message_at + GIVING_UP_LIMIT);
        }
        let is_busy = !self.questions.is_empty() || self.calls.values().any(|call| !call.is_done);
        (!is_busy).then(|| self.last_message_at + SILENCE_LIMIT)
    }

    /// Cancels the prompt at the first timeout, and abandons the program at the second timeout.
    fn handle_timeout(&mut self) -> Result<(), Option<String>> {
        if self.is_timed_out {
            return Err(Some(format!("it was silent for {SILENCE_LIMIT:?} and does not stop")));
        }
        self.is_timed_out = true;
        self.last_message_at = Instant::now();
        self.cancel();
        Ok(())
    }

    // === orders of the thread ===

    async fn handle_order(&mut self, order: Order, channels: &DriverChannels) {
        match order {
            Order::Turn(turn) => {
                self.is_interrupted = false;
                self.is_timed_out = false;
                self.refused.clear();
                self.refusals = 0;
                self.explanations.clear();
                self.unsent_input.clear();
                self.prompt(&prompt::assignment(&turn));
            }
            Order::Input { .. } if self.prompts.is_empty() => {}
            Order::Input { number, input } => {
                let text = input::to_text(&input);
                if self.opening.profile.joins_prompts() {
                    self.prompt(&text);
                    channels.emit(AgentEvent::InputTaken(number)).await;
                } else {
                    self.unsent_input.push((number, text));
                }
            }
            Order::Explain(_) if self.prompts.is_empty() => {}
            Order::Explain(text) => {
                if self.opening.profile.joins_prompts() {
                    self.prompt(&text);
                } else if self.explanations.len() < MAX_STORED_REFUSALS {
                    self.explanations.push(text);
                }
            }
            // The program calls the supervisor's tools through an MCP server.
            Order::ToolAnswered { .. } => {}
            Order::Permitted { id, verdict } => self.permit(&id, &verdict),
            Order::Interrupt => {
                if !self.prompts.is_empty() {
                    self.is_interrupted = true;
                    self.cancel();
                }
            }
        }
    }

    fn prompt(&mut self, text: &str) {
        self.last_message_at = Instant::now();
        let params = json!({"sessionId": self.session, "prompt": [{"type": "text", "text": text}]});
        let id = self.program.send_request("session/prompt", &params);
        self.prompts.insert(id);
    }

    fn cancel(&mut self) {
        // An open permission request keeps the prompt from ending.
        for (_, question) in std::mem::take(&mut self.questions) {
            self.answer(&question.id, &events::cancelled());
        }
        self.program.send(&json!({
            "jsonrpc": "2.0",
            "method": "session/cancel",
            "params": {"sessionId": self.session},
        }));
    }

    fn permit(&mut self, id: &str, verdict: &Result<(), ToolFailure>) {
        // The request ended with its turn.
        let Some(question) = self.questions.remove(id) else {
            return;
        };
        self.last_message_at = Instant::now();
        match verdict {
            Ok(()) => {
                self.answer(&question.id, &question.allowed);
                self.record_begun_call(question.call, question.tool, Some(question.arguments));
            }
            Err(failure) => {
                self.answer(&question.id, &question.denied);
                self.refuse(&question.tool, failure.text());
            }
        }
    }

    /// Records that an approved call now runs. Gemini CLI reports a call only when the call has ended.
    fn record_begun_call(&mut self, id: String, tool: String, arguments: Option<Value>) {
        if self.calls.len() < MAX_CALLS && id.len() <= MAX_ID_BYTES {
            self.calls.entry(id).or_insert(Call {
                tool,
                arguments,
                is_reported: false,
                is_done: false,
            });
        }
    }

    fn refuse(&mut self, tool: &str, why: &str) {
        if self.refused.len() < MAX_STORED_REFUSALS {
            self.refused.push(format!("The call of `{tool}` was refused: {why}"));
        }
    }

    // === messages of the program ===

    async fn handle_message(&mut self, incoming: &Value, channels: &DriverChannels) {
        self.last_message_at = Instant::now();
        let (id, params) = (incoming.get("id"), &incoming["params"]);
        self.count_recorded(incoming, channels).await;
        match (incoming["method"].as_str(), id) {
            (None, Some(id)) => {
                if let Some(prompt) = id.as_u64().filter(|id| self.prompts.contains(id)) {
                    self.handle_prompt_end(prompt, incoming, channels).await;
                }
            }
            (Some("session/request_permission"), Some(id)) => {
                self.handle_permission_request(id, params, channels).await;
            }
            (Some("session/update"), None) => self.handle_update(&params["update"], channels).await,
            (Some(USAGE_METHOD), None) => {
                if let Some((step, tokens)) = events::step(params) {
                    self.calls_spent.call(&step, tokens);
                    channels.emit(self.meter(None)).await;
                }
            }
            (Some(method), Some(id)) => {
                debug!(method, "the program sent an unsupported request");
                let error = json!({"code": -32601, "message": "not supported"});
                self.program.send(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
            }
            _ => {}
        }
    }

    /// Counts the model calls that the program has recorded so far. A model call has ended when the model requests a
    /// tool or has answered. Also reports the calls of unknown tools and the results that the program has recorded.
    async fn count_recorded(&mut self, incoming: &Value, channels: &DriverChannels) {
        let Some(chats) = &mut self.opening.chats else { return };
        let update = incoming["params"]["update"]["sessionUpdate"]
            .as_str()
            .unwrap_or_default();
        // The log is not read at further pieces of a message: only the first piece may follow a call of an unknown
        // tool.
        let is_continued = update == self.last_update && !update.starts_with("tool_call");
        update.clone_into(&mut self.last_update);
        if incoming["method"] == "session/update" && is_continued {
            return;
        }
        let recorded = chats.unread();
        for tool in recorded.unknown_tools {
            let tool = self.opening.profile.supervisor_tool(&tool).unwrap_or(&tool).to_owned();
            let arguments = json!({});
            channels.emit(AgentEvent::UnofferedCall { tool, arguments }).await;
        }
        for (id, result) in recorded.results {
            if let Some(failed) = self.ended_calls.remove(&id) {
                channels.emit(AgentEvent::tool_ended(&id, failed, &result)).await;
            } else if self.calls.contains_key(&id) {
                self.results.insert(id, cut(result, MAX_ARGUMENTS_BYTES));
            }
        }
        if recorded.calls.is_empty() {
            return;
        }
        for (call, tokens) in recorded.calls {
            self.calls_spent.call(&call, tokens);
        }
        channels.emit(self.meter(None)).await;
    }

    const fn meter(&self, context_left_percent: Option<u32>) -> AgentEvent {
        AgentEvent::Spent {
            tokens: self.calls_spent.total(),
            context_left_percent,
        }
    }

    async fn handle_update(&mut self, update: &Value, channels: &DriverChannels) {
        // Between turns, updates are ignored: a program may replay the conversation of a resumed session.
        if self.prompts.is_empty() {
            return;
        }
        let text = update["content"]["text"].as_str().unwrap_or_default();
        match update["sessionUpdate"].as_str().unwrap_or_default() {
            "agent_message_chunk" => {
                if update["messageId"] != self.message_id {
                    self.end_message(channels).await;
                    self.message_id = update["messageId"].clone();
                }
                if self.message.len() + text.len() <= MAX_MESSAGE_BYTES {
                    self.message.push_str(text);
                }
                channels.emit(AgentEvent::Output(text.to_owned())).await;
            }
            "agent_thought_chunk" => {
                channels.emit(AgentEvent::Activity("thinking".to_owned())).await;
                channels.emit(AgentEvent::Reasoning(text.to_owned())).await;
            }
            "tool_call" | "tool_call_update" => self.handle_call_update(update, channels).await,
            "plan" => channels.emit(AgentEvent::plan(&update["entries"], "content")).await,
            "usage_update" => {
                channels.emit(self.meter(events::context_left(update))).await;
            }
            _ => {}
        }
    }

    /// Ends a message. The next text belongs to another message.
    async fn end_message(&mut self, channels: &DriverChannels) {
        if !self.message.is_empty() {
            self.message.clear();
            channels.emit(AgentEvent::MessageEnd).await;
        }
        self.message_id = Value::Null;
    }

    async fn handle_call_update(&mut self, update: &Value, channels: &DriverChannels) {
        let profile = self.opening.profile;
        let id = update["toolCallId"].as_str();
        let Some(id) = id.filter(|id| id.len() <= MAX_ID_BYTES) else {
            return;
        };
        if !self.calls.contains_key(id) {
            // With OpenCode, only the first update of a call contains the tool's name. Gemini CLI omits the first
            // update if it asked for permission before the call.
            let is_first = update["sessionUpdate"] == "tool_call" || profile == Profile::Gemini;
            let Some(tool) = events::tool(profile, update).filter(|_| is_first && self.calls.len() < MAX_CALLS) else {
                return;
            };
            self.end_message(channels).await;
            let call = Call {
                tool,
                arguments: Some(json!({})),
                is_reported: false,
                is_done: false,
            };
            self.calls.insert(id.to_owned(), call);
        }
        let Some(call) = self.calls.get_mut(id) else {
            return;
        };
        let arguments = events::arguments(profile, update);
        if has_arguments(&arguments) {
            // A program repeats the arguments as they grow.
            let replaced = call.arguments.take().map_or(0, |old| old.to_string().len());
            if replaced > MAX_ARGUMENTS_BYTES {
                self.long_bytes = self.long_bytes.saturating_sub(replaced);
            }
            call.arguments = within_budget(arguments, &mut self.long_bytes);
        }
        let status = update["status"].as_str().unwrap_or("in_progress");
        call.is_done = matches!(status, "completed" | "failed");
        // A pending call has no arguments yet.
        let is_new = status != "pending" && !call.is_reported;
        call.is_reported |= is_new;
        let tool = call.tool.clone();
        let is_done = call.is_done;
        if is_new {
            let arguments = call.arguments.as_ref().unwrap_or(&Value::Null);
            let used = events::used(profile, &tool, arguments);
            let started = StartedTool {
                id: id.to_owned(),
                tool: profile.supervisor_tool(&tool).unwrap_or(&tool).to_owned(),
                arguments: arguments.clone(),
            };
            channels.emit(AgentEvent::ToolUsed(used)).await;
            if self.is_offered(&tool) {
                channels.emit(AgentEvent::ToolStarted(started)).await;
            }
        }
        if is_done {
            let recorded = self.results.remove(id);
            let result = recorded.unwrap_or_else(|| events::result(update));
            let failed = status == "failed";
            if result.is_empty() && self.opening.chats.is_some() {
                self.ended_calls.insert(id.to_owned(), failed);
            } else {
                channels.emit(AgentEvent::tool_ended(id, failed, &result)).await;
            }
        }
        if is_new && !self.is_offered(&tool) {
            let arguments = self.calls.get(id).and_then(|call| call.arguments.clone());
            let unoffered = AgentEvent::UnofferedCall {
                tool: profile.supervisor_tool(&tool).unwrap_or(&tool).to_owned(),
                arguments: arguments.unwrap_or_default(),
            };
            channels.emit(unoffered).await;
        }
        if status == "completed"
            && !self.is_offered(&tool)
            && self.strays.len() < MAX_STRAYS
            && self.strays.insert(tool.clone())
        {
            self.opening
                .gaps
                .push(format!("it used {tool:?}, which it was not offered"));
            channels.report_gaps(&self.opening.gaps).await;
        }
    }

    fn is_offered(&self, tool: &str) -> bool {
        self.opening.tools.contains(tool) || self.opening.ours.contains(tool)
    }

    /// Handles a permission request. The supervisor decides about its own tools when they are called.
    async fn handle_permission_request(&mut self, id: &Value, params: &Value, channels: &DriverChannels) {
        self.end_message(channels).await;
        let profile = self.opening.profile;
        let asked = &params["toolCall"];
        let call_id = asked["toolCallId"].as_str().unwrap_or_default();
        let call = self.calls.get(call_id);
        let tool = match (call, profile) {
            (Some(call), _) => Some(call.tool.clone()),
            (None, Profile::Gemini) => events::tool(profile, asked),
            // In OpenCode's permission requests the title is not the tool's name, so the tool is unknown.
            (None, Profile::OpenCode) => None,
        };
        let reported = events::arguments(profile, asked);
        let arguments = if has_arguments(&reported) {
            within_budget(reported, &mut self.long_bytes)
        } else {
            call.map_or_else(|| Some(json!({})), |call| call.arguments.clone())
        };
        let allowed = events::outcome(&params["options"], true);
        let denied = events::outcome(&params["options"], false);
        let is_ours = tool.as_ref().is_some_and(|tool| self.opening.ours.contains(tool));
        let is_own = tool.as_ref().is_some_and(|tool| self.opening.tools.contains(tool));
        let tool = tool.unwrap_or_else(|| "unknown".to_owned());
        if is_ours {
            self.answer(id, &allowed);
            self.record_begun_call(call_id.to_owned(), tool, arguments);
            return;
        }
        let question = arguments.map(|arguments| Question {
            id: id.clone(),
            allowed,
            denied: denied.clone(),
            call: call_id.to_owned(),
            tool: tool.clone(),
            arguments,
        });
        let question = match question {
            _ if !is_own || self.prompts.is_empty() => Err("it is not offered"),
            _ if self.questions.len() >= MAX_QUESTIONS => Err("too many questions at once"),
            Some(question) if question.is_short() => Ok(question),
            Some(_) | None => Err("the question is too long"),
        };
        match question {
            Err(why) => {
                self.answer(id, &denied);
                self.refuse(&tool, why);
            }
            Ok(question) => {
                self.last_question += 1;
                let number = self.last_question.to_string();
                let event = AskedTool {
                    id: number.clone(),
                    call_id: question.call.clone(),
                    tool,
                    arguments: question.arguments.clone(),
                    written: events::written(asked, &self.opening.directory),
                };
                self.questions.insert(number, question);
                channels.emit(AgentEvent::ToolAsked(event)).await;
            }
        }
    }

    /// Handles the end of a prompt. The turn ends with the last prompt, unless there is more input to send.
    async fn handle_prompt_end(&mut self, prompt: u64, incoming: &Value, channels: &DriverChannels) {
        self.prompts.remove(&prompt);
        // Joined prompts end together and report the same usage.
        if !self.prompts.is_empty() {
            return;
        }
        self.calls.clear();
        self.questions.clear();
        self.long_bytes = 0;
        self.results.clear();
        for (id, failed) in std::mem::take(&mut self.ended_calls) {
            channels.emit(AgentEvent::tool_ended(&id, failed, "")).await;
        }
        let tokens = events::tokens(&incoming["result"]);
        if tokens != Tokens::default()
            && !self.calls_spent.has_calls()
            && !std::mem::replace(&mut self.is_usage_late, true)
        {
            self.opening.gaps.push(USAGE_IS_LATE.to_owned());
            channels.report_gaps(&self.opening.gaps).await;
        }
        self.calls_spent.turn_ended(tokens);
        channels.emit(self.meter(None)).await;

        let (ending, failure) = events::ending(incoming);
        if self.is_timed_out {
            let message = format!("no output of the model for {SILENCE_LIMIT:?}: {failure}");
            let message = message.trim_end_matches([' ', ':']).to_owned();
            self.finish_turn(TurnEnding::Errored, message, channels).await;
        } else if self.is_interrupted {
            self.finish_turn(TurnEnding::Interrupted, String::new(), channels).await;
        } else if ending != TurnEnding::Completed {
            self.finish_turn(ending, failure, channels).await;
        } else if let Some(text) = self.take_pending_text(channels).await {
            self.message.clear();
            self.prompt(&text);
        } else {
            let message = std::mem::take(&mut self.message);
            self.finish_turn(TurnEnding::Completed, message, channels).await;
        }
    }

    /// Removes and returns the text for the turn's next prompt: why calls were refused or had no effect, and input that
    /// the ended prompt could not accept. Reports this input as accepted.
    async fn take_pending_text(&mut self, channels: &DriverChannels) -> Option<String> {
        let mut left = std::mem::take(&mut self.explanations);
        let refused = std::mem::take(&mut self.refused);
        if !refused.is_empty() && self.opening.profile.ends_on_refusal() {
            left.extend(refused);
            left.push("Continue without it, or say that you cannot.".to_owned());
        }
        // A model that repeats refused calls must not continue its turn forever.
        if !left.is_empty() {
            self.refusals += 1;
            if self.refusals > MAX_REFUSALS {
                left.clear();
            }
        }
        for (number, text) in std::mem::take(&mut self.unsent_input) {
            left.push(text);
            channels.emit(AgentEvent::InputTaken(number)).await;
        }
        (!left.is_empty()).then(|| left.join("\n\n"))
    }

    async fn finish_turn(&mut self, ending: TurnEnding, message: String, channels: &DriverChannels) {
        self.message.clear();
        self.message_id = Value::Null;
        channels.emit(AgentEvent::TurnEnded { ending, message }).await;
    }

    // === requests ===

    fn answer(&self, id: &Value, result: &Value) {
        self.program
            .send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    async fn call(&mut self, method: &str, params: Value) -> Answered {
        self.program.call(method, &params, events::failure).await
    }
}

/// Returns whether a program reported any arguments.
fn has_arguments(arguments: &Value) -> bool {
    arguments.as_object().is_some_and(|fields| !fields.is_empty())
}

/// Returns the arguments for storage, and adds their size to `long_bytes` if they are long. They are never cut, because
/// a decision covers all of them. `None`: they exceed the budget.
fn within_budget(arguments: Value, long_bytes: &mut usize) -> Option<Value> {
    let bytes = arguments.to_string().len();
    if bytes > MAX_ARGUMENTS_BYTES {
        if *long_bytes + bytes > MAX_LONG_BYTES {
            return None;
        }
        *long_bytes += bytes;
    }
    Some(arguments)
}

/// Returns one option of a session.
fn option<'a>(opened: &'a Value, id: &str) -> Option<&'a Value> {
    let options = opened["configOptions"].as_array()?;
    options.iter().find(|option| option["id"] == id)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use troupe_proto::{
        common::v1::{BlockKind, PromptBlock},
        reason::Reason,
        supervisor::v1::StartRefusal,
    };

    use super::*;
    use crate::{
        agent::Agent as _,
        child::{Child, FakeChild},
        driven::{self, Driven},
        prompt::PreparedTurn,
    };

    /// A program that begins like OpenCode. A test replaces TURN by the code that runs after that.
    const BEGIN: &str = r#"
read -r greeting
echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}'
read -r opening
echo '{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s","configOptions":[{"id":"mode","currentValue":"MODE"}]}}'
TURN
read -r end
"#;
    const REFUSED: &str = r#"
read -r prompt
echo '{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"tool_call","toolCallId":"c","title":"bash","kind":"execute","status":"pending","rawInput":{}}}}'
echo '{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"toolCall":{"toolCallId":"c","title":"rm x","kind":"execute","rawInput":{"command":"rm x"}},"options":[{"optionId":"once","kind":"allow_once"},{"optionId":"reject","kind":"reject_once"}]}}'
read -r answer
case "$answer" in *'"optionId":"reject"'*) ;; *) exit 1 ;; esac
echo '{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn","usage":{"inputTokens":1,"outputTokens":2}}}'
read -r again
case "$again" in *'not in this mode'*) ;; *) exit 2 ;; esac
echo '{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"I see."}}}}'
echo '{"jsonrpc":"2.0","id":4,"result":{"stopReason":"end_turn","usage":{"inputTokens":3,"outputTokens":4}}}'
"#;

    fn started(mode: &str, turn: &str) -> (Child, Driver) {
        let script = BEGIN.replace("MODE", mode).replace("TURN", turn);
        let (child, program) = driven::started(&script);
        (child, Driver::new(program, opening()))
    }

    fn opening() -> Opening {
        Opening {
            effort: "low".to_owned(),
            ..Opening::with_tool(Profile::OpenCode, "bash")
        }
    }

    #[tokio::test]
    async fn refused_call_does_not_end_turn() {
        let (child, mut driver) = started(AGENT, REFUSED);
        driver.prepare().await.unwrap();
        let mut agent = Driven::new(child, |channels| driver.drive(channels));
        let turn = PreparedTurn {
            number: 1,
            blocks: vec![PromptBlock {
                kind: BlockKind::Task.into(),
                text: "Go.".to_owned(),
                sha256: String::new(),
            }],
            ..PreparedTurn::default()
        };
        agent.give(Order::Turn(turn)).unwrap();
        let mut spent = Tokens::default();
        let (ending, message) = loop {
            match agent.next_event().await {
                AgentEvent::ToolAsked(asked) => {
                    assert_eq!(
                        (asked.tool.as_str(), &asked.arguments),
                        ("bash", &json!({"command": "rm x"}))
                    );
                    let verdict = Err(ToolFailure::new(Reason::ToolDenied, "not in this mode"));
                    agent.give(Order::Permitted { id: asked.id, verdict }).unwrap();
                }
                AgentEvent::Spent { tokens, .. } => spent = tokens,
                AgentEvent::TurnEnded { ending, message } => break (ending, message),
                AgentEvent::Exited(complaint) => panic!("{complaint}"),
                _ => {}
            }
        };
        assert_eq!((ending, message.as_str()), (TurnEnding::Completed, "I see."));
        assert_eq!((spent.input, spent.output), (4, 6));
    }

    #[tokio::test]
    async fn explanations_continue_turn_a_bounded_number_of_times() {
        let (_child, mut driver) = started(AGENT, "");
        let (channels, _orders, _events) = driven::driver_channels();
        for _ in 0..MAX_REFUSALS {
            driver.explanations.push("not offered".to_owned());
            assert_eq!(
                driver.take_pending_text(&channels).await.as_deref(),
                Some("not offered")
            );
        }
        driver.explanations.push("not offered".to_owned());
        assert_eq!(driver.take_pending_text(&channels).await, None);
    }

    #[tokio::test]
    async fn stored_refusals_and_arguments_are_bounded() {
        let (_child, mut driver) = started(AGENT, "");
        for _ in 0..1_000 {
            driver.refuse("bash", "not now");
        }
        assert_eq!(driver.refused.len(), MAX_STORED_REFUSALS);
        let mut long_bytes = 0;
        let short = json!({"path": "a"});
        assert_eq!(within_budget(short.clone(), &mut long_bytes), Some(short));
        let long = json!({"path": "a", "content": "x".repeat(MAX_LONG_BYTES / 2)});
        assert_eq!(within_budget(long.clone(), &mut long_bytes), Some(long.clone()));
        assert_eq!(
            within_budget(long, &mut long_bytes),
            None,
            "together they exceed the budget"
        );
    }

    #[tokio::test]
    async fn overlong_permission_request_is_denied() {
        let (input, output, mut fake) = FakeChild::new(driven::MAX_LINE_BYTES);
        let mut driver = Driver::new(Program::over(input, output), opening());
        let (channels, _orders, mut events) = driven::driver_channels();
        driver.prompts.insert(1);
        driver.record_begun_call("c".to_owned(), "bash".to_owned(), Some(json!({"command": "ls"})));
        let long = "x".repeat(MAX_ID_BYTES);
        let many = json!({"command": "x".repeat(MAX_LONG_BYTES)});
        for (id, once, arguments) in [
            (json!(long), "once", json!({})),
            (json!(0), long.as_str(), json!({})),
            (json!(0), "once", many),
        ] {
            let params = json!({
                "toolCall": {"toolCallId": "c", "rawInput": arguments},
                "options": [{"optionId": once, "kind": "allow_once"}, {"optionId": "reject", "kind": "reject_once"}],
            });
            driver.handle_permission_request(&id, &params, &channels).await;
            let answer: Value = serde_json::from_str(&fake.received.recv().await.unwrap()).unwrap();
            assert_eq!(
                (&answer["id"], &answer["result"]["outcome"]["optionId"]),
                (&id, &json!("reject"))
            );
        }
        assert!(driver.questions.is_empty() && events.try_recv().is_err());
    }

    #[tokio::test]
    async fn program_that_ignores_role_is_not_started() {
        let (_child, mut driver) = started("build", "");
        let failure = driver.prepare().await.unwrap_err();
        assert_eq!(failure.refusal, StartRefusal::PolicyNotEnforceable);
        assert!(failure.message.contains("\"build\""), "{failure}");
    }
}
