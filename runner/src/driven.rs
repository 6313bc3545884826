//! Agents whose programs speak their own protocol, and remote agents. A task, the driver, handles the protocol. Two
//! channels connect the driver and its thread. A waiting driver does not block anything else.

use std::{collections::VecDeque, future::pending, time::Duration};

use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tracing::debug;

use crate::{
    agent::{Agent, AgentEvent, InputError, Order, StopOrder, Stopped},
    child::{Child, ChildEvent, ChildInput, ChildOutput, Line},
    provider_access::{ProviderAccess, TrafficObserver},
};

/// Maximum number of orders that wait for a driver.
const ORDER_CAPACITY: usize = 256;
/// Maximum number of a driver's events that wait for the thread. The number is low because each event may be as long as
/// the longest line.
const EVENT_CAPACITY: usize = 32;

/// Maximum number of messages that are stored while an answer is awaited.
const MAX_STORED: usize = 4096;
/// Maximum total size of these messages, in bytes.
const MAX_STORED_BYTES: usize = 8 * 1024 * 1024;
/// Maximum length of a line from a program, in bytes. The protocols have no limit, and a permission request may contain
/// a whole file.
pub(crate) const MAX_LINE_BYTES: usize = 4 * 1024 * 1024;
/// Time limit for a program's answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// A driver's end of the channels.
pub(crate) struct DriverChannels {
    pub(crate) orders: mpsc::Receiver<Order>,
    pub(crate) events: mpsc::Sender<AgentEvent>,
}

impl DriverChannels {
    pub(crate) async fn emit(&self, event: AgentEvent) {
        // There is no receiver while the program is being stopped.
        let _ = self.events.send(event).await;
    }

    /// Reports that the program does not remember the earlier conversation.
    pub(crate) async fn report_context_lost(&self, why: &str) {
        let reason = format!("the program does not remember the earlier conversation: {why}");
        self.emit(AgentEvent::ContextLost(reason)).await;
    }

    /// Reports all restrictions that the program cannot enforce and all features that it lacks. They are reported
    /// together because a thread displays only the latest report.
    pub(crate) async fn report_gaps(&self, gaps: &[String]) {
        if !gaps.is_empty() {
            self.emit(AgentEvent::PolicyGap(gaps.join("; "))).await;
        }
    }
}

/// Returns the driver's end of the channels and the thread's ends.
pub(crate) fn driver_channels() -> (DriverChannels, mpsc::Sender<Order>, mpsc::Receiver<AgentEvent>) {
    let (orders, received_orders) = mpsc::channel(ORDER_CAPACITY);
    let (sender, events) = mpsc::channel(EVENT_CAPACITY);
    let channels = DriverChannels {
        orders: received_orders,
        events: sender,
    };
    (channels, orders, events)
}

/// The thread's end of the channels.
pub(crate) struct Driven {
    /// The program. `None`: the agent is remote, and only its driver runs here.
    child: Option<Child>,
    orders: mpsc::Sender<Order>,
    events: mpsc::Receiver<AgentEvent>,
    driver: JoinHandle<()>,
    /// Observes the program's requests to its provider, if a proxy forwards them.
    traffic: Option<TrafficObserver>,
}

impl Driven {
    /// Starts a driver, which controls the child from now on.
    pub(crate) fn new<F: Future<Output = ()> + Send + 'static>(
        child: Child,
        drive: impl FnOnce(DriverChannels) -> F,
    ) -> Self {
        Self {
            child: Some(child),
            ..Self::remote(drive)
        }
    }

    /// Starts a driver for a remote agent. The driver ends when the channel of its orders closes.
    pub(crate) fn remote<F: Future<Output = ()> + Send + 'static>(drive: impl FnOnce(DriverChannels) -> F) -> Self {
        let (channels, orders, events) = driver_channels();
        let driver = tokio::spawn(drive(channels));
        Self {
            child: None,
            orders,
            events,
            driver,
            traffic: None,
        }
    }

    /// Returns the agent with its program's access to providers. Through this access, the program can send only a
    /// limited number of requests without progress.
    pub(crate) fn with_access(mut self, access: ProviderAccess) -> Self {
        self.traffic = Some(TrafficObserver::new(access));
        self
    }
}

#[tonic::async_trait]
impl Agent for Driven {
    fn give(&mut self, order: Order) -> Result<(), InputError> {
        self.orders.try_send(order).map_err(|_| InputError)
    }

