//! The conversation in the Agent Client Protocol: a session is resumed or begun, prompts follow one another, and questions
//! for leave are answered in between.

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
    agent::{AgentEvent, AskedTool, Ending, StartFailure},
    driven::{Answered, Desk, Order, Program, flat},
    home, input, policy,
    programs::Profile,
    prompt,
    timer::at,
    tools::ToolFailure,
    usage::{CallTokens, Tokens},
};

/// How long it may be silent within a prompt while no tool runs and no question waits: programs try a provider that
/// fails again and again without a word.
const SILENCE_LIMIT: Duration = Duration::from_secs(5 * 60);
/// How long it may then take to give the prompt up.
const GIVING_UP_LIMIT: Duration = Duration::from_secs(30);
/// How long it is silent after it has repeated a conversation, and how long it may take to repeat it.
const HISTORY_SILENCE: Duration = Duration::from_millis(500);
const HISTORY_LIMIT: Duration = Duration::from_secs(30);
/// How often a turn goes on after a refusal that ended it.
const MAX_REFUSALS: u32 = 16;
/// How many calls of one turn are known, and how many names of tools that nobody offered.
const MAX_CALLS: usize = 4096;
const MAX_STRAYS: usize = 16;
/// The longest id of a call, of a question and of an answer to it that is kept, in bytes; and the longest arguments of a
/// call, in bytes of JSON. Those of one turn that are longer have room together for so many bytes.
const MAX_ID_BYTES: usize = 1024;
const MAX_ARGUMENTS_BYTES: usize = 64 * 1024;
const MAX_LONG_BYTES: usize = 16 * 1024 * 1024;
/// How many questions of the program wait at once: more than the thread lets wait.
const MAX_QUESTIONS: usize = 64;
/// How many refusals the model is told of that ended one prompt.
const MAX_TOLD: usize = 32;
/// The longest message that is kept, in bytes.
const MAX_MESSAGE_BYTES: usize = 1024 * 1024;

/// The gap of a program that reports no call before the end of a turn.
const USAGE_IS_LATE: &str =
    "its usage is reported only at the end of a turn, so a budget of tokens does not stop a running turn";

/// How a session is begun.
pub(super) struct Opening {
    pub(super) profile: Profile,
    pub(super) directory: PathBuf,
    /// The servers that bring our tools.
    pub(super) servers: Value,
    pub(super) effort: String,
    /// Whether its configuration applies the effort already.
    pub(super) has_effort: bool,
    /// Whether it is to continue a conversation.
    pub(super) had_turns: bool,
    /// The names of its own tools that it is offered, and those of ours.
    pub(super) tools: BTreeSet<String>,
    pub(super) ours: BTreeSet<String>,
    /// Where the id of its session stands, by which it is resumed; `None`: it resumes none.
    pub(super) record: Option<PathBuf>,
    /// Where it records its calls of the model; `None`: nowhere.
    pub(super) chats: Option<Chats>,
    /// What it is known not to be held to, or not to have.
    pub(super) gaps: Vec<String>,
}

/// A call of a tool.
struct Call {
    tool: String,
    /// `None`: they are too long to be kept.
    arguments: Option<Value>,
    is_told: bool,
    is_done: bool,
}

/// A question for leave that waits for an answer.
struct Question {
    /// The program's own id of it.
    id: Value,
    /// What allows it and what does not, in the program's words.
    allowed: Value,
    denied: Value,
    /// The id of the call, and what it is of.
    call: String,
    tool: String,
    arguments: Value,
}

impl Question {
    /// Whether it is short enough to be kept until it is decided.
    fn is_short(&self) -> bool {
        let said = [&self.id, &self.allowed, &self.denied];
        self.call.len() <= MAX_ID_BYTES && said.iter().all(|said| said.to_string().len() <= MAX_ID_BYTES)
    }
}

