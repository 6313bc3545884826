//! A small agent without a model. It speaks the line protocol of `docs/process-protocol.md`, executes the instructions
//! in its task and reports the results. Demonstrations and tests run it in place of a real agent.
//!
//! It executes the lines of its last input in order, and ignores other lines:
//!
//! | line | effect |
//! |---|---|
//! | `{"tool_call":{"name":"spawn_agent","args":{...}}}` | calls the tool and waits for the answer; in an array `ids`, the string `$spawned` stands for all agents that the sample agent spawned so far; as the value of `id`, `from` or `to`, it stands for the last of them |
//! | `say: TEXT` | adds the text to its last message, as a line |
//! | `sleep: 30s` | keeps the turn running for that long (`ms`, `s` or `m`) |
//! | `hold` | keeps the turn running until it is interrupted or shut down |

use std::{
    cmp::Ordering,
    io::{self, BufRead, Write},
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{input::JsonItem, text::one_line};

/// Maximum length of the task's first line in a message, in characters.
const MAX_TITLE_CHARS: usize = 160;
/// Maximum number of the runner's lines that wait to be processed.
const INPUT_CAPACITY: usize = 64;

/// Runs the agent until it is shut down or its input ends, so that it does not outlive a killed runner. Returns the
/// exit code of the process. For the process's own input pass `BufReader::new(io::stdin())`.
pub fn main_loop<R, W>(stdin: R, stdout: W) -> i32
where
    R: BufRead + Send + 'static,
    W: Write,
{
    let (sender, received) = sync_channel(INPUT_CAPACITY);
    // A separate thread, so that an interruption is received while the agent sleeps. It ends with the input, or with
    // the process.
    thread::spawn(move || listen(stdin, &sender));
    let agent = SampleAgent {
        stdout,
        received,
        spawned: Vec::new(),
        calls: 0,
    };
    match agent.run() {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

fn listen(stdin: impl BufRead, sender: &SyncSender<Received>) {
    for line in stdin.lines() {
        let Ok(line) = line else { return };
        // Other messages, of a newer runner, are ignored.
        if let Ok(received) = serde_json::from_str(&line)
            && sender.send(received).is_err()
        {
            return;
        }
    }
}

/// A message of the runner.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Received {
    Turn(Turn),
    Input { number: u32, items: Vec<JsonItem> },
    ToolResult { id: String, ok: bool, result: Value },
    Interrupt,
    Shutdown,
}

#[derive(Debug, Deserialize)]
struct Turn {
    blocks: Vec<Block>,
    inputs: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Block {
    kind: String,
    text: String,
}

impl Turn {
    /// Returns the last input, or the task block if there is no input.
    fn task(&self) -> &str {
        let block = || self.blocks.iter().rfind(|block| block.kind == "task");
        match self.inputs.last() {
            Some(input) => input,
            None => block().map_or("", |block| &block.text),
        }
    }

    /// Returns the size of the turn, such as `3 blocks (1,234 characters)`.
    fn size(&self) -> String {
        let characters = self.blocks.iter().map(|block| block.text.chars().count()).sum();
        let plural = if self.blocks.len() == 1 { "" } else { "s" };
        format!(
            "{} block{plural} ({} characters)",
            self.blocks.len(),
            thousands(characters)
        )
    }

    fn title(&self) -> String {
        let first = self.task().lines().find(|line| !line.trim().is_empty());
        one_line(first.unwrap_or("(no task)"), MAX_TITLE_CHARS)
    }
}

/// An instruction in a line of the task.
#[derive(Clone, Debug, PartialEq)]
enum Directive {
    Call { name: String, args: Value },
    Say(String),
    Sleep(Duration),
    Hold,
}

impl Directive {
    fn read(line: &str) -> Option<Self> {
        let line = line.trim();
        if line == "hold" {
            return Some(Self::Hold);
        }
        if let Some(text) = line.strip_prefix("say:") {
            return Some(Self::Say(text.trim().to_owned()));
        }
        if let Some(duration) = line.strip_prefix("sleep:") {
            return read_duration(duration.trim()).map(Self::Sleep);
        }
        let mut call = serde_json::from_str::<Value>(line).ok()?.get_mut("tool_call")?.take();
        Some(Self::Call {
            name: call.get("name")?.as_str()?.to_owned(),
            args: call.get_mut("args").map_or_else(|| json!({}), Value::take),
        })
    }

    fn title(&self) -> String {
        match self {
            Self::Call { name, .. } => name.clone(),
            Self::Say(_) => "say".to_owned(),
            Self::Sleep(duration) => format!("sleep {duration:?}"),
            Self::Hold => "hold".to_owned(),
        }
    }
}

/// The reason why a turn ends before its task is done.
enum Cut {
    /// The turn is interrupted. The agent continues to run.
    Interrupted,
    /// The agent must exit.
    Leave,
    /// The output is closed.
    Broken(io::Error),
}

impl From<io::Error> for Cut {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

struct SampleAgent<W> {
    stdout: W,
    received: Receiver<Received>,
    spawned: Vec<String>,
    calls: u64,
}

impl<W: Write> SampleAgent<W> {
    fn run(mut self) -> io::Result<()> {
        while let Ok(received) = self.received.recv() {
            match received {
                Received::Turn(turn) => {
                    let mut done = Vec::new();
                    let (outcome, leave) = match self.run_turn(&turn, &mut done) {
                        Ok(()) => ("completed", false),
                        Err(Cut::Interrupted) => ("interrupted", false),
                        Err(Cut::Leave) => ("interrupted", true),
                        Err(Cut::Broken(error)) => return Err(error),
                    };
                    if outcome == "interrupted" {
                        done.push(outcome.to_owned());
                    }
                    self.send(&json!({"type": "turn_end", "outcome": outcome, "message": done.join("\n")}))?;
                    if leave {
                        return Ok(());
                    }
                }
                Received::Shutdown => return Ok(()),
                // The turn of this message has already ended.
                Received::Input { .. } | Received::ToolResult { .. } | Received::Interrupt => {}
            }
        }
        Ok(())
    }

    /// Executes the task. `done` receives a line for each executed instruction.
    fn run_turn(&mut self, turn: &Turn, done: &mut Vec<String>) -> Result<(), Cut> {
        self.send(&json!({"type": "status", "activity": "reading the task"}))?;
        self.send(&json!({"type": "tool", "name": "read_task", "detail": turn.size()}))?;
        let directives: Vec<_> = turn.task().lines().filter_map(Directive::read).collect();
        if directives.is_empty() {
            done.push(format!("read {}: {}", turn.size(), turn.title()));
            return Ok(());
        }
        for (index, directive) in directives.iter().enumerate() {
            self.show_plan(&directives, index)?;
            match directive.clone() {
                Directive::Call { name, args } => {
                    let line = self.call(&name, args, done)?;
                    done.push(line);
                }
                Directive::Say(text) => done.push(text),
                Directive::Sleep(duration) => {
                    self.send(&json!({"type": "status", "activity": "sleeping"}))?;
                    // A time beyond the range of the clock means no limit.
                    let until = Instant::now().checked_add(duration);
                    while self.receive(until, done)?.is_some() {}
                    done.push(format!("slept {duration:?}"));
                }
                Directive::Hold => {
                    self.send(&json!({"type": "status", "activity": "holding"}))?;
                    loop {
                        self.receive(None, done)?;
                    }
                }
            }
        }
        self.show_plan(&directives, directives.len())?;
        Ok(())
    }

    fn call(&mut self, name: &str, mut args: Value, done: &mut Vec<String>) -> Result<String, Cut> {
        self.fill_in_spawned(&mut args);
        self.calls += 1;
        let id = format!("call-{}", self.calls);
        self.send(&json!({"type": "status", "activity": format!("calling {name}")}))?;
        self.send(&json!({"tool_call": {"id": id, "name": name, "args": args}}))?;
        loop {
            if let Some(Received::ToolResult {
                id: answered,
                ok,
                result,
            }) = self.receive(None, done)?
                && answered == id
            {
                return Ok(self.summarize(name, &args, ok, &result));
            }
        }
    }

    /// Returns the result of a call, in one line.
    fn summarize(&mut self, name: &str, args: &Value, ok: bool, result: &Value) -> String {
        let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
        if !ok {
            return format!("{name} refused: {}", text(result, "error"));
        }
        match name {
            "spawn_agent" => {
                let agent_type = args["agent_type"].as_str().unwrap_or("default");
                format!("spawned {agent_type} {}…", self.remember(text(result, "agent_id")))
            }
            "spawn_node" => {
                let template = args["roleTemplate"].as_str().unwrap_or("node");
                format!("spawned {template} {}…", self.remember(text(result, "nodeId")))
            }
            "create_edge" if result.get("approval_id").is_some() => "create_edge: waits for an operator".to_owned(),
            "send_handoff" => format!("handed over to {}", text(args, "to")),
            "wait" if result["timed_out"] == true => "waited: timed out".to_owned(),
            "wait" => {
                let settled = result["status"].as_object().map_or(0, serde_json::Map::len);
                format!("waited: {settled} settled")
            }
            _ => format!("{name}: done"),
        }
    }

    /// Stores the id of a spawned agent, and returns the beginning of the id.
    fn remember(&mut self, agent_id: String) -> String {
        let start = agent_id.chars().take(8).collect();
        self.spawned.push(agent_id);
        start
    }

    /// Replaces `$spawned`. In an array `ids`, it is replaced by all agents that were spawned so far. As the value of
    /// `id`, `from` or `to`, it is replaced by the last of them.
    fn fill_in_spawned(&self, args: &mut Value) {
        for end in ["id", "from", "to"] {
            if let Some(named) = args.get_mut(end)
                && *named == "$spawned"
                && let Some(last) = self.spawned.last()
            {
                *named = Value::from(last.as_str());
            }
        }
        if let Some(ids) = args.get_mut("ids").and_then(Value::as_array_mut) {
            *ids = ids
                .drain(..)
                .flat_map(|id| match id.as_str() {
                    Some("$spawned") => self.spawned.iter().map(|id| Value::from(id.as_str())).collect(),
                    _ => vec![id],
                })
                .collect();
        }
    }

    /// Returns the runner's next message to a running turn. `None`: the time is up.
    fn receive(&mut self, until: Option<Instant>, done: &mut Vec<String>) -> Result<Option<Received>, Cut> {
        let received = match until {
            None => self.received.recv().map_err(|_| Cut::Leave)?,
            Some(until) => match self
                .received
                .recv_timeout(until.saturating_duration_since(Instant::now()))
            {
                Ok(received) => received,
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => return Err(Cut::Leave),
            },
        };
        match &received {
            Received::Interrupt => Err(Cut::Interrupted),
            Received::Shutdown => Err(Cut::Leave),
            Received::Input { number, items } => {
                done.push(format!("received input: {}", first_text(items)));
                self.send(&json!({"type": "input_taken", "number": number}))
                    .map_err(Cut::Broken)?;
                Ok(Some(received))
            }
            Received::Turn(_) | Received::ToolResult { .. } => Ok(Some(received)),
        }
    }

    fn show_plan(&mut self, directives: &[Directive], present: usize) -> io::Result<()> {
        let steps: Vec<_> = directives
            .iter()
            .enumerate()
            .map(|(index, directive)| {
                let state = match index.cmp(&present) {
                    Ordering::Less => "completed",
                    Ordering::Equal => "in_progress",
                    Ordering::Greater => "pending",
                };
                json!({"step": directive.title(), "state": state})
            })
            .collect();
        self.send(&json!({"type": "plan", "steps": steps}))
    }

    fn send(&mut self, line: &Value) -> io::Result<()> {
        writeln!(self.stdout, "{line}")?;
        self.stdout.flush()
    }
}

fn first_text(items: &[JsonItem]) -> String {
    let text = items.iter().find_map(|item| match item {
        JsonItem::Text { text } => Some(text.as_str()),
        JsonItem::LocalImage { .. } | JsonItem::Skill { .. } | JsonItem::Mention { .. } => None,
    });
    one_line(text.unwrap_or("(no text)"), MAX_TITLE_CHARS)
}

/// Parses a duration such as `250ms`, `30s` or `5m`.
fn read_duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    match unit.trim() {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(number.checked_mul(60)?)),
        _ => None,
    }
}

/// Formats `1234567` as `1,234,567`.
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{BufReader, PipeReader, PipeWriter, pipe};

    use super::*;

    /// The agent in a thread, with the runner's ends of its pipes.
    struct TestAgent {
        stdin: PipeWriter,
        stdout: BufReader<PipeReader>,
        agent: thread::JoinHandle<i32>,
    }

    impl TestAgent {
        fn new() -> Self {
            let (read_stdin, stdin) = pipe().unwrap();
            let (stdout, write_stdout) = pipe().unwrap();
            Self {
                stdin,
                stdout: BufReader::new(stdout),
                agent: thread::spawn(move || main_loop(BufReader::new(read_stdin), write_stdout)),
            }
        }

        fn write(&mut self, line: &Value) {
            writeln!(self.stdin, "{line}").unwrap();
        }

        fn turn(&mut self, input: &str) {
            self.write(&json!({
                "type": "turn", "turn": 1, "extent": "full", "prompt": "",
                "blocks": [{"kind": "system", "text": "s".repeat(1200)}, {"kind": "task", "text": "the task"}],
                "inputs": [input],
            }));
        }

        /// Reads lines until one of them has the key.
        fn until(&mut self, key: &str, value: Option<&str>) -> Value {
            loop {
                let mut line = String::new();
                assert!(self.stdout.read_line(&mut line).unwrap() > 0, "no {key} before the end");
                let value_read: Value = serde_json::from_str(&line).unwrap();
                if value_read
                    .get(key)
                    .is_some_and(|found| value.is_none() || found.as_str() == value)
                {
                    return value_read;
                }
            }
        }

        fn message(&mut self) -> String {
            self.until("type", Some("turn_end"))["message"]
                .as_str()
                .unwrap()
                .to_owned()
        }

        fn exit(self) -> i32 {
            drop(self.stdin);
            self.agent.join().unwrap()
        }
    }

    #[test]
    fn handoff_goes_to_spawned_agent() {
        let mut agent = TestAgent::new();
        agent.turn(concat!(
            r#"{"tool_call":{"name":"spawn_node","args":{"label":"Docs","roleTemplate":"planner"}}}"#,
            "\n",
            r#"{"tool_call":{"name":"create_edge","args":{"from":"scout","to":"$spawned"}}}"#,
            "\n",
            r#"{"tool_call":{"name":"send_handoff","args":{"to":"$spawned","message":"yours"}}}"#,
        ));
        let spawn = agent.until("tool_call", None);
        agent.write(&json!({
            "type": "tool_result", "id": spawn["tool_call"]["id"], "ok": true, "result": {"nodeId": "0190aaaa-1111"}
        }));
        let edge = agent.until("tool_call", None);
        assert_eq!(
            edge["tool_call"]["args"],
            json!({"from": "scout", "to": "0190aaaa-1111"})
        );
        agent.write(&json!({
            "type": "tool_result", "id": edge["tool_call"]["id"], "ok": true,
            "result": {"approval_id": "0190bbbb-2222", "status": "awaiting_approval"}
        }));
        let handoff = agent.until("tool_call", None);
        assert_eq!(handoff["tool_call"]["args"]["to"], "0190aaaa-1111");
        agent.write(&json!({
            "type": "tool_result", "id": handoff["tool_call"]["id"], "ok": true, "result": {"handoff_id": "h"}
        }));
        assert_eq!(
            agent.message(),
            "spawned planner 0190aaaa…\ncreate_edge: waits for an operator\nhanded over to 0190aaaa-1111"
        );
        assert_eq!(agent.exit(), 0);
    }

    #[test]
    fn hold_lasts_until_interrupted() {
        let mut agent = TestAgent::new();
        agent.turn("hold");
        agent.until("activity", Some("holding"));
        agent.write(&json!({"type": "input", "number": 2, "items": [{"type": "text", "text": "more"}]}));
        agent.write(&json!({"type": "interrupt"}));
        assert_eq!(agent.message(), "received input: more\ninterrupted");
        agent.turn("sleep: 1ms\nsay: TROUPE_COMPLETE ");
        assert_eq!(agent.message(), "slept 1ms\nTROUPE_COMPLETE");
        assert_eq!(agent.exit(), 0);
    }

    #[test]
    fn end_of_input_ends_agent_within_turn() {
        let mut agent = TestAgent::new();
        agent.turn("hold");
        agent.until("activity", Some("holding"));
        assert_eq!(agent.exit(), 0);
    }

    #[test]
    fn numbers_and_durations_are_parsed() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(read_duration("5m"), Some(Duration::from_secs(300)));
        assert_eq!(read_duration("5"), None);
        assert_eq!(Directive::read("sleep: soon"), None);
    }
}
