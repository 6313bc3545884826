//! Agents whose programs speak a protocol of their own: a task, the driver, speaks it, and the thread has its end of two
//! channels. What the driver waits for keeps nobody else waiting.

use std::{collections::VecDeque, future::pending, time::Duration};

use serde_json::{Value, json};
use tokio::{sync::mpsc, task::JoinHandle, time::timeout};
use tracing::debug;
use troupe_proto::supervisor::v1::Input;

use crate::{
    agent::{Agent, AgentEvent, Boxed, Deaf, Nudge, StopOrder, Stopped},
    child::{Child, ChildEvent, ChildInput, ChildOutput, Line},
    prompt::GivenTurn,
    provider_proxy::{ProviderProxy, TrafficObserver},
    tools::{ToolAnswer, ToolFailure},
};

/// How many orders wait for a driver.
const WAITING: usize = 256;
/// How many of a driver's events wait for the thread: few, since each may be as long as a line.
const UNHEARD_EVENTS: usize = 32;

/// How much that a program says is kept while its answer is waited for: so many things, of so many bytes together.
const MAX_KEPT: usize = 4096;
const MAX_KEPT_BYTES: usize = 8 * 1024 * 1024;
/// The longest line that is read of a program, in bytes: its protocol has no bound, and a question may hold a whole
/// file.
pub(crate) const MAX_LINE_BYTES: usize = 4 * 1024 * 1024;
/// How long a program may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// What a thread wants of its program.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// Begin a turn.
    Turn(GivenTurn),
    /// Take in more, within the turn, and say so: [`AgentEvent::InputTaken`].
    Input { number: u32, input: Input },
    /// The answer to a tool call.
    ToolAnswered { id: String, answer: ToolAnswer },
    /// The answer to a question for leave.
    Permitted {
        id: String,
        verdict: Result<(), ToolFailure>,
    },
    /// Tell the model why a call was refused that the program answered itself.
    Explain(String),
    /// End the turn.
    Interrupt,
}

/// A driver's end of the channels.
pub(crate) struct Desk {
    pub(crate) orders: mpsc::Receiver<Order>,
    events: mpsc::Sender<AgentEvent>,
}

impl Desk {
    pub(crate) async fn tell(&self, event: AgentEvent) {
        // Nobody hears a program that is being stopped.
        let _ = self.events.send(event).await;
    }

    /// Reports that the program does not remember the earlier conversation.
    pub(crate) async fn tell_lost(&self, why: &str) {
        let reason = format!("the program does not remember the earlier conversation: {why}");
        self.tell(AgentEvent::ContextLost(reason)).await;
    }

    /// Tells of all that the program is known by now not to be held to, or not to have: of all at once, since a thread shows
    /// the last thing that was said.
    pub(crate) async fn tell_gaps(&self, gaps: &[String]) {
        if !gaps.is_empty() {
            self.tell(AgentEvent::PolicyGap(gaps.join("; "))).await;
        }
    }
}

/// A driver's end of the channels, and the thread's.
pub(crate) fn desk() -> (Desk, mpsc::Sender<Order>, mpsc::Receiver<AgentEvent>) {
    let (orders, to_obey) = mpsc::channel(WAITING);
    let (tell, events) = mpsc::channel(UNHEARD_EVENTS);
    let desk = Desk {
        orders: to_obey,
        events: tell,
    };
    (desk, orders, events)
}

/// The thread's end.
pub(crate) struct Driven {
    child: Child,
    orders: mpsc::Sender<Order>,
    events: mpsc::Receiver<AgentEvent>,
    driver: JoinHandle<()>,
    /// What the program requests of its provider, where a proxy observes that.
    traffic: Option<TrafficObserver>,
}

impl Driven {
    /// Has a driver speak with the child from now on.
    pub(crate) fn new<F: Future<Output = ()> + Send + 'static>(child: Child, drive: impl FnOnce(Desk) -> F) -> Self {
        let (desk, orders, events) = desk();
        let driver = tokio::spawn(drive(desk));
        Self {
            child,
            orders,
            events,
            driver,
            traffic: None,
        }
    }

    /// The same agent, whose program requests its model through a proxy.
    pub(crate) fn observed(mut self, proxy: Option<ProviderProxy>) -> Self {
        self.traffic = proxy.map(TrafficObserver::new);
        self
    }

    fn order(&self, order: Order) -> Result<(), Deaf> {
        self.orders.try_send(order).map_err(|_| Deaf)
    }
}

impl Agent for Driven {
    fn give_turn(&mut self, turn: &GivenTurn) -> Result<(), Deaf> {
        self.order(Order::Turn(turn.clone()))
    }