    fn signal(&mut self) {
        match &self.child {
            Some(child) => child.interrupt(),
            // A second interruption of a remote agent ends the turn without waiting for the agent.
            None => drop(self.give(Order::Interrupt)),
        }
    }

    async fn next_event(&mut self) -> AgentEvent {
        let event = tokio::select! {
            // Progress is processed before the requests that led to it.
            biased;
            event = self.events.recv() => event,
            event = next_of(&mut self.traffic) => return event,
        };
        // The channel ends only after the event that reports the program's end, or because of a bug.
        let lost = match self.child {
            Some(_) => "the runner lost the connection to the program",
            None => "the connection to the remote agent ended",
        };
        let event = event.unwrap_or_else(|| AgentEvent::Exited(lost.to_owned()));
        if let Some(traffic) = &mut self.traffic
            && event.is_progress()
        {
            traffic.note_progress();
        }
        event
    }

    async fn stop(self: Box<Self>, order: StopOrder) -> Stopped {
        let Self {
            child,
            orders,
            events,
            mut driver,
            traffic: _traffic,
        } = *self;
        if let Some(child) = child {
            // Dropping the driver closes the program's input, which tells the program to exit.
            driver.abort();
            let _ = driver.await;
            return child.stop(order).await;
        }
        // The driver cancels the running task. The driver has a short time for this even if the thread does not wait.
        drop((orders, events));
        tokio::select! {
            _ = &mut driver => {}
            () = sleep(order.grace) => {}
            () = order.kill.cancelled() => {}
        }
        Stopped {
            detail: "the context of the remote agent was left".to_owned(),
            killed: false,
        }
    }
}

async fn next_of(traffic: &mut Option<TrafficObserver>) -> AgentEvent {
    match traffic {
        Some(traffic) => traffic.next().await,
        None => pending().await,
    }
}

/// A program that reads and writes one JSON value per line.
pub(crate) struct Program {
    input: ChildInput,
    output: ChildOutput,
    /// Messages that arrived while an answer was awaited, as text: parsed values need many times more memory.
    stored: VecDeque<String>,
    stored_bytes: usize,
    last_id: u64,
    /// The reason why the output is not read any more although the program runs. Callers treat this as the program's
    /// end, because a line that was dropped may have been a request.
    read_error: Option<String>,
}

/// The result of a call: the answer or its error. The inner error is a text for display. The outer error is the reason
/// for the program's end.
pub(crate) type Answered = Result<Result<Value, String>, String>;

impl Program {
    pub(crate) fn new(child: &Child, output: ChildOutput) -> Self {
        Self::over(child.input().clone(), output)
    }

    /// Returns a program with this input and output.
    pub(crate) fn over(input: ChildInput, output: ChildOutput) -> Self {
        Self {
            input,
            output,
            stored: VecDeque::new(),
            stored_bytes: 0,
            last_id: 0,
            read_error: None,
        }
    }

    /// Sends a value. A program that does not read its input is detected by its silence.
    pub(crate) fn send(&self, value: &Value) {
        if self.input.write(format!("{value}\n")).is_err() {
            debug!("the program does not read its input");
        }
    }

    /// Returns the next message, stored messages first. The error describes the program's end. Cancel safe.
    pub(crate) async fn receive(&mut self) -> Result<Value, String> {
        while let Some(stored) = self.stored.pop_front() {
            self.stored_bytes -= stored.len();
            // The text was serialized from a value, so it can be parsed.
            if let Ok(incoming) = serde_json::from_str(&stored) {
                return Ok(incoming);
            }
        }
        self.receive_new().await
    }

    /// Stores a message for later.
    ///
    /// # Errors
    ///
    /// The stored messages exceed their limit. This error counts as the program's end, and [`Self::receive`] returns it
    /// from now on.
    pub(crate) fn keep(&mut self, incoming: &Value) -> Result<(), String> {
        let text = incoming.to_string();
        if self.stored.len() >= MAX_STORED || self.stored_bytes + text.len() > MAX_STORED_BYTES {
            return Err(self.stop_reading(format!(
                "it sent over {MAX_STORED} other messages, or {MAX_STORED_BYTES} bytes, before its answer"
            )));
        }
        self.stored_bytes += text.len();
        self.stored.push_back(text);
        Ok(())
    }

    fn stop_reading(&mut self, why: String) -> String {
        self.stored.clear();
        self.stored_bytes = 0;
        self.read_error.insert(why).clone()
    }