/// What becomes of a question for leave: it is answered at once, or by the supervisor.
enum Decided {
    Allowed(String, Option<Value>),
    Denied(String, &'static str),
    Open(Question),
}

/// Speaks with one program.
pub(super) struct Driver {
    program: Program,
    opening: Opening,
    session: String,
    /// The prompts that are not answered yet: none between turns.
    prompts: BTreeSet<u64>,
    calls: BTreeMap<String, Call>,
    questions: BTreeMap<String, Question>,
    /// The size of the long arguments that are kept of this turn.
    long_bytes: usize,
    last_question: u64,
    /// What was refused since the last prompt, and how often the turn went on after that.
    refused: Vec<String>,
    refusals: u32,
    /// What came for a prompt that cannot take it in, by its number; the turn's next prompt has it.
    unsaid: Vec<(u32, String)>,
    message: String,
    message_id: Value,
    calls_spent: CallTokens,
    /// Whether [`USAGE_IS_LATE`] was reported.
    is_usage_late: bool,
    /// Whether the turn is to end by an order, or by the program's silence.
    is_interrupted: bool,
    is_given_up: bool,
    heard_at: Instant,
    /// Tools that it used although they are not offered.
    strays: BTreeSet<String>,
    /// Why the conversation that it had is lost; `None`: it is not.
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
            questions: BTreeMap::new(),
            long_bytes: 0,
            last_question: 0,
            refused: Vec::new(),
            refusals: 0,
            unsaid: Vec::new(),
            message: String::new(),
            message_id: Value::Null,
            calls_spent: CallTokens::default(),
            is_usage_late: false,
            is_interrupted: false,
            is_given_up: false,
            heard_at: Instant::now(),
            strays: BTreeSet::new(),
            lost: None,
        }
    }

    /// Greets the program, and resumes or begins its session.
    ///
    /// # Errors
    ///
    /// It does not start, or does not take the role.
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
        // Earlier attempts have counted the calls that are recorded by now.
        if let Some(chats) = &mut self.opening.chats {
            chats.news();
        }
        Ok(())
    }

    /// Resumes the session that there was. The error is the program's end.
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
            debug!(%error, "the conversation is not kept from the next start");
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

    /// Passes over the conversation, which Gemini CLI repeats after it has answered. Nothing marks the end of that but
    /// silence.
    async fn skip_history(&mut self) -> Result<(), String> {
        let ends = Instant::now() + HISTORY_LIMIT;
        while Instant::now() < ends {
            match timeout(HISTORY_SILENCE, self.program.hear()).await {
                Ok(said) => drop(said?),
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

    /// OpenCode falls back to an agent of its own, with rights of its own, where it does not like ours.
    fn check_role(&self, opened: &Value) -> Result<(), StartFailure> {
        if self.opening.profile != Profile::OpenCode {
            return Ok(());
        }
        let mode = option(opened, "mode").and_then(|option| option["currentValue"].as_str());
        if mode == Some(AGENT) {
            return Ok(());
        }
        Err(StartFailure::not_enforceable(format!(
            "OpenCode did not take the role: its mode is {:?}",
            mode.unwrap_or_default()
        )))
    }

    /// Asks for the role's effort, if the model has it; otherwise the model's own stays. Returns whether it is applied;
    /// no effort is.
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
            Ok(Err(why)) => debug!(why, "the effort stays as it is"),
            // Its end is heard again by whoever listens next.
            Err(end) => debug!(end, "the program ended"),
        }
        false
    }

    pub(super) async fn drive(mut self, mut desk: Desk) {
        desk.tell_gaps(&self.opening.gaps).await;
        if let Some(why) = self.lost.take() {
            desk.tell_lost(&why).await;
        }
        let end = loop {
            if let Err(end) = self.step(&mut desk).await {
                break end;
            }
        };
        if let Some(complaint) = end {
            desk.tell(AgentEvent::Exited(complaint)).await;
        }
    }

    /// Deals with one thing. The error is the end: with what to say of it, unless nobody wants the program any more.
    async fn step(&mut self, desk: &mut Desk) -> Result<(), Option<String>> {
        let patience = self.patience();
        tokio::select! {
            order = desk.orders.recv() => match order {
                Some(order) => {
                    self.obey(order, desk).await;
                    Ok(())
                }
                None => Err(None),
            },
            said = self.program.hear() => {
                self.hear(&said.map_err(Some)?, desk).await;
                Ok(())
            }
            () = at(patience) => self.lose_patience(),
        }
    }

    /// When the program has been silent for too long.
    fn patience(&self) -> Option<Instant> {
        if self.prompts.is_empty() {
            return None;
        }
        if self.is_given_up {
            return Some(self.heard_at + GIVING_UP_LIMIT);
        }
        let is_busy = !self.questions.is_empty() || self.calls.values().any(|call| !call.is_done);
        (!is_busy).then(|| self.heard_at + SILENCE_LIMIT)
    }

    /// First the prompt is given up, then the program.
    fn lose_patience(&mut self) -> Result<(), Option<String>> {
        if self.is_given_up {
            return Err(Some(format!("it was silent for {SILENCE_LIMIT:?} and does not stop")));
        }
        self.is_given_up = true;
        self.heard_at = Instant::now();
        self.cancel();
        Ok(())
    }

    // === what the thread wants ===

    async fn obey(&mut self, order: Order, desk: &Desk) {
        match order {
            Order::Turn(turn) => {
                self.is_interrupted = false;
                self.is_given_up = false;
                self.refused.clear();
                self.refusals = 0;
                self.unsaid.clear();
                self.prompt(&prompt::assignment(&turn));
            }
            Order::Input { .. } if self.prompts.is_empty() => {}
            Order::Input { number, input } => {
                let text = input::to_text(&input);
                if self.opening.profile.joins_prompts() {
                    self.prompt(&text);
                    desk.tell(AgentEvent::InputTaken(number)).await;
                } else {
                    self.unsaid.push((number, text));
                }
            }
            Order::Explain(_) if self.prompts.is_empty() => {}
            Order::Explain(text) => {
                if self.opening.profile.joins_prompts() {
                    self.prompt(&text);
                }
            }
            // Our tools it calls by a server of its own.
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
        self.heard_at = Instant::now();
        let params = json!({"sessionId": self.session, "prompt": [{"type": "text", "text": text}]});
        let id = self.program.tell("session/prompt", &params);
        self.prompts.insert(id);
    }

    fn cancel(&mut self) {
        // A question that is open keeps the prompt from ending.
        for (_, question) in std::mem::take(&mut self.questions) {
            self.answer(&question.id, &events::cancelled());
        }
        self.program.say(&json!({
            "jsonrpc": "2.0",
            "method": "session/cancel",
            "params": {"sessionId": self.session},
        }));
    }

    fn permit(&mut self, id: &str, verdict: &Result<(), ToolFailure>) {
        // It is gone with its turn.
        let Some(question) = self.questions.remove(id) else {
            return;
        };
        self.heard_at = Instant::now();
        match verdict {
            Ok(()) => {
                self.answer(&question.id, &question.allowed);
                self.begun(question.call, question.tool, Some(question.arguments));
            }
            Err(failure) => {
                self.answer(&question.id, &question.denied);
                self.refuse(&question.tool, failure.text());
            }
        }
    }

    /// A call that was asked about runs now. Gemini CLI says nothing of it before its end.
    fn begun(&mut self, id: String, tool: String, arguments: Option<Value>) {
        if self.calls.len() < MAX_CALLS && id.len() <= MAX_ID_BYTES {
            self.calls.entry(id).or_insert(Call {
                tool,
                arguments,
                is_told: false,
                is_done: false,
            });
        }
    }

    fn refuse(&mut self, tool: &str, why: &str) {
        if self.refused.len() < MAX_TOLD {
            self.refused.push(format!("The call of `{tool}` was refused: {why}"));
        }
    }

    // === what the program says ===

    async fn hear(&mut self, said: &Value, desk: &Desk) {
        self.heard_at = Instant::now();
        let (id, params) = (said.get("id"), &said["params"]);
        self.count_recorded(said, desk).await;
        match (said["method"].as_str(), id) {
            (None, Some(id)) => {
                if let Some(prompt) = id.as_u64().filter(|id| self.prompts.contains(id)) {
                    self.answered(prompt, said, desk).await;
                }
            }
            (Some("session/request_permission"), Some(id)) => self.asked(id, params, desk).await,
            (Some("session/update"), None) => self.updated(&params["update"], desk).await,
            (Some(USAGE_METHOD), None) => {
                if let Some((step, tokens)) = events::step(params) {
                    self.calls_spent.call(&step, tokens);
                    desk.tell(self.meter(None)).await;
                }
            }
            (Some(method), Some(id)) => {
                debug!(method, "the program asks for what it is not given");
                let error = json!({"code": -32601, "message": "not supported"});
                self.program.say(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
            }
            _ => {}
        }
    }

    /// Counts the calls that the program has recorded by now. A call has ended when its model wants a tool or has answered.
    async fn count_recorded(&mut self, said: &Value, desk: &Desk) {
        let update = said["params"]["update"]["sessionUpdate"].as_str().unwrap_or_default();
        if said["method"] == "session/update" && !update.starts_with("tool_call") {
            return;
        }
        let recorded = self.opening.chats.as_mut().map(Chats::news).unwrap_or_default();
        if recorded.is_empty() {
            return;
        }
        for (call, tokens) in recorded {
            self.calls_spent.call(&call, tokens);
        }
        desk.tell(self.meter(None)).await;
    }

    const fn meter(&self, context_left_percent: Option<u32>) -> AgentEvent {
        AgentEvent::Spent {
            tokens: self.calls_spent.total(),
            context_left_percent,
        }
    }

    async fn updated(&mut self, update: &Value, desk: &Desk) {
        // Between turns nothing of it is anybody's: a session that is resumed may be told anew.
        if self.prompts.is_empty() {
            return;
        }
        let text = update["content"]["text"].as_str().unwrap_or_default();
        match update["sessionUpdate"].as_str().unwrap_or_default() {
            "agent_message_chunk" => {
                if update["messageId"] != self.message_id {
                    self.message_over(desk).await;
                    self.message_id = update["messageId"].clone();
                }
                if self.message.len() + text.len() <= MAX_MESSAGE_BYTES {
                    self.message.push_str(text);
                }
                desk.tell(AgentEvent::Output(text.to_owned())).await;
            }
            "agent_thought_chunk" => desk.tell(AgentEvent::Activity("thinking".to_owned())).await,
            "tool_call" | "tool_call_update" => self.call_updated(update, desk).await,
            "plan" => desk.tell(events::plan(update)).await,
            "usage_update" => {
                desk.tell(self.meter(events::context_left(update))).await;
            }
            _ => {}
        }
    }

    /// The next words are another message.
    async fn message_over(&mut self, desk: &Desk) {
        if !self.message.is_empty() {
            self.message.clear();
            desk.tell(AgentEvent::Output("\n".to_owned())).await;
        }
        self.message_id = Value::Null;
    }

    async fn call_updated(&mut self, update: &Value, desk: &Desk) {
        let profile = self.opening.profile;
        let id = update["toolCallId"].as_str();
        let Some(id) = id.filter(|id| id.len() <= MAX_ID_BYTES) else {
            return;
        };
        if !self.calls.contains_key(id) {
            // Of OpenCode's calls only the first word has the name; Gemini CLI passes that over where it asked before.
            let is_first = update["sessionUpdate"] == "tool_call" || profile == Profile::Gemini;
            let Some(tool) = events::tool(profile, update).filter(|_| is_first && self.calls.len() < MAX_CALLS) else {
                return;
            };
            self.message_over(desk).await;
            let call = Call {
                tool,
                arguments: Some(json!({})),
                is_told: false,
                is_done: false,
            };
            self.calls.insert(id.to_owned(), call);
        }
        let Some(call) = self.calls.get_mut(id) else {
            return;
        };
        let arguments = events::arguments(profile, update);
        if is_told(&arguments) {
            // A program tells them again as they grow.
            let replaced = call.arguments.take().map_or(0, |old| old.to_string().len());
            if replaced > MAX_ARGUMENTS_BYTES {
                self.long_bytes = self.long_bytes.saturating_sub(replaced);
            }
            call.arguments = kept(arguments, &mut self.long_bytes);
        }
        let status = update["status"].as_str().unwrap_or("in_progress");
        call.is_done = matches!(status, "completed" | "failed");
        // What is still pending has no arguments yet.
        let is_news = status != "pending" && !call.is_told;
        call.is_told |= is_news;
        let tool = call.tool.clone();
        if is_news {
            let used = events::used(profile, &tool, call.arguments.as_ref().unwrap_or(&Value::Null));
            desk.tell(AgentEvent::ToolUsed(used)).await;
        }
        if is_news && !self.is_offered(&tool) {
            let arguments = self.calls.get(id).and_then(|call| call.arguments.clone());
            let unoffered = AgentEvent::UnofferedCall {
                tool: profile.ours(&tool).unwrap_or(&tool).to_owned(),
                arguments: arguments.unwrap_or_default(),
            };
            desk.tell(unoffered).await;
        }
        if status == "completed"
            && !self.is_offered(&tool)
            && self.strays.len() < MAX_STRAYS
            && self.strays.insert(tool.clone())
        {
            self.opening
                .gaps
                .push(format!("it used {tool:?}, which it was not offered"));
            desk.tell_gaps(&self.opening.gaps).await;
        }
    }

    fn is_offered(&self, tool: &str) -> bool {
        self.opening.tools.contains(tool) || self.opening.ours.contains(tool)
    }

    /// It asks for leave. Our own tools the supervisor judges itself when they are called.
    async fn asked(&mut self, id: &Value, params: &Value, desk: &Desk) {
        self.message_over(desk).await;
        let profile = self.opening.profile;
        let asked = &params["toolCall"];
        let call_id = asked["toolCallId"].as_str().unwrap_or_default();
        let call = self.calls.get(call_id);
        let tool = match (call, profile) {
            (Some(call), _) => Some(call.tool.clone()),
            (None, Profile::Gemini) => events::tool(profile, asked),
            // Its title is something else here, so nobody knows what it asks for.
            (None, Profile::OpenCode) => None,
        };
        let told = events::arguments(profile, asked);
        let arguments = if is_told(&told) {
            kept(told, &mut self.long_bytes)
        } else {
            call.map_or_else(|| Some(json!({})), |call| call.arguments.clone())
        };
        let options = &params["options"];
        let question = |tool: &str, arguments: Value| Question {
            id: id.clone(),
            allowed: events::outcome(options, true),
            denied: events::outcome(options, false),
            call: call_id.to_owned(),
            tool: tool.to_owned(),
            arguments,
        };
        let decided = match tool {
            Some(tool) if self.opening.ours.contains(&tool) => Decided::Allowed(tool, arguments),
            Some(tool) if self.prompts.is_empty() || !self.opening.tools.contains(&tool) => {
                Decided::Denied(tool, "it is not offered")
            }
            Some(tool) if self.questions.len() >= MAX_QUESTIONS => Decided::Denied(tool, "too many questions at once"),
            Some(tool) => match arguments.map(|arguments| question(&tool, arguments)) {
                Some(question) if question.is_short() => Decided::Open(question),
                Some(_) | None => Decided::Denied(tool, "the question is too long"),
            },
            None => Decided::Denied("unknown".to_owned(), "it is not offered"),
        };
        match decided {
            Decided::Allowed(tool, arguments) => {
                self.answer(id, &events::outcome(options, true));
                self.begun(call_id.to_owned(), tool, arguments);
            }
            Decided::Denied(tool, why) => {
                self.answer(id, &events::outcome(options, false));
                self.refuse(&tool, why);
            }
            Decided::Open(question) => {
                self.last_question += 1;
                let number = self.last_question.to_string();
                let event = AskedTool {
                    id: number.clone(),
                    tool: question.tool.clone(),
                    arguments: question.arguments.clone(),
                    written: events::written(asked, &self.opening.directory),
                };
                self.questions.insert(number, question);
                desk.tell(AgentEvent::ToolAsked(event)).await;
            }
        }
    }

    /// A prompt is over; with the last of them the turn, unless there is something left to say.
    async fn answered(&mut self, prompt: u64, said: &Value, desk: &Desk) {
        self.prompts.remove(&prompt);
        // Those that were joined end together, and tell the same of what they spent.
        if !self.prompts.is_empty() {
            return;
        }
        self.calls.clear();
        self.questions.clear();
        self.long_bytes = 0;
        let tokens = events::tokens(&said["result"]);
        if tokens != Tokens::NONE && !self.calls_spent.has_calls() && !std::mem::replace(&mut self.is_usage_late, true)
        {
            self.opening.gaps.push(USAGE_IS_LATE.to_owned());
            desk.tell_gaps(&self.opening.gaps).await;
        }
        self.calls_spent.turn_ended(tokens);
        desk.tell(self.meter(None)).await;

        let (ending, failure) = events::ending(said);
        if self.is_given_up {
            let message = format!("no word of the model for {SILENCE_LIMIT:?}: {failure}");
            let message = message.trim_end_matches([' ', ':']).to_owned();
            self.turn_over(Ending::Errored, message, desk).await;
        } else if self.is_interrupted {
            self.turn_over(Ending::Interrupted, String::new(), desk).await;
        } else if ending != Ending::Completed {
            self.turn_over(ending, failure, desk).await;
        } else if let Some(text) = self.left_to_say(desk).await {
            self.message.clear();
            self.prompt(&text);
        } else {
            let message = std::mem::take(&mut self.message);
            self.turn_over(Ending::Completed, message, desk).await;
        }
    }

    /// What a prompt that ended has not taken in: why a call was refused that ended it, and input that it could not join.
    async fn left_to_say(&mut self, desk: &Desk) -> Option<String> {
        let mut left = Vec::new();
        let refused = std::mem::take(&mut self.refused);
        if !refused.is_empty() && self.opening.profile.ends_on_refusal() && self.refusals < MAX_REFUSALS {
            self.refusals += 1;
            left.extend(refused);
            left.push("Go on without it, or say that you cannot.".to_owned());
        }
        for (number, text) in std::mem::take(&mut self.unsaid) {
            left.push(text);
            desk.tell(AgentEvent::InputTaken(number)).await;
        }
        (!left.is_empty()).then(|| left.join("\n\n"))
    }

    async fn turn_over(&mut self, ending: Ending, message: String, desk: &Desk) {
        self.message.clear();
        self.message_id = Value::Null;
        desk.tell(AgentEvent::TurnEnded { ending, message }).await;
    }

    // === requests ===

    fn answer(&self, id: &Value, result: &Value) {
        self.program.say(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    async fn call(&mut self, method: &str, params: Value) -> Answered {
        self.program.call(method, &params, events::failure).await
    }
}

/// Whether a program told any arguments.
fn is_told(arguments: &Value) -> bool {
    arguments.as_object().is_some_and(|fields| !fields.is_empty())
}

/// Arguments as they are kept, in full: a decision is for all of them. `None`: there is no room for such long ones.
fn kept(arguments: Value, long_bytes: &mut usize) -> Option<Value> {
    let bytes = arguments.to_string().len();
    if bytes > MAX_ARGUMENTS_BYTES {
        if *long_bytes + bytes > MAX_LONG_BYTES {
            return None;
        }
        *long_bytes += bytes;
    }
    Some(arguments)
}

/// One of the options of a session.
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
        supervisor::v1::{PromptExtent, StartRefusal},
    };

    use super::*;
    use crate::{
        agent::Agent as _,
        child::{Child, Launch, Puppet},
        driven::{self, Driven},
        prompt::GivenTurn,
    };

    /// A program that begins as OpenCode does, then does what stands in the place of TURN.
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
        let launch = Launch {
            command: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            directory: "/".into(),
            environment: Vec::new(),
            starts: Vec::new(),
        };
        let (child, output) = Child::start(launch, driven::MAX_LINE_BYTES).unwrap();
        let driver = Driver::new(Program::new(&child, output), opening());
        (child, driver)
    }

    fn opening() -> Opening {
        Opening {
            profile: Profile::OpenCode,
            directory: "/".into(),
            servers: json!([]),
            effort: "low".to_owned(),
            has_effort: false,
            had_turns: false,
            tools: BTreeSet::from(["bash".to_owned()]),
            ours: BTreeSet::new(),
            record: None,
            chats: None,
            gaps: Vec::new(),
        }
    }

    #[tokio::test]
    async fn a_refused_call_does_not_end_the_turn() {
        let (child, mut driver) = started(AGENT, REFUSED);
        driver.prepare().await.unwrap();
        let mut agent = Driven::new(child, |desk| driver.drive(desk));
        let turn = GivenTurn {
            number: 1,
            extent: PromptExtent::Full,
            blocks: vec![PromptBlock {
                kind: BlockKind::Task.into(),
                text: "Go.".to_owned(),
                sha256: String::new(),
            }],
            inputs: Vec::new(),
            completed: false,
            repeated: false,
        };
        agent.give_turn(&turn).unwrap();
        let mut spent = Tokens::default();
        let (ending, message) = loop {
            match agent.next_event().await {
                AgentEvent::ToolAsked(asked) => {
                    assert_eq!(
                        (asked.tool.as_str(), &asked.arguments),
                        ("bash", &json!({"command": "rm x"}))
                    );
                    let refusal = ToolFailure::new(Reason::ToolDenied, "not in this mode");
                    agent.permit(&asked.id, &Err(refusal)).unwrap();
                }
                AgentEvent::Spent { tokens, .. } => spent = tokens,
                AgentEvent::TurnEnded { ending, message } => break (ending, message),
                AgentEvent::Exited(complaint) => panic!("{complaint}"),
                _ => {}
            }
        };
        assert_eq!((ending, message.as_str()), (Ending::Completed, "I see."));
        assert_eq!((spent.input, spent.output), (4, 6));
    }

    #[tokio::test]
    async fn the_model_is_told_of_so_many_refusals() {
        let (_child, mut driver) = started(AGENT, "");
        for _ in 0..1_000 {
            driver.refuse("bash", "not now");
        }
        assert_eq!(driver.refused.len(), MAX_TOLD);
        let mut long_bytes = 0;
        let short = json!({"path": "a"});
        assert_eq!(kept(short.clone(), &mut long_bytes), Some(short));
        let long = json!({"path": "a", "content": "x".repeat(MAX_LONG_BYTES / 2)});
        assert_eq!(kept(long.clone(), &mut long_bytes), Some(long.clone()));
        assert_eq!(kept(long, &mut long_bytes), None, "all of them have so much room");
    }

    #[tokio::test]
    async fn a_question_that_is_too_long_to_be_kept_is_denied() {
        let (input, output, mut puppet) = Puppet::new(driven::MAX_LINE_BYTES);
        let mut driver = Driver::new(Program::over(input, output), opening());
        let (desk, _orders, mut events) = driven::desk();
        driver.prompts.insert(1);
        driver.begun("c".to_owned(), "bash".to_owned(), Some(json!({"command": "ls"})));
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
            driver.asked(&id, &params, &desk).await;
            let answer: Value = serde_json::from_str(&puppet.told.recv().await.unwrap()).unwrap();
            assert_eq!(
                (&answer["id"], &answer["result"]["outcome"]["optionId"]),
                (&id, &json!("reject"))
            );
        }
        assert!(driver.questions.is_empty() && events.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_program_that_does_not_take_the_role_is_not_begun_with() {
        let (_child, mut driver) = started("build", "");
        let failure = driver.prepare().await.unwrap_err();
        assert_eq!(failure.refusal, StartRefusal::PolicyNotEnforceable);
        assert!(failure.message.contains("\"build\""), "{failure}");
    }
}