    fn give_input(&mut self, number: u32, input: &Input) -> Result<(), Deaf> {
        self.order(Order::Input {
            number,
            input: input.clone(),
        })
    }

    fn answer_tool(&mut self, call_id: &str, answer: &ToolAnswer) -> Result<(), Deaf> {
        self.order(Order::ToolAnswered {
            id: call_id.to_owned(),
            answer: answer.clone(),
        })
    }

    fn explain(&mut self, text: &str) -> Result<(), Deaf> {
        self.order(Order::Explain(text.to_owned()))
    }

    fn permit(&mut self, ask_id: &str, verdict: &Result<(), ToolFailure>) -> Result<(), Deaf> {
        self.order(Order::Permitted {
            id: ask_id.to_owned(),
            verdict: verdict.clone(),
        })
    }

    fn interrupt(&mut self, nudge: Nudge) {
        match nudge {
            // One that does not listen is sent a signal next.
            Nudge::Ask => drop(self.order(Order::Interrupt)),
            Nudge::Signal => self.child.interrupt(),
        }
    }

    fn next_event(&mut self) -> Boxed<'_, AgentEvent> {
        Box::pin(async {
            let event = tokio::select! {
                // Progress counts before the requests that led to it.
                biased;
                event = self.events.recv() => event,
                event = next_of(&mut self.traffic) => return event,
            };
            // The channel ends only with the program, of which an event tells, or by a defect.
            let event = event.unwrap_or_else(|| AgentEvent::Exited("the runner lost hold of the program".to_owned()));
            if let Some(traffic) = &mut self.traffic
                && event.is_progress()
            {
                traffic.note_progress();
            }
            event
        })
    }

    fn stop(self: Box<Self>, order: StopOrder) -> Boxed<'static, Stopped> {
        Box::pin(async move {
            // With the driver the program's input ends, which is its sign to go.
            self.driver.abort();
            let _ = self.driver.await;
            self.child.stop(order).await
        })
    }
}

async fn next_of(traffic: &mut Option<TrafficObserver>) -> AgentEvent {
    match traffic {
        Some(traffic) => traffic.next().await,
        None => pending().await,
    }
}

/// A program that reads and writes a JSON value a line.
pub(crate) struct Program {
    input: ChildInput,
    output: ChildOutput,
    /// What it said while something else was waited for, as text: read, a value takes many times its length.
    kept: VecDeque<String>,
    kept_bytes: usize,
    last_id: u64,
    /// Why it is listened to no longer, though it runs. Its end for everybody: what was lost may have been a question.
    given_up: Option<String>,
}

/// What came of a question: the answer, or the error that it is answered with; in words for people, that there was no
/// answer. The outer error is the program's end.
pub(crate) type Answered = Result<Result<Value, String>, String>;

impl Program {
    pub(crate) fn new(child: &Child, output: ChildOutput) -> Self {
        Self::over(child.input().clone(), output)
    }

    /// A program that has these pipes.
    pub(crate) fn over(input: ChildInput, output: ChildOutput) -> Self {
        Self {
            input,
            output,
            kept: VecDeque::new(),
            kept_bytes: 0,
            last_id: 0,
            given_up: None,
        }
    }

    /// Says something. A program that does not read is found out by its silence.
    pub(crate) fn say(&self, value: &Value) {
        if self.input.write(format!("{value}\n")).is_err() {
            debug!("the program does not read what it is told");
        }
    }

    /// What it says next, with what was kept first; the error is how it ended. Nothing is lost when the future is
    /// dropped.
    pub(crate) async fn hear(&mut self) -> Result<Value, String> {
        while let Some(kept) = self.kept.pop_front() {
            self.kept_bytes -= kept.len();
            // It was a value before, so it is one.
            if let Ok(said) = serde_json::from_str(&kept) {
                return Ok(said);
            }
        }
        self.hear_news().await
    }

    /// Keeps what it said for later.
    ///
    /// # Errors
    ///
    /// It said too much by now: its end, as [`Self::hear`] tells it from now on.
    pub(crate) fn keep(&mut self, said: &Value) -> Result<(), String> {
        let text = said.to_string();
        if self.kept.len() >= MAX_KEPT || self.kept_bytes + text.len() > MAX_KEPT_BYTES {
            return Err(self.give_up(format!(
                "it said over {MAX_KEPT} other things, or {MAX_KEPT_BYTES} bytes of them, instead of answering"
            )));
        }
        self.kept_bytes += text.len();
        self.kept.push_back(text);
        Ok(())
    }

