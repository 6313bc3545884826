//! Sessions for tests.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use prost_types::Timestamp;
use troupe_proto::{
    common::v1::Mode,
    supervisor::v1::{
        Approval, ApprovalThread, Budget, Condition, ConditionKind, Group, GroupLimits, GroupSpec, GroupState, Limits,
        PlanStep, RollUp, Session, Snapshot, Status, StatusKind, Thread, ToolUse, Usage, WatchSessionsResponse,
        WatchThreadsResponse, plan_step::State as StepState, watch_threads_response::Message,
    },
};

use super::state::{Effect, State};
use crate::{filter::Filter, follow::SessionsUpdate};

/// The current time in the tests, in seconds since the epoch.
const NOW: u64 = 1_800_000_000;

/// Returns the time that is this many seconds before [`NOW`].
pub(super) fn ago(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW - seconds)
}

fn stamp(seconds: u64) -> Option<Timestamp> {
    Some(ago(seconds).into())
}

/// Returns an id with these last characters.
pub(super) fn id(short: &str) -> String {
    format!("01939c5a-0000-7000-8000-0000{short}")
}

/// Creates a thread below another one.
pub(super) fn thread(short: &str, parent: &str, role: &str, kind: StatusKind, seconds: u64) -> Thread {
    Thread {
        session_id: id("0000cc03"),
        thread_id: id(short),
        parent_thread_id: if parent.is_empty() { String::new() } else { id(parent) },
        depth: u32::from(!parent.is_empty()),
        agent_type: role.to_owned(),
        status: Some(Status {
            kind: kind.into(),
            since: stamp(seconds),
            ..Status::default()
        }),
        create_time: stamp(seconds + 60),
        generation: 1,
        turn: 1,
        ..Thread::default()
    }
}

fn condition(kind: ConditionKind, reason: &str) -> Condition {
    Condition {
        kind: kind.into(),
        since: stamp(30),
        reason: reason.to_owned(),
    }
}

fn tokens(input: u64, output: u64, cost_micros: u64) -> Option<Usage> {
    Some(Usage {
        input_tokens: input,
        output_tokens: output,
        cost_micros,
        turns: 3,
        ..Usage::default()
    })
}

fn threads() -> Vec<Thread> {
    let mut root = thread("0000aa00", "", "default", StatusKind::Running, 600);
    // A client executes the root, so the root has no turn.
    root.turn = 0;
    let mut lead = thread("0000aa01", "0000aa00", "orchestrator", StatusKind::Running, 540);
    lead.alias = "lead".to_owned();
    lead.label = "Ship the release".to_owned();
    lead.activity = "waits for 3 agents".to_owned();
    lead.model = "gpt-5.2".to_owned();
    lead.reasoning_effort = "high".to_owned();
    lead.usage = tokens(18_000, 400, 90_000);
    lead.context_left_percent = Some(88);
    lead.runner_id = "local".to_owned();
    lead.budget = Some(Budget {
        tokens: 500_000,
        ..Budget::default()
    });
    lead.subtree_usage = tokens(400_000, 20_000, 1_500_000);
    let mut worker = thread("0000aa02", "0000aa01", "worker", StatusKind::Running, 134);
    worker.label = "Fix the parser".to_owned();
    worker.last_tool = Some(ToolUse {
        name: "apply_patch".to_owned(),
        detail: "src/lex.rs".to_owned(),
    });
    worker.model = "gpt-5.2-codex".to_owned();
    worker.usage = tokens(178_000, 4_000, 910_000);
    worker.context_left_percent = Some(11);
    worker.runner_id = "local".to_owned();
    worker.turn = 4;
    worker.plan = [
        ("Read the lexer", StepState::Completed),
        ("Add tests", StepState::InProgress),
    ]
    .map(|(step, state)| PlanStep {
        step: step.to_owned(),
        state: state.into(),
    })
    .to_vec();
    let mut queued = thread("0000aa03", "0000aa01", "worker", StatusKind::Queued, 20);
    queued.label = "Fix the docs".to_owned();
    let mut explorer = thread("0000aa04", "0000aa02", "explorer", StatusKind::Completed, 90);
    explorer.status.as_mut().unwrap().message = "found 演出 and \u{202e}שלום\u{1b}[2J in 3 places".to_owned();
    let mut stalled = thread("0000aa05", "0000aa01", "bug-hunter", StatusKind::Running, 700);
    stalled
        .conditions
        .push(condition(ConditionKind::Stalled, "the same output three times"));
    let mut failed = thread("0000aa06", "0000aa01", "reviewer", StatusKind::Errored, 60);
    failed.status.as_mut().unwrap().message = "the model is overloaded".to_owned();
    let closed = thread("0000aa07", "0000aa01", "explorer", StatusKind::Shutdown, 50);
    vec![root, lead, worker, queued, explorer, stalled, failed, closed]
}