    /// Calls a method by JSON-RPC without waiting for the answer. Returns the id of the call.
    pub(crate) fn send_request(&mut self, method: &str, params: &Value) -> u64 {
        self.last_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}));
        self.last_id
    }

    /// Calls a method by JSON-RPC and waits for the answer. Other messages are stored. `refusal` converts an error into
    /// text.
    pub(crate) async fn call(&mut self, method: &str, params: &Value, refusal: fn(&Value) -> String) -> Answered {
        let id = self.send_request(method, params);
        let answer = async {
            loop {
                let incoming = self.receive_new().await?;
                if incoming["id"].as_u64() == Some(id) && incoming.get("method").is_none() {
                    return Ok::<_, String>(incoming);
                }
                self.keep(&incoming)?;
            }
        };
        match timeout(ANSWER_LIMIT, answer).await {
            Ok(Ok(mut incoming)) => Ok(match incoming.get("error") {
                Some(error) => Err(refusal(error)),
                None => Ok(incoming["result"].take()),
            }),
            Ok(Err(end)) => Err(end),
            Err(_) => Ok(Err(format!("it did not answer {method} within {ANSWER_LIMIT:?}"))),
        }
    }

    /// Returns the next new message. Skips lines that are not JSON and lines that are too long, such as a line that
    /// repeats an image or contains a large diff. But if a line that is too long may be a request, nothing is read
    /// after it, because the program waits for the answer.
    pub(crate) async fn receive_new(&mut self) -> Result<Value, String> {
        if let Some(why) = &self.read_error {
            return Err(why.clone());
        }
        loop {
            match self.output.next_event().await {
                ChildEvent::Line(Line::Text(line)) => match serde_json::from_str(&line) {
                    Ok(value) => return Ok(value),
                    Err(error) => debug!(%error, "a line of the program is not JSON"),
                },
                ChildEvent::Line(Line::TooLong { bytes, beginning }) if !may_be_request(&beginning) => {
                    debug!(bytes, "a line of the program is too long");
                }
                ChildEvent::Line(Line::TooLong { bytes, .. }) => {
                    let why = format!("it wrote a line of {bytes} bytes; at most {MAX_LINE_BYTES} are read");
                    return Err(self.stop_reading(why));
                }
                ChildEvent::Exited(exit) => return Err(exit.complaint()),
            }
        }
    }
}

/// Returns whether a message with this beginning may be a request: a control request, or a JSON-RPC call with an id.
fn may_be_request(beginning: &str) -> bool {
    // Codex repeats its conversation in such messages, which have an id.
    if beginning.contains("\"rawResponseItem/completed\"") {
        return false;
    }
    beginning.contains("\"control_request\"") || (beginning.contains("\"method\"") && beginning.contains("\"id\""))
}

/// Returns the answer. Every reason for a missing answer becomes an error.
pub(crate) fn flat(answered: Answered) -> Result<Value, String> {
    answered.and_then(|answer| answer)
}

/// Starts a test's script as a program.
#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) fn started(script: &str) -> (Child, Program) {
    let process = crate::process_spec::ProcessSpec::shell(script);
    let (child, output) = Child::start(process, MAX_LINE_BYTES).unwrap();
    let program = Program::new(&child, output);
    (child, program)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn overlong_request_line_ends_program() {
        let script = "echo 1; long() { head -c 5000000 /dev/zero | tr '\\0' x; echo; }; \
                      printf '{\"method\": \"news\"'; long; echo 2; printf '{\"id\": 1, \"method\": \"ask\"'; long; echo 3; read -r end";
        let (_child, mut program) = started(script);
        assert_eq!(program.receive().await.unwrap(), json!(1));
        assert_eq!(
            program.receive().await.unwrap(),
            json!(2),
            "messages without a request are skipped"
        );
        for _ in 0..2 {
            let why = program.receive().await.unwrap_err();
            assert_eq!(why, "it wrote a line of 5000025 bytes; at most 4194304 are read");
        }
    }

    #[tokio::test]
    async fn queue_during_pending_answer_is_bounded() {
        let line = "printf '\"'; head -c 2000000 /dev/zero | tr '\\0' x; echo '\"'";
        let (_child, mut program) = started(&format!("for n in 1 2 3 4 5; do {line}; done; read -r end"));
        let answered = program.call("m", &json!({}), |_| String::new()).await;
        let why = answered.unwrap_err();
        assert!(why.contains("before its answer"), "{why}");
        assert_eq!(program.receive().await.unwrap_err(), why);
    }
}
