//! Simulates agent programs with arbitrary output, without a process. The drivers read bytes, and the resulting events
//! must be within their bounds. Used by the fuzz target `agent_lines` and by tests.
#![allow(clippy::expect_used, reason = "a broken invariant must fail immediately")]

use std::path::Path;

use serde_json::json;
use tokio::{
    join,
    runtime::Builder,
    sync::{mpsc, oneshot},
};
use troupe_proto::supervisor::v1::{ToolDescription, ToolUse};

use crate::{
    a2a, acp,
    agent::{AgentEvent, AskedTool, Order, StartFailure},
    child::FakeChild,
    claude, codex,
    driven::{self, DriverChannels, Program},
    hook::{HookCall, HookServer},
    process,
    programs::Profile,
    prompt::PreparedTurn,
    redact,
    tools::ToolFailure,
};

/// Maximum length of a line. It is shorter than in production, so that some lines are too long.
const LONGEST_LINE: usize = 2 * 1024;
/// Maximum number of hook requests that wait.
const QUESTIONS: usize = 32;
/// The prefix of a line that contains the data of a Codex hook.
const TO_HOOK: &[u8] = b"hook ";
/// The only offered tool of the supervisor.
const OFFERED: &str = "wait";
/// The working directory of the agents.
const DIRECTORY: &str = "/project";
/// The first messages of a program that speaks the Agent Client Protocol.
const ACP_BEGINS: Script = &[
    (
        "\"initialize\"",
        r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}"#,
    ),
    (
        "\"session/new\"",
        r#"{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s","configOptions":[{"id":"mode","currentValue":"role"}]}}"#,
    ),
    ("\"session/prompt\"", ""),
];

/// Pairs of a part of the text that a program waits for, and its response.
type Script = &'static [(&'static str, &'static str)];

/// The simulated program.
#[derive(Clone, Copy, Debug)]
enum Speaker {
    Process,
    Claude,
    Codex,
    Acp(Profile),
    /// A remote agent, which has no process.
    Remote,
}

impl Speaker {
    const fn of(letter: u8) -> Option<Self> {
        match letter {
            b'p' => Some(Self::Process),
            b'c' => Some(Self::Claude),
            b'x' => Some(Self::Codex),
            b'o' => Some(Self::Acp(Profile::OpenCode)),
            b'g' => Some(Self::Acp(Profile::Gemini)),
            b'a' => Some(Self::Remote),
            _ => None,
        }
    }