    fn give_up(&mut self, why: String) -> String {
        self.kept.clear();
        self.kept_bytes = 0;
        self.given_up.insert(why).clone()
    }

    /// Calls a method by JSON-RPC and does not wait. Answers the id of the call.
    pub(crate) fn tell(&mut self, method: &str, params: &Value) -> u64 {
        self.last_id += 1;
        self.say(&json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}));
        self.last_id
    }

    /// Calls a method by JSON-RPC and waits for the answer; what else it says is kept. `refusal` puts an error into
    /// words.
    pub(crate) async fn call(&mut self, method: &str, params: &Value, refusal: fn(&Value) -> String) -> Answered {
        let id = self.tell(method, params);
        let answer = async {
            loop {
                let said = self.hear_news().await?;
                if said["id"].as_u64() == Some(id) && said.get("method").is_none() {
                    return Ok::<_, String>(said);
                }
                self.keep(&said)?;
            }
        };
        match timeout(ANSWER_LIMIT, answer).await {
            Ok(Ok(mut said)) => Ok(match said.get("error") {
                Some(error) => Err(refusal(error)),
                None => Ok(said["result"].take()),
            }),
            Ok(Err(end)) => Err(end),
            Err(_) => Ok(Err(format!("it did not answer {method} within {ANSWER_LIMIT:?}"))),
        }
    }

    /// What it says next. Lines that are no JSON are passed over, and so is what is too long: the echo of a picture, or a
    /// large diff. But if that may have been a question, the program waits for an answer, and nothing is heard after it.
    pub(crate) async fn hear_news(&mut self) -> Result<Value, String> {
        if let Some(why) = &self.given_up {
            return Err(why.clone());
        }
        loop {
            match self.output.next_event().await {
                ChildEvent::Line(Line::Text(line)) => match serde_json::from_str(&line) {
                    Ok(value) => return Ok(value),
                    Err(error) => debug!(%error, "a line of the program is no JSON"),
                },
                ChildEvent::Line(Line::TooLong { bytes, beginning }) if !may_ask(&beginning) => {
                    debug!(bytes, "a line of the program is too long");
                }
                ChildEvent::Line(Line::TooLong { bytes, .. }) => {
                    let why = format!("it wrote a line of {bytes} bytes; at most {MAX_LINE_BYTES} are read");
                    return Err(self.give_up(why));
                }
                ChildEvent::Exited(exit) => return Err(exit.complaint()),
            }
        }
    }
}

/// Whether a message that begins like this may be a question: a control request, or a call by JSON-RPC, which has an id.
fn may_ask(beginning: &str) -> bool {
    // What Codex repeats of its conversation is a message with an id of its own.
    if beginning.contains("\"rawResponseItem/completed\"") {
        return false;
    }
    beginning.contains("\"control_request\"") || (beginning.contains("\"method\"") && beginning.contains("\"id\""))
}

/// The answer; that there is none, whatever the reason, is an error.
pub(crate) fn flat(answered: Answered) -> Result<Value, String> {
    answered.and_then(|answer| answer)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::child::Launch;

    fn started(script: &str) -> (Child, Program) {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let launch = Launch {
            command: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            directory: "/".into(),
            environment: vec![("PATH".to_owned(), path)],
            starts: Vec::new(),
        };
        let (child, output) = Child::start(launch, MAX_LINE_BYTES).unwrap();
        let program = Program::new(&child, output);
        (child, program)
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_its_end() {
        let script = "echo 1; long() { head -c 5000000 /dev/zero | tr '\\0' x; echo; }; \
                      printf '{\"method\": \"news\"'; long; echo 2; printf '{\"id\": 1, \"method\": \"ask\"'; long; echo 3; read -r end";
        let (_child, mut program) = started(script);
        assert_eq!(program.hear().await.unwrap(), json!(1));
        assert_eq!(
            program.hear().await.unwrap(),
            json!(2),
            "what asks nothing is passed over"
        );
        for _ in 0..2 {
            let why = program.hear().await.unwrap_err();
            assert_eq!(why, "it wrote a line of 5000025 bytes; at most 4194304 are read");
        }
    }

    #[tokio::test]
    async fn what_is_kept_while_an_answer_is_waited_for_has_a_bound() {
        let line = "printf '\"'; head -c 2000000 /dev/zero | tr '\\0' x; echo '\"'";
        let (_child, mut program) = started(&format!("for n in 1 2 3 4 5; do {line}; done; read -r end"));
        let answered = program.call("m", &json!({}), |_| String::new()).await;
        let why = answered.unwrap_err();
        assert!(why.contains("instead of answering"), "{why}");
        assert_eq!(program.hear().await.unwrap_err(), why);
    }
}