fn approval() -> Approval {
    let asker = |short: &str, role: &str, alias: &str| ApprovalThread {
        thread_id: id(short),
        agent_type: role.to_owned(),
        alias: alias.to_owned(),
    };
    Approval {
        approval_id: id("0000dd04"),
        session_id: id("0000cc03"),
        thread_id: id("0000aa02"),
        subject: "Tool call: exec_command rm -rf build".to_owned(),
        create_time: stamp(48),
        deadline: stamp(0).map(|now| Timestamp {
            seconds: now.seconds + 552,
            ..now
        }),
        threads: vec![
            asker("0000aa02", "worker", ""),
            asker("0000aa01", "orchestrator", "lead"),
        ],
        ..Approval::default()
    }
}

fn group() -> Group {
    Group {
        session_id: id("0000cc03"),
        parent_thread_id: id("0000aa01"),
        spec: Some(GroupSpec {
            group_id: id("0000ee05"),
            name: "review".to_owned(),
            item_count: 10,
            ..GroupSpec::default()
        }),
        limits: Some(GroupLimits {
            max_concurrency: 4,
            ..GroupLimits::default()
        }),
        state: GroupState::Running.into(),
        pending: 3,
        running: 2,
        succeeded: 4,
        failed: 1,
        ..Group::default()
    }
}

/// Returns the messages of the first session: the session, then a complete snapshot.
pub(super) fn updates() -> Vec<SessionsUpdate<WatchThreadsResponse>> {
    let session = Session {
        session_id: id("0000cc03"),
        root_thread_id: id("0000aa00"),
        cwd: "/home/ann/parser".to_owned(),
        mode: Mode::Implementation.into(),
        limits: Some(Limits {
            max_threads: Some(12),
            ..Limits::default()
        }),
        create_time: stamp(660),
        sequence: 90,
        roll_up: Some(RollUp {
            usage: tokens(400_000, 20_000, 1_500_000),
            ..RollUp::default()
        }),
        currency: "USD".to_owned(),
        ..Session::default()
    };
    let snapshot = Snapshot {
        session: Some(session.clone()),
        threads: threads(),
        last: true,
        approvals: vec![approval()],
        groups: vec![group()],
        ..Snapshot::default()
    };
    vec![
        SessionsUpdate::Session(Box::new(WatchSessionsResponse {
            session: Some(session),
            synced: true,
            ..WatchSessionsResponse::default()
        })),
        message(Message::Snapshot(snapshot)),
    ]
}

/// Returns a message of the session's watch.
pub(super) fn message(message: Message) -> SessionsUpdate<WatchThreadsResponse> {
    let response = WatchThreadsResponse {
        sequence: 90,
        message: Some(message),
    };
    SessionsUpdate::Message(id("0000cc03"), Box::new(response))
}

/// Creates the state of a screen of this size that shows the sessions.
pub(super) fn state(width: u16, height: u16) -> State {
    let mut state = State::new(Filter::default(), false, ago(0));
    state.size = (width, height);
    for update in updates() {
        state.apply(update);
    }
    state.refresh();
    state
}

/// Presses keys, separated by spaces: characters, and the names `enter`, `esc`, `tab`, `space` and `ctrl-X`.
pub(super) fn press(state: &mut State, keys: &str) -> Vec<Effect> {
    let mut effects = Vec::new();
    for key in keys.split(' ') {
        let (modifiers, code) = match key {
            "enter" => (KeyModifiers::NONE, KeyCode::Enter),
            "esc" => (KeyModifiers::NONE, KeyCode::Esc),
            "tab" => (KeyModifiers::NONE, KeyCode::Tab),
            "space" => (KeyModifiers::NONE, KeyCode::Char(' ')),
            "back" => (KeyModifiers::NONE, KeyCode::Backspace),
            key => match key.strip_prefix("ctrl-") {
                Some(key) => (KeyModifiers::CONTROL, KeyCode::Char(key.chars().next().unwrap())),
                None => (KeyModifiers::NONE, KeyCode::Char(key.chars().next().unwrap())),
            },
        };
        effects.extend(state.key(&KeyEvent::new(code, modifiers)));
        state.refresh();
    }
    effects
}

/// Types a text.
pub(super) fn type_text(state: &mut State, text: &str) {
    for character in text.chars() {
        state.key(&KeyEvent::new(KeyCode::Char(character), KeyModifiers::NONE));
    }
}