    /// Returns the messages of the program before its first turn.
    const fn script(self) -> Script {
        match self {
            Self::Process | Self::Remote => &[],
            Self::Claude => &[
                (
                    "\"initialize\"",
                    r#"{"type":"control_response","response":{"request_id":"r1","subtype":"success"}}"#,
                ),
                ("\"type\":\"user\"", ""),
            ],
            Self::Codex => &[
                ("\"initialize\"", r#"{"id":1,"result":{}}"#),
                ("\"thread/start\"", r#"{"id":2,"result":{"thread":{"id":"probe"}}}"#),
                (
                    "\"hooks/list\"",
                    r#"{"id":3,"result":{"data":[{"hooks":[{"eventName":"preToolUse","key":"k","currentHash":"h"}]}]}}"#,
                ),
                ("\"thread/start\"", r#"{"id":4,"result":{"thread":{"id":"thread"}}}"#),
                (
                    "\"hooks/list\"",
                    r#"{"id":5,"result":{"data":[{"hooks":[{"eventName":"preToolUse","trustStatus":"trusted","enabled":true}]}]}}"#,
                ),
                ("\"turn/start\"", r#"{"id":6,"result":{"turn":{"id":"turn"}}}"#),
            ],
            Self::Acp(_) => ACP_BEGINS,
        }
    }

    /// Returns whether the driver makes written paths absolute. Claude Code's driver uses paths unchanged.
    const fn resolves(self) -> bool {
        match self {
            Self::Codex | Self::Acp(_) => true,
            Self::Process | Self::Claude | Self::Remote => false,
        }
    }
}

/// Processes a program's output in its first turn and after it. The first byte of the input selects the protocol:
/// `p`rocess, `c`laude, code`x`, `o`pencode, `g`emini or `a`2a. With Codex, a line that begins with `hook ` contains
/// the data of a hook request. The output of a remote agent is a stream of server-sent events.
///
/// # Panics
///
/// A resulting event exceeds its bounds.
pub fn agent_lines(input: &[u8]) {
    let Some((&letter, bytes)) = input.split_first() else {
        return;
    };
    match Speaker::of(letter) {
        None => {}
        Some(Speaker::Process) => {
            for line in String::from_utf8_lossy(bytes).lines() {
                check(Speaker::Process, &process::parse(line));
            }
        }
        Some(Speaker::Remote) => {
            for event in a2a::replay(bytes) {
                check(Speaker::Remote, &event);
            }
        }
        Some(speaker) => {
            let runtime = Builder::new_current_thread().enable_time().build();
            runtime.expect("a runtime starts").block_on(play(speaker, bytes));
        }
    }
}

async fn play(speaker: Speaker, bytes: &[u8]) {
    let (input, output, fake) = FakeChild::new(LONGEST_LINE);
    let (channels, orders, events) = driven::driver_channels();
    let (ask, asked) = mpsc::channel(QUESTIONS);
    let _ = orders.try_send(Order::Turn(turn()));
    let program = Program::over(input, output);
    let (begun, (), ()) = join!(
        drive(speaker, program, asked, channels),
        write_output(speaker, fake, ask, bytes),
        listen(speaker, orders, events),
    );
    begun.expect("it begins as its script says");
}

async fn drive(
    speaker: Speaker,
    program: Program,
    asked: mpsc::Receiver<HookCall>,
    channels: DriverChannels,
) -> Result<(), StartFailure> {
    match speaker {
        Speaker::Process | Speaker::Remote => Ok(()),
        Speaker::Claude => Box::pin(claude::converse(program, vec![offered()], channels)).await,
        Speaker::Codex => {
            let hooks = HookServer::over(asked);
            Box::pin(codex::converse(
                program,
                hooks,
                vec![offered()],
                DIRECTORY.into(),
                channels,
            ))
            .await
        }
        Speaker::Acp(profile) => Box::pin(acp::converse(program, profile, OFFERED, DIRECTORY.into(), channels)).await,
    }
}

/// Simulates the program: it begins, writes all of its lines, and ends.
async fn write_output(speaker: Speaker, mut fake: FakeChild, ask: mpsc::Sender<HookCall>, bytes: &[u8]) {
    for (expected, answer) in speaker.script() {
        while fake.received.recv().await.is_some_and(|line| !line.contains(expected)) {}
        fake.write(answer.as_bytes()).await;
    }
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        match line.strip_prefix(TO_HOOK) {
            None => fake.write(line).await,
            Some(question) => {
                if let Ok(input) = serde_json::from_slice(question) {
                    // The answer is dropped. A request that does not fit into the queue is omitted, because the driver
                    // may be waiting for a line.
                    let (answer, _) = oneshot::channel();
                    let _ = ask.try_send(HookCall { input, answer });
                }
            }
        }
    }
}

/// Simulates the thread: it allows or denies each request of the program, and starts another turn after each turn.
async fn listen(speaker: Speaker, orders: mpsc::Sender<Order>, mut events: mpsc::Receiver<AgentEvent>) {
    let (mut allows, mut is_over) = (false, false);
    while let Some(event) = events.recv().await {
        assert!(!is_over, "an event after the end: {event:?}");
        check(speaker, &event);
        let order = match event {
            AgentEvent::ToolCalled(call) => Order::ToolAnswered {
                id: call.id,
                answer: Ok(json!({})),
            },
            AgentEvent::ToolAsked(asked) => {
                allows = !allows;
                let verdict = if allows { Ok(()) } else { Err(ToolFailure::local("no")) };
                Order::Permitted { id: asked.id, verdict }
            }
            AgentEvent::TurnEnded { .. } => Order::Turn(turn()),
            AgentEvent::Exited(_) => {
                is_over = true;
                continue;
            }
            AgentEvent::Activity(_)
            | AgentEvent::ToolUsed(_)
            | AgentEvent::Plan(_)
            | AgentEvent::Spent { .. }
            | AgentEvent::Output(_)
            | AgentEvent::MessageEnd
            | AgentEvent::File(_)
            | AgentEvent::Reasoning(_)
            | AgentEvent::ToolStarted(_)
            | AgentEvent::ToolEnded { .. }
            | AgentEvent::PolicyGap(_)
            | AgentEvent::ContextLost(_)
            | AgentEvent::UnofferedCall { .. }
            | AgentEvent::InputTaken(_) => continue,
        };
        let _ = orders.try_send(order);
    }
}

/// Checks the invariants of every event.
fn check(speaker: Speaker, event: &AgentEvent) {
    match event {
        AgentEvent::Activity(activity) => check_line(activity, redact::MAX_DETAIL_CHARS),
        AgentEvent::ToolUsed(ToolUse { name, detail }) => {
            check_line(name, redact::MAX_NAME_CHARS);
            check_line(detail, redact::MAX_DETAIL_CHARS);
        }
        AgentEvent::Plan(steps) => {
            assert!(steps.len() <= redact::MAX_STEPS);
            for step in steps {
                check_line(&step.step, redact::MAX_STEP_BYTES);
                assert!(step.step.len() <= redact::MAX_STEP_BYTES);
            }
        }
        AgentEvent::Spent {
            context_left_percent, ..
        } => assert!(context_left_percent.is_none_or(|percent| percent <= 100)),
        AgentEvent::ToolCalled(call) => match speaker {
            Speaker::Process => assert!(!call.name.is_empty(), "a call without a name"),
            Speaker::Claude | Speaker::Codex | Speaker::Acp(_) => assert_eq!(call.name, OFFERED),
            Speaker::Remote => panic!("a remote agent has no tools: {call:?}"),
        },
        AgentEvent::ToolAsked(AskedTool { arguments, written, .. }) => {
            let shown = redact::arguments(arguments);
            assert_eq!(redact::arguments(&shown), shown, "a displayed text is already redacted");
            assert!(!speaker.resolves() || written.iter().all(|path| Path::new(path).is_absolute()));
        }
        AgentEvent::ToolEnded { text, size, .. } => assert!(text.len() <= *size && text.len() <= LONGEST_LINE),
        AgentEvent::Output(_)
        | AgentEvent::MessageEnd
        | AgentEvent::File(_)
        | AgentEvent::Reasoning(_)
        | AgentEvent::ToolStarted(_)
        | AgentEvent::PolicyGap(_)
        | AgentEvent::ContextLost(_)
        | AgentEvent::UnofferedCall { .. }
        | AgentEvent::InputTaken(_)
        | AgentEvent::TurnEnded { .. }
        | AgentEvent::Exited(_) => {}
    }
}

fn check_line(text: &str, max_chars: usize) {
    assert!(text.chars().count() <= max_chars, "{text:?}");
    assert!(!text.chars().any(char::is_control), "{text:?}");
}

fn offered() -> ToolDescription {
    ToolDescription {
        name: OFFERED.to_owned(),
        description: String::new(),
        input_schema_json: String::new(),
    }
}

fn turn() -> PreparedTurn {
    PreparedTurn {
        number: 1,
        ..PreparedTurn::default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The seeds of the fuzz target.
    const SEEDS: [&[u8]; 6] = [
        include_bytes!("../../fuzz/corpus/agent_lines/process.txt"),
        include_bytes!("../../fuzz/corpus/agent_lines/claude.txt"),
        include_bytes!("../../fuzz/corpus/agent_lines/codex.txt"),
        include_bytes!("../../fuzz/corpus/agent_lines/opencode.txt"),
        include_bytes!("../../fuzz/corpus/agent_lines/gemini.txt"),
        include_bytes!("../../fuzz/corpus/agent_lines/remote.txt"),
    ];

    #[test]
    fn program_output_reaches_events() {
        for seed in SEEDS {
            agent_lines(seed);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn events_of_any_output_are_bounded(
            seed in prop::sample::select(SEEDS.to_vec()),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            rest in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut bytes = seed.to_vec();
            for (place, byte) in changes {
                let place = place.index(bytes.len() - 1) + 1;
                bytes[place] = byte;
            }
            bytes.extend(rest);
            agent_lines(&bytes);
        }
    }
}
